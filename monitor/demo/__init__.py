"""`make demo`: a real violation on a real cluster, shown as it is found, and judged."""
