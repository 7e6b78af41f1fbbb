"""`dg.export`: programs against the functions that they were captured from, and what cannot be exported."""

from __future__ import annotations

import collections
import math

import numpy as np
import pytest

import dynagraph as dg
from dynagraph import torch
from dynagraph.torch import nn
from dynagraph.torch.nn import functional as F

RNG = np.random.default_rng(7)
X = RNG.standard_normal((4, 3))
BATCH = dg.Dim("batch")
Pair = collections.namedtuple("Pair", "low high")


def scaled(x, w, *, shift=0.0):
    return np.tanh(x @ w) + shift


class Net(nn.Module):
    """Tied weights, a buffer that is written, one that is not saved, a submodule of the user's."""

    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.weight = nn.Parameter(torch.tensor(RNG.standard_normal((5, 3)), dtype=torch.float32))
        self.tied = self.weight
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("mean", torch.zeros(5))
        self.register_buffer("scale", torch.tensor(2.0), persistent=False)

    def forward(self, x):
        y = F.linear(x, self.weight) + F.linear(x, self.tied) * self.scale
        with torch.no_grad():
            self.count.add_(1)
            self.mean.mul_(0.9).add_(y.mean(0) * 0.1)
        return {"y": self.inner(y), "count": self.count}


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.ones(5))

    def forward(self, x):
        return torch.relu(x + self.bias)


# -- values -----------------------------------------------------------------------------------------------------------------------


def test_a_function_of_arrays():
    program = dg.export(scaled, (X, X.T), {"shift": 2.0})
    np.testing.assert_array_equal(program(X, X.T, shift=2.0), scaled(X, X.T, shift=2.0))
    assert program.input_names == ("x", "w")


@pytest.mark.parametrize("n", [1, 2, 9])
def test_a_symbolic_batch(n):
    def f(x):
        return (x - x.mean(0)) / (len(x) + 1.0) * math.sqrt(len(x))

    program = dg.export(f, (X,), dynamic_shapes={"x": {0: BATCH}})
    x = RNG.standard_normal((n, 3))
    np.testing.assert_array_equal(program(x), f(x))


def test_an_example_with_one_row_stands_for_any_number():
    program = dg.export(lambda x: x * 2, (X[:1],), dynamic_shapes=({0: BATCH},))
    assert program(X).shape == (4, 3) and program.range_constraints == {"batch": (1, 2**31 - 1)}


def test_derived_sizes():
    half = dg.Dim("half", min=2, max=50)
    shapes = ({0: 2 * half}, {0: half})
    program = dg.export(lambda x, y: x.reshape(-1, 2) + y, (np.arange(8.0), np.ones((4, 2))), dynamic_shapes=shapes)
    np.testing.assert_array_equal(program(np.arange(10.0), np.zeros((5, 2))), np.arange(10.0).reshape(5, 2))
    with pytest.raises(dg.ExportError, match=r"got 2\*half = 10, half = 4"):
        program(np.arange(10.0), np.zeros((4, 2)))


def test_results_have_the_structure_of_the_plain_ones():
    def f(x, more):
        return {"a": [x.sum(), None, "text", 3], "pair": Pair(x + 1, more["k"][0] * 2), "n": x.shape[0]}

    more = {"k": (X, 1.5)}
    got = dg.export(f, (X, more), dynamic_shapes={"x": {0: BATCH}, "more": {"k": ({0: BATCH}, None)}})(X, more)
    expected = f(X, more)
    assert got["a"][1:] == [None, "text", 3] and got["n"] == 4 and got["pair"]._fields == ("low", "high")
    assert type(got["a"][0]) is np.float64 and got["a"][0] == expected["a"][0]
    np.testing.assert_array_equal(got["pair"].high, expected["pair"].high)


def test_results_share_no_memory_with_arguments():
    x = X.copy()
    whole, part = dg.export(lambda x: (x, x[1:]), (x,))(x)
    assert not np.shares_memory(whole, x) and not np.shares_memory(whole, part)
    np.testing.assert_array_equal(part, x[1:])


def test_arguments_laid_out_in_another_way():
    program = dg.export(lambda x: x * 2 + 1, (X,))
    wide = np.zeros((3, 8))
    wide[:, ::2] = X.T
    np.testing.assert_array_equal(program(wide[:, ::2].T), X * 2 + 1)
    np.testing.assert_array_equal(dg.export(lambda x: x * 2 + 1, (X.T,))(X.T), X.T * 2 + 1)


def test_one_array_for_two_arguments_is_two_inputs():
    program = dg.export(lambda x, y: x - y, (X, X))
    np.testing.assert_array_equal(program(X, 2 * X), -X)


def test_arrays_that_are_written():
    def step(w, g):
        w -= 0.1 * g
        return w.sum()

    w = X.copy()
    program = dg.export(step, (w, X))
    np.testing.assert_array_equal(w, X)  # the capture ran nothing
    program(w, X)
    np.testing.assert_array_equal(w, X - 0.1 * X)


def test_arrays_from_elsewhere_are_constants():
    table = RNG.standard_normal(3)
    program = dg.export(lambda x: x + table, (X,))
    before = table.copy()
    np.testing.assert_array_equal(program(X), X + before)
    assert [s.role for s in program.inputs] == ["constant", "input"]


def test_a_module():
    net, x = Net(), torch.tensor(X, dtype=torch.float32)
    program = dg.export(net, (x,), dynamic_shapes={"x": {0: BATCH}})
    assert set(program.state_dict) == set(net.state_dict()) and "scale" not in program.state_dict
    model = program.module()
    for n in (1, 3, 4):
        got, expected = model(x[:n]), net(x[:n])
        assert torch.allclose(got["y"], expected["y"]) and got["count"] == expected["count"]
    assert torch.allclose(program.state_dict["mean"], net.mean)


def test_a_loaded_state_is_used():
    net, x = Net(), torch.tensor(X, dtype=torch.float32)
    model = dg.export(net, (x,)).module()
    other = {name: torch.zeros_like(value) for name, value in net.state_dict().items()}
    model.load_state_dict(other)
    assert model(x)["y"].abs().max() == 0
    with pytest.raises(dg.ExportError, match="names that are on one side only: weight"):
        model.load_state_dict({name: value for name, value in other.items() if name != "weight"})


def test_compiled_functions_and_methods():
    assert dg.export(dg.compile(scaled), (X, X.T)).name == "scaled"
    net, x = Net(), torch.tensor(X, dtype=torch.float32)
    assert "inner.bias" in dg.export(net.forward, (x,)).state_dict


def test_keywords_and_positions_are_exchangeable():
    program = dg.export(lambda x, y: x - y, (X, 2 * X))
    np.testing.assert_array_equal(program(y=2 * X, x=X), -X)
    np.testing.assert_array_equal(dg.export(lambda x, y: x - y, (X,), {"y": 2 * X})(X, 2 * X), -X)


# -- what does not fit ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda p: p(X), r"takes the arguments x, w, shift, got 1 by position"),
        (lambda p: p(X, X.T, shift=3.0), r"shift was 2.0 when the program was exported, and is part of it; got 3.0"),
        (lambda p: p(X[:, :2], X.T, shift=2.0), r"scaled: axis 1 of x must be 3, got 2"),
        (lambda p: p(X.astype("f4"), X.T, shift=2.0), r"scaled: x must be of float64, got float32; cast it first"),
        (lambda p: p(X[0], X.T, shift=2.0), r"scaled: x must have 2 dimensions, got shape \(3,\)"),
        (lambda p: p(1.0, X.T, shift=2.0), r"scaled: x must be an array or a tensor, got float"),
        (lambda p: p(np.zeros((9, 3)), X.T, shift=2.0), r"scaled: axis 0 of x is 9; batch must be from 2 to 8"),
    ],
)
def test_calls_that_do_not_fit(call, message):
    program = dg.export(scaled, (X, X.T), {"shift": 2.0}, dynamic_shapes={"x": {0: dg.Dim("batch", min=2, max=8)}})
    with pytest.raises(dg.ExportError, match=message):
        call(program)


def test_what_the_code_decided_about_sizes_is_checked():
    def f(x):
        return x[:-1] if x.shape[0] > 3 else x * 2

    program = dg.export(f, (X,), dynamic_shapes=({0: dg.Dim.AUTO},))
    np.testing.assert_array_equal(program(np.ones((6, 3))), np.ones((5, 3)))
    with pytest.raises(dg.ExportError, match=r"the program is for sizes with 3 < x_0 \(test_export.py:\d+\), got x_0 = 2"):
        program(np.ones((2, 3)))


def branch(x):
    if x.sum() > 0:
        return x
    return -x


GENERATOR = np.random.default_rng(0)


def draws(x):
    return x + GENERATOR.standard_normal(3)


HELD = []


def keeps(x):
    HELD.append(x)
    return x + 1


@pytest.mark.parametrize(
    "function, shapes, message",
    [
        (branch, None, r"branch cannot be captured whole\n  test_export.py:\d+: the branch depends on the value of an.*\n  fix:"),
        (draws, None, r"draws"),
        (keeps, None, r"keeps changes what is outside of it"),
        (lambda x: (x + 1, {1, 2}), None, r"<lambda> gives a set; results are"),
        (lambda x: {1, 2}, None, r"<lambda> computes nothing with arrays"),
        (lambda x: x * math.gamma(x.shape[0] + 0.5), {"x": {0: BATCH}}, r"has Python compute a number of a size \(gamma\)"),
        (lambda x: x + np.ones((4, 1)), {"x": {0: BATCH}}, r"axis 0 of x, batch, was fixed to 4 at test_export.py:\d+"),
        (lambda x: x @ x.T[:, :3], {"x": {0: dg.Dim.DYNAMIC, 1: BATCH}}, None),
        (lambda x: x[: x.shape[1]] + x.T, {"x": {0: dg.Dim("a"), 1: dg.Dim("b")}}, r"cannot be captured"),
        (lambda x: x.reshape(2, -1), {"x": {0: dg.Dim("n", min=2, max=5)}}, r"n may be 5, and the code needs 3 \* n =="),
        (lambda x: x, {"y": None}, r"dynamic_shapes names y; the arguments are x"),
        (lambda x: x, {"x": {2: BATCH}}, r"no axis 2, the argument has 2"),
        (lambda x: x, {"x": {0: dg.Dim("n", max=3)}}, r"n is 4 in the example, and is to be from 1 to 3"),
        (lambda x: x, {"x": {0: BATCH, 1: BATCH}}, r"batch is 4 and 3 in the example; it must be one size"),
        (lambda x: x.squeeze(), {"x": {0: dg.Dim("n", min=1)}}, r"n of 1 would need another program"),
    ],
)
def test_what_cannot_be_exported(function, shapes, message):
    if message is None:
        dg.export(function, (X,), dynamic_shapes=shapes)
        return
    with pytest.raises(dg.ExportError, match=message):
        dg.export(function, (X,), dynamic_shapes=shapes)
    assert not HELD


def test_a_break_in_a_module_names_the_users_line():
    class Odd(Inner):
        def forward(self, x):
            return x if x.numpy().sum() > 0 else -x

    with pytest.raises(dg.ExportError, match=r"test_export.py:\d+: the branch depends on the value of an array"):
        dg.export(nn_of(Odd()), (torch.ones(2),))


def nn_of(inner):
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x) + 1

    return Outer()


def test_an_index_out_of_bounds_is_an_error():
    program = dg.export(lambda x, k: x[k], (X, np.array([0, 1])))
    np.testing.assert_array_equal(program(X, np.array([3, -1])), X[[3, -1]])
    with pytest.raises(dg.ExportError, match="index is out of bounds"):
        program(X, np.array([4, 0]))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.reshape(math.prod(x.shape[:2]), -1) * 2,
        lambda x: np.broadcast_to(x[:, :1], np.broadcast_shapes(x.shape, (x.shape[0], 1))) + 1,
        lambda x: x * float(np.finfo(x.dtype).eps) / math.log(x.shape[0] * x.shape[1] + 0.5),
    ],
)
def test_what_is_computed_of_sizes_stays_symbolic(function):
    program = dg.export(function, (X,), dynamic_shapes=({0: BATCH},))
    more = RNG.standard_normal((9, 3))
    np.testing.assert_allclose(program(more), function(more), rtol=1e-15)
