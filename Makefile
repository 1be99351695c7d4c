# Needs Python 3.11, pip and make; everything else is installed into .venv, a C compiler for the tests included.
#   make test    checkers, tests and coverage
#   make demo    the colocated loop on a small model       (make demo DEMO_ARGS="--turns 4")
#   make soak    5,000 sleep and wake cycles, in which nothing may grow      (make soak CYCLES=500)
#   make faults  every fault of every event in every configuration
#   make docs    the generated pages of docs/
#   PIP_ARGS     more arguments for pip, such as an index with a CPU build of torch

PYTHON ?= python3.11
PIP_ARGS ?=
DEMO_ARGS ?=
PYTEST_ARGS ?=
CYCLES ?= 5000
VENV := .venv
BIN := $(VENV)/bin

.PHONY: test lint cover demo soak faults docs clean

test: lint cover

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/interrogate --quiet tests

cover: $(VENV)/.test
	$(BIN)/python -m pytest --cov=states --cov=lifecycle --cov-report= $(PYTEST_ARGS)
	$(BIN)/coverage report --include='states/*' --fail-under=100
	$(BIN)/coverage report --include='lifecycle/*' --fail-under=90

demo: $(VENV)/.demo
	$(BIN)/adapter-lifecycle demo $(DEMO_ARGS)

soak: $(VENV)/.test
	$(BIN)/python -m tests.soak $(CYCLES)

faults: $(VENV)/.test
	$(BIN)/python -m tests.soak faults

docs: $(VENV)/.demo
	$(BIN)/adapter-lifecycle docs --out docs

clean:
	rm -rf $(VENV) build demo-out .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache *.egg-info

# The stamp is younger than what it was installed from, or the extra is installed again.
$(VENV)/.%: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) -c constraints.txt -e '.[$*]'
	touch $@

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
