"""The HTTP server of the metrics and of the status page, which nobody can hold by not asking or not reading."""
