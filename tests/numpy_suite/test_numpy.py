"""NumPy's own tests pass with their test functions compiled: whatever a function does, a compiled one does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests import sampling
from tests.suites import fail_with, output_of

FILES = (
    "_core/tests/test_einsum.py", "_core/tests/test_function_base.py", "_core/tests/test_indexing.py",
    "_core/tests/test_item_selection.py", "_core/tests/test_numeric.py", "_core/tests/test_shape_base.py",
    "_core/tests/test_ufunc.py", "lib/tests/test_arraypad.py", "lib/tests/test_index_tricks.py", "lib/tests/test_nanfunctions.py",
    "lib/tests/test_shape_base.py", "lib/tests/test_stride_tricks.py", "lib/tests/test_twodim_base.py",
)
MORE = (
    "_core/tests/test_errstate.py", "_core/tests/test_getlimits.py", "_core/tests/test_mem_overlap.py",
    "_core/tests/test_multiarray.py", "_core/tests/test_nep50_promotions.py", "_core/tests/test_overrides.py",
    "_core/tests/test_regression.py", "_core/tests/test_scalar_methods.py", "_core/tests/test_scalarmath.py",
    "_core/tests/test_umath.py", "_core/tests/test_umath_complex.py", "fft/tests/test_helper.py", "fft/tests/test_pocketfft.py",
    "lib/tests/test_arraysetops.py", "lib/tests/test_function_base.py", "lib/tests/test_histograms.py",
    "lib/tests/test_polynomial.py", "lib/tests/test_regression.py", "lib/tests/test_type_check.py", "lib/tests/test_ufunclike.py",
    "linalg/tests/test_linalg.py", "random/tests/test_generator_mt19937.py", "random/tests/test_randomstate.py",
)  # with `make fuzz`
SECONDS = 1200
ONE_IN = 30  # of a file's tests


@pytest.mark.sampled(4)
@pytest.mark.parametrize("file", [*FILES, *(pytest.param(f, marks=pytest.mark.fuzz) for f in MORE)])
def test_compiled_tests_pass(file: str) -> None:
    if not (Path(np.__file__).parent / file).exists():
        pytest.skip("this NumPy comes without the test")
    arguments = [] if sampling.all_cases else ["--one-in", str(ONE_IN)]
    (report,) = json.loads(output_of(Path(__file__).with_name("run.py"), file, "--json", *arguments, seconds=SECONDS))
    assert report["passed"] > 0, report["plainly_failed"]
    fail_with(report["failures"], report["passed"] + len(report["failures"]))
