"""``torch.fx``: there is no tracing by stand-ins; `dg.export` and `dg.explain` give the graphs of functions."""

from __future__ import annotations

from typing import Any

from dynagraph.torch.missing import getattr_of, refused


def wrap(fn_or_name: Any) -> Any:
    """The function itself: nothing traces into it."""
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    return fn_or_name


symbolic_trace = refused("torch.fx.symbolic_trace", "graphs are captured from bytecode: dg.export(model, args).graph is one")

__getattr__ = getattr_of(__name__)
__all__ = ["symbolic_trace", "wrap"]
