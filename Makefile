# Every target sets up its own virtual environment: a fresh machine needs python3 (3.11 to 3.13) and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test soak lint bench clean

demo: $(VENV)/.installed
	$(BIN)/dslda demo --out demo-output --overwrite

test: $(VENV)/.test lint
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not soak"

# what takes minutes of waiting, and is of a kind that `test` has too
soak: $(VENV)/.test
	$(BIN)/python -m pytest -n 2 --dist worksteal -m soak

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

# Python 3.12 and later make environments without a working ensurepip on some Debian machines: say what to install.
$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 14) else "dslda needs Python 3.11 to 3.13; run make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV) || { echo "python3 has no venv module: on Debian and Ubuntu, apt install python3-venv"; exit 1; }

# the last line compiles the kernel of the demo, once, into numba's cache
$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	$(BIN)/python -c "from dslda.families.gaussian import Gaussian; from dslda.variational.compiling import kernel_of; kernel_of(Gaussian())"
	touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	touch $@ $(VENV)/.installed

$(VENV)/.bench: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) demo-output .mypy_cache .ruff_cache .pytest_cache
