"""What somebody needs after an incident: SQL over the tables, a history for another checker, a report in one file."""
