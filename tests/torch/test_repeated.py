"""Primitives that captures compute once and make again for operands that are alike: the same graph, and only there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import dynagraph as dg
import dynagraph.torch as torch
from dynagraph.frontend.library import repeated, tensors
from dynagraph.ir.passes.pipeline import run
from tests.torch.test_captures import BACKEND, same

nn, F = torch.nn, torch.nn.functional


@pytest.fixture
def made_again(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The numbers of nodes of the computations that were made again."""
    found: list[int] = []
    plain = repeated._Computation.again

    def again(self: Any, ex: Any, operands: list[Any]) -> Any:
        found.append(len(self.nodes))
        return plain(self, ex, operands)

    monkeypatch.setattr(repeated._Computation, "again", again)
    yield found


def operations(compiled: Any) -> list[str]:
    return [str(node.op.name) for node in run(compiled.last_graph).nodes if node.kind == "call_function"]


def guards(compiled: Any) -> list[str]:
    return [line for program in compiled.programs for line in program.captured.guards.describe()]


def check(function: Callable[..., Any], make: Callable[[], tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same values as the plain call, and the same graph as where each computation is captured anew."""
    expected = function(*make())
    short = dg.compile(function, backend=BACKEND, mode="max")
    same(short(*make()), expected)
    monkeypatch.setattr(tensors, "repeated", lambda frame, about, operands, compute: compute())
    long = dg.compile(function, backend=BACKEND, mode="max")
    same(long(*make()), expected)
    assert operations(short) == operations(long)
    assert not short.stats.fallbacks and not short.stats.breaks, short.stats
    assert guards(short) == guards(long)


def layers() -> tuple[Any, ...]:
    torch.manual_seed(0)
    parts = [part for _ in range(3) for part in (nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2), nn.ReLU(inplace=True))]
    return nn.Sequential(*parts, nn.Flatten(), nn.LayerNorm(32), nn.Linear(32, 32), nn.LayerNorm(32)), torch.rand(2, 2, 4, 4)


def step(model: Any, x: Any) -> Any:
    y = model(x)
    (y * y).sum().backward()
    return y.detach(), [p.grad for p in model.parameters()], list(model.buffers())


def test_blocks_of_layers_are_captured_once(made_again, monkeypatch):
    check(step, layers, monkeypatch)
    assert len(made_again) >= 8 and sum(made_again) > 80


def two() -> tuple[Any, ...]:
    return torch.linspace(0.1, 1.0, 9).reshape(3, 3).requires_grad_(), torch.linspace(-1.0, 1.0, 9).reshape(3, 3)


def of_the_same_and_of_two(x: Any, y: Any) -> Any:
    return x / x, x / y, y / y, x / y.clone(), y / x


def of_other_layouts(x: Any, y: Any) -> Any:
    return [t.softmax(0) for t in (y, y.t(), y.t().contiguous(), y[::2], y[:2], y.flip(0), y[:, :1].expand(3, 3))]


def of_numbers_that_are_equal(x: Any, y: Any) -> Any:
    results = [torch.where(y > 0, y, number) for number in (0.0, -0.0, 1.0, 1.0)]
    return [1 / r for r in results], [y.clamp(min=number) for number in (1, 1.0, True)]


def of_what_is_written(x: Any, y: Any) -> Any:
    a, b = y * 2, y * 2
    before = [a.exp(), b.exp()]
    a.add_(1)
    after = [a.exp(), b.exp(), a[0].exp(), b[0].exp(), a.view(9), b.view(9)]
    b.view(9).mul_(3)
    return before, after, a, b, a.exp(), b.exp()


def of_views_that_are_written(x: Any, y: Any) -> Any:
    a, b = y * 2, y * 3
    views = [a.view(9), b.view(9), a.t(), b.t(), a[1], b[1]]
    a.mul_(2)
    b[0] = 7.0
    views[5].fill_(5.0)
    return a, b, views


def in_both_modes(x: Any, y: Any) -> Any:
    a = x.sigmoid()
    with torch.no_grad():
        b = x.sigmoid()
    c = x.detach().sigmoid()
    (a * a.tanh()).sum().backward()
    return a.detach(), b, c, x.grad


def of_constants(x: Any, y: Any) -> Any:
    known = torch.ones(3, 3)
    return known.exp(), y.exp(), torch.zeros(3, 3).exp(), y.exp(), y.to(torch.float64).exp()


def gradients_that_need_other_parts(x: Any, y: Any) -> Any:
    losses = [(a * b).sum() for a, b in ((x, y), (y, x), (x, x), (x, x + 1), (x.exp(), y))]
    torch.stack(losses).sum().backward()
    return x.grad


def of_sizes_that_differ(x: Any, y: Any) -> Any:
    return [F.layer_norm(t, t.shape[-1:]) for t in (y, y, y[:, :2], y[:2], y[:2])], [F.pad(t, (1, 0)) for t in (y, y, x.detach())]


def of_integers(x: Any, y: Any) -> Any:
    first, second = y.argmax(1), (y * 5).to(torch.int64).abs().sum(1) % 3
    return [F.embedding(k, y) for k in (first, second)], [y.gather(1, k[:, None]) for k in (first, second)]


FUNCTIONS = (
    of_the_same_and_of_two, of_other_layouts, of_numbers_that_are_equal, of_what_is_written, of_views_that_are_written,
    in_both_modes, of_constants, gradients_that_need_other_parts, of_sizes_that_differ, of_integers,
)  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_what_differs_is_captured_anew(function, monkeypatch):
    check(function, two, monkeypatch)


def test_masks_are_drawn_each_time(monkeypatch):
    def function(x: Any, y: Any) -> Any:
        return [F.dropout(y, 0.5) for _ in range(3)], F.dropout(x, 0.5).sum()

    expected = [None, None]
    for k, call in enumerate((function, dg.compile(function, backend=BACKEND, mode="max"))):
        torch.manual_seed(3)
        expected[k] = call(*two())
    same(*expected)


def test_what_was_saved_and_written_since_is_an_error_each_time():
    def function(x: Any, y: Any) -> Any:
        a, b = x.exp(), x.exp()
        a.sum().backward()
        b.mul_(2)
        b.sum().backward()
        return x.grad

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        dg.compile(function, backend=BACKEND, mode="max")(*two())


def test_a_second_backward_is_an_error_where_the_first_was_captured():
    def function(x: Any, y: Any) -> Any:
        for each in (x.exp(), x.exp()):
            each.sum().backward()
        last = x.exp().sum()
        last.backward()
        last.backward()

    with pytest.raises(RuntimeError, match="second time"):
        dg.compile(function, backend=BACKEND, mode="max")(*two())
