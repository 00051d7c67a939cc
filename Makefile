# The commands of the README. Each of them does all the set-up it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PACKAGES := monitor probes streaming_jobs rules alerts deploy
SOON := not evening and not drills and not alone
ALONE := not kafka and not spark and not slow and $(SOON)
QUICK := $(ALONE) and not long

# Where the environment says that Python keeps no bytecode, every process that a test starts compiles all modules anew,
# and each of pytest's rewrites all tests: a tenth of their processor time.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup demo test quick coverage evening search mutate drills lint format bench docs clean

# Also brings back what was removed since: in a tenth of a second where nothing was.
setup: $(READY)
	@$(BIN)/python -m deploy.setup

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "offsetwatch: Python 3.11 or newer is needed, $(PYTHON) is older or absent (set PYTHON=...)" >&2; exit 2; }
	@echo "offsetwatch: installing the Python packages into $(VENV)" >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@$(BIN)/python -m deploy.setup
	@touch $@

demo: $(READY)
	$(BIN)/offsetwatch demo

# The rules' tests fill what is left of the machine while those with brokers, Spark and processes of their own run,
# five files at a time: these wait for more than half of their time. Before them runs the demonstration, which has a
# minute to find what it makes; it looks through all files for its tests, so that pytest has rewritten each of them once
# before five processes read them. What the rules' tests say is shown at the end.
test: $(READY)
	@mkdir -p .offsetwatch; said=.offsetwatch/rules-tests.log; failed=0; \
	nice -n 19 $(BIN)/python -m pytest tests/rules -m "not evening" -n auto --dist worksteal --durations=25 >$$said 2>&1 & rules=$$!; \
	$(BIN)/python -m pytest --ignore=tests/rules -m alone || failed=1; \
	$(BIN)/python -m pytest --ignore=tests/rules -m "$(SOON)" -n 5 --dist loadfile --no-loadscope-reorder \
	  --durations=15 || failed=1; \
	wait $$rules || failed=1; \
	cat $$said; exit $$failed

# Some of what needs no broker and no Spark, for the time between two thoughts: each case is tried, in one of the ways in
# which `make test` tries it, and tests marked `long` are left out. Three processes more than there are processors: they
# wait for what they start, and for stores that answer, for a third of their time.
quick: $(READY)
	$(BIN)/python -m pytest -n "$$(($$(nproc) + 3))" --dist worksteal --one-way -m "$(QUICK)"

# Which lines all that needs no broker and no Spark reaches, in every way: fails where they are fewer than the floor in
# pyproject.toml, and names the files.
coverage: $(READY)
	@mkdir -p .offsetwatch/coverage
	$(BIN)/python -m pytest -n auto --dist worksteal -m "$(ALONE)" --cov --cov-report=term

# What takes too long for each change, one after the other: whole evenings on call with real clusters, probes, checks and
# receivers, dashboards asked at a real Prometheus, rebuilds that are killed. Half an hour on a calm machine; on one that
# does other things as well they wait long, and may give up.
evening: $(READY)
	$(BIN)/python -m pytest -m evening -v

# Random histories beyond those of `make test`, and then random worlds of hosts, for hours; HISTORIES, MODELS, WORLDS and
# SEED may be set. What fails becomes a test.
HISTORIES ?= 20000
MODELS ?= 50
WORLDS ?= 10000
SEED ?= $(shell date +%s)
SEARCHED := test_model test_reference cycles/test_cycles_random cycles/test_registers \
  transactions/test_across_partitions conditions/test_liveness cut_logs/test_given_again
search: $(READY)
	@failed=0; HISTORIES=$(HISTORIES) MODELS=$(MODELS) $(BIN)/python -m pytest -n auto --dist worksteal --timeout=0 \
	  $(patsubst %,tests/rules/%.py,$(SEARCHED)) || failed=1; \
	$(BIN)/python -m tests.rules.world --worlds $(WORLDS) --seed $(SEED) --jobs "$$(nproc)" || failed=1; \
	exit $$failed

# Each check made wrong in one place, many times over: a test has to notice. CHECK=zero_offsets tries one module.
mutate: $(READY)
	$(BIN)/python -m tests.mutation $(if $(CHECK),--check $(CHECK)) --jobs "$$(nproc)"

# Every published bug, made and found; and the faults that they are made with, each tried on its own.
drills: $(READY)
	@failed=0; $(BIN)/python -m pytest -m drills || failed=1; \
	$(BIN)/offsetwatch drill run --all --report .offsetwatch/drills || failed=1; \
	exit $$failed

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/python -m deploy.copies

bench: $(READY)
	$(BIN)/python -m tests.bench

# The documentation as a site, in build/site.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) .offsetwatch build *.egg-info
