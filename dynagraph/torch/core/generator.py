"""Generators: where random numbers come from, and the state that says which come next.

A generator is a seed and an offset of the Philox stream (`philox.py`): each call takes the blocks it needs.  These are not
PyTorch's numbers.  Under ``torch_compatible(True)`` generators give PyTorch's stream of the CPU instead (`mersenne.py`).
"""

from __future__ import annotations

import math
import os
import struct
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from dynagraph.markers import is_compiling
from dynagraph.torch.core import devices, philox
from dynagraph.torch.core.batching_random import drawn
from dynagraph.torch.core.mersenne import STATE_BYTES, Mersenne
from dynagraph.torch.core.tensor import Tensor, wrap

DEFAULT_SEED = 67280421310721  # PyTorch's
_STATE = "<QQ"  # seed, offset


class _Stream:
    compatible = False


_stream = _Stream()


class torch_compatible:
    """Whether generators give PyTorch's numbers of the CPU: set at once, until the context that it is ends.

    Bit for bit for rand, randn, randint, randperm, normal, uniform_, bernoulli and what is made of them (PyTorch's own dropout,
    `bernoulli_` of a number and `exponential_` differ between processors).  Slower than the stream that is in use otherwise, and
    the same on all devices: PyTorch's numbers on GPUs are others.  Both streams go on from where they were.

    >>> from dynagraph import torch
    >>> with torch.random.torch_compatible(True):
    ...     _ = torch.manual_seed(0)
    ...     print(torch.rand(3))
    tensor([0.4963, 0.7682, 0.0885])
    """

    def __init__(self, on: bool = True):
        self._before = _stream.compatible
        self._on = _stream.compatible = bool(on)

    def __enter__(self) -> torch_compatible:
        _stream.compatible = self._on
        return self

    def __exit__(self, *_: Any) -> None:
        _stream.compatible = self._before


def is_torch_compatible() -> bool:
    """Whether generators give PyTorch's numbers."""
    return _stream.compatible


def seed_of(seed: Any) -> int:
    """A seed as 64 bits without sign; RuntimeError where it has more."""
    number = int(seed)
    if not -(1 << 63) <= number < 1 << 64:
        raise RuntimeError("Overflow when unpacking long long")
    return number & 0xFFFFFFFFFFFFFFFF


class Generator:
    """A stream of random numbers of its own, on a device.

    >>> from dynagraph import torch
    >>> g = torch.Generator().manual_seed(7)
    >>> before = g.get_state()
    >>> x = torch.rand(2, generator=g)
    >>> torch.equal(torch.rand(2, generator=g.set_state(before)), x)
    True
    """

    def __init__(self, device: Any = "cpu"):
        self.device = devices.device(device)
        # seed and offset: an array, which programs read and write; of a GPU's generator scalars: its programs take no such array
        position = np.array((DEFAULT_SEED, 0), np.uint64)
        self._position: Any = position if self.device.type == "cpu" else list(position)
        self._mersenne: Mersenne | None = None
        self._lock = threading.Lock()

    @property
    def _seed(self) -> int:
        return int(self._position[0])

    @_seed.setter
    def _seed(self, seed: int) -> None:
        self._position[0] = np.uint64(seed)

    @property
    def _offset(self) -> int:
        return int(self._position[1])

    @_offset.setter
    def _offset(self, offset: int) -> None:
        self._position[1] = np.uint64(offset & 0xFFFFFFFFFFFFFFFF)

    # -- seeds and states -----------------------------------------------------------------------------------------------
    def manual_seed(self, seed: Any) -> Generator:
        """Begin anew from a seed."""
        number = seed_of(seed)
        with self._lock:
            self._seed, self._offset, self._mersenne = number, 0, None
        return self

    def initial_seed(self) -> int:
        """The seed it began from."""
        return self._seed

    def seed(self) -> int:
        """Begin anew from a seed that the operating system gives."""
        number = int.from_bytes(os.urandom(8), "little") >> 11  # 53 bits, as PyTorch's
        self.manual_seed(number)
        return number

    def get_offset(self) -> int:
        """How many numbers of 32 bits have been taken."""
        return self._offset * philox.WORDS

    def set_offset(self, offset: int) -> None:
        """Go on from another place of the stream: a multiple of 4."""
        if offset % philox.WORDS:
            raise RuntimeError("offset must be a multiple of 4")
        self._offset = offset // philox.WORDS

    def get_state(self) -> Tensor:
        """The state as bytes: 16 of seed and offset, or under `torch_compatible` the 5056 of PyTorch's generator."""
        state = self._torch().state() if _stream.compatible else struct.pack(_STATE, self._seed, self.get_offset())
        return wrap(np.frombuffer(state, np.uint8).copy())

    def set_state(self, new_state: Tensor) -> Generator:
        """Go on from a state that `get_state` gave, of either stream."""
        if not isinstance(new_state, Tensor):
            raise TypeError(f"expected a torch.ByteTensor, but got {type(new_state).__name__}")
        if new_state._array.dtype != np.uint8:
            raise TypeError("RNG state must be a torch.ByteTensor")
        state = np.ascontiguousarray(new_state._array).tobytes()
        with self._lock:
            if len(state) == STATE_BYTES:
                if self._mersenne is None:
                    self._mersenne = Mersenne(self._seed)
                self._mersenne.set_state(state)
                if _stream.compatible:
                    self._seed = self._mersenne.seed
            elif len(state) == struct.calcsize(_STATE):
                self._seed, offset = struct.unpack(_STATE, state)
                self._offset = offset // philox.WORDS
            else:
                raise RuntimeError(f"RNG state is wrong size: {len(state)} bytes")
        return self

    def place(self) -> Any:
        """Where it is in its stream, for `go_to`; in programs, too."""
        return self.get_state() if _stream.compatible else self._position[:].copy()

    def go_to(self, place: Any) -> None:
        """Go on from where it was when `place` was called."""
        if isinstance(place, Tensor):
            self.set_state(place)
        else:
            self._position[:] = place

    def clone_state(self) -> Generator:
        """Another generator with the same state."""
        other = Generator(self.device)
        other._seed, other._offset = self._seed, self._offset
        if self._mersenne is not None:
            other._mersenne = Mersenne(self._seed)
            other._mersenne.set_state(self._mersenne.state())
        return other

    graphsafe_get_state = clone_state

    def graphsafe_set_state(self, state: Generator) -> Generator:
        """Take over another generator's state."""
        other = state.clone_state()
        self._seed, self._offset, self._mersenne = other._seed, other._offset, other._mersenne
        return self

    def __getstate__(self) -> Any:
        return self.device, self._seed, self._offset, None if self._mersenne is None else self._mersenne.state()

    def __setstate__(self, state: Any) -> None:
        self.__init__(state[0])  # type: ignore[misc]
        self._seed, self._offset = state[1], state[2]
        if state[3] is not None:
            self._mersenne = Mersenne(self._seed)
            self._mersenne.set_state(state[3])

    def __repr__(self) -> str:
        return f"<torch._C.Generator object at {id(self):#x}>"

    # -- numbers: arrays of NumPy's, or of CuPy's where the generator is on a GPU ---------------------------------------------
    def _torch(self) -> Mersenne:
        if self._mersenne is None:
            self._mersenne = Mersenne(self._seed)
        return self._mersenne

    def take(self, words: int) -> tuple[Any, Any]:
        """Take so many words of the Philox stream: its seed and offset.  Under `torch_compatible` a new stream for each call."""
        if _stream.compatible:
            return int(self._torch().long_words(1)[0]), 0
        blocks = -(-words // philox.WORDS)
        if is_compiling() and self.device.type == "cpu":  # a program computes the words itself, from the state as it finds it
            seed, before = self._position[:1].copy(), self._position[1:].copy()
            self._position[1:] += np.uint64(blocks)
            return seed, before
        if is_compiling():
            number, offset = self._position
            self._position[1] = offset + np.uint64(blocks)
            return number, offset
        with self._lock:
            number, offset = self._seed, self._offset
            self._offset = offset + blocks
            return number, offset

    def _library(self) -> Any:
        return devices.library_of(self.device)

    def _here(self, array: np.ndarray) -> Any:
        return devices.place(array, self.device)

    def _philox(self, draw: Callable[..., Any], words: int, *args: Any) -> Any:
        """Numbers of the counter-based stream, on the generator's device."""
        if self.device.type == "cpu":
            return draw(*self.take(words), *args)
        with devices.scope(self.device):
            return draw(*self.take(words), *args, self._library())

    @drawn
    def uniform(self, shape: tuple[int, ...], dtype: np.dtype, low: float = 0.0, high: float = 1.0) -> Any:
        """Uniform in [low, high)."""
        if _stream.compatible:
            return self._here(self._torch().uniform(shape, dtype, low, high))
        found = self._philox(philox.uniform, philox.uniform_words(math.prod(shape), dtype), shape, dtype)
        if (low, high) == (0.0, 1.0):
            return found
        wide = found if dtype.itemsize >= 4 and dtype.kind == "f" else found.astype(np.float32)
        scaled = (wide * wide.dtype.type(high - low) + wide.dtype.type(low)).astype(dtype)
        last = np.asarray(high).astype(dtype)[()]
        return np.where(scaled >= last, np.asarray(low).astype(dtype)[()], scaled) if low < high else scaled

    @drawn
    def normal(self, shape: tuple[int, ...], dtype: np.dtype, mean: float = 0.0, std: float = 1.0) -> Any:
        """Normal numbers."""
        if _stream.compatible:
            return self._here(self._torch().normal(shape, dtype, mean, std))
        found = self._philox(philox.normal, philox.normal_words(math.prod(shape), dtype), shape, dtype)
        if (mean, std) == (0.0, 1.0):
            return found
        wide = found if dtype.itemsize >= 4 and dtype.kind == "f" else found.astype(np.float32)
        return (wide * wide.dtype.type(std) + wide.dtype.type(mean)).astype(dtype, copy=False)

    @drawn
    def normals_one_by_one(self, shape: tuple[int, ...]) -> Any:
        """Normal numbers in double precision: in PyTorch's stream those of its scalar kernel, whatever their count."""
        if _stream.compatible:
            kernel = self._torch()
            return self._here(np.array([kernel.one_normal() for _ in range(math.prod(shape))], np.float64).reshape(shape))
        return self.normal(shape, np.dtype(np.float64))

    @drawn
    def integers(self, shape: tuple[int, ...], limit: int) -> Any:
        """Integers from 0 to ``limit - 1``, as uint64; limits are at most 2**64."""
        if _stream.compatible:
            return self._here(self._torch().integers(shape, limit))
        return self._philox(philox.integers, philox.integer_words(math.prod(shape), limit), shape, limit)

    @drawn
    def integers_of_kind(self, shape: tuple[int, ...], limit: int, is_long: bool) -> Any:
        """As `integers`; PyTorch's stream takes one word each, or two, whatever the limit is."""
        if _stream.compatible:
            return self._here(self._torch().below(shape, limit, is_long))
        return self.integers(shape, limit)

    @drawn
    def permutation(self, n: int) -> Any:
        """The numbers from 0 to ``n - 1`` in random order, as int64."""
        if _stream.compatible:
            return self._here(self._torch().permutation(n))
        return self._philox(philox.permutation, 2 * n, n)

    @drawn
    def mask(self, shape: tuple[int, ...], p: Any) -> Any:
        """True with probability `p`: a number, or an array that broadcasts to the shape."""
        if _stream.compatible:
            host = p if isinstance(p, (int, float, np.ndarray)) else p.get()
            return self._here(self._torch().mask(shape, host))
        return self._philox(philox.mask, math.prod(shape), shape, p)

    @drawn
    def poisson(self, rate: Any) -> Any:
        """Poisson numbers of an array of rates, as float64."""
        return philox.poisson(*self.take(rate.size * philox.WORDS), rate)

    @drawn
    def binomial(self, count: Any, p: Any) -> Any:
        """Binomial numbers of arrays of one shape, as float64."""
        return philox.binomial(*self.take(count.size * philox.WORDS), count, p)

    @drawn
    def log_gamma(self, shape: Any) -> Any:
        """Logarithms of gamma numbers of an array of shapes, as float64."""
        return philox.gamma(*self.take(shape.size * philox.WORDS), shape)


# -- the generators that are in use where none is given ---------------------------------------------------------------------

default_generator = Generator()
_of_gpus: dict[int, Generator] = {}
_seed_of_gpus = [DEFAULT_SEED]


def generator_of(where: devices.device) -> Generator:
    """The default generator of a device."""
    if where.type != "cuda":
        return default_generator
    if where.index is None:
        return generator_of_gpu(devices.current_gpu(where))
    return generator_of_gpu(where.index)


def generator_of_gpu(number: int) -> Generator:
    """The default generator of a GPU, made when it is first asked for."""
    found = _of_gpus.get(number)
    if found is None:
        found = _of_gpus[number] = Generator(devices.device("cuda", number)).manual_seed(_seed_of_gpus[0])
    return found


def seed_gpus(seed: Any) -> None:
    """Seed the default generators of all GPUs, also of those that have not been used."""
    _seed_of_gpus[0] = seed_of(seed)
    for generator in _of_gpus.values():
        generator.manual_seed(seed)


def generators_of_gpus() -> dict[int, Generator]:
    """Those default generators of GPUs that have been used, by number."""
    return _of_gpus


def bernoulli_mask(shape: tuple[int, ...], p: Any, generator: Generator | None = None, device: Any = None) -> Any:
    """A mask that is True with probability `p` (a number, or an array that broadcasts to the shape), as an array on a device.

    What dropout multiplies with: one word of the stream for each element.
    """
    if generator is None:
        generator = generator_of(devices.get_default_device() if device is None else devices.device(device))
    return generator.mask(tuple(shape), p)


__all__ = [
    "DEFAULT_SEED", "Generator", "bernoulli_mask", "default_generator", "generator_of", "generator_of_gpu", "generators_of_gpus",
    "is_torch_compatible", "seed_gpus", "seed_of", "torch_compatible",
]  # fmt: skip
