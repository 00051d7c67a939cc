"""What keeps the probes of one host at work: threads and processes of their own, stops, the last drain."""
