"""The probes themselves: what each of them does with its clients, operation after operation."""
