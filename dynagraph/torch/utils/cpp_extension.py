"""``torch.utils.cpp_extension``: extensions in C++ and CUDA are written against PyTorch's own headers, and are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from dynagraph.torch.missing import getattr_of, refused

CUDA_HOME: str | None = None
ROCM_HOME: str | None = None


def _refused(name: str) -> Callable[..., NoReturn]:
    return refused(
        f"torch.utils.cpp_extension.{name}",
        "extensions in C++ and CUDA are written against PyTorch's own headers, and cannot be built for dynagraph.torch; write the "
        "operator in Python, and compile it with torch.compile",
    )


load, load_inline = _refused("load"), _refused("load_inline")
CppExtension, CUDAExtension, BuildExtension = _refused("CppExtension"), _refused("CUDAExtension"), _refused("BuildExtension")
include_paths, library_paths = _refused("include_paths"), _refused("library_paths")
__getattr__ = getattr_of(__name__)
__all__ = [
    "CUDA_HOME", "ROCM_HOME", "BuildExtension", "CUDAExtension", "CppExtension", "include_paths", "library_paths", "load",
    "load_inline",
]  # fmt: skip
