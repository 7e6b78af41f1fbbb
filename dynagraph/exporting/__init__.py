"""Programs that run without the Python that they were captured from: see docs/export.md."""

from __future__ import annotations

from dynagraph.dims import Dim, dims
from dynagraph.exporting.capturing import export
from dynagraph.exporting.files import load as load_exported
from dynagraph.exporting.files import save as save_exported
from dynagraph.exporting.program import ExportedModule, ExportedProgram

ExportedProgram.save = save_exported  # type: ignore[attr-defined]

__all__ = ["Dim", "ExportedModule", "ExportedProgram", "dims", "export", "load_exported", "save_exported"]
