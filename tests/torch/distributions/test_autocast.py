"""Autocast and GradScaler in compiled functions, and in threads: as without compiling."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

import dynagraph as dg
import dynagraph.torch as torch


def leaf(*shape: int) -> Any:
    values = np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)
    return torch.from_numpy(values).requires_grad_()


def step(x: Any, w: Any, rate: float = 0.1) -> Any:
    """A training step with a region in it; the weight is used several times."""
    w.grad = None
    with torch.autocast("cpu"):
        y = torch.tanh(torch.tanh(x @ w) @ w)
        with torch.autocast("cpu", enabled=False):
            z = x @ w
        loss = torch.nn.functional.mse_loss(y, z)
    loss.backward()
    with torch.no_grad():
        w -= rate * w.grad
    return loss.detach(), y.dtype, z.dtype, torch.is_autocast_enabled("cpu")


def test_a_step_with_a_region_is_one_program_and_has_the_values_of_the_plain_step() -> None:
    compiled = torch.compile(step, mode="max-autotune")
    x, plain_w, w = leaf(4, 3).detach(), leaf(3, 3), leaf(3, 3)
    for _ in range(3):
        expected, got = step(x, plain_w), compiled(x, w)
        assert expected[1:] == got[1:] == (torch.bfloat16, torch.float32, False)
        np.testing.assert_allclose(got[0].numpy(), expected[0].numpy(), rtol=1e-2)
        np.testing.assert_allclose(w.detach().numpy(), plain_w.detach().numpy(), rtol=1e-2, atol=1e-3)
    assert len(compiled.programs) == 1 and not sum(compiled.stats.breaks.values())


def test_programs_ask_for_the_region_that_they_are_called_in() -> None:
    @dg.compile
    def product(x: Any, w: Any) -> Any:
        return torch.nn.functional.linear(x, w)

    x, w = leaf(2, 3), leaf(2, 3)
    seen = [product(x, w).dtype]
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype=dtype):
            seen += [product(x, w).dtype, product(x, w).dtype]
            with torch.autocast("cpu", enabled=False):
                seen.append(product(x, w).dtype)
    f, b, h = torch.float32, torch.bfloat16, torch.float16
    assert seen == [f, b, b, f, h, h, f]


def test_a_region_that_a_program_leaves_open_is_open_after_it() -> None:
    @dg.compile
    def entered(region: Any, x: Any) -> Any:
        region.__enter__()
        return x @ x

    region = torch.autocast("cpu")
    x = leaf(3, 3)
    for _ in range(2):
        assert entered(region, x).dtype is torch.bfloat16
        assert torch.is_autocast_enabled("cpu") and (x @ x).dtype is torch.bfloat16
        region.__exit__(None, None, None)
        assert not torch.is_autocast_enabled("cpu") and (x @ x).dtype is torch.float32


class Descent:
    def __init__(self, w: Any):
        self.param_groups: list[dict[str, Any]] = [{"params": [w]}]

    def step(self) -> None:
        with torch.no_grad():
            for w in self.param_groups[0]["params"]:
                w -= 0.1 * w.grad


def scaled_step(scaler: Any, optimizer: Any, x: Any, w: Any, factor: Any) -> Any:
    w.grad = None
    with torch.autocast("cpu"):
        loss = torch.nn.functional.mse_loss(x @ w, x) * factor
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss.detach()


def test_scaled_steps_compiled_are_as_plain_ones() -> None:
    found = []
    for call in (scaled_step, dg.compile(scaled_step)):
        w = leaf(3, 3)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
        optimizer, x = Descent(w), leaf(4, 3).detach()
        scales = []
        for factor in (1.0, 1.0, float("inf"), 1.0, 1.0):
            call(scaler, optimizer, x, w, torch.tensor(factor))
            scales.append(scaler.get_scale())
        assert scales == [4.0, 8.0, 4.0, 4.0, 8.0]
        found.append(w.detach().numpy())
    np.testing.assert_allclose(found[0], found[1], rtol=1e-2, atol=1e-3)


def test_a_region_is_of_its_thread() -> None:
    seen = []
    with torch.autocast("cpu"):
        thread = threading.Thread(target=lambda: seen.append(torch.is_autocast_enabled("cpu")))
        thread.start()
        thread.join()
    assert seen == [False]


def test_gradients_are_not_lost_to_casts_made_without_recording() -> None:
    w = leaf(2, 2)
    with torch.autocast("cpu"):
        with torch.no_grad():
            w @ w
        (w @ w).sum().backward()
    assert w.grad is not None and w.grad.dtype is torch.float32
