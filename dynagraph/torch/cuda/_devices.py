"""Devices: which there are, which one is current, what they are."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

import dynagraph.cuda as dg
from dynagraph.cuda.devices import DeviceProperties, device_index
from dynagraph.cuda.shared_memory import collect
from dynagraph.cuda.state import require_cupy, state
from dynagraph.torch.core import devices
from dynagraph.torch.core.tensor import Tensor


def index_of(given: Any) -> int | None:
    """The number that a device says; None: the current one.  ValueError of another kind of device."""
    if given is None:
        return None
    if isinstance(given, str) and not given.startswith("cuda"):
        given = devices.device(given)
    if isinstance(given, devices.device):
        if given.type != "cuda":
            raise ValueError(f"Expected a cuda device, but got: {given}")
        return given.index
    if isinstance(given, str):
        return devices.device(given).index
    return int(given)


def is_available() -> bool:
    """Whether there is a GPU that CuPy can use."""
    return dg.is_available()


def device_count() -> int:
    """How many GPUs there are."""
    return dg.device_count()


def is_initialized() -> bool:
    """Whether CUDA is in use in this process."""
    return sys.modules.get("cupy") is not None and not state.is_lost and dg.is_available()


def init() -> None:
    """Begin to use CUDA; RuntimeError where there is no GPU."""
    require_cupy()


def current_device() -> int:
    """The number of the current GPU of this thread."""
    return dg.current_device()


def set_device(device: Any) -> None:
    """Make a GPU current in this thread; a negative number changes nothing."""
    number = index_of(device)
    if number is not None and number >= 0:
        require_cupy().cuda.runtime.setDevice(device_index(number))


class device:
    """A context: makes a GPU current; None, or a negative number, changes nothing."""

    def __init__(self, device: Any):
        number = index_of(device)
        self.idx = -1 if number is None else number
        self.prev_idx = -1
        self._context = None if self.idx < 0 else dg.device(self.idx)

    def __enter__(self) -> None:
        if self._context is not None:
            self.prev_idx = dg.current_device()
            self._context.__enter__()

    def __exit__(self, *error: Any) -> None:
        if self._context is not None:
            self._context.__exit__(*error)


class device_of(device):
    """A context: makes the GPU current that a tensor or storage lies on; in the host's memory it changes nothing."""

    def __init__(self, obj: Any):
        super().__init__(obj.get_device() if isinstance(obj, Tensor) or hasattr(obj, "get_device") else -1)


def synchronize(device: Any = None) -> None:
    """Wait until all work of a GPU is done."""
    dg.synchronize(index_of(device))


class _CudaDeviceProperties:
    """What a GPU is, under PyTorch's names."""

    def __init__(self, found: DeviceProperties):
        for name, value in asdict(found).items():
            setattr(self, name, value)
        self.L2_cache_size = found.l2_cache_size
        self.regs_per_multiprocessor = found.registers_per_multi_processor

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int

    def __repr__(self) -> str:
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory // 2**20}MB, multi_processor_count={self.multi_processor_count}, "
            f"L2_cache_size={self.L2_cache_size // 2**20}MB)"
        )


def get_device_properties(device: Any = None) -> _CudaDeviceProperties:
    """What a GPU is: name, compute capability, memory, multiprocessors."""
    return _CudaDeviceProperties(dg.get_device_properties(index_of(device)))


def get_device_name(device: Any = None) -> str:
    """The name of a GPU."""
    return get_device_properties(device).name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The compute capability of a GPU: major and minor."""
    found = get_device_properties(device)
    return found.major, found.minor


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the GPU computes with bfloat16 by itself; False where there is none."""
    return is_available() and get_device_capability() >= (8, 0)


def is_tf32_supported() -> bool:
    """Whether the GPU has tensor cores for TF32; False where there is none."""
    return is_available() and get_device_capability() >= (8, 0)


def get_arch_list() -> list[str]:
    """The architectures that kernels are compiled for: those of the GPUs that are there, as kernels are compiled when they run."""
    found = {get_device_capability(k) for k in range(device_count())}
    return [f"sm_{major}{minor}" for major, minor in sorted(found)]


def get_gencode_flags() -> str:
    """The flags of nvcc for `get_arch_list`."""
    return " ".join(f"-gencode compute={arch.replace('sm_', 'compute_')},code={arch}" for arch in get_arch_list())


def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Whether one GPU can read another's memory."""
    one, other = (device_index(index_of(d)) for d in (device, peer_device))
    return bool(require_cupy().cuda.runtime.deviceCanAccessPeer(one, other))


def ipc_collect() -> None:
    """Free memory that was sent to other processes and that nobody has any more, and close that of others which nothing lies in.

    Each message that is sent does so, too.
    """
    collect()


def _is_in_bad_fork() -> bool:
    return state.is_lost


__all__ = [
    "can_device_access_peer", "current_device", "device", "device_count", "device_of", "get_arch_list", "get_device_capability",
    "get_device_name", "get_device_properties", "get_gencode_flags", "index_of", "init", "ipc_collect", "is_available",
    "is_bf16_supported", "is_initialized", "is_tf32_supported", "set_device", "synchronize",
]  # fmt: skip
