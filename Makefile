# On a machine with Python >= 3.11, pip and a C compiler `make demo` and `make test` do all their own set-up.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SOURCES := $(wildcard dynagraph/_core/*.c dynagraph/_core/*.h dynagraph/_core/dispatch/*.c dynagraph/_core/dispatch/*.h)

.PHONY: demo test test-frontend lint types imports fuzz soak bench extensions clean

demo: $(VENV)/.installed
	$(BIN)/python examples/digits.py

test: $(VENV)/.installed
	$(BIN)/python -m pytest -m "not fuzz and not soak"

test-frontend: $(VENV)/.installed
	$(BIN)/python -m pytest -m "not fuzz and not soak" $(wildcard tests/core tests/frame_hook tests/frontend tests/door tests/api \
		tests/test_*.py)

lint: $(VENV)/.installed
	$(BIN)/ruff check .

types: $(VENV)/.installed
	$(BIN)/mypy

imports: $(VENV)/.installed
	$(BIN)/lint-imports

fuzz: $(VENV)/.installed
	$(BIN)/python -m pytest -m fuzz

soak: $(VENV)/.installed
	$(BIN)/python -m pytest -m soak

bench: $(VENV)/.installed
	$(BIN)/python benchmarks/bars.py

# quick: into the tree, for the Python of VENV; those for other versions lie beside them and stay
extensions:
	$(BIN)/python setup.py --quiet build_ext --inplace

$(VENV)/.installed: pyproject.toml setup.py $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip setuptools wheel
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) .venv-* build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find dynagraph -name "*.so" -delete
