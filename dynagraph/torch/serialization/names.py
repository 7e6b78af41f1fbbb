"""Which name of PyTorch's stands in files for a class or function of this package, and what is meant by PyTorch's names.

Files have PyTorch's names alone, so that either package reads what the other has written.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

OURS, THEIRS = "dynagraph.torch", "torch"
# Of this package's modules those that PyTorch does not have.  What they define is looked for in the modules below, in this order
_INTERNAL = tuple(f"{OURS}.{name}" for name in ("core", "functions", "optim.schedules", "serialization"))
_PUBLIC = (
    "",
    ".nn.parameter",
    ".nn.functional",
    ".optim.lr_scheduler",
    ".nn.init",
    ".special",
    ".linalg",
    ".fft",
    ".sparse",
    ".serialization",
)
_MOVED = {  # ours, and PyTorch's
    ("_utils", "_rebuild_from_type_v2"): ("torch._tensor", "_rebuild_from_type_v2"),
    ("core.generator", "Generator"): ("torch._C", "Generator"),
    ("core.nodes", "Removable"): ("torch.utils.hooks", "RemovableHandle"),
    ("nn.modules.attention", "MultiheadAttention"): ("torch.nn.modules.activation", "MultiheadAttention"),
}
_FORMER = {"torch.tensor": "torch._tensor"}  # modules by names that older files have


def is_ours(module: object) -> bool:
    """Whether a module's name is one of this package's."""
    return isinstance(module, str) and (module == OURS or module.startswith(OURS + "."))


def theirs(module: str, name: str) -> tuple[str, str]:
    """PyTorch's module and name for what is `name` in a module of this package."""
    inner = module.removeprefix(OURS).removeprefix(".")
    moved = _MOVED.get((inner, name))
    if moved:
        return moved
    if any(module == m or module.startswith(m + ".") for m in _INTERNAL):
        value = _within(sys.modules[module], name)
        for place in _PUBLIC:
            if _within(importlib.import_module(OURS + place), name, None) is value:
                return THEIRS + place, name
    return THEIRS + module.removeprefix(OURS), name


def _within(module: Any, name: str, *default: Any) -> Any:
    for part in name.split("."):
        module = vars(module).get(part, *default) if hasattr(module, "__dict__") else getattr(module, part, *default)
    return module


def ours(module: str) -> str:
    """The module of this package that has a module's name in PyTorch; other names are left as they are."""
    module = _FORMER.get(module, module)
    if module == THEIRS or module.startswith(THEIRS + "."):
        return OURS + module.removeprefix(THEIRS)
    return module


__all__ = ["is_ours", "ours", "theirs"]
