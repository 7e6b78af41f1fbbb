"""``torch.load``: of PyTorch's files, zip and older, and of safetensors' and NumPy's."""

from __future__ import annotations

import contextlib
import io
import mmap as _mmap
import os
import pickle
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from dynagraph.torch.core.storage import Storage
from dynagraph.torch.serialization import arrays, legacy, locations
from dynagraph.torch.serialization.allowed import StorageType
from dynagraph.torch.serialization.archive import LOCAL, Reader
from dynagraph.torch.serialization.errors import LoadError
from dynagraph.torch.serialization.names import ours
from dynagraph.torch.serialization.options import LoadEndianness, get_default_load_endianness, get_default_mmap_options, of_thread
from dynagraph.torch.serialization.sources import Source, is_plain_file, new_array, source_of
from dynagraph.torch.serialization.unpickler import Unpickler
from dynagraph.torch.storage import TypedStorage, UntypedStorage, of_memory
from dynagraph.torch.utils.serialization import config

_TRUE = ("1", "y", "yes", "true")
UNSAFE = (
    "Load it with `weights_only=False`, which is not the default: what the file names is then imported and called, and it can "
    "run any "
    "code."
)


def load(
    f: Any, map_location: Any = None, pickle_module: Any = None, *, weights_only: bool | None = None, mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:  # fmt: skip
    """Read what `save` or PyTorch's own has written: `f` is a path or a file that can seek.

    With ``weights_only=True``, the default, only data is made, whatever the file says: tensors, numbers, texts, containers, NumPy's
    arrays, and what `add_safe_globals` allows; with False files can run any code.  `map_location` says where tensors go: a
    device, a dict of tags, or a function of a storage and its tag.  ``mmap=True`` maps the file instead of reading it.  Names
    that end in ``.safetensors`` and ``.npz`` are files of these formats.

    LoadError, a RuntimeError and UnpicklingError, for files that are damaged or cut off: sizes and checksums are compared.
    """
    weights_only, pickle_module = _with_what(weights_only, pickle_module, bool(pickle_load_args))
    if mmap is None:
        mmap = config.load.mmap
    pickle_load_args.setdefault("encoding", "utf-8")
    is_path = isinstance(f, (str, os.PathLike))
    if is_path and os.fspath(f).endswith(arrays.ENDINGS):
        return arrays.load_by_ending(f, map_location, mmap)
    with open(f, "rb") if is_path else contextlib.nullcontext(f) as file:
        source = source_of(file)
        loader = _Loader(source, map_location, None if weights_only else pickle_module, pickle_load_args)
        with _explained(weights_only):
            if source.size == 0:
                raise LoadError(f"{source.name}: Ran out of input: the file is empty")
            if source.read(0, min(4, source.size)) == LOCAL:
                return loader.of_archive(_mapped(f, is_path) if mmap else None)
            if mmap:
                raise RuntimeError(
                    "mmap can only be used with files saved with `torch.save(_use_new_zipfile_serialization=True), please "
                    "torch.save "
                    "your checkpoint with this option in order to use mmap."
                )
            return loader.of_legacy(file)


def _with_what(weights_only: bool | None, pickle_module: Any, has_args: bool) -> tuple[bool, Any]:
    """Whether only data is made, and the pickle module where it is not."""
    forced = os.environ.get("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "0").lower() in _TRUE
    forced_off = os.environ.get("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "0").lower() in _TRUE
    if forced and forced_off:
        raise RuntimeError(
            "Only one of `TORCH_FORCE_WEIGHTS_ONLY_LOAD` or `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD` should be set, but both were set."
        )
    if forced:
        weights_only = True
    elif forced_off and weights_only is None:
        warnings.warn(
            "Environment variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD detected, since the `weights_only` argument was not explicitly "
            "passed to `torch.load`, forcing weights_only=False.", UserWarning, stacklevel=3,
        )  # fmt: skip
        weights_only = False
    elif weights_only is None:
        weights_only = pickle_module is None
    if weights_only and pickle_module is not None:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
    if weights_only and has_args:
        warnings.warn("pickle_load_args only works if `weights_only=False`.", stacklevel=3)
    return weights_only, pickle_module or pickle


@contextlib.contextmanager
def _explained(weights_only: bool) -> Iterator[None]:
    """Errors about what is not allowed, with what to do about it."""
    try:
        yield
    except LoadError:
        raise
    except pickle.UnpicklingError as error:
        if not weights_only:
            raise
        raise pickle.UnpicklingError(
            "Weights only load failed. This file can still be loaded, to do so you have two options, do those steps only if "
            "you trust "
            f"the source of the checkpoint.\n\t(1) {UNSAFE}\n\t(2) Alternatively, to load with `weights_only=True` please "
            f"check the "
            f"recommended steps in the following error message.\n\tWeightsUnpickler error: {error}"
        ) from None


def _mapped(f: Any, is_path: bool) -> np.ndarray:
    if not is_path:
        raise ValueError("f must be a file path in order to use the mmap argument")
    shared = get_default_mmap_options() == _mmap.MAP_SHARED
    return np.asarray(np.memmap(f, np.uint8, "r+" if shared else "c"))


class _Loader:
    """One call of `load`.  `pickle_module` None: only data is made."""

    def __init__(self, source: Source, map_location: Any, pickle_module: Any, args: dict[str, Any]):
        self.source, self.pickle_module, self.args = source, pickle_module, args
        self.restore = locations.restorer_of(map_location)

    def unpickled(self, data: bytes, name: str, persistent_load: Any, position: int = 0) -> tuple[Any, int]:
        """The object of a pickle that begins at a place, and where the pickle ends."""
        if self.pickle_module is None:
            reader = Unpickler(data, persistent_load, name=name, position=position, encoding=self.args["encoding"])
            return reader.load(), reader.position
        file = io.BytesIO(data)
        file.seek(position)
        unpickler = _code_unpickler(self.pickle_module.Unpickler)(file, persistent_load, self.args)
        try:
            return unpickler.load(), file.tell()
        except (EOFError, pickle.UnpicklingError) as error:
            raise LoadError(f"{name}: not a whole pickle: {error}") from error

    def restored(self, array: np.ndarray, location: Any) -> UntypedStorage:
        """An array as a storage at the place that its tag or `map_location` says."""
        tag = location.decode("ascii") if isinstance(location, bytes) else location
        if not isinstance(tag, str):
            raise LoadError(f"{self.source.name}: the place of a storage is no text: {type(tag).__name__}")
        return locations.untyped(self.restore(of_memory(Storage(array)), tag))

    # -- zip files --
    def of_archive(self, mapped: np.ndarray | None) -> Any:
        """What is in a zip file."""
        reader = Reader(self.source)
        if "data.pkl" not in reader.records:
            raise LoadError(f"{self.source.name}: the zip file has no data.pkl: it is no checkpoint")
        if "constants.pkl" in reader.records:
            raise RuntimeError(f"{self.source.name} is a TorchScript archive, whose code dynagraph.torch does not run")
        swap = _byteorder(reader) != sys.byteorder
        loaded: dict[str, TypedStorage] = {}

        def persistent_load(given: Any) -> TypedStorage:
            kind, key, location, count = legacy.parts(given, 5, self.source.name)
            found = loaded.get(key)
            if found is None:
                dtype = legacy.dtype_of(kind, self.source.name)
                array = self._array(reader, f"data/{key}", dtype.numpy, count, swap, mapped)
                storage = self.restored(array, location)
                found = loaded[key] = TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)
            return found

        return self.unpickled(reader.read("data.pkl"), f"{self.source.name}, data.pkl", persistent_load)[0]

    def _array(
        self, reader: Reader, name: str, dtype: np.dtype, count: int, swap: bool, mapped: np.ndarray | None
    ) -> np.ndarray:  # fmt: skip
        place, size = reader.place(name), reader.records[name].size
        if count * dtype.itemsize != size:
            raise LoadError(f"{self.source.name}: {name} has {size} bytes, and its storage {count} elements of {dtype.itemsize}")
        if of_thread.skip_data:
            return np.zeros(count, dtype)
        if mapped is not None and not swap:
            row: np.ndarray = mapped[place : place + size]
            return row.view(dtype) if row.ctypes.data % dtype.alignment == 0 else row.copy().view(dtype)
        array = new_array(dtype, count, reader.source)
        reader.fill(name, array.view(np.uint8))
        if swap:
            array.byteswap(inplace=True)
        return array

    # -- files of before zip --
    def of_legacy(self, file: Any) -> Any:
        """What is in a file of before PyTorch 1.6: pickles, then the numbers of storages; or a tar file."""
        data = self.source.read(0, self.source.size)
        found, end = legacy.load(self, data, is_plain_file(file) and self.source.start == 0)
        file.seek(self.source.start + end)
        return found


def _byteorder(reader: Reader) -> str:
    if "byteorder" in reader.records:
        found = reader.read("byteorder") if reader.records["byteorder"].size < 10 else b"?"
        if found not in (b"little", b"big"):
            raise ValueError(f"Unknown endianness type: {found.decode('ascii', 'replace')}")
        return found.decode()
    default = get_default_load_endianness()
    return sys.byteorder if default is LoadEndianness.NATIVE else "big" if default is LoadEndianness.BIG else "little"


_unpicklers: dict[Any, Any] = {}


def _code_unpickler(base: Any) -> Any:
    """A pickle module's unpickler that knows PyTorch's names as this package's."""
    if base not in _unpicklers:

        class CodeUnpickler(base):  # type: ignore[misc]
            def __init__(self, file: Any, persistent_load: Any, args: dict[str, Any]):
                super().__init__(file, **args)
                self.storage_of = persistent_load

            def persistent_load(self, given: Any) -> Any:
                return self.storage_of(given)

            def find_class(self, module: str, name: str) -> Any:
                if "Storage" in name:
                    with contextlib.suppress(KeyError):
                        return StorageType(name)
                return super().find_class(ours(module), name)

        _unpicklers[base] = CodeUnpickler
    return _unpicklers[base]


__all__ = ["UNSAFE", "load"]
