"""Machine model: what devices compute and what links carry, as numbers for placement.

The tables below are on paper, from data sheets; `Machine.measured` puts what was measured on a machine in their place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dynagraph.errors import PlacementError
from dynagraph.ir.dtypes import DType

KINDS = ("cpu", "cuda")
# of dtypes, by how fast arithmetic is; bools are integers, and bfloat16 is as fast as float16
CLASSES = ("float16", "float32", "float64", "integer")


@dataclass(frozen=True)
class Device:
    """One device.  Rates are of the whole device, in bytes, additions and floating-point operations per second.

    `additions` and `products`: for each of `CLASSES`, elementwise arithmetic (in additions, as `expr.FUNCTIONS` counts costs), and
    matrix products (a multiplication and an addition count as two).  `routines` and `functions`: the `Library` routines, and
    the functions of external calls, that it can run; None: all.
    """

    name: str  # "cpu", "cuda:0"
    kind: str
    bandwidth: float
    additions: Mapping[str, float]
    products: Mapping[str, float]
    launch_seconds: float  # what starting a kernel costs
    memory: float = math.inf  # bytes
    routines: frozenset[str] | None = None
    functions: frozenset[str] | None = None
    call_seconds: float = 0.0  # seconds of an external call, which Python makes

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise PlacementError(f"device {self.name!r}: its kind is {self.kind!r}; it must be one of {', '.join(KINDS)}")
        rates = {"bandwidth": self.bandwidth, "memory": self.memory}
        for what, table in (("additions", self.additions), ("products", self.products)):
            rates |= {f"{what} of {name}": table.get(name, 0.0) for name in CLASSES}
        for what, rate in rates.items():
            if not rate > 0:
                raise PlacementError(f"device {self.name!r}: {what} must be a number above 0, got {rate!r}")
        for what, seconds in (("launch_seconds", self.launch_seconds), ("call_seconds", self.call_seconds)):
            if not 0 <= seconds < math.inf:
                raise PlacementError(f"device {self.name!r}: {what} must be a number of at least 0, got {seconds!r}")

    def runs(self, routine: str) -> bool:
        """Whether it can run a `Library` routine."""
        return self.routines is None or routine in self.routines

    def calls(self, function: str) -> bool:
        """Whether it can run the function of an external call."""
        return self.functions is None or function in self.functions

    def named(self, name: str) -> "Device":
        """The same device by another name.

        >>> H200.named("cuda:1").name
        'cuda:1'
        """
        return replace(self, name=name)


@dataclass(frozen=True)
class Link:
    """What carries copies from one device to another: bytes per second, and seconds before the first byte."""

    bandwidth: float
    latency: float

    def __post_init__(self) -> None:
        if not self.bandwidth > 0 or not 0 <= self.latency < math.inf:
            given = f"{self.bandwidth!r} and {self.latency!r}"
            raise PlacementError(f"link: bandwidth must be above 0 and latency at least 0, got {given}")

    def seconds(self, nbytes: int) -> float:
        """What a copy of that many bytes takes.

        >>> Link(bandwidth=1e9, latency=1e-5).seconds(10_000)
        2e-05
        """
        return self.latency + nbytes / self.bandwidth


@dataclass(frozen=True)
class Machine:
    """Devices, and a link between every two of them; a link of (a, b) serves (b, a) too, unless that has its own.

    Raises PlacementError for two devices of one name, a pair without a link, and a link of devices that are not there.

    >>> machine = Machine((CPU, H200), {("cpu", "cuda:0"): PCIE_GEN5})
    >>> machine.link("cuda:0", "cpu") is PCIE_GEN5
    True
    """

    devices: tuple[Device, ...]
    links: Mapping[tuple[str, str], Link] = field(default_factory=dict)
    origin: str = "on paper"  # of the numbers

    def __post_init__(self) -> None:
        names = [d.name for d in self.devices]
        if not names or len(set(names)) < len(names):
            raise PlacementError(f"machine: needs one device or more, each with a name of its own, got {names}")
        for pair in self.links:
            if pair[0] == pair[1] or not set(pair) <= set(names):
                raise PlacementError(f"machine: the link {pair} is not between two of its devices, {', '.join(names)}")
        for k, one in enumerate(names):
            for other in names[k + 1 :]:
                if (one, other) not in self.links and (other, one) not in self.links:
                    raise PlacementError(f"machine: there is no link between {one!r} and {other!r}; add one to `links`")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(d.name for d in self.devices)

    @property
    def host(self) -> str:
        """Its first CPU, where NumPy's arrays lie; without one its first device."""
        return next((d.name for d in self.devices if d.kind == "cpu"), self.devices[0].name)

    def device(self, name: str) -> Device:
        """The device of a name.  Raises PlacementError where there is none."""
        for device in self.devices:
            if device.name == name:
                return device
        raise PlacementError(f"machine: there is no device {name!r}; it has {', '.join(self.names)}")

    def link(self, source: str, destination: str) -> Link:
        """What carries copies from one device to another."""
        found = self.links.get((source, destination)) or self.links.get((destination, source))
        if found is None:
            raise PlacementError(f"machine: there is no link from {source!r} to {destination!r}; it has {', '.join(self.names)}")
        return found

    def copy_seconds(self, source: str, destination: str, nbytes: int) -> float:
        """What a copy takes; nothing where it stays."""
        return 0.0 if source == destination else self.link(source, destination).seconds(nbytes)

    def measured(
        self,
        devices: Mapping[str, Mapping[str, Any]] | None = None,
        links: Mapping[tuple[str, str], Mapping[str, Any]] | None = None,
        origin: str = "measured",
    ) -> "Machine":
        """The machine with what was measured in place of the numbers on paper, by the names of their fields; `origin` says so.

        Raises PlacementError for a device or link that it has not, and for a field that is none.

        >>> machine = Machine((CPU, H200), {("cpu", "cuda:0"): PCIE_GEN5})
        >>> real = machine.measured({"cuda:0": {"bandwidth": 4.1e12}}, {("cpu", "cuda:0"): {"latency": 8e-6}})
        >>> real.device("cuda:0").bandwidth, real.link("cpu", "cuda:0").latency
        (4100000000000.0, 8e-06)
        """
        changed = {name: _replaced(self.device(name), fields) for name, fields in (devices or {}).items()}
        linked = {pair: _replaced(self.link(*pair), fields) for pair, fields in (links or {}).items()}
        return Machine(tuple(changed.get(d.name, d) for d in self.devices), {**self.links, **linked}, origin)


def _replaced(what: Any, fields: Mapping[str, Any]) -> Any:
    known = sorted(what.__dataclass_fields__.keys() - {"name", "kind"})
    unknown = sorted(fields.keys() - set(known))
    if unknown:
        raise PlacementError(f"measured: a {type(what).__name__} has no {', '.join(unknown)}; it has {', '.join(known)}")
    return replace(what, **fields)


def rate_class(dtype: DType) -> str:
    """Which of `CLASSES` a dtype belongs to: a complex number to that of its parts."""
    return "float16" if dtype.is_half else dtype.real.name if dtype.is_inexact else "integer"


# -- devices on paper -------------------------------------------------------------------------------------------------------------

# Two cores with AVX-512, as this project measures on: copies of arrays beyond the caches move 28 to 36 GB/s; an addition of 8 bytes
# in a vectorised loop takes 0.12 ns on one core (`passes/lower.py`), halves are computed as float32; OpenBLAS multiplies 1024^3
# float32 at 308 to 329 GFLOP/s.  A kernel is a call of a C function; a call of Python's takes 5 us (`passes/lower_calls.py`).
CPU = Device(
    "cpu",
    "cpu",
    bandwidth=30e9,
    additions={"float16": 16e9, "float32": 33e9, "float64": 16.5e9, "integer": 16.5e9},
    products={"float16": 150e9, "float32": 310e9, "float64": 155e9, "integer": 16.5e9},
    launch_seconds=0.2e-6,
    call_seconds=5e-6,
)

# NVIDIA H200 SXM data sheet: 4.8 TB/s of HBM3e, 141 GB; 67 TFLOPS float32 and 34 float64 of vectors, which count multiply-add as
# two, so half of it for additions; 67 TFLOPS float64 and 989 float16 (dense) of matrices by tensor cores; float32 products keep 67,
# for TF32 rounds.  NVIDIA H100 white paper: 64 integer lanes per multiprocessor, half as many as of float32.  Halves are computed
# as float32.  Launch: 5 us, host time of a kernel through CuPy with prepacked arguments.
H200 = Device(
    "cuda:0",
    "cuda",
    bandwidth=4.8e12,
    additions={"float16": 33.5e12, "float32": 33.5e12, "float64": 17e12, "integer": 16.7e12},
    products={"float16": 989e12, "float32": 67e12, "float64": 67e12, "integer": 16.7e12},
    launch_seconds=5e-6,
    memory=141e9,
    routines=frozenset({"matmul", "avg_pool", "avg_pool_back"}),
    functions=frozenset(),
)

# NVIDIA A100 80GB SXM data sheet: 2039 GB/s of HBM2e, 80 GB; 19.5 TFLOPS float32 and 9.7 float64 of vectors (half of it for
# additions); 19.5 TFLOPS float64 and 312 float16 (dense) of matrices.  GA100 white paper: as many integer lanes as float32 ones.
A100 = replace(
    H200,
    bandwidth=2.039e12,
    additions={"float16": 9.75e12, "float32": 9.75e12, "float64": 4.85e12, "integer": 9.75e12},
    products={"float16": 312e12, "float32": 19.5e12, "float64": 19.5e12, "integer": 9.75e12},
    memory=80e9,
)

# -- links on paper: in one direction ----------------------------------------------------------------------------------------------

# PCI Express 4.0 and 5.0, 16 lanes: 16 and 32 GT/s x 16 lanes x 128/130 = 31.5 and 63 GB/s; of which headers of packets and flow
# control are taken to leave 80 % to pinned memory.  Latency: a guess at an asynchronous copy and the event that is waited for.
PCIE_GEN4 = Link(bandwidth=25e9, latency=10e-6)
PCIE_GEN5 = Link(bandwidth=50e9, latency=10e-6)
# NVIDIA H200 data sheet: NVLink of the fourth generation, 900 GB/s, which counts both directions.
NVLINK4 = Link(bandwidth=450e9, latency=8e-6)


def on_paper(gpu: Device = H200, count: int = 1, pcie: Link = PCIE_GEN5, between: Link | None = NVLINK4) -> Machine:
    """A CPU with `count` equal GPUs on links `pcie`; `between` joins the GPUs, None: they copy through the CPU, at twice the cost.

    >>> on_paper(count=2).names
    ('cpu', 'cuda:0', 'cuda:1')
    """
    gpus = tuple(gpu.named(f"cuda:{k}") for k in range(count))
    through_cpu = Link(pcie.bandwidth / 2, 2 * pcie.latency)
    links = {(CPU.name, g.name): pcie for g in gpus}
    links |= {(a.name, b.name): between or through_cpu for k, a in enumerate(gpus) for b in gpus[k + 1 :]}
    return Machine((CPU, *gpus), links)


__all__ = [
    "A100", "CLASSES", "CPU", "H200", "NVLINK4", "PCIE_GEN4", "PCIE_GEN5", "Device", "Link", "Machine", "on_paper",
    "rate_class",
]  # fmt: skip
