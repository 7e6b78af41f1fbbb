"""ONNX: models as files that other runtimes read, and theirs as functions here.  See docs/export.md."""

from __future__ import annotations

from dynagraph.onnx.exporter import export
from dynagraph.onnx.loader import load

__all__ = ["export", "load"]
