# For a fresh machine: `make demo`, `make test` and `make check`.
# PyTorch is pinned here only, so that a first try fetches one known build; the package asks for a range.
TORCH ?= torch==2.13.0
PYTHON ?= python3
VENV := .venv/bin
export PYTHONSAFEPATH := 1

# The package's folders stand at the root; type checkers and editors find them as `longctx` by these links.
LINKS := $(addprefix .links/longctx/,__init__.py __main__.py cli core kernels profiles samples)

.PHONY: demo test test-fast test-whole campaign check docs release setup

setup: .venv/ready $(LINKS)

$(LINKS):
	mkdir -p $(@D)
	ln -sfn ../../$(@F) $@

# What is imported is compiled then, and kept: to compile all of it takes most of a minute.
INSTALL := $(VENV)/python -m pip install --quiet --no-compile

.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	-$(INSTALL) 'pip>=26'  # that of Python 3.11 takes three times as long to choose releases
	-$(VENV)/python -m pip uninstall -qq --yes longctx  # what this clone was called before
	$(INSTALL) $(TORCH) --editable '.[dev]'
	touch $@

demo: setup
	$(VENV)/python samples/demo.py

# The processes that tests start compile nothing twice, also where a machine is set to write no bytecode.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(VENV)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

docs: setup
	$(VENV)/python docs/blocks.py

release: setup
	$(VENV)/python -P docs/release.py

test: setup
	$(PYTEST)

test-fast: setup
	$(PYTEST) -m "not slow"

test-whole: setup
	TESTS_WHOLE=1 $(PYTEST)

# For a night: what the tests try a few cases of. The same command goes on where it was stopped.
CAMPAIGN ?= build/campaign
ROUNDS ?= 20
campaign: setup
	mkdir -p $(CAMPAIGN)
	$(VENV)/python tests/faults/attack.py --rounds $(ROUNDS)
	for each in kills flips power faults pairs; do \
		$(VENV)/python tests/faults/campaign.py $$each --journal $(CAMPAIGN)/$$each.jsonl || exit 1; done
	$(VENV)/python tests/fuzz/campaign.py run --journal $(CAMPAIGN)/run
	$(VENV)/python tests/fuzz/campaign.py commands --journal $(CAMPAIGN)/commands

check: setup
	$(VENV)/ruff check .
	$(VENV)/ruff format --check .
	$(VENV)/basedpyright
	$(VENV)/python -m pytest --quiet tests/test_layout.py
