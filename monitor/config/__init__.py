"""The configuration: one file, the environment over it, and the reference pages made of its models."""
