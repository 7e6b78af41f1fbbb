"""``torch.serialization``: tensors, and what holds them, in files."""

from __future__ import annotations

import copyreg
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dynagraph.torch.core import layouts
from dynagraph.torch.missing import getattr_of
from dynagraph.torch.serialization import safetensors as safetensors
from dynagraph.torch.serialization.allowed import StorageType as StorageType
from dynagraph.torch.serialization.allowed import _get_layout as _get_layout
from dynagraph.torch.serialization.allowed import add_safe_globals as add_safe_globals
from dynagraph.torch.serialization.allowed import by_name as _by_name
from dynagraph.torch.serialization.allowed import clear_safe_globals as clear_safe_globals
from dynagraph.torch.serialization.allowed import get_safe_globals as get_safe_globals
from dynagraph.torch.serialization.allowed import safe_globals as safe_globals
from dynagraph.torch.serialization.archive import LOCAL as _LOCAL
from dynagraph.torch.serialization.archive import Reader as _Reader
from dynagraph.torch.serialization.errors import LoadError as LoadError
from dynagraph.torch.serialization.loading import load as load
from dynagraph.torch.serialization.locations import MAP_LOCATION as MAP_LOCATION
from dynagraph.torch.serialization.locations import default_restore_location as default_restore_location
from dynagraph.torch.serialization.locations import location_tag as location_tag
from dynagraph.torch.serialization.locations import register_package as register_package
from dynagraph.torch.serialization.locations import validate_cuda_device as validate_cuda_device
from dynagraph.torch.serialization.locations import validate_hpu_device as validate_hpu_device
from dynagraph.torch.serialization.options import LoadEndianness as LoadEndianness
from dynagraph.torch.serialization.options import get_crc32_options as get_crc32_options
from dynagraph.torch.serialization.options import get_default_load_endianness as get_default_load_endianness
from dynagraph.torch.serialization.options import get_default_mmap_options as get_default_mmap_options
from dynagraph.torch.serialization.options import set_crc32_options as set_crc32_options
from dynagraph.torch.serialization.options import set_default_load_endianness as set_default_load_endianness
from dynagraph.torch.serialization.options import set_default_mmap_options as set_default_mmap_options
from dynagraph.torch.serialization.options import skip_data as skip_data
from dynagraph.torch.serialization.saving import DEFAULT_PROTOCOL as DEFAULT_PROTOCOL
from dynagraph.torch.serialization.saving import save as save
from dynagraph.torch.serialization.sources import source_of as _source_of
from dynagraph.torch.serialization.unpickler import named_globals as _named_globals
from dynagraph.torch.storage import LEGACY as _LEGACY

FILE_LIKE = Any
STORAGE = Any
copyreg.pickle(layouts.layout, lambda layout: (_get_layout, (repr(layout),)))


class SourceChangeWarning(Warning):
    """PyTorch's, of files that hold the source of classes; such sources are not compared here."""


@contextmanager
def mkdtemp() -> Iterator[str]:
    """A folder that is gone when the block ends."""
    path = tempfile.mkdtemp()
    try:
        yield path
    finally:
        shutil.rmtree(path)


def get_unsafe_globals_in_checkpoint(f: Any) -> list[str]:
    """The classes and functions that a file names and ``weights_only=True`` does not allow; nothing of it is made."""
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            return get_unsafe_globals_in_checkpoint(file)
    source = _source_of(f)
    if source.size < 4 or source.read(0, 4) != _LOCAL:
        raise ValueError("Expected input to be a checkpoint returned by torch.save")
    found = _named_globals(_Reader(source).read("data.pkl"))
    return sorted(name for name in found if not _is_allowed(name))


def _is_allowed(name: str) -> bool:
    try:
        _by_name(name)
    except LookupError:
        return False
    return True


def check_module_version_greater_or_equal(module: Any, req_version_tuple: tuple[Any, ...], error_if_malformed: bool = True) -> bool:
    """Whether a module's version is at least this one; True, with a warning, or RuntimeError where it cannot be compared."""
    try:
        parts = module.__version__.split(".")
        return tuple(type(wanted)(parts[k]) for k, wanted in enumerate(req_version_tuple)) >= req_version_tuple
    except (AttributeError, IndexError, ValueError) as error:
        text = (
            f"'{module.__name__}' module version string is malformed '{getattr(module, '__version__', None)}' and cannot be "
            f"compared "
            f"with tuple {req_version_tuple}"
        )
        if error_if_malformed:
            raise RuntimeError(text) from error
        warnings.warn(f"{text}, but continuing assuming that requirement is met", stacklevel=2)
        return True


def normalize_storage_type(storage_type: type) -> Any:
    """The type of a storage by its name."""
    return _LEGACY.get(storage_type.__name__, storage_type)


def storage_to_tensor_type(storage: Any) -> str:
    """The name of the type of tensors that have a storage."""
    found: str = storage.type().replace("Storage", "Tensor")
    return found


__getattr__ = getattr_of(__name__)
__all__ = [
    "LoadEndianness", "SourceChangeWarning", "StorageType", "add_safe_globals", "check_module_version_greater_or_equal",
    "clear_safe_globals", "default_restore_location", "get_crc32_options", "get_default_load_endianness",
    "get_default_mmap_options",
    "get_safe_globals", "get_unsafe_globals_in_checkpoint", "load", "location_tag", "mkdtemp", "normalize_storage_type",
    "register_package", "safe_globals", "save", "set_crc32_options", "set_default_load_endianness", "set_default_mmap_options",
    "skip_data", "storage_to_tensor_type", "validate_cuda_device", "validate_hpu_device",
]  # fmt: skip
