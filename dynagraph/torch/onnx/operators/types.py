"""Element types by the numbers that ONNX has for them."""

from __future__ import annotations

from typing import Any

from dynagraph import torch

DTYPES: dict[int, Any] = {
    1: torch.float32, 2: torch.uint8, 3: torch.int8, 4: torch.uint16, 5: torch.int16, 6: torch.int32, 7: torch.int64, 9: torch.bool,
    10: torch.float16, 11: torch.float64, 12: torch.uint32, 13: torch.uint64, 14: torch.complex64, 15: torch.complex128,
    16: torch.bfloat16,
}  # fmt: skip


def dtype_of(number: int) -> Any:
    """The dtype of that number; NotImplementedError for strings and types of less than a byte."""
    if number not in DTYPES:
        raise NotImplementedError(f"ONNX's element type {number}")
    return DTYPES[number]


__all__ = ["DTYPES", "dtype_of"]
