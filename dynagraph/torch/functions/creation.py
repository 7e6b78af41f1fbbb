"""New tensors: of data, of one value, ranges and grids."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.markers import is_compiling
from dynagraph.torch.core import devices, dtypes
from dynagraph.torch.core.arrays import in_c_order, put_beside
from dynagraph.torch.core.dtypes import dtype as DType
from dynagraph.torch.core.storage import Storage
from dynagraph.torch.core.tensor import Tensor, made, storage_of, wrap
from dynagraph.torch.functions.common import NAMESPACES, check_tensor, fitting_number, function, integer, sizes_of, store_out
from dynagraph.torch.functions.conversion import pin_memory as pinned
from dynagraph.torch.functions.conversion import to_device
from dynagraph.torch.functions.pointwise_primitives import empty_in_order
from dynagraph.torch.functions.shapes import contiguous, meshgrid_views


def finish(array: Any, device: Any = None, requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """A new tensor of an array of NumPy's, on the device that is asked for."""
    where = devices.get_default_device() if device is None else devices.device(device)
    if where.type != "cpu":
        array = devices.place(array, where)
    result = made(array)
    if pin_memory:
        result = pinned(result)
    if requires_grad:
        if result._array.dtype.kind not in "fcV":
            raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
        result.requires_grad = True
    return result


def made_there(
    make: Callable[[Any], Any], device: Any, requires_grad: bool = False, pin_memory: bool = False
) -> Tensor:  # fmt: skip
    """A new tensor of what `make` makes with the functions of NumPy or CuPy, whichever has the device that is asked for."""
    where = devices.get_default_device() if device is None else devices.device(device)
    with devices.scope(where):
        return finish(make(devices.library_of(where)), where, requires_grad, pin_memory)


def _check_dtype(given: Any, who: str) -> None:
    if given is not None and not isinstance(given, DType):
        raise TypeError(f"{who}(): argument 'dtype' must be torch.dtype, not {type(given).__name__}")


def _numpy_dtype(given: DType | None, default: DType | None = None) -> np.dtype:
    if given is None:
        given = default or dtypes.get_default_dtype()
    elif not isinstance(given, DType):
        raise TypeError(f"argument 'dtype' must be torch.dtype, not {type(given).__name__}")
    return given.numpy


# -- of data ----------------------------------------------------------------------------------------------------------


def _array_of(data: Any, given: DType | None) -> np.ndarray:
    """Numbers and nested sequences of numbers and tensors as an array; Python's floats have the default dtype."""
    if isinstance(data, Tensor):
        data = data._array
    if isinstance(data, (np.ndarray, np.generic)):
        array = np.array(data)
        dtypes.of_numpy(array.dtype)
        return array if given is None else _converted(array, given)
    if isinstance(data, (list, tuple)):
        data, tensor_dtype = _plain(data)
        given = given or tensor_dtype
    elif hasattr(data, "__array__") or hasattr(data, "__array_interface__"):
        return _array_of(np.asarray(data), given)
    elif not isinstance(data, (bool, int, float, complex)):
        if isinstance(data, (dict, set, frozenset)):
            raise RuntimeError(f"Could not infer dtype of {type(data).__name__}")
        if isinstance(data, str):
            raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
        try:
            data = list(data)
        except TypeError:
            raise RuntimeError(f"Could not infer dtype of {type(data).__name__}") from None
    try:
        array = np.array(data)
    except ValueError:
        _check_lengths(data)
        raise
    if array.dtype.kind == "O" or array.dtype.kind in "US":
        found = _first_odd(data)
        if isinstance(found, int):
            raise ValueError("Overflow when unpacking long long")
        if isinstance(found, str):
            raise TypeError(f"new(): invalid data type '{type(found).__name__}'")
        raise RuntimeError(f"Could not infer dtype of {type(found).__name__}")
    if given is not None:
        _check_fits(data, array, given)
        return _converted(array, given)
    if array.dtype.kind == "f" and array.dtype.itemsize == 8 and not _holds(data, np.float64):
        return array.astype(dtypes.get_default_dtype().numpy)
    if array.dtype.kind == "c" and not _holds(data, np.complex128):
        return array.astype(dtypes.get_default_dtype().to_complex().numpy)
    if array.dtype.kind == "u" and array.dtype.itemsize == 8 and not _holds(data, np.uint64):
        raise ValueError("Overflow when unpacking long long")
    return array


def _check_fits(data: Any, array: np.ndarray, given: DType) -> None:
    """RuntimeError for numbers beyond an integer dtype."""
    if given.numpy.kind not in "iu" or array.dtype.kind not in "iuf" or not array.size:
        return
    for number in _numbers_of(data) if is_compiling() else (array.min(), array.max()):  # captured numbers may change
        fitting_number(number, given.numpy, given, given.name)


def _numbers_of(data: Any) -> list[Any]:
    if isinstance(data, (list, tuple)):
        return [number for each in data for number in _numbers_of(each)]
    return [data] if isinstance(data, (int, float)) else []


def _converted(array: np.ndarray, given: DType) -> np.ndarray:
    with np.errstate(all="ignore"):
        if array.dtype.kind == "c" and not given.is_complex:
            raise TypeError("must be real number, not complex")
        return array.astype(given.numpy)


def _plain(data: Any) -> tuple[Any, DType | None]:
    """Nested sequences with their tensors as lists; the dtype that their numbers have by themselves, if there are any."""
    found: list[DType] = []

    def walk(item: Any) -> Any:
        if isinstance(item, Tensor):
            found.append(item.dtype)
            return item._array.tolist()
        return [walk(i) for i in item] if isinstance(item, (list, tuple)) else item

    plain = walk(data) if _has_tensor(data) else data
    return plain, found[0] if found else None


def _has_tensor(data: Any) -> bool:
    return any(isinstance(i, Tensor) or (isinstance(i, (list, tuple)) and _has_tensor(i)) for i in data)


def _holds(data: Any, scalar: type) -> bool:
    """Whether NumPy's numbers of that type, or arrays, are among the data: these keep their dtype."""
    if isinstance(data, (list, tuple)):
        return any(_holds(item, scalar) for item in data)
    return isinstance(data, scalar) or (isinstance(data, np.ndarray) and data.dtype == scalar)


def _first_odd(data: Any) -> Any:
    if isinstance(data, (list, tuple)):
        for item in data:
            odd = _first_odd(item)
            if odd is not None:
                return odd
        return None
    return None if isinstance(data, (bool, float, complex)) or (isinstance(data, int) and -(2**63) <= data < 2**63) else data


def _check_lengths(data: Any, dim: int = 0) -> None:
    if isinstance(data, (list, tuple)) and data and isinstance(data[0], (list, tuple)):
        for item in data:
            got = len(item) if isinstance(item, (list, tuple)) else None
            if got is None:
                raise TypeError("expected sequence of length " + f"{len(data[0])} at dim {dim + 1} (got a number)")
            if got != len(data[0]):
                raise ValueError(f"expected sequence of length {len(data[0])} at dim {dim + 1} (got {got})")
        for item in data:
            _check_lengths(item, dim + 1)


@function(method=False)
def tensor(
    data: Any, *, dtype: DType | None = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False
) -> Tensor:
    """A new tensor with a copy of the data: numbers, nested sequences, arrays."""
    _check_dtype(dtype, "tensor")
    if isinstance(data, Tensor) and device is None:
        device = data.device
    return finish(_array_of(data, dtype), device, requires_grad, pin_memory)


@function(method=False)
def as_tensor(data: Any, dtype: DType | None = None, device: Any = None) -> Tensor:
    """The data as a tensor: without a copy where it is a tensor, or an array, of that dtype."""
    if isinstance(data, Tensor):
        return data.to(device=device, dtype=dtype)  # type: ignore[attr-defined]
    if isinstance(data, np.ndarray) and data.flags.writeable and (dtype is None or data.dtype == dtype.numpy):
        return to_device(from_numpy(data), devices.get_default_device() if device is None else device)
    if isinstance(data, (np.ndarray, np.generic)) or not hasattr(data, "__cuda_array_interface__"):
        return tensor(data, dtype=dtype, device=device)
    return wrap(data)


@function(method=False)
def asarray(
    obj: Any, *, dtype: DType | None = None, device: Any = None, copy: bool | None = None, requires_grad: bool = False
) -> Tensor:
    """The data as a tensor, which shares memory where it can, or as `copy` says."""
    result = tensor(obj, dtype=dtype, device=device) if copy else as_tensor(obj, dtype, device)
    if requires_grad:
        result.requires_grad = True
    return result


@function(method=False)
def from_numpy(ndarray: np.ndarray) -> Tensor:
    """A tensor that shares the array's memory."""
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    dtypes.of_numpy(ndarray.dtype)
    if any(s < 0 for s in ndarray.strides):
        raise ValueError(
            "At least one stride in the given numpy array is negative, and tensors with negative strides are not currently "
            "supported. (You can probably work around this by making a copy of your array  with array.copy().) "
        )
    result = made(ndarray)
    result._storage = Storage(ndarray)
    return result


@function(method=False)
def frombuffer(buffer: Any, *, dtype: DType, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A tensor that shares the memory of a buffer."""
    size = memoryview(buffer).nbytes
    if size == 0:
        raise ValueError(f"both buffer length ({size}) and count ({count}) must not be 0")
    if not 0 <= offset < size:
        raise ValueError(f"offset ({offset} bytes) must be non-negative and no greater than buffer length ({size} bytes) minus 1")
    if count == 0:
        raise ValueError(f"both buffer length ({size}) and count ({count}) must not be 0")
    if count < 0 and (size - offset) % dtype.itemsize:
        raise ValueError(
            f"buffer length ({size - offset} bytes) after offset ({offset} bytes) must be a multiple of element size "
            f"({dtype.itemsize})"
        )
    if count > 0 and offset + count * dtype.itemsize > size:
        raise ValueError(
            f"requested buffer length ({count} * {dtype.itemsize} bytes) after offset ({offset} bytes) must not be greater than "
            f"actual buffer length ({size} bytes)"
        )
    result = wrap(np.frombuffer(buffer, dtype.numpy, count, offset))
    if requires_grad:
        result.requires_grad = True
    return result


@function("scalar_tensor", method=False)
def scalar_tensor(s: Any, *, dtype: DType | None = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A number as a tensor without dimensions."""
    wanted = dtype or dtypes.get_default_dtype()
    number = fitting_number(_number(s), wanted.numpy, wanted)
    return made_there(lambda library: library.asarray(number, wanted.numpy), device, requires_grad)


# -- of one value -----------------------------------------------------------------------------------------------------


def _check_sizes(shape: tuple[int, ...]) -> None:
    if any(n < 0 for n in shape):
        raise RuntimeError(f"Trying to create tensor with negative dimension {next(n for n in shape if n < 0)}: {list(shape)}")


def _filled(name: str) -> None:
    def compute(
        *size: Any,
        out: Tensor | None = None,
        dtype: DType | None = None,
        layout: Any = None,
        device: Any = None,
        requires_grad: bool = False,
        pin_memory: bool = False,
        names: Any = None,
        memory_format: Any = None,
    ) -> Tensor:
        shape = sizes_of(size, name)
        if name == "zeros" and any(n < 0 for n in shape):
            raise RuntimeError("zeros: Dimension size must be non-negative.")
        _check_sizes(shape)
        _check_dtype(dtype, name)
        if out is not None:
            if dtype is not None and dtype is not out.dtype:
                names = dtypes.scalar_name(dtype), dtypes.scalar_name(out.dtype)
                raise RuntimeError(f"dtype {names[0]} does not match dtype of out parameter ({names[1]})")
            if memory_format is not None:
                raise RuntimeError("'memory_format' argument is incompatible with 'out' tensor argument")
            store_out(out, made(getattr(np, name)(shape, out._array.dtype if dtype is None else dtype.numpy)))
            return out
        wanted = _numpy_dtype(dtype)
        result = made_there(lambda library: getattr(library, name)(shape, wanted), device, requires_grad, pin_memory)
        return result if memory_format is None else contiguous(result, memory_format=memory_format)

    def public(*args: Any, **kwargs: Any) -> Tensor:
        if "size" in kwargs:
            args = (kwargs.pop("size"),)
        return compute(*args, **kwargs)

    for each in (compute, public):
        each.__name__ = each.__qualname__ = name
    public.__doc__ = f"``torch.{name}``: a new tensor of a shape, given as sizes or as one sequence."
    function(name, method=False)(public)


for _each in ("zeros", "ones", "empty"):
    _filled(_each)


@function(method=False)
def full(
    size: Any, fill_value: Any, *, out: Tensor | None = None, dtype: DType | None = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A new tensor of one value, whose dtype it has unless another is given."""
    if isinstance(fill_value, Tensor):
        dtype = dtype or fill_value.dtype
        fill_value = fill_value._array.item()
    if not isinstance(size, (tuple, list)):
        raise TypeError(f"full(): argument 'size' (position 1) must be tuple of ints, not {type(size).__name__}")
    shape = sizes_of(size, "full")
    _check_sizes(shape)
    kind = dtype or (dtypes.int64 if isinstance(fill_value, np.integer) else dtypes.of_number(fill_value))
    number, wanted = fitting_number(fill_value, kind.numpy, kind), kind.numpy
    if out is not None:
        store_out(out, made(np.full(shape, number, wanted)))
        return out
    return made_there(lambda library: library.full(shape, number, wanted), device, requires_grad, pin_memory)


def _like(name: str, make: Any) -> None:
    def compute(
        input: Tensor,
        *args: Any,
        dtype: DType | None = None,
        layout: Any = None,
        device: Any = None,
        requires_grad: bool = False,
        pin_memory: bool = False,
        memory_format: Any = None,
        **kwargs: Any,
    ) -> Tensor:
        x = check_tensor(input, name, "input")
        _check_dtype(dtype, name)
        array = make(x._array, *args, dtype=x._array.dtype if dtype is None else dtype.numpy, **kwargs)
        if memory_format is not None and memory_format.name == "contiguous_format":
            array = in_c_order(array).reshape(array.shape)
        return finish(array, x.device if device is None else device, requires_grad, pin_memory)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"``torch.{name}``: a new tensor of another's shape, dtype and device."
    function(name, method=False)(compute)


def _empty_like(x: Any, dtype: np.dtype) -> Any:
    return empty_in_order(x.shape, dtype, x.strides) if 0 in x.strides else np.empty_like(x, dtype)


def _full_like(x: Any, fill_value: Any, dtype: np.dtype) -> Any:
    found = _empty_like(x, dtype)
    found[...] = fitting_number(_number(fill_value), dtype, dtypes.of_numpy(dtype))
    return found


_like("zeros_like", lambda x, dtype: np.zeros_like(x, dtype) if 0 not in x.strides else _full_like(x, 0, dtype))
_like("ones_like", lambda x, dtype: _full_like(x, 1, dtype))
_like("empty_like", _empty_like)
_like("full_like", _full_like)


def _new(name: str, make: str) -> None:
    def compute(self: Tensor, *args: Any, dtype: DType | None = None, device: Any = None, **kwargs: Any) -> Tensor:
        where = self.device if device is None else device
        return NAMESPACES["torch"][make](*args, dtype=dtype or self.dtype, device=where, **kwargs)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"``torch.{make}`` with this tensor's dtype and device."
    setattr(Tensor, name, compute)


for _made in ("zeros", "ones", "empty", "full", "tensor", "empty_strided"):
    _new(f"new_{_made}", _made)


@function(method=False)
def empty_strided(
    size: Any, stride: Any, *, dtype: DType | None = None, device: Any = None, requires_grad: bool = False, **_: Any
) -> Tensor:
    """A new tensor of any numbers, with strides."""
    shape, strides = tuple(size), tuple(stride)
    count = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides))
    flat = np.empty(count, _numpy_dtype(dtype))
    result = finish(Storage(flat).at(flat.dtype, shape, strides, 0), device, requires_grad)
    result._storage = Storage(flat)
    return result


@function(method=False)
def empty_permuted(
    size: Any, physical_layout: Any, *, dtype: DType | None = None, device: Any = None, requires_grad: bool = False, **_: Any
) -> Tensor:
    """A new tensor of any numbers, whose dimensions lie in memory in the order given, the slowest first."""
    shape, order = tuple(size), tuple(physical_layout)
    if sorted(order) != list(range(len(shape))):
        raise RuntimeError(f"physical_layout {order} does not name each of the {len(shape)} dimensions once")
    array = np.empty([shape[k] for k in order], _numpy_dtype(dtype))
    return finish(array.transpose([order.index(k) for k in range(len(shape))]), device, requires_grad)


# -- ranges and grids -------------------------------------------------------------------------------------------------


def _number(value: Any) -> Any:
    return value._array.item() if isinstance(value, Tensor) else value.item() if isinstance(value, np.generic) else value


@function(method=False)
def arange(
    *args: Any, start: Any = None, end: Any = None, step: Any = None, out: Tensor | None = None, dtype: DType | None = None,
    layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """``start``, ``start + step``... below `end`; ints give int64, floats the default dtype."""
    given = [_number(a) for a in args]
    if len(given) == 1:
        given = [_number(start) if start is not None else 0, given[0]] if end is None else [given[0], _number(end)]
    elif not given:
        given = [0 if start is None else _number(start), _number(end)]
    first, last, by = (*given, *([1 if step is None else _number(step)] if len(given) == 2 else []))
    if by == 0:
        raise RuntimeError("step must be nonzero")
    if (by > 0 and last < first) or (by < 0 and last > first):
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    _check_dtype(dtype, "arange")
    is_float = any(isinstance(v, float) for v in (first, last, by))
    if is_float and not all(map(math.isfinite, (first, last))):
        raise RuntimeError(f"unsupported range: {first} -> {last}")
    wanted = (dtypes.get_default_dtype() if is_float else dtypes.int64) if dtype is None else dtype
    if wanted.category == 0:
        raise NotImplementedError("\"arange_cpu\" not implemented for 'Bool'")
    if wanted is dtypes.int64 and is_float:
        first, last, by, is_float = int(first), int(last), int(by), False
    count = math.ceil((last - first) / by) if is_float else -((first - last) // by)
    if wanted.category != 2:
        first, by = int(first), int(by)

    def make(library: Any) -> Any:
        numbers = library.arange(count)
        return (first + by * (numbers.astype(np.float64) if wanted.category == 2 else numbers)).astype(wanted.numpy)

    if out is not None:
        store_out(out, made(make(np)))
        return out
    return made_there(make, device, requires_grad, pin_memory)


@function("range", method=False)
def range_(start: Any = 0, end: Any = None, step: Any = 1, *, dtype: DType | None = None, device: Any = None, **_: Any) -> Tensor:
    """As `arange`, with the end, as floats: deprecated in PyTorch."""
    if end is None:
        start, end = 0, start
    count, wanted = int((end - start) / step) + 1, _numpy_dtype(dtype)
    return made_there(lambda library: (start + step * library.arange(count).astype(np.float64)).astype(wanted), device)


def _spaced(low: Any, high: Any, steps: int, given: DType | None, library: Any) -> Any:
    """From both ends to the middle, as PyTorch computes it, so that the last is the end."""
    low, high, steps = _number(low), _number(high), integer(steps)
    is_complex = isinstance(low, complex) or isinstance(high, complex)
    default = dtypes.get_default_dtype()
    wanted = given or (default.to_complex() if is_complex else default)
    if wanted.numpy.kind in "iu":
        low, high = int(low), int(high)
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    if steps == 1:
        return library.full(1, low).astype(wanted.numpy)
    kind = np.complex128 if is_complex else np.float64
    step = (high - low) / (steps - 1) if steps else 0
    numbers = library.arange(steps)
    found = np.where(numbers < steps // 2, low + step * numbers, high - step * (steps - 1 - numbers)).astype(kind)
    return found.astype(wanted.numpy)


@function(method=False)
def linspace(
    start: Any, end: Any, steps: int, *, out: Tensor | None = None, dtype: DType | None = None, layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """`steps` numbers at equal distances, both ends among them."""
    if out is not None:
        store_out(out, made(_spaced(start, end, steps, dtype, np)))
        return out
    return made_there(lambda library: _spaced(start, end, steps, dtype, library), device, requires_grad)


@function(method=False)
def logspace(
    start: Any, end: Any, steps: int, base: float = 10.0, *, out: Tensor | None = None, dtype: DType | None = None,
    layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Powers of `base`, whose exponents are at equal distances."""
    wanted = _numpy_dtype(dtype)
    if wanted.kind in "iu":
        start, end = int(_number(start)), int(_number(end))

    def make(library: Any) -> Any:
        return np.power(base, _spaced(start, end, steps, dtypes.float64, library)).astype(wanted)

    if out is not None:
        store_out(out, made(make(np)))
        return out
    return made_there(make, device, requires_grad, pin_memory)


@function(method=False)
def eye(
    n: int, m: int | None = None, *, out: Tensor | None = None, dtype: DType | None = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Ones on the diagonal, zeros elsewhere."""
    if n < 0 or (m is not None and m < 0):
        raise RuntimeError(f"n must be greater or equal to 0, got {n}" if n < 0 else f"m must be greater or equal to 0, got {m}")
    wanted = _numpy_dtype(dtype)
    if out is not None:
        store_out(out, made(np.eye(n, m, dtype=wanted)))
        return out
    return made_there(lambda library: library.eye(n, m, dtype=wanted), device, requires_grad)


def _indices(name: str, find: Any) -> None:
    def compute(
        row: int, col: int, offset: int = 0, *, dtype: DType | None = None, device: Any = None, layout: Any = None
    ) -> Tensor:
        rows, columns = find(row, offset, col)
        return finish(np.stack((rows, columns)).astype(_numpy_dtype(dtype, dtypes.int64)), device)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"``torch.{name}``: the places of a triangle's elements, as two rows."
    function(name, method=False)(compute)


_indices("tril_indices", np.tril_indices)
_indices("triu_indices", np.triu_indices)


@function(method=False)
def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Grids of coordinates: views of the vectors given."""
    given = tuple(tensors[0]) if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    if indexing not in ("ij", "xy"):
        raise RuntimeError(f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    return meshgrid_views(given, indexing)


@function(method=False)
def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All combinations of the vectors' elements, as rows."""
    if len(tensors) == 1:
        return tensors[0]
    grids = meshgrid(*tensors)
    return NAMESPACES["torch"]["stack"]([g.reshape(-1) for g in grids], dim=1)  # type: ignore[attr-defined]


@function(method=False)
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Powers of a vector's elements as columns."""
    if x._array.ndim != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    n = x._array.shape[0] if N is None else N
    if n < 0:
        raise RuntimeError("N must be non-negative.")
    exponents = np.arange(n) if increasing else np.arange(n)[::-1].copy()
    return Tensor.unsqueeze(x, -1) ** wrap(put_beside(exponents, x._array))  # type: ignore[attr-defined, operator]


def as_subclass(x: Tensor, cls: type) -> Any:
    """The same tensor as one of a subclass."""
    other: Any = object.__new__(cls)
    other._array, other._base, other._grad_fn, other._requires_grad = x._array, x._base, x._grad_fn, x._requires_grad
    other._output_nr = x._output_nr
    other._storage = storage_of(x)
    return other


Tensor.as_subclass = as_subclass  # type: ignore[attr-defined]


@function(method=False)
def is_tensor(obj: Any) -> bool:
    """Whether it is a tensor."""
    return isinstance(obj, Tensor)


__all__ = ["as_tensor", "finish", "tensor"]
