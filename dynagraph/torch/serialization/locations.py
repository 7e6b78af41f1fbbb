"""Where storages were and where they go: tags in files, and `map_location`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

from dynagraph.torch import cuda
from dynagraph.torch.core import devices
from dynagraph.torch.storage import TypedStorage, UntypedStorage

Tagger = Callable[[Any], "str | None"]
Restorer = Callable[[Any, str], Any]
MAP_LOCATION = Callable[[Any, str], Any] | devices.device | str | dict[str, str] | None
_registry: list[tuple[int, Tagger, Restorer]] = []
__dynagraph_mutable__ = ("_registry",)


def register_package(priority: int, tagger: Tagger, deserializer: Restorer) -> None:
    """Add a kind of place: `tagger` gives a storage's tag or None, `deserializer` the storage for a tag or None.

    Those of lower priority are asked first.
    """
    _registry.append((priority, tagger, deserializer))
    _registry.sort(key=operator.itemgetter(0))


def location_tag(storage: Any) -> str:
    """The tag of where a storage is: "cpu", "cuda:0"."""
    for _, tagger, _ in _registry:
        if found := tagger(storage):
            return found
    raise RuntimeError(f"don't know how to determine data location of {_type_name(storage)}")


def default_restore_location(storage: Any, location: str) -> Any:
    """The storage at the place that a tag names."""
    for _, _, deserializer in _registry:
        found = deserializer(storage, location)
        if found is not None:
            return found
    raise RuntimeError(f"don't know how to restore data location of {_type_name(storage)} (tagged with {location})")


def _type_name(storage: Any) -> str:
    return f"{type(storage).__module__.removeprefix('dynagraph.')}.{type(storage).__name__}"


def validate_cuda_device(location: str) -> int:
    """The number of a GPU by its tag; RuntimeError where it is not there."""
    where = devices.device(location)
    if not cuda.is_available():
        raise RuntimeError(
            "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If you are running on a "
            "CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map your storages to the CPU."
        )
    index, count = where.index or 0, cuda.device_count()
    if index >= count:
        raise RuntimeError(
            f"Attempting to deserialize object on CUDA device {index} but torch.cuda.device_count() is {count}. Please use "
            "torch.load with map_location to map your storages to an existing device."
        )
    return index


def validate_hpu_device(location: str) -> int:
    """Refused: there are no such devices here."""
    raise RuntimeError(
        f"Attempting to deserialize object on {location}, which dynagraph.torch has not. Please use torch.load with "
        "map_location=torch.device('cpu') to map your storages to the CPU."
    )


def _cpu_tag(storage: Any) -> str | None:
    return "cpu" if storage.device.type == "cpu" else None


def _cpu_restored(storage: Any, location: str) -> Any:
    return storage if location == "cpu" else None


def _cuda_tag(storage: Any) -> str | None:
    return str(storage.device) if storage.device.type == "cuda" else None


def _cuda_restored(storage: Any, location: str) -> Any:
    if not re.match(r"cuda(:|[0-9]|$)", location):
        return None
    return storage.to(device=devices.device("cuda", validate_cuda_device(location)))


register_package(10, _cpu_tag, _cpu_restored)
register_package(20, _cuda_tag, _cuda_restored)


def restorer_of(map_location: Any) -> Restorer:
    """What puts storages where `map_location` says, of any kind that `torch.load` takes."""
    if map_location is None:
        return default_restore_location
    if isinstance(map_location, dict):
        return lambda storage, location: default_restore_location(storage, map_location.get(location, location))
    if isinstance(map_location, (str, bytes, devices.device)):
        target = map_location.decode() if isinstance(map_location, bytes) else str(map_location)
        devices.library_of(devices.device(target))  # an error for a device that is not there, also of files without tensors
        return lambda storage, location: default_restore_location(storage, target)

    def restored(storage: Any, location: str) -> Any:
        found = map_location(storage, location)
        return default_restore_location(storage, location) if found is None else found

    return restored


def untyped(storage: Any) -> UntypedStorage:
    """What a restorer gave, as memory in bytes."""
    if isinstance(storage, TypedStorage):
        return storage.untyped()
    if not isinstance(storage, UntypedStorage):
        raise TypeError(f"map_location: expected a storage of its call, got {type(storage).__name__}")
    return storage


__all__ = [
    "MAP_LOCATION", "default_restore_location", "location_tag", "register_package", "restorer_of", "untyped",
    "validate_cuda_device",
    "validate_hpu_device",
]  # fmt: skip
