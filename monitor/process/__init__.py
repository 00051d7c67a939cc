"""The running process: probes and checks wired and kept at work, signals, its own log."""
