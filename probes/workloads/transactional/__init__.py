"""Probes that work in transactions, and what these have in common: one run, one producer, one membership."""
