"""A package `cupy` for machines without a GPU: arrays that are none of NumPy's, and behave as CuPy 14's do, on memory of the host.

`module()` makes it anew.  Names and parameters are those of the real CuPy (names.json, by scripts/cupy_names.py), values NumPy's.
Results are arrays always, 0-d ones too, new ones in C order; NumPy arrays are refused; indices are taken modulo the size.
Functions are done at once, on whatever device; `cupy.cuda`, with two devices and what they queue, is stand_in_cuda.py.
"""

from __future__ import annotations

import contextlib
import functools
import json
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.cupy_arrays.stand_in_cuda import Machine, MemoryPointer

HERE = Path(__file__).parent
__name__ = "cupy.stand_in"  # its code is left alone, as CuPy's is
NAMES = json.loads((HERE / "names.json").read_text())
VIEWS = (
    "reshape", "ravel", "transpose", "swapaxes", "moveaxis", "expand_dims", "squeeze", "broadcast_to", "asarray", "real", "imag",
    "diagonal", "view",
)  # fmt: skip
KEEP_ORDER = ("astype", "copy", "array", "zeros_like", "ones_like", "full_like", "empty_like", "roll")  # as order="K" has it
PYTHON_VALUES = ("shape", "ndim", "size", "result_type", "can_cast", "isscalar", "iscomplexobj", "isrealobj")
SCALARS = (bool, int, float, complex, np.generic)
_BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide, "floordiv": np.floor_divide,
    "mod": np.remainder, "pow": np.power, "lshift": np.left_shift, "rshift": np.right_shift, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
_COMPARISONS = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip


class Flags:
    def __init__(self, flags: Any, owndata: bool):
        self.c_contiguous, self.f_contiguous, self.owndata = bool(flags.c_contiguous), bool(flags.f_contiguous), owndata


class ndarray:
    __slots__ = ("__weakref__", "_device", "_memory", "_ndarray__held", "base")
    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None, order: str = "C"):
        if memptr is None:
            made = fresh(np.zeros(shape, dtype, order), order=order)
            self.__held, self.base, self._device, self._memory = made._ndarray__held, None, made._device, made._memory
        else:
            self.base, self._device, self._memory = None, memptr.device_id, memptr.mem
            self.__held = np.ndarray(shape, dtype, memptr.mem.block, memptr.ptr - memptr.mem.ptr, strides, order)

    # -- memory -----------------------------------------------------------------------------------------------------
    shape = property(lambda self: self.__held.shape)
    strides = property(lambda self: self.__held.strides)
    dtype = property(lambda self: self.__held.dtype)
    ndim = property(lambda self: self.__held.ndim)
    size = property(lambda self: self.__held.size)
    itemsize = property(lambda self: self.__held.itemsize)
    nbytes = property(lambda self: self.__held.nbytes)
    data = property(lambda self: _pointer(self))
    device = property(lambda self: _machine().cuda.Device(self._device))
    flags = property(lambda self: Flags(self.__held.flags, self.base is None))
    T = property(lambda self: view(self, held(self).T) if self.ndim > 1 else self)
    mT = property(lambda self: view(self, held(self).mT))
    real = property(lambda self: view(self, held(self).real) if self.dtype.kind == "c" else self)
    imag = property(lambda self: view(self, held(self).imag) if self.dtype.kind == "c" else fresh(np.zeros(self.shape, self.dtype)))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        data = (self.data.ptr, False)
        return {"shape": self.shape, "typestr": self.dtype.str, "data": data, "version": 3, "strides": self.strides}

    # -- to the host --------------------------------------------------------------------------------------------------
    def get(self) -> np.ndarray:
        return held(self).copy(order="K")

    def item(self) -> Any:
        return held(self).item()

    def tolist(self) -> Any:
        return held(self).tolist()

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`.")

    def __bool__(self) -> bool:
        return bool(held(self))

    def __float__(self) -> float:
        return float(held(self))

    def __int__(self) -> int:
        return int(held(self))

    def __complex__(self) -> complex:
        return complex(held(self))

    def __repr__(self) -> str:
        return repr(held(self))

    def __format__(self, specification: str) -> str:
        return format(held(self), specification)

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    def __reduce__(self) -> Any:
        return fresh, (self.get(),)

    # -- items ----------------------------------------------------------------------------------------------------------
    def __len__(self) -> int:
        return len(held(self))

    def __iter__(self) -> Any:
        if self.ndim == 0:
            raise TypeError("iteration over a 0-d array")
        return (self[k] for k in range(len(self)))

    def __getitem__(self, key: Any) -> Any:
        mine = held(self)
        if _is_fancy(key):
            return fresh(mine[_key(mine.shape, key)], self._device)
        parts = key if isinstance(key, tuple) else (key,)
        return view(self, mine[parts if any(p is Ellipsis for p in parts) else (*parts, ...)])

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(value, (ndarray, *SCALARS)):
            raise TypeError(f"Unsupported type {type(value)}")
        mine = held(self)
        with np.errstate(all="ignore"):
            mine[_key(mine.shape, key)] = held(value).copy() if isinstance(value, ndarray) else value

    # -- NumPy's protocols --------------------------------------------------------------------------------------------
    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        function = getattr(_module_of(), ufunc.__name__, None)
        if method != "__call__" or function is None:
            return NotImplemented
        if "out" in kwargs:
            kwargs["out"] = kwargs["out"][0] if len(kwargs["out"]) == 1 else kwargs["out"]
        return function(*inputs, **kwargs)

    def __array_function__(self, function: Any, kinds: Any, args: Any, kwargs: Any) -> Any:
        own, (package, *parts) = _module_of(), (*function.__module__.split("."), function.__name__)
        for part in parts:
            own = getattr(own, part, None) if package == "numpy" else None
        if own is None or any(kind not in (ndarray, np.ndarray) for kind in kinds):
            return NotImplemented
        return own(*args, **kwargs)


_current: list[Any] = []


def _module_of() -> Any:
    return _current[-1]


def _machine() -> Machine:
    return _module_of().machine  # type: ignore[no-any-return]


def held(array: ndarray) -> np.ndarray:
    """The values, after what the current stream of its device has to do."""
    _machine().catch_up(array._device)
    return array._ndarray__held  # type: ignore[attr-defined, no-any-return]


def _pointer(array: ndarray) -> MemoryPointer:
    address = array._ndarray__held.__array_interface__["data"][0]  # type: ignore[attr-defined]
    return MemoryPointer(array._memory, 0, array._device, _machine(), address)


def fresh(values: Any, device: int | None = None, order: Any = "C") -> ndarray:
    """A new array, in C order unless another one is asked for, of the pool of the device; None: the current one."""
    made, machine = ndarray.__new__(ndarray), _machine()
    made.base, made._device, made._memory = None, machine.thread.device if device is None else device, None
    source = np.array(values, order=order)
    if not source.dtype.hasobject:
        made._memory = machine.pool.allocate(source.nbytes, made._device, machine.thread.streams[made._device].ptr)
        placed = np.ndarray(source.shape, source.dtype, made._memory.block, 0, source.strides)
        placed[...] = source
        source = placed
    made._ndarray__held = source  # type: ignore[attr-defined]
    return made


def laid(values: np.ndarray, device: int = 0) -> ndarray:
    """A new array that lies as another one does: for tests."""
    whole = values.base if isinstance(values.base, np.ndarray) else values
    offset = values.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    if whole is values:
        return fresh(values, device, "K")
    owner = fresh(whole, device)
    flat = np.ascontiguousarray(held(owner)).reshape(-1).view(np.uint8)
    found = np.ndarray(values.shape, values.dtype, flat, offset, values.strides)
    return view(owner, found)


def view(owner: ndarray, values: np.ndarray) -> ndarray:
    made = ndarray.__new__(ndarray)
    made._ndarray__held = values  # type: ignore[attr-defined]
    made.base, made._device, made._memory = owner if owner.base is None else owner.base, owner._device, owner._memory
    return made


def _is_fancy(key: Any) -> bool:
    parts = key if isinstance(key, tuple) else (key,)
    return any(isinstance(part, (list, ndarray, bool, np.ndarray)) for part in parts)


def _key(shape: tuple[int, ...], key: Any) -> Any:
    """As NumPy takes it: places out of bounds come from the other end."""
    if not _is_fancy(key):
        return key
    parts, axis, made = key if isinstance(key, tuple) else (key,), 0, []
    for part in parts:
        values = held(part) if isinstance(part, ndarray) else np.asarray(part) if isinstance(part, list) else part
        if isinstance(values, np.ndarray) and values.dtype.kind in "iu" and Ellipsis not in [p for p in parts if p is Ellipsis]:
            values = values % shape[axis]
        axis += part is not None
        made.append(values)
    return tuple(made)


def _open(value: Any) -> Any:
    if isinstance(value, ndarray):
        return held(value)
    if isinstance(value, np.ndarray):
        raise TypeError(f"Unsupported type {type(value)}")
    if isinstance(value, (list, tuple)):
        return type(value)(_open(v) for v in value)
    return value


def _arrays(values: Any) -> list[ndarray]:
    found: list[ndarray] = []
    for value in values:
        found += [value] if isinstance(value, ndarray) else _arrays(value) if isinstance(value, (list, tuple)) else []
    return found


def _close(result: Any, given: list[ndarray], may_be_view: bool, keeps_order: bool = False) -> Any:
    if isinstance(result, (tuple, list)):
        kind = tuple if hasattr(result, "_fields") else type(result)  # CuPy names no items
        return kind(_close(r, given, may_be_view) for r in result)
    device = given[0]._device if given else None
    for owner in given if may_be_view and isinstance(result, np.ndarray) else ():
        own = owner._ndarray__held  # type: ignore[attr-defined]
        if result is own:
            return owner
        if np.may_share_memory(result, own):
            if not result.flags.writeable:  # np.diagonal's and np.broadcast_to's; CuPy has no such arrays
                try:
                    result.flags.writeable = True
                except ValueError:
                    result = np.lib.stride_tricks.as_strided(own, result.shape, result.strides)
            return view(owner, result)
    return fresh(result, device, "K" if keeps_order else "C") if isinstance(result, (np.ndarray, *SCALARS)) else result


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """CuPy warns of nothing."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _same_device(given: list[ndarray]) -> None:
    if len({array._device for array in given}) > 1:
        raise ValueError("Array device must be same as the current device")


def _function(name: str, parameters: str, numpys: Callable[..., Any]) -> Callable[..., Any]:
    """A function of these parameters; what is left at its default is not handed on."""
    binder = eval(f"lambda {parameters}: None", {"float": float, "int": int, "bool": bool})

    def function(*args: Any, **kwargs: Any) -> Any:
        binder(*args, **kwargs)
        given = _arrays((*args, *kwargs.values()))
        _same_device(given)
        names = binder.__code__.co_varnames[: binder.__code__.co_argcount]
        positional = dict(zip(names, args)) if not binder.__code__.co_flags & 4 else {}
        with quietly():
            if name in ("dtype", "argmax", "argmin") or "dtype" not in positional:
                result = summed(name, numpys)(*map(_open, args), **{k: _open(v) for k, v in kwargs.items()})
            else:
                named = {k: _open(v) for k, v in {**positional, **kwargs}.items()}
                first = names[0]
                result = summed(name, numpys)(named.pop(first), **{_spelled(name, k): v for k, v in named.items()})
        if name in PYTHON_VALUES:
            return result
        return _close(result, given, name in VIEWS, name in KEEP_ORDER)

    function.__name__ = function.__qualname__ = name
    function.__module__ = "cupy._stand_in"
    return function


def _is_bfloat16(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.generic)) and value.dtype.name == "bfloat16"


def summed(name: str, numpys: Callable[..., Any]) -> Callable[..., Any]:
    """Sums of bfloat16 are taken in float32, and are bfloat16.  `where` has no loop for it, and takes float32's."""

    def function(*args: Any, **kwargs: Any) -> Any:
        if name == "where":
            return numpys(*[x.astype(np.float32) if _is_bfloat16(x) else x for x in args], **kwargs)
        x = args[0] if args else kwargs.get("a")
        if name not in ("sum", "prod", "mean", "matmul") or not _is_bfloat16(x):
            return numpys(*args, **kwargs)
        args = args[1:]
        kwargs.pop("a", None)
        if kwargs.get("dtype") == x.dtype:
            del kwargs["dtype"]
        return np.asarray(numpys(x.astype(np.float32), *args, **kwargs)).astype(x.dtype)

    return function


def _spelled(function: str, parameter: str) -> str:
    return {"newshape": "shape"}.get(parameter, parameter)


class ufunc:
    """NumPy's, of the loops that CuPy has."""

    def __init__(self, name: str, nin: int, nout: int, loops: str):
        self.name = self.__name__ = name
        self.nin, self.nout, self.nargs, self.types = nin, nout, nin + nout, loops.split()

    def __call__(self, *args: Any, out: Any = None, dtype: Any = None, casting: str = "same_kind") -> Any:
        if not self.nin <= len(args) <= self.nargs:
            raise TypeError(f"Wrong number of arguments for {self.name!r}")
        if len(args) > self.nin:
            out = args[self.nin]
        for value in args:
            if not isinstance(value, (ndarray, *SCALARS)):
                raise TypeError(f"Unsupported type {type(value)}")
        given = _arrays((*args, out))
        _same_device(given)
        with np.errstate(all="ignore"):
            own = getattr(np, self.name)
            more = {} if dtype is None else {"dtype": dtype}
            more |= {"casting": casting} if isinstance(own, np.ufunc) else {}  # sinc, i0 and fix are none of NumPy's
            result = own(*[_open(a) for a in args[: self.nin]], **more)
            if out is None:
                return _close(result, given, False)
            held(out)[...] = np.asarray(result).astype(out.dtype, casting=casting)
        return out

    def reduce(self, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        raise NotImplementedError(f"`{self.name}.reduce` is not supported yet")

    def at(self, a: Any, indices: Any, b: Any) -> None:
        if self.name not in ("add", "subtract", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor"):
            raise NotImplementedError(f"`{self.name}.at` is not supported yet")
        own = held(a)
        getattr(np, self.name).at(own, _key(own.shape, indices), _open(b))


def _operator(function: Any, reflected: bool) -> Callable[..., Any]:
    def operator(self: Any, other: Any) -> Any:
        if isinstance(other, np.ndarray):
            raise TypeError(f"Unsupported type {type(other)}")
        if not isinstance(other, (ndarray, *SCALARS)):
            return NotImplemented
        own = getattr(_module_of(), function.__name__)
        return own(other, self) if reflected else own(self, other)

    return operator


def _in_place(function: Any) -> Callable[..., Any]:
    return lambda self, other: getattr(_module_of(), function.__name__)(self, other, out=self)


def _method(name: str, parameters: str) -> Callable[..., Any]:
    binder = eval(f"lambda self{', ' if parameters else ''}{parameters}: None")

    def method(self: ndarray, *args: Any, **kwargs: Any) -> Any:
        binder(self, *args, **kwargs)
        mine = self._ndarray__held if name == "transpose" else held(self)  # type: ignore[attr-defined]  # which looks at no value
        with quietly():
            wraps = {"mode": "wrap"} if name == "take" else {}
            own = summed(name, lambda x, *args, **kwargs: getattr(x, name)(*args, **kwargs, **wraps))
            result = own(mine, *map(_open, args), **{k: _open(v) for k, v in kwargs.items() if v is not None})
        keeps = name in ("astype", "copy")
        return None if result is None else _close(result, [self], name in VIEWS, keeps)

    method.__name__ = name
    return method


def _complete() -> None:
    for name, function in _BINARY.items():
        setattr(ndarray, f"__{name}__", _operator(function, False))
        setattr(ndarray, f"__r{name}__", _operator(function, True))
        setattr(ndarray, f"__i{name}__", _in_place(function))
    for name, function in _COMPARISONS.items():
        setattr(ndarray, f"__{name}__", _operator(function, False))
    ndarray.__matmul__ = _operator(np.matmul, False)  # type: ignore[attr-defined]
    ndarray.__rmatmul__ = _operator(np.matmul, True)  # type: ignore[attr-defined]
    for name, function in (("neg", np.negative), ("pos", np.positive), ("abs", np.absolute), ("invert", np.invert)):
        setattr(ndarray, f"__{name}__", lambda self, own=function: getattr(_module_of(), own.__name__)(self))
    for name, parameters in NAMES["methods"].items():
        if not hasattr(ndarray, name) or name in ("copy",):
            setattr(ndarray, name, _method(name, parameters))


_complete()


def module() -> types.ModuleType:
    """The package, made anew; `ndarray` is one class for all of them."""
    made: Any = types.ModuleType("cupy")
    _current[:] = [made]
    made.__version__ = "14.2.0"
    made.machine = Machine()
    made.cupyx = types.ModuleType("cupyx")
    made.cupyx.errstate = lambda **what: contextlib.nullcontext()  # NumPy's LAPACK raises always
    made.cuda, made.ndarray, made.is_available = made.machine.cuda, ndarray, lambda: True
    made.get_default_memory_pool = lambda: made.machine.pool
    made.get_default_pinned_memory_pool = lambda: made.machine.pinned_pool
    for name, value in vars(np).items():
        is_type = isinstance(value, type) and issubclass(value, np.generic)
        if not name.startswith("_") and (is_type or isinstance(value, (float, type(None)))):
            setattr(made, name, value)
    for name in ("dtype", "finfo", "iinfo", "newaxis", "promote_types", "issubdtype", "broadcast_shapes"):
        setattr(made, name, getattr(np, name))
    for name, (nin, nout, loops) in NAMES["ufuncs"].items():
        setattr(made, name, ufunc(name, nin, nout, loops))
    made.fft, made.linalg = types.ModuleType("cupy.fft"), types.ModuleType("cupy.linalg")
    for name, parameters in NAMES["functions"].items():
        *module, own = name.split(".")
        theirs, mine = (getattr(np, module[0]), getattr(made, module[0])) if module else (np, made)
        if hasattr(theirs, own):
            numpys = functools.partial(np.take, mode="wrap") if name == "take" else getattr(theirs, own)
            setattr(mine, own, _function(own, parameters, numpys))
    made.asnumpy = lambda array: array.get() if isinstance(array, ndarray) else np.asarray(array)
    made.get_array_module = lambda *args: made if any(isinstance(a, ndarray) for a in args) else np
    made.lib = types.SimpleNamespace(stride_tricks=types.SimpleNamespace(as_strided=_as_strided))
    made.array = _array
    made.asarray = lambda a, dtype=None, order=None, *, copy=None, blocking=False: (
        a if isinstance(a, ndarray) and dtype in (None, a.dtype) else _array(a, dtype)
    )
    made.astype = None
    made.random = types.ModuleType("cupy.random")
    made.random.rand = lambda *shape: fresh(np.random.rand(*shape))
    return made


def _as_strided(x: ndarray, shape: Any = None, strides: Any = None) -> ndarray:
    return view(x, np.lib.stride_tricks.as_strided(held(x), shape, strides))


def _array(
    obj: Any, dtype: Any = None, copy: bool = True, order: str = "K", subok: bool = False, ndmin: int = 0, *, blocking: bool = False
) -> ndarray:
    """CuPy takes NumPy's arrays here."""
    source = held(obj) if isinstance(obj, ndarray) else obj if isinstance(obj, np.ndarray) else _open(obj)
    return fresh(np.array(source, dtype, order=order), obj._device if isinstance(obj, ndarray) else None, order)
