"""Kafka's protocol itself: frames, messages and logins, for requests that no client library can be made to send."""
