"""The machine model of this machine: from kept measurements, else from data sheets.

Figures are kept in the folder of the kernels, under what they were measured on: processor, threads, GPUs, driver.
"""

from __future__ import annotations

import hashlib
import json
import logging
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dynagraph import config
from dynagraph._core import _dispatch
from dynagraph.backends import kernel_cache
from dynagraph.backends.calibration import Figures, measure
from dynagraph.backends.executable import Backend
from dynagraph.cuda.state import device_count, require_cupy
from dynagraph.driver.forks import Locked
from dynagraph.errors import PlacementError
from dynagraph.ir.machine_model import Machine, on_paper

FORMAT = 1  # of figures: a change makes all older ones unknown
SUFFIX = ".figures"
_log = logging.getLogger("dynagraph.cache")
_locked = Locked()
_failed: set[str] = set()  # what could not be measured in this process


@dataclass(frozen=True)
class Identity:
    """What figures are of."""

    processor: str
    threads: int
    gpus: tuple[tuple[str, str], ...]  # name and UUID
    driver: int

    @property
    def key(self) -> str:
        return hashlib.sha256(f"{FORMAT} {self!r}".encode()).hexdigest()


def identity() -> Identity:
    """What this machine is, as this process sees it."""
    gpus: list[tuple[str, str]] = []
    driver = 0
    if device_count():
        runtime: Any = require_cupy().cuda.runtime
        driver = int(runtime.driverGetVersion())
        for number in range(device_count()):
            found = runtime.getDeviceProperties(number)
            gpus.append((found["name"].decode(), bytes(found.get("uuid", b"")).hex()))
    return Identity(processor_name(), _dispatch.get_threads(), tuple(gpus), driver)


def processor_name() -> str:
    """The model of the processor, as the system calls it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            names = (line.partition(":")[2].strip() for line in file if line.startswith("model name"))
            return next(names, "") or platform.processor() or platform.machine()
    except OSError:  # not Linux
        return platform.processor() or platform.machine()


def kept_figures(of: Identity) -> Figures | None:
    """What was measured on such a machine, if it was kept and can be read."""
    image = kernel_cache.cache().load(of.key, SUFFIX)
    if image is None:
        return None
    try:
        figures = from_json(json.loads(image))
        machine_of(of, figures)
    except (ValueError, TypeError, KeyError, PlacementError) as error:
        _log.warning("figures of this machine are not understood, and not used: %s", error)
        return None
    return figures


def keep(of: Identity, figures: Figures) -> bool:
    """Keep them for other processes; gives whether they are: no reason why not is an error."""
    return kernel_cache.cache().store(of.key, json.dumps(as_json(figures)).encode(), SUFFIX)


def as_json(figures: Figures) -> dict[str, Any]:
    """
    >>> as_json(Figures({"cpu": {"bandwidth": 1e9}}, {("cpu", "cuda:0"): {"latency": 1e-5}}))["links"]
    [['cpu', 'cuda:0', {'latency': 1e-05}]]
    """
    links = {name: [[*pair, dict(row)] for pair, row in table.items()] for name, table in _tables(figures).items()}
    return {"devices": {name: dict(row) for name, row in figures.devices.items()}, "seconds": figures.seconds, **links}


def from_json(data: Mapping[str, Any]) -> Figures:
    """The figures of `as_json`.  Raises ValueError, TypeError or KeyError where it is something else."""
    links, pinned = ({(a, b): dict(row) for a, b, row in data[name]} for name in ("links", "pinned"))
    return Figures({name: dict(row) for name, row in data["devices"].items()}, links, pinned, float(data["seconds"]))


def _tables(figures: Figures) -> dict[str, Mapping[tuple[str, str], Mapping[str, float]]]:
    return {"links": figures.links, "pinned": figures.pinned}


def machine_of(of: Identity, figures: Figures | None) -> Machine:
    """A machine of these figures; None: by the tables on paper, whatever its GPUs are.

    Raises PlacementError for figures that are none.

    >>> machine_of(Identity("some processor", 2, (), 0), Figures({"cpu": {"bandwidth": 1e10}})).origin
    'measured'
    """
    machine = on_paper(count=len(of.gpus))
    return machine if figures is None else machine.measured(figures.devices, figures.links)


def measure_here(backends: Mapping[str, Backend]) -> Figures:
    """Measure this machine now, and keep the figures.

    backends: by the names of its devices.  Raises what backends and CuPy raise.
    """
    of = identity()
    figures = measure(backends)
    machine_of(of, figures)  # raises where they are none
    keep(of, figures)
    _failed.discard(of.key)
    return figures


def machine_here(backends: Mapping[str, Backend] | None = None) -> Machine:
    """This machine by what was measured, by the tables on paper where nothing was.

    backends: by the names of its devices, to measure it with if that was never done; None: it is not measured, nor is it where
    `config.measure_devices` is off, or where it has no GPU.  What goes wrong is logged, and numbers on paper do.
    """
    of = identity()
    if not of.gpus:
        return on_paper(count=0)
    with _locked.lock:  # who comes second finds what the first has measured
        figures = kept_figures(of) or _measured.get(of.key)
        if figures is None and backends is not None and config.measure_devices and of.key not in _failed:
            try:
                figures = _measured[of.key] = measure_here(backends)
                _log.info("measured this machine's devices in %.1f s", figures.seconds)
            except Exception as error:
                _failed.add(of.key)
                _log.warning("this machine's devices were not measured; devices are chosen by data sheets: %r", error)
    return machine_of(of, figures)


_measured: dict[str, Figures] = {}  # in this process: the disk may keep nothing

__all__ = [
    "Identity", "as_json", "from_json", "identity", "keep", "kept_figures", "machine_here", "machine_of", "measure_here",
    "processor_name",
]  # fmt: skip
