# Everything a clone needs. `make help` lists the targets.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PYTHON ?= python3
PY := .venv/bin/python
UP ?=
ROUNDS ?= 200
SEED ?= 0
DB ?= sqlite
BENCH ?=

.PHONY: help setup run test check messages soak bench clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: .venv/run.done ## start everything in the foreground (options: UP="--port 9000")
	@exec $(PY) manage.py up $(UP)

setup: .venv/dev.done ## make .venv with the locked dependencies, those of the tests too

test: .venv/dev.done check ## static checks, then all tests: two files side by side, at last what measures time
	@$(PY) -m pytest -n 2 --dist loadfile -m "not alone"
	@$(PY) -m pytest -m alone

check: .venv/dev.done ## lint, types, import contracts, and the code's figures
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@PYTHONPATH=. .venv/bin/lint-imports --no-cache
	@$(PY) manage.py makemigrations --check --dry-run
	@$(PY) -m tests.figures

messages: .venv/dev.done ## take the texts of templates and code into the .po files, and compile them
	@$(PY) -m tests.messages

soak: .venv/dev.done ## crash and fault tests with many rounds (ROUNDS=200 SEED=0, DB=pg for two servers on Postgres)
	@echo "soak: $(ROUNDS) rounds of seed $(SEED) on $(DB)"
	@TEST_DB=$(DB) CRASH_ROUNDS=$(ROUNDS) CRASH_SEED=$(SEED) FUZZ_EXAMPLES=$(ROUNDS) \
	  $(PY) -m pytest tests/crash/test_kill.py tests/crash/faults.py tests/gateway/test_api_fuzz.py

bench: .venv/dev.done ## our speed and cost beside a bare relay's, as a table (BENCH="burst idle --rounds 3")
	@$(PY) -m tests.bench $(BENCH)

clean: ## remove .venv and caches; your data in var/ stays
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "Branchline needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V 2>&1). Try: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; echo "Python's venv module is missing; on Debian: apt install python3-venv"; exit 1; }

.venv/run.done: requirements.lock | .venv/bin/python
	@echo "Installing the locked dependencies (once)"
	@$(PY) -m pip install -q --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

.venv/dev.done: requirements-dev.lock .venv/run.done
	@echo "Installing what the tests need (once)"
	@$(PY) -m pip install -q --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@
