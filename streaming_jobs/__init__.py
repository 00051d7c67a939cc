"""The jobs that check the probe log as it grows, on Spark Structured Streaming and Delta.

config.py      the section of the configuration
session.py     the Spark session
source.py      Delta table `history` as a stream
files.py       the log's data files read as columns
validation.py  which rows can be understood;  bundles.py  many rows of a partition as one
integrity.py   the stateful operator that carries the state of `rules.step`
resolution.py  stage 2: what partitions know for each other
lookups.py     transactions of which a value is absent;  recheck.py  what readers saw differently: asked of the rows
sink.py        a batch's verdicts into Delta and to listeners;  tables.py, schemas.py  those tables
rebuild.py     the state rebuilt from the probe log;  replay.py  the log in order;  news.py  what of it is new;
               handover.py  the new checkpoint;  gap.py  evidence-gap
findings.py    the current findings
stall.py       evidence-stalled;  progress.py  what Spark says of a batch
job.py         the integrity job: all of this, started, watched and stopped
cycles.py      the second job: dependency cycles, searched over windows;  windows.py  those windows
graph_frames.py  GraphFrames as the engine of that search
upkeep.py      compaction, ageing and vacuum of the tables
errors.py      what can go wrong, in a sentence each
"""
