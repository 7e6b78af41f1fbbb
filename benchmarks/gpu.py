"""Compiled functions of CuPy arrays on a GPU, against CuPy, cupy.fuse, torch, torch.compile and JAX.

    python benchmarks/gpu.py [--only softmax] [--seconds 240] [--shrink 64] [--without jax,...]

Everything runs in this one process, the contenders in turn, round after round; figures are medians.  What has been measured is
printed at once, one JSON object a line, for `scripts/gpu_check.py`, which knows the bars and writes the report.  Peers that are
not installed, or cannot run a function, are said to be so.  Exit code: 1 where a result of ours is wrong, 3 where the device is
in an error that only another process mends.

Device time is taken between two events around calls back to back.  JAX has streams of its own, so its calls are timed by the
host's clock until the last result is there.  Where a call moves less than four times what the L2 cache holds, each call is timed
alone, behind a write to more memory than the cache holds; that also keeps the device busy while the host prepares the call.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from gpu_contenders import Contender, Run, contenders_of, make
from gpu_workloads import WORKLOADS, Problem, Workload

import dynagraph as dg

ROUNDS = 11
BATCH_SECONDS = 4e-3  # calls between two events
MOST_CALLS = 500  # below what a queue of launches holds
LAUNCHES = 100
ROW_SECONDS = 4.0  # of measuring, once all is compiled
WRONG, BROKEN = 1, 3


class DeviceBroken(Exception):
    """The device answers every call with an error."""


class CupyDevice:
    """CuPy's current device: data, events, and what the benchmarks need of the driver."""

    def __init__(self) -> None:
        import cupy  # an optional dependency

        self.xp: Any = cupy
        properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
        self.name = properties["name"].decode()
        self.l2_bytes = int(properties["l2CacheSize"])
        self.memory_bytes = int(properties["totalGlobalMem"])
        self.capability = cupy.cuda.Device().compute_capability
        self._scratch = cupy.empty(max(1 << 30, 4 * self.l2_bytes), np.uint8)
        try:
            generator = cupy.random.default_rng(0)
            for draw in (generator.random, generator.standard_normal):
                draw((2,), dtype=np.dtype("float32"))
            self._random: Any = cupy.random
        except Exception:  # without cuRAND numbers come from the host
            self._random = np.random

    def normal(self, shape: tuple[int, ...], dtype: str, seed: int) -> Any:
        drawn = np.dtype("float64" if dtype == "float64" else "float32")
        return self.xp.asarray(self._random.default_rng(seed).standard_normal(shape, dtype=drawn)).astype(dtype, copy=False)

    def uniform(self, shape: tuple[int, ...], dtype: str, seed: int, low: float, high: float) -> Any:
        drawn = self.xp.asarray(self._random.default_rng(seed).random(shape, dtype=np.dtype(dtype)))
        drawn *= high - low
        drawn += low
        return drawn

    def to_host(self, array: Any) -> np.ndarray:
        return self.xp.asnumpy(array)

    def synchronize(self) -> None:
        self.xp.cuda.runtime.deviceSynchronize()

    def flush(self) -> None:
        self.xp.cuda.runtime.memsetAsync(self._scratch.data.ptr, 1, self._scratch.nbytes, 0)

    def elapsed(self, run: Run, calls: int) -> float:
        """Seconds on the device of some calls back to back."""
        start, stop = self.xp.cuda.Event(), self.xp.cuda.Event()
        start.record()
        for _ in range(calls):
            run()
        stop.record()
        stop.synchronize()
        return 1e-3 * self.xp.cuda.get_elapsed_time(start, stop)

    def copier(self, nbytes: int) -> Run:
        """A copy from device memory to device memory that reads and writes `nbytes` together."""
        half = max(1, nbytes // 2)
        source, target = self.xp.full(half, 0x5A, np.uint8), self.xp.empty(half, np.uint8)
        device_to_device = 3
        return lambda: self.xp.cuda.runtime.memcpyAsync(target.data.ptr, source.data.ptr, half, device_to_device, 0)

    def free(self) -> None:
        self.xp.get_default_memory_pool().free_all_blocks()


# -- right results ------------------------------------------------------------------------------------------------------------


def on_device(value: Any, xp: Any) -> Any:
    """An array of whichever library as one of `xp`'s."""
    if isinstance(value, xp.ndarray):
        return value
    if hasattr(value, "__dlpack__"):
        return xp.from_dlpack(value)
    return xp.asarray(value)


def worst_error(result: Any, problem: Problem, expected: tuple[np.ndarray, ...], plain: Any, device: Any) -> float:
    """The largest relative error of the results, as norms: of the parts that float64 was computed for, and, so that each element
    is looked at, of all against CuPy's plain results.  NaN where anything is NaN."""
    results = [on_device(r, device.xp) for r in (result if isinstance(result, tuple) else (result,))]
    if len(results) != len(expected):
        return float("inf")
    errors = [0.0]
    for k, (ours, right) in enumerate(zip(results, expected)):
        part = device.to_host(problem.pick(ours)).astype(np.float64)
        if part.shape != right.shape:
            return float("inf")
        scale = float(np.linalg.norm(right.ravel())) or 1.0
        errors.append(float(np.linalg.norm((part - right).ravel())) / scale)
        if plain is not None:
            size = float(abs(plain[k]).max()) or 1.0
            errors.append(float(abs(ours - plain[k]).max()) / size)
    return float("nan") if any(e != e for e in errors) else max(errors)


def judged(contender: Contender, result: Any, problem: Problem, expected: Any, plain: Any, device: Any) -> None:
    """Note the error of a result; `status` is "ok" or "wrong"."""
    error = worst_error(result, problem, expected, plain, device)
    right = error <= problem.tolerance
    found = contender.found
    found["error"] = error if error == error and error != float("inf") else str(error)
    if found.get("status") != "wrong":
        found["status"] = "ok" if right else "wrong"
        if not right:
            found["why"] = f"relative error {error:.3g}, allowed {problem.tolerance:.1g}"


# -- timing -------------------------------------------------------------------------------------------------------------------


def seconds_of(contender: Contender, calls: int, timing: str, flushed: bool, device: Any) -> float:
    """Of one call."""
    run = contender.run
    if timing == "launch":
        start = time.perf_counter()
        for _ in range(calls):
            result = run()
        taken = time.perf_counter() - start
        contender.wait(result)
        return taken / calls
    if flushed and not contender.own_stream:
        alone = []
        for _ in range(calls):
            device.flush()
            alone.append(device.elapsed(run, 1))
        return statistics.median(alone)
    if timing == "wall" or contender.own_stream:
        start = time.perf_counter()
        for _ in range(calls):
            result = run()
        contender.wait(result)
        return (time.perf_counter() - start) / calls
    return device.elapsed(run, calls) / calls


def time_all(contenders: list[Contender], timing: str, flushed: bool, device: Any, deadline: float) -> None:
    """Fill `samples`, the contenders in turn; one that fails leaves with what it has."""
    calls: dict[str, int] = {}
    running = list(contenders)
    end = min(deadline, time.perf_counter() + ROW_SECONDS)
    for turn in range(1 + ROUNDS):
        for contender in list(running):
            if turn > 3 and time.perf_counter() > end:
                return
            try:
                if turn == 0:
                    once = seconds_of(contender, 3, timing, flushed, device)
                    batch = LAUNCHES if timing == "launch" else max(1, min(MOST_CALLS, round(BATCH_SECONDS / max(once, 1e-9))))
                    calls[contender.name] = min(batch, 10) if flushed else batch
                else:
                    contender.samples.append(seconds_of(contender, calls[contender.name], timing, flushed, device))
            except Exception as error:
                _failed(contender, error, device)
                running.remove(contender)


def _failed(contender: Contender, error: Exception, device: Any) -> None:
    contender.found |= {"status": "failed", "why": described(error)}
    contender.samples.clear()
    still_works(device, error)


def still_works(device: Any, error: Exception) -> None:
    """Raises DeviceBroken where an error stays with the device."""
    try:
        device.synchronize()
    except Exception as lasting:
        raise DeviceBroken(described(error)) from lasting


def described(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"[:300]


# -- rows ---------------------------------------------------------------------------------------------------------------------


def compiled_notes(compiled: Any) -> dict[str, Any]:
    """What the compiler says of a function: whether it is captured, in kernels of its own, and what stood in the way."""
    stats = compiled.stats
    texts = [(p.executable.artifacts if p.executable is not None else {}) for p in compiled.programs]
    loops = [reason for reason in stats.breaks if "[loop-on-device]" in str(reason)]  # whose body's kernels are its own
    notes = {
        "programs": stats.compiles, "own_kernels": bool(texts) and (bool(loops) or all("kernels" in t for t in texts)),
        "hits": stats.hits,
        "stayed_eager": stats.stayed_eager, "refusals": stats.refusals, "fallbacks": stats.fallbacks,
        "breaks": [str(reason).strip() for reason in stats.breaks if reason not in loops], "compile_seconds": stats.compile_seconds,
    }  # fmt: skip
    if stats.last_error is not None:
        notes["last_error"] = described(stats.last_error)
    return notes


def measure(
    workload: Workload, device: Any, excluded: Iterable[str] = (), deadline: float = float("inf"), shrink: int = 1,
    doing: Callable[[str], None] = lambda name: None,
) -> dict[str, Any]:  # fmt: skip
    """A row of the report.  `doing` is told the contender that is about to run for the first time."""
    problem = workload.make(device, shrink)
    expected = problem.expected()
    plain: tuple[Any, ...] | None = None
    plain_first = 0.0
    if not problem.own:
        device.synchronize()
        begun = time.perf_counter()
        given = problem.of(device.xp)(*problem.arguments)
        device.synchronize()
        plain_first = time.perf_counter() - begun
        plain = given if isinstance(given, tuple) else (given,)
    flushed = workload.timing == "device" and not problem.flops and problem.nbytes < 4 * device.l2_bytes
    row: dict[str, Any] = {
        "row": workload.name, "shape": list(workload.shape), "dtype": workload.dtype, "timing": workload.timing,
        "nbytes": problem.nbytes, "flops": problem.flops, "flushed": flushed, "shrink": shrink, "contenders": {},
    }  # fmt: skip
    contenders: list[Contender] = []
    found = row["contenders"]
    try:
        for name in contenders_of(workload, problem, excluded):
            if time.perf_counter() > deadline and name != "dynagraph":
                found[name] = {"status": "skipped", "why": "no time left"}
                continue
            doing(name)
            contender = _first_call(name, problem, expected, plain, device, found)
            if contender is not None:
                contenders.append(contender)
        timed = [c for c in contenders if c.found["status"] == "ok" or c.name.startswith("dynagraph")]
        if workload.timing == "device" and not problem.flops:
            timed.append(Contender("copy", device.copier(problem.nbytes), lambda result: device.synchronize()))
            found["copy"] = timed[-1].found
        doing("timing")
        time_all(timed, workload.timing, flushed, device, deadline)
        for contender in timed:
            found[contender.name] |= _figures(contender)
        for contender in contenders:  # once more, now that all have run: what races may be right the first time
            if contender.compiled is not None and not problem.own and contender.found["status"] == "ok":
                judged(contender, contender.run(), problem, expected, plain, device)
    except DeviceBroken as error:
        row["broken"] = str(error)
    if "first_call_s" in found.get("cupy", {}):
        found["cupy"]["first_call_s"] = plain_first  # its kernels were there when its turn came
    for contender in contenders:
        if contender.compiled is not None:
            found[contender.name]["compiled"] = compiled_notes(contender.compiled)
    return row


def _first_call(
    name: str, problem: Problem, expected: Any, plain: Any, device: Any, found: dict[str, Any]
) -> Contender | None:
    entry = found[name] = {"status": "failed"}
    contender = None
    try:
        start = time.perf_counter()
        contender = make(name, problem, device)
        contender.found = entry
        if contender.compiled is not None:
            _poison(device, problem)
        begun = time.perf_counter()
        result = contender.run()
        contender.wait(result)
        entry |= {"first_call_s": time.perf_counter() - begun, "made_s": begun - start, "status": "ok"}
        judged(contender, result, problem, expected, plain, device)
        del result
        for _ in range(3):
            contender.wait(contender.run())
    except ImportError:
        entry |= {"status": "missing", "why": "not installed"}
        return None
    except Exception as error:
        unsupported = isinstance(error, (dg.CaptureError, dg.GradientError))
        entry |= {"status": "unsupported" if unsupported else "failed", "why": described(error)}
        if contender is not None and contender.compiled is not None:
            entry["compiled"] = compiled_notes(contender.compiled)
        still_works(device, error)
        return None
    return contender


def _poison(device: Any, problem: Problem) -> None:
    """Leave NaN in the memory that the pool hands out next, so that what a kernel does not write is seen."""
    size = min(problem.nbytes, 8 << 30) // 4
    device.xp.full(size, np.nan, np.float32)


def _figures(contender: Contender) -> dict[str, Any]:
    samples = sorted(contender.samples)
    if not samples:
        return {}
    return {
        "us": 1e6 * statistics.median(samples), "least_us": 1e6 * samples[0], "most_us": 1e6 * samples[-1], "samples": len(samples),
        "clock": "host" if contender.own_stream else "device",
    }  # fmt: skip


def clean_up(device: Any) -> None:
    gc.collect()
    device.free()
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "_dynamo"):
        torch._dynamo.reset()
        torch.cuda.empty_cache()


# -- the process --------------------------------------------------------------------------------------------------------------


def environment(device: Any) -> dict[str, Any]:
    """Versions, the device, and how fast it copies 4 GB."""
    run = device.copier(4 << 30)
    run()
    copy = statistics.median(device.elapsed(run, 4) / 4 for _ in range(5))
    versions = {"python": platform.python_version(), "numpy": np.__version__, "dynagraph": dg.__version__}
    for name in ("cupy", "torch", "triton", "jax"):
        module = sys.modules.get(name)
        versions[name] = getattr(module, "__version__", None)
    runtime = device.xp.cuda.runtime
    return {
        "device": device.name, "capability": device.capability, "l2_bytes": device.l2_bytes, "memory_bytes": device.memory_bytes,
        "driver": runtime.driverGetVersion(), "runtime": runtime.runtimeGetVersion(), "copy_gb_per_s": (4 << 30) / copy / 1e9,
        "versions": versions, "cpu": os.cpu_count(),
    }  # fmt: skip


def say(event: str, **facts: Any) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


def import_peers(excluded: Iterable[str]) -> dict[str, str]:
    """Import those that are there; why not, for the others.  Torch comes first: the libraries that it brings then serve CuPy."""
    missing = {}
    for name in ("torch", "cupy", "jax"):
        if name not in excluded:
            try:
                __import__(name)
            except Exception as error:  # a peer that is broken is as one that is not there
                missing[name] = described(error)
    return missing


def run_all(device: Any, options: argparse.Namespace, workloads: Iterable[Workload] = WORKLOADS) -> int:
    """Measure and say what was found; gives the exit code."""
    deadline = time.perf_counter() + options.seconds
    excluded = set(filter(None, options.without.split(",")))
    done = set(json.loads(options.done))
    code = 0
    for workload in workloads:
        name = workload.name
        if name in done or options.only not in name:
            continue
        if time.perf_counter() > deadline:
            say("row", row=name, skipped="no time left")
            continue
        say("start", row=name)
        try:
            row = measure(
                workload, device, excluded, deadline, options.shrink, lambda c, name=name: say("doing", row=name, contender=c)
            )
        except Exception as error:  # the data did not fit, say: the other rows are still wanted
            row = {"row": name, "failed": described(error)}
        say("row", **row)
        if "broken" in row:
            return BROKEN
        if any(c.get("status") == "wrong" for n, c in row.get("contenders", {}).items() if n.startswith("dynagraph")):
            code = WRONG
        try:
            clean_up(device)
            device.synchronize()
        except Exception:
            return BROKEN
    say("end")
    return code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="rows whose names hold this")
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--shrink", type=int, default=1, help="divide all sizes by this")
    parser.add_argument("--without", default="", help="contenders to leave out, with commas between them")
    parser.add_argument("--done", default="[]", help="names of rows to leave out, a JSON list")
    options = parser.parse_args()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX would take three quarters of the memory
    missing = import_peers(options.without.split(","))
    device = CupyDevice()
    say("environment", **environment(device), missing=missing)
    return run_all(device, options)


if __name__ == "__main__":
    sys.exit(main())
