"""Modules whose parameters nobody has drawn."""

from __future__ import annotations

import inspect
from typing import Any

from dynagraph.torch.core.generator import default_generator
from dynagraph.torch.nn.modules.module import Module


def skip_init(module_cls: Any, *args: Any, **kwargs: Any) -> Any:
    """A module whose parameters have any numbers, and for which no random numbers were taken: for those that are loaded.

    There is no device without memory here: the module is made as always, and the generator set back.
    """
    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    before = default_generator.get_state()
    made = module_cls(*args, **{"device": "cpu", **kwargs})
    default_generator.set_state(before)
    return made


__all__ = ["skip_init"]
