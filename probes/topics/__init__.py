"""The probe topics: what is there, what should change, and what the cluster says of their settings."""
