"""Drills, run one after the other: clusters, the checker that looks on, the session."""
