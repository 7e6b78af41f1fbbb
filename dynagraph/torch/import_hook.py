"""``import torch`` gives dynagraph.torch: `install` puts a finder before Python's own.

``torch`` and each of its submodules are the modules of dynagraph.torch themselves, under a second name in `sys.modules`.
What is missing is an ImportError that names it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
import types
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec
from typing import Any

from dynagraph.torch.missing import LIST, getattr_of

OURS = "dynagraph.torch"
# of this package's modules, no part of PyTorch
INTERNAL = frozenset({"core", "datasets", "functions", "import_hook", "missing", "models", "run", "transforms", "__main__"})
VERSION = "2.13.0"


class Loader:
    """Gives the module of dynagraph.torch in place of a new one."""

    def __init__(self, name: str):
        self.name = name

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        self.module = importlib.import_module(self.name)
        self.own_spec = self.module.__spec__
        return self.module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self.own_spec  # the import system has put the spec of the second name there
        vars(module).setdefault("__getattr__", getattr_of(self.name))


class Distribution(importlib.metadata.Distribution):
    """For ``importlib.metadata.version("torch")``."""

    def read_text(self, filename: str) -> str | None:
        return f"Metadata-Version: 2.1\nName: torch\nVersion: {VERSION}\n" if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:
        raise FileNotFoundError(path)


class Finder(importlib.metadata.DistributionFinder):
    """Finds ``torch`` and ``torch.*``, and no other modules."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        if name != "torch" and not name.startswith("torch."):
            return None
        own = OURS + name.removeprefix("torch")
        found = None if name.split(".")[1:2] and name.split(".")[1] in INTERNAL else importlib.util.find_spec(own)
        if found is None:
            # importlib.util.find_spec(name) asks whether there is such a module; an import statement needs it
            if sys._getframe(2).f_code.co_name == "_find_and_load_unlocked":
                raise ModuleNotFoundError(f"dynagraph.torch has no module {name!r}; {LIST}", name=name)
            return None
        spec = ModuleSpec(name, Loader(own), origin=found.origin, is_package=found.submodule_search_locations is not None)  # type: ignore[arg-type]
        spec.submodule_search_locations = found.submodule_search_locations
        return spec

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context = importlib.metadata.DistributionFinder.Context()  # noqa: B008
    ) -> Iterable[importlib.metadata.Distribution]:
        return [Distribution()] if context.name == "torch" else []


class Names:
    """The module that public classes of ``torch`` name as theirs: libraries tell by it whose arrays they were given.

    The module itself is called so, too, which libraries assert that replace functions in it by their names.
    """

    def __init__(self) -> None:
        self.own: dict[type, str] = {}

    def change(self, namespace: types.ModuleType) -> None:
        namespace.__name__ = "torch"
        for value in vars(namespace).values():
            if isinstance(value, type) and value.__module__.startswith(OURS):
                self.own[value] = value.__module__
                value.__module__ = "torch"

    def restore(self) -> None:
        sys.modules[OURS].__name__ = OURS
        for value, module in self.own.items():
            value.__module__ = module
        self.own.clear()


_names = Names()


class Installed:
    """What `install` gives: a context, at whose end ``torch`` means again what it did before."""

    def __init__(self, finder: Finder):
        self.finder = finder

    def __enter__(self) -> Installed:
        return self

    def __exit__(self, *_: Any) -> None:
        self.uninstall()

    def uninstall(self) -> None:
        """Have ``import torch`` look for PyTorch again."""
        if self.finder not in sys.meta_path:
            return
        sys.meta_path.remove(self.finder)
        if not any(isinstance(finder, Finder) for finder in sys.meta_path):
            for name in [n for n in sys.modules if n == "torch" or n.startswith("torch.")]:
                del sys.modules[name]
            _names.restore()


def install() -> Installed:
    """Have ``import torch`` give dynagraph.torch from now on, or within ``with install():``.

    Raises ImportError where PyTorch itself is imported already.

    >>> import dynagraph.torch
    >>> with dynagraph.torch.install():
    ...     import torch
    >>> torch is dynagraph.torch
    True
    """
    ours = importlib.import_module(OURS)
    if sys.modules.get("torch", ours) is not ours:
        raise ImportError(
            "PyTorch is imported already, so that `import torch` cannot give dynagraph.torch in this process; call "
            "dynagraph.torch.install() before anything imports torch, or run the script with python -m dynagraph.torch"
        )
    finder = Finder()
    sys.meta_path.insert(0, finder)
    _names.change(ours)
    return Installed(finder)


__all__ = ["Finder", "Installed", "install"]
