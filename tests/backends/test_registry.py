"""Backends by name, and backends that users bring."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import dynagraph.ir.optable  # noqa: F401  (fills OPS)
from dynagraph.backends import registry
from dynagraph.backends.registry import BACKENDS, example_inputs, get_backend
from dynagraph.errors import BackendError
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Graph, Meta
from dynagraph.ir.interpreter import interpret
from dynagraph.ir.ops import OPS
from dynagraph.ir.shapes import ShapeEnv

F64 = dtypes.float64


def doubling() -> Graph:
    """``return x + x`` for any length."""
    graph = Graph()
    x = graph.placeholder("x", Meta(F64, (ShapeEnv().symbol(4),)))
    graph.output([graph.call(OPS["add"], x, x)])
    return graph


@pytest.mark.parametrize("name", ["numpy", "reference"])
def test_names_are_backends(name: str) -> None:
    (got,) = get_backend(name)(doubling())(np.arange(3.0))
    assert got.tolist() == [0.0, 2.0, 4.0]


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(
        BackendError, match=r"^unknown backend 'inductor'; known ones are c, cpu, numpy, reference, or pass"
    ):
        get_backend("inductor")
    assert set(BACKENDS) == {"c", "cpu", "numpy", "reference"}


def test_without_a_compiler_numpy_runs_and_that_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find_compiler", lambda: None)
    registry._say_that_no_compiler_was_found.cache_clear()
    with pytest.warns(RuntimeWarning, match=r"^dynagraph found no C compiler \(cc, gcc or clang\)"):
        executable = get_backend("cpu")(doubling())
    assert executable.native is None and executable(np.ones(2))[0].tolist() == [2.0, 2.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        get_backend("cpu")(doubling())


# -- a user's backend --------------------------------------------------------------------------------------------------


def test_a_users_callable_gets_the_graph_and_example_inputs() -> None:
    seen: list[Any] = []

    def mine(graph: Graph, examples: Sequence[np.ndarray]) -> Any:
        seen.extend(examples)
        return lambda *arrays: interpret(graph, arrays)

    executable = get_backend(mine)(doubling())
    assert executable(np.arange(3.0))[0].tolist() == [0.0, 2.0, 4.0]
    assert [(x.shape, x.dtype) for x in seen] == [((4,), np.float64)] and executable.native is None


def test_a_users_backend_may_rewrite_its_graph() -> None:
    graph = doubling()

    def mine(mine: Graph, examples: Sequence[np.ndarray]) -> Any:
        mine.output_node.set_args(tuple(mine.placeholders))
        mine.eliminate_dead_code()
        return lambda *arrays: [2 * arrays[0]]

    assert get_backend(mine)(graph)(np.ones(3))[0].tolist() == [2.0, 2.0, 2.0]
    graph.lint()
    assert len(graph) == 3


def test_examples_have_the_sizes_seen_at_capture() -> None:
    assert [x.shape for x in example_inputs(doubling())] == [(4,)]


def returns_no_callable(graph: Graph, examples: Sequence[np.ndarray]) -> Any:
    return 3


def returns(result: Any) -> Any:
    def backend(graph: Graph, examples: Sequence[np.ndarray]) -> Any:
        return lambda *arrays: result

    return backend


def test_a_backend_must_give_a_callable() -> None:
    with pytest.raises(
        BackendError, match=r"^backend returns_no_callable: must give back a callable for the graph, got int$"
    ):
        get_backend(returns_no_callable)(doubling())


WRONG = [
    (np.zeros(3), r"its program must give a tuple of the graph's 1 outputs, got ndarray$"),
    ((), r"its program must give a tuple of the graph's 1 outputs, got 0 of them$"),
    ((np.zeros(4),), r"output add must be float64\[3\], got float64\[4\]$"),
    ((np.zeros(3, np.float32),), r"output add must be float64\[3\], got float32\[3\]$"),
]


@pytest.mark.parametrize(("result", "message"), WRONG)
def test_wrong_results_of_a_users_program_are_named(result: Any, message: str) -> None:
    with pytest.raises(BackendError, match=r"^backend returns.<locals>.backend: " + message):
        get_backend(returns(result))(doubling())(np.zeros(3))
