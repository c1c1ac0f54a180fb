PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

ROUNDS ?= 200
SEED   ?= 1
LANES  ?= 2

.PHONY: help install demo test mutations chaos check format bench clean

help:
	@echo "make demo    the whole pipeline on live traffic, with an embedded broker"
	@echo "make test    everything the tests need, and the tests"
	@echo "make mutations  each rule switched off, and a test that has to notice"
	@echo "make chaos   the fault campaign: ROUNDS=200 SEED=1 LANES=2"
	@echo "make check   ruff, mypy --strict, import-linter"
	@echo "make bench   the benchmarks"
	@echo "make clean   remove what these targets made"

$(VENV)/installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[demo,dev,postgres]'
	touch $@

install: $(VENV)/installed

demo: install
	$(BIN)/backslide demo

test: install
	$(BIN)/python -m tests.services.install
	$(BIN)/python -m pytest -n 2 --dist loadfile

mutations: install
	$(BIN)/python -m tests.mutations

chaos: install
	$(BIN)/python -m tests.services.install
	$(BIN)/python -m tests.chaos --rounds $(ROUNDS) --seed $(SEED) --lanes $(LANES)

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install
	$(BIN)/python -m tests.services.install
	$(BIN)/python -m benchmarks.estimate
	$(BIN)/python -m benchmarks.assembly
	$(BIN)/python -m benchmarks.pipeline

clean:
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist build
