"""What ``dg.compile(model)`` gives: a view of the model whose calls are compiled.

The view has the model's own ``__dict__``: parameters, buffers, submodules, hooks and `training` are the model's, under the same names, and
what is set on one of the two is set on both.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import Any

_CLASSES: weakref.WeakKeyDictionary[type, type] = weakref.WeakKeyDictionary()
# what a compiled function has, and its view of a model too where the model has no attribute of this name
_OF_FUNCTION = ("stats", "reset", "programs", "last_graph", "explain_misses")


class OptimizedModule:
    """What views of all models are instances of; each is also an instance of its model's class."""

    __slots__ = ()


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    return self._compiled_function(self._orig_mod, *args, **kwargs)


def _getattr(self: Any, name: str) -> Any:
    try:
        return super(type(self), self).__getattr__(name)  # type: ignore[misc]
    except AttributeError:
        if name in _OF_FUNCTION:
            return getattr(self._compiled_function, name)
        raise


def _deepcopy(self: Any, memo: dict[int, Any]) -> Any:
    return view_of(copy.deepcopy(self._orig_mod, memo), self._compiled_function)


def _reduce(self: Any, protocol: Any) -> Any:
    return view_of, (self._orig_mod, self._compiled_function)


def view_of(module: Any, function: Callable[..., Any]) -> Any:
    """A view of a module whose calls are ``function(module, *args, **kwargs)``."""
    model = type(module)
    made_class = _CLASSES.get(model)
    if made_class is None:
        made_class = _CLASSES[model] = type(model)(
            model.__name__,
            (OptimizedModule, model),
            {
                "__slots__": ("_compiled_function", "_orig_mod"),
                "__module__": model.__module__,
                "__qualname__": model.__qualname__,
                "__doc__": model.__doc__,
                "__call__": _call,
                "__getattr__": _getattr,
                "__deepcopy__": _deepcopy,
                "__reduce_ex__": _reduce,
            },
        )
    view = object.__new__(made_class)
    object.__setattr__(view, "_orig_mod", module)
    object.__setattr__(view, "_compiled_function", function)
    object.__setattr__(view, "__dict__", module.__dict__)
    return view


__all__ = ["OptimizedModule", "view_of"]
