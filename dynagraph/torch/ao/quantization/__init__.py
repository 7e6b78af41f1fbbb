"""``torch.ao.quantization``: the marks that models carry; there is no quantization."""

from __future__ import annotations

from typing import Any

from dynagraph.torch.missing import getattr_of, refused
from dynagraph.torch.nn.modules.module import Module

_WHY = "tensors are not quantized; float16 and bfloat16 halve the memory of weights"


class QuantStub(Module):
    """Where a model's input would be quantized: gives what it is given."""

    def __init__(self, qconfig: Any = None):
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Any) -> Any:
        return x


class DeQuantStub(QuantStub):
    """Where a model's result would be converted back: gives what it is given."""


prepare, prepare_qat, convert, fuse_modules, fuse_modules_qat = (
    refused(f"torch.ao.quantization.{name}", _WHY)
    for name in ("prepare", "prepare_qat", "convert", "fuse_modules", "fuse_modules_qat")
)

__getattr__ = getattr_of(__name__)
__all__ = ["DeQuantStub", "QuantStub", "convert", "fuse_modules", "fuse_modules_qat", "prepare", "prepare_qat"]
