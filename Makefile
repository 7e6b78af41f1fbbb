# On a machine with Python >= 3.11, pip and a C compiler `make demo` and `make test` do all their own set-up.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SOURCES := $(wildcard dynagraph/_core/*.c dynagraph/_core/*.h dynagraph/_core/*/*.c dynagraph/_core/*/*.h)

# Subprocesses of tests import the package again and again: with its bytecode that takes half the time.
unexport PYTHONDONTWRITEBYTECODE
# worksteal: files that take long do not end up with one worker
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal -m "not fuzz and not soak"

.PHONY: demo test test-all test-part test-programs test-zig test-frontend conformance contract lint types imports fuzz soak bench wheels wheel-cp312 gpu-check \
	extensions asan clean

demo: $(VENV)/.installed
	$(BIN)/python examples/digits.py

test: $(VENV)/.installed
	$(PYTEST)

# `make test` compiles with few optimisations, which takes half the time, but in the tests of the C backend; these with all
test-all test-programs test-frontend fuzz soak: export DYNAGRAPH_TIERS = best

# with every case of the tests that `make test` samples, and under another C compiler
test-all: $(VENV)/.installed
	$(PYTEST) -o faulthandler_timeout=1800 --all-cases
	$(MAKE) test-zig

# of the cases that `make test` samples a thirtieth, another one each day: what fails among the others is seen within a month
PART ?= $(shell date +%j)/30
test-part: $(VENV)/.installed
	$(PYTEST) --part $(PART)

# all programs as people write them, and 2,000 random loops
test-programs: $(VENV)/.installed
	$(PYTEST) --all-cases tests/programs tests/loops/test_random_loops.py

# the tests of the C backend under the compiler of dynagraph[compiler], which is installed for it (100 MB); ZIG_TESTS may name less
ZIG_TESTS ?= tests/backends
test-zig: $(VENV)/.installed
	$(BIN)/python -c "import ziglang" 2>/dev/null || $(BIN)/python -m pip install --quiet --editable ".[compiler]"
	DYNAGRAPH_CC=ziglang $(PYTEST) $(ZIG_TESTS)

# what depends on the version of Python: frame hook, dispatcher, capture
test-frontend: $(VENV)/.installed
	$(PYTEST) tests/core tests/frame_hook tests/frontend tests/behaviours tests/cpython tests/programs tests/cuda/test_launch.py \
		tests/test_end_to_end.py tests/test_public_api.py

# dynagraph.torch against PyTorch itself, which is installed for it: all rows of the table and all random programs
conformance: $(VENV)/.installed
	$(BIN)/python -c "import torch" 2>/dev/null || $(BIN)/python -m pip install --quiet --editable ".[conformance]"
	$(BIN)/python -m pytest -n auto --dist worksteal -o faulthandler_timeout=0 --all-cases tests/torch

# which class each behaviour of Python and NumPy reaches: one graph, break and resume, eager
contract: $(VENV)/.installed
	$(BIN)/python -m tests.behaviours

lint: $(VENV)/.installed
	$(BIN)/ruff check .

types: $(VENV)/.installed
	$(BIN)/mypy

imports: $(VENV)/.installed
	$(BIN)/lint-imports

# how many programs each fuzzer makes, of those that make any number
PROGRAMS ?= 1000
fuzz: $(VENV)/.installed
	$(BIN)/python -m pytest -o faulthandler_timeout=0 -m fuzz --all-cases --programs $(PROGRAMS)

soak: $(VENV)/.installed
	$(BIN)/python -m pytest -o faulthandler_timeout=0 -m soak --all-cases

bench: $(VENV)/.installed
	$(BIN)/python benchmarks/bars.py

# for 3.11 to 3.13, as far as they are here; installing one needs no compiler
wheels: $(VENV)/.installed
	scripts/wheels.sh $(BIN)/python

# for a machine with a GPU and no network: a wheel, and those that it needs, in gpu-wheels, which git neither tracks nor ignores
wheel-cp312:
	python=$$(scripts/find_python.sh 3.12) && test -n "$$python" && "$$python" scripts/gpu_wheels.py

# The CUDA tests for real and the benchmarks, where there are a GPU, NumPy and CuPy; PYTHON is that which has them (docs/gpu-check.md).
GPU_CHECK ?=
gpu-check:
	$(PYTHON) scripts/gpu_check.py $(GPU_CHECK)

# quick: into the tree, for the Python of VENV; those for other versions lie beside them and stay
extensions:
	$(BIN)/python setup.py --quiet build_ext --inplace

# The extensions with sanitizers, in a copy of the package, and what leans on them; PYTHONMALLOC lets ASan see every object.
# ASAN_TESTS may name less, or options of pytest.
ASAN_TESTS ?= ../../tests/core ../../tests/frame_hook ../../tests/behaviours
SANITIZE := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g

asan: $(VENV)/.installed
	CFLAGS="$(SANITIZE)" LDFLAGS="$(SANITIZE)" $(BIN)/python setup.py --quiet build --build-base build/asan-objects \
		--build-lib build/asan
	cd build/asan && PYTHONPATH=$(CURDIR)/build/asan PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 \
		LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" $(abspath $(BIN))/pytest \
		-c ../../pyproject.toml -p no:cacheprovider -m "not fuzz and not soak" $(ASAN_TESTS)

$(VENV)/.installed: pyproject.toml setup.py $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip setuptools wheel
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) .venv-* build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find dynagraph -name "*.so" -delete
