"""The Tensor, and how primitives are applied to tensors: the one place where operations are recorded.

A tensor holds an array (`_array`), which is a view of its storage's memory.  Results share nothing with one another but by views.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from dynagraph._core import _dispatch
from dynagraph.markers import is_compiling
from dynagraph.torch.core import batching, devices, dtypes, parts
from dynagraph.torch.core.arrays import library_of_array
from dynagraph.torch.core.batching import BatchedArray, Unbatchable, is_unbatchable
from dynagraph.torch.core.batching_loops import looped
from dynagraph.torch.core.dtypes import Size, dtype
from dynagraph.torch.core.grad_mode import mode, saved_hooks
from dynagraph.torch.core.large import LARGE, is_large, large
from dynagraph.torch.core.nodes import NUMBERS, Hooks, Node, Removable, changed, node_class, retain
from dynagraph.torch.core.primitives import Primitive, define, primitive
from dynagraph.torch.core.storage import Storage, address_of
from dynagraph.torch.core.terms import FORWARD

_new = object.__new__
_ndarray = np.ndarray
_LETTERS = {letter: k for k, letter in enumerate("xyzuvw")}

try:
    from numpy._core.umath import _extobj_contextvar as _error_state

    with np.errstate(all="ignore"):
        _IGNORED: Any = _error_state.get()
except ImportError:  # a NumPy that keeps it elsewhere: its context manager does the same, and costs a microsecond
    _error_state = None


def quiet(function: Callable[..., Any], arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """``function(*arrays, **attrs)``; tensors do not warn of what floating point arithmetic meets, as PyTorch's do not."""
    if is_compiling():  # captured code warns of nothing
        return function(*arrays, **attrs)
    if _error_state is None:
        with np.errstate(all="ignore"):
            return function(*arrays, **attrs)
    token = _error_state.set(_IGNORED)
    try:
        return function(*arrays, **attrs)
    except (Unbatchable, ValueError) as error:
        if not is_unbatchable(error):
            raise
        return looped(function, arrays, attrs)
    finally:
        _error_state.reset(token)


class _TensorMeta(type):
    """`isinstance` of torch.Tensor and of its kin by dtype (torch.FloatTensor)."""

    def __repr__(cls) -> str:
        return "<class 'torch.Tensor'>" if cls is Tensor else super().__repr__()


class Tensor(metaclass=_TensorMeta):
    """A multi-dimensional array of one dtype, which can record what is computed with it.

    >>> from dynagraph import torch
    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    tensor([2., 4.])
    """

    __slots__ = ("__dict__", "__weakref__", "_array", "_base", "_grad_fn", "_requires_grad", "_storage")
    __dynagraph_by_identity__ = True  # captured code may have it as a key without depending on which tensor it is

    _array: Any
    _base: Any  # of views: the tensor that all of them are of; None of others
    _grad_fn: Node | None
    _requires_grad: bool
    _storage: Storage

    # what few tensors have stands in their `__dict__`; these are what the others have
    _grad: Tensor | None = None
    _output_nr = 0
    _hooks: Hooks | None = None
    _accumulator: Any = None  # of leaves: a weak reference to the node
    # "multi 2": the third of several views; "multi": a view of one; "no_grad": made in no_grad; "inference"; or the error of writes
    _view_kind = ""
    _attr_version = 0  # of views: the storage's version that `_grad_fn` belongs to
    _inference = False
    _retains = False
    _is_buffer = False  # nn.Buffer: a module registers it where it is set as an attribute
    _is_divided = False  # a DTensor: ranks have parts of it
    _post_hooks: Hooks | None = None
    _first_size: tuple[int, int] | None = None  # of a packed sequence's batch sizes: the first one, and the version it is of
    __array_priority__ = 1000  # operators of NumPy arrays leave these to tensors
    __torch_function__: Any = None

    def __new__(cls, *args: Any, **kwargs: Any) -> Tensor:
        return _legacy(cls, *args, **kwargs)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    # -- what it is ---------------------------------------------------------------------------------------------------------
    @property
    def shape(self) -> Size:
        return Size(self._array.shape)

    @property
    def dtype(self) -> dtype:
        array_dtype = self._array.dtype
        return dtypes._OF_NUMPY.get(array_dtype) or dtypes.of_numpy(array_dtype)

    @property
    def device(self) -> devices.device:
        return devices.of_array(self._array)

    @property
    def ndim(self) -> int:
        return self._array.ndim

    @property
    def is_leaf(self) -> bool:
        return self.grad_fn is None

    @property
    def requires_grad(self) -> bool:
        base = self._base
        if self._requires_grad or base is None:
            return self._requires_grad
        return self._grad_fn is not None or (base._requires_grad and self._array.dtype.kind in "fcV")

    @requires_grad.setter
    def requires_grad(self, on: bool) -> None:
        if not isinstance(on, bool):
            raise RuntimeError("requires_grad must be a bool")
        if self._grad_fn is not None:
            if not on:
                raise RuntimeError(
                    "you can only change requires_grad flags of leaf variables. If you want to use a computed variable in a "
                    "subgraph that doesn't require differentiation use var_no_grad = var.detach()."
                )
            return
        if on and self._array.dtype.kind not in "fcV":
            raise RuntimeError("only Tensors of floating point and complex dtype can require gradients")
        if on and self._inference and not mode.inference:
            raise RuntimeError("Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.")
        self._requires_grad = on
        if on and self._grad is None:
            self._grad = None  # its own from now on, so that programs of a first training step serve the next one

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set whether operations on this leaf are recorded."""
        if requires_grad and self._array.dtype.kind not in "fcV":
            raise RuntimeError("only Tensors of floating point dtype can require gradients")
        self.requires_grad = requires_grad
        return self

    @property
    def grad_fn(self) -> Node | None:
        if self._base is not None:
            self._renew()
        return self._grad_fn

    def _renew(self) -> None:
        """A view whose memory was written to since: its value now comes from its base."""
        base, version = self._base, self._storage.version
        if self._attr_version == version or not (self._grad_fn is not None or base._requires_grad or base._grad_fn is not None):
            return
        if self._view_kind.startswith("multi"):
            raise RuntimeError(_multi_view(self, "its base or another view of its base has been modified inplace"))
        if self._view_kind == "no_grad":
            raise RuntimeError(_NO_GRAD_VIEW.format("its base or another view of its base has been modified inplace"))
        geometry = parts.geometry_of(self._array, base._array)
        self._attr_version = version
        take_history(self, record(AS_STRIDED, (base,), geometry, (self._array,), some=True), 0)
        self._requires_grad = self._grad_fn is not None

    @property
    def output_nr(self) -> int:
        return self._output_nr

    @property
    def grad(self) -> Tensor | None:
        """What `backward` accumulated here."""
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Tensor):
                raise TypeError(f"assigned grad expected to be a Tensor or None but got grad of type {type(value).__name__}")
            if value is self:
                raise RuntimeError("can't assign Variable as its own grad")
            dense = not value.is_sparse and not value.is_sparse_csr  # type: ignore[attr-defined]
            if (value._array.shape if dense else tuple(value.shape)) != self._array.shape:
                raise RuntimeError(
                    f"attempting to assign a gradient of size '{list(value.shape)}' to a tensor of size "
                    f"'{list(self._array.shape)}'. Please ensure that the gradient and the tensor are the same size"
                )
            if (value._array.dtype != self._array.dtype) if dense else (value.dtype is not self.dtype):
                raise RuntimeError(
                    f"attempting to assign a gradient with dtype '{value.dtype}' to a tensor with dtype '{self.dtype}'. "
                    "Please ensure that the gradient and the tensor have the same dtype"
                )
        self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self._grad = None

    @property
    def data(self) -> Tensor:
        """The same memory, without history; writes to it are not noticed by gradients."""
        made = wrap(self._array)
        made._storage = Storage(storage_of(self).array)
        return made

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(value).__name__}")
        self._array = value._array
        self._storage = Storage(storage_of(value).array)
        self._base = None

    @property
    def _version(self) -> int:
        if self._inference:
            raise RuntimeError("Inference tensors do not track version counter.")
        return self._storage.version

    def detach(self) -> Tensor:
        """The same memory, without history."""
        made = wrap(self._array)
        made._storage = storage_of(self)
        made._inference = self._inference
        return made

    def detach_(self) -> Tensor:
        """Make it a leaf that requires no gradient."""
        if self._base is not None:
            raise RuntimeError(
                "Can't detach views in-place. Use detach() instead. If you are using DistributedDataParallel (DDP) for training, "
                "and gradient_as_bucket_view is set as True, gradients are views of DDP buckets, and hence detach_() cannot be "
                "called on these gradients. To fix this error, please refer to the Optimizer.zero_grad() function in "
                "torch/optim/optimizer.py as a solution."
            )
        self._grad_fn, self._requires_grad, self._output_nr = None, False, 0
        return self

    def is_inference(self) -> bool:
        """Whether it was made in `inference_mode`."""
        return self._inference

    def _is_view(self) -> bool:
        return self._base is not None

    # -- hooks --------------------------------------------------------------------------------------------------------------
    def register_hook(self, hook: Callable[[Tensor], Any]) -> Removable:
        """Call ``hook(grad)`` when the gradient by this tensor has been computed; what it returns replaces it."""
        if not self.requires_grad:
            raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
        node = self.grad_fn
        if node is None:
            if self._hooks is None:
                self._hooks = Hooks()
            return self._hooks.put(hook)
        if node.output_hooks is None:
            node.output_hooks, node.hooked = {}, True
        return node.output_hooks.setdefault(self._output_nr, Hooks()).put(hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> Removable:
        """Call ``hook(self)`` after `grad` has grown."""
        if not self.requires_grad:
            raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
        if self.grad_fn is not None:
            raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
        if self._post_hooks is None:
            self._post_hooks = Hooks()
        return self._post_hooks.put(hook)

    def retain_grad(self) -> None:
        """Keep the gradient of a tensor that is no leaf in `grad`."""
        if not self.requires_grad:
            raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
        node = self.grad_fn
        if node is None or self._retains:
            return
        self._retains = True
        retain(node, self._output_nr, self)

    @property
    def retains_grad(self) -> bool:
        return self._retains


def _legacy(cls: type, *args: Any, **kwargs: Any) -> Tensor:
    """``torch.Tensor(2, 3)`` and ``torch.Tensor([1, 2])``; `functions/creation.py` says what it means."""
    raise NotImplementedError


def wrap(array: Any) -> Tensor:
    """A tensor of an array, without history."""
    made = _new(Tensor)
    made._array = array
    made._storage = Storage(array)
    made._base = made._grad_fn = None
    made._requires_grad = False
    return made


def made(array: Any) -> Tensor:
    """As `wrap`, of what NumPy gave, which may be a scalar; an inference tensor in inference mode."""
    tensor = _new(Tensor)
    tensor._array = array = array if type(array) is _ndarray else _as_array(array)
    tensor._storage = Storage(array)
    tensor._base = tensor._grad_fn = None
    tensor._requires_grad = False
    if mode.inference:
        tensor._inference = True
    return tensor


def _as_array(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, (np.ndarray, np.generic, bool, int, float, complex)) else value


def storage_of(tensor: Tensor) -> Storage:
    """The memory that a tensor lies in."""
    return tensor._storage


# -- recording --------------------------------------------------------------------------------------------------------


def apply(p: Primitive, *operands: Any, **attrs: Any) -> Any:
    """The result of a primitive of tensors and numbers: recorded where one of them requires a gradient.

    A tuple of tensors where the primitive has several outputs.
    """
    arrays = [o._array if isinstance(o, Tensor) else o for o in operands]
    out = quiet(_large_of(p) if not is_compiling() and is_large(tuple(arrays)) else p.forward, arrays, attrs)
    outs = (out,) if p.outputs == 1 else out
    result: Any = made(out) if p.outputs == 1 else tuple(map(made, out))
    if mode.grad:
        for operand in operands:
            if isinstance(operand, Tensor) and (operand._requires_grad or (operand._base is not None and operand.requires_grad)):
                node = record(p, operands, attrs, tuple(t._array for t in (result if p.outputs != 1 else (result,))))
                if node is not None:
                    _attach(node, p, result)
                break
    del outs
    return result


def _large_of(p: Primitive) -> Callable[..., Any]:
    """What computes a primitive of large arrays."""
    if p.large is None:
        p.large = p.forward if p.is_view else large(p.name, FORWARD[p.name])
    return p.large  # type: ignore[no-any-return]


def _attach(node: Node, p: Primitive, result: Any) -> None:
    if p.outputs == 1:
        result._grad_fn, result._requires_grad = node, True
        if node.saved_out:
            entry = node.saved_out[0]
            result._storage = entry.storage if type(entry) is Packed else entry[1]
        return
    for k, tensor in enumerate(result):
        if k in p.differentiable and tensor._array.dtype.kind in "fcV":
            tensor._grad_fn, tensor._requires_grad, tensor._output_nr = node, True, k
        if node.saved_out and k in node.saved_out:
            entry = node.saved_out[k]
            tensor._storage = entry.storage if type(entry) is Packed else entry[1]


def record(p: Primitive, operands: Sequence[Any], attrs: dict[str, Any], outs: Sequence[Any], some: bool = False) -> Node | None:
    """The node of an operation; None where no operand requires a gradient, and not `some`."""
    edges: list[Any] = []
    reads = ""
    per_operand = p.vjps is not None
    for k, operand in enumerate(operands):
        edge = edge_of(operand) if isinstance(operand, Tensor) else None
        edges.append(edge)
        if edge is not None:
            some = True
            if per_operand:
                reads += p.saves[k]
        elif isinstance(operand, Tensor) and operand._base is not None and operand.requires_grad:
            some = True  # a view made without recording: its gradient goes nowhere
    if not some or (outs[0].dtype.kind not in "fcV" and not any(o.dtype.kind in "fcV" for o in outs)):
        return None
    if not per_operand:
        reads = p.saves  # type: ignore[assignment]
    if type(outs[0]) is BatchedArray:
        edges = batching.spread_edges(p, operands, edges, outs[0])
    node: Node = _new(node_class(p))
    node.attrs = attrs
    node.edges = edges
    NUMBERS.last -= 1
    node.sequence = NUMBERS.last
    node.metas = [_meta(o, outs[0]) for o in operands]
    node.output_metas = [(a.shape, a.dtype) for a in outs]
    node.saved = ()
    node.saved_out = None
    if reads:
        _save(node, reads, operands, outs)
    if mode.anomaly:
        node.made_at = "".join(traceback.format_stack()[:-2])
    return node


def _meta(operand: Any, out: Any) -> tuple[tuple[int, ...], np.dtype]:
    if isinstance(operand, Tensor):
        array = operand._array
        return array.shape, array.dtype
    return np.shape(operand), out.dtype


def _save(node: Node, reads: str, operands: Sequence[Any], outs: Sequence[Any]) -> None:
    hooks = saved_hooks()
    saved: list[Any] = [None] * len(operands)
    for letter in reads:
        if letter in "*12":  # every operand; those from a number on
            for k in range(0 if letter == "*" else int(letter), len(operands)):
                saved[k] = _entry(operands[k], outs[0], hooks)
        elif letter in "opq":
            k = "opq".index(letter)
            if node.saved_out is None:
                node.saved_out = {}
            if k not in node.saved_out:
                storage = Storage(outs[k])
                entry: Any = (outs[k], storage, 0)
                node.saved_out[k] = Packed(wrap(outs[k]), hooks[-1], storage, k) if hooks else entry
        else:
            k = _LETTERS[letter]
            if saved[k] is None:
                saved[k] = _entry(operands[k], outs[0], hooks)
    node.saved = saved


def _entry(operand: Any, out: Any, hooks: Any) -> Any:
    if not isinstance(operand, Tensor):
        return library_of_array(out).asarray(operand, operand.dtype if isinstance(operand, _ndarray) else out.dtype), None, 0
    if operand._inference:
        raise RuntimeError(
            "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in computation "
            "tracked by autograd. To work around this, you can make a clone to get a normal tensor and use it in autograd, or use "
            "`torch.no_grad()` instead of `torch.inference_mode()`."
        )
    if hooks:
        return Packed(operand, hooks[-1], None, 0)
    return operand, operand._storage.version


class Packed:
    """What a pack hook of `saved_tensors_hooks` made of a saved tensor; it is unpacked when the gradient reads it."""

    __slots__ = ("edge", "packed", "storage", "unpack", "version")

    def __init__(self, tensor: Tensor, hooks: Any, storage: Storage | None, k: int):
        pack, self.unpack = hooks
        self.edge = edge_of(tensor) if storage is None else None
        self.storage, self.version = storage or tensor._storage, tensor._version
        with _no_grad():
            self.packed = pack(tensor)

    def tensor(self) -> Tensor:
        with _no_grad():
            found = self.unpack(self.packed)
        if not isinstance(found, Tensor):
            raise TypeError("Output of saved tensor unpack_hook expected to be a Tensor but got result of type " + str(type(found)))
        return found


class _no_grad:
    __slots__ = ("before",)

    def __enter__(self) -> None:
        self.before, mode.grad = mode.grad, False

    def __exit__(self, *_: Any) -> None:
        mode.grad = self.before


def _unpacked(self: Node, entry: Any) -> Any:
    """The array that was saved; RuntimeError where it has been written to since."""
    return unpacked_tensor(self, entry)._array if type(entry) is Packed else _checked(self, entry)


def _checked(node: Node, entry: Any) -> Any:
    if len(entry) == 2:
        tensor, version = entry
        storage = tensor._storage
        if storage.version != version:
            origin = tensor._grad_fn
            raise changed(_described(tensor._array, origin, tensor._output_nr), node, storage.version, version)
        return tensor._array
    array, storage, version = entry
    if storage is not None and storage.version != version:
        raise changed(_described(array, node, 0), node, storage.version, version)
    return array


def _described(array: Any, origin: Node | None, number: int) -> str:
    text = f"[torch.{dtypes.of_numpy(array.dtype).legacy} {list(array.shape)}]"
    return text if origin is None else f"{text}, which is output {number} of {origin.short_name()},"


def unpacked_tensor(node: Node, entry: Any, output: int | None = None) -> Tensor:
    """What was saved as a tensor with its history: for gradients that are recorded themselves."""
    if type(entry) is Packed:
        found = entry.tensor()
        if entry.edge is not None:
            again = wrap(found._array)
            origin, number = entry.edge
            if not isinstance(origin, Node):  # a leaf: by way of a node
                origin, number = record(primitive("alias"), (origin,), {}, (found._array,)), 0
            again._grad_fn, again._output_nr, again._requires_grad = origin, number, origin is not None
            return again
    elif len(entry) == 2:
        _checked(node, entry)
        return entry[0]
    else:
        found = wrap(_checked(node, entry))
        if entry[1] is not None:  # a number has a storage of its own
            found._storage = entry[1]
    if output is not None and found._array.dtype.kind in "fcV":  # places have no history
        again = wrap(found._array)
        again._storage = found._storage
        again._grad_fn, again._output_nr, again._requires_grad = node, output, True
        return again
    return found


Node.unpacked = _unpacked  # type: ignore[method-assign]


def edge_of(tensor: Tensor) -> tuple[Any, int] | None:
    """Where the gradient by a tensor goes: a node and the number of its output, or a leaf itself; None where it requires none."""
    node = tensor._grad_fn if tensor._base is None else tensor.grad_fn
    if node is not None:
        return node, tensor._output_nr
    return (tensor, 0) if tensor._requires_grad else None


# -- views ------------------------------------------------------------------------------------------------------------


def view(p: Primitive, x: Tensor, kind: str = "", **attrs: Any) -> Tensor:
    """The result of a primitive that shares its operand's memory."""
    return as_view(p, x, quiet(p.forward, (x._array,), attrs), attrs, kind)


def as_view(p: Primitive, x: Tensor, array: Any, attrs: dict[str, Any], kind: str = "") -> Tensor:
    """A tensor of an array that shares the memory of `x`, recorded as the primitive's result."""
    result = wrap(array if type(array) is _ndarray else _as_array(array))
    storage = result._storage = storage_of(x)
    result._base = base = x if x._base is None else x._base
    result._attr_version = storage.version
    if x._inference:
        result._inference = True
    if kind:
        result._view_kind = kind
    if mode.grad:
        if x._requires_grad or (x._base is not None and x.requires_grad):
            node = record(p, (x,), attrs, (result._array,))
            if node is not None:
                result._grad_fn, result._requires_grad = node, True
        if x._view_kind:
            result._view_kind = "multi" if x._view_kind.startswith("multi") else x._view_kind
    elif not kind:
        result._view_kind = "inference" if mode.inference else "no_grad"
    if base._requires_grad is False and base._grad_fn is None and result._grad_fn is None:
        result._requires_grad = False
    return result


_NO_GRAD_VIEW = (
    "A view was created in no_grad mode and {} with grad mode enabled. Given that this use case is ambiguous and error-prone, it "
    "is forbidden. You can clarify your code by moving both the view and the inplace either both inside the no_grad block (if you "
    "don't want the inplace to be tracked) or both outside (if you want the inplace to be tracked)."
)


def _multi_view(tensor: Tensor, what: str) -> str:
    name = "Split" if tensor._grad_fn is None else tensor._grad_fn.short_name()
    number = tensor._view_kind.partition(" ")[2] or tensor._output_nr  # pieces have a node each here
    return (
        f"Output {number} of {name} is a view and {what}. This view is the output of a function that returns multiple "
        "views. Such functions do not allow the output views to be modified inplace. You should replace the inplace operation by "
        "an out-of-place one."
    )


# -- writes in place --------------------------------------------------------------------------------------------------


def check_write(x: Tensor, overlap: bool = True, others: Iterable[Any] = ()) -> None:
    """RuntimeError where a tensor must not be written to by an operation of it and others."""
    if x._inference and not mode.inference:
        raise RuntimeError(
            "Inplace update to inference tensor outside InferenceMode is not allowed.You can make a clone to get a normal tensor "
            "before doing inplace update.See https://github.com/pytorch/rfcs/pull/17 for more details."
        )
    if mode.grad:
        base = x._base
        if base is None:
            if x._requires_grad and x._grad_fn is None:
                raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
        elif x.requires_grad or (x._view_kind and any(isinstance(o, Tensor) and o.requires_grad for o in others)):
            if x._view_kind.startswith("multi"):
                raise RuntimeError(_multi_view(x, "is being modified inplace"))
            if x._view_kind.startswith("Output"):  # a view that a Function gave
                raise RuntimeError(x._view_kind)
            if x._view_kind == "no_grad":
                raise RuntimeError(_NO_GRAD_VIEW.format("is being modified inplace"))
            if base._grad_fn is None and x.requires_grad:
                raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place operation.")
    if overlap:
        array = x._array
        for n, s in zip(array.shape, array.strides):
            if s == 0 and n > 1 and array.size:
                raise RuntimeError(
                    "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
                    "Please clone() the tensor before performing the operation."
                )


def check_overlap(x: Tensor, others: Iterable[Any], full: bool = False) -> None:
    """RuntimeError where what will be written to shares memory with an operand, but for the same elements (unless `full`)."""
    storage = x._storage
    for other in others:
        if isinstance(other, Tensor) and other._storage is storage and (other is not x or full):
            a, b = x._array, other._array
            if other is not x and not (a.size and b.size and is_dense(a) and is_dense(b)):
                continue
            if not full and address_of(a) == address_of(b) and _steps(a) == _steps(b):
                continue
            if other is x or np.may_share_memory(a, b):
                raise RuntimeError(
                    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory "
                    "location. Please clone() the tensor before performing the operation."
                )


def _steps(array: Any) -> list[tuple[int, int]]:
    return [(n, s) for n, s in zip(array.shape, array.strides) if n != 1]


def is_dense(array: Any) -> bool:
    """Whether elements fill their memory, each at a place of its own, in whatever order."""
    expected = array.itemsize
    for stride, n in sorted((s, n) for s, n in zip(array.strides, array.shape) if n != 1):
        if stride != expected:
            return False
        expected *= n
    return True


def operand_of_write(x: Tensor, others: Sequence[Any]) -> Tensor:
    """The tensor as an operand of an operation whose result will be written over it: what is recorded keeps the old values."""
    if not mode.grad:
        return x
    requires = x.requires_grad
    if not requires and not any(isinstance(o, Tensor) and o.requires_grad for o in others):
        return x
    alias = wrap(x._array.copy(order="K"))
    alias._requires_grad = requires
    alias._grad_fn, alias._output_nr = x.grad_fn, x._output_nr
    return alias


def write(x: Tensor, result: Tensor, where: Any = True) -> Tensor:
    """Store an operation's result in a tensor's memory, and take over its history.  `check_write` has been called.

    `where`: a mask of the elements that the operation has changed, where elements share memory.
    """
    array, values = x._array, result._array
    if values.shape != array.shape and np.broadcast_shapes(values.shape, array.shape) != array.shape:
        raise RuntimeError(f"output with shape {list(array.shape)} doesn't match the broadcast shape {list(values.shape)}")
    if values.dtype != array.dtype:
        check_cast(result.dtype, x.dtype)
        if result._requires_grad:
            result = apply(CAST, result, dtype=array.dtype)
    if array.size:
        attrs = {"casting": "unsafe"} if where is True else {"casting": "unsafe", "where": where}
        try:
            quiet(np.copyto, (array, values), attrs)
        except ValueError:
            if array.flags.writeable:
                raise
            array.flags.writeable = True  # a gradient that NumPy has broadcast
            quiet(np.copyto, (array, values), attrs)
    written(x)
    if mode.grad:
        if x._base is not None:
            _rebase(x, result)
        elif result._requires_grad:
            take_history(x, result._grad_fn, result._output_nr)
            node = result._grad_fn
            if node is not None and node.saved_out and not mode.hooked and result._output_nr in node.saved_out:
                storage = storage_of(x)
                node.saved_out[result._output_nr] = (array, storage, storage.version)
    return x


def take_history(x: Tensor, node: Node | None, number: int) -> None:
    """Make a tensor, whose value is a new one, the output of a node.

    A `grad` that is retained is that by the new value from now on; hooks stay with the old one.
    """
    old = x._grad_fn if x._retains else None
    if old is not None and node is not None and old.retainers and old.retainers.pop(x._output_nr, None) is not None:
        retain(node, number, x)
    x._grad_fn, x._output_nr, x._requires_grad = node, number, True


def check_cast(source: dtype, target: dtype) -> None:
    """RuntimeError where results of a dtype must not be written to tensors of another."""
    if not dtypes.can_cast(source, target):
        raise RuntimeError(
            f"result type {dtypes.scalar_name(source)} can't be cast to the desired output type {dtypes.scalar_name(target)}"
        )


def written(x: Tensor) -> None:
    """Count a write."""
    x._storage.version += 1


def _rebase(x: Tensor, result: Tensor) -> None:
    """The base of a view that was written to: its values come from what they were, and from what was stored in the view."""
    base = x._base
    if not (base._requires_grad or result._requires_grad):
        return
    node = record(COPY_SLICES, (base, result), parts.geometry_of(x._array, base._array), (base._array,))
    if node is None:
        return
    take_history(base, node, 0)
    x._attr_version = -1
    x.grad_fn  # noqa: B018  (renewed now, as the numbers of nodes say when they were made)


def _put_part(d: Any, g: Any) -> Any:
    return g.call("as_strided_backward", base_shape=d.x.shape, **d.attrs)


def _geometry_of(attrs: Any) -> dict[str, Any]:
    return {name: attrs[name] for name in ("shape", "strides", "offset", "base")}


AS_STRIDED = define("as_strided", parts.as_strided, (_put_part,), ("",), is_view=True)
define("as_strided_backward", parts.put_part, (lambda d, g: g.call("take_part", **_geometry_of(d.attrs)),), ("",))
define("zero_part", parts.zero_part, (lambda d, g: g.call("zero_part", **d.attrs),), ("",))
define("take_part", parts.take_part, (_put_part,), ("",))
COPY_SLICES = define(
    "copy_slices",
    None,  # the write itself has computed it
    (lambda d, g: g.call("zero_part", **d.attrs), lambda d, g: g.call("take_part", **d.attrs)),
    ("", ""),
    backward="CopySlices",
)


def _converted(x: Any, dtype: np.dtype) -> Any:
    """As another dtype, dense: in the order of the original's memory; what is repeated in memory is put in order."""
    return x.astype(dtype, order="C" if 0 in x.strides else "K")


CAST = define(
    "to_copy",
    lambda x, dtype: _converted(x.real if x.dtype.kind == "c" and dtype.kind != "c" else x, dtype),
    (lambda d, g: g,),
    ("",),
    backward="ToCopyBackward0",
)


if _error_state is not None:
    # what most operations are, in C; these functions in Python are for the rest, and for NumPy that keeps its error state elsewhere
    apply_in_python, made_in_python, wrap_in_python = apply, made, wrap
    apply, made, wrap = _dispatch.set_tensor_calls(
        Tensor, Storage, Node, Primitive, NUMBERS,
        {
            "apply": apply, "record": record, "attach": _attach, "edge_of": edge_of, "entry": _entry, "node_class": node_class,
            "as_array": _as_array, "large_of": _large_of, "large_size": LARGE, "error_state": _error_state, "ignored": _IGNORED,
        },
    )  # fmt: skip


def register(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function a method of Tensor."""

    def put(function: Callable[..., Any]) -> Callable[..., Any]:
        setattr(Tensor, name, function)
        return function

    return put


__all__ = [
    "AS_STRIDED", "CAST", "Packed", "Tensor", "apply", "as_view", "check_cast", "check_overlap", "check_write", "edge_of", "made",
    "operand_of_write", "quiet", "record", "register", "storage_of", "take_history", "unpacked_tensor",
    "view", "wrap", "write", "written",
]  # fmt: skip
