"""The probe log: from a probe's journal to the Delta table `history`, whatever dies in between.

frames.py     how a journal's bytes are cut, and torn ends told from broken middles
rows.py       slices as short lists, and the table's columns from those
progress.py   a journal's messages, and what they add up to
segments.py   where journals lie, and the lock that tells the living from the dead
journal.py    writing one life's journal
copies.py     what was read of the journals survives the loss of the host
recovery.py   finishing the lives that died
reader.py     reading a journal while it is written
lives.py      which journals there are for a committer to read
marks.py      how far each process's log is complete
append_plan.py  what the next append consists of, on disk before it is made
history.py    the Delta table
data_files.py its files
checkpoints.py those of its log
committer.py  one turn after another
"""
