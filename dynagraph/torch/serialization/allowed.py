"""What files may name under ``weights_only=True``: data.  Each class and function that may be named has what makes one of its
arguments.

The makers check their arguments: what is harmless with some may take all memory with others, as ``bytearray(10**10)`` does.
"""

from __future__ import annotations

import math
import pathlib
import reprlib
import threading
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagraph.torch import _utils
from dynagraph.torch.core import devices, dtypes, layouts
from dynagraph.torch.core.parameter import Parameter
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.common import NAMESPACES
from dynagraph.torch.serialization.errors import LoadError
from dynagraph.torch.serialization.names import is_ours, theirs
from dynagraph.torch.storage import LEGACY, TypedStorage, UntypedStorage

NEVER = frozenset({"sys", "os", "posix", "nt", "subprocess", "builtins.eval", "builtins.exec", "builtins.compile"})
_KINDS = frozenset("biufcmMSU")  # of NumPy's dtypes without Python's objects
_MOST_DIMENSIONS = 64


class StorageType:
    """The type of a storage in a file: its dtype.  KeyError for names of none."""

    def __init__(self, name: str):
        self._dtype = _DTYPES[name]

    @property
    def dtype(self) -> dtypes.dtype:
        return self._dtype

    def __str__(self) -> str:
        return f"StorageType(dtype={self.dtype})"


_DTYPES = {name: kind.dtype for name, kind in LEGACY.items()}


def _refuse(what: str, args: Any) -> LoadError:
    return LoadError(f"{what} with such arguments is no data: {reprlib.repr(args)}")


# -- makers -----------------------------------------------------------------------------------------------------------


def _of_types(function: Callable[..., Any], *kinds: tuple[type, ...], least: int = 0) -> Callable[..., Any]:
    """A maker that takes so many arguments of exactly these types."""

    def make(*args: Any) -> Any:
        if not least <= len(args) <= len(kinds) or not all(type(a) in k for a, k in zip(args, kinds)):
            raise _refuse(getattr(function, "__name__", "this"), args)
        return function(*args)

    return make


def _encoded(text: Any = "", encoding: Any = "", *more: Any) -> bytes:
    if more or type(text) is not str or encoding not in ("latin1", "latin-1"):
        raise _refuse("_codecs.encode", (encoding, *more))
    return text.encode("latin1")


def _bytearray(*args: Any) -> bytearray:
    if not args:
        return bytearray()
    if len(args) == 1 and type(args[0]) is bytes:
        return bytearray(args[0])
    return bytearray(_encoded(*args))


def _defaultdict(*args: Any) -> Any:
    if len(args) > 1 or (args and args[0] is not None and not any(args[0] is f for f in _FACTORIES)):
        raise _refuse("defaultdict", args)
    return defaultdict(*args)


def _pairs(kind: type) -> Callable[..., Any]:
    """OrderedDict(), or of a list of pairs or a dict."""

    def make(*args: Any) -> Any:
        if len(args) > 1 or (args and type(args[0]) not in (list, dict)):
            raise _refuse(kind.__name__, args)
        return kind(*args)

    return make


def _nothing(kind: type) -> Callable[..., Any]:
    def make(*args: Any) -> Any:
        if args:
            raise _refuse(kind.__name__, args)
        return kind()

    return make


def _path(own: type) -> Callable[..., Any]:
    def make(*parts: Any) -> Any:
        if not all(type(p) is str for p in parts):
            raise _refuse("Path", parts)
        return own(*parts)

    return make


def _simple(dtype: Any) -> np.dtype:
    if not isinstance(dtype, np.dtype):
        raise _refuse("a NumPy array of dtype", dtype)
    plain = dtype.kind in _KINDS and not (dtype.names or dtype.subdtype or dtype.hasobject)
    if not plain and dtype.name != "bfloat16":
        raise _refuse("a NumPy array of dtype", dtype)
    return dtype


def _dtype(name: Any = None, align: Any = False, copy: Any = False) -> np.dtype:
    if type(name) is not str or len(name) > 16:
        raise _refuse("numpy.dtype", name)
    if name == "bfloat16" or name == "V2":
        return dtypes.bfloat16.numpy
    try:
        return _simple(np.dtype(np.dtype(name), copy=True))
    except TypeError:
        raise _refuse("numpy.dtype", name) from None


def _dtype_state(dtype: Any, state: Any) -> None:
    if (
        type(state) is not tuple
        or not 8 <= len(state) <= 9
        or state[2:5] != (None, None, None)
        or state[1] not in ("<", ">", "|", "=")
    ):
        raise _refuse("the state of numpy.dtype", state)
    if len(state) == 9 and dtype.kind not in "mM":
        raise _refuse("the state of numpy.dtype", state)
    if dtype.kind in "SU" and state[5] != dtype.itemsize:
        raise _refuse("the state of numpy.dtype", state)
    if dtype.name == "bfloat16":
        return  # it is one object, and has the machine's byte order
    size = dtype.itemsize if dtype.kind in "SU" else -1
    alignment = dtype.alignment if dtype.kind in "SU" else -1
    if len(state) == 9:
        unit = state[8][1] if type(state[8]) is tuple and len(state[8]) == 2 else state[8]
        if (
            type(unit) is not tuple
            or len(unit) != 4
            or type(unit[0]) not in (bytes, str)
            or any(type(n) is not int for n in unit[1:])
        ):
            raise _refuse("the state of numpy.dtype", state)
        dtype.__setstate__((4, state[1], None, None, None, -1, -1, 0, state[8]))
    else:
        dtype.__setstate__((3, state[1], None, None, None, size, alignment, 0))


def _array(kind: Any = None, shape: Any = None, code: Any = None) -> np.ndarray:
    if kind is not np.ndarray or shape != (0,) or code not in (b"b", "b"):
        raise _refuse("numpy's _reconstruct", (kind, shape, code))
    return np.empty((0,), np.int8)


def _sizes(shape: Any) -> tuple[int, ...]:
    if type(shape) is not tuple or len(shape) > _MOST_DIMENSIONS or any(type(n) is not int or not 0 <= n < 1 << 62 for n in shape):
        raise _refuse("a NumPy array of shape", shape)
    return shape


def _array_state(array: Any, state: Any) -> None:
    if type(state) is not tuple or len(state) != 5:
        raise _refuse("the state of a NumPy array", state)
    version, shape, dtype, is_fortran, data = state
    count = math.prod(_sizes(shape))
    if type(data) is not bytes or count * _simple(dtype).itemsize != len(data) or array.size or not array.flags.owndata:
        raise _refuse("a NumPy array", (shape, dtype))
    array.__setstate__((version, shape, dtype, bool(is_fortran), data))


def _scalar(dtype: Any = None, data: Any = None) -> Any:
    if type(data) is not bytes or _simple(dtype).itemsize != len(data):
        raise _refuse("a NumPy scalar", (dtype, data))
    return np.frombuffer(data, dtype)[0]


def _from_buffer(data: Any = None, dtype: Any = None, shape: Any = None, order: Any = None) -> np.ndarray:
    if type(data) not in (bytes, bytearray) or order not in ("C", "F"):
        raise _refuse("numpy's _frombuffer", (dtype, shape, order))
    _simple(dtype)
    return np.frombuffer(data, dtype).reshape(_sizes(shape), order=order)


def _parameter(*args: Any) -> Any:
    if not 1 <= len(args) <= 3 or not isinstance(args[0], Tensor):
        raise _refuse("torch.nn.Parameter", args)
    return Parameter(args[0], bool(args[1]) if len(args) > 1 else True)


def _rebuilt_parameter(data: Any = None, requires_grad: Any = True, hooks: Any = None, *state: Any) -> Any:
    if not isinstance(data, Tensor):
        raise _refuse("torch._utils._rebuild_parameter", data)
    if state:
        return _utils._rebuild_parameter_with_state(data, bool(requires_grad), hooks, *state)
    return _utils._rebuild_parameter(data, bool(requires_grad), hooks)


def _from_type(function: Any = None, kind: Any = None, args: Any = None, state: Any = None) -> Any:
    maker, target = maker_of(function), by_object(kind)
    if target is None or not (isinstance(kind, type) and issubclass(kind, Tensor)):
        raise _refuse("torch._tensor._rebuild_from_type_v2", kind)
    made = maker(*args)
    if not isinstance(made, Tensor):
        raise _refuse("torch._tensor._rebuild_from_type_v2", function)
    return _utils._rebuild_from_type_v2(lambda: made, kind, (), state)


def _tensor_state(tensor: Any, state: Any) -> None:
    if type(state) is tuple and len(state) == 4 and isinstance(state[0], (TypedStorage, UntypedStorage)):
        storage, offset, size, stride = state  # of files from before tensors had functions that rebuild them
        other = _utils._rebuild_tensor(storage, offset, size, stride)
        tensor._array, tensor._storage = other._array, other._storage
    else:
        raise _refuse("the state of a tensor", state)


def _attributes(value: Any, state: Any) -> None:
    if type(state) is not dict or not all(type(k) is str for k in state):
        raise _refuse("the state of an OrderedDict", state)
    value.__dict__.update(state)


def _get_layout(name: Any = None) -> Any:
    for known in (layouts.strided, layouts.sparse_coo, layouts.sparse_csr):
        if name == repr(known):
            return known
    raise LoadError(f"dynagraph.torch has no layout {str(name)[:100]}")


# -- the table --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Allowed:
    """What a file may name: the object, what calls of it give (REDUCE and NEWOBJ), and how a state is set (BUILD)."""

    value: Any
    make: Callable[..., Any] | None = None
    build: Callable[[Any, Any], None] | None = None


_FACTORIES = (int, float, bool, str, list, dict, tuple, set)
_SEQUENCES = (list, tuple, set)
_NUMBERS: tuple[type, ...] = (int, type(None))


def _table() -> dict[str, Allowed]:
    found = {
        "collections.OrderedDict": Allowed(OrderedDict, _pairs(OrderedDict), _attributes),
        "collections.Counter": Allowed(Counter, _pairs(Counter)),
        "collections.defaultdict": Allowed(defaultdict, _defaultdict),
        "_codecs.encode": Allowed(_encoded, _encoded),
        "builtins.bytearray": Allowed(bytearray, _bytearray),
        "builtins.bytes": Allowed(bytes, _nothing(bytes)),
        "builtins.set": Allowed(set, _of_types(set, _SEQUENCES)),
        "builtins.frozenset": Allowed(frozenset, _of_types(frozenset, _SEQUENCES)),
        "builtins.complex": Allowed(complex, _of_types(complex, (int, float), (int, float))),
        "builtins.slice": Allowed(slice, _of_types(slice, _NUMBERS, _NUMBERS, _NUMBERS, least=1)),
        "builtins.range": Allowed(range, _of_types(range, (int,), (int,), (int,), least=1)),
    }
    for kind in _FACTORIES[:-1]:
        found[f"builtins.{kind.__name__}"] = Allowed(kind, _nothing(kind))
    pure = {"Posix": pathlib.PurePosixPath, "Windows": pathlib.PureWindowsPath}
    own = "Posix" if isinstance(pathlib.Path(), pathlib.PosixPath) else "Windows"
    for module in ("pathlib", "pathlib._local"):
        for system, kind in pure.items():
            found[f"{module}.Pure{system}Path"] = Allowed(kind, _path(kind))
            found[f"{module}.{system}Path"] = Allowed(
                pathlib.Path if system == own else kind, _path(pathlib.Path if system == own else kind)
            )
    return found | _of_numpy() | _of_torch()


def _of_numpy() -> dict[str, Allowed]:
    found = {
        "numpy.ndarray": Allowed(np.ndarray, None, _array_state),
        "numpy.dtype": Allowed(np.dtype, _dtype, _dtype_state),
        "ml_dtypes.bfloat16": Allowed("bfloat16"),  # (np.dtype takes it by name)
    }
    for core in ("numpy.core", "numpy._core"):
        found[f"{core}.multiarray._reconstruct"] = Allowed(_array, _array)
        found[f"{core}.multiarray.scalar"] = Allowed(_scalar, _scalar)
        found[f"{core}.numeric._frombuffer"] = Allowed(_from_buffer, _from_buffer)
    for name in {type(np.dtype(code)).__name__ for code in "?bhilqBHILQefdFDSUmM"}:  # (their classes have instances only)
        found[f"numpy.dtypes.{name}"] = Allowed(getattr(np.dtypes, name), _nothing(getattr(np.dtypes, name)), _dtype_state)
    return found


def _of_torch() -> dict[str, Allowed]:
    storages: tuple[type, ...] = (TypedStorage, UntypedStorage)
    found = {
        "torch.Size": Allowed(dtypes.Size, _of_types(dtypes.Size, (tuple, list))),
        "torch.device": Allowed(devices.device, _of_types(devices.device, (str,), (int,), least=1)),
        "torch.Tensor": Allowed(Tensor, _nothing(Tensor), _tensor_state),
        "torch.nn.parameter.Parameter": Allowed(Parameter, _parameter),
        "torch.serialization._get_layout": Allowed(_get_layout, _get_layout),
        "torch._utils._rebuild_parameter": Allowed(_utils._rebuild_parameter, _rebuilt_parameter),
        "torch._utils._rebuild_parameter_with_state": Allowed(_utils._rebuild_parameter_with_state, _rebuilt_parameter),
        "torch._tensor._rebuild_from_type_v2": Allowed(_utils._rebuild_from_type_v2, _from_type),
        "torch._utils._rebuild_sparse_tensor": Allowed(_utils._rebuild_sparse_tensor, _utils._rebuild_sparse_tensor),
        "torch.storage.UntypedStorage": Allowed(UntypedStorage),
        "torch.storage.TypedStorage": Allowed(TypedStorage),
    }
    of_storage = ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3")
    others = ("_rebuild_device_tensor_from_numpy", "_rebuild_device_tensor_from_cpu_tensor")
    for names, kinds in ((of_storage, storages), (others, (np.ndarray, Tensor))):
        for name in names:
            function = getattr(_utils, name)
            found[f"torch._utils.{name}"] = Allowed(function, _first_of(function, kinds))
    for dtype in dtypes.ALL:
        found[repr(dtype)] = Allowed(dtype)
    for name in LEGACY:
        found[f"torch.{name}"] = Allowed(StorageType(name))
        found[f"torch.cuda.{name}"] = found[f"torch.{name}"]
    for dtype in dtypes.ALL:
        kind = NAMESPACES["torch"].get(dtype.legacy)
        if kind is not None:
            found[f"torch.{dtype.legacy}"] = Allowed(kind, _nothing(Tensor), _tensor_state)
    return found


def _first_of(function: Callable[..., Any], kinds: tuple[type, ...]) -> Callable[..., Any]:
    def make(*args: Any) -> Any:
        if not args or not isinstance(args[0], kinds):
            raise _refuse(f"torch._utils.{function.__name__}", args[:1])
        return function(*args)

    return make


TABLE = _table()
_BY_OBJECT = {id(allowed.value): allowed for allowed in TABLE.values()}


# -- what users allow -------------------------------------------------------------------------------------------------


class _Users:
    """What users have allowed: in order, without duplicates, for all threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.given: list[Any] = []
        self.by_name: dict[str, Any] = {}
        self.ids: set[int] = set()

    def change(self, given: list[Any]) -> None:
        by_name = dict(_named(each) for each in given)
        self.given, self.by_name, self.ids = given, by_name, {id(value) for value in by_name.values()}


_users = _Users()


def _named(given: Any) -> tuple[str, Any]:
    if not isinstance(given, tuple):
        module, name = given.__module__, given.__qualname__
        return ".".join(theirs(module, name) if is_ours(module) else (module, name)), given
    if len(given) != 2:
        raise ValueError(f"Expected tuple of length 2 (global, str of callable full path), but got tuple of length: {len(given)}")
    if type(given[1]) is not str:
        raise TypeError(f"Expected second item in tuple to be str of callable full path, but got: {type(given[1])}")
    return given[1], given[0]


def add_safe_globals(safe_globals: Iterable[Any]) -> None:
    """Let files loaded with ``weights_only=True`` name these classes and functions, each given itself or as (object, full name).

    Allow only what may be called with any arguments: files can call it.
    """
    with _users.lock:
        new = list(safe_globals)
        _users.change(_users.given + [g for k, g in enumerate(new) if g not in _users.given and g not in new[:k]])


def get_safe_globals() -> list[Any]:
    """What `add_safe_globals` was given."""
    return list(_users.given)


def clear_safe_globals() -> None:
    """Forget what `add_safe_globals` was given."""
    with _users.lock:
        _users.change([])


class safe_globals:
    """Within it files may name these classes and functions, as `add_safe_globals` has it."""

    def __init__(self, safe_globals: Iterable[Any]):
        self.safe_globals = list(safe_globals)

    def __enter__(self) -> None:
        add_safe_globals(self.safe_globals)

    def __exit__(self, *_: Any) -> None:
        with _users.lock:
            _users.change([g for g in _users.given if g not in self.safe_globals])


def by_name(full: str) -> Any:
    """What a name in a file means; LookupError where it is not allowed."""
    found = TABLE.get(full)
    if found is not None:
        return found.value
    if full in _users.by_name:
        return _users.by_name[full]
    raise LookupError(full)


def by_object(value: Any) -> Allowed | None:
    """What may be done with an object that a file has named."""
    found = _BY_OBJECT.get(id(value))
    if found is not None:
        return found
    return Allowed(value, value) if id(value) in _users.ids else None


def maker_of(function: Any) -> Callable[..., Any]:
    """What calls of an object that a file has named give."""
    found = by_object(function)
    if found is None or found.make is None:
        raise LoadError(f"Trying to call reduce for unrecognized function {reprlib.repr(function)}")
    return found.make


__all__ = [
    "NEVER", "StorageType", "add_safe_globals", "by_name", "by_object", "clear_safe_globals", "get_safe_globals", "maker_of",
    "safe_globals",
]  # fmt: skip
