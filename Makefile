# Needs Python 3.11, pip and make; everything else is installed into .venv, a C compiler for the tests included.
#   make test    checkers, tests and coverage
#   make demo    the colocated loop on a small model       (make demo DEMO_ARGS="--turns 4")
#   make docs    the generated pages of docs/
#   PIP_ARGS     more arguments for pip, such as an index with a CPU build of torch

PYTHON ?= python3.11
PIP_ARGS ?=
DEMO_ARGS ?=
PYTEST_ARGS ?=
VENV := .venv
BIN := $(VENV)/bin

.PHONY: test lint cover demo docs clean

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
