"""The package onnx, which is optional: its protocol buffers are what files hold."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dynagraph.errors import ExportError
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType

# the IR's dtype -> the number that TensorProto has for it
NUMBERS = {
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "float64": 11,
    "uint32": 12, "uint64": 13, "complex64": 14, "complex128": 15, "bfloat16": 16,
}  # fmt: skip
DTYPES = {number: dtypes.BY_NAME[name] for name, number in NUMBERS.items()}


def package(who: str) -> Any:
    """The module onnx, with `helper`, `numpy_helper` and `external_data_helper` loaded; ExportError where it is not installed."""
    try:
        module = import_module("onnx")
    except ImportError as error:
        raise ExportError(f"{who}: needs the package onnx: pip install 'dynagraph[onnx]'") from error
    for name in ("helper", "numpy_helper", "external_data_helper", "checker", "shape_inference"):
        import_module(f"onnx.{name}")
    return module


def number_of(dtype: DType) -> int:
    """How ONNX numbers a dtype."""
    return NUMBERS[dtype.name]


__all__ = ["DTYPES", "NUMBERS", "number_of", "package"]
