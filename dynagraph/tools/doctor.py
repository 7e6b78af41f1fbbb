"""`dynagraph doctor`: what this machine offers, what works, what does not, and what to do about it."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import sys
import sysconfig
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import click
import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dynagraph import api, array_libraries, config
from dynagraph._core import _dispatch
from dynagraph.backends import kernel_cache, measured_machine
from dynagraph.backends.blas import find_blas
from dynagraph.backends.cuda import cublas, libraries, nvrtc
from dynagraph.errors import BackendError, CompilerError
from dynagraph.tools.cache import size

OK, NOTE, WARNING, ERROR = "ok", "note", "warning", "error"
_MARKS = {OK: "[green]ok[/]", NOTE: "[blue]note[/]", WARNING: "[yellow]warning[/]", ERROR: "[red]error[/]"}
OLDEST, NEWEST = (3, 11), (3, 13)  # the versions of CPython that are tested
LEAST_FREE = 64 << 20  # bytes: less than this on the disk of the cache is worth a warning


@dataclass(frozen=True)
class Check:
    """One finding.  `cure` says what to do where the status is not ok."""

    subject: str
    status: str
    finding: str
    cure: str = ""


def check_python() -> Check:
    version = f"{platform.python_implementation()} {platform.python_version()}"
    if platform.python_implementation() != "CPython":
        return Check("Python", ERROR, version, "dynagraph captures the bytecode of CPython: use that interpreter")
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return Check("Python", WARNING, f"{version}, free-threaded", "not tested: use the build with the GIL")
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        supported = f"{'.'.join(map(str, OLDEST))} to {'.'.join(map(str, NEWEST))}"
        return Check("Python", WARNING, version, f"tested on {supported}; unknown bytecode runs eagerly")
    return Check("Python", OK, version)


def check_hook() -> Check:
    if importlib.util.find_spec("dynagraph._core._frame_hook") is None:
        return Check("frame hook", WARNING, "not built for this version of Python",
                     "functions are captured from their arguments alone; reinstall dynagraph for this interpreter")
    return Check("frame hook", OK, "available")


def check_numpy() -> Check:
    if int(np.__version__.split(".")[0]) < 2:
        return Check("NumPy", ERROR, np.__version__, "dynagraph follows NumPy 2's promotion: pip install 'numpy>=2'")
    return Check("NumPy", OK, np.__version__)


def check_compiler() -> Check:
    try:
        found = kernel_cache.compiler().describe()
    except CompilerError as error:
        return Check("C compiler", WARNING, str(error), "programs run through NumPy meanwhile: correct, but slower; "
                     'install gcc or clang, or pip install "dynagraph[compiler]", or name one: DYNAGRAPH_CC=/path/to/cc')
    return Check("C compiler", OK, f"{found['version']} ({found['compiler']}): {found['why']}")


def check_flags() -> Check:
    try:
        found = kernel_cache.compiler().describe()
    except CompilerError:
        return Check("compiler flags", NOTE, "none: there is no compiler")
    return Check("compiler flags", OK, shorten(found["flags"]))


def shorten(flags: str, most: int = 12) -> str:
    """The flags that matter to people: a compiler's list of processor features is long."""
    words = [w for w in flags.split() if not w.startswith("-mno-")]
    more = len(words) - most
    return " ".join(words[:most]) + (f" ... and {more} more" if more > 0 else "")


def check_kernel() -> Check:
    """Compile a small function, run it, compare with NumPy."""

    def function(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.tanh(x) * y + y.sum()

    x, y = np.linspace(-2.0, 2.0, 1000), np.linspace(0.0, 1.0, 1000)
    compiled = api.compile(function, fullgraph=True)
    start = time.perf_counter()
    try:
        got = compiled(x, y)
    except Exception as error:  # whatever it is: finding out is what this command is for
        return Check("first program", ERROR, f"{type(error).__name__}: {error}", "please report this")
    milliseconds = 1e3 * (time.perf_counter() - start)
    if not np.allclose(got, function(x, y), rtol=1e-9, atol=1e-12):
        return Check("first program", ERROR, "gave other values than NumPy",
                     "run `dynagraph cache clear`; if that does not help, please report this")
    executable = compiled.programs[-1].executable
    if executable.native is None:
        return Check("first program", OK, f"runs through NumPy, in {milliseconds:.0f} ms")
    origin = "from the disk cache" if executable.cached else "newly compiled"
    return Check("first program", OK, f"runs as machine code, {origin}, in {milliseconds:.0f} ms")


def check_blas() -> Check:
    found = find_blas()
    if found is None:
        return Check("BLAS", WARNING, "NumPy's BLAS was not found",
                     "matrix products are plain loops; the NumPy that pip installs brings an OpenBLAS")
    forced = os.environ.get("OPENBLAS_CORETYPE")
    if forced:
        cure = f"OPENBLAS_CORETYPE={forced} chose them, not the processor: unset it where that is not meant"
        return Check("BLAS", NOTE, found.describe(), cure)
    return Check("BLAS", OK, found.describe())


def check_threads() -> Check:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    used = _dispatch.get_threads()
    finding = f"{used} of {usable} processors"
    if config.threads is not None:
        finding += " (set by config.threads or DYNAGRAPH_THREADS)"
    if used > usable:
        return Check("threads", WARNING, finding, "more threads than processors: unset DYNAGRAPH_THREADS")
    return Check("threads", OK, finding)


def check_cache() -> Check:
    if not config.cache:
        return Check("disk cache", NOTE, "switched off (DYNAGRAPH_CACHE, config.cache)", "every process compiles anew")
    found = kernel_cache.cache().info()
    if found.folder is None:
        folder = config.cache_dir or kernel_cache.default_folder()
        return Check("disk cache", WARNING, f"{folder} cannot be used",
                     "it must belong to you and be writable by nobody else: chmod 700, or set DYNAGRAPH_CACHE_DIR")
    finding = f"{found.folder}: {found.entries} kernels, {size(found.nbytes)} of at most {size(found.limit)}"
    if not os.access(found.folder, os.W_OK):
        return Check("disk cache", WARNING, f"{finding}, read-only", "no kernel can be added: set DYNAGRAPH_CACHE_DIR")
    free = shutil.disk_usage(found.folder).free
    if free < LEAST_FREE:
        return Check("disk cache", WARNING, f"{finding}; {size(free)} free",
                     "make room on this disk, or set DYNAGRAPH_CACHE_DIR")
    return Check("disk cache", OK, finding)


def check_nvrtc() -> Check:
    try:
        found = nvrtc.find()
    except CompilerError as error:
        finding, _, cure = str(error).rpartition("; ")
        return Check("NVRTC", NOTE if config.nvrtc is None and not has_cupy() else WARNING, finding, cure)
    architectures = f"sm_{found.architectures[0]} to sm_{found.architectures[-1]}"
    return Check("NVRTC", OK, f"{found.version[0]}.{found.version[1]} for {architectures} ({found.path})")


def check_cublas() -> Check:
    try:
        return Check("cuBLASLt", OK, cublas.find().name)
    except BackendError as error:
        finding, _, cure = str(error).rpartition("; ")
        status = WARNING if has_cupy() and config.cublaslt != cublas.OFF else NOTE
        return Check("cuBLASLt", status, f"{finding}; products of matrices on GPUs are functions of CuPy's", cure)


def check_cupy() -> Check:
    if not has_cupy():
        driver = "there" if shutil.which("nvidia-smi") else "not there"
        return Check("CuPy", NOTE, f"not installed; a GPU driver is {driver}",
                     f"programs run on the CPU; where there is a GPU of NVIDIA's: {libraries.CURE}")
    try:
        import cupy  # an optional extra, slow to import
    except ImportError as error:
        return Check("CuPy", WARNING, f"does not import: {one_line(error)}", f"uninstall every cupy package, then {libraries.CURE}")
    refusal = array_libraries.named("cupy").refusal
    if refusal:
        return Check("CuPy", WARNING, refusal, "functions on its arrays run eagerly: install a newer CuPy")
    return Check("CuPy", OK, f"{cupy.__version__}, of CUDA {cuda_version(cupy.cuda.runtime.runtimeGetVersion())}")


def check_devices() -> Check:
    subject = "CUDA devices"
    if not has_cupy():
        return Check(subject, NOTE, "not looked for: that takes CuPy")
    try:
        from cupy.cuda import runtime  # an optional extra
    except ImportError:
        return Check(subject, WARNING, "not looked for: CuPy does not import", "see CuPy")
    driver = 0
    try:
        driver = runtime.driverGetVersion()
        found = [runtime.getDeviceProperties(k) for k in range(runtime.getDeviceCount())]
    except runtime.CUDARuntimeError as error:
        if driver == 0:
            return Check(subject, WARNING, f"no driver: {one_line(error)}",
                         "install the driver of the GPU; in a container, give it the GPU")
        return Check(subject, WARNING, f"none, under a driver of CUDA {cuda_version(driver)}: {one_line(error)}",
                     "update the driver of the GPU; unset CUDA_VISIBLE_DEVICES where it hides the GPU")
    names = [f"{p['name'].decode()} (sm_{p['major']}{p['minor']}, {size(p['totalGlobalMem'])})" for p in found]
    finding = f"{', '.join(names)}; driver of CUDA {cuda_version(driver)}"
    try:
        compiler = nvrtc.find()
    except CompilerError:
        return Check(subject, WARNING, finding, "no kernels can be compiled for them: see NVRTC")
    if compiler.version[0] > driver // 1000:
        return Check(subject, WARNING, f"{finding}, which may refuse kernels of {compiler.name}",
                     f"update the driver, or {libraries.CURE}")
    return Check(subject, OK, finding)


def check_costs() -> Check:
    """Of what `device="auto"` places programs by."""
    of = measured_machine.identity()
    if not of.gpus:
        return Check("costs", NOTE, "not needed: there is no GPU to place programs on")
    figures = measured_machine.kept_figures(of)
    if figures is None:
        return Check("costs", NOTE, "on paper, of an H200",
                     "`dynagraph measure`, or the first function that is compiled with device='auto', measures this machine")
    return Check("costs", OK, f"of device='auto': measured on this machine, {', '.join(figures.devices)}")


def has_cupy() -> bool:
    return importlib.util.find_spec("cupy") is not None


def cuda_version(number: int) -> str:
    """As people write it: 13.2 for 13020."""
    return f"{number // 1000}.{number % 1000 // 10}"


def one_line(error: Exception) -> str:
    """What an error says, without the banners and blank lines that CuPy puts around it."""
    lines = (line.strip() for line in str(error).splitlines())
    return " ".join(line for line in lines if line.strip("=-"))


def check_switches() -> Check:
    changed = [s.name for s in config.SWITCHES if getattr(config, s.name) != s.default]
    return Check("switches", OK, ", ".join(f"{n}={getattr(config, n)!r}" for n in changed) or "all at their defaults")


CHECKS: list[Callable[[], Check]] = [
    check_python, check_hook, check_numpy, check_compiler, check_flags, check_blas, check_threads, check_cache,
    check_kernel, check_nvrtc, check_cublas, check_cupy, check_devices, check_costs, check_switches,
]  # fmt: skip


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def doctor(as_json: bool) -> None:
    """Find out what works here, what does not, and what to do. Exit status 1 where something is broken."""
    checks = [check() for check in CHECKS]
    if as_json:
        click.echo(json.dumps([asdict(c) for c in checks], indent=2))
    else:
        print_checks(checks)
    if any(c.status == ERROR for c in checks):
        raise SystemExit(1)


def print_checks(checks: list[Check]) -> None:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for check in checks:
        table.add_row(check.subject, _MARKS[check.status], escape(check.finding))
        if check.cure:
            table.add_row("", "", f"[dim]-> {escape(check.cure)}[/]")
    # rich takes a pipe for 80 columns wide; where the user says how wide, it is so
    Console(width=None if Console().is_terminal or "COLUMNS" in os.environ else 160).print(table)


__all__ = ["CHECKS", "Check", "doctor", "shorten"]
