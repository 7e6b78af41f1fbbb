"""Programs that run without the Python that they were captured from: see docs/export.md."""

from __future__ import annotations

from dynagraph.exporting.capturing import export
from dynagraph.exporting.dims import Dim, dims
from dynagraph.exporting.program import ExportedModule, ExportedProgram

__all__ = ["Dim", "ExportedModule", "ExportedProgram", "dims", "export"]
