"""bfloat16 through the whole of it: compiled C against the plain call, whose functions are those of ml_dtypes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dynagraph as dg
from dynagraph.doors import bfloat16 as bfloat16_door
from dynagraph.errors import DTypeError
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.graph import Meta
from dynagraph.ir.ops import Elementwise, Op
from dynagraph.ir.optable import convolution, pooling
from dynagraph.tools.bench import largest_difference
from tests.backends.native import run_native
from tests.backends.test_every_op import chosen, graph_of
from tests.cuda.device import emulated
from tests.ops.cases import ROWS, Case

BF16 = np.dtype(ml_dtypes.bfloat16)
BACKENDS = ("c", "numpy", "reference")
EVERY = np.arange(2**16, dtype=np.uint16).view(BF16)
RNG = np.random.default_rng(0)
OTHER = RNG.permutation(EVERY)
X = RNG.normal(size=(6, 8)).astype(BF16)
Y = RNG.normal(size=(6, 8)).astype(BF16)
UFUNCS = sorted({u for u in vars(np).values() if isinstance(u, np.ufunc)}, key=lambda u: u.__name__)
PAGE = (Path(__file__).parents[1] / "docs" / "bfloat16.md").read_text()
# ml_dtypes has no loop of these, and NumPy takes no other
WITHOUT_LOOPS = {
    "bitwise_and", "bitwise_count", "bitwise_or", "bitwise_xor", "gcd", "invert", "isnat", "lcm", "left_shift", "right_shift",
}  # fmt: skip
# these have one, and are run as they are: they take dtypes of their own, or several operands of which these are not, or differ
NOT_CAPTURED = {"float_power", "frexp", "ldexp", "matvec", "modf", "vecdot", "vecmat"}

pytestmark = [pytest.mark.sampled(12), pytest.mark.filterwarnings("ignore::RuntimeWarning")]


def as_bits(x: Any) -> np.ndarray:
    """The bits of what holds no NaN; all NaNs are one."""
    x = np.asarray(x)
    bits = x.view(f"u{x.dtype.itemsize}").copy() if x.dtype.kind in "fV" else x
    if x.dtype.kind in "fV" and x.dtype.itemsize > 1:
        bits[x.astype(np.float32) != x.astype(np.float32)] = 0x7FC0
    return bits


def assert_same(got: Any, want: Any) -> None:
    assert type(got) is type(want)
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        for g, w in zip(got, want):
            assert_same(g, w)
        return
    if isinstance(want, (np.ndarray, np.generic)):
        assert got.dtype == want.dtype and got.shape == want.shape
    if isinstance(want, np.ndarray):
        assert got.flags.writeable == want.flags.writeable
        assert all(a == b for a, b, n in zip(got.strides, want.strides, want.shape) if n > 1)
    np.testing.assert_array_equal(as_bits(got), as_bits(want))


def check(function: Callable[..., Any], *args: Any, backend: str = "c", breaks: bool = False) -> Any:
    """Twice, and in one graph unless it breaks; arguments are what they are after the plain call."""
    compiled = dg.compile(function, fullgraph=not breaks, backend=backend)
    with np.errstate(all="ignore"):
        for _ in range(2):
            plain, ours = ([a.copy() if isinstance(a, np.ndarray) else a for a in args] for _ in range(2))
            want = function(*plain)
            assert_same(compiled(*ours), want)
            for a, b in zip(ours, plain):
                assert_same(a, b)
    assert compiled.stats.fallbacks == 0
    if breaks:
        assert any("bfloat16" in text for text in compiled.stats.breaks), dict(compiled.stats.breaks)
    return compiled


# -- ufuncs -----------------------------------------------------------------------------------------------------------------


def is_transcendental(ufunc: np.ufunc) -> bool:
    row = next((op for op in ROWS if op.name == ufunc.__name__), None)
    return row is not None and not row.exact


@pytest.mark.parametrize("ufunc", UFUNCS, ids=lambda u: u.__name__)
def test_every_ufunc_of_every_number(ufunc: np.ufunc) -> None:
    operands = (EVERY, OTHER)[: ufunc.nin]
    if ufunc.__name__ in WITHOUT_LOOPS:
        for function in (ufunc, dg.compile(lambda *xs: ufunc(*xs))):
            with pytest.raises(TypeError, match=r"not supported for the input types|only defined for"):
                function(*operands)
        return
    if ufunc is np.ldexp:
        operands = EVERY, np.arange(EVERY.size, dtype=np.int32) % 40 - 20
    if ufunc.signature is not None:
        operands = {"matmul": (X, Y.T), "matvec": (X, Y[0]), "vecmat": (X[:, 0], X), "vecdot": (X, Y)}[ufunc.__name__]
    breaks = ufunc.__name__ in NOT_CAPTURED
    assert breaks != (ufunc.__name__ in bfloat16_door.IN_NUMPY)
    if not is_transcendental(ufunc):
        check(lambda *xs: ufunc(*xs), *operands, breaks=breaks)
        return
    got, want = dg.compile(lambda *xs: ufunc(*xs), fullgraph=True)(*operands), ufunc(*operands)
    distance = abs(ordered(got) - ordered(want))
    assert distance.max() <= 1 and np.count_nonzero(distance) <= 20  # our functions and NumPy's round float32 in their last bit


def ordered(x: np.ndarray) -> np.ndarray:
    """Neighbours are one apart."""
    bits = as_bits(x).astype(np.int64)
    return np.where(bits < 0x8000, bits, 0x8000 - bits)


@pytest.mark.parametrize("backend", BACKENDS)
def test_operators(backend: str) -> None:
    check(lambda x, y: (x + y, x - y, x * y, x / y, x // y, x % y, -x, +x, abs(x), divmod(x, y)), X, Y, backend=backend)
    check(lambda x, y: (x > y, x >= y, x < y, x <= y, x == y, x != y, x > 0, x == 1.5, (x > 0) & (y > 0)), X, Y, backend=backend)


@pytest.mark.parametrize(
    "other",
    [2, -3, 2.5, True, 1j, 300, np.float16(1.5), np.float32(1.1), np.float64(1.1), np.int8(3), np.int64(3), BF16.type(0.3)],
    ids=repr,
)
def test_promotion_is_numpys(other: Any) -> None:
    check(lambda x: (x * other, other + x, x / other), X)
    check(lambda x, s: (x * s, s + x), X, other)
    if not isinstance(other, complex):
        check(lambda x: (np.maximum(x, other), x > other), X)


@pytest.mark.parametrize("dtype", [d for d in dtypes.ALL if not d.is_complex], ids=str)
def test_promotion_with_arrays(dtype: DType) -> None:
    check(lambda x, y: (x + y, y * x, x > y), X, np.arange(8).astype(dtype.numpy))


RESULTS = {
    "x * 2": (2, "bfloat16"), "x * True": (True, "bfloat16"), "x * 2.0": (2.0, "float32"), "x * 1j": (1j, "complex64"),
    "int8": (np.ones(8, np.int8), "bfloat16"), "uint8": (np.ones(8, np.uint8), "bfloat16"),
    "int16": (np.ones(8, np.int16), "float32"), "uint16": (np.ones(8, np.uint16), "float32"),
    "float16": (np.ones(8, np.float16), "float32"), "float32": (np.ones(8, np.float32), "float32"),
    "larger integers": (np.ones(8, np.int32), "float64"), "float64": (np.ones(8), "float64"),
}  # fmt: skip


@pytest.mark.parametrize("what", RESULTS)
def test_docs_say_which_dtype_comes_out(what: str) -> None:
    other, dtype = RESULTS[what]
    assert (X * other).dtype.name == dtype
    rows = [line.split("|")[1:3] for line in PAGE.splitlines() if line.startswith("| `x")]
    assert dtype in next(result for operands, result in rows if f"`{what}`" in operands or f"{what}," in f"{operands.strip()},")


def test_docs_run() -> None:
    code = PAGE.split("```python\n")[1].split("```")[0]
    exec(compile(code, "docs/bfloat16.md", "exec"), {"__name__": "docs"})


def test_powers() -> None:
    for exponent in (2, 3, -1, 0, 2.0, 0.5, -1.0):
        check(lambda x, p=exponent: (x**p, np.power(x, p)), abs(X) + BF16.type(0.5))


def test_choices() -> None:
    check(lambda x, y: (np.where(x > y, x, y), np.where(x > 0, x, 0), np.where(x > 0, x, 0.5)), X, Y)
    check(lambda x: np.where(x > 0, x, np.float32(1)), X)


# -- casts ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("target", dtypes.KNOWN, ids=str)
def test_casts_of_every_number(target: DType, backend: str) -> None:
    x = EVERY
    if target.is_integer:  # what others give is the machine's affair
        limits = np.iinfo(target.numpy)
        values = x.astype(np.float64)
        x = x[(values >= limits.min) & (values < limits.max)]
    dtype = target.numpy
    check(lambda x: x.astype(dtype), x, backend=backend)


def samples(source: DType) -> np.ndarray:
    """All numbers of a dtype, or random ones with those that lie between two of bfloat16."""
    if source.is_bool:
        return np.array([False, True])
    if source.itemsize <= 2:
        return np.arange(2**16, dtype=np.uint16).astype(np.uint8 if source.itemsize == 1 else np.uint16).view(source.numpy)
    if source.is_integer:
        limits = np.iinfo(source.numpy)
        small = RNG.integers(0, 2**20, 20000).astype(source.numpy)
        return np.concatenate([RNG.integers(limits.min, limits.max, 20000, source.numpy), small, [limits.min, limits.max]])
    bits = RNG.integers(0, 2**32, 60000, np.uint32)
    bits[::3] = bits[::3] & 0xFFFF0000 | 0x8000  # halfway
    bits[1::3] = bits[1::3] & 0xFFFF0000 | 0x7FFF
    single = bits.view(np.float32)
    near = single.astype(np.float64) * (1 + RNG.choice([-(2.0**-30), 0, 2.0**-30], 60000))
    return single if source is dtypes.float32 else near.astype(source.numpy)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("source", [d for d in dtypes.ALL if not d.is_complex], ids=str)
def test_casts_to_bfloat16(source: DType, backend: str) -> None:
    check(lambda x: x.astype(BF16), samples(source), backend=backend)


def test_nans_are_quiet_and_keep_their_sign() -> None:
    x = np.array([0x7F800001, 0xFF800001, 0x7FC12345, 0xFFFFFFFF], np.uint32).view(np.float32)
    got, want = dg.compile(lambda x: x.astype(BF16), fullgraph=True)(x), x.astype(BF16)
    np.testing.assert_array_equal(got.view(np.uint16), want.view(np.uint16))
    for mode in (np.isnan, np.signbit):
        check(lambda x, mode=mode: mode(x), EVERY)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(width=32), min_size=1, max_size=8))
def test_any_float_is_rounded_as_ml_dtypes_rounds_it(values: list[float]) -> None:
    assert_same(ROUND(np.array(values, np.float32)), np.array(values, np.float32).astype(BF16))


ROUND = dg.compile(lambda x: x.astype(BF16))


# -- the op table ------------------------------------------------------------------------------------------------------------


def narrowed(case: Case) -> Case:
    """A case of float32 as one of bfloat16."""
    operands = [x.astype(BF16) if x.dtype == np.float32 else x for x in case.operands]
    attrs = {k: dtypes.bfloat16 if v is dtypes.float32 else v for k, v in case.attrs.items()}
    return Case(case.op, operands, attrs)


def in_float32(case: Case) -> np.ndarray:
    """What the op gives for the same numbers as float32, rounded."""
    wide = {k: dtypes.float32 if v is dtypes.bfloat16 else v for k, v in case.attrs.items()}
    operands = [x.astype(np.float32) if x.dtype == BF16 else x for x in case.operands]
    with np.errstate(all="ignore"):
        want = np.asarray(case.op.eager(np, *operands, **case.op.bind_attrs(wide)))
    return want.astype(BF16) if want.dtype == np.float32 and case.op.name != "complex" else want


def is_of_float32(case: Case) -> bool:
    given = [x.dtype for x in case.operands] or [getattr(case.attrs.get("dtype"), "numpy", None)]
    takes = any(d == np.float32 for d in given) and not any(np.dtype(d).kind == "c" for d in given)
    target = case.attrs.get("dtype")
    return takes and (target is None or not case.operands or target is dtypes.float32 or case.op.name == "cast")


# they call NumPy's functions, make complex numbers, or give neighbours of float32
OTHERWISE = ("external_call", "complex", "nextafter", "spacing", "complex_accumulate", "nextafter_accumulate")
REFUSING = (*convolution.ROUTINES, *pooling.ROUTINES)


@pytest.mark.sampled(24)
@pytest.mark.parametrize("op", [op for op in ROWS if op.name not in (*OTHERWISE, *REFUSING)], ids=lambda op: op.name)
@pytest.mark.parametrize("target", ["c", "cuda"])
def test_rows_of_the_op_table_compute_in_float32(op: Op, target: str) -> None:
    cases = [narrowed(case) for case in chosen(op) if is_of_float32(case)]
    cases = cases[:: len(cases) // (12 if target == "c" else 5) + 1]
    if not cases:
        assert not takes_float32(op)
        return
    graph, arrays = graph_of(cases)
    results = run_native(graph, *arrays) if target == "c" else emulated(graph)(*arrays)
    for case, got in zip(cases, results):
        assert_near(case, got, in_float32(case))


@pytest.mark.parametrize("name", REFUSING)
def test_rows_that_call_routines_of_float32_and_float64_say_so(name: str) -> None:
    op = next(op for op in ROWS if op.name == name)
    case = narrowed(next(case for case in chosen(op) if is_of_float32(case)))
    metas = tuple(Meta(dtypes.from_numpy(x.dtype), x.shape) for x in case.operands)
    with pytest.raises(DTypeError, match=r"float32 or float64, got bfloat16; cast the operand first"):
        case.op.infer(metas, case.op.bind_attrs(case.attrs))


def takes_float32(op: Op) -> bool:
    return any(is_of_float32(case) for case in chosen(op))


def assert_near(case: Case, got: np.ndarray, want: np.ndarray) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape, case
    if case.op.exact and isinstance(case.op.lowering, Elementwise):
        np.testing.assert_array_equal(as_bits(got), as_bits(want), err_msg=str(case))
    else:
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), 0.02, 0.02, err_msg=str(case))


# -- arrays ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_views_and_copies(backend: str) -> None:
    check(lambda x: (x[1:], x[::-1, 2], x.T, x.reshape(8, 6), x.ravel(), x[None], x.real), X, backend=backend)
    check(lambda x: (np.flip(x), x[[3, 0]]), X, backend=backend)
    check(lambda x, y: (np.concatenate([x, y]), np.stack([x, y], 1), np.tile(x, 2), np.roll(x, 3, 1), np.repeat(x, 2, 0)), X, Y)
    check(lambda x: (np.tril(x), np.triu(x, 1), np.diag(x), np.take(x, [2, 1], 1), x.copy(), x.flatten(), np.rot90(x)), X)
    check(lambda x: [part * 2 for part in np.split(x, 2)], X)


def test_new_arrays() -> None:
    check(lambda x: (np.zeros(3, BF16), np.ones((2, 2), BF16), np.full(3, 0.1, BF16), np.eye(3, dtype=BF16), x * 2), X)
    check(lambda x: (np.zeros_like(x), np.ones_like(x), np.full_like(x, 0.3), np.asarray(x, BF16), np.array(x, np.float32)), X)
    check(lambda x: (np.array([1.5, 0.1], BF16) * x[0, :2], x.dtype == BF16, x.itemsize, x.nbytes, x + 0), X)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_choosing_reductions(axis: int | None) -> None:
    for x in (X, EVERY[:256].reshape(16, 16), np.zeros((3, 2), BF16), -np.zeros((3, 2), BF16)):
        check(lambda x: (x.max(axis), x.min(axis), x.argmax(axis), x.argmin(axis), x.any(axis), x.all(axis=axis)), x)
    with_nan = X.copy()
    with_nan[2, 3] = np.nan
    check(lambda x: (np.max(x, axis), np.min(x, axis), np.argmax(x, axis), np.argmin(x, axis)), with_nan)


def test_products_are_those_of_float32() -> None:
    check(lambda x, y: (x @ y.T, np.matmul(x.T, y), x[0] @ y[0], x @ np.ones(8, np.float32)), X, Y)


@pytest.mark.parametrize(
    "sums",
    [
        lambda x: x.sum(), lambda x: x.mean(0), lambda x: np.prod(x), lambda x: x.std(), lambda x: np.cumsum(x),
        lambda x: x.dot(x.T), lambda x: np.add.reduce(x), lambda x: np.trace(x), lambda x: np.sort(x),
        lambda x: np.clip(x, 0, 1), lambda x: np.median(x), lambda x: np.linalg.norm(x), lambda x: x[x > 0],
        lambda x: x[x > 0].sum(), lambda x: x.max() + x.min(), lambda x: np.diff(x), lambda x: np.outer(x, x),
        lambda x: x.astype(np.float32).sum(dtype=BF16), lambda x: x.round(1),
    ],
)  # fmt: skip
def test_what_is_not_captured_runs_as_it_is(sums: Callable[..., Any]) -> None:
    check(lambda x: sums(x * 2), X, breaks=True)


def test_errors_are_the_plain_runs() -> None:
    for function in (lambda x: ~x, lambda x: x & x, lambda x: np.einsum("ij,ij->", x, x), lambda x: np.concatenate([x, HALF])):
        with pytest.raises(TypeError) as plain:
            function(X)
        with pytest.raises(type(plain.value)) as ours:
            dg.compile(function)(X)
        assert str(ours.value) == str(plain.value)


HALF = np.ones((1, 8), np.float16)


@pytest.mark.parametrize("value", [2.5, 0.1, 3, True, BF16.type(0.3), np.float32(1.1), np.float64(1e-3)], ids=repr)
def test_writes(value: Any) -> None:
    def write(x: np.ndarray, v: Any) -> np.ndarray:
        x[1:] *= v
        x[0] = v
        x[::2] += 1
        x[:, [0, 2]] -= v
        x[x > 2] = v
        x[3, 3] = v
        x.T[1] = np.float64(0.7)
        return x[::-1]

    compiled = check(write, X, value)
    given = X.copy()
    assert np.shares_memory(compiled(given, value), given)
    check(lambda x, y, v: (np.multiply(x, v, out=y), np.add(x, v, out=x, where=y > 0), y.fill(v))[:2], X, Y, value)


def test_numbers_that_are_added_one_by_one() -> None:
    def add(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        np.add.at(x, np.array([1, 1, 2, 1]), y[:4])
        return x

    check(add, X, Y)


def test_sizes_and_scalars_that_change() -> None:
    def function(x: np.ndarray, s: Any) -> Any:
        return x * s + x.shape[0], x[1:] - x.max(), x * x.size

    compiled = dg.compile(function, fullgraph=True)
    for n in range(2, 9):
        x, s = RNG.normal(size=n).astype(BF16), BF16.type(n / 3)
        assert_same(compiled(x, s), function(x, s))
    assert compiled.counters()["misses"] == 2


def test_guards_tell_dtypes_apart() -> None:
    compiled = dg.compile(lambda x: x + x)
    given = [X, X.astype(np.float16), X.view(np.uint16), X.astype(np.float32), X, X.view(np.int16), X.astype(ml_dtypes.float8_e5m2)]
    for x in given:
        assert_same(compiled(x), x + x)
    assert compiled.counters()["hits"] == 1
    of_bytes = dg.compile(lambda x: x[1:])
    for x in (X, X.view("V2"), X.view(BF16.newbyteorder()), X, X.view("V2")):
        with np.errstate(all="ignore"):
            got = of_bytes(x)
        assert got.dtype == x.dtype and got.tobytes() == x[1:].tobytes()


def test_only_bfloat16_of_ml_dtypes_is_known() -> None:
    assert dtypes.from_numpy(BF16) is dtypes.bfloat16 and dtypes.bfloat16.numpy is BF16
    others = [ml_dtypes.float8_e5m2, ml_dtypes.int4, "V2", "V", [("a", "<u2")], BF16.newbyteorder(), "U1", "M8[s]", object]
    assert [dtypes.from_numpy(d) for d in others] == [None] * len(others)
    for value in (ml_dtypes.float8_e5m2(1), ml_dtypes.int4(1)):
        assert_same(dg.compile(lambda x, s: (x * 2, s))(np.ones(2), value), (np.full(2, 2.0), value))


def run_python(text: str) -> str:
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout.strip()


def test_ml_dtypes_is_imported_by_its_users_alone() -> None:
    before = "import sys, numpy as np, dynagraph as dg; f = dg.compile(lambda x: x.astype(np.float16) + 1)"
    used = "f(np.ones(3)); f(np.ones(3, 'f2')); f(np.zeros(2, 'V2').view('u2')); g = dg.compile(lambda x: x); g(np.zeros(2, 'V2'))"
    assert run_python(f"{before}; {used}; print('ml_dtypes' in sys.modules)") == "False"


def test_without_ml_dtypes_the_cure_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    monkeypatch.delitem(dtypes._NUMPY, "bfloat16", raising=False)
    with pytest.raises(ImportError, match=r"^bfloat16: .* package ml_dtypes, .*; pip install 'dynagraph\[bfloat16\]'$"):
        _ = dtypes.bfloat16.numpy
    assert dtypes.from_numpy("V2") is None


# -- gradients ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "loss",
    [
        lambda x, y: (x * y).astype(np.float32).sum(), lambda x, y: np.mean(np.square(x @ y.T)), lambda x, y: (x / 2 + x**2).sum(),
        lambda x, y: (np.tanh(x) * np.exp(y)).max(), lambda x, y: np.where(x > 0, x, y).mean(axis=0)[2],
        lambda x, y: (abs(x[1:]) * 0.5).sum(), lambda x, y: np.sum(x[::2] + y[0]),
    ],
)  # fmt: skip
def test_gradients_are_the_exact_ones_rounded(loss: Callable[..., Any]) -> None:
    of = dg.grad(loss, argnums=(0, 1))
    want = of(X.astype(np.float64), Y.astype(np.float64))
    for gradient in (of, dg.compile(of)):
        for got, exact in zip(gradient(X, Y), want):
            assert got.dtype == BF16 and got.shape == exact.shape
            np.testing.assert_allclose(got.astype(np.float32), exact, rtol=0.02, atol=0.02 * abs(exact).max())


def test_a_gradient_in_one_graph() -> None:
    loss = lambda x: (np.tanh(x) * x).astype(np.float32).sum()  # noqa: E731
    step = dg.compile(lambda x: x - 0.5 * dg.grad(loss)(x), fullgraph=True)
    assert step(X).dtype == np.float32
    value, (tangent,) = dg.vjp(lambda x: x * x, X)[0], dg.vjp(lambda x: x * x, X)[1](np.ones_like(X))
    assert_same(value, X * X)
    assert_same(tangent, X + X)


def test_bench_compares_their_results() -> None:
    near, far = X * BF16.type(1.01), X + BF16.type(1e6)
    assert largest_difference("f", X, X) == 0.0 < largest_difference("f", near, X) < 0.05
    with pytest.raises(click.ClickException, match=r"^f: compiled and plain results differ"):
        largest_difference("f", far, X)


def test_a_constant_of_the_program() -> None:
    table = X[0].copy()
    check(lambda x: x * table + table[3], X)


def test_many_elements_are_computed_by_threads() -> None:
    x = np.tile(EVERY, 40)
    check(lambda x: (x + x) * x, x)
