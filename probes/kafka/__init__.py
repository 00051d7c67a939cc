"""Kafka as probes meet it: client settings, calls that are bounded, what an error means, where a consumer starts."""
