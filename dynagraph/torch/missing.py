"""What a name of PyTorch's that there is not says: the module's ``__getattr__``."""

from __future__ import annotations

import dis
import importlib
import sys
from collections.abc import Callable, Iterable
from typing import Any

LIST = "docs/torch.md lists which of PyTorch's names there are"
_IMPORT_FROM = dis.opmap["IMPORT_FROM"]


def getattr_of(module: str, lazy: Iterable[str] = ()) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module: imports its submodules named in `lazy`; any other name is an error that says where the list is.

    The error is AttributeError, and ImportError in ``from module import name``.
    """
    submodules = frozenset(lazy)
    public = module.removeprefix("dynagraph.")

    def __getattr__(name: str) -> Any:
        if name in submodules:
            return importlib.import_module(f"{module}.{name}")
        if name.startswith("__"):
            raise AttributeError(f"module {public!r} has no attribute {name!r}")
        text = f"dynagraph.torch has no {public}.{name}; {LIST}"
        caller = sys._getframe(1)
        if caller.f_code.co_code[caller.f_lasti] == _IMPORT_FROM:
            raise ImportError(text, name=module)
        raise AttributeError(text, name=name, obj=sys.modules.get(module))

    return __getattr__


__all__ = ["LIST", "getattr_of"]
