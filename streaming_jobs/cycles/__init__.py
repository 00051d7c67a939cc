"""The second job: dependency cycles, searched in windows of the probe log."""
