"""Calibration: measure the devices and links of this machine, for placement (`ir/machine_model.py`).

Everything is measured the way placed programs do it: kernels and products that the backends compile, copies by `to_device`.  It is
done in turn, round after round, once it is warm; figures are medians.  Work on devices is timed by their events.
"""

from __future__ import annotations

import functools
import math
import statistics
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dynagraph.backends.executable import Backend
from dynagraph.backends.native_call import native_call
from dynagraph.cuda.devices import get_device_properties, on_device, synchronize
from dynagraph.cuda.memory import pinned_empty
from dynagraph.cuda.state import device_count, require_cupy
from dynagraph.cuda.streams import Event, Stream, release_held
from dynagraph.cuda.transfers import to_device
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.external_calls import FunctionCall, Slot
from dynagraph.ir.graph import Graph, Meta
from dynagraph.ir.machine_model import CLASSES
from dynagraph.ir.ops import OPS

Clock = Callable[[], float]  # seconds
Sample = Callable[[], float]  # does something once, and says how many seconds it took
Pair = tuple[str, str]

ROUNDS = 7
HOST_SECONDS = 0.4  # after which no further round begins, of what is measured on the host
DEVICE_SECONDS = 0.6  # ... and on all devices and links together
LONG_ENOUGH = 0.5e-3  # seconds: larger products are not tried
LEAST_SECONDS = 1e-9  # what is measured to take less takes this

KERNELS = 8  # of the program by which launches are measured
OPERATIONS = {"float16": 16, "float32": 64, "float64": 64, "integer": 64}  # of one chain; compilers take long for halves
CHAINS = 4  # in a kernel of a device, where arithmetic is fast
HOST_ELEMENTS, DEVICE_ELEMENTS = 1 << 18, 1 << 24  # of its operands: few bytes for the arithmetic
HOST_BYTES, DEVICE_BYTES = 64 << 20, 256 << 20  # of an array that is copied: beyond caches
PART = 1 << 16  # elements of an operand of a device that differ
LINK_BYTES = (1 << 10, 32 << 20)  # of arrays that show the latency of a link, and its bandwidth
REPEATS = 64  # of calls that take a microsecond

HOST_PRODUCTS = {"float16": 192, "float32": 1024, "float64": 768, "integer": 192}  # rows of the square matrices
DEVICE_PRODUCTS = {
    "float16": (2048, 4096, 8192), "float32": (1024, 2048, 4096), "float64": (1024, 2048, 4096), "integer": (256, 512, 1024),
}  # fmt: skip
_DTYPES: Mapping[str, DType] = {name: dtypes.int64 if name == "integer" else getattr(dtypes, name) for name in CLASSES}


@dataclass(frozen=True)
class Figures:
    """What was measured: fields of `Device` and `Link` by names of devices.

    `links` are of arrays in plain memory, which is what arguments and results are; `pinned`: of page-locked ones, for comparison.
    """

    devices: Mapping[str, Mapping[str, Any]]
    links: Mapping[Pair, Mapping[str, float]] = field(default_factory=dict)
    pinned: Mapping[Pair, Mapping[str, float]] = field(default_factory=dict)
    seconds: float = 0.0  # that measuring took, compilation included


def measure(backends: Mapping[str, Backend], clock: Clock = time.perf_counter) -> Figures:
    """Measure the devices that have a backend, "cpu" and "cuda:0"..., and the links between them: in about two seconds.

    GPUs of one name are taken to be equal: one of them is measured.  Raises what backends and CuPy raise.

    >>> from dynagraph.backends.reference import reference
    >>> sorted(measure({"cpu": reference}).devices["cpu"])
    ['additions', 'bandwidth', 'call_seconds', 'launch_seconds', 'products']
    """
    start = clock()
    devices = {"cpu": _of_host(backends["cpu"], clock)}
    if len(backends) == 1:
        return Figures(devices, seconds=clock() - start)
    numbers = range(device_count())
    budget = DEVICE_SECONDS / 2
    by_kind: dict[str, dict[str, Any]] = {}
    properties = [get_device_properties(k) for k in numbers]
    for k in numbers:
        kind = properties[k].name
        if kind not in by_kind:
            with _quiet_device(k) as stream:
                by_kind[kind] = _of_device(backends[f"cuda:{k}"], stream, properties[k].total_memory, clock, budget)
        devices[f"cuda:{k}"] = {**by_kind[kind], "memory": float(properties[k].total_memory)}
    links, pinned = _of_links(len(numbers), clock, budget)
    return Figures(devices, links, pinned, clock() - start)


# -- rounds ---------------------------------------------------------------------------------------------------------------


def _medians(samples: Mapping[Hashable, Sample], clock: Clock, budget: float) -> dict[Any, float]:
    """Each sample's seconds: taken in turn, until there are enough or the time is over; the first round does not count."""
    for sample in samples.values():
        sample()
    found: dict[Any, list[float]] = {key: [] for key in samples}
    end = clock() + budget
    for turn in range(ROUNDS):
        if turn and clock() > end:
            break
        for key, sample in samples.items():
            found[key].append(sample())
    return {key: max(statistics.median(values), LEAST_SECONDS) for key, values in found.items()}


def _rate(amount: float, seconds: float, launch: float) -> float:
    """Per second, the launch left out."""
    return amount / max(seconds - launch, seconds / 10)


# -- what is run ----------------------------------------------------------------------------------------------------------


def _negatives(sizes: Sequence[int], library: str) -> Graph:
    """A kernel for each size: they have no loop in common."""
    graph = Graph("copies", library=library)
    inputs = [graph.placeholder(f"x{k}", Meta(dtypes.float32, (size,))) for k, size in enumerate(sizes)]
    graph.output([graph.call(OPS["negative"], x) for x in inputs])
    return graph


def _arithmetic(name: str, size: int, chains: int, library: str) -> Graph:
    """One kernel of many operations of a class on few bytes, up to `CHAINS` chains; hardly two of them can be made one."""
    graph, dtype = Graph("arithmetic", library=library), _DTYPES[name]
    x, y = (graph.placeholder(operand, Meta(dtype, (size,))) for operand in "xy")
    times, plus = OPS["multiply" if dtype.is_inexact else "bitwise_xor"], OPS["add"]
    values = []
    for value, left, right in ((x, y, x), (y, x, y), (x, y, y), (y, x, x))[:chains]:
        for _ in range(OPERATIONS[name] // 2):
            value = graph.call(plus, graph.call(times, value, left), right)
        values.append(value)
    graph.output([functools.reduce(lambda a, b: graph.call(plus, a, b), values)])
    return graph


def _product(dtype: DType, size: int, library: str) -> Graph:
    graph = Graph("product", library=library)
    x = graph.placeholder("x", Meta(dtype, (size, size)))
    graph.output([graph.call(OPS["matmul"], x, x)])
    return graph


def _external_call() -> Graph:
    graph = Graph("call")
    x = graph.placeholder("x", Meta(dtypes.float32, (KERNELS,)))
    call = FunctionCall("sort", (Slot(0),))
    graph.output([graph.call(OPS["external_call"], x, call=call, dtype=dtypes.float32, shape=(KERNELS,))])
    return graph


def _operands(graph: Graph, most: int | None = None) -> list[np.ndarray]:
    """Numbers that stay normal ones, whatever is added to and multiplied by them; `most`: only so many elements, flat."""
    rng = np.random.default_rng(0)
    shapes = [tuple(map(int, n.shape)) for n in graph.placeholders]
    if most is not None:
        shapes = [(min(math.prod(shape), most),) for shape in shapes]
    made = []
    for node, shape in zip(graph.placeholders, shapes):
        values = rng.random(shape) / 4 + 0.25 if node.dtype.is_inexact else rng.integers(1, 9, shape)
        made.append(values.astype(node.dtype.numpy))
    return made


def _amounts(products: Mapping[str, int], elements: int, chains: int) -> dict[tuple[str, str], float]:
    """How many operations each kernel and product is."""
    return {
        **{("additions", name): (chains * (OPERATIONS[name] + 1) - 1.0) * elements for name in CLASSES},
        **{("products", name): 2.0 * rows**3 for name, rows in products.items()},
    }


def _rates(seconds: Mapping[Any, float], amounts: Mapping[tuple[str, str], float], launch: float) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {"additions": {}, "products": {}}
    for (what, name), amount in amounts.items():
        found[what][name] = _rate(amount, seconds[what, name], launch)
    return found


# -- the host -------------------------------------------------------------------------------------------------------------


def _of_host(backend: Backend, clock: Clock) -> dict[str, Any]:
    graphs: dict[Hashable, Graph] = {
        "one": _negatives([KERNELS], "numpy"),
        "many": _negatives(range(KERNELS, 2 * KERNELS), "numpy"),
        "call": _external_call(),
        "copy": _negatives([HOST_BYTES // 4], "numpy"),
    }
    for name, dtype in _DTYPES.items():
        graphs["additions", name] = _arithmetic(name, HOST_ELEMENTS, 1, "numpy")
        graphs["products", name] = _product(dtype, HOST_PRODUCTS[name], "numpy")
    with ThreadPoolExecutor() as pool:  # a compiler is another process
        programs = dict(zip(graphs, pool.map(backend, graphs.values())))
    samples = {}
    for key, graph in graphs.items():
        repeats = REPEATS if key in ("one", "many", "call") else 1
        samples[key] = _on_host(native_call(graph, programs[key]), _operands(graph), repeats, clock)
    seconds = _medians(samples, clock, HOST_SECONDS)
    launch = max((seconds["many"] - seconds["one"]) / (KERNELS - 1), LEAST_SECONDS)
    return {
        "bandwidth": _rate(2.0 * HOST_BYTES, seconds["copy"], launch),
        "launch_seconds": launch,
        "call_seconds": max(seconds["call"] - seconds["one"], LEAST_SECONDS),
        **_rates(seconds, _amounts(HOST_PRODUCTS, HOST_ELEMENTS, 1), launch),
    }


def _on_host(call: Callable[..., Any], operands: Sequence[np.ndarray], repeats: int, clock: Clock) -> Sample:
    def sample() -> float:
        start = clock()
        for _ in range(repeats):
            call(*operands)
        return (clock() - start) / repeats

    return sample


# -- a device -------------------------------------------------------------------------------------------------------------


@contextmanager
def _quiet_device(number: int) -> Iterator[Stream]:
    """A device that has nothing else of this program to do, and a stream there that is current; its memory is given back."""
    cupy = require_cupy()
    with on_device(number):
        synchronize(number)
        stream = Stream()
        try:
            with stream:
                yield stream
        finally:
            stream.synchronize()
            release_held()
            cupy.get_default_memory_pool().free_all_blocks(stream=stream.cupy_stream)
            stream.close()


def _of_device(backend: Backend, stream: Stream, memory: int, clock: Clock, budget: float) -> dict[str, Any]:
    xp: Any = require_cupy()
    nbytes = min(DEVICE_BYTES, memory // 16)
    elements = min(DEVICE_ELEMENTS, memory // 256)
    source, target = (xp.cuda.alloc(nbytes) for _ in range(2))

    def copy() -> None:
        target.copy_from_device_async(source, nbytes, stream.cupy_stream)

    def queued(graph: Graph) -> Callable[[], Any]:
        program = backend(graph)
        parts = _operands(graph, most=PART)
        operands = [_repeated(part, tuple(map(int, n.shape)), stream) for part, n in zip(parts, graph.placeholders)]
        return lambda: program(*operands)

    samples: dict[Hashable, Sample] = {"copy": _by_events(copy, copy, stream)}
    for key, sizes in (("one", [KERNELS]), ("many", list(range(KERNELS, 2 * KERNELS)))):
        samples[key] = _by_clock(queued(_negatives(sizes, "cupy")), stream, clock)
    rows = {}
    for name, dtype in _DTYPES.items():
        graph = _arithmetic(name, elements, CHAINS, "cupy")
        samples["additions", name] = _by_events(queued(graph), copy, stream)
        for size in DEVICE_PRODUCTS[name]:
            rows[name] = size
            sample = samples["products", name] = _by_events(queued(_product(dtype, size, "cupy")), copy, stream)
            sample()
            if sample() > LONG_ENOUGH:
                break
    seconds = _medians(samples, clock, budget)
    launch = max((seconds["many"] - seconds["one"]) / (KERNELS - 1), LEAST_SECONDS)
    return {
        "bandwidth": 2.0 * nbytes / seconds["copy"],
        "launch_seconds": launch,
        **_rates(seconds, _amounts(rows, elements, CHAINS), 0.0),
    }


def _repeated(part: np.ndarray, shape: tuple[int, ...], stream: Stream) -> Any:
    """An array of a device that holds the elements of a part again and again."""
    result = require_cupy().empty(shape, part.dtype)
    block = to_device(part, f"cuda:{stream.device}")
    result.data.copy_from_device_async(block.data, part.nbytes, stream.cupy_stream)
    filled = part.nbytes
    while filled < result.nbytes:
        more = min(filled, result.nbytes - filled)
        (result.data + filled).copy_from_device_async(result.data, more, stream.cupy_stream)
        filled += more
    stream.synchronize()
    return result


def _by_events(work: Callable[[], Any], before: Callable[[], Any], stream: Stream) -> Sample:
    """By the device's clock; what is done before keeps it busy until the work has been queued whole."""

    def sample() -> float:
        start, end = Event(enable_timing=True), Event(enable_timing=True)
        before()
        start.record(stream)
        result = work()
        end.record(stream)
        end.synchronize()
        del result
        return start.elapsed_time(end) / 1e3

    return sample


def _by_clock(work: Callable[[], Any], stream: Stream, clock: Clock) -> Sample:
    """By the host's clock: launches are its work."""

    def sample() -> float:
        start = clock()
        for _ in range(KERNELS):
            work()
        stream.synchronize()
        return (clock() - start) / KERNELS

    return sample


# -- links ----------------------------------------------------------------------------------------------------------------


def _of_links(count: int, clock: Clock, budget: float) -> tuple[dict[Pair, dict[str, float]], dict[Pair, dict[str, float]]]:
    """Links of plain memory, GPUs among them; and those of page-locked memory."""
    samples: dict[Hashable, Sample] = {}
    names = [f"cuda:{k}" for k in range(count)]
    for nbytes in LINK_BYTES:
        plain, locked = np.zeros(nbytes, np.uint8), pinned_empty(nbytes, np.uint8)
        locked[:] = 0
        for name in names:
            there = to_device(plain, name)
            samples[False, "cpu", name, nbytes] = _copied(plain, name, False, clock)
            samples[True, "cpu", name, nbytes] = _copied(locked, name, True, clock)
            samples[False, name, "cpu", nbytes] = _copied(there, "cpu", False, clock)
            samples[True, name, "cpu", nbytes] = _copied(there, "cpu", True, clock)
            for other in names:
                if other != name:
                    samples[False, name, other, nbytes] = _copied(there, other, True, clock)
    seconds = _medians(samples, clock, budget)
    few, many = LINK_BYTES
    found: tuple[dict[Pair, dict[str, float]], dict[Pair, dict[str, float]]] = ({}, {})
    for is_pinned, source, target, nbytes in seconds:
        if nbytes == few:
            latency, long = seconds[is_pinned, source, target, few], seconds[is_pinned, source, target, many]
            found[is_pinned][source, target] = {"bandwidth": _rate(many - few, long, latency), "latency": latency}
    return found


def _copied(array: Any, target: str, non_blocking: bool, clock: Clock) -> Sample:
    involved = {target, f"cuda:{array.device.id}" if hasattr(array, "get") else "cpu"} - {"cpu"}

    def sample() -> float:
        start = clock()
        result = to_device(array, target, non_blocking)
        for name in involved:
            synchronize(name)
        seconds = clock() - start
        del result
        release_held()
        return seconds

    return sample


__all__ = ["Clock", "Figures", "measure"]
