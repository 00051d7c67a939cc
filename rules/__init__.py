"""What holds in a log that keeps its promises, and every way in which it can fail to: pure functions, no I/O, no clock."""
