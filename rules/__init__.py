"""What holds in a log that keeps its promises, and every way to break them: pure functions, no I/O, no clock."""
