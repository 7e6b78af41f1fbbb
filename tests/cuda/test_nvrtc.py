"""CUDA C compiled by NVRTC, without a GPU: what kernels take, the disk cache, and what is said where something is missing."""

from __future__ import annotations

import dataclasses
import logging
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.backends import kernel_cache
from dynagraph.backends.cuda import libraries, nvrtc
from dynagraph.backends.cuda.backend import lower_graph
from dynagraph.backends.cuda.nvrtc import OPTIONS, compile_cuda
from dynagraph.backends.cuda.printer import Launch, Variant, print_program
from dynagraph.backends.cuda.program import complete_source
from dynagraph.errors import CompilerError
from dynagraph.ir.passes.pipeline import run as run_passes
from dynagraph.tools import doctor

AXPY = """
extern "C" __global__ void axpy(float *out, const float *x, const float *y, float a, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) out[i] = a * x[i] + y[i];
}
"""
REVERSE = """
extern "C" __global__ void reverse(float *x) {
    __shared__ float tile[256];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = tile[255 - threadIdx.x];
}
"""
MANY_VALUES = """
    float v[80];
    for (int i = 0; i < 80; ++i) v[i] = x[i * 1024 + threadIdx.x];
    __syncthreads();
    for (int r = 0; r < 3; ++r)
        for (int i = 0; i < 80; ++i) v[i] = v[i] * v[(i * 7 + r) % 80] + v[(i + r) % 80];
    for (int i = 0; i < 80; ++i) out[i * 1024 + threadIdx.x] = v[i];
"""
BOUNDS = "__launch_bounds__(1024, 2)"  # 32 registers for each thread
SPILLS = f'extern "C" __global__ void {BOUNDS} spills(float *out, const float *x) {{ {MANY_VALUES} }}'
CALLEE_SPILLS = f"""
__device__ __noinline__ void helper(float *out, const float *x) {{ {MANY_VALUES} }}
extern "C" __global__ void {BOUNDS} calls(float *out, const float *x) {{ helper(out, x); }}
extern "C" __global__ void {BOUNDS} calls_none(float *out, const float *x) {{ out[0] = x[0]; }}
"""
TOO_MUCH_SHARED = REVERSE.replace("256", "20000")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    with dg.config.override(cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache"


def refused(source: str) -> tuple[str, Path]:
    """What is said of a source that NVRTC refuses, and where it was kept."""
    with pytest.raises(CompilerError, match="refused generated code") as refusal:
        compile_cuda(source)
    said = str(refusal.value)
    return said, Path(said.split("kept in ")[1].splitlines()[0])


# -- what kernels take --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", [80, 90])
def test_kernels_are_compiled_and_say_what_they_take(architecture):
    cubin = compile_cuda(AXPY + REVERSE, architecture)
    assert cubin.image.startswith(b"\x7fELF") and cubin.kind == "cubin" and not cubin.from_cache
    axpy, reverse = cubin.resources["axpy"], cubin.resources["reverse"]
    assert set(cubin.resources) == {"axpy", "reverse"}
    assert 4 <= axpy.registers <= 32 and axpy.spill_stores == axpy.spill_loads == axpy.stack == axpy.shared == 0
    assert reverse.shared == 256 * 4 and reverse.spill_stores == reverse.stack == 0
    assert axpy.constant - reverse.constant == 40 - 8  # the bytes of their parameters; the rest is the same for all


def test_what_the_drivers_cache_gives_is_compiled_again(monkeypatch):
    """NVRTC takes code from the driver's cache, where there is a driver; ptxas then says nothing of the kernels."""
    compiled = nvrtc.Nvrtc._run
    calls: list[bool] = []

    def run(self, source, options, kind):
        calls.append("--no-cache" in options)
        status, log, image = compiled(self, source, options, kind)
        return status, log if calls[-1] else "", image

    monkeypatch.setattr(nvrtc.Nvrtc, "_run", run)
    assert compile_cuda(AXPY).resources["axpy"].registers >= 4 and calls == [False, True]


@pytest.mark.parametrize("architecture", [80, 90])
def test_spills_are_seen(architecture):
    spills = compile_cuda(SPILLS, architecture).resources["spills"]
    assert spills.registers == 32 and spills.spill_stores > 100 and spills.spill_loads > 100 and spills.stack > 100


def test_spills_of_called_functions_are_the_kernels():
    resources = compile_cuda(CALLEE_SPILLS).resources
    assert resources["calls"].spill_stores > 100 and resources["calls"].stack > 100
    assert resources["calls_none"].spill_stores == resources["calls_none"].stack == 0
    assert set(resources) == {"calls", "calls_none"}


def test_a_log_that_says_nothing_of_a_kernel_is_an_error():
    image = compile_cuda(AXPY).image
    with pytest.raises(CompilerError, match="does not say what kernel 'axpy' takes"):
        nvrtc.find()._resources("ptxas info    : 0 bytes gmem", image)


KPARAM_INFO = 0x17  # what NVIDIA's tools call EIATTR_KPARAM_INFO: one record for each parameter


def sections_of(image: bytes) -> dict[str, bytes]:
    (table,) = struct.unpack_from("<Q", image, 0x28)
    width, count, of_names = struct.unpack_from("<HHH", image, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", image, table + k * width) for k in range(count)]  # ..., offset, size
    names = headers[of_names][4]
    return {image[names + h[0] : image.index(b"\0", names + h[0])].decode(): image[h[4] : h[4] + h[5]] for h in headers}


def parameters_of(image: bytes, kernel: str) -> list[tuple[int, int]]:
    """The offset and size of each parameter, in order."""
    info, found, at = sections_of(image)[f".nv.info.{kernel}"], {}, 0
    while at < len(info):
        kind, attribute, size = struct.unpack_from("<BBH", info, at)
        payload = info[at + 4 : at + 4 + size] if kind == 4 else b""  # others hold their value in place of the size
        if kind == 4 and attribute == KPARAM_INFO:
            _, ordinal, offset, bits = struct.unpack("<IHHI", payload)
            found[ordinal] = offset, bits >> 18
        at += 4 + len(payload)
    return [found[k] for k in range(len(found))]


def test_parameters_are_read_from_the_code():
    assert parameters_of(compile_cuda(AXPY, 90).image, "axpy") == [(0, 8), (8, 8), (16, 8), (24, 4), (32, 8)]


def scaled(x, y, small, number):
    z = (x * number + small) * y
    return z - z.sum(axis=1, keepdims=True), z.max(axis=0), np.cumsum(z, axis=1)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("architecture", [80, 90])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("options", [{}, {"wide": True}, {"packs": False}, {"checked": True}], ids=str)
def test_kernels_take_what_they_are_launched_with(architecture, dynamic, options):
    compiled = dg.compile(scaled, dynamic=dynamic)
    compiled(np.ones((400, 600)), np.ones((400, 600)), np.float32(2), np.int16(3))
    graph = compiled.last_graph
    numbers = frozenset(k for k, node in enumerate(graph.placeholders) if node.ndim == 0)
    assert len(numbers) == 2
    variant = Variant(by_value=numbers, **options)
    program = lower_graph(run_passes(graph))
    source = print_program(program, variant)
    launches = [step for step in source.steps if isinstance(step, Launch)]
    assert any(step.sizes for step in launches) == dynamic
    image = compile_cuda(complete_source(source), architecture).image
    values = 0
    for step in launches:
        buffers = [program.buffers[name] for name in step.buffers]
        is_value = [b.role == "input" and b.position in variant.by_value for b in buffers]
        wanted = [b.dtype.itemsize if value else 8 for b, value in zip(buffers, is_value)] + [8] * len(step.sizes)
        if variant.checked:
            wanted += [8] * (2 * is_value.count(False) + 1)
        assert [size for _, size in parameters_of(image, step.kernel)] == wanted, step.kernel
        values += sum(is_value)
    assert values >= len(numbers)


def test_modes_differ_in_what_they_round_and_flush():
    newer = nvrtc.find().architectures[-1] + 10
    strict, fast = (compile_cuda(AXPY, newer, mode).image.decode() for mode in ("strict", "fast"))
    assert "mul.f32" in strict.replace(".rn", "") and "fma" not in strict and ".ftz" not in strict
    assert "fma.rn.ftz.f32" in fast
    with pytest.raises(ValueError, match=r"^compile_cuda: mode='loose': expected 'strict' or 'fast'$"):
        compile_cuda(AXPY, mode="loose")


def test_a_newer_architecture_gets_ptx_of_the_newest_known():
    newest = nvrtc.find().architectures[-1]
    for from_cache in (False, True):
        ptx = compile_cuda(AXPY, newest + 10)
        assert ptx.kind == "ptx" and f".target sm_{newest}".encode() in ptx.image and ptx.from_cache is from_cache
        assert not ptx.resources  # unknown before the driver compiles it


def test_an_architecture_that_is_too_old_is_said():
    oldest = nvrtc.find().architectures[0]
    with pytest.raises(CompilerError, match=rf"for sm_{oldest} and newer, not for sm_35; use NumPy arrays, or a newer GPU$"):
        compile_cuda(AXPY, 35)
    of_13 = dataclasses.replace(nvrtc.find(), version=(13, 0), architectures=(75, 80, 90))
    with pytest.raises(CompilerError, match=r'sm_75 and newer, not for sm_61; pip install "dynagraph\[cuda12\]", which knows it$'):
        of_13.compile(AXPY, 61, OPTIONS["strict"])


# -- refusals -----------------------------------------------------------------------------------------------------------


def test_a_refusal_shows_nvrtcs_words_and_keeps_the_source():
    said, kept = refused("int f( {")
    assert kept.read_text() == "int f( {" and kept.suffix == ".cu"
    assert "--gpu-architecture=sm_90: NVRTC_ERROR_COMPILATION" in said and "expected an expression" in said
    kept.unlink()


def test_refusals_of_ptxas_are_shown_too():
    said, kept = refused(TOO_MUCH_SHARED)
    assert "uses too much shared data (0x13880 bytes, 0xc000 max)" in said
    kept.unlink()


def test_a_refusal_is_not_kept_in_the_cache():
    for _ in range(2):
        refused("int f( {")[1].unlink()
    assert kernel_cache.cache().info().entries == 0


def test_an_option_that_nvrtc_does_not_know_is_said():
    with pytest.raises(CompilerError, match=r"(?s)NVRTC_ERROR_INVALID_OPTION.*--no-such-option") as refusal:
        nvrtc.find().compile(AXPY, 90, ["--no-such-option"])
    Path(str(refusal.value).split("kept in ")[1].splitlines()[0]).unlink()


# -- the cache ----------------------------------------------------------------------------------------------------------


def test_the_second_compilation_comes_from_disk():
    first, second = compile_cuda(AXPY + REVERSE), compile_cuda(AXPY + REVERSE)
    assert not first.from_cache and second == dataclasses.replace(first, from_cache=True)


def test_whatever_decides_the_code_is_in_the_key(monkeypatch):
    calls: list[Callable[[], nvrtc.Cubin]] = [
        lambda: compile_cuda(AXPY),
        lambda: compile_cuda(AXPY, mode="fast"),
        lambda: compile_cuda(AXPY, 80),
        lambda: compile_cuda(AXPY + " "),
    ]
    assert [call().from_cache for call in calls] == [False] * 4
    assert [call().from_cache for call in calls] == [True] * 4
    other = dataclasses.replace(nvrtc.find(), version=(13, 99))
    monkeypatch.setattr(nvrtc, "find", lambda: other)
    assert not compile_cuda(AXPY).from_cache


def test_damaged_entries_are_compiled_anew(folder, caplog):
    whole = compile_cuda(AXPY)
    (entry,) = folder.glob("*.kernel")
    data = entry.read_bytes()
    for damaged in (data[:-1], data[:40], b"", data[:600] + b"XX" + data[602:]):
        entry.write_bytes(damaged)
        with caplog.at_level(logging.WARNING, "dynagraph.cache"):
            again = compile_cuda(AXPY)
        assert not again.from_cache and again.resources == whole.resources
        assert "damaged" in caplog.text
        caplog.clear()
    assert compile_cuda(AXPY).from_cache


def test_without_a_cache_it_compiles_every_time():
    with dg.config.override(cache=False):
        assert not compile_cuda(AXPY).from_cache and not compile_cuda(AXPY).from_cache


def test_threads_compile_at_the_same_time():
    sources = [AXPY.replace("a * x", f"{k % 6}.5f * a * x").replace("axpy", f"axpy{k % 6}") for k in range(18)]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(compile_cuda, sources))
    assert [list(cubin.resources) for cubin in found] == [[f"axpy{k % 6}"] for k in range(18)]
    assert all(compile_cuda(source).from_cache for source in sources)


def test_children_that_are_forked_while_a_thread_compiles_compile_too():
    script = (
        "import os, signal, threading\n"
        "from dynagraph.backends.cuda.nvrtc import compile_cuda\n"
        f"source = {AXPY!r}\n"
        "done = threading.Event()\n"
        "def compile_on(k=0):\n"
        "    while not done.is_set():\n"
        "        compile_cuda(source + ' ' * k)\n"
        "        k += 1\n"
        "thread = threading.Thread(target=compile_on)\n"
        "thread.start()\n"
        "children = []\n"
        "for k in range(5):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        signal.alarm(60)\n"
        "        os._exit(0 if compile_cuda(source.replace('axpy', f'other{k}')).resources else 1)\n"
        "    children.append(os.waitpid(child, 0)[1])\n"
        "done.set()\n"
        "thread.join()\n"
        "assert children == [0] * 5, children\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, timeout=300)


# -- finding it ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def without(monkeypatch, tmp_path) -> Iterator[None]:
    """No NVRTC is found."""
    monkeypatch.setenv("CUDA_PATH", str(tmp_path))  # what was found before is remembered by it
    monkeypatch.setattr(nvrtc, "_candidates", lambda *toolkits: iter(["libno-such-nvrtc.so"]))
    with dg.config.override(nvrtc=None):
        yield


def test_what_was_found_is_described():
    found = nvrtc.find()
    assert found is nvrtc.find()
    assert found.version >= (12, 0) and {80, 90} <= set(found.architectures) and found.path in found.name
    with dg.config.override(nvrtc=found.path):
        assert nvrtc.find() == found


@pytest.mark.usefixtures("without")
def test_a_missing_library_is_said_with_the_cure():
    with pytest.raises(CompilerError, match=r'^found no NVRTC.* \$CUDA_PATH.*; pip install "dynagraph\[cuda12\]" or '):
        compile_cuda(AXPY)


def test_a_library_that_does_not_load_is_passed_over_and_said(monkeypatch, tmp_path):
    junk = tmp_path / "lib64" / "libnvrtc.so.13"
    junk.parent.mkdir()
    junk.write_text("junk")
    good = nvrtc.find().path
    monkeypatch.setattr(nvrtc, "_candidates", lambda *toolkits: iter([str(junk)]))
    with pytest.raises(CompilerError, match=rf"the loader's search; {junk} does not serve: .*; pip install"):
        nvrtc._find(None, str(tmp_path), None)
    monkeypatch.setattr(nvrtc, "_candidates", lambda *toolkits: iter([str(junk), good]))
    assert nvrtc._find(None, str(tmp_path), None).path == good


@pytest.mark.parametrize("path", ["libc.so.6", "/no/such/libnvrtc.so"])
def test_a_switch_that_names_no_nvrtc_is_said(path):
    said = rf"^config.nvrtc='{path}' is no NVRTC of CUDA 11.2 or newer: .*; name another libnvrtc.so, or unset it"
    with dg.config.override(nvrtc=path), pytest.raises(CompilerError, match=said):
        nvrtc.find()


@pytest.mark.parametrize("cupy, first", [(None, "cu13/lib/libnvrtc.so.13"), (13, "cu13/lib/libnvrtc.so.13"),
                                         (12, "cuda_nvrtc/lib/libnvrtc.so.12")])  # fmt: skip
def test_the_packages_come_first_and_follow_the_cuda_of_cupy(monkeypatch, tmp_path, cupy, first):
    names = ("cuda_nvrtc/lib/libnvrtc.so.12", "cuda_nvrtc/lib/libnvrtc-builtins.so.12.9", "cuda_nvrtc/lib/libnvrtc.alt.so.12",
             "cu13/lib/libnvrtc.so.13", "toolkit/lib64/libnvrtc.so", "toolkit/lib64/libnvrtc.so.12.4")  # fmt: skip
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setattr(libraries, "packages", lambda: [tmp_path])
    monkeypatch.setattr(libraries, "cupy_cuda", lambda: cupy)
    monkeypatch.setattr(libraries, "TOOLKIT", str(tmp_path / "none"))
    monkeypatch.setattr("ctypes.util.find_library", lambda name: "libnvrtc.so.11")
    found = list(nvrtc._candidates(None, str(tmp_path / "toolkit")))
    assert found[0] == str(tmp_path / first)
    assert sorted(found[:-1]) == sorted([*nvrtc.SONAMES, *(str(tmp_path / names[k]) for k in (0, 3, 4, 5))])
    assert found[-1] == "libnvrtc.so.11"


def test_the_cuda_of_cupy_is_known_without_importing_it(monkeypatch, tmp_path):
    installed = tmp_path / "cupy_cuda12x-14.0.0.dist-info" / "METADATA"
    installed.parent.mkdir()
    installed.write_text("Metadata-Version: 2.1\nName: cupy-cuda12x\nVersion: 14.0.0\n")
    standard_library = [folder for folder in sys.path if "site-packages" not in folder]
    monkeypatch.setattr(sys, "path", [str(tmp_path), *standard_library])
    assert libraries.cupy_cuda() == 12
    monkeypatch.setattr(sys, "path", standard_library)
    assert libraries.cupy_cuda() is None


def test_packages_of_nvidia_are_found_where_they_are(monkeypatch, tmp_path):
    (tmp_path / "nvidia" / "cu13").mkdir(parents=True)
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert libraries.packages() == [tmp_path / "nvidia"]
    monkeypatch.setitem(sys.modules, "nvidia", type(sys)("nvidia"))  # has no spec
    assert libraries.packages() == []
    monkeypatch.delitem(sys.modules, "nvidia")
    monkeypatch.setattr(sys, "path", [])
    assert libraries.packages() == []


# -- what doctor says ---------------------------------------------------------------------------------------------------

RUNTIME = """
class CUDARuntimeError(RuntimeError): pass
def runtimeGetVersion(): return 13020
def driverGetVersion(): return {driver}
def getDeviceCount():
    if {count} == 0: raise CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected")
    return {count}
def getDeviceProperties(k): return dict(name=b"NVIDIA H200", major=9, minor=0, totalGlobalMem=139 << 30)
"""


@pytest.fixture
def install(tmp_path, monkeypatch) -> Iterator[Callable[..., None]]:
    """Put a package `cupy` of these files on the path."""
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "cupy"}

    def write(body: str = "__version__ = '14.2.0'\nclass ndarray: pass\ndef get_array_module(): pass\nimport cupy.cuda.runtime\n",
              driver: int = 0, count: int = 0) -> None:  # fmt: skip
        (tmp_path / "cupy" / "cuda").mkdir(parents=True)
        (tmp_path / "cupy" / "__init__.py").write_text(body)
        (tmp_path / "cupy" / "cuda" / "__init__.py").touch()
        (tmp_path / "cupy" / "cuda" / "runtime.py").write_text(RUNTIME.format(driver=driver, count=count))
        monkeypatch.syspath_prepend(tmp_path)

    yield write
    for name in [name for name in sys.modules if name.partition(".")[0] == "cupy"]:
        del sys.modules[name]
    sys.modules.update(before)


def test_doctor_tells_of_nvrtc():
    check = doctor.check_nvrtc()
    found = nvrtc.find()
    assert check.status == "ok" and found.path in check.finding
    assert check.finding.startswith(f"{found.version[0]}.{found.version[1]} for sm_{found.architectures[0]} to sm_")


@pytest.mark.usefixtures("without")
@pytest.mark.parametrize("cupy, status", [(False, "note"), (True, "warning")])
def test_doctor_tells_how_to_get_nvrtc(monkeypatch, cupy, status):
    monkeypatch.setattr(doctor, "has_cupy", lambda: cupy)
    check = doctor.check_nvrtc()
    assert check.status == status and check.finding.startswith("found no NVRTC") and check.cure == libraries.CURE


def test_doctor_tells_of_a_wrong_switch():
    with dg.config.override(nvrtc="/no/such/libnvrtc.so"):
        check = doctor.check_nvrtc()
    assert check.status == "warning" and "no/such" in check.finding and "unset it (DYNAGRAPH_NVRTC)" in check.cure


def test_doctor_tells_how_to_get_cupy(monkeypatch):
    monkeypatch.setattr(doctor, "has_cupy", lambda: False)
    check = doctor.check_cupy()
    assert check.status == "note" and check.finding.startswith("not installed") and libraries.CURE in check.cure
    assert doctor.check_devices().finding == "not looked for: that takes CuPy"


def test_doctor_prints_brackets_as_they_are(capsys):
    doctor.print_checks([doctor.Check("NVRTC", "note", "found [none]", libraries.CURE)])
    printed = capsys.readouterr().out
    assert "found [none]" in printed and 'pip install "dynagraph[cuda12]" or "dynagraph[cuda13]"' in printed


def test_doctor_tells_what_a_broken_cupy_says(install):
    install("raise ImportError('''\n=======\nFailed to import CuPy.\n\nOriginal error: libcudart\n=======\n''')")
    check = doctor.check_cupy()
    assert check.status == "warning" and "pip install" in check.cure
    assert check.finding == "does not import: Failed to import CuPy. Original error: libcudart"
    assert doctor.check_devices().finding == "not looked for: CuPy does not import"


def test_doctor_tells_of_a_missing_driver(install):
    install()
    assert doctor.check_cupy() == doctor.Check("CuPy", "ok", "14.2.0, of CUDA 13.2")
    check = doctor.check_devices()
    assert check.status == "warning" and check.finding.startswith("no driver: cudaErrorNoDevice")
    assert check.cure.startswith("install the driver")


def test_doctor_tells_of_missing_devices(install):
    install(driver=13010)
    check = doctor.check_devices()
    assert check.status == "warning" and check.finding.startswith("none, under a driver of CUDA 13.1: cudaErrorNoDevice")


def test_doctor_tells_of_devices(install):
    install(driver=13010, count=2)
    check = doctor.check_devices()
    assert check.status == "ok"
    assert check.finding.startswith("NVIDIA H200 (sm_90, 139") and check.finding.endswith("; driver of CUDA 13.1")


def test_doctor_tells_of_a_driver_that_is_older_than_nvrtc(install):
    install(driver=11080, count=1)
    check = doctor.check_devices()
    assert check.status == "warning" and "driver of CUDA 11.8, which may refuse kernels of NVRTC" in check.finding
    assert check.cure.startswith("update the driver, or pip install")


@pytest.mark.usefixtures("without")
def test_doctor_tells_of_devices_without_nvrtc(install):
    install(driver=13010, count=1)
    check = doctor.check_devices()
    assert check.status == "warning" and check.cure == "no kernels can be compiled for them: see NVRTC"


def test_doctor_tells_of_an_old_cupy(install):
    install("__version__ = '13.4.0'\nclass ndarray: pass\ndef get_array_module(): pass\n")
    check = doctor.check_cupy()
    assert check.status == "warning" and "CuPy 13.4.0" in check.finding
