"""Between tensors, devices, dtypes, NumPy and Python."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

import dynagraph.cuda as dg_cuda
from dynagraph.cuda.memory import pinned_empty
from dynagraph.markers import is_compiling
from dynagraph.torch.core import devices, dtypes
from dynagraph.torch.core.arrays import put_beside
from dynagraph.torch.core.dtypes import dtype as DType
from dynagraph.torch.core.primitives import define
from dynagraph.torch.core.storage import address_of
from dynagraph.torch.core.tensor import Tensor, apply, check_overlap, check_write, operand_of_write, wrap, write, written
from dynagraph.torch.functions.common import NAMESPACES, NUMBERS, cast, check_broadcast, function
from dynagraph.torch.functions.pointwise_primitives import constant
from dynagraph.torch.functions.shapes import clone, contiguous, memory_format, preserve_format


def _back(d: Any, g: Any) -> Any:
    return g.call("to_device", device=d.attrs["source"], source=d.attrs["device"])


def _moved(x: Any, device: Any, source: Any) -> Any:
    if device.type == source.type == "cpu":  # "cpu:1" is another device by name, and what moves there is a copy
        return x.copy(order="K")
    return devices.place(x, device)


TO_DEVICE = define("to_device", _moved, (_back,), ("",), backward="ToCopyBackward0")


def to_device(x: Tensor, device: Any) -> Tensor:
    """On a device: the tensor itself where it is there."""
    if device is None:
        return x
    where = devices.device(device)
    here = x.device
    if where.type == here.type and where.index in (None, here.index):
        return x
    return apply(TO_DEVICE, x, device=where, source=here)


@function(namespace="")
def to(self: Tensor, *args: Any, dtype: Any = None, device: Any = None, non_blocking: bool = False, copy: bool = False,
       memory_format: memory_format = preserve_format) -> Tensor:  # fmt: skip
    """As another dtype, or on another device; the tensor itself where it has both."""
    for arg in args:
        if isinstance(arg, DType):
            dtype = arg
        elif isinstance(arg, Tensor):
            dtype, device = arg.dtype, arg.device
        elif isinstance(arg, bool):
            pass  # non_blocking, copy
        elif arg is not None:
            device = arg
    if len(args) >= 2 and isinstance(args[-1], bool):
        position = 2 if isinstance(args[0], (DType, Tensor)) else 3
        copy = copy or (len(args) > position and args[position]) or False
    x = to_device(self, device)
    if dtype is not None:
        if not isinstance(dtype, DType):
            raise TypeError(f"to(): argument 'dtype' must be torch.dtype, not {type(dtype).__name__}")
        x = cast(x, dtype)
    if memory_format is not preserve_format:
        x = contiguous(x, memory_format=memory_format)
    return clone(x) if copy and x is self else x


def _as_dtype(name: str, target: DType) -> None:
    def compute(self: Tensor, memory_format: Any = None) -> Tensor:
        return cast(self, target)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"As {target!r}; the tensor itself where it has it."
    setattr(Tensor, name, compute)


for _name, _target in (
    ("float", dtypes.float32), ("double", dtypes.float64), ("half", dtypes.float16), ("bfloat16", dtypes.bfloat16),
    ("int", dtypes.int32), ("long", dtypes.int64), ("short", dtypes.int16), ("char", dtypes.int8), ("byte", dtypes.uint8),
    ("bool", dtypes.bool), ("cfloat", dtypes.complex64), ("cdouble", dtypes.complex128),
):  # fmt: skip
    _as_dtype(_name, _target)


@function("type", namespace="")
def type_(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The name of the tensor's type, or the tensor as another."""
    if dtype is None:
        return f"torch.{'' if isinstance(self._array, np.ndarray) else 'cuda.'}{self.dtype.legacy}"
    if isinstance(dtype, str):
        is_cuda = dtype.startswith("torch.cuda.")
        for known in dtypes.ALL:
            if dtype.removeprefix("torch.").removeprefix("cuda.") == known.legacy:
                return cast(to_device(self, "cuda" if is_cuda else "cpu"), known)
        raise ValueError(f"invalid type: '{dtype}'")
    if isinstance(dtype, DType):
        return cast(self, dtype)
    return cast(to_device(self, "cuda" if dtype.is_cuda else "cpu"), dtype._legacy_dtype)


@function(namespace="")
def type_as(self: Tensor, other: Tensor) -> Tensor:
    """As another tensor's dtype."""
    return cast(self, other.dtype)


@function(namespace="")
def cpu(self: Tensor, memory_format: Any = None) -> Tensor:
    """In the host's memory."""
    return to_device(self, "cpu")


@function(namespace="")
def cuda(self: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Tensor:
    """On a GPU."""
    return to_device(self, "cuda" if device is None else device)


@function(namespace="")
def numpy(self: Tensor, *, force: bool = False) -> np.ndarray:
    """An array that shares the tensor's memory; with `force` a copy where that cannot be."""
    x = self
    if force:
        x = x.detach().cpu()  # type: ignore[attr-defined]
    if x.requires_grad:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
    if not isinstance(x._array, np.ndarray):
        raise TypeError(
            f"can't convert {x.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
        )
    if x._array.dtype.kind == "V":
        raise TypeError("Got unsupported ScalarType BFloat16")
    return x._array if is_compiling() or x._array.flags.writeable else _writeable(x._array)


def _writeable(array: np.ndarray) -> np.ndarray:
    """A view that can be written to, of an array that NumPy has made read-only (`np.diagonal`) over memory that is not."""
    view = array.view()
    with contextlib.suppress(ValueError):  # the memory is read-only
        view.flags.writeable = True
    return view if view.flags.writeable else array


def _array(self: Tensor, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    array = numpy(self)
    if dtype is not None and array.dtype != dtype:
        return array.astype(dtype)
    return array.copy() if copy else array


Tensor.__array__ = _array  # type: ignore[attr-defined]


def _array_wrap(self: Tensor, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
    return NAMESPACES["torch"]["from_numpy"](np.asarray(array))


Tensor.__array_wrap__ = _array_wrap  # type: ignore[attr-defined]


@function(namespace="")
def item(self: Tensor) -> Any:
    """The only element as a Python number."""
    if self._array.size != 1:
        raise RuntimeError(f"a Tensor with {self._array.size} elements cannot be converted to Scalar")
    value = self._array.item()
    return float(value) if self._array.dtype.kind == "V" else value


@function(namespace="")
def tolist(self: Tensor) -> Any:
    """The elements as nested lists of Python numbers."""
    array = self._array
    return array.astype(np.float32).tolist() if array.dtype.kind == "V" else array.tolist()


def _number(kind: type) -> Any:
    def convert(self: Tensor) -> Any:
        if self._array.size != 1:
            raise ValueError("only one element tensors can be converted to Python scalars")
        value = item(self)
        if isinstance(value, complex) and kind is not complex:
            if value.imag:
                raise RuntimeError(f"value cannot be converted to type {'double' if kind is float else 'int64_t'} without overflow")
            value = value.real
        return kind(value)

    return convert


Tensor.__int__ = _number(int)  # type: ignore[attr-defined]
Tensor.__float__ = _number(float)  # type: ignore[attr-defined]
Tensor.__complex__ = _number(complex)  # type: ignore[attr-defined]


def _bool(self: Tensor) -> bool:
    if self._array.size != 1:
        if self._array.size == 0:
            raise RuntimeError("Boolean value of Tensor with no values is ambiguous")
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
    return bool(self._array.item())


def _index(self: Tensor) -> int:
    if self._array.size != 1 or self._array.dtype.kind not in "iub":
        raise TypeError("only integer tensors of a single element can be converted to an index")
    return int(self._array.item())


def _length(self: Tensor) -> int:
    if not self._array.ndim:
        raise TypeError("len() of a 0-d tensor")
    return int(self._array.shape[0])


def _iterate(self: Tensor) -> Any:
    if not self._array.ndim:
        raise TypeError("iteration over a 0-d tensor")
    return iter(self.unbind(0))  # type: ignore[attr-defined]


def _contains(self: Tensor, element: Any) -> bool:
    if not isinstance(element, (Tensor, bool, int, float, complex)):
        raise RuntimeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}.")
    return bool((self == element)._array.any())


def _format(self: Tensor, spec: str) -> str:
    if not self._array.ndim:
        return format(item(self), spec)
    return object.__format__(self, spec)


for _name, _method in (
    ("__bool__", _bool), ("__index__", _index), ("__len__", _length), ("__iter__", _iterate), ("__contains__", _contains),
    ("__format__", _format),
):  # fmt: skip
    setattr(Tensor, _name, _method)


@function(namespace="")
def data_ptr(self: Tensor) -> int:
    """The address of the first element."""
    return address_of(self._array)


@function(namespace="")
def element_size(self: Tensor) -> int:
    """The bytes of an element."""
    return int(self._array.itemsize)


@function()
def is_floating_point(input: Tensor) -> bool:
    """Whether its dtype is one of floating point."""
    return input._array.dtype.kind in "fV"


@function()
def is_complex(input: Tensor) -> bool:
    """Whether its dtype is complex."""
    return input._array.dtype.kind == "c"


@function()
def is_signed(input: Tensor) -> bool:
    """Whether its dtype has negative numbers."""
    return input._array.dtype.kind in "ifcV"


@function()
def is_nonzero(input: Tensor) -> bool:
    """Whether its only element is not zero."""
    return _bool(input)


Tensor.nbytes = property(lambda self: self._array.nbytes)  # type: ignore[attr-defined]
Tensor.itemsize = property(lambda self: self._array.itemsize)  # type: ignore[attr-defined]
Tensor.is_cuda = property(lambda self: self.device.type == "cuda")  # type: ignore[attr-defined]
Tensor.is_cpu = property(lambda self: self.device.type == "cpu")  # type: ignore[attr-defined]
for _name in (
    "is_sparse", "is_quantized", "is_meta", "is_mkldnn", "is_mps", "is_sparse_csr", "is_nested", "is_xla", "is_xpu", "is_ipu",
):  # fmt: skip
    setattr(Tensor, _name, property(lambda self: False))


@function(namespace="")
def get_device(self: Tensor) -> int:
    """The number of its GPU; -1 in the host's memory."""
    where = self.device
    return -1 if where.type == "cpu" else where.index or 0


@function(namespace="")
def pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """A copy in page-locked memory, which GPUs read themselves; the tensor itself where it lies there, or there is no GPU."""
    if self.device.type != "cpu":
        raise RuntimeError(f"cannot pin '{self.type()}' only dense CPU tensors can be pinned")
    if not dg_cuda.is_available() or is_pinned(self):
        return self
    dtype = self._array.dtype  # bfloat16 is void to NumPy
    array = pinned_empty(self._array.shape, np.uint16 if dtype.kind == "V" else dtype).view(dtype)
    array[...] = self._array
    return wrap(array)


@function("is_pinned", namespace="")
def is_pinned(self: Tensor, device: Any = None) -> bool:
    """Whether the tensor lies in page-locked memory."""
    return self.device.type == "cpu" and dg_cuda.is_pinned(self._array)


# -- writes of whole tensors ------------------------------------------------------------------------------------------

COPY_ = define(
    "overwrite",
    lambda x, values: np.broadcast_to(put_beside(values, x), x.shape).astype(x.dtype),
    (constant, lambda d, g: g),
    ("", ""),
    backward="CopyBackwards",
)
FILL_ = define("fill", COPY_.forward, COPY_.vjps, ("", ""), backward="FillBackward0")
ZERO_ = define("zero", lambda x: np.zeros_like(x), (constant,), ("",), backward="ZeroBackward0")


@function(namespace="")
def copy_(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Store another tensor's elements here, broadcast and cast."""
    if isinstance(src, NUMBERS):
        src = wrap(put_beside(np.asarray(src), self._array))
    if not isinstance(src, Tensor):
        raise TypeError(f"copy_(): argument 'other' (position 1) must be Tensor, not {type(src).__name__}")
    check_write(self, overlap=src is not self, others=(src,) if self._array.dtype.kind in "fcV" else ())
    check_overlap(self, (src,))
    x = operand_of_write(self, (src,))
    values = cast(to_device(src, self.device), self.dtype)
    try:
        return write(self, apply(COPY_, x, values))
    except ValueError:
        check_broadcast(self, src)
        raise RuntimeError(
            f"output with shape {list(self._array.shape)} doesn't match the broadcast shape "
            f"{list(np.broadcast_shapes(self._array.shape, src._array.shape))}"
        ) from None


@function(namespace="")
def apply_(self: Tensor, callable: Any) -> Tensor:
    """Store ``callable(element)`` in place of each element: one after the other, slowly."""
    return _from_numbers(self, [callable(v) for v in self._array.reshape(-1).tolist()])


@function(namespace="")
def map_(self: Tensor, tensor: Tensor, callable: Any) -> Tensor:
    """Store ``callable(element, element of the other)`` in place of each element: one after the other, slowly."""
    other = np.broadcast_to(tensor._array, self._array.shape)
    return _from_numbers(self, [callable(a, b) for a, b in zip(self._array.reshape(-1).tolist(), other.reshape(-1).tolist())])


@function(namespace="")
def map2_(self: Tensor, x: Tensor, y: Tensor, callable: Any) -> Tensor:
    """As `map_`, with the elements of two others."""
    others = [np.broadcast_to(other._array, self._array.shape).reshape(-1).tolist() for other in (x, y)]
    return _from_numbers(self, [callable(a, b, c) for a, b, c in zip(self._array.reshape(-1).tolist(), *others)])


def _from_numbers(x: Tensor, numbers: list[Any]) -> Tensor:
    if x.requires_grad:
        raise RuntimeError("Can't call apply_() on Variable that requires grad. Use var.detach().apply_() instead.")
    x._array[...] = put_beside(np.array(numbers).astype(x._array.dtype).reshape(x._array.shape), x._array)
    written(x)
    return x


@function(namespace="")
def fill_(self: Tensor, value: Any) -> Tensor:
    """Store one number everywhere."""
    check_write(self, overlap=False, others=(value,))
    if isinstance(value, Tensor):
        if value._array.ndim:
            raise RuntimeError(
                f"fill_ only supports 0-dimension value tensor but got tensor with {value._array.ndim} dimensions."
            )
        value = cast(value, self.dtype)
    elif isinstance(value, complex) and self._array.dtype.kind != "c":
        raise RuntimeError(f"value cannot be converted to type {self.dtype.other_name or self.dtype.name} without overflow")
    else:
        value = np.asarray(value).astype(self._array.dtype)[()]
    return write(self, apply(FILL_, operand_of_write(self, (value,)), value))


@function(namespace="torch")
def fill(input: Tensor, value: Any) -> Tensor:
    """A tensor of the same shape with one number everywhere."""
    return fill_(clone(input), value)


@function(namespace="")
def zero_(self: Tensor) -> Tensor:
    """Store zeros."""
    check_write(self, overlap=False)
    return write(self, apply(ZERO_, operand_of_write(self, ())))


__all__ = ["to_device"]
