"""``torch.compiler`` and ``torch.compile``: `dg.compile` by PyTorch's arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynagraph import api
from dynagraph.driver import control
from dynagraph.markers import is_compiling as is_compiling
from dynagraph.torch.missing import getattr_of

# PyTorch's mode -> that of dg.compile
MODES = {
    "default": "default", "lite": "default", "reduce-overhead": "reduce-overhead", "max-autotune": "max",
    "max-autotune-no-cudagraphs": "max",
}  # fmt: skip
# PyTorch's backend -> that of dg.compile; "": the function itself
BACKENDS = {"inductor": "cpu", "cudagraphs": "cpu", "eager": "", "aot_eager": "", "cpu": "cpu", "c": "c", "numpy": "numpy"}
# what inductor's options say of the mode, where they are set
OPTIONS = {"triton.cudagraphs": "reduce-overhead", "max_autotune": "max", "max_autotune_gemm": "max"}


def compile(
    model: Callable[..., Any] | None = None, *, fullgraph: bool = False, dynamic: bool | None = None,
    backend: str | Callable[..., Any] = "inductor", mode: str | None = None, options: dict[str, Any] | None = None,
    name: str | None = None, disable: bool = False, recompile_limit: int | None = None,
) -> Any:  # fmt: skip
    """Compile a function with `dg.compile`; without one, give a decorator.

    mode: "default", "reduce-overhead", "max-autotune" (compiling may take any time) or "max-autotune-no-cudagraphs".
    backend: "inductor" is dynagraph's own; "eager" and "aot_eager" give the function itself.
    options: ``{"max_autotune": True}`` and ``{"triton.cudagraphs": True}`` choose a mode.
    disable: give the function itself.  name, recompile_limit: accepted; dynagraph has its own limit (`dg.config.entry_limit`).

    Raises RuntimeError for unknown modes, options and backends, and TypeError for what is no function.

    >>> from dynagraph import torch
    >>> @torch.compile
    ... def f(x):
    ...     return x * 2
    >>> f(torch.ones(2))
    tensor([2., 2.])
    """
    chosen = _mode_of(mode, options)
    if not isinstance(backend, str):
        raise RuntimeError(
            "torch.compile: backends of your own take PyTorch's FX graphs; dg.compile takes a backend(graph, example_inputs)"
        )
    if backend not in BACKENDS:
        raise RuntimeError(f"Invalid backend: {backend!r}, see `torch.compiler.list_backends()` for available backends.")

    def compiled(function: Any) -> Any:
        if not callable(function):
            raise TypeError(f"A callable function is expected, but {type(function)} is provided.")
        if disable or not BACKENDS[backend]:
            return function
        return api.compile(function, fullgraph=fullgraph, dynamic=dynamic, backend=BACKENDS[backend], mode=chosen)

    return compiled if model is None else compiled(model)


def _mode_of(mode: str | None, options: dict[str, Any] | None) -> str:
    if mode is not None and options:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if mode is not None and mode not in MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(MODES)}")
    chosen = MODES[mode or "default"]
    for option, value in (options or {}).items():
        known = OPTIONS.get(option.replace("-", "_"))
        if known is None:
            raise RuntimeError(f"Unexpected optimization option {option}, known options are {list(OPTIONS)}")
        if value:
            chosen = known
    return chosen


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Have a function run as plain Python, also when a compiled function calls it; a decorator too.

    What it calls runs as plain Python as well, also with ``recursive=False``.
    """
    return api.disable if fn is None else api.disable(fn)


def allow_in_graph(fn: Any) -> Any:
    """Have captures follow a library's Python function."""
    return [allow_in_graph(f) for f in fn] if isinstance(fn, (list, tuple)) else api.allow_in_graph(fn)


def assume_constant_result(fn: Any) -> Any:
    """Gives the function back: its calls are followed, and its result is computed."""
    return fn


def reset() -> None:
    """Forget all that has been compiled."""
    control.reset()


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """The names that `torch.compile` takes as a backend."""
    debug = () if not exclude_tags else ("eager", "aot_eager")
    return [name for name in BACKENDS if name not in debug]


def set_stance(stance: str = "default") -> Any:
    """What calls that no program serves do, from now on or within a context; `dg.stance` says what each stance is."""
    return control.stance(stance)


def is_dynamo_compiling() -> bool:
    """As `is_compiling`."""
    return is_compiling()


def is_exporting() -> bool:
    """False: nothing is exported."""
    return False


def cudagraph_mark_step_begin() -> None:
    """Nothing is to be done: results that are still in use are never overwritten."""


__getattr__ = getattr_of(__name__)
__all__ = [
    "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable", "is_compiling",
    "is_dynamo_compiling", "is_exporting", "list_backends", "reset", "set_stance",
]  # fmt: skip
