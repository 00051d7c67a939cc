"""Probes that only drills have, in Python and with Kafka's own Java client."""
