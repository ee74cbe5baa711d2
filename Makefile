# Two commands for everybody: `make demo` and `make test`. Each makes what it needs first.
# PYTHON names another Python than python3: make setup PYTHON=python3.12

PYTHON ?= python3
BIN := .venv/bin

.PHONY: help setup test check lock

help: ## this list
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/:[^#]*## */\t/' | expand -t 12

setup: ## the environments (.venv, .venv-airflow) and the jars; the second run takes a second
	@command -v $(PYTHON) >/dev/null || { echo "setup: Python 3.11 or newer is needed, and there is no $(PYTHON) on PATH"; exit 4; }
	@$(PYTHON) requirements/environments.py setup

check: setup ## linters, types, layers: what is quick
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: check ## everything: check, and every test
	$(BIN)/pytest

lock: ## renew the locks and the digests of the jars
	@$(PYTHON) requirements/environments.py lock
