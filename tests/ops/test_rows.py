"""Every row: its rules, its eager function and its lowering agree, on every dtype that it takes."""

from __future__ import annotations

import ast
import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dynagraph
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Meta
from dynagraph.ir.ops import OPS, Composite, Elementwise, Library, Op, Reduction, Scan
from dynagraph.ir.optable import convolution

from .cases import ROWS, Case, cases, multiplies_complex_numbers
from .evaluate import assert_same, run_lowering

ULP = 4  # of NumPy against itself: its vector loops and its scalar ones differ

# NumPy's vector loops and scalar ones give different signs to a zero chosen from 0.0 and -0.0
EITHER_ZERO = ("fmax", "fmin", "max", "min", "fmax_accumulate", "fmin_accumulate")

pytestmark = [
    pytest.mark.filterwarnings("ignore:Mean of empty slice:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:Degrees of freedom:RuntimeWarning"),
]

by_name = pytest.mark.parametrize("op", ROWS, ids=lambda op: op.name)


def run_eager(case: Case) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.asarray(case.op.eager(np, *case.operands, **case.op.bind_attrs(case.attrs)))


def tolerance(case: Case) -> int | None:
    if case.op.exact:
        return ULP if multiplies_complex_numbers(case) else None
    if case.op.name in convolution.ROUTINES:
        return 1 << 12  # sums that cancel
    if isinstance(case.op.lowering, (Reduction, Library, Scan)):
        return 64 if case.operands[0].dtype.kind in "fc" else None  # sums in another order
    return None if isinstance(case.op.lowering, Composite) else ULP


@by_name
def test_dtype_and_shape_rules_say_what_numpy_gives(op: Op) -> None:
    for case in cases(op):
        metas = tuple(Meta(dtypes.from_numpy(x.dtype), x.shape) for x in case.operands)  # type: ignore[arg-type]
        inferred, got = op.infer(metas, op.bind_attrs(case.attrs)), run_eager(case)
        assert (inferred.dtype.numpy, inferred.shape) == (got.dtype, got.shape), str(case)


@pytest.mark.sampled(2)
@by_name
def test_lowering_gives_what_eager_gives(op: Op) -> None:
    for case in cases(op):
        got, want = run_lowering(op, case.operands, case.attrs), run_eager(case)
        if op.name in EITHER_ZERO and want.dtype.kind == "f":
            got, want = got + 0.0, want + 0.0
        assert_same(got, want, tolerance(case))


def test_maximum_and_minimum_of_two_zeros_give_the_second() -> None:
    zero, minus = np.zeros(33), -np.zeros(33)
    for name in ("maximum", "minimum"):
        assert (
            np.signbit(OPS[name].eager(np, zero, minus)).all()
            and not np.signbit(OPS[name].eager(np, minus, zero)).any()
        )


OTHER_NAMES: dict[str, Any] = {
    "power_int": np.power,
    "frexp_mantissa": lambda x: np.frexp(x)[0],
    "frexp_exponent": lambda x: np.frexp(x)[1],
    "erf": np.vectorize(math.erf, otypes=[float]),
    "cast": lambda x, dtype: x.astype(dtype.numpy),
    "copy": np.copy,
    "variable": np.copy,
    "stop_gradient": np.copy,
    "optimization_barrier": np.copy,
    "complex": np.vectorize(complex, otypes=[complex]),
}


@pytest.mark.parametrize("op", [op for op in ROWS if isinstance(op.lowering, Elementwise)], ids=lambda op: op.name)
def test_eager_is_numpys_function_of_that_name(op: Op) -> None:
    function = OTHER_NAMES.get(op.name) or getattr(np, op.name)
    for case in cases(op):
        with np.errstate(all="ignore"):
            want = np.asarray(function(*case.operands, **case.attrs))
        got = run_eager(case)
        assert_same(got, want.astype(got.dtype) if op.name in ("erf", "complex") else want)


def numpy_reduction(case: Case) -> np.ndarray:
    (x,) = case.operands
    axis: Any = case.attrs["axis"]
    attrs: dict[str, Any] = {k: v for k, v in case.attrs.items() if k != "axis"}
    if case.op.name.startswith(("cum", "sum", "prod")):
        attrs["dtype"] = x.dtype
    return np.asarray(getattr(np, case.op.name)(x, axis=axis[0] if case.op.name.startswith("arg") else axis, **attrs))


@pytest.mark.parametrize(
    "name", ["sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "cumsum", "cumprod", "mean", "var", "std"]
)
def test_reductions_are_numpys(name: str) -> None:
    for case in cases(OPS[name]):
        with np.errstate(all="ignore"):
            want = numpy_reduction(case)
        assert_same(run_eager(case), want)


@pytest.mark.parametrize("dtype", [d for d in dtypes.ALL if not d.is_bool], ids=str)
def test_iota_is_arange(dtype: dtypes.DType) -> None:
    spans = [(0, 7, 1), (3, 20, 4)] + (
        [(-0.0, 3.0, 0.7), (0.1, 9.3, 0.3)] if dtype.is_float else []
    )
    spans += [(1e8, 1e8 + 5, 0.1)] if dtype in (dtypes.float32, dtypes.float64) else []
    for start, stop, step in spans:
        want = np.arange(start, stop, step, dtype=dtype.numpy)
        got = OPS["iota"].eager(np, shape=want.shape, start=start, step=step, dtype=dtype)
        assert_same(got, want)


def test_linspace_full_and_eye_are_numpys() -> None:
    assert_same(
        OPS["linspace"].eager(np, shape=(5,), start=0, stop=1, endpoint=True, dtype=dtypes.float64),
        np.linspace(0, 1, 5),
    )
    assert_same(OPS["full"].eager(np, shape=(2, 2), value=3, dtype=dtypes.int32), np.full((2, 2), 3, np.int32))
    assert_same(OPS["eye"].eager(np, shape=(2, 3), k=1, dtype=dtypes.float32), np.eye(2, 3, 1, np.float32))


@pytest.mark.parametrize("op", [op for op in ROWS if op.arity == 1 and not op.attrs], ids=lambda op: op.name)
def test_unary_rows_take_strided_operands(op: Op) -> None:
    for case in cases(op):
        if case.operands[0].ndim == 2:
            flipped = Case(op, [case.operands[0].T[::-1]], case.attrs)
            assert_same(run_lowering(op, flipped.operands, {}), run_eager(flipped), tolerance(case))


def test_what_is_true_of_a_ufunc_stands_in_its_row() -> None:
    """Its name is a string in few files: its row, decompositions and derivatives that use it.

    Of dynagraph.torch and dynagraph.onnx these are not counted: there the same words are names of PyTorch's and ONNX's.
    """
    files: dict[str, set[Path]] = {name: set() for name, f in vars(np).items() if isinstance(f, np.ufunc) and f.__name__ == name}
    package = Path(dynagraph.__file__).parent
    for path in package.rglob("*.py"):
        if path.is_relative_to(package / "torch") or path.is_relative_to(package / "onnx"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in files:
                files[node.value].add(path)
    assert statistics.median(map(len, files.values())) <= 3
