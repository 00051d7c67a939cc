"""From the journals of a host to the Delta table `history`: what is appended, exactly once, and what marks promise."""
