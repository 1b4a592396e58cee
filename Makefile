# Each target sets up what it needs from a bare clone: Python 3.11 or newer, git and make are enough.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: quickstart test lint man benchmarks clean

quickstart: $(VENV)/installed
	$(BIN)/icml25 quantize --method nestquant tiny

test: $(VENV)/installed-test
	$(BIN)/python -m pytest -n auto

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

man: $(VENV)/installed
	$(BIN)/python man/generate.py

benchmarks: $(VENV)/installed-test
	for bench in tests/benchmarks/bench_*.py; do $(BIN)/python $$bench || exit 1; done

clean:
	rm -rf $(VENV) build dist *.egg-info

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# pip and not uv: with torch pinned, pip takes the CPU build where one is configured; see README.
$(VENV)/installed: pyproject.toml | $(VENV)/bin/python
	@echo 'installing into $(VENV): a few minutes'
	$(BIN)/python -m pip install --quiet -e .
	touch $@

$(VENV)/installed-test: pyproject.toml | $(VENV)/bin/python
	@echo 'installing into $(VENV): a few minutes'
	$(BIN)/python -m pip install --quiet -e '.[test]'
	touch $@ $(VENV)/installed

$(VENV)/installed-dev: pyproject.toml | $(VENV)/bin/python
	@echo 'installing into $(VENV): a few minutes'
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	touch $@ $(VENV)/installed-test $(VENV)/installed
