"""``torch.jit``: there is no TorchScript.  What marks functions for it gives them back, so that code runs as the Python it is."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, Final, NoReturn

from dynagraph.torch.missing import getattr_of, refused


def is_scripting() -> bool:
    """False: code runs as Python."""
    return False


def is_tracing() -> bool:
    """False: nothing is traced."""
    return False


def script(obj: Any, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None) -> Any:
    """The object itself."""
    return obj


def script_if_tracing(fn: Any) -> Any:
    """The function itself."""
    return fn


_script_if_tracing = script_if_tracing


def _given_back(fn: Any) -> Any:
    return fn


unused = export = interface = script_method = _overload = _overload_method = _given_back


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """The function itself; also with arguments, as a decorator."""
    return drop if callable(drop) else _given_back


def annotate(the_type: Any, the_value: Any) -> Any:
    """The value."""
    return the_value


def isinstance(obj: Any, target_type: Any) -> bool:
    """As Python's; of a type with parameters, by the type without them."""
    kinds = target_type if builtins.isinstance(target_type, tuple) else (target_type,)
    return builtins.isinstance(obj, tuple(getattr(kind, "__origin__", None) or kind for kind in kinds))


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Future:
    """Call a function now; `wait` gives its result."""
    return Future(func(*args, **kwargs))


def wait(future: Future) -> Any:
    """The result of what `fork` called."""
    return future.wait()


class Future:
    """A result."""

    def __init__(self, result: Any):
        self.result = result

    def wait(self) -> Any:
        return self.result

    def value(self) -> Any:
        return self.result

    def done(self) -> bool:
        return True


class Attribute:
    """A value with its TorchScript type."""

    def __init__(self, value: Any, type: Any):
        self.value, self.type = value, type


def _refused(name: str) -> Callable[..., NoReturn]:
    return refused(f"torch.jit.{name}", "dynagraph.torch has no TorchScript; compile the function with torch.compile instead")


trace, trace_module, save, load = _refused("trace"), _refused("trace_module"), _refused("save"), _refused("load")


class ScriptModule:
    """For `isinstance`: there are no scripted modules."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refused(type(self).__name__)()


class RecursiveScriptModule(ScriptModule):
    """For `isinstance`: there are no scripted modules."""


class TracedModule(ScriptModule):
    """For `isinstance`: there are no traced modules."""


class TopLevelTracedModule(TracedModule):
    """For `isinstance`: there are no traced modules."""


class ScriptFunction(ScriptModule):
    """For `isinstance`: there are no scripted functions."""


class TracerWarning(Warning):
    """For filters of warnings: nothing is traced."""


def freeze(mod: Any, preserved_attrs: Any = None, optimize_numerics: bool = True) -> Any:
    """The object itself."""
    return mod


def optimize_for_inference(mod: Any, other_methods: Any = None) -> Any:
    """The object itself."""
    return mod


__getattr__ = getattr_of(__name__)
__all__ = [
    "Attribute", "Final", "Future", "RecursiveScriptModule", "ScriptFunction", "ScriptModule", "TopLevelTracedModule",
    "TracedModule", "TracerWarning", "annotate", "export", "fork", "freeze", "ignore", "interface", "is_scripting", "is_tracing",
    "isinstance", "load",
    "optimize_for_inference", "save", "script", "script_if_tracing", "script_method", "trace", "trace_module", "unused", "wait",
]  # fmt: skip
