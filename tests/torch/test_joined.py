"""Compiled calls whose backward() is outside: one node of the autograd graph, and all that plain calls would give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
import dynagraph.torch as torch
from tests.torch.test_captures import same

BACKEND = "numpy"
JOINED = "CompiledFunctionBackward"


def leaf(*shape: int, seed: int = 0) -> Any:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape)).requires_grad_()


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    return dg.compile(function, backend=BACKEND, mode="max", **options)


def outcome(use: Callable[..., Any], function: Callable[..., Any]) -> Any:
    try:
        return use(function)
    except RuntimeError as error:
        return str(error).split(", which is output")[0].split(" is at version")[0]


def agrees(function: Callable[..., Any], use: Callable[..., Any], joined: bool = True) -> Any:
    """`use` gives the same of the function, and of it compiled, in each of two calls."""
    expected, made = outcome(use, function), compiled(function)
    for _ in range(2):
        same(outcome(use, made), expected)
    assert not made.stats.fallbacks
    assert bool(made.stats.not_joined) is not joined, made.stats.not_joined
    return made


def model(x: Any, w: Any, b: Any) -> Any:
    return torch.nn.functional.gelu(torch.relu(x @ w + b) * 1.5).sum()


def test_a_call_is_one_node() -> None:
    made = compiled(model)
    args = leaf(4, 5), leaf(5, 6, seed=1), leaf(6, seed=2)
    loss = made(*args)
    assert loss.grad_fn.name() == JOINED and loss.requires_grad and not loss.is_leaf
    assert [node.name() for node, _ in loss.grad_fn.next_functions] == ["AccumulateGrad"] * 3
    assert [array.shape for array in loss.grad_fn.saved] == [(4, 5), (5, 6), (4, 6)]  # gelu's operand is computed again
    assert loss.grad_fn.saved[0] is args[0]._array  # what the caller has is not copied
    loss.backward()
    assert loss.grad_fn.saved is None
    assert loss.grad_fn.joined.program.stats.compiles == 1
    assert "one node of the autograd graph" in str(dg.explain(made)(*args))
    with torch.no_grad():
        assert made(*args).grad_fn is None


def test_gradients_of_a_model_that_is_trained() -> None:
    def use(function: Any) -> Any:
        args = leaf(4, 5), leaf(5, 6, seed=1), leaf(6, seed=2)
        losses = []
        for _ in range(3):
            loss = function(*args)
            loss.backward()
            losses.append(loss)
            with torch.no_grad():
                for p in args:
                    p -= 0.01 * p.grad
        return [*losses, *args]

    assert agrees(model, use).stats.compiles == 1


def test_parameters_in_objects_and_results_in_attributes() -> None:
    class Model:
        def __init__(self) -> None:
            self.weights, self.seen = [leaf(4, 5, seed=1), leaf(5, seed=2)], None

        def __call__(self, x: Any) -> Any:
            self.seen = torch.relu(x @ self.weights[0] + self.weights[1])
            return (self.seen * self.seen).mean()

    def use(wrap: Any) -> Any:
        net = Model()
        call = wrap(lambda x: net(x))
        for _ in range(2):
            loss = call(leaf(3, 4))
            (loss + net.seen.sum()).backward()
        assert wrap is not compiled or loss.grad_fn.next_functions[0][0] is net.seen.grad_fn
        return [loss, *(p.grad for p in net.weights)]

    for own, plain in zip(use(compiled), use(lambda f: f)):
        np.testing.assert_allclose(own.detach().numpy(), plain.detach().numpy(), rtol=1e-12)  # sums within the call come first


def test_it_is_freed_by_backward() -> None:
    def use(function: Any) -> Any:
        x = leaf(3)
        y = function(x)
        y.backward(retain_graph=True)
        y.backward()
        before = x.grad.clone()
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            y.backward()
        return [before, x]

    agrees(lambda x: (x * 2).exp().sum(), use)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_what_was_saved_must_not_be_written_to(which: int) -> None:
    """`z` and `h` are saved, `w` is not."""

    def use(function: Any) -> Any:
        z, w = leaf(3), leaf(3, seed=1)
        h, y = function(z, w)
        with torch.no_grad():
            (z, w, h)[which].mul_(2.0)
        y.backward()
        return [z, w, y]

    def function(z: Any, w: Any) -> Any:
        h = z.sin().exp()
        return h, (h + w).sum()

    agrees(function, use)
    assert isinstance(outcome(use, function), str) is (which != 1)


def test_memory_that_was_not_saved_may_be_written_to() -> None:
    """The result of exp is saved, not x, from which it could be computed again."""

    def use(function: Any) -> Any:
        x = leaf(3)
        y = function(x)
        with torch.no_grad():
            x.mul_(2.0)
        y.sum().backward()
        return [x, y]

    agrees(lambda x: (x * 2.0).exp() * 3.0, use)


def test_some_results_are_unused() -> None:
    def use(function: Any) -> Any:
        x, y = leaf(3), leaf(3, seed=1)
        with torch.no_grad():
            y[0] = 0.0
        first, _ = function(x, y)
        first.backward()  # the infinite slope of the other one does not come into it
        assert y.grad is None
        return [x, *torch.autograd.grad(function(x, y)[0], (x, y), allow_unused=True)[:1]]

    agrees(lambda x, y: ((x * 2).exp().sum(), (y * x).abs().log().sum()), use)


def test_results_with_nothing_in_common_are_gone_back_through_one_by_one() -> None:
    def use(function: Any) -> Any:
        x, y = leaf(3), leaf(3, seed=1)
        for part in function(x, y):
            part.backward()
        return [x, y]

    agrees(lambda x, y: ((x * 2).exp().sum(), (y * 3).sin().sum()), use)


def test_memory_is_written_to_whose_steps_do_not_run() -> None:
    """Only the first result's steps have saved x; what the second one's read must not be computed from what x holds then."""

    def use(function: Any) -> Any:
        x = leaf(64)
        first, second = function(x)
        with torch.no_grad():
            x.mul_(2.0)
        second.backward()
        return [first, second, x]

    def function(x: Any) -> Any:
        scaled = x * 2.0
        return (x * x).sum(), scaled.sin().sum()

    agrees(function, use)


def test_hooks_run_outside() -> None:
    def use(function: Any) -> Any:
        said: list[Any] = []

        def noting(name: str, factor: float) -> Any:
            return lambda grad: (said.append((name, grad.tolist())), grad * factor)[1]

        x = leaf(3)
        x.register_hook(noting("in", 2.0))
        y = function(x)
        y.register_hook(noting("out", 3.0))
        y.retain_grad()
        y.grad_fn.register_hook(lambda inputs, outputs: said.append(("node", len(outputs))))
        y.sum().backward()
        return [said, x, y.grad]

    agrees(lambda x: (x * 2).exp() * x, use)


def test_gradients_of_gradients() -> None:
    def use(function: Any) -> Any:
        x, w = leaf(3), leaf(3, 3, seed=1)
        (first,) = torch.autograd.grad(function(x, w).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
        (second * second).sum().backward()
        return [first.detach(), second.detach(), x, w]

    agrees(lambda x, w: (torch.tanh(x @ w) * x).exp(), use)
    assert torch.autograd.gradgradcheck(compiled(lambda x, w: (torch.tanh(x @ w) * x).exp()), (leaf(3), leaf(3, 3, seed=1)))


def test_views_inputs_and_writes_to_them() -> None:
    def use(function: Any) -> Any:
        w, y = leaf(3, 2), leaf(3, 2, seed=1)
        x = w * 1.0
        given, h, part = function(x, y)
        assert given is x and part._base is h
        part += 1.0
        (h.sum() + part.sin().sum() + x.sum()).backward()
        return [x.detach(), h.detach(), part.detach(), x._version, h._version, w, y]

    def function(x: Any, y: Any) -> Any:
        x.mul_(2.0)
        x.add_(y.sin())
        h = x * y
        return x, h, h[1:]

    agrees(function, use)


def test_each_part_around_a_break_is_a_node() -> None:
    def function(x: Any) -> Any:
        y = (x * 2).exp()
        dg.graph_break()
        return (y * 3).sin().sum(), y

    made = compiled(function)
    loss, y = made(leaf(3))
    assert loss.grad_fn.name() == y.grad_fn.name() == JOINED and loss.grad_fn is not y.grad_fn
    assert loss.grad_fn.next_functions[0][0] is y.grad_fn

    def use(function: Any) -> Any:
        x = leaf(3)
        function(x)[0].backward()
        return x

    agrees(function, use)


def test_batches_of_changing_size() -> None:
    def use(function: Any) -> Any:
        w = leaf(4, 5, seed=1)
        for n in (3, 7, 5, 3, 9, 1, 2, 6, 8, 11, 12, 13, 14):
            function(leaf(n, 4, seed=n), w).backward()
        return w

    made = agrees(lambda x, w: torch.tanh(x @ w).exp().sum(), use)
    assert made.stats.compiles <= 3


def test_backward_within_another_compiled_function() -> None:
    first, second = compiled(lambda x: (x * 2).exp() * x), compiled(lambda x, y: (torch.autograd.grad((y * x).sum(), x)[0]))
    x, plain = leaf(3), leaf(3)
    (expected,) = torch.autograd.grad(((plain * 2).exp() * plain * plain).sum(), plain)
    for _ in range(2):
        same(second(x, first(x)), expected)
    assert not second.stats.fallbacks and not second.stats.breaks


def test_backward_within_leaves_a_node_that_is_freed() -> None:
    def use(function: Any) -> Any:
        x = leaf(3)
        loss = function(x)
        assert loss.grad_fn is not None
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
        return [loss, x]

    def function(x: Any) -> Any:
        loss = (x * 2).exp().sum()
        loss.backward()
        return loss

    agrees(function, use)


def test_functions_with_a_backward_of_their_own_are_recorded_one_by_one() -> None:
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return 2 * ctx.saved_tensors[0] * grad

    def use(function: Any) -> Any:
        x = leaf(3)
        function(x).sum().backward()
        return x

    made = agrees(lambda x: Square.apply(x * 2).exp() * x, use, joined=False)
    assert "one by one: SquareBackward has hooks, or a gradient of its own" in str(dg.explain(made)(leaf(3)))


def test_a_node_that_is_handed_on_is_that_of_its_operation() -> None:
    def use(function: Any) -> Any:
        x = leaf(3)
        y, node = function(x)
        y.sum().backward()
        return [node.name(), x]

    def function(x: Any) -> Any:
        y = x.sin()
        return y.exp(), y.grad_fn

    agrees(function, use, joined=False)


def test_gradients_of_many_results_at_once() -> None:
    def use(function: Any) -> Any:
        x = leaf(3)
        (rows,) = torch.autograd.grad(function(x), x, torch.eye(3, dtype=torch.float64), is_grads_batched=True)
        return [rows, torch.func.jacrev(function)(x.detach())]

    made = compiled(lambda x: (x.sin() * 2).exp())
    same(use(made), use(lambda x: (x.sin() * 2).exp()))


def functions(torch: Any) -> dict[str, Callable[..., Any]]:
    functional = torch.nn.functional
    return {
        "layers": lambda x, w: functional.layer_norm(torch.tanh(x @ w), (4,)).pow(2).mean(),
        "loss": lambda x, w: functional.cross_entropy(functional.silu(x @ w), torch.tensor([0, 3, 1])),
        "attention": lambda x, w: functional.scaled_dot_product_attention(x, x @ w, x).exp().sum(),
        "pieces": lambda x, w: torch.cat([part.sin() * k for k, part in enumerate((x @ w).chunk(2, 1))], 1).amax(1).sum(),
        "places": lambda x, w: ((x[[0, 2, 2]] @ w).sigmoid() * torch.where(x > 0, x, x * 0.1)).sum(),
        "writes": lambda x, w: (x * 2.0).mul_(w[:3]).clamp_(-1.0, 1.0).cumsum(0).std(),
    }


@pytest.mark.parametrize("name", functions(torch))
def test_against_pytorch(name: str) -> None:
    found = []
    for library in (torch, pytest.importorskip("torch")):
        function = functions(library)[name]
        x, w = (library.from_numpy(leaf(*shape).detach().numpy()).requires_grad_() for shape in ((3, 4), (4, 4)))
        loss = (compiled(function) if library is torch else function)(x, w)
        (first,) = library.autograd.grad(loss, x, create_graph=True)
        (first * first).sum().backward(retain_graph=True)
        loss.backward()
        found.append([t.detach().numpy() for t in (loss, first, x.grad, w.grad)])
    for own, theirs in zip(*found):
        np.testing.assert_allclose(own, theirs, rtol=1e-9, atol=1e-12)


def test_results_that_others_are_computed_from() -> None:
    """Their gradients, hooks and `grad` have what comes by way of the others."""

    def use(function: Any) -> Any:
        x, w = leaf(3), leaf(3, seed=1)
        said: list[Any] = []
        loss, h, part = function(x, w)
        h.retain_grad()
        h.register_hook(lambda g: said.append(g.tolist()))
        loss.backward(retain_graph=True)
        found = torch.autograd.grad(loss, [h, part], create_graph=True)
        (found[0] * found[1].sum()).sum().backward()
        return [np.asarray(said), *(g.detach().numpy() for g in (h.grad, *found, x.grad, w.grad))]

    def function(x: Any, w: Any) -> Any:
        h = (x * 2).exp()
        part = h[:2] * 3.0 * w[1:]
        return ((part * part).sin() + (w * h).exp().sum()).sum(), h, part

    expected, made = use(function), compiled(function)
    for _ in range(2):
        for own, plain in zip(use(made), expected):
            np.testing.assert_allclose(own, plain, rtol=1e-12)  # sums within the call come first
    assert not made.stats.not_joined


@pytest.mark.parametrize("recorded", [False, True])
def test_turns_of_a_loop_go_back_by_one_program(recorded: bool) -> None:
    """The turn's number is no size: what is saved at its place is kept, and the place is a value."""
    cell = torch.nn.Linear(3, 3)
    x = torch.randn(12, 2, 3, requires_grad=recorded)

    def turn(x: Any, t: int, h: Any) -> Any:
        return torch.tanh(cell(x[t]) * h + h)

    def run(turn: Any) -> list[Any]:
        cell.zero_grad()
        x.grad = None
        h = torch.ones(2, 3)
        for t in range(12):
            h = turn(x, t, h)
        h.sum().backward()
        last.append(h.grad_fn)
        return [h.detach(), *(p.grad for p in cell.parameters()), *([x.grad] if recorded else [])]

    last: list[Any] = []
    compiled = dg.compile(turn, mode="max", backend="numpy")
    with dg.config.override(stay_eager=False):
        for got, wanted in zip(run(compiled), run(turn), strict=True):
            np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-6)
    assert compiled.stats.compiles <= 4  # turns 0 and 1 have one each
    assert type(last[0]).__name__ == "CompiledFunctionBackward" and last[0].joined.symbols == ()
