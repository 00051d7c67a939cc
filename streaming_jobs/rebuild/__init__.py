"""State made anew from the probe log and handed over to the running query, and what of it nobody was told."""
