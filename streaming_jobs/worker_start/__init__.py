"""A folder that the Python processes of a local Spark have on their path: what they do as they start."""
