"""Products of matrices by cuBLASLt's stand-in: layouts, batches, epilogues, who starts them, what happens where it goes wrong."""

from __future__ import annotations

import gc
import logging
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph._core._dispatch import Launcher, Product
from dynagraph.backends.cuda import cublas, driver
from dynagraph.backends.cuda.backend import lower_graph
from dynagraph.backends.cuda.cublas import PLAIN, CublasLt, Finish, Matrices
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.loops import Epilogue, Kernel, LibraryCall
from dynagraph.ir.passes.pipeline import run as run_passes
from dynagraph.tools import doctor
from tests.cuda.device import EmulatedDevice
from tests.cuda.products import Calls, QueuedProducts, counted, is_loaded, path, set_stand_in, stand_in_cublas
from tests.cupy_arrays import stand_in

pytestmark = pytest.mark.sampled(20)

KINDS = (dtypes.float16, dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128)
TOLERANCE = {"float16": 2e-3, "float32": 1e-5, "complex64": 1e-5}
RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    yield
    if is_loaded():  # tests on a device do without it
        set_stand_in()
    gc.collect()


@pytest.fixture
def device(fake: Any) -> Iterator[EmulatedDevice]:
    made = EmulatedDevice(fake, products=stand_in_cublas())
    driver.install(fake, made)
    with dg.config.override(stay_eager=False):
        yield made
    driver.install(fake, None)


@pytest.fixture
def without_matmul(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever calls the library's own function fails."""
    monkeypatch.setattr(fake, "matmul", None)


def some(*shape: int, dtype: Any = np.float64) -> np.ndarray:
    values = RNG.standard_normal(shape)
    return (values + 1j * RNG.standard_normal(shape) if np.dtype(dtype).kind == "c" else values).astype(dtype)


def put(values: np.ndarray) -> Any:
    return stand_in.laid(values)


def close(got: Any, want: np.ndarray) -> None:
    got = got.get() if isinstance(got, stand_in.ndarray) else got
    assert got.dtype == want.dtype and got.shape == want.shape
    tolerance = TOLERANCE.get(want.dtype.name, 1e-12)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * max(1.0, float(np.max(np.abs(want), initial=0))))


# -- plans ---------------------------------------------------------------------------------------------------------------


def matrices(x: np.ndarray) -> Matrices:
    return Matrices(x.shape, tuple(s // x.itemsize for s in x.strides), x.itemsize)


def address(x: np.ndarray | None) -> int:
    return 0 if x is None else int(x.__array_interface__["data"][0])


def multiplied(library: CublasLt, left: np.ndarray, right: np.ndarray, dtype: DType, finish: Finish = PLAIN,
               addend: np.ndarray | None = None, bias: np.ndarray | None = None) -> np.ndarray | None:  # fmt: skip
    shape = (*np.broadcast_shapes(left.shape[:-2], right.shape[:-2]), left.shape[-2], right.shape[-1])
    out = np.full(shape, 77, dtype.numpy)
    plan = library.plan(0, dtype, matrices(left), matrices(right), matrices(out), finish)
    if plan is None:
        return None
    operands = (right, left, out if addend is None else addend, out, bias)
    status = plan.run(tuple(map(address, operands)), 0, 0)
    assert status == 0, library.describe(status)
    return out


VIEWS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "rows": lambda x: x,
    "columns": lambda x: np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2),
    "part of longer rows": lambda x: np.concatenate([x, x], axis=-1)[..., : x.shape[-1]],
    "part of longer columns": lambda x: np.asfortranarray(np.concatenate([x, x], axis=-2))[: x.shape[-2]],
}


@pytest.mark.sampled(40)
@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("right_view", VIEWS)
@pytest.mark.parametrize("left_view", VIEWS)
def test_layouts_of_every_kind(dtype: DType, left_view: str, right_view: str) -> None:
    library = stand_in_cublas()
    for m, k, n in ((3, 4, 5), (1, 4, 5), (3, 1, 5), (3, 4, 1), (1, 1, 1), (1, 7, 1)):
        left, right = some(m, k, dtype=dtype.numpy), some(k, n, dtype=dtype.numpy)
        got = multiplied(library, VIEWS[left_view](left), VIEWS[right_view](right), dtype)
        assert got is not None
        close(got, left @ right)


BATCHES = [
    ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)), ((2, 3, 4), (2, 4, 5)), ((2, 6, 3, 4), (2, 6, 4, 5)), ((2, 6, 3, 4), (6, 4, 5)),
    ((2, 1, 3, 4), (1, 6, 4, 5)), ((1, 1, 3, 4), (1, 4, 5)), ((5, 1, 2, 3, 4), (5, 2, 2, 4, 5)),
]  # fmt: skip


@pytest.mark.parametrize("left, right", BATCHES, ids=str)
def test_batches(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = some(*left), some(*right)
    got = multiplied(stand_in_cublas(), a, b, dtypes.float64)
    assert got is not None
    close(got, a @ b)


def test_batches_that_do_not_lie_behind_one_another_take_several_calls() -> None:
    """Heads of attention: (batch, position, head, size), seen as (batch, head, position, size)."""
    q, k = (some(3, 7, 4, 5).transpose(0, 2, 1, 3) for _ in range(2))
    with Calls() as count:
        got = multiplied(stand_in_cublas(), q, k.swapaxes(-1, -2), dtypes.float64)
    assert got is not None and count.calls == 3 and count.heuristics == 1
    close(got, q @ k.swapaxes(-1, -2))


def test_what_is_left_to_others() -> None:
    library = stand_in_cublas()
    for left, right in (
        (some(3, 0), some(0, 5)),  # nothing to add up
        (some(0, 3, 4), some(4, 5)),
        (some(3, 8)[:, ::2], some(4, 5)),  # neither rows nor columns are contiguous
        (np.broadcast_to(some(1, 4), (3, 4)), some(4, 5)),  # rows that lie over each other
        (some(3, 4)[:, ::-1], some(4, 5)),
        (some(40, 7, 40, 5).transpose(0, 2, 1, 3), some(40, 5, 40, 6).transpose(0, 2, 1, 3)),  # too many calls
    ):
        assert multiplied(library, left, right, dtypes.float64) is None
    assert multiplied(library, np.ones((2, 2), np.int32), np.ones((2, 2), np.int32), dtypes.int32) is None
    set_stand_in(heuristic=15)
    assert multiplied(library, some(3, 4), some(4, 5), dtypes.float64) is None


def test_what_the_library_says_is_an_error() -> None:
    set_stand_in(heuristic=14)
    with pytest.raises(dg.BackendError, match=r"^cublasLtMatmulAlgoGetHeuristic of .* failed: status 14, the status of a stand-"):
        multiplied(stand_in_cublas(), some(3, 4), some(4, 5), dtypes.float64)
    gc.collect()
    assert counted("descriptors") == 0


def test_descriptors_are_destroyed_with_their_plan() -> None:
    left = matrices(some(3, 4))
    plan = stand_in_cublas().plan(0, dtypes.float64, left, matrices(some(4, 5)), matrices(some(3, 5)))
    assert isinstance(plan, Product) and counted("descriptors") == 5  # an operation and four layouts
    del plan
    assert counted("descriptors") == 0


def test_a_device_has_one_handle_and_each_has_its_own() -> None:
    library, before = stand_in_cublas(), counted("contexts")
    shapes = matrices(some(3, 3))
    for number in (0, 0, 1, 0, 1):
        library.plan(number, dtypes.float64, shapes, shapes, shapes)
    assert counted("contexts") == before + 2


@pytest.mark.parametrize("wrong, said", [
    ({"algorithm": b"short"}, r"^Product: an algorithm of 5 bytes, factors of 4 and 4, a workspace of 0$"),
    ({"alpha": bytes(17)}, r"^Product: an algorithm of 64 bytes, factors of 17 and 4, a workspace of 0$"),
    ({"workspace": -1}, r"a workspace of -1$"),
    ({"layouts": (1, 1)}, r"^Product: 2 layouts, not 4$"),
    ({"turns": ((0, 0),)}, r"a turn is \(a, b, c, d\)"),
])  # fmt: skip
def test_plans_are_checked_when_they_are_made(wrong: dict[str, Any], said: str) -> None:
    right: dict[str, Any] = {"matmul": 1, "set_attribute": 1, "handle": 1, "operation": 1, "layouts": (1, 1, 1, 1), "turns": ()}
    right |= {"algorithm": bytes(64), "alpha": bytes(4), "beta": bytes(4), "workspace": 0, "keepalive": None}
    assert Product(**right).run((0, 0, 0, 0, 0), 0, 0) == 0  # of no turns
    with pytest.raises((ValueError, TypeError), match=said):
        Product(**right | wrong)


@pytest.mark.parametrize("step, said", [
    ((None, None, (), (None,) * 4), r"^Launcher: a product of 4 matrices, not 5$"),
    ((None, None, (3,), (None,) * 5), r"^Launcher: symbol 3 of 1$"),
    ((None, None, (), (("value", 0, 0), *(None,) * 4)), r"^Launcher: a matrix that is a value$"),
    ((None, None, (), (("input", 7, 0), *(None,) * 4)), r"^Launcher: input 7 of 1$"),
    ((None, None, (), (("input", 0), *(None,) * 4)), r"a matrix is \(kind, what, begin\)"),
])  # fmt: skip
def test_launchers_check_products(step: Any, said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        launching(step)


def launching(*steps: Any) -> Launcher:
    launcher = Launcher()
    launcher.prepare(1, 1, 1, (), (), 0, steps, (), 1 << 31, 1, 0, np.ndarray, np.dtype(np.uint8), int, int, print, None, ())
    return launcher


def finishing(dtype: Any, m: int = 6, n: int = 8) -> tuple[np.ndarray, ...]:
    return tuple(some(*shape, dtype=dtype) for shape in ((m, 5), (5, n), (m, n), (n,)))


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float32], ids=str)
@pytest.mark.parametrize("activation", ["", "relu", "gelu"])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("added", [False, True])
def test_epilogues(dtype: DType, activation: str, biased: bool, added: bool) -> None:
    left, right, addend, bias = finishing(dtype.numpy)
    whole = np.zeros(8 + 16, dtype.numpy)  # from which a bias begins that lies as it must
    first = -address(whole) % 16 // whole.itemsize
    whole[first : first + 8] = bias
    finish = Finish(-0.5, matrices(addend) if added else None, 2.0 if added else 0.0,
                    Matrices((8,), (1,)) if biased else None, activation)  # fmt: skip
    got = multiplied(stand_in_cublas(), left, right, dtype, finish, addend if added else None, whole[first:] if biased else None)
    x = -0.5 * (left.astype(np.float64) @ right) + (2.0 * addend if added else 0) + (bias if biased else 0)
    want = {"": x, "relu": np.maximum(x, 0), "gelu": 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))}
    assert got is not None
    close(got, want[activation].astype(dtype.numpy))


def test_a_bias_that_is_not_aligned_is_left_to_others() -> None:
    left, right, _, bias = finishing(np.float32)
    assert multiplied(stand_in_cublas(), left, right, dtypes.float32, Finish(bias=matrices(bias)), bias=bias) is None


# -- which kernels become epilogues ----------------------------------------------------------------------------------------


def steps_of(function: Callable[..., Any], *arrays: np.ndarray, fast: bool = False) -> list[Any]:
    compiled = dg.compile(function, fullgraph=True)
    compiled(*arrays)
    return list(lower_graph(run_passes(compiled.last_graph), "fast" if fast else "strict", epilogues=True).steps)


def epilogues_of(function: Callable[..., Any], *arrays: np.ndarray, fast: bool = False) -> list[str | None]:
    """Of each product what its epilogue is, of each kernel None."""
    steps = steps_of(function, *arrays, fast=fast)
    assert all(isinstance(s, (LibraryCall, Kernel)) for s in steps)
    return [spelled(s) if isinstance(s, LibraryCall) else None for s in steps]


def spelled(product: LibraryCall) -> str:
    """Its epilogue, whatever the arguments are called: they are numbered as they are used."""
    return re.sub(r"\bin\d", "x", str(product.epilogue or Epilogue()))


def gelu_of_powers(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(np.float32(np.sqrt(2 / np.pi)) * (x + 0.044715 * x**3)))


def gelu_of_products(x: Any) -> Any:
    return (np.tanh((x * x * x * 0.044715 + x) * 0.7978845608028654) + 1) * x * 0.5


A, B, C, D = finishing(np.float32)
CASES: dict[str, tuple[Callable[..., Any], str | None, str | None]] = {  # None: a kernel of its own
    "bias": (lambda a, b, c, d: a @ b + d, "product + x", "product + x"),
    "bias first": (lambda a, b, c, d: d + a @ b, "product + x", "product + x"),
    "bias of a row": (lambda a, b, c, d: a @ b + d.reshape(1, 8), "product + x", "product + x"),
    "part of a bias": (lambda a, b, c, d: a @ b + c[2], "product + x", "product + x"),
    "negative bias": (lambda a, b, c, d: a @ b - d, None, None),
    "addend": (lambda a, b, c, d: a @ b + c, "product + 1.0 * x", "product + 1.0 * x"),
    "less": (lambda a, b, c, d: a @ b - c, "product + -1.0 * x", "product + -1.0 * x"),
    "from": (lambda a, b, c, d: c - a @ b, "-1.0 * product + 1.0 * x", "-1.0 * product + 1.0 * x"),
    "scale": (lambda a, b, c, d: (a @ b) * 0.125, "0.125 * product", "0.125 * product"),
    "scale by nothing": (lambda a, b, c, d: (a @ b) * 0.0, None, None),
    "scale by infinity": (lambda a, b, c, d: (a @ b) * np.float32(np.inf), None, None),
    "two roundings": (lambda a, b, c, d: a @ b + c + d, None, "product + 1.0 * x + x"),
    "scaled addend": (lambda a, b, c, d: a @ b + 2.0 * c, None, "product + 2.0 * x"),
    "negative sum": (lambda a, b, c, d: -(a @ b + c), None, "-1.0 * product + -1.0 * x"),
    "relu": (lambda a, b, c, d: np.maximum(a @ b, 0), None, "relu(product)"),
    "relu of a sum": (lambda a, b, c, d: np.maximum(0, a @ b + d), None, "relu(product + x)"),
    "maximum of something else": (lambda a, b, c, d: np.maximum(a @ b, 1), None, None),
    "gelu": (lambda a, b, c, d: gelu_of_powers(a @ b + d), None, "gelu(product + x)"),
    "gelu in another order": (lambda a, b, c, d: gelu_of_products(a @ b + d), None, "gelu(product + x)"),
    "almost gelu": (lambda a, b, c, d: 0.5 * (a @ b) * (1 + np.tanh(0.8 * (a @ b + 0.044715 * (a @ b) ** 3))), None, None),
    "a column": (lambda a, b, c, d: a @ b + c[:, :1], None, None),
    "turned": (lambda a, b, c, d: (a @ b).T + c.T, "product + 1.0 * x", "product + 1.0 * x"),  # which lies as the product does
    "turned against it": (lambda a, b, c, d: a @ b + c.reshape(8, 6).T, None, None),
    "part of an addend": (lambda a, b, c, d: (a @ b)[:, :4] + c[:, :4], None, None),
    "addend of longer rows": (lambda a, b, c, d: a @ b[:, 2:6] + c[:, 3:7], "product + 1.0 * x", "product + 1.0 * x"),
    "addend of a batch": (
        lambda a, b, c, d: a.reshape(2, 3, 5) @ b[:, 2:6] + c.reshape(2, 3, 8)[..., 3:7], "product + 1.0 * x", "product + 1.0 * x"
    ),
    "twice": (lambda a, b, c, d: a @ b * (a @ b), None, None),
    "something else": (lambda a, b, c, d: np.exp(a @ b), None, None),
    "a part": (lambda a, b, c, d: (a @ b)[1:] + d, None, None),
}


@pytest.mark.sampled(20)
@pytest.mark.parametrize("fast", [False, True], ids=["strict", "fast"])
@pytest.mark.parametrize("name", CASES)
def test_kernels_that_become_epilogues(name: str, fast: bool) -> None:
    function, *wanted = CASES[name]
    want = wanted[fast]
    assert epilogues_of(function, A, B, C, D, fast=fast) == (["product", None] if want is None else [want])


def test_a_product_that_is_used_twice_stays() -> None:
    assert epilogues_of(lambda a, b, c: (a @ b + c, np.sin(a @ b)), A, B, C) == ["product", None]
    (both,) = (s for s in steps_of(lambda a, b, c: (a @ b, a @ b + c), A, B, C) if isinstance(s, LibraryCall))
    assert both.epilogue is None


def test_one_of_two_products_is_added_to_the_other() -> None:
    steps = steps_of(lambda a, b, c, x: a @ b + c @ x, A, B, C, some(8, 8, dtype=np.float32))
    assert [s.epilogue is None for s in steps] == [True, False]
    assert steps[1].epilogue.addend.buffer == steps[0].out.buffer


@pytest.mark.parametrize("dtype, bias, addend", [
    (np.float64, "product + x", "product + 1.0 * x"),
    (np.complex64, None, None),  # beta * C is no product by one: it makes NaN of infinities
    (np.float16, None, None),  # which is added up in float32
])  # fmt: skip
def test_dtypes_that_have_epilogues(dtype: Any, bias: str | None, addend: str | None) -> None:
    for function, want in ((lambda a, b, c, d: a @ b + d, bias), (lambda a, b, c, d: a @ b + c, addend)):
        arrays = finishing(dtype)
        graph = dg.compile(function, fullgraph=True)
        graph(*arrays)
        steps = lower_graph(run_passes(graph.last_graph), epilogues=True).steps
        assert [spelled(s) for s in steps if isinstance(s, LibraryCall) and s.epilogue] == ([want] if want else [])


def test_halves_have_epilogues_in_the_fast_mode() -> None:
    a, b, _, d = finishing(np.float16)
    assert epilogues_of(lambda a, b, d: np.maximum(a @ b + d, 0), a, b, d, fast=True) == ["relu(product + x)"]


def test_a_result_over_an_operand_is_no_epilogue() -> None:
    def over_an_operand(a: Any, b: Any) -> None:
        a[...] = a @ b + 1.0 * a

    def over_an_addend(a: Any, b: Any, c: Any) -> None:
        c += a @ b

    square = some(5, 5, dtype=np.float32)
    assert epilogues_of(over_an_operand, square, square.copy()) == ["product", None]
    assert epilogues_of(over_an_addend, A, B, C.copy()) == ["product + 1.0 * x"]


def test_a_product_stays_before_writes_to_its_operands() -> None:
    def step(a: Any, b: Any, c: Any) -> Any:
        made = a @ b
        a += 1
        return made + c + a.sum()

    def crossing(a: Any, b: Any, c: Any, e: Any) -> Any:
        made = a @ b
        a[...] = e
        return made @ b.T, made * 2.0

    (product,) = (s for s in steps_of(step, A.copy(), B, C) if isinstance(s, LibraryCall))
    assert product.epilogue is None
    assert all(s.epilogue is None for s in steps_of(crossing, A.copy(), B, C, A) if isinstance(s, LibraryCall))


def test_sizes_that_are_symbols() -> None:
    compiled = dg.compile(lambda a, b, c, d: (a @ b + c, a @ b.T + d), fullgraph=True, dynamic=True)
    for m, n in ((6, 5), (7, 4)):
        square = some(n, n, dtype=np.float32)
        compiled(some(m, n, dtype=np.float32), square, some(m, n, dtype=np.float32), some(n, dtype=np.float32))
    steps = lower_graph(run_passes(compiled.last_graph), epilogues=True).steps
    assert [spelled(s) for s in steps if isinstance(s, LibraryCall)] == ["product + 1.0 * x", "product + x"]


# -- programs --------------------------------------------------------------------------------------------------------------


def network(x: Any, w: Any, b: Any, v: Any) -> Any:
    h = np.tanh(x @ w + b)
    return h @ v + x, (h @ v).sum(axis=0)


def of(function: Callable[..., Any], arrays: tuple[np.ndarray, ...], mode: str = "default", **options: Any) -> Any:
    """Compiled, and right in three calls."""
    compiled = dg.compile(function, fullgraph=True, mode=mode, **options)
    for _ in range(3):
        check(compiled, function, arrays)
    return compiled


def check(compiled: Any, function: Callable[..., Any], arrays: tuple[np.ndarray, ...]) -> None:
    want = function(*arrays)
    got = compiled(*map(put, arrays))
    for g, w in zip(got, want) if isinstance(want, tuple) else ((got, want),):
        close(g, np.asarray(w))


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_programs_of_kernels_and_products(device: EmulatedDevice, without_matmul: None, dtype: DType) -> None:
    arrays = tuple(some(*shape, dtype=dtype.numpy) for shape in ((6, 5), (5, 8), (8,), (8, 5)))
    with Calls() as count:
        compiled = of(lambda x, w, b, v: (np.tanh(x @ w + b) @ v + x, x.sum(axis=0)), arrays)
    assert (count.calls, count.heuristics) == (6, 2)
    assert compiled.stats.hits == 2 and compiled.stats.refusals == compiled.stats.fallbacks == 0


@pytest.mark.parametrize("mode", ["default", "fast"])
@pytest.mark.parametrize("name", CASES)
def test_every_epilogue_gives_what_numpy_gives(device: EmulatedDevice, without_matmul: None, name: str, mode: str) -> None:
    with np.errstate(all="ignore"):
        of(CASES[name][0], (A, B, C, D), mode)


@pytest.mark.parametrize("name", CASES)
def test_every_epilogue_by_the_librarys_functions(device: EmulatedDevice, name: str) -> None:
    set_stand_in(heuristic=15)
    with np.errstate(all="ignore"), Calls() as count:
        of(CASES[name][0], (A, B, C, D), "fast")
    assert count.calls == 0


def test_no_python_runs_between_the_steps(device: EmulatedDevice, without_matmul: None, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = (A, B, D, some(8, 5, dtype=np.float32))
    compiled = of(lambda x, w, b, v: np.tanh(x @ w + b) @ v + x, arrays)
    for name in ("__call__", "_call_now", "_product_now", "_prepare_call"):
        monkeypatch.setattr(f"dynagraph.backends.cuda.program.DeviceProgram.{name}", None)
    check(compiled, lambda x, w, b, v: np.tanh(x @ w + b) @ v + x, arrays)


def test_attention(device: EmulatedDevice, without_matmul: None) -> None:
    def attention(q: Any, k: Any, v: Any) -> Any:
        heads = [x.reshape(2, 7, 4, 6).transpose(0, 2, 1, 3) for x in (q, k, v)]
        scores = heads[0] @ heads[1].swapaxes(-1, -2) * np.float32(6**-0.5)
        e = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return ((e / e.sum(axis=-1, keepdims=True)) @ heads[2]).transpose(0, 2, 1, 3).reshape(2, 7, 24)

    of(attention, tuple(some(2, 7, 24, dtype=np.float32) for _ in range(3)))


def test_updates_in_place(device: EmulatedDevice, without_matmul: None) -> None:
    def step(w: Any, x: Any, e: Any) -> None:
        w += x.T @ e

    compiled = dg.compile(step, fullgraph=True)
    w, x, e = some(5, 8), some(6, 5), some(6, 8)
    mine, want = put(w), w.copy()
    for _ in range(4):
        compiled(mine, put(x), put(e))
        step(want, x, e)
        close(mine, want)
    assert device.sources == [] or "k0" not in device.sources[0]  # nothing but a product


def test_sizes_are_planned_once_each(device: EmulatedDevice, without_matmul: None) -> None:
    compiled = dg.compile(lambda x, w, b: (x @ w + b) @ w.T, fullgraph=True, dynamic=True)
    function = lambda x, w, b: (x @ w + b) @ w.T  # noqa: E731
    cases = [tuple(some(*shape, dtype=np.float32) for shape in ((m, k), (k, n), (n,))) for m, k, n in
             [(3, 4, 5), (6, 4, 5), (7, 9, 2), *((m, 3, 4) for m in range(5, 20))]]  # fmt: skip
    with Calls() as first:
        for arrays in cases:
            check(compiled, function, arrays)
    with Calls() as again:
        for arrays in cases * 2:
            check(compiled, function, arrays)
    assert first.calls == 2 * len(cases) and again.calls == 4 * len(cases)
    assert first.heuristics >= 2 * len(cases) > 0 == again.heuristics
    assert compiled.stats.refusals == 0


def test_what_looks_for_plans_must_give_one(device: EmulatedDevice, fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dynagraph.backends.cuda.program.DeviceProgram._product_now", lambda *_: 3)
    compiled = dg.compile(lambda x, y: x @ y, fullgraph=True)
    with Calls() as count:
        for _ in range(3):
            close(compiled(put(A), put(B)), A @ B)
    assert compiled.stats.refusals == 2 and count.calls == 1  # the first is Python's


def test_few_plans_are_kept(device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dynagraph.backends.cuda.program.MOST_PRODUCTS", 4)
    compiled = dg.compile(lambda x, y: x @ y, fullgraph=True, dynamic=True)
    for m in range(2, 40):
        check(compiled, lambda x, y: x @ y, (some(m, 3), some(3, 4)))
    assert counted("descriptors") <= 5 * (4 + 8 + 1) * len(compiled.programs)  # of the program and of its launcher
    del compiled
    gc.collect()
    assert counted("descriptors") == 0


def test_products_have_memory_of_their_own(device: EmulatedDevice, without_matmul: None) -> None:
    """The stand-in writes NaN over what it is given."""
    set_stand_in(workspace=1000)
    arrays = tuple(some(*shape, dtype=np.float32) for shape in ((6, 5), (5, 8), (8,), (8, 5)))
    of(network, arrays)
    of(lambda x, y: x @ y, arrays[:2])  # which has no other temporaries
    of(network, arrays, dynamic=True)


def test_arguments_that_begin_anywhere(device: EmulatedDevice, without_matmul: None) -> None:
    compiled = dg.compile(lambda x, y: x @ y, fullgraph=True)
    whole, y = put(some(25, dtype=np.float32)), some(4, 5, dtype=np.float32)
    x = whole[1:].reshape(6, 4)
    assert x.data.ptr % 16
    for _ in range(3):
        close(compiled(x, put(y)), x.get() @ y)
    assert compiled.stats.refusals == 0


def test_a_bias_that_begins_anywhere_is_added_by_the_library(device: EmulatedDevice) -> None:
    compiled = dg.compile(lambda x, y, b: x @ y + b[1:], fullgraph=True)
    bias = some(9, dtype=np.float32)
    with Calls() as count:
        for _ in range(3):
            close(compiled(put(A), put(B), put(bias)), A @ B + bias[1:])
    assert count.calls == 0 and compiled.stats.refusals == 0


def test_results_of_no_elements_and_sums_of_none(device: EmulatedDevice) -> None:
    for m, k, n in ((0, 3, 4), (3, 0, 4), (3, 4, 0)):
        of(lambda x, y, b: (x @ y, x @ y + b), (some(m, k), some(k, n), some(n)))


def test_each_device_has_plans_of_its_own(device: EmulatedDevice, fake: Any, without_matmul: None) -> None:
    compiled, before = dg.compile(lambda x, y: x @ y, fullgraph=True), counted("contexts")
    for number in (0, 1, 0, 1):
        with fake.cuda.Device(number):
            result = compiled(stand_in.laid(A, number), stand_in.laid(B, number))
        assert result.device.id == number
        close(result, A @ B)
    assert counted("contexts") == before + 2


def test_threads_share_plans(device: EmulatedDevice, without_matmul: None) -> None:
    compiled = dg.compile(lambda x, y, b: x @ y + b, fullgraph=True)
    check(compiled, lambda x, y, b: x @ y + b, (A, B, D))
    wrong: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            rng = np.random.default_rng(seed)
            x, y, b = (rng.standard_normal(shape).astype(np.float32) for shape in (A.shape, B.shape, D.shape))
            mine = tuple(map(put, (x, y, b)))
            for _ in range(50):
                close(compiled(*mine), x @ y + b)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_checked_programs(device: EmulatedDevice, without_matmul: None) -> None:
    with dg.config.override(cuda_check=True):
        of(network, (A, B, D, some(8, 5, dtype=np.float32)))


# -- where something goes wrong ----------------------------------------------------------------------------------------------


def test_a_product_that_is_refused_leaves_the_call_to_the_plain_run(device: EmulatedDevice) -> None:
    compiled = of(lambda x, y: np.tanh(x @ y), (A, B))
    (program,) = compiled.programs
    set_stand_in(matmul=13)
    close(compiled(put(A), put(B)), np.tanh(A @ B))
    assert compiled.stats.refusals == 1
    said = r"^a product was not started: cuBLASLt's status 13, the status of a stand-in: matmul  \(.*test_products\.py:\d+\)$"
    with pytest.raises(dg.BackendError, match=said):
        program.executable(put(B), put(A))  # as they are used
    set_stand_in()
    close(compiled(put(A), put(B)), np.tanh(A @ B))
    assert compiled.stats.refusals == 1


@pytest.mark.parametrize("calls", [0, 1, 2], ids=["the first call", "a call by Python", "a call by the dispatcher"])
def test_an_error_behind_a_write_is_the_callers(device: EmulatedDevice, calls: int) -> None:
    def step(x: Any, y: Any) -> Any:
        x += 1
        return x @ y

    compiled = dg.compile(step)
    x, y = put(A.copy()), put(B)
    for _ in range(calls):
        compiled(x, y)
    set_stand_in(matmul=13)
    with pytest.raises(dg.BackendError, match=r"^a product was not started: cuBLASLt's status 13, "):
        compiled(x, y)
    np.testing.assert_array_equal(x.get(), sum([1] * (calls + 1), start=A))
    set_stand_in()
    close(compiled(x, y), (x.get()) @ B)


def test_a_plan_that_fails_is_left_to_the_library(device: EmulatedDevice, caplog: pytest.LogCaptureFixture) -> None:
    """A handle that is not made, say: that is not a reason to do without kernels."""

    def step(x: Any, y: Any) -> Any:
        x += 1
        return x @ y

    compiled, want = dg.compile(step), A.copy()
    x, y = put(want), put(B)
    set_stand_in(heuristic=14)
    for _ in range(4):
        close(compiled(x, y), step(want, B))
        close(x, want)
    assert compiled.stats.refusals == 0 and compiled.stats.hits == 3
    assert caplog.text.count("cublasLtMatmulAlgoGetHeuristic of") == 1


def test_what_is_left_to_the_library_is_logged(device: EmulatedDevice, caplog: pytest.LogCaptureFixture) -> None:
    set_stand_in(heuristic=15)
    with caplog.at_level(logging.INFO, "dynagraph.kernels"):
        of(lambda x, y: x @ y, (A, B))
    said = [r.getMessage() for r in caplog.records if "cuBLASLt" in r.getMessage()]
    assert len(said) == 1
    assert said[0].endswith("cuBLASLt does not compute float32 of (6, 5) by (5, 8), cupy.matmul does")


# -- replays -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def queued(fake: Any, without_matmul: None) -> Iterator[QueuedProducts]:
    made = QueuedProducts(fake)
    driver.install(fake, made)
    with dg.config.override(stay_eager=False):
        yield made
    driver.install(fake, None)
    gc.collect()


def test_products_wait_for_their_stream(queued: QueuedProducts, fake: Any) -> None:
    compiled = dg.compile(network, fullgraph=True)
    arrays = (A, B, D, some(8, 5, dtype=np.float32))
    set_stand_in(workspace=500)
    streams = [fake.cuda.Stream() for _ in range(2)]
    for stream in (*streams, *streams):
        with stream:
            check(compiled, network, arrays)
    assert queued.streams == [s.ptr for s in (*streams, *streams) for _ in range(2)]


def test_products_are_part_of_the_graph(queued: QueuedProducts, fake: Any) -> None:
    compiled = dg.compile(network, fullgraph=True, mode="reduce-overhead")
    set_stand_in(workspace=500)
    mine = tuple(map(put, (A, B, D, some(8, 5, dtype=np.float32))))
    for k in range(6):
        mine[0][...] = put(A * k)
        got, want = compiled(*mine), network(*(x.get() for x in mine))
        for g, w in zip(got, want):
            close(g, w)
        del got, g
    replayer = compiled.programs[0].executable.call.replayer
    assert (replayer.recordings, replayer.replays, replayer.failure) == (1, 3, None)
    assert len(queued.streams) == 2 * 3  # the first two calls and the recording


def test_training_is_replayed(queued: QueuedProducts, fake: Any) -> None:
    def train(w: Any, x: Any, y: Any) -> Any:
        error = x @ w - y
        w -= np.float32(0.01) * (x.T @ error)
        return (error * error).mean()

    compiled = dg.compile(train, fullgraph=True, mode="reduce-overhead")
    mine, x, y = some(5, 3, dtype=np.float32), A, some(6, 3, dtype=np.float32)
    w, ours, theirs = put(mine), put(x), put(y)
    for _ in range(8):
        loss = compiled(w, ours, theirs)
        np.testing.assert_allclose(loss.get(), train(mine, x, y), rtol=1e-4)
        close(w, mine)
    assert compiled.programs[0].executable.call.replayer.replays >= 4


# -- finding it --------------------------------------------------------------------------------------------------------------


def test_the_library_that_the_switch_names() -> None:
    with dg.config.override(cublaslt=path()):
        found = cublas.find()
    assert found.name == f"cuBLASLt 12.9.3 ({path()})"


def test_switched_off(caplog: pytest.LogCaptureFixture) -> None:
    with dg.config.override(cublaslt="off"), caplog.at_level(logging.INFO, "dynagraph.kernels"):
        with pytest.raises(dg.BackendError, match=r"^cuBLASLt is switched off: config\.cublaslt='off'; unset it"):
            cublas.find()
        assert cublas.find_or_none() is None
    assert "products of matrices are functions of CuPy's: cuBLASLt is switched off" in caplog.text


def test_a_library_that_is_none(tmp_path: Any) -> None:
    for name in (str(tmp_path / "nothing.so"), "libc.so.6"):
        with dg.config.override(cublaslt=name), pytest.raises(dg.BackendError, match=r" is no cuBLASLt: .*; name another lib"):
            cublas.find()


def test_what_the_process_has_loaded_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    loaded = path()
    monkeypatch.setattr(cublas, "SONAMES", (loaded,))
    monkeypatch.setattr(cublas, "candidates", lambda *_: iter([str(tmp_path / "other.so")]))
    monkeypatch.setenv("CUDA_PATH", str(tmp_path))
    assert stand_in_cublas() and cublas.find().path == loaded
    monkeypatch.setattr(cublas, "SONAMES", ("libno-such-thing.so",))
    (tmp_path / "other.so").write_text("no library")
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "another key"))
    said = r"^found no cuBLASLt, for products of matrices: .*; .*other\.so does not serve: .*; pip install"
    for _ in range(2):
        with pytest.raises(dg.BackendError, match=said):
            cublas.find()
        monkeypatch.setattr(cublas, "candidates", None)  # it has looked


def test_old_libraries_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublas, "OLDEST", 13)
    with pytest.raises(dg.BackendError, match=r" is cuBLASLt 12\.9: expected 13 or newer; pip install"):
        CublasLt.load(path())


def test_doctor_tells_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with dg.config.override(cublaslt=path()):
        check = doctor.check_cublas()
    assert (check.status, check.finding) == ("ok", f"cuBLASLt 12.9.3 ({path()})")
    with dg.config.override(cublaslt="off"):
        check = doctor.check_cublas()
    assert check.status == "note" and "switched off" in check.finding and check.cure == "unset it (DYNAGRAPH_CUBLASLT)"
    monkeypatch.setattr(doctor, "has_cupy", lambda: True)
    with dg.config.override(cublaslt="/no/such.so"):
        check = doctor.check_cublas()
    assert check.status == "warning" and "products of matrices on GPUs are functions of CuPy's" in check.finding


# -- on the device, where there is one ---------------------------------------------------------------------------------------


@pytest.fixture
def real(cp: Any) -> Iterator[Any]:
    """CuPy and its cuBLASLt where there is a device, else the stand-ins."""
    if hasattr(cp, "machine"):
        driver.install(cp, EmulatedDevice(cp, products=stand_in_cublas()))
    with dg.config.override(stay_eager=False):
        yield cp
    driver.install(cp, None)


def products_of(compiled: Any) -> list[Any]:
    """What its programs have planned; None: left to the library."""
    return [product for program in compiled.programs for product in program.executable.call._products.values()]


def compare(cp: Any, function: Callable[..., Any], arrays: tuple[np.ndarray, ...], mode: str = "default", **options: Any) -> Any:
    """Three calls against NumPy's values, and against one another: the bits are the same each time."""
    compiled = dg.compile(function, fullgraph=True, mode=mode, **options)
    given, want, first = [cp.asarray(x) for x in arrays], function(*arrays), None
    for _ in range(3):
        got = compiled(*given).get()
        wide = 4e-3 if mode == "fast" else TOLERANCE.get(want.dtype.name, 1e-12)  # TF32
        np.testing.assert_allclose(got, want, rtol=wide, atol=wide * float(np.abs(want).max()) * 4)
        first = got if first is None else first
        np.testing.assert_array_equal(got, first)
    assert compiled.stats.refusals == compiled.stats.fallbacks == 0
    return compiled


@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("shape", [(64, 32, 48), (7, 5, 3), (1, 64, 16), (33, 1, 20), (20, 40, 1)], ids=str)
def test_products_of_the_device(real: Any, dtype: DType, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    x, w, y = (some(*s, dtype=dtype.numpy) for s in ((m, k), (k, n), (n, k)))
    for function, operands in ((lambda x, w: x @ w, (x, w)), (lambda x, y: x @ y.T, (x, y)), (lambda x, y: y @ x.T, (x, y))):
        assert all(isinstance(p, Product) for p in products_of(compare(real, function, operands)))


def test_batches_of_the_device(real: Any) -> None:
    q, k = (some(2, 9, 4, 8, dtype=np.float32) for _ in range(2))
    compiled = compare(real, lambda q, k: q.transpose(0, 2, 1, 3) @ k.transpose(0, 2, 3, 1) * np.float32(0.25), (q, k))
    assert all(isinstance(p, Product) for p in products_of(compiled))


@pytest.mark.sampled(40)
@pytest.mark.parametrize("mode", ["default", "fast", "reduce-overhead"])
@pytest.mark.parametrize("name", [name for name in CASES if "infinity" not in name])
def test_epilogues_of_the_device(real: Any, name: str, mode: str) -> None:
    compare(real, CASES[name][0], (A, B, C, D), mode)
