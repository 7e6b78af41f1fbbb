"""Shortcuts for functions of dynagraph.torch that many operations ask: the same values as following their Python gives.

`tests/torch/test_captures.py` compares the two.
"""

from __future__ import annotations

import sys
from typing import Any

from dynagraph.array_libraries import NUMPY
from dynagraph.frontend.executor.calls import follow
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.guards.sources import Trusted
from dynagraph.frontend.kinds.slots import contains, load_attribute, subscript, truth
from dynagraph.frontend.kinds.values import Array, Const, Function, Object, Value
from dynagraph.frontend.library.registry import meaning, package

HOLDERS = ("_parameters", "_buffers", "_modules")  # of what a module has, in the order in which it is looked for


def _in_python(frame: Frame, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Value:
    wrapped = frame.ex.wrap(function, Trusted(function, function.__qualname__))
    assert isinstance(wrapped, Function)
    return follow(frame, wrapped, args, kwargs)


def _is_numpys(frame: Frame, value: Any) -> bool:
    return isinstance(value, Array) and not value.is_scalar and frame.ex.library is NUMPY


@package("dynagraph.torch.nn.modules.module")
def _register_modules() -> None:
    attribute_in_python = sys.modules["dynagraph.torch.nn.modules.module"].Module.__getattr__

    @meaning(attribute_in_python)
    def attribute(frame: Frame, module: Any, name: Any) -> Value:
        owner = frame.ex.resolve(module)
        if isinstance(owner, Object) and owner.source is not None and all(holder in vars(owner.value) for holder in HOLDERS):
            for holder in HOLDERS:
                held = load_attribute(frame, owner, holder)
                if contains(frame, held, name):
                    return subscript(frame, held, name)
        return _in_python(frame, attribute_in_python, [module, name], {})


@package("dynagraph.torch.functions.reductions")
def _register_reductions() -> None:
    in_order_in_python = sys.modules["dynagraph.torch.functions.reductions"].in_order

    @meaning(in_order_in_python)
    def in_order(frame: Frame, result: Any) -> Value:
        given = frame.ex.resolve(result)
        if _is_numpys(frame, given) and truth(frame, load_attribute(frame, load_attribute(frame, given, "flags"), "c_contiguous")):
            return given
        return _in_python(frame, in_order_in_python, [result], {})


@package("dynagraph.torch.functions.convolution")
def _register_convolutions() -> None:
    has_kernels_in_python = sys.modules["dynagraph.torch.functions.convolution"]._has_kernels

    @meaning(has_kernels_in_python)
    def has_kernels(frame: Frame, *given: Any) -> Value:
        arrays = [frame.ex.resolve(value) for value in given]
        arrays = [a for a in arrays if not (isinstance(a, Const) and a.value is None)]
        if len(given) < 2 or len(arrays) < 2 or not all(_is_numpys(frame, a) for a in arrays):
            return _in_python(frame, has_kernels_in_python, list(given), {})
        dtype = arrays[0].node.dtype.numpy
        return Const(dtype.kind == "f" and dtype.itemsize in (4, 8))


__all__: list[str] = []
