"""The job's Delta tables: columns, files, upkeep, and the findings that stand in them now."""
