"""Data folders that released versions have left, taken over by this one."""
