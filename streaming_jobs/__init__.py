"""The jobs that check the probe log as it grows, on Spark Structured Streaming and Delta.

integrity_job.py  the job: started, watched, ended;  batch_progress.py, checks_stalled.py, checkpoint_claim.py beside it
session.py        the Spark session;  config.py  the section of the configuration;  errors.py  what can go wrong
rebuild/          the state made anew from the probe log
verdicts/         the stateful operator, stage 2, look-ups, rechecks, and the sink
cycles/           the second job: the search for dependency cycles
history/          the probe log as a stream, as files, and in the order of its times
tables/           the Delta tables: columns, files, upkeep, current findings
"""
