"""From rows to verdicts: the stateful operator, stage 2, look-ups and rechecks, and the sink that writes all of it."""
