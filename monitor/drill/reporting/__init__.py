"""What drills there are and what they came to: lists, tables, the page."""
