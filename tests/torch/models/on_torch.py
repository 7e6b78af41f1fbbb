"""The models under real torch: their source, which says nothing that PyTorch does not have, with `torch` for `dynagraph.torch`."""

from __future__ import annotations

import functools
import sys
import types
from pathlib import Path
from typing import Any

import dynagraph.torch
from dynagraph.torch import models

NAME = "dynagraph_models_on_torch"
FOLDER = Path(models.__file__).parent


def on_torch(source: str) -> str:
    """A module's source with real torch's names."""
    source = source.replace("dynagraph.torch.models", NAME).replace("from dynagraph import torch\n", "import torch\n")
    return source.replace("from dynagraph.torch", "from torch")


@functools.cache
def real_models() -> Any:
    """A namespace of all models, made of real torch's layers."""
    package = types.ModuleType(NAME)
    package.__path__ = []
    sys.modules[NAME] = package
    waiting = [path for path in sorted(FOLDER.glob("*.py")) if path.stem != "__init__"]
    while waiting:
        path = waiting.pop(0)
        source = on_torch(path.read_text())
        needed = [other.stem for other in waiting if f"from {NAME}.{other.stem} import" in source]
        if needed:
            waiting.append(path)
            continue
        module = types.ModuleType(f"{NAME}.{path.stem}")
        sys.modules[module.__name__] = module
        exec(compile(source, str(path), "exec", dont_inherit=True), vars(module))
        vars(package).update({name: getattr(module, name) for name in module.__all__})
    return package


def models_of(torch: Any) -> Any:
    """The models of one torch or the other."""
    return models if torch is dynagraph.torch else real_models()
