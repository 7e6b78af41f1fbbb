"""Tests of dynagraph.torch leave the state of the process as they found it: what one leaves fails itself, not a later one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dynagraph import torch


def _state() -> dict[str, object]:
    return {
        "torch_compatible": torch.random.is_torch_compatible(), "default dtype": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(), "inference": torch.is_inference_mode_enabled(),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")),
    }  # fmt: skip


@pytest.fixture(autouse=True)
def state_is_put_back() -> Iterator[None]:
    before = _state()
    yield
    assert _state() == before
