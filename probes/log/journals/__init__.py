"""The journal of one client's life on its host's disk: frames, segments, writing it, reading it while it grows."""
