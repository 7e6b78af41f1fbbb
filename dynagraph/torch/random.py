"""``torch.random``: seeds and states of the default generator."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from dynagraph.cuda.state import state
from dynagraph.torch.core import devices
from dynagraph.torch.core import generator as _generators
from dynagraph.torch.core.generator import Generator as Generator
from dynagraph.torch.core.generator import default_generator as default_generator
from dynagraph.torch.core.generator import is_torch_compatible as is_torch_compatible
from dynagraph.torch.core.generator import torch_compatible as torch_compatible
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.missing import getattr_of


def manual_seed(seed: Any) -> Generator:
    """Seed the default generators of all devices."""
    number = int(seed)
    _generators.seed_gpus(number)
    return default_generator.manual_seed(number)


def seed() -> int:
    """Seed the default generators of all devices with a number that the operating system gives, and return it."""
    number = default_generator.seed()
    _generators.seed_gpus(number)
    return number


def initial_seed() -> int:
    """The seed that the default generator began from."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The state of the default generator, as bytes."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Set the state of the default generator."""
    default_generator.set_state(new_state)


def thread_safe_generator() -> Generator | None:
    """The generator of its own that a thread of a data loader has; None in others, and here always: generators have locks."""
    return None


@contextlib.contextmanager
def fork_rng(
    devices: Iterable[Any] | None = None, enabled: bool = True, _caller: str = "fork_rng", _devices_kw: str = "devices",
    device_type: str = "cuda",
) -> Iterator[None]:  # fmt: skip
    """After the context the default generator, and those of `devices` (None: of all GPUs in use), are as they were before it."""
    if device_type != "cuda":
        raise RuntimeError(
            f"torch has no module of `{device_type}`, you should register a module by `torch._register_device_module`."
        )
    if not enabled:
        yield
        return
    forked = [default_generator, *_chosen(devices)]
    before = [g.clone_state() for g in forked]
    try:
        yield
    finally:
        for g, state in zip(forked, before):
            g.graphsafe_set_state(state)


def _chosen(given: Iterable[Any] | None) -> list[Generator]:
    if given is None:
        return [_generators.generator_of(devices.device("cuda", k)) for k in range(state.count if state.cupy is not None else 0)]
    found = []
    for each in given:
        where = devices.device("cuda", each) if isinstance(each, int) else devices.device(each)
        if where.type == "cuda":
            found.append(_generators.generator_of(where))
        else:
            warnings.warn(f"fork_rng: {where} has no generator of its own", stacklevel=4)
    return found


__getattr__ = getattr_of(__name__)
