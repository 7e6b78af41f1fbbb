"""ONNX's operators as functions of tensors: `OPERATORS`."""

from __future__ import annotations

from dynagraph.torch.onnx.operators import elementwise, images, reductions, sequences, shapes
from dynagraph.torch.onnx.operators.registry import OF_NUMBERS, OPERATORS, Operator, is_number, tensor_of
from dynagraph.torch.onnx.operators.types import DTYPES

FAMILIES = (elementwise, images, reductions, sequences, shapes)  # their import fills the table

__all__ = ["DTYPES", "FAMILIES", "OF_NUMBERS", "OPERATORS", "Operator", "is_number", "tensor_of"]
