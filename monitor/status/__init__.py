"""The status page of a running monitor: what stands now, and the evidence of each incident, for people and programs.

What `/` shows is held in memory (`board`): a view reads no table and holds up no check. The evidence of an incident is
read from the Delta tables (`evidence`), of the probe log the hour around it alone. Pages are rendered here, as HTML
that works without JavaScript; with it they refresh themselves and say when the monitor does not answer any more.
"""
