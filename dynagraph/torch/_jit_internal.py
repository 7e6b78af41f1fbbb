"""``torch._jit_internal``: what libraries take from there."""

from typing import Any, Final, Optional

from dynagraph.torch.jit import (
    _overload,
    _overload_method,
    export,
    ignore,
    is_scripting,
    unused,
)
from dynagraph.torch.jit.annotations import (
    BroadcastingList1,
    BroadcastingList2,
    BroadcastingList3,
)
from dynagraph.torch.missing import getattr_of


def boolean_dispatch(
    arg_name: str, arg_index: int, default: bool, if_true: Any, if_false: Any, module_name: str, func_name: str
) -> Any:
    """A function that calls one of two functions, as the argument of that name is true or not."""

    def dispatched(*args: Any, **kwargs: Any) -> Any:
        chosen = args[arg_index] if arg_index < len(args) else kwargs.get(arg_name, default)
        return (if_true if chosen else if_false)(*args, **kwargs)

    dispatched.__name__, dispatched.__module__ = func_name, module_name
    return dispatched


__getattr__ = getattr_of(__name__)
__all__ = [
    "BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "Final", "Optional", "_overload", "_overload_method",
    "boolean_dispatch", "export", "ignore", "is_scripting", "unused",
]  # fmt: skip
