"""``python -m dynagraph.torch stand_ins.py torchvision``: import a library, with stand-ins for what dynagraph.torch lacks.

Of a stand-in any name is a class that can be derived from and made; so that the rest of what a library uses at its import shows.
"""

from __future__ import annotations

import abc
import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from typing import Any

import torch

PARTS = ("nn", "optim", "utils.data", "utils.checkpoint", "fx", "ao", "distributions")  # without those that there are


class Standing(abc.ABCMeta):
    """Classes that have any attribute and any parameters."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None

    def __getitem__(cls, parameters: Any) -> Any:
        return cls

    def __or__(cls, other: Any) -> Any:
        return object

    __ror__ = __or__


def standing(name: str) -> Any:
    return Standing(name, (), {"__init__": lambda self, *args, **kwargs: None, "__module__": "stand_ins"})


class Module(types.ModuleType):
    """A module that has any name; those that dynagraph.torch has are its own."""

    def __init__(self, name: str, own: Any = None):
        super().__init__(name)
        self.__path__: list[str] = []
        self.own = own

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = getattr(self.own, name, None)
        if made is None:
            made = importlib.import_module(f"{self.__name__}.{name}") if name in ("parallel", "init", "utils") else standing(name)
        setattr(self, name, made)
        return made


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if any(name == f"torch.{part}" or name.startswith(f"torch.{part}.") for part in PARTS):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        try:
            own = importlib.import_module(f"dynagraph.{spec.name}")
        except ModuleNotFoundError:
            own = None
        return Module(spec.name, own)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def main(packages: list[str]) -> None:
    sys.meta_path.insert(0, Finder())
    for name in PARTS:
        parent, _, last = f"torch.{name}".rpartition(".")
        setattr(importlib.import_module(parent), last, importlib.import_module(f"torch.{name}"))
    for package in packages:
        importlib.import_module(package)
        print(f"{package} is imported")


if __name__ == "__main__":
    assert torch.__name__ == "dynagraph.torch"
    main(sys.argv[1:])
