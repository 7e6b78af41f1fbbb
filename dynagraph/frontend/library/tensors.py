"""Shortcuts for what dynagraph.torch does in every operation: the same values as following its Python gives, in fewer steps.

`tests/torch/test_captures.py` compares the two.  Nothing else of dynagraph.torch is known here: it is followed as it is written.
"""

from __future__ import annotations

import contextlib
import sys
import types
from typing import Any

import numpy as np

from dynagraph.array_libraries import NUMPY
from dynagraph.doors.numpy import lookup
from dynagraph.frontend.executor.calls import UNKNOWN, call, follow, known_at_capture
from dynagraph.frontend.executor.exceptions import Raised, refuse
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.executor.held_numbers import held_number
from dynagraph.frontend.executor.numpy_source import is_own
from dynagraph.frontend.executor.rare_branches import leaves_calls
from dynagraph.frontend.executor.wrapping import load_global
from dynagraph.frontend.guards.sources import Known, Trusted
from dynagraph.frontend.kinds import array_writes
from dynagraph.frontend.kinds.aliasing import STORING
from dynagraph.frontend.kinds.grad_modes import mode_of
from dynagraph.frontend.kinds.lookup import guard_type
from dynagraph.frontend.kinds.slots import (
    binary,
    contains,
    in_place,
    items_of,
    load_attribute,
    plain,
    same,
    store,
    store_attribute,
    truth,
)
from dynagraph.frontend.kinds.values import Array, Const, Dict, Function, Object, Sequence, Value
from dynagraph.frontend.library import joined
from dynagraph.frontend.library.registry import meaning, package
from dynagraph.frontend.library.repeated import known_part, known_parts, repeated
from dynagraph.ir.ops import memory_of, strided_of
from dynagraph.ir.shapes import Shape

NONE, TRUE, FALSE, ZERO = Const(None), Const(True), Const(False), Const(0)


@package("dynagraph.torch.core.large")
def _register_sizes() -> None:
    terms: Any = sys.modules["dynagraph.torch.core.terms"]

    def means(ufunc: np.ufunc) -> Any:
        return lambda frame, *arrays: call(frame, frame.ex.wrap(ufunc, Trusted(ufunc, ufunc.__name__)), arrays, {})

    for ufunc, chooses in terms.BY_SIZE.items():
        meaning(chooses)(means(ufunc))


@package("dynagraph.torch.functions")
def _register_autocast() -> None:
    asking: Any = sys.modules["dynagraph.torch.core.autocast"].ASKING

    @meaning(asking)
    def asked(frame: Frame, function: Function, args: list[Any], kwargs: dict[str, Any]) -> Value:
        """A function that asks for autocast: outside of its regions the function itself."""
        if mode_of(frame, "autocast"):
            return follow(frame, function, args, kwargs)
        compute = function.object.without_autocast
        return call(frame, frame.ex.wrap(compute, Trusted(compute, function.name)), args, kwargs)


@package("dynagraph.torch.core.arrays")
def _register_arrays() -> None:
    """What the two libraries do by different functions: of arrays on a GPU, too, what NumPy's function means."""
    arrays: Any = sys.modules["dynagraph.torch.core.arrays"]
    at_in_python, number_in_python, reduce_in_python = arrays.ufunc_at, arrays.number_in, arrays.ufunc_reduce

    def followed(frame: Frame, function: Any, *args: Any, **kwargs: Any) -> Value:
        wrapped = frame.ex.wrap(function, Trusted(function, function.__name__))
        assert isinstance(wrapped, Function)
        return follow(frame, wrapped, list(args), kwargs)

    @meaning(reduce_in_python)
    def ufunc_reduce(frame: Frame, ufunc: Any, x: Any, **about: Any) -> Value:
        given = frame.ex.resolve(x)
        if not (isinstance(given, Array) and not given.is_scalar and frame.ex.library is NUMPY):
            return followed(frame, reduce_in_python, ufunc, x, **about)
        return call(frame, load_attribute(frame, ufunc, "reduce"), [x], about)

    def is_on_gpu(frame: Frame, array: Any) -> bool:
        return frame.ex.library is not NUMPY and isinstance(frame.ex.resolve(array), Array)

    @meaning(arrays.programs_leave_calls)
    def programs_leave_calls(frame: Frame) -> Value:
        return Const(leaves_calls(frame))

    @meaning(number_in_python)
    def number_in(frame: Frame, vector: Any, how: Any) -> Value:
        given, known = frame.ex.resolve(vector), plain(frame, how)
        found = held_number(frame.ex, given, known) if isinstance(given, Array) else None
        return followed(frame, number_in_python, vector, how) if found is None else found

    @meaning(arrays.as_if_new)
    def as_if_new(frame: Frame, x: Any) -> Value:
        array = frame.ex.resolve(x)
        if not isinstance(array, Array) or array.is_scalar:
            return array
        return Array(frame.ex.builder.call("optimization_barrier", frame.ex.memories.present(array)))

    @meaning(at_in_python)
    def ufunc_at(frame: Frame, ufunc: Any, array: Any, places: Any, values: Any) -> Value:
        known = frame.ex.resolve(ufunc)
        if not (is_on_gpu(frame, array) and isinstance(known, Const)):
            return followed(frame, at_in_python, ufunc, array, places, values)
        array_writes.combine_at(frame.ex, known.value, frame.ex.resolve(array), places, values)
        return NONE


@package("dynagraph.torch.core.devices")
def _register_devices() -> None:
    devices: Any = sys.modules["dynagraph.torch.core.devices"]
    of_array_in_python, scope_in_python, current_in_python = devices.of_array, devices.scope, devices.current_gpu

    @meaning(of_array_in_python)
    def of_array(frame: Frame, array: Any) -> Value:
        given, ex = frame.ex.resolve(array), frame.ex
        if isinstance(given, Array) and ex.library is not NUMPY and ex.device >= 0:
            return call(frame, ex.wrap(devices.device, Trusted(devices.device, "device")), [Const("cuda"), Const(ex.device)], {})
        function = ex.wrap(of_array_in_python, Trusted(of_array_in_python, "of_array"))
        assert isinstance(function, Function)
        return follow(frame, function, [array], {})

    @meaning(current_in_python)
    def current(frame: Frame, where: Any) -> Value:
        """That of the program."""
        return Const(frame.ex.device) if frame.ex.device >= 0 else refuse("UNSUPPORTED_FUNCTION", "the current GPU")

    @meaning(scope_in_python)
    def scope(frame: Frame, where: Any) -> Value:
        """None is needed on the device of the program."""
        kind, index = (frame.ex.resolve(load_attribute(frame, where, name)) for name in ("type", "index"))
        if not (is_none(index) or kind.value == "cpu" or index.value == frame.ex.device):
            refuse("MIXED_LIBRARIES", "new arrays on another device than the others")
        return call(frame, frame.ex.wrap(contextlib.nullcontext, Trusted(contextlib.nullcontext, "nullcontext")), [], {})


@package("dynagraph.torch.core.grad_mode")
def _register_hooks() -> None:
    """The hooks of saved tensors that captured code sets: a state of its own, set outside where the capture ends."""
    modes: Any = sys.modules["dynagraph.torch.core.grad_mode"]
    set_outside = modes.set_saved_hooks
    STORING.append(set_outside)

    @meaning(modes.saved_hooks)
    def saved_hooks(frame: Frame) -> Value:
        set_here = frame.ex.grad_modes.get("pairs")
        if set_here is None and mode_of(frame, "hooked"):
            refuse("ATTRIBUTE", "the hooks of saved tensors that were set outside")
        return Sequence(tuple, []) if set_here is None else set_here

    @meaning(set_outside)
    def set_saved_hooks(frame: Frame, pairs: Any) -> Value:
        saved_hooks(frame)
        frame.ex.grad_modes["pairs"] = own = Sequence(tuple, items_of(frame, pairs))
        frame.ex.grad_modes["hooked"] = bool(own.items)
        effects = frame.ex.effects
        effects[:] = [effect for effect in effects if effect[0] is not set_outside]
        if own.items:
            frame.ex.effect(set_outside, own)
        return NONE


@package("dynagraph.torch.core.generator")
def _register_generators() -> None:
    generators: Any = sys.modules["dynagraph.torch.core.generator"]
    of_gpu_in_python = generators.generator_of_gpu

    @meaning(of_gpu_in_python)
    def of_gpu(frame: Frame, number: Any) -> Value:
        """It is there from now on: whose numbers come next is guarded."""
        found = of_gpu_in_python(plain(frame, number))
        return frame.ex.wrap(found, Known(found, "the generator of a GPU"))


@package("dynagraph.torch.core.tensor")
def _register() -> None:
    tensors: Any = sys.modules["dynagraph.torch.core.tensor"]
    parts: Any = sys.modules["dynagraph.torch.core.parts"]
    as_array = lookup(np.asarray)
    assert as_array is not None
    joined.register()

    @meaning(tensors.quiet)
    def quiet(frame: Frame, function: Any, arrays: Any, attrs: Any) -> Value:
        given = dict(frame.ex.resolve(attrs).items)
        return call(frame, function, items_of(frame, arrays), given)

    @meaning(tensors.wrap)
    def wrap(frame: Frame, array: Any) -> Object:
        storage = Object(tensors.Storage, fields={"array": array, "version": ZERO})
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

    def own(frame: Frame, name: str) -> Any:
        return load_global(frame.ex, vars(tensors), name)

    def edge_of(frame: Frame, tensor: Object) -> Value:
        node = load_attribute(frame, tensor, "_grad_fn" if is_none(load_attribute(frame, tensor, "_base")) else "grad_fn")
        if not is_none(node):
            return Sequence(tuple, [node, load_attribute(frame, tensor, "_output_nr")])
        return Sequence(tuple, [tensor, ZERO]) if truth(frame, load_attribute(frame, tensor, "_requires_grad")) else NONE

    def meta_of(frame: Frame, operand: Any, out: Any) -> Value:
        if not isinstance(operand, Object):
            return call(frame, own(frame, "_meta"), [operand, out], {})
        array = load_attribute(frame, operand, "_array")
        return Sequence(tuple, [load_attribute(frame, array, name) for name in ("shape", "dtype")])

    def entry_of(frame: Frame, operand: Any, out: Any) -> Value:
        if not isinstance(operand, Object):
            return call(frame, own(frame, "_entry"), [operand, out, Sequence(tuple, [])], {})
        return Sequence(tuple, [operand, load_attribute(frame, load_attribute(frame, operand, "_storage"), "version")])

    def save(frame: Frame, node: Object, reads: str, operands: list[Any], outs: list[Any]) -> None:
        saved: list[Any] = [NONE] * len(operands)
        results: dict[Any, Any] = {}
        for letter in reads:
            if letter in "opq":
                k = "opq".index(letter)
                storage = Object(tensors.Storage, fields={"array": outs[k], "version": ZERO})
                results.setdefault(k, Sequence(tuple, [outs[k], storage, ZERO]))
                continue
            first = 0 if letter == "*" else int(letter) if letter in "12" else tensors._LETTERS[letter]
            for k in range(first, len(operands) if letter in "*12" else first + 1):
                if saved[k] is NONE:
                    saved[k] = entry_of(frame, operands[k], outs[0])
        store_attribute(frame, node, "saved", Sequence(list, saved))
        if results:
            store_attribute(frame, node, "saved_out", Dict(results))

    @meaning(tensors.record)
    def record(frame: Frame, p: Any, operands: Any, attrs: Any, outs: Any, some: Any = FALSE) -> Value:
        primitive, given = known_at_capture(frame, p), [frame.ex.resolve(o) for o in items_of(frame, operands)]
        arrays = [frame.ex.resolve(a) for a in items_of(frame, outs)]
        holders = [o for o in given if is_tensor(frame, o)]
        known = primitive is not UNKNOWN and all(isinstance(a, Array) for a in arrays)
        known = known and not any(isinstance(o, Object) and o not in holders for o in given)
        if not known or mode_of(frame, "anomaly") or mode_of(frame, "hooked"):
            return follow(frame, own(frame, "record"), [p, operands, attrs, outs, some], {})
        edges = [edge_of(frame, o) if o in holders else NONE for o in given]
        needed = [k for k, edge in enumerate(edges) if not is_none(edge)]
        is_needed = bool(needed) or truth(frame, some) or any(requires_grad(frame, o) for o in holders)
        if not is_needed or not any(a.node.dtype.numpy.kind in "fcV" for a in arrays):
            return NONE
        reads = primitive.saves if primitive.vjps is None else "".join(primitive.saves[k] for k in needed)
        if reads and any(truth(frame, load_attribute(frame, o, "_inference")) for o in holders):
            return follow(frame, own(frame, "record"), [p, operands, attrs, outs, some], {})
        node = Object(tensors.node_class(primitive))
        guard_type(frame, node)
        numbers = own(frame, "NUMBERS")
        store_attribute(frame, numbers, "last", in_place(frame, "-", load_attribute(frame, numbers, "last"), Const(1)))
        metas = [meta_of(frame, o, arrays[0]) for o in given]
        shapes = [Sequence(tuple, [load_attribute(frame, a, name) for name in ("shape", "dtype")]) for a in arrays]
        fields = {
            "attrs": attrs, "edges": Sequence(list, edges), "sequence": load_attribute(frame, numbers, "last"),
            "metas": Sequence(list, metas), "output_metas": Sequence(list, shapes), "saved": Sequence(tuple, []), "saved_out": NONE,
        }  # fmt: skip
        for name, value in fields.items():
            store_attribute(frame, node, name, value)
        if reads:
            save(frame, node, reads, given, arrays)
        return node

    @meaning(tensors.check_write)
    def check_write(frame: Frame, x: Any, overlap: Any = TRUE, others: Any = NONE) -> Value:
        tensor = frame.ex.resolve(x)
        if may_be_written(frame, tensor):
            array = load_attribute(frame, tensor, "_array")
            if not truth(frame, overlap):
                return NONE
            if isinstance(array, Array) and frame.ex.library is NUMPY:
                strides = frame.ex.builder.layout(frame.ex.memories.present(array)).strides
                if all(type(s) is int and s for s in strides):
                    return NONE
        return follow(frame, own(frame, "check_write"), [x, overlap, Sequence(tuple, []) if is_none(others) else others], {})

    def may_be_written(frame: Frame, tensor: Any) -> bool:
        """Whether a write to a tensor that is no view is no error of autograd's."""
        if truth(frame, load_attribute(frame, tensor, "_inference")):
            return False
        if not mode_of(frame, "grad"):
            return True
        is_leaf = is_none(load_attribute(frame, tensor, "_grad_fn"))
        is_view = not is_none(load_attribute(frame, tensor, "_base"))
        return not is_view and not (is_leaf and truth(frame, load_attribute(frame, tensor, "_requires_grad")))

    @meaning(tensors.check_overlap)
    def check_overlap(frame: Frame, x: Any, others: Any, full: Any = FALSE) -> Value:
        tensor, given = frame.ex.resolve(x), frame.ex.resolve(others)
        found = [frame.ex.resolve(o) for o in given.items] if isinstance(given, Sequence) else None
        storage = load_attribute(frame, tensor, "_storage")
        for other in () if found is None else found:
            if isinstance(other, (Const, Array)) or (other is tensor and not truth(frame, full)):
                continue
            if not is_tensor(frame, other) or same(frame, load_attribute(frame, other, "_storage"), storage):
                found = None
                break
        if found is None:
            return follow(frame, own(frame, "check_overlap"), [x, others, full], {})
        return NONE

    @meaning(tensors.apply)
    def apply(frame: Frame, p: Any, *operands: Any, **attrs: Any) -> Value:
        primitive, given = known_at_capture(frame, p), [frame.ex.resolve(o) for o in operands]
        if primitive is UNKNOWN:
            return follow(frame, own(frame, "apply_in_python"), [p, *given], attrs)
        holders = [o for o in given if is_tensor(frame, o)]
        arrays = [load_attribute(frame, o, "_array") if o in holders else o for o in given]
        several = primitive.outputs != 1

        def computed() -> list[Any]:
            out = call(frame, frame.ex.wrap(primitive.forward, Trusted(primitive.forward, primitive.name)), arrays, attrs)
            return items_of(frame, out) if several else [out]

        known = known_parts(attrs) if is_written_here(primitive.forward) else None
        about = None if known is None else (primitive, known)
        made_of = [made(frame, part) for part in repeated(frame, about, [frame.ex.resolve(a) for a in arrays], computed)]
        result = Sequence(tuple, list(made_of)) if several else made_of[0]
        if mode_of(frame, "grad") and any(requires_grad(frame, o) for o in holders):
            outs = Sequence(tuple, [tensor.fields["_array"] for tensor in made_of])
            node: Any = call(frame, own(frame, "record"), [p, Sequence(tuple, list(given)), Dict(dict(attrs)), outs], {})
            if not is_none(node) and not attached(frame, node, primitive, made_of):
                call(frame, own(frame, "_attach"), [node, p, result], {})
        return result

    def attached(frame: Frame, node: Object, primitive: Any, results: list[Object]) -> bool:
        """As `_attach` makes results those of a node; False where hooks have packed what it saves of them."""
        saved = frame.ex.resolve(load_attribute(frame, node, "saved_out"))
        entries = {} if is_none(saved) else saved.items if isinstance(saved, Dict) and saved.source is None else None
        if entries is None or not all(isinstance(e, Sequence) and len(e.items) == 3 for e in entries.values()):
            return False
        for k, tensor in enumerate(results):
            is_float = primitive.outputs == 1 or tensor.fields["_array"].node.dtype.numpy.kind in "fcV"
            if is_float and (primitive.outputs == 1 or k in primitive.differentiable):
                tensor.fields.update(_grad_fn=node, _requires_grad=TRUE)
                if primitive.outputs != 1:
                    tensor.fields["_output_nr"] = Const(k)
            if k in entries:
                tensor.fields["_storage"] = entries[k].items[1]
        return True

    @meaning(tensors.write)
    def write(frame: Frame, x: Any, result: Any, where: Any = TRUE) -> Value:
        written_ = store_result(frame, frame.ex.resolve(x), frame.ex.resolve(result)) if where is TRUE else False
        return x if written_ else follow(frame, own(frame, "write"), [x, result, where], {})

    def store_result(frame: Frame, tensor: Any, result: Any) -> bool:
        """As `write` of a tensor that is no view and has the result's shape and dtype; False of any other, and nothing is done."""
        if not all(isinstance(o, Object) and is_tensor(frame, o) for o in (tensor, result)):
            return False
        array, values = (frame.ex.resolve(load_attribute(frame, o, "_array")) for o in (tensor, result))
        if not all(isinstance(a, Array) and not a.is_scalar for a in (array, values)) or array.node.dtype is not values.node.dtype:
            return False
        shape = array.node.shape
        records = mode_of(frame, "grad")
        if shape != values.node.shape or not all(type(n) is int and n for n in shape) or mode_of(frame, "hooked"):
            return False
        if records and not is_none(load_attribute(frame, tensor, "_base")):
            return False
        if records and truth(frame, load_attribute(frame, tensor, "_retains")):
            return False
        try:
            call(frame, frame.ex.wrap(np.copyto, Trusted(np.copyto, "copyto")), [array, values], {"casting": Const("unsafe")})
        except Raised:
            return False
        storage = load_attribute(frame, tensor, "_storage")
        version = in_place(frame, "+", load_attribute(frame, storage, "version"), Const(1))
        store_attribute(frame, storage, "version", version)
        if not records or not truth(frame, load_attribute(frame, result, "_requires_grad")):
            return True
        node, number = (frame.ex.resolve(load_attribute(frame, result, name)) for name in ("_grad_fn", "_output_nr"))
        for name, value in {"_grad_fn": node, "_output_nr": number, "_requires_grad": TRUE}.items():
            store_attribute(frame, tensor, name, value)
        saved = NONE if is_none(node) else frame.ex.resolve(load_attribute(frame, node, "saved_out"))
        if truth(frame, saved) and contains(frame, saved, number):
            owner = call(frame, own(frame, "storage_of"), [tensor], {})
            store(frame, saved, number, Sequence(tuple, [array, owner, load_attribute(frame, owner, "version")]))
        return True


@package("dynagraph.torch.core.terms")
def _register_terms() -> None:
    terms: Any = sys.modules["dynagraph.torch.core.terms"]
    call_in_python = terms.ArrayTerm.call

    @meaning(terms.ArrayTerm)
    def term(frame: Frame, array: Any) -> Object:
        frame.ex.guards.unmodified(terms.ArrayTerm)
        return Object(terms.ArrayTerm, fields={"array": array})

    @meaning(call_in_python)
    def call_op(frame: Frame, term_: Any, op: Any, *others: Any, **attrs: Any) -> Value:
        name, given = frame.ex.resolve(op), [frame.ex.resolve(o) for o in (term_, *others)]
        if isinstance(name, Const) and all(isinstance(o, Object) and o.kind is terms.ArrayTerm for o in given):
            arrays = [load_attribute(frame, o, "array") for o in given]
            if all(isinstance(a, Array) for a in arrays):
                forward = terms.FORWARD[name.value]
                return term(frame, call(frame, frame.ex.wrap(forward, Trusted(forward, name.value)), arrays, dict(attrs)))
        function = frame.ex.wrap(call_in_python, Trusted(call_in_python, "ArrayTerm.call"))
        assert isinstance(function, Function)
        return follow(frame, function, [term_, op, *others], dict(attrs))

    def means(in_python: Any, ufunc: np.ufunc) -> Any:
        def operator(frame: Frame, left: Any, right: Any) -> Value:
            given = [frame.ex.resolve(o) for o in (left, right)]
            if all(isinstance(o, Const) or (isinstance(o, Object) and o.kind is terms.ArrayTerm) for o in given):
                arrays = [load_attribute(frame, o, "array") if isinstance(o, Object) else o for o in given]
                return term(frame, call(frame, frame.ex.wrap(ufunc, Trusted(ufunc, ufunc.__name__)), arrays, {}))
            function = frame.ex.wrap(in_python, Trusted(in_python, in_python.__qualname__))
            assert isinstance(function, Function)
            return follow(frame, function, [left, right], {})

        return operator

    for name, ufunc in {"__add__": np.add, "__sub__": np.subtract, "__mul__": np.multiply, "__truediv__": np.divide}.items():
        in_python = vars(terms.ArrayTerm)[name]
        meaning(in_python)(means(in_python, ufunc))


@package("dynagraph.torch.core.nodes")
def _register_nodes() -> None:
    nodes: Any = sys.modules["dynagraph.torch.core.nodes"]
    terms: Any = sys.modules["dynagraph.torch.core.terms"]
    operand_in_python, result_in_python, pull_in_python = nodes.Node.operand, nodes.Node.result, nodes.Node.pull

    def in_python(frame: Frame, function: Any, *args: Any) -> Value:
        followed = frame.ex.wrap(function, Trusted(function, function.__qualname__))
        assert isinstance(followed, Function)
        return follow(frame, followed, [*args], {})

    def own(frame: Frame, name: str) -> Any:
        return load_global(frame.ex, vars(nodes), name)

    def saved_term(frame: Frame, node: Any, entry: Any, metas: str, k: int) -> Value | None:
        """What was saved as a term; None where that takes more than a look at it."""
        if is_none(entry):
            meta = items_of(frame, load_attribute(frame, node, metas))[k]
            shape, dtype = items_of(frame, meta)
            known = known_at_capture(frame, dtype)
            if known is UNKNOWN or known.itemsize == 2:
                return None
            frame.ex.guards.unmodified(terms.Unsaved)
            return Object(terms.Unsaved, fields={"_shape": shape, "_dtype": dtype})
        if not (isinstance(entry, Sequence) and entry.kind is tuple):
            return None
        array = saved_array(frame, entry)
        return None if array is None else term_of(frame, array)

    def saved_array(frame: Frame, entry: Sequence) -> Array | None:
        if len(entry.items) == 2:
            tensor, version = entry.items
            array, storage = (frame.ex.resolve(load_attribute(frame, tensor, name)) for name in ("_array", "_storage"))
        else:
            array, storage, version = (frame.ex.resolve(item) for item in entry.items)
        if not isinstance(array, Array) or array.node.dtype.itemsize == 2:
            return None
        if is_none(storage) or truth(frame, binary(frame, "==", load_attribute(frame, storage, "version"), version)):
            return array
        return None

    def term_of(frame: Frame, array: Any) -> Value:
        return call(frame, own(frame, "ArrayTerm"), [array], {})

    @meaning(operand_in_python)
    def operand(frame: Frame, node: Any, k: Any) -> Value:
        saved, number = frame.ex.resolve(load_attribute(frame, node, "saved")), known_at_capture(frame, k)
        found = None
        if isinstance(saved, Sequence) and type(number) is int:
            entry = frame.ex.resolve(saved.items[number]) if saved.items else NONE
            found = saved_term(frame, node, entry, "metas", number)
        return in_python(frame, operand_in_python, node, k) if found is None else found

    @meaning(result_in_python)
    def result(frame: Frame, node: Any, k: Any) -> Value:
        saved, number = frame.ex.resolve(load_attribute(frame, node, "saved_out")), known_at_capture(frame, k)
        found = None
        if isinstance(saved, Dict) and saved.source is None and type(number) is int:
            entry = frame.ex.resolve(saved.items.get(number, NONE))
            found = saved_term(frame, node, entry, "output_metas", number)
        return in_python(frame, result_in_python, node, k) if found is None else found

    @meaning(pull_in_python)
    def pull(frame: Frame, node: Any, grads: Any) -> Value:
        primitive, given = known_at_capture(frame, load_attribute(frame, node, "primitive")), frame.ex.resolve(grads)
        edges, metas = (frame.ex.resolve(load_attribute(frame, node, name)) for name in ("edges", "metas"))
        known = primitive is not UNKNOWN and all(isinstance(v, Sequence) for v in (given, edges, metas))
        arrays = [frame.ex.resolve(item) for item in given.items] if known else []
        is_plain = [isinstance(a, Array) and a.node.dtype.itemsize != 2 for a in arrays]
        if not known or not all(p or (is_none(a) and primitive.outputs > 1) for a, p in zip(arrays, is_plain)):
            return in_python(frame, pull_in_python, node, grads)

        needed = [not is_none(frame.ex.resolve(edge)) for edge in edges.items]

        def gradients() -> list[Any]:
            def computed(function: Any) -> Value:
                return call(frame, frame.ex.wrap(function, Trusted(function, primitive.name)), [node, g], {})

            by_output = [term_of(frame, array) if p else NONE for array, p in zip(arrays, is_plain)]
            g: Any = by_output[0] if primitive.outputs == 1 else Sequence(tuple, by_output)
            pulled = None if primitive.vjps is not None else items_of(frame, computed(primitive.vjp))
            found: list[Any] = [NONE] * len(needed)
            for k, is_needed in enumerate(needed):
                if is_needed:
                    term = frame.ex.resolve(computed(primitive.vjps[k]) if pulled is None else pulled[k])
                    found[k] = term if is_none(term) else fitted(frame, term, metas.items[k])
            return found

        about, saved = asked_of_node(frame, node, primitive)
        return Sequence(list, repeated(frame, None if about is None else (about, tuple(needed)), [*arrays, *saved], gradients))

    def asked_of_node(frame: Frame, node: Any, primitive: Any) -> tuple[Any, list[Any]]:
        """What a gradient can ask a node for, as a key, and the arrays that it has saved; a key of None: that is not known."""
        owner = frame.ex.resolve(node)
        functions = (primitive.vjp,) if primitive.vjps is None else primitive.vjps
        if owner.source is not None or not all(map(is_written_here, functions)):
            return None, []
        names = ("attrs", "metas", "output_metas", "saved", "saved_out")
        *about, saved, results = (frame.ex.resolve(load_attribute(frame, node, name)) for name in names)
        known = [known_part(each if isinstance(each, Dict) else Sequence(tuple, each.items)) for each in about]
        of_results = {} if is_none(results) else results.items if isinstance(results, Dict) and results.source is None else None
        if None in known or not isinstance(saved, Sequence) or of_results is None:
            return None, []
        entries = [(k, entry) for k, entry in enumerate(saved.items) if not is_none(entry)]
        entries += [(~k, entry) for k, entry in of_results.items()]
        arrays: list[Any] = []
        for _, entry in entries:
            array = saved_array(frame, entry) if isinstance(entry, Sequence) and entry.kind is tuple else None
            if array is None:
                return None, []
            arrays.append(array)
        return ("gradients", primitive, tuple(known), tuple(k for k, _ in entries)), arrays

    def fitted(frame: Frame, term: Any, meta: Any) -> Value:
        array, wanted = frame.ex.resolve(load_attribute(frame, term, "array")), items_of(frame, meta)
        if isinstance(array, Array) and not array.is_scalar:
            fits = True
            for name, value in zip(("shape", "dtype"), wanted):
                pair = [known_at_capture(frame, v) for v in (load_attribute(frame, array, name), value)]
                fits = fits and not any(v is UNKNOWN for v in pair) and pair[0] == pair[1]
            if fits:
                return array
        return call(frame, own(frame, "fitted"), [array, *wanted], {})


@package("dynagraph.torch.functions.arithmetic")
def _register_arithmetic() -> None:
    arithmetic: Any = sys.modules["dynagraph.torch.functions.arithmetic"]
    tensors: Any = sys.modules["dynagraph.torch.core.tensor"]
    two_in_python, apply = arithmetic._two, tensors.apply

    @meaning(two_in_python)
    def two(frame: Frame, p: Any, who: Any, input: Any, other: Any) -> Value:
        given = [frame.ex.resolve(input), frame.ex.resolve(other)]
        if frame.ex.library is NUMPY and is_plain_tensor(given[0]):
            arrays: list[Any] = [load_attribute(frame, o, "_array") if is_plain_tensor(o) else o for o in given]
            if all(isinstance(a, Array) for a in arrays):
                at_once = arrays[0].node.dtype is arrays[1].node.dtype and broadcast(*(a.node.shape for a in arrays))
            else:
                number = type(arrays[1].value) if isinstance(arrays[1], Const) else None
                at_once = isinstance(arrays[0], Array) and number in (int, float) and arrays[0].node.dtype.numpy.kind == "f"
                at_once = at_once and arrays[0].node.dtype.itemsize > 2
            if at_once:
                return call(frame, frame.ex.wrap(apply, Trusted(apply, "apply")), [p, *given], {})
        function = frame.ex.wrap(two_in_python, Trusted(two_in_python, "_two"))
        assert isinstance(function, Function)
        return follow(frame, function, [p, who, input, other], {})

    def is_plain_tensor(value: Any) -> bool:
        return isinstance(value, Object) and value.kind is tensors.Tensor


def is_written_here(function: Any) -> bool:
    """Whether it is a Python function of dynagraph.torch's, or of the op table's."""
    return isinstance(function, types.FunctionType) and is_own(function.__globals__)


def broadcast(left: Shape, right: Shape) -> bool:
    """Whether shapes that are known broadcast."""
    known = all(type(d) is int for d in (*left, *right))
    return known and all(a == b or 1 in (a, b) for a, b in zip(reversed(left), reversed(right)))


def is_none(value: Any) -> bool:
    return isinstance(value, Const) and value.value is None


__all__: list[str] = []
