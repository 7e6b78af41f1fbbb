"""What an optimizer knows of its parameters, and how captured code gets at it.

`Optimizer.state` is a dict by parameter.  Captured code does not depend on which tensors these are: it reads `places`, lists by
group and number of a parameter.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from dynagraph._core import _dispatch
from dynagraph.torch.core.arrays import library_of_array
from dynagraph.torch.core.dtypes import dtype as DType
from dynagraph.torch.core.tensor import Tensor, wrap


class States(collections.defaultdict):  # type: ignore[type-arg]
    """States by parameter.  `places` is ``[version, states of group 0, states of group 1...]``, each a list with a place for each
    parameter: its state, as far as captured code has asked for it.  Whatever changes the dict makes another version.
    """

    def __init__(self, factory: Callable[[], Any] | None = dict, *given: Any):
        super().__init__(factory, *given)
        self.places: list[Any] = [0]

    def changed(self) -> None:
        """States are others than captured code knows: it is made anew."""
        self.places[:] = [self.places[0] + 1]

    def make_places(self, number: int, size: int) -> None:
        """See that there are places for a group's parameters."""
        while len(self.places) < number + 2:
            self.places.append([])
        self.places[number + 1].extend([None] * (size - len(self.places[number + 1])))

    def put(self, key: Any, value: Any) -> None:
        """Put a state where there was none: captured code is right as it is."""
        super().__setitem__(key, value)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        self.changed()

    def __missing__(self, key: Any) -> Any:
        value = super().__missing__(key)
        self.changed()
        return value

    def __delitem__(self, key: Any) -> None:
        super().__delitem__(key)
        self.changed()

    def clear(self) -> None:
        super().clear()
        self.changed()

    def pop(self, *args: Any) -> Any:
        self.changed()
        return super().pop(*args)

    def popitem(self) -> tuple[Any, Any]:
        self.changed()
        return super().popitem()

    def setdefault(self, key: Any, default: Any = None) -> Any:
        self.changed()
        return super().setdefault(key, default)

    def update(self, *args: Any, **kwargs: Any) -> None:
        super().update(*args, **kwargs)
        self.changed()

    def __ior__(self, other: Any) -> Any:
        self.update(other)
        return self

    def __reduce__(self) -> Any:
        return type(self), (self.default_factory,), None, None, iter(self.items())

    def _reduced_for_files(self, protocol: int) -> Any:
        return collections.defaultdict, (self.default_factory,), None, None, iter(self.items())


def prepare(optimizer: Any, number: int, chosen: Iterable[int], bare: Iterable[int] = ()) -> list[list[int]]:
    """Make the states of a group's parameters that have gradients, and put them in their places, before captured code reads them.

    Gives these parameters' numbers, in lists: those of one list have had as many steps, or have no state but what their first step
    makes of gradients.  A state that no step has seen yet changes no later step, so captures may call this, whatever becomes of
    them.  `bare`: parameters in no list, whose states, where they are missing, are dicts that the first step fills.
    """
    group, states = optimizer.param_groups[number], optimizer.state
    alike: dict[Any, list[int]] = {}
    left, both = set(bare), sorted((*chosen, *bare))
    for k in both:
        param = group["params"][k]
        state = states.get(param)
        if not optimizer._is_ready(group, state):
            state = {} if state is None else state
            if k not in left and optimizer._can_prepare(group):
                optimizer._make_state(group, param, state)
                is_made = bool(state)
            else:
                is_made = True
            if is_made:
                states.put(param, state)
        if k not in left:
            is_first = not optimizer._is_ready(group, state)
            counted = None if is_first else tuple(state[name]._array.item() for name in optimizer._counters)
            alike.setdefault(counted, []).append(k)
    for k, each in enumerate(optimizer.param_groups):
        states.make_places(k, len(each["params"]))
    places = states.places[number + 1]
    for k in both:
        places[k] = states.get(group["params"][k])
    return list(alike.values())


def filled(like: Tensor, value: Any) -> Tensor:
    """A tensor of one value, which lies in memory as another one does."""
    array = like._array
    library = library_of_array(array)
    if value:
        return wrap(library.full_like(array, value))
    if array.flags.c_contiguous:  # memory that the system gives is zeros: the first step touches it, in all threads
        return wrap((zeros if library is np else library.zeros)(array.shape, array.dtype))
    return wrap(library.zeros_like(array))


def zeros(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """`np.zeros`, which captures take it for; large ones on huge pages."""
    return _dispatch.new_zeros(shape, dtype)  # type: ignore[no-any-return]


def number_state(value: float, dtype: DType, beside: Tensor | None = None) -> Tensor:
    """A tensor of one number and no dimensions, in the host's memory or where another tensor is."""
    return wrap((np if beside is None else library_of_array(beside._array)).full((), value, dtype.numpy))


__all__ = ["States", "filled", "number_state", "prepare", "zeros"]
