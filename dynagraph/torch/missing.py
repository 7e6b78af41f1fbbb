"""What a module answers for names that it does not hold: submodules not imported yet, and the error for what there is not."""

from __future__ import annotations

import dis
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NoReturn

LIST = "docs/torch.md lists which of PyTorch's names there are"
_IMPORT_FROM = dis.opmap["IMPORT_FROM"]


def getattr_of(module: str, at_first_use: Mapping[str, str] = MappingProxyType({})) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module: imports a submodule at its first use; other names are errors that say where the list is.

    The error is AttributeError, and ImportError in ``from module import name``.  `at_first_use`: names of the module, and the
    modules that they are imported from when somebody asks for them; `dir` of the module has them.
    """
    public = module.removeprefix("dynagraph.")
    if at_first_use:
        sys.modules[module].__dict__["__dir__"] = lambda: sorted({*vars(sys.modules[module]), *at_first_use})

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {public!r} has no attribute {name!r}")
        if name in at_first_use:
            return getattr(importlib.import_module(at_first_use[name]), name)
        if hasattr(sys.modules.get(module), "__path__") and importlib.util.find_spec(f"{module}.{name}") is not None:
            return importlib.import_module(f"{module}.{name}")
        text = f"dynagraph.torch has no {public}.{name}; {LIST}"
        caller = sys._getframe(1)
        while caller.f_code.co_name == "__getattr__" and caller.f_back is not None:  # a module's own, which asks this one
            caller = caller.f_back
        if caller.f_code.co_code[caller.f_lasti] == _IMPORT_FROM:
            raise ImportError(text, name=module)
        raise AttributeError(text, name=name, obj=sys.modules.get(module))

    return __getattr__


def refused(name: str, why: str) -> Callable[..., NoReturn]:
    """A function of PyTorch's that there cannot be: RuntimeError, which says why."""

    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(f"{name}: {why}")

    refuse.__name__ = refuse.__qualname__ = name.rpartition(".")[2]
    refuse.is_refusal = True  # type: ignore[attr-defined]  # (docs/torch.md does not list it as being there)
    return refuse


__all__ = ["LIST", "getattr_of", "refused"]
