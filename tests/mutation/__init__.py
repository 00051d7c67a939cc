"""Are the rules' tests sharp? Each check is made wrong in one place, and a test has to notice.

    python -m tests.mutation --check zero_offsets --jobs 2       # make mutate CHECK=zero_offsets

A *mutant* is the tree with one change (`mutants.py`): a field of evidence, a part of a subject, a message or a time is
made another, or a condition is taken out. It is *killed* by the first test that fails, and *survives* where all pass
that reach the changed lines (`reach.py` learns once which do, and how long they take). A survivor means that the tests
do not say what the code says: a finding is not compared whole, or an innocent history that needs the condition is
missing. A few mutants change nothing that anybody can see; `equivalent.toml` lists them with the reason.

Verdicts are kept in a folder of their own (`--results`), by the source of the changed function: what was killed is not
tried again until that function changes, and what survived only with other tests than before, so that a run can be
broken off and goes on where it was, and a larger `--budget` goes on where a smaller one ended. `--again` forgets it.
What survives a small budget is tried cheapest with the tests that should notice: `--tests test_log_ends --budget 60`.
`--told` tries nothing and tells what is known.
"""
