"""`offsetwatch drill endure`: a random schedule of real faults, and the published defects it may meet."""
