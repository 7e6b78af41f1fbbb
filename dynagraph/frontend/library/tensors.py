"""Shortcuts for what dynagraph.torch does in every operation: the same values as following its Python gives, in fewer steps.

`tests/torch/test_captures.py` compares the two.  Nothing else of dynagraph.torch is known here: it is followed as it is written.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from dynagraph.doors.numpy import lookup
from dynagraph.frontend.executor.calls import call
from dynagraph.frontend.executor.exceptions import refuse
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.guards.sources import Trusted
from dynagraph.frontend.kinds.grad_modes import mode_of
from dynagraph.frontend.kinds.lookup import guard_type
from dynagraph.frontend.kinds.slots import items_of, load_attribute, truth
from dynagraph.frontend.kinds.values import Array, Const, Dict, Object, Sequence, Value
from dynagraph.frontend.library.registry import meaning, package
from dynagraph.ir.ops import memory_of, strided_of

NONE, FALSE, ZERO = Const(None), Const(False), Const(0)


@package("dynagraph.torch.core.large")
def _register_sizes() -> None:
    terms: Any = sys.modules["dynagraph.torch.core.terms"]

    def means(ufunc: np.ufunc) -> Any:
        return lambda frame, *arrays: call(frame, frame.ex.wrap(ufunc, Trusted(ufunc, ufunc.__name__)), arrays, {})

    for ufunc, chooses in terms.BY_SIZE.items():
        meaning(chooses)(means(ufunc))


@package("dynagraph.torch.core.tensor")
def _register() -> None:
    tensors: Any = sys.modules["dynagraph.torch.core.tensor"]
    parts: Any = sys.modules["dynagraph.torch.core.parts"]
    as_array = lookup(np.asarray)
    assert as_array is not None

    @meaning(tensors.quiet)
    def quiet(frame: Frame, function: Any, arrays: Any, attrs: Any) -> Value:
        given = dict(frame.ex.resolve(attrs).items)
        return call(frame, function, items_of(frame, arrays), given)

    @meaning(tensors.wrap)
    def wrap(frame: Frame, array: Any) -> Object:
        storage = Object(tensors.Storage, fields={"array": array, "version": ZERO, "is_shared": FALSE})
        fields = {"_array": array, "_storage": storage, "_base": NONE, "_grad_fn": NONE, "_requires_grad": FALSE}
        return Object(tensors.Tensor, fields=fields)

    @meaning(tensors.made)
    def made(frame: Frame, array: Any) -> Object:
        given = frame.ex.resolve(array)
        if not (isinstance(given, Array) and not given.is_scalar):
            given = frame.ex.call_door(as_array, [given])
        tensor = wrap(frame, given)
        if mode_of(frame, "inference"):
            tensor.fields["_inference"] = Const(True)
        return tensor

    @meaning(parts.geometry_of)
    def geometry_of(frame: Frame, array: Any, base: Any) -> Value:
        """By what is known of views in the graph."""
        nodes = [frame.ex.resolve(v).node for v in (array, base)]
        (memory, view), (owner, whole) = (memory_of(node) or (node, strided_of(node)) for node in nodes)
        if memory is not owner:
            refuse("UNSUPPORTED_VALUE", "a view of a tensor that was captured as another input than its base")
        found = {"shape": view.shape, "strides": view.strides, "offset": view.offset - whole.offset, "base": whole.strides}
        return frame.ex.constant(found)

    def is_tensor(frame: Frame, value: Any) -> bool:
        if not isinstance(value, Object) or not issubclass(value.kind, tensors.Tensor):
            return False
        guard_type(frame, value)
        return True

    def requires_grad(frame: Frame, tensor: Object) -> bool:
        if truth(frame, load_attribute(frame, tensor, "_requires_grad")):
            return True
        base = load_attribute(frame, tensor, "_base")
        return not is_none(base) and truth(frame, load_attribute(frame, tensor, "requires_grad"))

    def own(frame: Frame, name: str) -> Value:
        return frame.ex.wrap(getattr(tensors, name), Trusted(getattr(tensors, name), name))

    @meaning(tensors.apply)
    def apply(frame: Frame, p: Any, *operands: Any, **attrs: Any) -> Value:
        primitive, given = frame.ex.resolve(p).value, [frame.ex.resolve(o) for o in operands]
        holders = [o for o in given if is_tensor(frame, o)]
        arrays = [load_attribute(frame, o, "_array") if o in holders else o for o in given]
        out = call(frame, frame.ex.wrap(primitive.forward, Trusted(primitive.forward, primitive.name)), arrays, attrs)
        several = primitive.outputs != 1
        made_of = [made(frame, part) for part in (items_of(frame, out) if several else [out])]
        result = Sequence(tuple, list(made_of)) if several else made_of[0]
        if mode_of(frame, "grad") and any(requires_grad(frame, o) for o in holders):
            outs = Sequence(tuple, [tensor.fields["_array"] for tensor in made_of])
            node = call(frame, own(frame, "record"), [p, Sequence(tuple, list(given)), Dict(dict(attrs)), outs], {})
            if not is_none(node):
                call(frame, own(frame, "_attach"), [node, p, result], {})
        return result


def is_none(value: Any) -> bool:
    return isinstance(value, Const) and value.value is None


__all__: list[str] = []
