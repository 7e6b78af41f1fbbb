"""``torch.export``: programs that run without the model's Python.  They are dynagraph's own: see docs/export.md."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import dynagraph
from dynagraph.driver import loading
from dynagraph.torch.missing import getattr_of
from dynagraph.torch.nn.modules import Module

_OURS = ("Dim", "ExportedProgram", "dims")


def export(
    mod: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, *, dynamic_shapes: Any = None, strict: bool = False,
    preserve_module_call_signature: tuple[str, ...] = (), prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> Any:  # fmt: skip
    """Capture a call of a module as an `ExportedProgram`; by `dynagraph.export`, which takes functions, too.

    strict, preserve_module_call_signature, prefer_deferred_runtime_asserts_over_guards: taken, and change nothing: every export
    follows bytecode, into the submodules, and checks at calls what it decided about sizes.
    """
    if not isinstance(mod, Module):
        raise ValueError(f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}.")
    return dynagraph.export(mod, args, kwargs, dynamic_shapes=dynamic_shapes)


def save(ep: Any, f: Any, *, extra_files: dict[str, Any] | None = None, opset_version: dict[str, int] | None = None) -> None:
    """Write a program to a file; `extra_files`: texts that it holds by their names."""
    ep.save(f, extra=None if extra_files is None else extra_files)


def load(f: Any, *, extra_files: dict[str, Any] | None = None, expected_opset_version: dict[str, int] | None = None) -> Any:
    """The program of a file; fills the values of `extra_files` in."""
    program = dynagraph.load_exported(f)
    for name in extra_files or {}:
        extra_files[name] = program.extra.get(name, "")  # type: ignore[index]
    return program


_getattr = getattr_of(__name__)


def __getattr__(name: str) -> Any:
    """What the compiler's half has, which is loaded with the first export."""
    if name not in _OURS:
        return _getattr(name)
    loading.compiler()
    return getattr(import_module("dynagraph.exporting"), name)


__all__ = ["export", "load", "save"]
