# Every target sets up its own virtual environment: a fresh machine needs python3 (3.11 to 3.13) and make.
PYTHON ?= python3
PYTHON_LOWEST ?= python3.11
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo quick test soak lint test-lowest test-pythons bench docs dist clean

demo: $(VENV)/.installed
	$(BIN)/dslda demo --out demo-output --overwrite

# unit tests that compile no kernel and start no cluster, and one fit from end to end
quick: $(VENV)/.test
	$(BIN)/python -m pytest -n 2 --dist worksteal -m quick

# three at a time: tests of clusters wait for much of their time, and two leave two cores idle
test: $(VENV)/.test lint
	$(BIN)/python -m pytest -n 3 --dist worksteal -m "not soak"

# what takes minutes of waiting, and is of a kind that `test` has too
soak: $(VENV)/.test
	$(BIN)/python -m pytest -n 2 --dist worksteal -m soak

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# the quick tests with the lowest versions of all dependencies that pyproject.toml names, on the lowest Python
test-lowest: $(VENV)-lowest/.installed
	$(VENV)-lowest/bin/python -m pytest -n 2 --dist worksteal -m quick

# the quick tests on each Python of these that is on the PATH
test-pythons:
	@for version in 3.11 3.12 3.13; do \
		if python$$version -c '' 2>/dev/null; then \
			echo "Python $$version"; \
			$(MAKE) --no-print-directory quick PYTHON=python$$version VENV=$(VENV)-$$version || exit 1; \
		else \
			echo "Python $$version is not on the PATH: not tested"; \
		fi; \
	done

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

# the site, in site/: python3 -m http.server -d site shows it
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# a wheel and a source distribution, in dist/, and the demo by the wheel in a fresh environment without a compiler's help:
# every package comes as a wheel
dist: $(VENV)-dist/.installed
	rm -rf dist dslda.egg-info $(VENV)-wheel
	$(VENV)-dist/bin/python -m build
	$(VENV)-dist/bin/twine check --strict dist/*
	$(PYTHON) -m venv $(VENV)-wheel
	$(VENV)-wheel/bin/python -m pip install --quiet --disable-pip-version-check --only-binary :all: "$$(echo dist/*.whl)[plot]"
	cd $(VENV)-wheel && env -u PYTHONPATH -u NUMBA_CACHE_DIR bin/dslda demo --out demo-output --overwrite
	@echo "The demo passed in $(VENV)-wheel, from wheels alone. To publish:" dist/*

# Python 3.12 and later make environments without a working ensurepip on some Debian machines: say what to install.
$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 14) else "dslda needs Python 3.11 to 3.13; run make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV) || { echo "python3 has no venv module: on Debian and Ubuntu, apt install python3-venv"; exit 1; }

# the last but one compiles the kernels of the demo, once, into numba's cache
$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[plot]'
	$(BIN)/python -c "from dslda.families.gaussian import Gaussian; from dslda.variational.compiling import prepare_kernels; prepare_kernels(Gaussian(), 'conditional')"
	touch $@

# Python compiles what tests import, once; pip would compile all, which takes longer than the rest of the installation
$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[test]'
	touch $@ $(VENV)/.installed

$(VENV)-lowest/.installed: pyproject.toml
	$(PYTHON_LOWEST) -m venv $(VENV)-lowest
	$(VENV)-lowest/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(VENV)-lowest/bin/uv pip install --quiet --python $(VENV)-lowest/bin/python --resolution lowest-direct --editable '.[test]'
	touch $@

$(VENV)/.bench: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	touch $@ $(VENV)/.installed

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	touch $@

$(VENV)-dist/.installed: Makefile
	$(PYTHON) -m venv $(VENV)-dist
	$(VENV)-dist/bin/python -m pip install --quiet --disable-pip-version-check build twine
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-* demo-output dist site .mypy_cache .ruff_cache .pytest_cache
