"""`dg.export` and `dg.load_exported`: what they need of the compiler is loaded when they are called."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dynagraph.driver import loading


def export(
    model: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None, *, dynamic_shapes: Any = None, strict: bool = True
) -> Any:
    """Capture one call as a program that runs without the function: ``export(f, (x, y)).save("f.dgx")``.

    model: a function of arrays or tensors, or an nn.Module, whose parameters and buffers become inputs by their names.
    args, kwargs: what it is called with; their sizes, dtypes and numbers are what the program takes.
    dynamic_shapes: which sizes may change, as in torch.export: a dict by parameter or a sequence, with a dict by axis in place of
    each array, whose values are `Dim`, ``Dim.AUTO``, ``Dim.DYNAMIC`` or None.
    strict: taken for PyTorch's sake; every export captures bytecode.

    Arrays that the function reads from elsewhere are constants of the program.  Arrays that it writes to, buffers of a module too,
    are written to by calls of the program.  Raises ExportError where the call cannot be captured whole, with line and cure; where
    it draws random numbers, or changes other objects of the caller's; and where a named size turns out to be fixed.

    >>> import numpy as np, dynagraph as dg
    >>> program = dg.export(lambda x: np.tanh(x) + 1, (np.zeros((4, 3)),), dynamic_shapes={"x": {0: dg.Dim("batch")}})
    >>> program(np.zeros((7, 3))).shape, program.range_constraints
    ((7, 3), {'batch': (1, 2147483647)})
    """
    return _exporting().export(model, args, kwargs, dynamic_shapes)


def load_exported(path: Any) -> Any:
    """The program of a file that `export(...).save` wrote.  Its weights are mapped into memory.

    Nothing in the file is run: it names ops of dynagraph's.  Raises ExportError where it is no such file, or is damaged.
    """
    return _exporting().load_exported(path)


def _exporting() -> Any:
    loading.compiler()
    return import_module("dynagraph.exporting")


__all__ = ["export", "load_exported"]
