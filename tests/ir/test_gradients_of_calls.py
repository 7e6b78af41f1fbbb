"""Gradients of external calls: LAPACK's, Fourier transforms, sorts, interpolation; against differences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from dynagraph.errors import GradientError
from dynagraph.ir import dtypes
from dynagraph.ir.external_calls import FunctionCall, Slot, selected
from dynagraph.ir.graph import Graph, Meta
from dynagraph.ir.interpreter import interpret
from dynagraph.ir.ops import OPS
from dynagraph.ir.optable.call_gradients import GRADIENTS, called
from dynagraph.ir.passes.backward import append_gradients, append_tangents
from dynagraph.ir.passes.pipeline import run as run_passes
from dynagraph.ir.shapes import ShapeEnv
from dynagraph.ir.terms import Term
from tests.ir.gradients import Program, check_gradients, check_tangents, gradients_of


@dataclass
class Call:
    """A call of a function of NumPy's, one of whose results is looked at."""

    function: str
    arguments: tuple[Any, ...]  # arrays are operands
    keywords: dict[str, Any]
    result: int | None = None

    @property
    def operands(self) -> list[np.ndarray]:
        return [a for a in self.arguments if isinstance(a, np.ndarray)]

    def __str__(self) -> str:
        given = [f"{a.dtype}{list(a.shape)}" if isinstance(a, np.ndarray) else repr(a) for a in self.arguments]
        given += [f"{k}={v!r}" for k, v in self.keywords.items()]
        return f"{self.function}({', '.join(given)})" + ("" if self.result is None else f"[{self.result}]")

    def __call__(self, *operands: Term) -> Term:
        slots = iter(range(len(self.operands)))
        arguments = tuple(Slot(next(slots)) if isinstance(a, np.ndarray) else a for a in self.arguments)
        return self._node(FunctionCall(self.function, arguments, tuple(self.keywords.items())), operands)

    def _node(self, call: FunctionCall, operands: tuple[Term, ...]) -> Term:
        value = np.asarray(selected(call.run(np, self.operands), self.result))
        first, *others = operands
        dtype = dtypes.from_numpy(value.dtype)
        return first.call("external_call", *others, call=call, result=self.result, dtype=dtype, shape=value.shape)


def call(function: str, *arguments: Any, result: int | None = None, **keywords: Any) -> Call:
    return Call(function, arguments, keywords, result)


def normal(*shape: int, kind: str = "f", seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng([seed, *shape])
    x = rng.normal(size=shape)
    return x + 1j * rng.normal(size=shape) if kind == "c" else x


def check(program: Program, operands: list[np.ndarray], order: int, who: str) -> None:
    if order == 0:
        check_tangents(program, operands, who)
    else:
        check_gradients(program, operands, order, who)


ORDERS = pytest.mark.parametrize("order", [0, 1, 2], ids=["tangents", "first", "second"])
KINDS = pytest.mark.parametrize("kind", ["f", "c"])

# -- linear algebra: name -> (program, shapes of its operands) -------------------------------------------------------------


def of(function: str, *arguments: Any, result: int | None = None, **keywords: Any) -> Program:
    """The function of terms, and further arguments."""

    def program(*terms: Term) -> Term:
        tiny = [normal(*t.shape, kind="c" if t.dtype.is_complex else "f") for t in terms]
        return Call(function, (*tiny, *arguments), keywords, result)(*terms)

    return program


def eye(x: Term) -> Term:
    return Term(x.node.graph.call(OPS["eye"], shape=x.shape[-2:], k=0, dtype=x.dtype))


def hermitian(x: Term) -> Term:
    """What the functions of one half of a matrix are given: it may not be moved alone."""
    return x @ x.adjoint + eye(x)


def weighted(*terms: Term) -> Term:
    """Columns times numbers, times rows: of vectors whose phases are free that is the same for all."""
    first, second = terms
    k = first.shape[-1]
    weights = Term(first.node.graph.constant(np.linspace(1, 2, k))).cast(first.dtype)
    return (first * weights) @ second


def eigenvectors(**keywords: Any) -> Program:
    def program(x: Term) -> Term:
        v = of_hermitian("linalg.eigh", result=1, **keywords)(x)
        return weighted(v, v.adjoint)

    return program


def of_hermitian(function: str, **keywords: Any) -> Program:
    def program(x: Term) -> Term:
        matrix = hermitian(x)
        call = FunctionCall(function, (Slot(0),), tuple(sorted((k, v) for k, v in keywords.items() if k != "result")))
        result = keywords.get("result")
        value = selected(call.run(np, [np.broadcast_to(np.eye(x.shape[-1], dtype=x.dtype.numpy), x.shape)]), result)
        dtype = dtypes.from_numpy(value.dtype)
        return matrix.call("external_call", call=call, result=result, dtype=dtype, shape=value.shape)

    return program


def singular_vectors(full_matrices: bool = False) -> Program:
    def program(x: Term) -> Term:
        return weighted(*(of("linalg.svd", full_matrices, result=k)(x) for k in (0, 2)))

    return program


def one_of_singular(result: int) -> Program:
    """One side alone, without its phases."""

    def program(x: Term) -> Term:
        factor = of("linalg.svd", False, result=result)(x)
        return weighted(factor, factor.adjoint) if result == 0 else weighted(factor.adjoint, factor)

    return program


def eigenvectors_of_any(x: Term) -> Term:
    v = of("linalg.eig", result=1)(x)
    return weighted(v, of("linalg.inv")(v))


MATRIX_PROGRAMS: dict[str, tuple[Program, tuple[tuple[int, ...], ...]]] = {
    "solve": (of("linalg.solve"), ((2, 3, 3), (2, 3, 2))),
    "solve-vector": (of("linalg.solve"), ((3, 3), (3,))),
    "solve-broadcast": (of("linalg.solve"), ((2, 3, 3), (3, 1))),
    "inv": (of("linalg.inv"), ((2, 3, 3),)),
    "det": (of("linalg.det"), ((2, 3, 3),)),
    "det-one": (of("linalg.det"), ((3, 3),)),
    "slogdet-sign": (of("linalg.slogdet", result=0), ((2, 3, 3),)),
    "slogdet-logarithm": (of("linalg.slogdet", result=1), ((2, 3, 3),)),
    "cholesky": (of_hermitian("linalg.cholesky"), ((2, 3, 3),)),
    "cholesky-upper": (of_hermitian("linalg.cholesky", upper=True), ((3, 3),)),
    "pinv-tall": (of("linalg.pinv"), ((2, 4, 3),)),
    "pinv-wide": (of("linalg.pinv", 1e-12), ((3, 4),)),
    "lstsq": (of("linalg.lstsq", result=0), ((4, 3), (4, 2))),
    "lstsq-vector": (of("linalg.lstsq", None, result=0), ((4, 3), (4,))),
    "lstsq-wide": (of("linalg.lstsq", result=0), ((3, 4), (3, 2))),
    "lstsq-residuals": (of("linalg.lstsq", result=1), ((4, 3), (4, 2))),
    "lstsq-residual": (of("linalg.lstsq", result=1), ((4, 3), (4,))),
    "lstsq-values": (of("linalg.lstsq", result=3), ((4, 3), (4,))),
    "qr-q": (of("linalg.qr", result=0), ((2, 4, 3),)),
    "qr-r": (of("linalg.qr", result=1), ((2, 4, 3),)),
    "qr-square": (of("linalg.qr", "complete", result=0), ((3, 3),)),
    "qr-wide-q": (of("linalg.qr", result=0), ((2, 3, 5),)),
    "qr-wide-r": (of("linalg.qr", result=1), ((2, 3, 5),)),
    "qr-wide-complete": (of("linalg.qr", "complete", result=1), ((3, 4),)),
    "qr-only-r": (of("linalg.qr", "r"), ((4, 3),)),
    "svd-values": (of("linalg.svd", False, result=1), ((2, 4, 3),)),
    "svd-values-full": (of("linalg.svd", result=1), ((3, 4),)),
    "svd-values-alone": (of("linalg.svd", True, False), ((2, 3, 4),)),
    "svdvals": (of("linalg.svdvals"), ((2, 3, 4),)),
    "svd-vectors": (singular_vectors(), ((2, 3, 3),)),
    "svd-vectors-full": (singular_vectors(full_matrices=True), ((3, 3),)),
    "svd-vectors-tall": (singular_vectors(), ((5, 3),)),
    "svd-vectors-wide": (singular_vectors(), ((3, 5),)),
    "svd-left": (one_of_singular(0), ((4, 3),)),
    "svd-left-wide": (one_of_singular(0), ((3, 4),)),
    "svd-right": (one_of_singular(2), ((3, 4),)),
    "svd-right-tall": (one_of_singular(2), ((4, 3),)),
    "norm-2": (of("linalg.norm", 2), ((3, 4),)),
    "norm-least": (of("linalg.norm", -2, (0, 2)), ((3, 2, 3),)),
    "norm-nuclear": (of("linalg.norm", "nuc", (2, 1), True), ((2, 3, 4),)),
    "cond": (of("linalg.cond"), ((2, 3, 4),)),
    "cond-least": (of("linalg.cond", -2), ((3, 3),)),
    "eigh-values": (of_hermitian("linalg.eigh", result=0), ((2, 3, 3),)),
    "eigh-vectors": (eigenvectors(), ((2, 3, 3),)),
    "eigh-vectors-upper": (eigenvectors(UPLO="U"), ((3, 3),)),
    "eigvalsh": (of_hermitian("linalg.eigvalsh", UPLO="U"), ((2, 3, 3),)),
}
COMPLEX_PROGRAMS = {
    "eig-values": (of("linalg.eig", result=0), ((2, 3, 3),)),
    "eigvals": (of("linalg.eigvals"), ((2, 3, 3),)),
    "eig-vectors": (eigenvectors_of_any, ((2, 3, 3),)),
}


@pytest.mark.sampled(2)
@ORDERS
@pytest.mark.parametrize("name, kind", [(n, k) for n in MATRIX_PROGRAMS for k in "fc"] + [(n, "c") for n in COMPLEX_PROGRAMS])
def test_linear_algebra(name: str, kind: str, order: int) -> None:
    program, shapes = (MATRIX_PROGRAMS | COMPLEX_PROGRAMS)[name]
    check(program, [normal(*s, kind=kind, seed=k + 1) for k, s in enumerate(shapes)], order, name)


@ORDERS
def test_operands_of_two_dtypes(order: int) -> None:
    """The result has the wider one; each gradient has its operand's."""
    for kinds in ("fc", "cf"):
        a, b = (normal(3, 3, kind=k, seed=3) for k in kinds)
        for function in ("linalg.solve", "linalg.lstsq"):
            check(call(function, a, b, result=0 if function.endswith("lstsq") else None), [a, b], order, f"{function} {kinds}")


# -- everything else: calls ------------------------------------------------------------------------------------------------

X, Z = normal(4, 6), normal(4, 6, kind="c")
V, W = normal(7), normal(4)
POINTS, HEIGHTS = np.array([-2.0, -0.7, 0.1, 0.9, 2.2]), normal(5)
MISSING = np.where(np.arange(24).reshape(4, 6) % 5 == 0, np.nan, X)


def transforms() -> list[Call]:
    found = []
    for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
        of_reals, of_complex = name in ("fft", "ifft", "rfft", "ihfft", "irfft"), name not in ("rfft", "ihfft")
        for x in [X] * of_reals + [Z] * of_complex:
            for given in [{}, {"n": 5}, {"n": 4, "axis": 0}, {"n": 9, "norm": "ortho"}, {"axis": 0, "norm": "forward"}]:
                found.append(call(f"fft.{name}", x, **given))
    for name in ("fft2", "ifft2", "fftn", "ifftn", "rfft2", "rfftn", "irfft2", "irfftn"):
        for x in [X, Z] if "r" not in name else [Z] if name.startswith("i") else [X]:
            options: list[dict[str, Any]] = [{}, {"norm": "ortho"}, {"s": (5, 7), "axes": (1, 0), "norm": "forward"}]
            options += [{"s": (3, 4), "axes": (0, 1)}, {"axes": (1,)}]
            found += [call(f"fft.{name}", x, **given) for given in options]
    return found


def quantiles() -> list[Call]:
    q = np.array([0.21, 0.77, 0.43])
    found = [call("median", X), call("median", X, axis=1), call("median", normal(3, 5), axis=0, keepdims=True)]
    found += [call("median", normal(3, 2, 4), axis=(0, 2)), call("nanmedian", MISSING, axis=1), call("quantile", X, 0.3)]
    found += [call("quantile", X, q, axis=0), call("quantile", normal(3, 2, 4), q, axis=(2, 0), keepdims=True)]
    found += [call("percentile", X, q * 100, axis=1), call("percentile", X, 33, 0), call("nanquantile", MISSING, q, axis=1)]
    found += [call("nanpercentile", MISSING, 40.0, axis=0), call("quantile", X, np.array(0.35), axis=-1)]
    return found


CALLS = [
    *transforms(), *quantiles(), call("sort", X), call("sort", X, axis=0), call("sort", Z, 0), call("sort", X, axis=None),
    call("sort", normal(2, 3, 4), axis=1, kind="stable"), call("sort_complex", Z), call("sort_complex", V), call("partition", X, 2),
    call("partition", X, (1, 3), 0), call("partition", X, 5, axis=None),
    call("interp", X, POINTS, HEIGHTS), call("interp", V, POINTS, HEIGHTS, left=1.0), call("interp", V, POINTS, HEIGHTS, right=2.0),
    call("interp", V, POINTS, normal(5, kind="c")), call("interp", np.array(0.3), POINTS, HEIGHTS, left=0, right=0),
    *(call(f, a, v, mode=mode) for f in ("convolve", "correlate") for mode in ("full", "same", "valid") for a, v in [
        (V, W), (W, V), (normal(6), normal(3)), (normal(3), normal(6)), (normal(4), normal(4)), (normal(7, kind="c"), W),
        (W, normal(6, kind="c")), (normal(4, kind="c"), normal(7, kind="c"))]),
    call("correlate", V, W), call("convolve", V, np.array(2.5)), call("bincount", np.array([1, 0, 3, 1]), W, 5),
]  # fmt: skip


@pytest.mark.sampled(2)
@ORDERS
@pytest.mark.parametrize("function", sorted({c.function for c in CALLS}))
def test_other_calls(function: str, order: int) -> None:
    for case in CALLS:
        if case.function == function:
            operands = case.operands
            nan = [np.isnan(x) for x in operands]
            check(_without(nan, case), [np.nan_to_num(x) if m.any() else x for x, m in zip(operands, nan)], order, str(case))


def _without(nan: list[np.ndarray], case: Call) -> Program:
    """The call with NaN where they were: differences move the numbers only."""

    def program(*terms: Term) -> Term:
        masks = [Term(t.node.graph.constant(m)) if m.any() else None for t, m in zip(terms, nan)]
        return case(*(t if m is None else t.number(np.nan).where(m, t) for t, m in zip(terms, masks)))

    return program


def test_every_rule_is_tested() -> None:
    named = {name.split("-")[0] for name in MATRIX_PROGRAMS | COMPLEX_PROGRAMS}
    assert {f"linalg.{name}" for name in named} | {c.function for c in CALLS} == set(GRADIENTS)


@pytest.mark.parametrize("case", [
    call("linalg.inv", normal(2, 3, 3)), call("linalg.svd", normal(4, 3), False, result=0), call("linalg.pinv", normal(4, 3)),
    call("fft.rfft", X), call("fft.irfft", Z, norm="ortho"), call("sort", X), call("median", X, axis=1), call("convolve", V, W),
    call("interp", V, POINTS, HEIGHTS),
], ids=str)  # fmt: skip
def test_single_precision(case: Call) -> None:
    narrow = [x.astype(np.complex64 if x.dtype.kind == "c" else np.float32) for x in case.operands]
    arguments = iter(narrow)
    single = Call(case.function, tuple(next(arguments) if isinstance(a, np.ndarray) else a for a in case.arguments), case.keywords,
                  case.result)  # fmt: skip
    for got, want, x in zip(gradients_of(single, *narrow), gradients_of(case, *case.operands), narrow, strict=True):
        assert got.dtype == x.dtype
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


def test_equal_elements_of_a_sort_get_each_their_own() -> None:
    x = np.array([2.0, 1.0, 2.0, 0.0])
    (got,) = gradients_of(call("sort", x), x, seed=np.array([1.0, 2.0, 3.0, 4.0]))
    assert got[[1, 3]].tolist() == [2.0, 1.0] and sorted(got[[0, 2]]) == [3.0, 4.0]


def test_calls_of_gradients_that_nothing_uses_are_not_made() -> None:
    graph = Graph()
    a, b = (graph.placeholder(name, Meta(dtypes.float64, (3, 3))) for name in "ab")
    value = of("linalg.solve")(Term(a), Term(b)).node
    seed = graph.placeholder("seed", value.meta)
    (by_b,) = append_gradients(graph, [(value, seed)], [b])
    graph.output([by_b])
    (change,) = append_tangents(graph, [(b, seed)], [by_b])
    assert change is None  # it is linear
    (by_a,) = append_gradients(graph, [(by_b, seed)], [a])
    calls = [node for node in run_passes(graph).nodes if node.is_op("external_call")]
    assert len(calls) == 2 and len([node for node in graph.nodes if node.is_op("external_call")]) > 2
    graph.output_node.set_args((by_a,))
    calls = [node for node in run_passes(graph).nodes if node.is_op("external_call")]
    assert len(calls) == 3 and sum(node.must_run for node in calls) == 1  # of the user's nothing is used, but it may raise


def test_a_call_of_the_users_is_made_though_a_gradient_makes_it_too() -> None:
    graph = Graph()
    x = Term(graph.placeholder("x", Meta(dtypes.float64, (4, 3))))
    gradient = called("linalg.qr", x, shape=(4, 3), result=0)
    of("linalg.qr", result=0)(x)
    graph.output([x.node])
    (call,) = (node for node in run_passes(graph).nodes if node.is_op("external_call"))
    assert call.must_run and not gradient.node.must_run


@pytest.mark.parametrize("case, said", [
    (call("histogram_bin_edges", V), "the external calls that have one are bincount, convolve"),
    (call("linalg.qr", normal(4, 3), mode="complete", result=0), "the factors of mode='reduced' have one"),
    (call("linalg.qr", normal(4, 3), mode="raw", result=0), "the factors of mode='reduced' have one"),
    (call("linalg.svd", normal(4, 3), result=0), "there is one with full_matrices=False"),
    (call("linalg.svd", normal(3, 4), result=2), "there is one with full_matrices=False"),
    (call("linalg.cond", normal(3, 3), "fro"), "there is one for p=2, -2 and None"),
    (call("quantile", X, 0.5, method="hazen"), "there is one with method='linear' and without weights"),
    (call("interp", V, POINTS, HEIGHTS, period=3), "there is one of two points or more, all arrays, without period"),
    (call("fft.fftn", X, axes=(0, 0)), "name each axis once"),
], ids=str)  # fmt: skip
def test_calls_without_a_gradient_are_named(case: Call, said: str) -> None:
    graph = Graph()
    inputs = [graph.placeholder("x", Meta(dtypes.from_numpy(x.dtype), x.shape)) for x in case.operands]
    value = case(*map(Term, inputs)).node
    with pytest.raises(GradientError, match=f"no gradient passes through np.{case.function}.*{said}"):
        append_gradients(graph, [(value, graph.placeholder("seed", value.meta))], inputs[:1])


SYMBOLIC = [
    (call("linalg.svd", normal(5, 3), False, result=0), lambda m, n: (m, n)),
    (call("linalg.svd", normal(3, 5), False, result=2), lambda m, n: (m, n)),
    (call("linalg.qr", normal(3, 5), result=1), lambda m, n: (m, n)),
    (call("linalg.pinv", normal(5, 3)), lambda m, n: (n, m)),
    (call("fft.rfft", normal(3, 6), norm="ortho"), lambda m, n: (m, n // 2 + 1)),
    (call("fft.irfft", normal(3, 6, kind="c"), axis=0), lambda m, n: ((m - 1) * 2, n)),
    (call("fft.fft", normal(4, 6), n=9), lambda m, n: (m, 9)),
    (call("fft.rfftn", normal(4, 6)), lambda m, n: (m, n // 2 + 1)),
    (call("sort", normal(4, 6), axis=0), lambda m, n: (m, n)),
    (call("partition", normal(4, 6), 2), lambda m, n: (m, n)),
    (call("median", normal(4, 6), axis=0), lambda m, n: (n,)),
    (call("nanmedian", normal(4, 6)), lambda m, n: ()),
]  # fmt: skip


@pytest.mark.parametrize("case, shape", SYMBOLIC, ids=lambda x: str(x) if isinstance(x, Call) else "")
def test_one_gradient_for_all_sizes(case: Call, shape: Callable[[Any, Any], tuple[Any, ...]]) -> None:
    env, graph = ShapeEnv(), Graph()
    (x,) = case.operands
    sizes = tuple(map(env.symbol, x.shape))
    node = graph.placeholder("x", Meta(dtypes.from_numpy(x.dtype), sizes))
    fixed = case(Term(node)).node
    made = graph.call(OPS["external_call"], node, **{**fixed.attrs, "shape": shape(*sizes)})
    graph.erase(fixed)
    seed = graph.placeholder("seed", made.meta)
    graph.output(append_gradients(graph, [(made, seed)], [node]))
    for rows, columns in (x.shape, tuple(d + 2 for d in x.shape)):
        values = normal(rows, columns, kind=x.dtype.kind)
        weights = normal(*shape(rows, columns), kind=made.dtype.kind, seed=1)
        other = Call(case.function, (values, *case.arguments[1:]), case.keywords, case.result)
        (want,) = gradients_of(other, values, seed=weights)
        for program in (graph, run_passes(graph)):
            np.testing.assert_allclose(interpret(program, [values, weights])[0], want, rtol=1e-7, atol=1e-9)
