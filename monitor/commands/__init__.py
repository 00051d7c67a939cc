"""What the commands of `offsetwatch` do, but for those with a room of their own."""
