.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help setup demo test soak check docs wheel pictures bench lock lowest clean

help:  ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Compiled here, because where PYTHONDONTWRITEBYTECODE is set each start would compile all of it again, for 0.2 s.
.venv/.installed: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing into .venv (the first time takes a minute or two) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@$(BIN)/python -m compileall -q callsheet backlot flows tasks
	@touch $@

setup: .venv/.installed  ## make .venv and install everything from the lock

demo: setup  ## a real batch against the backlot: quote, run, media, report
	@$(BIN)/callsheet demo

# Tests start many Pythons; what one has compiled the others read, also where the environment forbids to keep it.
test soak: export PYTHONDONTWRITEBYTECODE =

# Threads of several processes that wait for each other by spinning take the cores from the tests.
test: export POLARS_MAX_THREADS = 1

test: setup  ## all tests (ten minutes on two cores)
	@$(BIN)/python -m pytest -m "not soak" --timeout 900 --numprocesses 3 --dist loadgroup --no-loadscope-reorder

soak: setup  ## the long forms of the tests
	@$(BIN)/python -m pytest -m soak

# Each has a cache of its own: one that is shared would be made anew in each run, for 20 s.
SYSTEMS := linux darwin win32

check: setup  ## lint, format, types on each system, import layers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@for system in $(SYSTEMS); do $(BIN)/mypy --platform $$system --cache-dir .mypy_cache/$$system || exit 1; done
	@$(BIN)/lint-imports

docs: setup  ## write docs/configuration.md from the config's schema, and the outputs of docs/python.ipynb
	@$(BIN)/python docs/generate_configuration.py
	@$(BIN)/python docs/execute_notebook.py

wheel: setup  ## make dist/callsheet-*.whl, to install without a clone
	@$(BIN)/python -m hatchling build -t wheel

pictures: setup  ## take the pictures of docs/pictures anew (needs Chromium)
	@$(BIN)/python -m docs.take_pictures
	@CALLSHEET_DRAW=1 $(BIN)/python -m pytest -m soak -q tests/flows/test_browser.py

bench: setup  ## measure speed and memory: prints the table of benchmarks/README.md (15 minutes)
	@$(BIN)/python -m benchmarks

lock: setup  ## renew constraints.txt
	@$(BIN)/uv pip compile --quiet --universal --upgrade --python-version 3.11 --all-extras \
		--no-header --no-annotate --no-emit-index-url --no-emit-find-links pyproject.toml --output-file constraints.txt

lowest: setup  ## the tests of flows/ with the lowest versions that pyproject.toml allows
	@$(PYTHON) -m venv .lowest
	@$(BIN)/uv pip compile --quiet --resolution lowest-direct --python-version 3.11 --all-extras \
		--no-header --no-annotate --no-emit-index-url --no-emit-find-links pyproject.toml --output-file .lowest/requirements.txt
	@.lowest/bin/python -m pip install --quiet --disable-pip-version-check --requirement .lowest/requirements.txt --editable .
	@.lowest/bin/python -m pytest tests/flows --timeout 900 --numprocesses 4 --dist loadgroup

clean:  ## remove .venv, caches, dist/ and out/
	rm -rf .venv .lowest dist out .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
