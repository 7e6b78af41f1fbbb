"""Functions of tensors on a GPU, compiled: training steps are one program, with the values and gradients of the CPU.

Where there is no GPU they are on the stand-in for CuPy's arrays.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
import dynagraph.torch as torch
from dynagraph.backends.cuda import driver
from dynagraph.torch.core.arrays import none_is_set
from tests.cuda.device import EmulatedDevice
from tests.cupy_arrays import stand_in
from tests.cupy_arrays.conftest import installed, real_cupy
from tests.torch.compiled import call_of, check
from tests.torch.table import Case, families
from tests.torch.test_on_device import FAMILIES, ROWS, OnDevice

F = torch.nn.functional


@pytest.fixture(name="device")
def _device() -> Iterator[Any]:
    """The GPU, or the stand-in, whose programs run op by op."""
    with installed(real_cupy() or stand_in.module()) as module:
        yield module


Step = Callable[[list[Any], Any, Any], Any]


def _layers(*sizes: int) -> list[tuple[int, ...]]:
    return [shape for n, m in pairwise(sizes) for shape in ((n, m), (m,))]


def _descend(parameters: list[Any], lr: float = 0.05) -> None:
    with torch.no_grad():
        for p in parameters:
            p -= lr * p.grad
            p.grad = None


def regression(parameters: list[Any], x: Any, y: Any) -> Any:
    w1, b1, w2, b2 = parameters
    hidden = x @ w1 + b1
    hidden = 0.5 * hidden * (1 + torch.tanh(0.7978845608 * (hidden + 0.044715 * hidden * hidden * hidden)))
    loss = ((hidden @ w2 + b2 - y[:, None]) ** 2).mean()
    loss.backward()
    _descend(parameters)
    return loss


def classification(parameters: list[Any], x: Any, y: Any) -> Any:
    w1, b1, w2, b2 = parameters
    loss = F.cross_entropy(torch.relu(F.linear(x, w1.T, b1)) @ w2 + b2, y)
    loss.backward()
    _descend(parameters)
    return loss


def normalised(parameters: list[Any], x: Any, y: Any) -> Any:
    w1, b1, scale, shift = parameters
    hidden = F.layer_norm(x @ w1 + b1, (8,), scale, shift)
    loss = F.silu(hidden).logsumexp(dim=-1).mean()
    loss.backward()
    _descend(parameters)
    return loss


def attention(parameters: list[Any], x: Any, y: Any) -> Any:
    (w,) = parameters
    q, k, v = (x @ w).reshape(2, 4, 3, 2, 3).permute(2, 0, 3, 1, 4).unbind(0)
    scores = q @ k.transpose(-2, -1) / 3**0.5
    hidden = torch.softmax(scores.masked_fill(torch.ones(4, 4, device=x.device).triu(1).bool(), -1e9), dim=-1) @ v
    loss = (hidden.transpose(1, 2).reshape(8, 6) ** 2).mean()
    loss.backward()
    _descend(parameters)
    return loss


def convolution(parameters: list[Any], x: Any, y: Any) -> Any:
    w, b = parameters
    hidden = F.max_pool2d(F.relu(F.conv2d(x.reshape(2, 1, 4, 6), w, b, padding=1)), 2)
    loss = F.cross_entropy(hidden.flatten(1), y[:2])
    loss.backward()
    _descend(parameters)
    return loss


def momentum(parameters: list[Any], x: Any, y: Any) -> Any:
    w, b, mw, mb = parameters
    loss = F.mse_loss(x @ w + b, y.float()[:, None].expand(-1, 5))
    loss.backward()
    with torch.no_grad():
        for p, m in ((w, mw), (b, mb)):
            m.mul_(0.9).add_(p.grad)
            p.sub_(0.1 * m)
            p.grad.zero_()
    return loss


def adam(parameters: list[Any], x: Any, y: Any) -> Any:
    w, b, mw, vw, mb, vb = parameters
    loss = F.l1_loss(x @ w + b, y.float()[:, None].expand(-1, 5))
    gw, gb = torch.autograd.grad(loss, (w, b))
    with torch.no_grad():
        for p, g, m, v in ((w, gw, mw, vw), (b, gb, mb, vb)):
            m.mul_(0.9).add_(g, alpha=0.1)
            v.mul_(0.99).addcmul_(g, g, value=0.01)
            p.addcdiv_(m / 0.1, (v / 0.01).sqrt().add_(1e-8), value=-1e-2)
    return loss


def accumulating(parameters: list[Any], x: Any, y: Any) -> Any:
    w1, b1, w2, b2 = parameters
    total = 0
    for part in range(2):
        rows = slice(4 * part, 4 * part + 4)
        logits = F.gelu(x[rows] @ w1 + b1) @ w2 + b2
        loss = F.cross_entropy(logits, y[rows], label_smoothing=0.1) / 2
        loss.backward()
        total = total + loss.detach()
    norm = torch.stack([p.grad.norm() for p in parameters]).norm()
    for p in parameters:
        p.grad.mul_((0.5 / (norm + 1e-6)).clamp(max=1.0))
    _descend(parameters)
    return total


def dropping(parameters: list[Any], x: Any, y: Any) -> Any:
    w1, b1, w2, b2 = parameters
    hidden = F.dropout(torch.relu(x @ w1 + b1), 0.4, training=True)
    loss = F.cross_entropy(hidden @ w2 + b2, y)
    loss.backward()
    _descend(parameters)
    return loss


def embedding(parameters: list[Any], x: Any, y: Any) -> Any:
    table, w = parameters
    loss = F.nll_loss(F.log_softmax(F.embedding(y, table) @ w, dim=1), y)
    loss.backward()
    _descend(parameters)
    return loss


STEPS: dict[str, tuple[Step, list[tuple[int, ...]]]] = {
    "regression": (regression, _layers(6, 8, 1)),
    "classification": (classification, _layers(6, 8, 5)),
    "normalised": (normalised, [(6, 8), (8,), (8,), (8,)]),
    "attention": (attention, [(6, 18)]),
    "convolution": (convolution, [(2, 1, 3, 3), (2,)]),
    "momentum": (momentum, [(6, 5), (5,), (6, 5), (5,)]),
    "adam": (adam, [(6, 5), (5,), (6, 5), (6, 5), (5,), (5,)]),
    "accumulating": (accumulating, _layers(6, 8, 5)),
    "dropping": (dropping, _layers(6, 8, 5)),
    "embedding": (embedding, [(5, 4), (4, 5)]),
}
BY_KERNELS = ("classification", "dropping")  # also on the emulator of kernels
STATES = {"momentum": 2, "adam": 4}  # how many of the parameters are an optimizer's


def inputs(name: str, device: str) -> tuple[list[Any], Any, Any]:
    rng = np.random.default_rng(0)
    shapes = STEPS[name][1]
    n = len(shapes) - STATES.get(name, 0)
    parameters = []
    for k, shape in enumerate(shapes):
        values = rng.normal(size=shape).astype(np.float32) if k < n else np.zeros(shape, np.float32)
        parameters.append(torch.tensor(values, device=device).requires_grad_(k < n))
    x, y = rng.normal(size=(8, 6)).astype(np.float32), rng.integers(0, 5, 8)
    return parameters, torch.tensor(x, device=device), torch.tensor(y, device=device)


@pytest.mark.parametrize("name", STEPS)
def test_a_training_step_is_one_program(device: Any, name: str) -> None:
    if name in BY_KERNELS and device.ndarray is stand_in.ndarray:
        driver.install(device, EmulatedDevice(device))
    try:
        check_step(name)
    finally:
        driver.install(device, None)


def check_step(name: str) -> None:
    step = STEPS[name][0]
    compiled = torch.compile(step)
    on_cpu, on_gpu = inputs(name, "cpu"), inputs(name, "cuda")
    for turn in range(3):
        torch.manual_seed(turn)
        expected = step(*on_cpu)
        torch.manual_seed(turn)
        got = compiled(*on_gpu)
        _assert_close(got, expected)
        for mine, theirs in zip(on_gpu[0], on_cpu[0]):
            _assert_close(mine, theirs)
            assert (mine.grad is None) == (theirs.grad is None)
            if theirs.grad is not None:
                _assert_close(mine.grad, theirs.grad)
    stats = compiled.stats
    assert not stats.breaks and not stats.fallbacks and not stats.refusals, (dict(stats.breaks), stats.last_error)
    assert stats.hits


def _assert_close(on_gpu: Any, on_cpu: Any) -> None:
    assert on_gpu.is_cuda and on_gpu.dtype is on_cpu.dtype
    np.testing.assert_allclose(on_gpu.detach().cpu().numpy(), on_cpu.detach().numpy(), rtol=1e-4, atol=1e-5)


# -- rows of the table, and what they do not show ---------------------------------------------------------------------

WHOLE = (
    "cumsum", "nn.functional.softmax", "nn.functional.layer_norm", "scatter_add", "sort", "nn.functional.pad", "one_hot",
    "nn.functional.interpolate", "take_along_dim", "flip",
)  # fmt: skip


def compared(row: Case) -> list[str]:
    """Compare a row's plain and compiled calls on the device; the reasons of breaks."""
    row = copy.copy(row)
    row.options = {**row.options, "strides": False}
    form = "function" if call_of(row, "function") else "method"
    with torch.device("cuda"):
        found, breaks = check(row, form, own=OnDevice())
    assert not found
    return breaks


@pytest.mark.sampled(800)
@pytest.mark.parametrize("row", ROWS)
def test_compiled_rows_do_what_plain_ones_do(device: Any, row: Case) -> None:
    compared(row)


@pytest.mark.parametrize("name", WHOLE)
def test_a_row_and_its_gradients_are_one_program(device: Any, name: str) -> None:
    rows = [row for family in FAMILIES for row in families(family)[family] if row.name.endswith(name) and not row.raises]
    assert not compared(rows[0])


def _whole(function: Any, *arguments: Any) -> Any:
    """What a function gives compiled, as one program, and plainly."""
    compiled = torch.compile(function)
    for _ in range(2):
        got = compiled(*arguments)
    assert not compiled.stats.breaks and not compiled.stats.fallbacks and compiled.stats.hits, dict(compiled.stats.breaks)
    return got, function(*arguments)


def test_arrays_of_the_host_become_constants_of_the_program(device: Any) -> None:
    """Also those that are made before the first array of the device is met."""

    def f(x: Any) -> Any:
        weights = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device="cuda")
        return weights * torch.arange(2, device="cuda") + x[[1, 0]] + torch.full((2,), 0.5, device=x.device)

    got, plain = _whole(f, torch.ones(2, 2, device="cuda"))
    assert got.is_cuda and torch.equal(got.cpu(), plain.cpu())


def test_tensors_of_the_cpu_beside_them(device: Any) -> None:
    def f(x: Any) -> Any:
        host = torch.zeros(3)
        part = host[1:]
        part += 1
        return x * 2, host, part

    compiled = torch.compile(f)
    for _ in range(2):
        on_gpu, host, part = compiled(torch.ones(2, device="cuda"))
        part += 1
        assert on_gpu.is_cuda and on_gpu.tolist() == [2, 2] and host.tolist() == [0, 2, 2]


def test_copies_lie_as_they_do_plainly(device: Any) -> None:
    x = torch.arange(24.0, device="cuda").reshape(2, 3, 4).permute(2, 0, 1)
    got, plain = _whole(lambda x: (x.clone(), x.double(), torch.empty_like(x), x.contiguous()), x)
    assert [t.stride() for t in got] == [t.stride() for t in plain]
    assert torch.equal(got[0], plain[0]) and torch.equal(got[1], plain[1])


def test_draws_go_on_where_plain_ones_stopped(device: Any) -> None:
    compiled = torch.compile(lambda x: F.dropout(x, 0.3))
    results = []
    for first, second in ((compiled, compiled.__wrapped__), (compiled.__wrapped__, compiled)):
        torch.manual_seed(7)
        results.append([f(torch.ones(5, 7, device="cuda")).tolist() for f in (first, second, first)])
    torch.manual_seed(7)
    assert results[0] == results[1] == [F.dropout(torch.ones(5, 7), 0.3).tolist() for _ in range(3)]


def test_places_out_of_bounds_raise_what_they_do_plainly(device: Any) -> None:
    x, places = torch.arange(4.0, device="cuda"), torch.tensor([1, -4], device="cuda")
    compiled = torch.compile(lambda x, places: x[places])
    for _ in range(2):
        assert compiled(x, places).tolist() == [1, 0]
    places[1] = 5
    for function in (compiled, compiled.__wrapped__):
        with pytest.raises(IndexError, match="index 5 is out of bounds for dimension 0 with size 4"):
            function(x, places)
    assert not compiled.stats.breaks and not compiled.stats.fallbacks


def test_where_nobody_waits_for_the_device_flags_are_branches(device: Any) -> None:
    with dg.config.override(cuda_errors="later"):
        compiled = torch.compile(lambda flag: none_is_set([flag._array]))
        assert [compiled(torch.tensor(v, device="cuda")) for v in (False, True, False)] == [True, False, True]
        assert compiled.stats.breaks
