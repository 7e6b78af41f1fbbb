"""What layers have in common: new parameters, numbers repeated for each dimension, names in state dicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from dynagraph.torch.core.parameter import Parameter
from dynagraph.torch.functions import creation  # noqa: F401  (declares `empty`)
from dynagraph.torch.functions.common import NAMESPACES

_empty = NAMESPACES["torch"]["empty"]


def add_parameters(module: Any, device: Any, dtype: Any, **shapes: Any) -> None:
    """Register parameters of these shapes, with any numbers; None in the place of those whose shape is None."""
    for name, shape in shapes.items():
        made = None if shape is None else Parameter(_empty(shape, device=device, dtype=dtype))
        module.register_parameter(name, made)


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple[Any, ...]]:
    def parse(x: Any) -> tuple[Any, ...]:
        return tuple(x) if isinstance(x, Iterable) else (x,) * n

    parse.__name__ = parse.__qualname__ = name
    parse.__doc__ = f"A tuple of {n} from one number; sequences as tuples."
    return parse


_single = _ntuple(1, "_single")
_pair = _ntuple(2, "_pair")
_triple = _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def _reverse_repeat_tuple(t: tuple[int, ...], n: int) -> tuple[int, ...]:
    """Each number `n` times, the last first: the padding of dimensions as `functional.pad` takes it."""
    return tuple(x for x in reversed(t) for _ in range(n))


def _list_with_default(out_size: Any, defaults: list[int]) -> Any:
    """Sizes, those that are None from the last of `defaults`."""
    if isinstance(out_size, int):
        return out_size
    if len(defaults) <= len(out_size):
        raise ValueError(f"Input dimension should be at least {len(out_size) + 1}")
    return [d if size is None else size for size, d in zip(out_size, defaults[-len(out_size) :])]


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Take a prefix off the names in a state dict, in place: off those that begin with it."""
    for key in [key for key in state_dict if key.startswith(prefix)]:
        state_dict[key[len(prefix) :]] = state_dict.pop(key)
    metadata = getattr(state_dict, "_metadata", {})
    for key in list(metadata):
        if key and (key == prefix.replace(".", "") or key.startswith(prefix)):
            metadata[key[len(prefix) :]] = metadata.pop(key)


__all__ = ["add_parameters", "consume_prefix_in_state_dict_if_present"]
