"""Every error that dynagraph raises on its own account.  Errors of the user's program are never wrapped."""

from __future__ import annotations


class DynagraphError(Exception):
    """Base of all errors raised by dynagraph."""


class ShapeError(DynagraphError, ValueError):
    """Sizes or axes do not fit an operation."""


class DTypeError(DynagraphError, TypeError):
    """A dtype is not one that an operation takes."""


class GraphError(DynagraphError):
    """A graph breaks its own rules: raised by `Graph.lint` and by construction of a wrong node."""


class RewriteError(GraphError):
    """A rewrite rule changed the shape or dtype of what it replaced."""


class GradientError(DynagraphError):
    """A gradient would have to pass through what has none: names the op, the line and the cure."""


class CaptureError(DynagraphError):
    """``fullgraph=True``, and the function could not be captured as one graph: names file, line, reason and cure."""


class ExportError(DynagraphError):
    """A program cannot be exported, saved, loaded or called as it was: says what was given, and the rule."""


class CompilerError(DynagraphError):
    """The C compiler, or NVRTC for CUDA C, is missing or refused generated code."""


class CompilerTimeoutError(CompilerError):
    """The C compiler took longer than it may (`config.compiler_timeout`), and was stopped."""


class BackendError(DynagraphError):
    """A backend gave something that is not a program for the graph, or an unknown backend was asked for."""


class PlacementError(DynagraphError, ValueError):
    """A machine has no such device or link, or no device for a part of a graph: names the part and what would do."""


class KernelError(DynagraphError):
    """A kernel reached outside of the memory that it was given: a bug of dynagraph's, which `config.cuda_check` finds."""


class ConfigError(DynagraphError, ValueError):
    """A switch or environment variable has a value that it cannot have."""


class CudaError(DynagraphError, RuntimeError):
    """CUDA cannot be used as it was asked for: CuPy, driver or device is missing, or streams, events and devices do not fit."""


def make_final(error: BaseException) -> None:
    """Have what a program raises leave the compiled function, which would run eagerly otherwise."""
    error.dynagraph_is_final = True  # type: ignore[attr-defined]  # see dg_is_final in python_plan.c


def is_final(error: BaseException) -> bool:
    """Whether an exception leaves the compiled function as it is."""
    return hasattr(error, "dynagraph_is_final")
