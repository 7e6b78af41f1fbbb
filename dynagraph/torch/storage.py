"""``torch.storage``: the memory of tensors as objects, in bytes (UntypedStorage) or in elements of a dtype (TypedStorage)."""

from __future__ import annotations

import importlib
import io
import operator
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np

import dynagraph.cuda as dg_cuda
from dynagraph.torch.core import devices, dtypes, memory_files
from dynagraph.torch.core.dtypes import dtype as DType
from dynagraph.torch.core.relocation import is_alone, relocate
from dynagraph.torch.core.storage import Storage
from dynagraph.torch.core.tensor import Tensor, storage_of
from dynagraph.torch.missing import getattr_of

_BYTES = np.dtype(np.uint8)
_wrappers: weakref.WeakValueDictionary[int, UntypedStorage] = weakref.WeakValueDictionary()
_CASTS = (
    ("float", dtypes.float32), ("double", dtypes.float64), ("half", dtypes.float16), ("bfloat16", dtypes.bfloat16),
    ("long", dtypes.int64), ("int", dtypes.int32), ("short", dtypes.int16), ("char", dtypes.int8), ("byte", dtypes.uint8),
    ("bool", dtypes.bool), ("complex_float", dtypes.complex64), ("complex_double", dtypes.complex128),
)  # fmt: skip
DEPRECATED = (
    "TypedStorage is deprecated. It will be removed in the future and UntypedStorage will be the only storage class. This should "
    "only matter to you if you are using storages directly.  To access UntypedStorage directly, use tensor.untyped_storage() "
    "instead of tensor.storage()"
)


def _integer(index: Any, length: int) -> int:
    place = operator.index(index)
    if not -length <= place < length:
        raise IndexError(f"index {place} out of range for storage of size {length}")
    return place % length


class UntypedStorage:
    """Memory in bytes, which tensors share that lie in it.

    >>> from dynagraph import torch
    >>> x = torch.zeros(2, 3)
    >>> x.untyped_storage().nbytes(), x[1].untyped_storage() is x.untyped_storage()
    (24, True)
    """

    __slots__ = ("__weakref__", "_memory", "_tensor")
    _memory: Storage
    _tensor: Any  # a weak reference to the tensor it was asked of

    def __new__(cls, *args: Any, device: Any = None) -> UntypedStorage:
        if len(args) > 1:
            raise TypeError(f"UntypedStorage() takes a size or a sequence of bytes, got {len(args)} arguments")
        given = args[0] if args else 0
        if isinstance(given, int):
            if given < 0:
                raise RuntimeError(f"UntypedStorage(): size must not be negative, got {given}")
            array = np.empty(given, _BYTES)
        else:
            array = np.array(given, _BYTES).reshape(-1)
        where = devices.CPU if device is None else devices.device(device)
        library = devices.library_of(where)
        return of_memory(Storage(array if library is np else library.asarray(array)))

    # -- the bytes --
    def _row(self) -> Any:
        return self._memory.flat(_BYTES)

    def nbytes(self) -> int:
        """How many bytes there are."""
        return self._memory.nbytes()

    size = __len__ = nbytes

    def element_size(self) -> int:
        """1."""
        return 1

    def data_ptr(self) -> int:
        """The address of the first byte; 0 of none."""
        return self._memory.start() if self.nbytes() else 0

    _cdata = property(lambda self: id(self._memory))

    @property
    def device(self) -> devices.device:
        return devices.of_array(self._memory.array)

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    def get_device(self) -> int:
        """The number of its GPU; -1 in the host's memory."""
        where = self.device
        return -1 if where.type == "cpu" else where.index or 0

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            if index.step not in (None, 1):
                raise RuntimeError(f"Trying to slice with a step of {index.step}, but only a step of 1 is supported")
            return of_memory(Storage(self._row()[index]))
        return int(self._row()[_integer(index, self.nbytes())])

    def __setitem__(self, index: Any, value: Any) -> None:
        if not isinstance(index, slice):
            index = _integer(index, self.nbytes())
        self._row()[index] = value
        self._memory.version += 1

    def __iter__(self) -> Iterator[int]:
        return iter(self.tolist())

    def tolist(self) -> list[int]:
        """The bytes as ints."""
        found: list[int] = self._row().tolist()
        return found

    def fill_(self, value: int) -> UntypedStorage:
        """Store one byte everywhere."""
        self[:] = value
        return self

    def copy_(self, source: Any, non_blocking: bool = False) -> UntypedStorage:
        """Store another storage's bytes here."""
        other = source.untyped()
        if other.nbytes() != self.nbytes():
            raise RuntimeError(f"size does not match, self was {self.nbytes()} bytes but src was {other.nbytes()} bytes")
        self[:] = _moved(other._row(), self.device)
        return self

    # -- other storages --
    def clone(self) -> UntypedStorage:
        """A copy."""
        array = self._memory.array
        return of_memory(Storage(self._memory.flat(array.dtype).copy()))

    def cpu(self) -> UntypedStorage:
        """In the host's memory."""
        return self.to(device="cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False) -> UntypedStorage:
        """On a GPU."""
        return self.to(device="cuda" if device is None else device)

    def to(self, *, device: Any, non_blocking: bool = False) -> UntypedStorage:
        """On a device: the storage itself where it is there."""
        where = devices.device(device)
        if where.type == self.device.type and where.index in (None, self.device.index):
            return self
        return of_memory(Storage(_moved(self._row(), where)))

    def new(self) -> UntypedStorage:
        """An empty storage on the same device."""
        return UntypedStorage(0, device=self.device)

    def untyped(self) -> UntypedStorage:
        """Itself."""
        return self

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The name of its type."""
        if dtype is not None:
            raise TypeError("UntypedStorage.type(): a storage in bytes has no other dtype")
        return "torch.storage.UntypedStorage" if self.device.type == "cpu" else "torch.cuda.UntypedStorage"

    @classmethod
    def from_buffer(
        cls, buffer: Any, byte_order: str = "", *, count: int = -1, offset: int = 0, dtype: Any = None
    ) -> UntypedStorage:
        """A copy of a buffer's bytes."""
        return of_memory(Storage(np.frombuffer(buffer, _BYTES, count, offset).copy()))

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, nbytes: int = 0) -> UntypedStorage:
        """A file's first bytes, mapped: with `shared` writes reach the file, which is made as long as that."""
        if shared:
            with open(filename, "ab") as file:
                file.truncate(max(file.tell(), nbytes))
        return of_memory(Storage(np.asarray(np.memmap(filename, _BYTES, "r+" if shared else "c", 0, (nbytes,)))))

    def byteswap(self, dtype: DType) -> None:
        """Reverse the order of the bytes of each element."""
        self._memory.flat(dtype.numpy).byteswap(inplace=True)

    # -- sizes and sharing --
    def resizable(self) -> bool:
        """True."""
        return True

    def resize_(self, size: int) -> UntypedStorage:
        """Have so many bytes.  Tensors that do not fit keep the memory they had until there are enough."""
        before = self._row()
        if size != len(before):
            array = np.empty_like(before, shape=(size,))
            kept = min(size, len(before))
            array[:kept] = before[:kept]
            array[kept:] = 0
            only = self._only_tensor()
            relocate(self._memory, array, only)
        return self

    def _only_tensor(self) -> Tensor | None:
        tensor = self._tensor() if self._tensor is not None else None
        return tensor if tensor is not None and tensor._storage is self._memory and is_alone(tensor, 1) else None

    def is_shared(self) -> bool:
        """Whether other processes may have the memory."""
        return self.is_cuda or memory_files.mapping_of(self._memory.array) is not None

    def share_memory_(self) -> UntypedStorage:
        """Move into memory that other processes may have."""
        if not self.is_shared():
            only = self._only_tensor()
            share(self._memory, only)
        return self

    def is_pinned(self, device: Any = "cuda") -> bool:
        """Whether it is page-locked memory."""
        return not self.is_cuda and dg_cuda.is_pinned(self._memory.array)

    # -- copies and texts --
    def __copy__(self) -> UntypedStorage:
        return self.clone()

    def __deepcopy__(self, memo: dict[int, Any]) -> UntypedStorage:
        return of_memory(copied(self._memory, memo))

    def __reduce__(self) -> Any:
        return _untyped_of_bytes, (self.cpu()._row().tobytes(), str(self.device))

    def __repr__(self) -> str:
        return f"{_listed(self.tolist())}\n[torch.storage.UntypedStorage(device={self.device}) of size {self.nbytes()}]"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and self._memory is other._memory

    def __hash__(self) -> int:
        return id(self._memory)


def _listed(values: list[Any]) -> str:
    shown = values if len(values) <= 1000 else [*values[:3], "...", *values[-3:]]
    return "".join(f" {v}\n" for v in shown).removesuffix("\n")


def _moved(row: Any, where: devices.device) -> Any:
    library = devices.library_of(where)
    if library is np:
        return row.copy() if isinstance(row, np.ndarray) else row.get()
    with library.cuda.Device(where.index or 0):
        return library.asarray(row)


def of_memory(memory: Storage, tensor: Tensor | None = None) -> UntypedStorage:
    """The one object that stands for a memory as long as somebody has it."""
    found = _wrappers.get(id(memory))
    if found is None or found._memory is not memory:
        found = object.__new__(UntypedStorage)
        found._memory, found._tensor = memory, None
        _wrappers[id(memory)] = found
    if tensor is not None:
        found._tensor = weakref.ref(tensor)
    return found


def copied(memory: Storage, memo: dict[Any, Any]) -> Storage:
    """A copy of a memory: one for all tensors that are copied with the same memo."""
    storages = memo.setdefault("torch storages", {})
    found = storages.get(id(memory))
    if found is None:
        found = storages[id(memory)] = Storage(memory.flat(memory.array.dtype).copy())
        memo[id(memory)] = memory  # alive as long as its id is a key
    return found


def share(memory: Storage, tensor: Tensor | None = None) -> None:
    """Move a memory of the host into one that other processes may have.  `tensor`: the only one that lies in it, if known."""
    flat = memory.flat(memory.array.dtype)
    moved = np.frombuffer(memory_files.allocate(max(flat.nbytes, 1)), flat.dtype, flat.size)
    moved[:] = flat
    relocate(memory, moved, tensor)


def _untyped_of_bytes(data: bytes, device: str) -> UntypedStorage:
    made = of_memory(Storage(np.frombuffer(data, _BYTES).copy()))
    return made if device == "cpu" else made.to(device=device)


def _typed_of_untyped(untyped: UntypedStorage, dtype: DType) -> TypedStorage:
    return TypedStorage(wrap_storage=untyped, dtype=dtype, _internal=True)


class TypedStorage:
    """Memory in elements of a dtype: deprecated in PyTorch."""

    def __new__(
        cls, *args: Any, wrap_storage: Any = None, dtype: DType | None = None, device: Any = None, _internal: bool = False
    ) -> Any:
        if not _internal:
            warn_deprecated()
        made = object.__new__(TypedStorage)
        made.dtype = dtype or dtypes.get_default_dtype()
        if wrap_storage is not None:
            if not isinstance(wrap_storage, UntypedStorage):
                raise TypeError(f"Argument 'wrap_storage' must be UntypedStorage, but got {type(wrap_storage).__name__}")
            made._untyped_storage = wrap_storage
        else:
            given = args[0] if args else 0
            array = np.empty(given, made.dtype.numpy) if isinstance(given, int) else np.array(given).astype(made.dtype.numpy)
            untyped = of_memory(Storage(array.reshape(-1)))
            made._untyped_storage = untyped if device is None else untyped.to(device=device)
        return made

    dtype: DType
    _untyped_storage: UntypedStorage

    def _row(self) -> Any:
        return self._untyped_storage._memory.flat(self.dtype.numpy)

    def untyped(self) -> UntypedStorage:
        """The same memory in bytes."""
        return self._untyped_storage

    def size(self) -> int:
        """How many elements there are."""
        return self._untyped_storage.nbytes() // self.dtype.itemsize

    __len__ = size

    def nbytes(self) -> int:
        """How many bytes there are."""
        return self._untyped_storage.nbytes()

    def element_size(self) -> int:
        """The bytes of an element."""
        return self.dtype.itemsize

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            raise RuntimeError("slices are only supported in UntypedStorage.__getitem__")
        return self._row()[_integer(index, self.size())].item()

    def __setitem__(self, index: Any, value: Any) -> None:
        if not isinstance(index, slice):
            index = _integer(index, self.size())
        self._row()[index] = value
        self._untyped_storage._memory.version += 1

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def tolist(self) -> list[Any]:
        """The elements as Python's numbers."""
        row = self._row()
        found: list[Any] = (row.astype(np.float32) if row.dtype.kind == "V" else row).tolist()
        return found

    def fill_(self, value: Any) -> TypedStorage:
        """Store one number everywhere."""
        self[:] = value
        return self

    def copy_(self, source: TypedStorage, non_blocking: bool = False) -> TypedStorage:
        """Store another storage's elements here, cast."""
        if source.size() != self.size():
            raise RuntimeError(f"size does not match, self was {self.size()} elements but src was {source.size()} elements")
        self[:] = _moved(source._row(), self.device)
        return self

    def resize_(self, size: int) -> None:
        """Have so many elements."""
        self._untyped_storage.resize_(size * self.dtype.itemsize)

    def clone(self) -> TypedStorage:
        """A copy."""
        return _typed_of_untyped(self._untyped_storage.clone(), self.dtype)

    def cpu(self) -> TypedStorage:
        """In the host's memory."""
        return self.to(device="cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False) -> TypedStorage:
        """On a GPU."""
        return self.to(device="cuda" if device is None else device)

    def to(self, *, device: Any, non_blocking: bool = False) -> TypedStorage:
        """On a device: in the same memory where it is there."""
        return _typed_of_untyped(self._untyped_storage.to(device=device), self.dtype)

    def share_memory_(self) -> TypedStorage:
        """Move into memory that other processes may have."""
        self._untyped_storage.share_memory_()
        return self

    def pickle_storage_type(self) -> str:
        """The name that files have for it: FloatStorage."""
        return self.dtype.legacy.replace("Tensor", "Storage")

    def type(self, dtype: Any = None, non_blocking: bool = False) -> str | TypedStorage:
        """The name of its type, or a copy of another."""
        if dtype is None:
            return f"torch.{'cuda.' if self.is_cuda else ''}{self.pickle_storage_type()}"
        return self._cast(dtype if isinstance(dtype, DType) else dtype.dtype)

    def _cast(self, target: DType) -> TypedStorage:
        return _typed_of_untyped(of_memory(Storage(self._row().astype(target.numpy))), target)

    device = property(lambda self: self._untyped_storage.device)
    is_cuda = property(lambda self: self._untyped_storage.is_cuda)
    _cdata = property(lambda self: self._untyped_storage._cdata)
    is_sparse = False

    def __copy__(self) -> TypedStorage:
        return self.clone()

    def __deepcopy__(self, memo: dict[int, Any]) -> TypedStorage:
        return _typed_of_untyped(self._untyped_storage.__deepcopy__(memo), self.dtype)

    def __reduce__(self) -> Any:
        return _typed_of_untyped, (self._untyped_storage, self.dtype)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypedStorage) and (self._untyped_storage, self.dtype) == (other._untyped_storage, other.dtype)

    def __hash__(self) -> int:
        return hash((self._untyped_storage, self.dtype))

    def __repr__(self) -> str:
        about = f"dtype={self.dtype!r}, device={self.device}"
        return f"{_listed(self.tolist())}\n[torch.storage.TypedStorage({about}) of size {self.size()}]"


def _forward(name: str) -> Any:
    return lambda self, *args: getattr(self._untyped_storage, name)(*args)


for _name in ("data_ptr", "get_device", "is_shared", "is_pinned", "resizable"):
    setattr(TypedStorage, _name, _forward(_name))
for _name, _dtype in _CASTS:
    setattr(TypedStorage, _name, lambda self, _target=_dtype: self._cast(_target))
    setattr(UntypedStorage, _name, lambda self, _target=_dtype: _typed_of_untyped(self, dtypes.uint8)._cast(_target))

_warned: list[bool] = []


def warn_deprecated() -> None:
    """Say once that typed storages are deprecated."""
    if not _warned:
        _warned.append(True)
        warnings.warn(DEPRECATED, UserWarning, stacklevel=3)


# -- the types by dtype -----------------------------------------------------------------------------------------------


class _LegacyStorageMeta(type):
    dtype: DType

    def __instancecheck__(cls, instance: Any) -> bool:
        if "dtype" not in vars(cls):
            return isinstance(instance, TypedStorage)
        return isinstance(instance, TypedStorage) and instance.dtype is cls.dtype


class _LegacyStorage(TypedStorage, metaclass=_LegacyStorageMeta):
    def __new__(cls, *args: Any, wrap_storage: Any = None, **kwargs: Any) -> Any:
        return TypedStorage(*args, wrap_storage=wrap_storage, dtype=cls.dtype, _internal=True, **kwargs)

    @classmethod
    def from_buffer(cls, buffer: Any, byte_order: str = "native", count: int = -1, offset: int = 0) -> TypedStorage:
        """A copy of a buffer's elements; `byte_order` is "native", "little" or "big"."""
        signs = {"native": "=", "little": "<", "big": ">"}
        if byte_order not in signs:
            raise ValueError(f"invalid byte_order '{byte_order}' (expected 'big', 'little', or 'native')")
        kind = cls.dtype.numpy
        array = np.frombuffer(buffer, kind.newbyteorder(signs[byte_order]), count, offset).astype(kind)
        return _typed_of_untyped(of_memory(Storage(array)), cls.dtype)


LEGACY = {
    d.legacy.replace("Tensor", "Storage"): _LegacyStorageMeta(
        d.legacy.replace("Tensor", "Storage"), (_LegacyStorage,), {"dtype": d, "__module__": "dynagraph.torch"}
    )
    for d in dtypes.ALL
}


def storage_type(x: Tensor) -> Any:
    """The type of a tensor's storage: torch.FloatStorage."""
    return LEGACY[x.dtype.legacy.replace("Tensor", "Storage")]


def untyped_storage(x: Tensor) -> UntypedStorage:
    """The memory that a tensor lies in, in bytes."""
    return of_memory(storage_of(x), x)


def storage(x: Tensor) -> TypedStorage:
    """The memory that a tensor lies in, in its elements; deprecated in PyTorch."""
    warn_deprecated()
    return typed_storage(x)


def typed_storage(x: Tensor) -> TypedStorage:
    """As `storage`, without a warning."""
    return _typed_of_untyped(untyped_storage(x), x.dtype)


Tensor.untyped_storage, Tensor.storage, Tensor.storage_type = untyped_storage, storage, storage_type
Tensor._typed_storage = typed_storage


def _load_from_bytes(data: bytes) -> Any:
    """The storage in a plain pickle of PyTorch's."""
    return importlib.import_module("dynagraph.torch.serialization").load(io.BytesIO(data), weights_only=False)


__getattr__ = getattr_of(__name__)
__all__ = ["TypedStorage", "UntypedStorage"]
