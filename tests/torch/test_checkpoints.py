"""Activation checkpoints, and hooks on what is saved, in compiled functions: whole, with the numbers of plain calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import dynagraph as dg
import dynagraph.torch as torch
from dynagraph.backends.c.backend import lower_graph
from dynagraph.ir.passes.pipeline import run as run_passes
from dynagraph.torch.autograd.graph import disable_saved_tensors_hooks, saved_tensors_hooks
from dynagraph.torch.core.grad_mode import mode
from dynagraph.torch.utils.checkpoint import checkpoint, checkpoint_sequential

nn, F = torch.nn, torch.nn.functional
Step = Callable[[Any], Any]


def blocks(count: int = 3, width: int = 8) -> list[Any]:
    torch.manual_seed(0)
    layers = lambda: (nn.Linear(width, width), nn.Tanh(), nn.Dropout(0.25), nn.Linear(width, width), nn.GELU())  # noqa: E731
    return [nn.Sequential(*layers()) for _ in range(count)]


def training(forward: Callable[[list[Any], Any], Any], count: int = 3, width: int = 8) -> tuple[list[Any], Step]:
    """Parameters, and a step that trains blocks."""
    own = blocks(count, width)
    params = [p for block in own for p in block.parameters()]
    optimizer = torch.optim.SGD(params, lr=0.1, momentum=0.5)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = forward(own, x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return params, step


def each(reentrant: bool, **about: Any) -> Callable[[list[Any], Any], Any]:
    def forward(own: list[Any], x: Any) -> Any:
        for block in own:
            x = checkpoint(block, x, use_reentrant=reentrant, **about)
        return x

    return forward


def nested(own: list[Any], x: Any) -> Any:
    first, second = (block[0] for block in own[:2])

    def inner(y: Any) -> Any:
        return torch.sin(F.linear(y, second.weight, second.bias)).exp()

    def outer(y: Any) -> Any:
        return checkpoint(inner, F.linear(y, first.weight, first.bias).tanh(), use_reentrant=False)

    return own[2](checkpoint(outer, x, use_reentrant=False))


def with_closures_and_keywords(own: list[Any], x: Any) -> Any:
    shift = x.mean()

    def block(y: Any, scale: Any = None) -> Any:
        return own[0](y) * scale + shift

    return checkpoint(block, x, scale=x.amax(), use_reentrant=False) + own[1](x)


def in_autocast(own: list[Any], x: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = checkpoint(own[0], x, use_reentrant=False)
    return own[1](y.float())


FORWARD: dict[str, Callable[[list[Any], Any], Any]] = {
    "with hooks": each(False),
    "with a backward of its own": each(True),
    "without early stops": each(False, early_stop=False),
    "other random numbers": each(False, preserve_rng_state=False, determinism_check="none"),
    "in segments": lambda own, x: checkpoint_sequential(nn.Sequential(*own), 2, x, use_reentrant=False),
    "within another": nested,
    "closures and keywords": with_closures_and_keywords,
    "autocast": in_autocast,
}


@pytest.mark.parametrize("name", FORWARD)
def test_a_step_is_one_program(name: str) -> None:
    found = []
    for compiles in (True, False):
        params, step = training(FORWARD[name])
        run = dg.compile(step, mode="max", backend="numpy", fullgraph=True) if compiles else step
        torch.manual_seed(1)
        losses = [run(torch.linspace(-1, 1, 8 * n).reshape(n, 8).requires_grad_()).item() for n in (4, 4, 6, 5, 7)]
        grads = [p.grad.tolist() for p in params if p.grad is not None]
        found.append([losses, [p.tolist() for p in params], grads, torch.rand(2).tolist()])
        if compiles:
            assert run.stats.fallbacks == 0 and run.stats.compiles <= 2, run.explain_misses()
    assert found[0] == found[1]


@pytest.mark.parametrize("reentrant", [False, True])
def test_programs_compute_again(reentrant: bool) -> None:
    """They keep inputs of blocks alone, which is what checkpoints are for."""

    def graph_of(forward: Any) -> Any:
        compiled = dg.compile(training(forward, count=6, width=64)[1], mode="max", fullgraph=True)
        for _ in range(2):
            compiled(torch.ones(1024, 64).requires_grad_())
        return compiled.last_graph

    def memory(graph: Any) -> int:
        return lower_graph(run_passes(graph)).workspace.constant

    whole, again = graph_of(lambda own, x: nn.Sequential(*own)(x)), graph_of(each(reentrant))
    assert memory(again) < 0.7 * memory(whole)
    counts = [sum(node.is_op("tanh") for node in graph.nodes) for graph in (whole, again)]
    assert counts == [6, 12]


@pytest.mark.parametrize("reentrant", [False, True])
def test_backward_outside_of_the_program(reentrant: bool) -> None:
    found = []
    for compiles in (True, False):
        own = blocks()
        forward = lambda x, own=own: each(reentrant)(own, x).square().mean()  # noqa: E731
        run = dg.compile(forward, mode="max", backend="numpy") if compiles else forward
        torch.manual_seed(1)
        x = torch.linspace(-1, 1, 40).reshape(5, 8).requires_grad_()
        for _ in range(3):
            run(x).backward()
        found.append([x.grad.tolist(), *(p.grad.tolist() for block in own for p in block.parameters()), torch.rand(2).tolist()])
    assert found[0] == found[1]


def test_backward_twice_computes_twice() -> None:
    """Each backward computes again, in programs as it does in plain calls."""
    calls: list[int] = []

    def block(x: Any) -> Any:
        calls.append(1)
        return x.exp().sin()

    def twice(x: Any) -> Any:
        y = checkpoint(block, x, use_reentrant=False).sum()
        y.backward(retain_graph=True)
        y.backward()
        return x.grad

    compiled = dg.compile(twice, mode="max", backend="numpy", fullgraph=True)
    results = [run(torch.linspace(0, 1, 4).requires_grad_()).tolist() for run in (compiled, twice)]
    assert results[0] == results[1] and len(calls) == 6


def test_computations_that_differ_raise() -> None:
    def differs(x: Any, seen: list[int]) -> Any:
        seen.append(1)
        return x.exp().sin() if len(seen) == 1 else x.exp()

    def step(x: Any) -> str:
        seen: list[int] = []
        try:
            checkpoint(differs, x, seen, use_reentrant=False).sum().backward()
        except torch.utils.checkpoint.CheckpointError as error:
            return str(error)
        return ""

    compiled = dg.compile(step, mode="max", backend="numpy")
    expected = step(torch.ones(3, requires_grad=True))
    assert "A different number of tensors was saved" in expected
    for _ in range(2):
        assert compiled(torch.ones(3, requires_grad=True)) == expected


def test_hooks_on_what_is_saved() -> None:
    def halved(x: Any) -> Any:
        with saved_tensors_hooks(lambda t: t * 0.5, lambda t: t * 2 + 1):
            y = x * x.exp()
        (y * y).sum().backward()
        return x.grad

    compiled = dg.compile(halved, mode="max", backend="numpy", fullgraph=True)
    for _ in range(3):
        x, other = (torch.linspace(-1, 1, 4).requires_grad_() for _ in range(2))
        assert compiled(x).tolist() == halved(other).tolist()
    assert compiled.stats.compiles == 1


def test_hooks_that_are_set_outside_hold_in_compiled_functions() -> None:
    function = lambda x: (x * x).sum()  # noqa: E731
    compiled = dg.compile(function, mode="max", backend="numpy")
    for hooked in (False, True, False):
        grads = []
        for run in (compiled, function):
            x = torch.linspace(-1, 1, 4).requires_grad_()
            if hooked:
                with saved_tensors_hooks(lambda t: t * 0.5, lambda t: t):
                    y = run(x)
            else:
                y = run(x)
            y.backward()
            grads.append(x.grad.tolist())
        assert grads[0] == grads[1]


def test_hooks_are_refused_in_programs_where_they_are_outside() -> None:
    def hooked(x: Any) -> Any:
        with saved_tensors_hooks(lambda t: t, lambda t: t):
            return x * x

    compiled = dg.compile(hooked, mode="max", backend="numpy")
    x = torch.ones(3, requires_grad=True)
    for _ in range(2):
        assert compiled(x).tolist() == [1, 1, 1]
        with disable_saved_tensors_hooks("no hooks here"), pytest.raises(RuntimeError, match="no hooks here"):
            compiled(x)


def test_hooks_set_by_a_program_stay_until_they_are_taken_off() -> None:
    context = saved_tensors_hooks(lambda t: t.detach() * 0.5, lambda t: t)
    enter = dg.compile(lambda x: (context.__enter__(), x * 2)[1], mode="max", backend="numpy")
    x = torch.ones(3, requires_grad=True)
    for _ in range(2):
        enter(x)
        y = x * x
        context.__exit__()
        assert torch.autograd.grad(y.sum(), x)[0].tolist() == [1, 1, 1]
        assert torch.autograd.grad((x * x).sum(), x)[0].tolist() == [2, 2, 2]


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(x: Any, factor: Any) -> Any:
        return x * factor

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * ctx.factor, None


def test_functions_with_contexts_set_up_apart() -> None:
    def step(x: Any) -> Any:
        Scaled.apply(x, 3.0).square().sum().backward()
        return x.grad

    compiled = dg.compile(step, mode="max", backend="numpy", fullgraph=True)
    assert compiled(torch.ones(3, requires_grad=True)).tolist() == step(torch.ones(3, requires_grad=True)).tolist() == [18.0] * 3


def test_regions_of_autocast_leave_the_state_as_it_was() -> None:
    """Programs are guarded by it: those of before the first region hold after it."""
    before = mode.flags()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.get_autocast_dtype("cpu") is torch.bfloat16
    with torch.autocast("cpu", dtype=torch.float16):
        assert torch.get_autocast_dtype("cpu") is torch.float16
    assert mode.flags() == before
