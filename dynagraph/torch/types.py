"""``torch.types``: names for annotations."""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from typing import IO, TypeAlias, Union

from dynagraph.torch.core.devices import device as _device
from dynagraph.torch.core.dtypes import Size as Size
from dynagraph.torch.core.dtypes import dtype as _dtype  # noqa: F401
from dynagraph.torch.core.tensor import Tensor as Tensor
from dynagraph.torch.missing import getattr_of

_int, _float, _bool, _complex = builtins.int, builtins.float, builtins.bool, builtins.complex
_str, _bytes = builtins.str, builtins.bytes
_size: TypeAlias = Union[Size, list[int], tuple[int, ...]]
_TensorOrTensors: TypeAlias = Union[Tensor, Sequence[Tensor]]
_TensorOrOptionalTensors: TypeAlias = Union[Tensor, Sequence[Union[Tensor, None]]]
_Number = (int, float, bool)
Number: TypeAlias = Union[int, float, bool]
Device: TypeAlias = Union[_device, str, int, None]
FileLike: TypeAlias = Union[str, os.PathLike[str], IO[bytes]]
IntLikeType: TypeAlias = int
FloatLikeType: TypeAlias = float
BoolLikeType: TypeAlias = bool
__getattr__ = getattr_of(__name__)
__all__ = ["BoolLikeType", "Device", "FileLike", "FloatLikeType", "IntLikeType", "Number", "Size", "Tensor"]
