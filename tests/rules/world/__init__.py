"""A world of hosts: a second simulator, with an oracle written from the definitions of the anomalies alone.

The first simulator (`tests/rules/model`) makes legal histories of operations. This one makes what surrounds them: a
true cluster log, hosts with clocks, journals and committers, what befalls them, and the rows that reach the checker in
the end. It shares no assumption with the engine but the row schema, and calls it through one door, `engine.py`.

How a world runs, file by file:

- `kernel.py`: a discrete-event loop in true time, which no host knows; `clocks.py`: what hosts believe instead.
- `cluster.py`: the true log. `faults.py`: what the cluster does wrong, each fault written down as it strikes.
- `probes.py`, `transactions.py`, `groups.py`: what runs on the hosts. `life.py`: a process and its journal.
- `host.py`: boots, crashes, and the committer that turns journals into appends with marks. `world.py`: all together.
- `delivery.py`: how the appends are cut into steps, and disordered.
- `truth.py`: what clients really saw; `oracle.py`: what must be found, by when, and what may be said; `must.py`: one
  thing that must be; `committed.py`: what must be of committed offsets.
- `explains.py`: which violation follows from which fault; `skews.py`: which clocks can be compared at all.
- `judge.py`: one world, several deliveries, the differences. `random_worlds.py`: worlds from a seed; `cases.py`:
  situations of operation, one by one; `rejects.py`: rows that never reach the table.
- `not_yet.py`: the worlds that the engine does not pass yet. Each of them is expected to fail, and a pass is an error.

`python -m tests.rules.world --worlds 100 --seed 1 --jobs 2` runs random worlds: seed, kind and verdict in one line
each, the first difference under those that failed (`--all`: all of them), a summary, and exit code 1 where any failed.
`--cases [PART OF A NAME]` runs the situations. `make search` runs random worlds for hours.

From seed 63,000 on worlds are upset: clocks are minutes apart, boots come back late and with another time, logs are cut
to their beginnings, and what was cut off is put back.

What the oracle asks for: a violation that the true log and the clients' own views prove, once its grace is over and
the rows that it needs have come; never what needs a journal or a row that is lost for ever, or clocks that nobody can
compare. What it forbids: every violation that no planted fault explains. A fault that only a lost log could explain
away (`only_for`: a record that one reader saw, whose rows are gone) forbids `lost-write`. Findings that need an index
below the settled frontier (order, and the offsets of a log that was cut) are asked for where rows come within the
minute.

Conventions of the rows, where the schema leaves a choice: a writer's id is its process id; a poll has a row for each
partition that it asked for, also where it returned nothing; an aborted transaction is `fail` and keeps the offsets
that its sends were given; a recovered operation has no offsets and no monotonic completion of its own if its host was
booted meanwhile.
"""
