"""Records as probes send and poll them: tag and envelope, a batch's delivery, a poll sorted out, the registers."""
