"""``torch.cuda``: GPUs, over `dynagraph.cuda` and CuPy.

Without a GPU `is_available` is False, numbers of memory are zero and seeds may be set; what needs one raises CudaError, a
RuntimeError that says what is missing and how to get it.

>>> from dynagraph import torch
>>> device = "cuda" if torch.cuda.is_available() else "cpu"
"""

from __future__ import annotations

import sys
from typing import Any

from dynagraph.errors import CudaError as CudaError
from dynagraph.torch.core.devices import device as _torch_device
from dynagraph.torch.core.generator import Generator, generator_of
from dynagraph.torch.cuda import amp as amp
from dynagraph.torch.cuda import memory as memory
from dynagraph.torch.cuda import random as random
from dynagraph.torch.cuda import streams as streams
from dynagraph.torch.cuda._devices import *  # noqa: F403
from dynagraph.torch.cuda._devices import (
    _CudaDeviceProperties as _CudaDeviceProperties,
)
from dynagraph.torch.cuda._devices import _is_in_bad_fork as _is_in_bad_fork
from dynagraph.torch.cuda._devices import device_count, index_of
from dynagraph.torch.cuda.memory import *  # noqa: F403
from dynagraph.torch.cuda.random import *  # noqa: F403
from dynagraph.torch.cuda.streams import *  # noqa: F403
from dynagraph.torch.functions.legacy import CUDA_TYPES as _TYPES
from dynagraph.torch.missing import getattr_of as _getattr_of

has_half, _initialized = True, False  # (CuPy begins by itself: nothing waits to be initialized)
globals().update(_TYPES)
_get_device_index = index_of
_missing = _getattr_of(__name__)


class _OutOfMemory(RuntimeError):
    """What `OutOfMemoryError` is where CuPy is not in use."""


def __getattr__(name: str) -> Any:
    if name == "OutOfMemoryError":  # what CuPy raises
        cupy = sys.modules.get("cupy")
        return getattr(getattr(getattr(cupy, "cuda", None), "memory", None), name, _OutOfMemory)
    if name == "default_generators":
        return _generators()
    return _missing(name)


def _generators() -> tuple[Generator, ...]:
    return tuple(generator_of(_torch_device("cuda", k)) for k in range(device_count()))
