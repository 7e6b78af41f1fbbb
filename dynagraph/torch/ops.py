"""``torch.ops``: the operators that programs define, by namespace."""

from typing import Any

from dynagraph.torch._operators import Namespace, namespace_of

loaded_libraries: set[str] = set()


def load_library(path: Any) -> None:
    """Refused: libraries of compiled operators are made for PyTorch itself."""
    raise OSError(f"Could not load this library: {path}: compiled operators are made for PyTorch itself, not for dynagraph.torch")


def __getattr__(name: str) -> Namespace:
    if name.startswith("__"):
        raise AttributeError(f"module 'torch.ops' has no attribute {name!r}")
    return namespace_of(name)
