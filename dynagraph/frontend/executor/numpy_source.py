"""Following NumPy's own Python source: which functions have one, and what in NumPy's modules is taken as unchanging.

A NumPy function without a door is followed as the user's functions are, if it is written in Python.  What NumPy's code reads of
its own modules are constants: functions, classes, modules and plain values get no guards.  That the user's ``np.gradient`` is
NumPy's is guarded as ever.
"""

from __future__ import annotations

import functools
import sys
import types
from typing import Any

import numpy as np

from dynagraph.doors.numpy.table import DISPATCHER
from dynagraph.frontend.guards.mutable_classes import HEAP_TYPE

NO_VALUE = type(np._NoValue)  # type: ignore[attr-defined]  # of defaults that are left out
VALUES = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis), np.dtype, NO_VALUE)
UNCHANGING = (types.FunctionType, types.BuiltinFunctionType, type, types.ModuleType, np.ufunc, DISPATCHER)
NOT_FOLLOWED = ("numpy.testing", "numpy.f2py", "numpy.distutils", "numpy.ma", "numpy.matrixlib", "numpy.ctypeslib", "numpy._utils")

# Python functions of ours, for C functions
DEFINITIONS = ("dynagraph.frontend.library.definitions", "dynagraph.frontend.library.heapq")

FOLLOWED_PACKAGES = ("dynagraph.torch", "dynagraph.autograd.", "dynagraph.ir.")

_namespaces: dict[int, Any] = {}  # of NumPy's modules, by identity
_own_namespaces: dict[int, Any] = {}


def is_numpys(namespace: dict[str, Any]) -> bool:
    """Whether these globals are those of one of NumPy's modules."""
    if id(namespace) in _namespaces:
        return True
    name = namespace.get("__name__")
    if type(name) is not str or name.split(".")[0] != "numpy" or getattr(sys.modules.get(name), "__dict__", None) is not namespace:
        return False
    _namespaces[id(namespace)] = namespace
    return True


def is_trusted(namespace: dict[str, Any]) -> bool:
    """Whether what a module names is taken as unchanging."""
    return is_numpys(namespace) or namespace.get("__name__") in DEFINITIONS or is_own(namespace)


def is_own(namespace: dict[str, Any]) -> bool:
    """Whether these globals are those of a module of dynagraph.torch, or of the op table."""
    if id(namespace) in _own_namespaces:
        return True
    name = getattr(namespace.get("__spec__"), "name", None)  # not by __name__, which is "torch" where that means dynagraph.torch
    if type(name) is not str or not name.startswith(FOLLOWED_PACKAGES) or vars(sys.modules.get(name, np)) is not namespace:
        return False
    _own_namespaces[id(namespace)] = namespace
    return True


def is_unchanging_here(namespace: dict[str, Any], name: str) -> bool:
    """Whether what one of these modules names stays as it is: what it is says so, or its class.

    Names that a module sets again are listed in its ``__dynagraph_mutable__``.
    """
    found = namespace[name]
    if name in namespace.get("__dynagraph_mutable__", ()):
        return False
    stays = is_value(found) or is_unchanging(found) or type(found) in (dict, tuple, functools.partial)
    return stays or getattr(type(found), "__dynagraph_constant__", False)


def is_constant(found: Any) -> bool:
    """Whether what a variable or default of a function of these modules holds stays as it is: objects that users have made do not,
    such as a module that a hook belongs to."""
    if type(found) is tuple:
        return all(map(is_constant, found))
    return is_value(found) or is_unchanging(found) or getattr(type(found), "__dynagraph_constant__", False)


def is_followed_library(namespace: dict[str, Any]) -> bool:
    """Whether a function of these globals is followed as part of the call of the user's that led there."""
    return is_numpys(namespace) or is_own(namespace)


def is_value(obj: Any) -> bool:
    """Whether an object is a plain value, which nobody can change."""
    if type(obj) in (tuple, frozenset):
        return all(is_value(item) for item in obj)
    return isinstance(obj, VALUES) and (type(obj) in VALUES or isinstance(obj, np.dtype))


def is_unchanging(obj: Any) -> bool:
    """Whether an object that NumPy's modules hold is taken to stay as it is."""
    return isinstance(obj, UNCHANGING)


def source_of_function(function: Any) -> types.FunctionType | None:
    """The Python function that implements one of NumPy's public functions, if it is written in Python and is followed."""
    found = function._implementation if type(function) is DISPATCHER else function
    if type(found) is not types.FunctionType or not is_numpys(found.__globals__):
        return None
    return None if found.__module__.startswith(NOT_FOLLOWED) else found


def is_numpys_class(cls: type) -> bool:
    """Whether a class of NumPy's is written in Python, down to object, and is followed."""
    init = vars(cls).get("__init__")
    in_python = type(cls) is type and all(base.__flags__ & HEAP_TYPE or base is object for base in cls.__mro__)
    return in_python and type(init) is types.FunctionType and source_of_function(init) is not None


__all__ = [
    "DEFINITIONS",
    "NO_VALUE",
    "is_constant",
    "is_followed_library",
    "is_numpys",
    "is_numpys_class",
    "is_own",
    "is_trusted",
    "is_unchanging",
    "is_unchanging_here",
    "is_value",
    "source_of_function",
]  # fmt: skip
