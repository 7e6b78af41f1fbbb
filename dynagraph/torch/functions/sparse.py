"""Sparse tensors in coordinates (COO) and in compressed rows (CSR): what they are, turned into one another, shown.

A sparse tensor holds places, which have no gradient, and values: a strided tensor that autograd follows.  The gradient by a sparse
tensor is that by its values, at its places.  How they are
made is in `sparse_creation.py`, what is computed with them in `sparse_ops.py` and `sparse_shapes.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.markers import is_compiling
from dynagraph.torch.core.arrays import library_of_array
from dynagraph.torch.core.dtypes import Size
from dynagraph.torch.core.dtypes import dtype as DType
from dynagraph.torch.core.layouts import layout, sparse_coo, sparse_csr, strided
from dynagraph.torch.core.primitives import PRIMITIVES, define
from dynagraph.torch.core.tensor import Tensor, apply, wrap
from dynagraph.torch.functions.common import dim_of
from dynagraph.torch.functions.conversion import to_device
from dynagraph.torch.functions.indexing import getitem
from dynagraph.torch.functions.joining import cat
from dynagraph.torch.functions.selection import INDEX_SELECT
from dynagraph.torch.functions.shapes import reshape
from dynagraph.torch.functions.sparse_texts import LAYOUT_NAMES, text_of
from dynagraph.torch.functions.ternary import where

_INT64 = np.dtype(np.int64)
_NOTHING = {False: -0.0, True: complex(-0.0, -0.0)}  # x + -0.0 has the bits of x, whatever it is; by whether it is complex
_ALIAS = PRIMITIVES["alias"].forward
VALUES = define("sparse_values", _ALIAS, (lambda d, g: g,), ("",), backward="ValuesBackward0", is_view=True)
ADD_AT = PRIMITIVES["index_add_zeros"]


def taken(x: Tensor, places: Any) -> Tensor:
    """Rows of a tensor by an array of places."""
    return apply(INDEX_SELECT, x, wrap(places), dim=0)


def added(x: Tensor, places: Any, count: int) -> Tensor:
    """Rows added up at places of `count` rows of zeros."""
    return apply(ADD_AT, x, wrap(places), shape=(count, *x._array.shape[1:]), dim=0)


def strides_of(shape: tuple[int, ...]) -> np.ndarray:
    """How many elements lie between neighbours along each dimension, in order."""
    return np.cumprod((1, *shape[:0:-1]), dtype=np.int64)[::-1].copy() if shape else np.zeros(0, np.int64)


class SparseTensor(Tensor):
    """What sparse tensors of both layouts share."""

    __slots__ = ("_all", "_size")
    _all: Tensor  # the values, and in captured code others that do not count
    _size: tuple[int, ...]
    layout: Any = strided
    is_sparse, is_sparse_csr = False, False

    # -- what others must not ask for --
    @property
    def _array(self) -> Any:  # type: ignore[override]
        raise NotImplementedError(
            f"Could not run the operation with a tensor of layout {self.layout}: it is there for strided tensors only; call "
            "to_dense() first"
        )

    @property
    def _storage(self) -> Any:  # type: ignore[override]
        raise NotImplementedError(f"Cannot access storage of a tensor of layout {self.layout}")

    @property
    def _held(self) -> Tensor:
        """The values."""
        return self._all

    @_held.setter
    def _held(self, values: Tensor) -> None:
        self._all = values

    # -- autograd: by the values --
    _grad_fn = property(lambda self: self._all.grad_fn)
    _requires_grad = property(lambda self: self._all.requires_grad)
    grad_fn = property(lambda self: self._all.grad_fn)
    is_leaf = property(lambda self: self._all.is_leaf)
    _version = property(lambda self: self._all._version)
    retains_grad = property(lambda self: self._all.retains_grad)

    @property
    def requires_grad(self) -> bool:
        return self._all.requires_grad

    @requires_grad.setter
    def requires_grad(self, on: bool) -> None:
        self._held.requires_grad = on

    @property
    def grad(self) -> Any:
        """The gradient, of this tensor's places."""
        found = self._held._grad
        return None if found is None else self._gradient(found)

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is not None:
            if not isinstance(value, SparseTensor) or value._size != self._size:
                raise RuntimeError("assigned grad must be a sparse tensor of the same size, or None")
            value = value._held
        self._held.grad = value

    @grad.deleter
    def grad(self) -> None:
        self._held.grad = None

    def _gradient(self, values: Tensor) -> Any:
        return self._like(values)

    def _like(self, values: Tensor) -> Any:
        """The same places with other values."""
        raise NotImplementedError

    def _with(self, values: Tensor) -> Any:
        """The same places with other values for all that `_all` holds."""
        return self._like(values)

    def _parts(self) -> tuple[Tensor, ...]:
        """The tensors of places."""
        raise NotImplementedError

    def _all_parts(self) -> tuple[Tensor, ...]:
        """The same for all that `_all` holds."""
        return self._parts()

    def register_hook(self, hook: Callable[[Any], Any]) -> Any:
        """Call ``hook(grad)`` when the gradient by this tensor has been computed."""

        def by_values(values: Tensor) -> Any:
            result = hook(self._like(values))
            return None if result is None else result._held

        return self._held.register_hook(by_values)

    def retain_grad(self) -> None:
        """Keep the gradient of a tensor that is no leaf in `grad`."""
        self._held.retain_grad()

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Set whether operations on this leaf are recorded."""
        self._held.requires_grad = requires_grad
        return self

    def detach(self) -> Any:
        """The same memory, without history."""
        return self._with(self._all.detach())

    data = property(detach)

    def detach_(self) -> Any:
        """Make it a leaf that requires no gradient."""
        self._held = self._held.detach()
        return self

    # -- what it is --
    shape = property(lambda self: Size(self._size))
    ndim = property(lambda self: len(self._size))
    dtype = property(lambda self: self._all.dtype)
    device = property(lambda self: self._all.device)
    is_cuda = property(lambda self: self._all.is_cuda)
    is_cpu = property(lambda self: self._all.is_cpu)
    T = property(lambda self: self.t())
    mT = property(lambda self: self.transpose(-2, -1))

    def size(self, dim: int | None = None) -> Any:
        """The sizes, or that of one dimension."""
        return Size(self._size) if dim is None else self._size[dim_of(dim, len(self._size))]

    def dim(self) -> int:
        """How many dimensions there are."""
        return len(self._size)

    ndimension = dim

    def numel(self) -> int:
        """How many elements there would be if it were dense."""
        return math.prod(self._size)

    nelement = numel

    def __len__(self) -> int:
        if not self._size:
            raise TypeError("len() of a 0-d tensor")
        return self._size[0]

    def _nnz(self) -> int:
        """How many values there are."""
        return int(self._held.shape[0])

    def _values(self) -> Tensor:
        """The values as they are, without history."""
        return self._held.detach()

    def is_contiguous(self, *, memory_format: Any = None) -> bool:
        """False."""
        return False

    def is_floating_point(self) -> bool:
        """Whether its dtype is one of floating point."""
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        """Whether its dtype is complex."""
        return self.dtype.is_complex

    def get_device(self) -> int:
        """The number of its GPU; -1 in the host's memory."""
        return self._held.get_device()

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The name of its type, or the tensor as another."""
        if dtype is None:
            return self._held.type().replace("torch.", "torch.sparse.").replace("sparse.cuda", "cuda.sparse")
        return self._mapped(lambda v: v.type(dtype))

    def numpy(self, *, force: bool = False) -> Any:
        """Refused."""
        raise TypeError(f"can't convert {LAYOUT_NAMES[self.layout]} layout tensor to numpy. Use Tensor.to_dense() first.")

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.numpy()

    def item(self) -> Any:
        """The only element as a Python number."""
        if self.numel() != 1:
            raise RuntimeError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
        return self.to_dense().item()

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
        return bool(self.item())

    # -- others of the same places --
    def _mapped(self, change: Callable[[Tensor], Tensor]) -> Any:
        """Of changed values, which may lie on another device; itself where they are the same."""
        values = change(self._all)
        return self if values is self._all else self._with(values)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """As another dtype, or on another device; the tensor itself where it has both."""
        return self._mapped(lambda v: v.to(*args, **kwargs))

    def cpu(self, memory_format: Any = None) -> Any:
        """In the host's memory."""
        return self._mapped(lambda v: v.cpu())

    def cuda(self, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Any:
        """On a GPU."""
        return self._mapped(lambda v: v.cuda(device))

    def clone(self, *, memory_format: Any = None) -> Any:
        """A copy, also of the places."""
        made = self._with(self._all.clone())
        return made._placed(tuple(p.clone() for p in self._all_parts()))

    def _placed(self, parts: tuple[Tensor, ...]) -> Any:
        raise NotImplementedError

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        found = memo.get(id(self))
        if found is None:
            if not self.is_leaf:
                raise RuntimeError(
                    "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment."
                )
            found = memo[id(self)] = self.detach().clone().requires_grad_(self.requires_grad)
        return found

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return text_of(self)

    __str__ = __repr__


def _casting(name: str) -> Callable[..., Any]:
    cast = getattr(Tensor, name)
    return lambda self, memory_format=None: self._mapped(cast)


for _name in ("float", "double", "half", "bfloat16", "int", "long", "short", "char", "byte", "bool", "cfloat", "cdouble"):
    setattr(SparseTensor, _name, _casting(_name))


class COOTensor(SparseTensor):
    """A tensor of values at coordinates: the columns of `_places`.  Several values may have one place: they count added up.

    How many values there are may be data.  Captured code then holds more (`_all`, `_all_places`) and a mask of those that count
    (`_counts`, else None); the others' places are any.  Whoever asks for `_held` or `_places` has them chosen, which captured code
    leaves to Python.
    """

    __slots__ = ("_all_places", "_counts", "_is_coalesced")
    _all_places: Tensor
    _counts: Any
    _is_coalesced: bool
    layout = sparse_coo
    is_sparse = True

    @property
    def _held(self) -> Tensor:  # type: ignore[override]
        if self._counts is not None:
            self.choose()
        return self._all

    @_held.setter
    def _held(self, values: Tensor) -> None:
        self._all = values

    @property
    def _places(self) -> Tensor:
        if self._counts is not None:
            self.choose()
        return self._all_places

    def choose(self) -> None:
        """Keep the values that count alone."""
        if self._counts is not None:
            values = getitem(self._all, wrap(self._counts))  # here captures break
            self._all, self._all_places = values, wrap(self._all_places._array[:, self._counts])
            self._counts = None
            self._is_coalesced = self._is_coalesced or values._array.shape[0] < 2

    def _parts(self) -> tuple[Tensor, ...]:
        return (self._places,)

    def _all_parts(self) -> tuple[Tensor, ...]:
        return (self._all_places,)

    def _like(self, values: Tensor) -> COOTensor:
        return coo(to_device(self._places, values.device), values, self._size, self._is_coalesced)

    def _with(self, values: Tensor) -> COOTensor:
        return coo(to_device(self._all_places, values.device), values, self._size, self._is_coalesced, self._counts)

    def _placed(self, parts: tuple[Tensor, ...]) -> COOTensor:
        (self._all_places,) = parts
        return self

    def _gradient(self, values: Tensor) -> COOTensor:
        if self._is_coalesced:
            return self._like(values)
        flat, first = np.unique(self.flat_places(), return_index=True)  # values at one place have one gradient
        return coo(wrap(coordinates(flat, self.sparse_sizes())), taken(values, first), self._size, False)

    # -- as gradients --
    def joined_with(self, other: COOTensor) -> COOTensor:
        """The sum with another tensor: the places of both, one after another."""
        if self.sparse_dim() != other.sparse_dim():
            raise RuntimeError("add: expected 'self' and 'other' to have same number of sparse dimensions")
        places = wrap(np.concatenate((self._all_places._array, other._all_places._array), 1))
        counts = None
        if self._counts is not None or other._counts is not None:
            counts = np.concatenate((self._which_count(), other._which_count()))
        return coo(places, cat([self._all, other._all]), self._size, False, counts)

    def detached_copy(self) -> COOTensor:
        """The same places and values in memory of its own, without history."""
        values, places = (wrap(np.array(t._array)) for t in (self._all, self._all_places))
        return coo(places, values, self._size, False, self._counts)

    def become(self, other: COOTensor) -> COOTensor:
        """Take the places and values of another tensor."""
        self._all, self._size, self._all_places = other._all, other._size, other._all_places
        self._is_coalesced, self._counts = other._is_coalesced, other._counts
        return self

    # -- parts --
    def sparse_dim(self) -> int:
        """How many dimensions the coordinates have."""
        return int(self._all_places.shape[0])

    def dense_dim(self) -> int:
        """How many dimensions the values have behind the first."""
        return len(self._size) - self.sparse_dim()

    _dimI, _dimV = sparse_dim, dense_dim

    def sparse_sizes(self) -> tuple[int, ...]:
        """The sizes of the dimensions that coordinates have."""
        return self._size[: self.sparse_dim()]

    def flat_places(self) -> Any:
        """The coordinates as one number each, as an array."""
        return self._flat(self._places._array)

    def all_flat_places(self, otherwise: int) -> Any:
        """As `flat_places`, and `otherwise` for values that do not count."""
        flat = self._flat(self._all_places._array)
        return flat if self._counts is None else np.where(self._counts, flat, otherwise)

    def all_or_nothing(self) -> Tensor:
        """All values, of which those that do not count change nothing where they are added."""
        if self._counts is None:
            return self._all
        mask = wrap(self._counts.reshape((-1,) + (1,) * (self._all.dim() - 1)))
        return where(mask, self._all, _NOTHING[self.is_complex()])

    def _flat(self, places: Any) -> Any:
        if not places.shape[0]:
            return np.zeros(places.shape[1], _INT64)
        if places.shape[0] == 1:
            return places[0]
        return strides_of(self.sparse_sizes()) @ places

    def _which_count(self) -> Any:
        values = self._all._array
        return library_of_array(values).ones(values.shape[:1], bool) if self._counts is None else self._counts

    def is_coalesced(self) -> bool:
        """Whether it is known that places are in order and none occurs twice."""
        if not self._is_coalesced:
            self.choose()
        return self._is_coalesced

    def _coalesced_(self, coalesced: bool) -> COOTensor:
        self._is_coalesced = coalesced
        return self

    def _check_coalesced(self, what: str) -> None:
        if not self._is_coalesced:
            raise RuntimeError(f"Cannot get {what} on an uncoalesced tensor, please call .coalesce() first")

    def indices(self) -> Tensor:
        """The coordinates of a coalesced tensor: a row for each dimension."""
        self._check_coalesced("indices")
        return self._places.detach()

    def values(self) -> Tensor:
        """The values of a coalesced tensor."""
        self._check_coalesced("values")
        return _alias(VALUES, self._held)

    def _indices(self) -> Tensor:
        return self._places.detach()

    def coalesce(self) -> COOTensor:
        """With the values of each place added up, in order of the places; itself where it is so."""
        if self._is_coalesced:
            return self
        if is_compiling() and not self._all.requires_grad:
            return self._coalesced_in_capture()
        flat = self.flat_places()
        if len(flat) < 2:
            return coo(self._places, self._held, self._size, True)
        unique, back = np.unique(flat, return_inverse=True)
        places = wrap(coordinates(unique, self.sparse_sizes()))
        return coo(places, added(self._held, back.reshape(-1), len(unique)), self._size, True)

    def _coalesced_in_capture(self) -> COOTensor:
        """The places in order, each as often as it was given; the first of each counts, and has the values of all added up."""
        sizes = self.sparse_sizes()
        end = math.prod(sizes)
        given = self.all_flat_places(end)  # those that do not count come last
        flat = np.sort(given)
        counts = library_of_array(flat).ones(flat.shape, bool)
        counts[1:] = flat[1:] != flat[:-1]
        sums = added(self._all, np.searchsorted(flat, given), len(flat))
        if self._counts is not None:
            counts, flat = np.logical_and(counts, flat < end), np.minimum(flat, max(end - 1, 0))
        return coo(wrap(coordinates(flat, sizes)), sums, self._size, True, counts)

    # -- other layouts --
    def to_dense(self, dtype: DType | None = None, *, masked_grad: bool | None = None) -> Tensor:
        """As a strided tensor."""
        x = self._held if dtype is None else self._held.to(dtype)
        if not self.sparse_dim():
            return apply(ADD_AT, x, wrap(np.zeros(self._nnz(), _INT64)), shape=(1, *x._array.shape[1:]), dim=0).select(0, 0)
        return reshape(added(x, self.flat_places(), math.prod(self.sparse_sizes())), self._size)

    def to_sparse(self, sparse_dim: Any = None, *, layout: Any = None, blocksize: Any = None, dense_dim: Any = None) -> Any:
        """Itself, or in compressed rows."""
        if isinstance(sparse_dim, int) and sparse_dim != self.sparse_dim():
            raise RuntimeError(
                "to_sparse: conversion from Sparse to Sparse with sparse_dim argument !=self.sparse_dim() is not supported"
            )
        return self.to_sparse_csr() if layout_asked(sparse_dim, layout) is sparse_csr else self

    def to_sparse_coo(self) -> COOTensor:
        """Itself."""
        return self

    def to_sparse_csr(self, dense_dim: int | None = None) -> CSRTensor:
        """In compressed rows: of matrices."""
        if len(self._size) != 2 or self.sparse_dim() != 2:
            raise RuntimeError(f"to_sparse_csr: expected a matrix, got a tensor of {len(self._size)} dimensions")
        x = self.coalesce()
        rows, columns = x._places._array
        return csr(_compressed(rows, self._size[0]), wrap(columns.copy()), x._held, self._size)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _remake_coo, (self._places, self._held.detach(), self._size, self._is_coalesced, self.requires_grad)


class CSRTensor(SparseTensor):
    """A matrix in compressed rows: row k has the values from place ``crow[k]`` to ``crow[k + 1]``, in the columns `_columns`."""

    __slots__ = ("_columns", "_starts")
    _starts: Tensor
    _columns: Tensor
    layout = sparse_csr
    is_sparse_csr = True

    def _parts(self) -> tuple[Tensor, ...]:
        return self._starts, self._columns

    def _like(self, values: Tensor) -> CSRTensor:
        starts, columns = (to_device(p, values.device) for p in self._parts())
        return csr(starts, columns, values, self._size)

    def _placed(self, parts: tuple[Tensor, ...]) -> CSRTensor:
        self._starts, self._columns = parts
        return self

    def become(self, other: CSRTensor) -> CSRTensor:
        """Take the places and values of another matrix."""
        self._held, self._size, self._starts, self._columns = other._held, other._size, other._starts, other._columns
        return self

    def crow_indices(self) -> Tensor:
        """Where rows begin among the values, and where the last ends."""
        return self._starts.detach()

    def col_indices(self) -> Tensor:
        """The columns of the values."""
        return self._columns.detach()

    def values(self) -> Tensor:
        """The values."""
        return _alias(VALUES, self._held)

    def sparse_dim(self) -> int:
        """2."""
        return 2

    def dense_dim(self) -> int:
        """0."""
        return 0

    def rows(self) -> Any:
        """The rows of the values, as an array."""
        starts = self._starts._array
        return np.repeat(np.arange(self._size[0], dtype=_INT64), np.diff(starts))

    def to_sparse(self, sparse_dim: Any = None, *, layout: Any = None, blocksize: Any = None, dense_dim: Any = None) -> Any:
        """In coordinates."""
        if layout_asked(sparse_dim, layout) is sparse_csr:
            return self
        places = np.stack((self.rows(), self._columns._array.astype(_INT64)))
        return coo(wrap(places), self._held, self._size, bool(_is_ascending(places, self._size)))

    def to_sparse_coo(self) -> COOTensor:
        """In coordinates."""
        return self.to_sparse()

    def to_sparse_csr(self, dense_dim: int | None = None) -> CSRTensor:
        """Itself."""
        return self

    def to_dense(self, dtype: DType | None = None, *, masked_grad: bool | None = None) -> Tensor:
        """As a strided tensor."""
        return self.to_sparse_coo().to_dense(dtype)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _remake_csr, (self._starts, self._columns, self._held.detach(), self._size, self.requires_grad)


def _is_ascending(places: Any, size: tuple[int, ...]) -> bool:
    return bool((np.diff(strides_of(size) @ places) > 0).all())


def coordinates(flat: Any, sizes: tuple[int, ...]) -> Any:
    """Flat places as rows of coordinates."""
    if not sizes:
        return np.zeros((0, len(flat)), _INT64)
    if len(sizes) == 1:
        return flat.reshape(1, -1)
    found = np.empty((len(sizes), len(flat)), _INT64)
    for k, (step, size) in enumerate(zip(strides_of(sizes), sizes)):
        found[k] = flat // step % max(size, 1)
    return found


def _compressed(rows: Any, count: int) -> Tensor:
    starts = np.zeros(count + 1, _INT64)
    np.cumsum(np.bincount(rows, minlength=count), out=starts[1:])
    return wrap(starts)


def _alias(primitive: Any, x: Tensor) -> Tensor:
    return apply(primitive, x) if x.requires_grad else x.detach()


def _fresh(cls: type, values: Tensor, size: tuple[int, ...]) -> Any:
    made: Any = object.__new__(cls)
    made._base = None
    made._all, made._size = values, tuple(size)
    return made


def coo(places: Tensor, values: Tensor, size: tuple[int, ...], is_coalesced: bool, counts: Any = None) -> COOTensor:
    """A tensor of parts that fit; `counts`: in captured code, a mask of the values that count."""
    made: COOTensor = _fresh(COOTensor, values, size)
    made._all_places, made._counts = places, counts
    made._is_coalesced = is_coalesced or (counts is None and values._array.shape[0] < 2)
    return made


def csr(starts: Tensor, columns: Tensor, values: Tensor, size: tuple[int, ...]) -> CSRTensor:
    """A matrix of parts that fit."""
    made: CSRTensor = _fresh(CSRTensor, values, size)
    made._starts, made._columns = starts, columns
    return made


def _remake_coo(places: Tensor, values: Tensor, size: Any, is_coalesced: bool, requires_grad: bool) -> COOTensor:
    return coo(places, values, size, is_coalesced).requires_grad_(requires_grad)


def _remake_csr(starts: Tensor, columns: Tensor, values: Tensor, size: Any, requires_grad: bool) -> CSRTensor:
    return csr(starts, columns, values, size).requires_grad_(requires_grad)


def layout_asked(sparse_dim: Any, asked: Any) -> Any:
    given = sparse_dim if isinstance(sparse_dim, layout) else asked
    if given not in (None, sparse_coo, sparse_csr):
        raise RuntimeError(f"to_sparse: conversion to {given} is not supported")
    return given


__all__ = [
    "LAYOUT_NAMES", "COOTensor", "CSRTensor", "SparseTensor", "added", "coo", "coordinates", "csr", "layout_asked", "strides_of",
    "taken",
]  # fmt: skip
