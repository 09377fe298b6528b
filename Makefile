# Every target works from a bare clone with python3, pip and make: the first one makes .venv from requirements.lock.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
ROBO := .venv-robosuite/bin
ROBO_READY := .venv-robosuite/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow test-newest lint bench tables audit torture robosuite test-robosuite bridge clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:[^#]*## /\t/' | expand -t 16

$(READY): requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

setup: $(READY)  ## make .venv with pinned versions

demo: $(READY)  ## train agents in a small chain, with the bonus and without (minutes); curves, tables, a GIF with local graphs: runs/demo
	$(BIN)/elden demo

lint: $(READY)  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint  ## lint, types and the tests (the slow ones excepted)
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test-slow: $(READY)  ## the tests that take minutes
	$(BIN)/python -m pytest -m slow -n 2 --dist loadfile --no-loadscope-reorder

test-newest:  ## the tests with the newest versions that pyproject.toml allows, in .venv-newest
	test -x .venv-newest/bin/python || $(PYTHON) -m venv .venv-newest
	.venv-newest/bin/python -m pip install --quiet --disable-pip-version-check --upgrade -e ".[dev]"
	.venv-newest/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

bench: $(READY)  ## speed of worlds and dynamics models; writes results/speed/*_speed_cpu.json
	$(BIN)/python benchmarks/worlds.py --out results/speed/worlds_speed_cpu.json
	$(BIN)/python benchmarks/dynamics.py --skip-bfloat16 --out results/speed/dynamics_speed_cpu.json

tables: $(READY)  ## the paper's Tables 1 and 2 with the quick preset, into runs/table1-quick and runs/table2-quick
	$(BIN)/elden reproduce table1 --preset quick --models runs/tables-quick/models
	$(BIN)/elden reproduce table2 --preset quick --models runs/tables-quick/models

audit: $(READY)  ## check the true local graphs by intervention; writes results/labels/labels_audit.json
	$(BIN)/python tools/labels_audit.py --out results/labels/labels_audit.json

# A separate environment: robosuite goes in without its own dependencies, and `make test` must never come to need it.
$(ROBO_READY): requirements.lock requirements-robosuite.lock pyproject.toml
	test -x $(ROBO)/python || $(PYTHON) -m venv .venv-robosuite
	$(ROBO)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock -r requirements-robosuite.lock
	$(ROBO)/python -m pip install --quiet --disable-pip-version-check --no-deps robosuite==1.5.2
	$(ROBO)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(ROBO)/python -m elden.worlds.kitchen.robosuite
	@touch $@

robosuite: $(ROBO_READY)  ## make .venv-robosuite: the kitchen with physics (1.9 GB), and try it
	@echo "ready: $(ROBO)/elden, $(ROBO)/python"

test-robosuite: $(ROBO_READY)  ## the tests of the kitchen with physics (minutes)
	$(ROBO)/python -m pytest -m robosuite

bridge: $(ROBO_READY)  ## the kitchen with physics against its twin, and their speeds; writes results/transfer/kitchen_bridge_cpu.json
	$(ROBO)/python experiments/kitchen_bridge.py --out results/transfer/kitchen_bridge_cpu.json

torture: $(READY)  ## kill processes, damage files, make up command lines, and count what is lost (minutes); writes runs/torture.json
	mkdir -p runs
	$(BIN)/python tools/torture.py --out runs/torture.json

clean:  ## remove .venv, .venv-newest, .venv-robosuite and caches
	rm -rf .venv .venv-newest .venv-robosuite .mypy_cache .pytest_cache .ruff_cache .hypothesis
