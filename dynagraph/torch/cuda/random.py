"""``torch.cuda.random``: seeds and states of the GPUs' default generators.  Seeds may be set where there is no GPU."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import dynagraph.cuda as dg
from dynagraph.cuda.devices import device_index
from dynagraph.torch.core import devices
from dynagraph.torch.core.generator import Generator, generator_of, seed_gpus
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.cuda._devices import index_of
from dynagraph.torch.missing import getattr_of


def _generator(device: Any = None) -> Generator:
    return generator_of(devices.device("cuda", device_index(index_of(device))))


def _all() -> list[Generator]:
    return [generator_of(devices.device("cuda", k)) for k in range(dg.device_count())]


def manual_seed(seed: int) -> None:
    """Seed the current GPU's generator; without a GPU nothing is seeded."""
    if dg.is_available():
        _generator().manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seed all GPUs' generators; also those that are used first later."""
    seed_gpus(int(seed))


def seed() -> None:
    """Seed the current GPU's generator with a number that the operating system gives."""
    if dg.is_available():
        _generator().seed()


def seed_all() -> None:
    """Seed all GPUs' generators with one number that the operating system gives."""
    seed_gpus(Generator().seed())


def initial_seed() -> int:
    """The seed that the current GPU's generator began from."""
    return _generator().initial_seed()


def get_rng_state(device: Any = "cuda") -> Tensor:
    """The state of a GPU's generator, as bytes."""
    return _generator(device).get_state()


def set_rng_state(new_state: Tensor, device: Any = "cuda") -> None:
    """Set the state of a GPU's generator."""
    _generator(device).set_state(new_state)


def get_rng_state_all() -> list[Tensor]:
    """The states of all GPUs' generators."""
    return [g.get_state() for g in _all()]


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Set the states of all GPUs' generators."""
    for g, state in zip(_all(), new_states):
        g.set_state(state)


__getattr__ = getattr_of(__name__)
__all__ = [
    "get_rng_state", "get_rng_state_all", "initial_seed", "manual_seed", "manual_seed_all", "seed", "seed_all",
    "set_rng_state", "set_rng_state_all",
]  # fmt: skip
