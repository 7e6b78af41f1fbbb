"""What the cases have in common: PyTorch's own random stream for a while, rows of cases."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from tests.torch.table import Case, program


@contextlib.contextmanager
def seed(torch: Any, number: int) -> Iterator[None]:
    """The same random numbers in both: PyTorch's stream from a seed, and the stream of before afterwards."""
    compatible = getattr(torch.random, "torch_compatible", None)
    before = torch.get_rng_state()
    with contextlib.nullcontext() if compatible is None else compatible(True):
        torch.manual_seed(number)
        yield
    torch.set_rng_state(before)


def wrong(name: str, function: Callable[..., Any], *args: Any, **options: Any) -> Case:
    """A program that must raise PyTorch's error, with its text."""
    made = program(name, function, *args, **{"_text": True, **options})
    made.raises = True
    return made
