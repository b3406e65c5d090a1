# Every target sets up what it needs in .venv, with nothing but Python 3.11 or later and pip on the machine.
# Without a GPU: `make test PIP_FLAGS="--extra-index-url https://download.pytorch.org/whl/cpu"` saves gigabytes.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV ?= .venv
PYTHON ?= python3
PIP_FLAGS ?=
PYTEST_FLAGS ?=
WORKERS ?= 2
BENCH_FLAGS ?=

bin := $(VENV)/bin
pip := $(bin)/python -m pip install -qq --disable-pip-version-check -c constraints.txt $(PIP_FLAGS)
pytest := $(bin)/python -m pytest -n $(WORKERS)

.PHONY: help
help:  ## What there is to make
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(VENV)/.core  ## The main job: Llama-3-70B on 64 H100s; chart, summary and trace in demo/
	@mkdir -p demo
	$(bin)/pipesim simulate interleaved --model llama-3-70b --cluster dgx-h100:8 --tp 8 --pp 8 --virtual 5 \
		--micro-batch 1 --global-batch 64 --seq 8192 \
		--out demo/llama.html --trace demo/llama.trace.json | tee demo/llama.txt
	@echo "demo/llama.html: the chart; demo/llama.txt: the summary; demo/llama.trace.json: for ui.perfetto.dev"

.PHONY: test
test: $(VENV)/.dev  ## All tests
	$(pytest) $(PYTEST_FLAGS)

.PHONY: check
check: $(VENV)/.dev  ## The tests that are quick, in less than a minute
	$(pytest) -m "not slow and not gpu" $(PYTEST_FLAGS)

.PHONY: bench
bench: $(VENV)/.dev  ## Measure every claim into benchmarks/RESULTS.md; BENCH_FLAGS=--quick for minutes
	$(bin)/python -m benchmarks.run $(BENCH_FLAGS)

.PHONY: lint
lint: $(VENV)/.dev  ## Style, types, and who may import whom
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy
	$(bin)/lint-imports --no-logo

.PHONY: format
format: $(VENV)/.dev  ## Put the style right
	$(bin)/ruff check --fix .
	$(bin)/ruff format .

.PHONY: docs
docs: $(VENV)/.dev  ## The documentation as a site, in site/; a link that leads nowhere fails
	NO_MKDOCS_2_WARNING=1 $(bin)/python -m mkdocs build --quiet --strict
	@echo "site/index.html; with search, and a reload at every change: $(bin)/python -m mkdocs serve"

.PHONY: stub
stub: $(VENV)/.core  ## After a change of the public names: tell type checkers
	$(bin)/python .ci/stub.py

.PHONY: lock
lock: $(VENV)/.dev  ## Newest versions into constraints.txt
	$(bin)/python .ci/lock.py

.PHONY: clean
clean:  ## Away with all that was made here, the environment too
	rm -rf $(VENV) build dist demo site htmlcov .coverage* *.egg-info .*_cache

$(VENV)/.core: pyproject.toml constraints.txt | $(bin)/python
	$(pip) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(bin)/python
	$(pip) -e '.[run,search,app,images,docs,dev]'
	@touch $@ $(VENV)/.core

# Debian's Python comes without ensurepip: then the machine's pip puts one in.
$(bin)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "pipesim needs Python 3.11 or later, $(PYTHON) is $$($(PYTHON) -V); make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || \
		{ $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --python $@ install -q pip; }
