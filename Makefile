# Two commands for everybody, on a fresh machine too: `make demo` and `make test`.
# PYTHON names another Python than python3: make setup PYTHON=python3.12

PYTHON ?= python3
BIN := .venv/bin

.PHONY: help setup demo airflow test prove check picture lock

help: ## this list
	@grep -E '^[a-z]+:.*##' Makefile | sed -E 's/:[^#]*## */\t/' | expand -t 10

setup: ## the environments (.venv, .venv-airflow) and the jars: once 70 s, then half a second
	@command -v $(PYTHON) >/dev/null || { echo "setup: Python 3.11 or newer is needed, and there is no $(PYTHON) on PATH" >&2; exit 4; }
	@$(PYTHON) requirements/environments.py setup

demo: setup ## votes, one a batch; then TPC-DI from files to an audited warehouse: all of it real
	@$(BIN)/python examples/demo.py
	@$(BIN)/python examples/brokerage.py

airflow: ## Airflow with our DAGs, against the stack that `headrace up` has started
	@test -x $(BIN)/headrace || { echo "airflow: there is no $(BIN) yet: run make setup" >&2; exit 4; }
	@$(BIN)/headrace airflow

test: check ## check, and every test that is not slow, against the real broker, Spark and PostgreSQL, two files at once
	$(BIN)/pytest -n 2 --dist loadscope --no-loadscope-reorder

prove: setup ## the searches of the tests for longer, and broken builds; SEED=n repeats one
	$(BIN)/python tests/prove.py $(SEED)

check: setup ## what is quick: format, lint, types, import layers, rules of the house
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/pytest -q tests/test_house.py tests/test_compose.py

picture: setup ## the status page under load, taken in Chromium: docs/status-*.png
	@PYTHONPATH=. $(BIN)/python tests/status_picture.py

lock: ## renew the locks and the digests of the jars
	@$(PYTHON) requirements/environments.py lock
