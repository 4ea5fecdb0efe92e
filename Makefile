# make demo   trains three recipes on built-in data and names the reports
# make test   lint, types and tests, in under ten minutes on two cores
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: install demo test tests test-slow lint types bench clean

install: .venv/installed

# torch first and pinned: asked for in any other way, pip may fetch a build of several gigabytes
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) torch==2.13.0 numpy
	$(PIP) -e .
	@touch $@

.venv/tested: .venv/installed
	$(PIP) -e '.[test]'
	@touch $@

demo: install
	$(BIN)/didact train mlp --data digits
	$(BIN)/didact train tabular --data breast_cancer
	$(BIN)/didact train forecast --data waves

lint: .venv/tested
	$(BIN)/ruff check src tests benchmarks

types: .venv/tested
	$(BIN)/mypy

# types are checked while the tests run: a first check takes a minute or two of one core
test: lint
	$(MAKE) -j2 types tests

tests: .venv/tested
	$(BIN)/pytest -n 2 --dist loadgroup

test-slow: .venv/tested
	$(BIN)/pytest -m slow

bench: .venv/tested
	$(PIP) -e '.[bench]'
	$(BIN)/python benchmarks/mlp_epoch.py
	$(BIN)/python benchmarks/scratch_step.py

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache
