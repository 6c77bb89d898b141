# Two commands for a fresh machine: `make demo` and `make test`.
# PyTorch is pinned here only, so that a first try fetches one known build; the package asks for a range.
TORCH ?= torch==2.13.0
PYTHON ?= python3
VENV := .venv/bin
export PYTHONSAFEPATH := 1

.PHONY: demo test lint docs setup

setup: .venv/ready

.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(VENV)/python -m pip install --quiet $(TORCH)
	$(VENV)/python -m pip install --quiet --editable '.[dev]'
	touch $@

demo: setup
	$(VENV)/python samples/demo.py

test: setup
	OMP_NUM_THREADS=1 $(VENV)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile

docs: setup
	$(VENV)/python docs/blocks.py

lint: setup
	$(VENV)/ruff check .
	$(VENV)/ruff format --check .
