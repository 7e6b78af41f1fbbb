"""Normalization in C: the bits of the same in NumPy's operations, forward and backward, of any layout, dtype and processor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
import dynagraph.torch as torch
from dynagraph._core import _dispatch
from dynagraph._core._dispatch import normalize, normalize_back
from dynagraph.backends import toolchain
from dynagraph.torch.functions import norm_primitives
from tests.ops.evaluate import assert_same

F: Any = torch.nn.functional
needs_compiler = pytest.mark.skipif(toolchain.find_compiler() is None, reason="there is no C compiler")


def given(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape) + 0.5


def by_running(x: Any, w: Any, b: Any) -> Any:
    return F.batch_norm(x, w.detach() * 0.1, w.detach().abs(), w, b, False)


KINDS: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = {
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), (3, 9, 5, 27), (9,)),
    "batch_norm of rows": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), (19, 41), (41,)),
    "batch_norm of one channel": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), (3, 1, 7, 9), (1,)),
    "batch_norm without weights": (lambda x, w, b: F.batch_norm(x, None, None, training=True), (3, 4, 150), (4,)),
    "batch_norm by given statistics": (by_running, (3, 9, 5, 27), (9,)),
    "instance_norm": (lambda x, w, b: F.instance_norm(x, None, None, w, b), (3, 5, 11, 13), (5,)),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), (3, 6, 11, 5), (6,)),
    "group_norm of rows": (lambda x, w, b: F.group_norm(x, 2, w, b), (5, 34), (34,)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (300,), w, b), (5, 7, 300), (300,)),
    "layer_norm without weights": (lambda x, w, b: F.layer_norm(x, (3, 7)), (5, 3, 7), (3, 7)),
    "rms_norm": (lambda x, w, b: F.rms_norm(x, (137,), w), (9, 137), (137,)),
}  # fmt: skip
TYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}


def parts(kind: str, dtype: Any, is_last: bool) -> tuple[Callable[..., Any], list[Any]]:
    """A step that gives the result, and its operands' gradients; the operands."""
    function, shape, of_weights = KINDS[kind]
    g = torch.from_numpy(given(*shape, seed=1)).to(dtype)
    operands = [torch.from_numpy(given(*s, seed=k)).to(dtype) for k, s in enumerate((shape, of_weights, of_weights))]
    if is_last:
        operands[0] = torch.from_numpy(np.ascontiguousarray(operands[0].numpy().transpose(0, 2, 3, 1))).permute(0, 3, 1, 2)

    def step(*operands: Any) -> list[Any]:
        own = [t.detach().requires_grad_() for t in operands]
        result = function(*own)
        (result * g).sum().backward()
        return [result.detach(), *(t.grad for t in own if t.grad is not None)]

    return step, operands


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_operations_on_arrays_have_the_same_bits(kind: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    step, operands = parts(kind, TYPES[dtype], False)
    found = step(*operands)
    monkeypatch.setattr(norm_primitives, "_has_kernels", lambda *arrays: False)
    for got, want in zip(found, step(*operands), strict=True):
        assert_same(got.float().numpy(), want.float().numpy())


@needs_compiler
@pytest.mark.parametrize("kind", ["batch_norm", "batch_norm by given statistics"])
def test_compiled_steps_and_channels_that_lie_last_in_memory(kind: str) -> None:
    step, operands = parts(kind, torch.float32, True)
    _, in_order = parts(kind, torch.float32, False)
    found, compiled = step(*operands), dg.compile(step, mode="max", fullgraph=True)(*operands)  # which has operations on arrays
    for got, other, want in zip(found, compiled, step(*in_order), strict=True):
        assert_same(got.numpy(), want.numpy())
        assert_same(other.numpy(), want.numpy())
        assert got.stride() == other.stride()
    assert found[0].stride() == operands[0].stride()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("sizes", "how"), [
    ((3, 37, 1, 300), 1), ((37, 45, 1, 1), 1), ((2, 45, 1, 9), 3), ((2, 45, 1, 9), 9), ((4, 3, 5, 21), 0), ((70, 1, 300, 1), 0),
    ((9, 1, 50, 1), 4), ((4, 1, 1, 33), 0),
])  # fmt: skip
def test_bits_do_not_depend_on_threads_and_processors(sizes: Any, how: int, dtype: Any) -> None:
    batch, groups, inner, size = sizes
    statistics = groups if how & 1 else batch * groups
    shape = (batch, size, groups) if how & 2 else sizes
    x, g = given(*shape).astype(dtype), given(*shape, seed=1).astype(dtype)
    weight, bias = given(groups * inner).astype(dtype), given(groups * inner, seed=2).astype(dtype)
    known = (given(statistics).astype(dtype), given(statistics).astype(dtype) ** 2) if how & 8 else (None, None)

    def computed(baseline: bool) -> list[Any]:
        out, mean, variance = normalize(x, weight, bias, *known, sizes, how, 1e-5, baseline)
        found = normalize_back(g, x, weight, mean, variance, sizes, how, 1e-5, 7, baseline)
        alone = normalize_back(g, x, weight, mean, variance, sizes, how, 1e-5, 1, baseline)
        others = normalize_back(g, x, weight, mean, variance, sizes, how, 1e-5, 6, baseline)
        for got, want in zip((alone[0], *others[1:]), found, strict=True):
            assert_same(got, want)
        return [out, variance, *found]

    threads, found = _dispatch.get_threads(), []
    try:
        for count, baseline in ((1, False), (3, False), (2, True)):
            _dispatch.set_threads(count)
            found.append(computed(baseline))
    finally:
        _dispatch.set_threads(threads)
    for other in found[1:]:
        for got, want in zip(other, found[0], strict=True):
            assert_same(got, want)


@pytest.mark.parametrize("kind", ["batch_norm of rows", "batch_norm by given statistics", "layer_norm", "group_norm", "rms_norm"])
def test_gradients_of_gradients(kind: str) -> None:
    function, _, of_weights = KINDS[kind]
    of_some = {"batch_norm by given statistics": (2, 9, 2), "group_norm": (2, 6, 2), "layer_norm": (2, 300)}
    shape = of_some.get(kind, (3, of_weights[0]))
    w = torch.from_numpy(given(*of_weights))

    def of_input(x: Any) -> Any:
        return function(x, w, w)[..., :2].sin()

    assert torch.autograd.gradgradcheck(of_input, (torch.from_numpy(given(*shape)).requires_grad_(),), fast_mode=True)


def test_gradients_that_nobody_needs_are_left_out() -> None:
    x, w, b = (torch.from_numpy(given(*shape)) for shape in ((4, 6), (6,), (6,)))
    F.layer_norm(x, (6,), w, b.requires_grad_()).sum().backward()
    assert_same(b.grad.numpy(), np.full(6, 4.0))
    assert w.grad is None and x.grad is None


def test_arrays_that_do_not_fit_are_refused() -> None:
    x, two = given(2, 3, 4), given(2)
    for arguments in (
        (x, None, None, None, None, (2, 3, 1, 5), 0, 1e-5), (x, two, None, None, None, (2, 3, 1, 4), 0, 1e-5),
        (x, None, None, None, None, (2, 3, 1, 4), 9, 1e-5), (x, None, None, None, None, (2, 1, 3, 4), 1, 1e-5),
        (x.astype(np.int64), None, None, None, None, (2, 3, 1, 4), 0, 1e-5), (x, None, None, None, None, (2, 3, -1, -4), 0, 1e-5),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="normalize: "):
            normalize(*arguments)
    with pytest.raises(ValueError, match="normalize_back: an array is missing"):
        normalize_back(x, x, None, None, given(6), (2, 3, 4, 1), 0, 1e-5, 7)
