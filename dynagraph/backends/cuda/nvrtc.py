"""CUDA C to machine code by NVRTC, NVIDIA's runtime compiler: finding it, its options, running it.

It needs neither a GPU nor a driver.  What it made is kept in the disk cache of the CPU kernels.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import logging
import os
import re
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from dynagraph import config
from dynagraph.backends import kernel_cache
from dynagraph.backends.cuda.libraries import CURE, TOOLKIT, candidates
from dynagraph.backends.toolchain import keep_source
from dynagraph.errors import CompilerError

FORMAT = "cuda-1"  # of entries and keys: a change makes all older entries misses
# ptxas is asked for its own order of instructions rather than for few registers: then it neither spills nor needs more of them.
COMMON = ("--std=c++17", "-default-device", "--ptxas-options=--register-usage-level=3", "--diag-suppress=177")
# By mode.  "strict": every operation rounds once, as IEEE 754 says, and denormals are kept: NumPy's values.  "fast": x*y + z may
# round once, division and square root may be 2 ULP off, and float32 denormals are flushed to zero.
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "strict": (*COMMON, "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"),
    "fast": (*COMMON, "--fmad=true", "--ftz=true", "--prec-div=false", "--prec-sqrt=false"),
}
SONAMES = ("libnvrtc.so.13", "libnvrtc.so.12")
LEAST_OF_12 = 50  # the oldest architecture that the NVRTC of CUDA 12 compiles for; that of CUDA 13 begins later
_VERBOSE = "--ptxas-options=-v"
_ENTRY = "Compiling entry function"  # what ptxas says of each kernel begins with it
_log = logging.getLogger("dynagraph.kernels")

_Int, _Size, _Program = ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p
_SIGNATURES: Mapping[str, tuple[type, ...]] = {  # all give a status
    "nvrtcVersion": (ctypes.POINTER(_Int), ctypes.POINTER(_Int)),
    "nvrtcGetNumSupportedArchs": (ctypes.POINTER(_Int),),
    "nvrtcGetSupportedArchs": (ctypes.POINTER(_Int),),
    "nvrtcCreateProgram": (
        ctypes.POINTER(_Program), ctypes.c_char_p, ctypes.c_char_p, _Int, ctypes.POINTER(ctypes.c_char_p),
        ctypes.POINTER(ctypes.c_char_p),
    ),
    "nvrtcDestroyProgram": (ctypes.POINTER(_Program),),
    "nvrtcCompileProgram": (_Program, _Int, ctypes.POINTER(ctypes.c_char_p)),
    "nvrtcGetProgramLogSize": (_Program, ctypes.POINTER(_Size)),
    "nvrtcGetProgramLog": (_Program, ctypes.c_char_p),
    "nvrtcGetCUBINSize": (_Program, ctypes.POINTER(_Size)),
    "nvrtcGetCUBIN": (_Program, ctypes.c_char_p),
    "nvrtcGetPTXSize": (_Program, ctypes.POINTER(_Size)),
    "nvrtcGetPTX": (_Program, ctypes.c_char_p),
}  # fmt: skip

# NVRTC compiles one source at a time by itself.  A child that is forked in the meantime would wait for that for ever, so forks
# wait for it; the lock is re-entrant because signal handlers may fork.
_compiling = threading.RLock()
os.register_at_fork(before=_compiling.acquire, after_in_parent=_compiling.release, after_in_child=_compiling.release)


@dataclass(frozen=True)
class Resources:
    """What one thread of a kernel (`shared`: one block) takes: a number of registers, and bytes.

    Spills are those of the kernel and of the functions that it calls, which also count in `stack`.  `shared` is what the source
    declares with a size; `constant` includes the parameters.
    """

    registers: int
    spill_stores: int
    spill_loads: int
    stack: int
    shared: int
    constant: int


@dataclass(frozen=True)
class Cubin:
    """The kernels of one source, compiled.  `resources` is by the names of the kernels.

    kind: "cubin", machine code of one architecture, or "ptx", which the driver compiles when it is loaded; `resources` is empty
    then, because nobody knows them yet.
    """

    image: bytes
    resources: Mapping[str, Resources]
    from_cache: bool
    kind: str = "cubin"


@dataclass(frozen=True)
class Nvrtc:
    """A loaded NVRTC.  `architectures` are those it compiles for: 90 is sm_90, compute capability 9.0."""

    path: str
    version: tuple[int, int]
    architectures: tuple[int, ...]
    _library: ctypes.CDLL = field(repr=False, compare=False)

    @staticmethod
    def load(path: str) -> Nvrtc:
        """Raises OSError where the library does not load, AttributeError where it is none, or one older than CUDA 11.2."""
        library = ctypes.CDLL(path)
        for name, arguments in _SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, _Int
        library.nvrtcGetErrorString.argtypes, library.nvrtcGetErrorString.restype = (_Int,), ctypes.c_char_p
        major, minor, count = _Int(), _Int(), _Int()
        _check(library, path, "nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        _check(library, path, "nvrtcGetNumSupportedArchs", ctypes.byref(count))
        architectures = (_Int * count.value)()
        _check(library, path, "nvrtcGetSupportedArchs", architectures)
        return Nvrtc(path, (major.value, minor.value), tuple(sorted(architectures)), library)

    @property
    def name(self) -> str:
        return f"NVRTC {self.version[0]}.{self.version[1]} ({self.path})"

    def compile(self, source: str, architecture: int, options: Sequence[str]) -> Cubin:
        """Compile without any cache; the kernels are ``extern "C"``.

        For an architecture that this NVRTC does not know, the result is PTX for the newest one before it.  Raises CompilerError
        with NVRTC's words and where the source was kept, or where the architecture is older than all that it knows.

        >>> source = 'extern "C" __global__ void zero(float *x) { x[threadIdx.x] = 0; }'
        >>> find().compile(source, 90, OPTIONS["strict"]).resources["zero"].spill_stores
        0
        """
        target = self._target(architecture)
        kind = "cubin" if target == architecture else "ptx"
        options = [*options, f"--gpu-architecture={'sm' if kind == 'cubin' else 'compute'}_{target}"]
        start = time.perf_counter()
        status, log, image = self._run(source, [*options, _VERBOSE], kind)
        if status != 0:
            log = self._run(source, options, kind)[1] or log  # with -v, ptxas keeps some of its errors to itself
            raise CompilerError(self._refusal(status, log, source, options[-1]))
        if kind == "cubin" and _ENTRY not in log:
            # It came from the driver's own cache, with which ptxas says nothing; NVRTCs that use that cache know the option.
            status, log, image = self._run(source, [*options, _VERBOSE, "--no-cache"], kind)
            if status != 0:
                raise CompilerError(self._refusal(status, log, source, options[-1]))
        _log.info("compiled %d bytes of CUDA C in %.0f ms", len(source), 1e3 * (time.perf_counter() - start))
        return Cubin(image, self._resources(log, image) if kind == "cubin" else {}, False, kind)

    def _target(self, architecture: int) -> int:
        known = [a for a in self.architectures if a <= architecture]
        if known:
            return known[-1]
        helps = self.architectures[0] > architecture >= LEAST_OF_12 and self.version[0] > 12
        cure = 'pip install "dynagraph[cuda12]", which knows it' if helps else "use NumPy arrays, or a newer GPU"
        raise CompilerError(
            f"{self.name} compiles for sm_{self.architectures[0]} and newer, not for sm_{architecture}; {cure}"
        )

    def _run(self, source: str, options: Sequence[str], kind: str) -> tuple[int, str, bytes]:
        """Status, log and image."""
        program = _Program()
        words = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        with _compiling:
            self._call("nvrtcCreateProgram", ctypes.byref(program), source.encode(), b"kernels.cu", 0, None, None)
            try:
                status = self._library.nvrtcCompileProgram(program, len(options), words)
                log = self._read(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
                return status, log, self._read(program, kind.upper()) if status == 0 else b""
            finally:
                self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _read(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = _Size()
        self._call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", program, buffer)
        return buffer.raw

    def _call(self, function: str, *arguments: object) -> None:
        _check(self._library, self.path, function, *arguments)

    def _refusal(self, status: int, log: str, source: str, target: str) -> str:
        kept = keep_source(source, ".cu")
        why = f"{target}: {_status(self._library, status)}"
        return f"{self.name} refused generated code ({why}); the source is kept in {kept}\n{log.strip()[:2000]}"

    def _resources(self, log: str, image: bytes) -> dict[str, Resources]:
        """By kernel: what ptxas said of it, and how large its constant memory is, which the log leaves out for sm_90."""
        sections = _sections(image)
        pieces = re.split(_ENTRY + r" '([^']+)'", log)
        said = dict(zip(pieces[1::2], pieces[2::2]))  # of the kernel first, then of functions that it calls
        found = {}
        for name in (s.removeprefix(".text.") for s in sections if s.startswith(".text.")):
            frames = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", said.get(name, ""))
            used = re.search(r"Used (\d+) registers.*", said.get(name, ""))
            if not frames or used is None:
                raise CompilerError(f"{self.name} does not say what kernel {name!r} takes; its log:\n{log.strip()[:2000]}")
            stack = re.search(r"(\d+) bytes cumulative stack size", used[0])
            shared = re.search(r"(\d+) bytes smem", used[0])  # left out where there is none
            found[name] = Resources(
                registers=int(used[1]),
                spill_stores=sum(int(stores) for _, stores, _ in frames),
                spill_loads=sum(int(loads) for _, _, loads in frames),
                stack=int(stack[1] if stack else frames[0][0]),
                shared=int(shared[1]) if shared else 0,
                constant=sum(size for s, size in sections.items() if re.fullmatch(rf"\.nv\.constant\d+\.{re.escape(name)}", s)),
            )
        return found


def _check(library: ctypes.CDLL, path: str, function: str, *arguments: object) -> None:
    status = getattr(library, function)(*arguments)
    if status != 0:
        raise CompilerError(f"{function} of {path} failed: {_status(library, status)}")


def _status(library: ctypes.CDLL, status: int) -> str:
    text: bytes = library.nvrtcGetErrorString(status)
    return text.decode()


def _sections(image: bytes) -> dict[str, int]:
    """The names and sizes of the sections of an ELF file of 64 bits, little-endian, as cubins are."""
    (table,) = struct.unpack_from("<Q", image, 0x28)
    width, count, of_names = struct.unpack_from("<HHH", image, 0x3A)
    # name, type, flags, address, offset, size
    headers = [struct.unpack_from("<IIQQQQ", image, table + k * width) for k in range(count)]
    names = headers[of_names][4]
    return {image[names + h[0] : image.index(b"\0", names + h[0])].decode(): h[5] for h in headers}


# -- finding it ---------------------------------------------------------------------------------------------------------


def find() -> Nvrtc:
    """The NVRTC that the switch `nvrtc` names, else that of NVIDIA's pip packages, $CUDA_PATH, $CUDA_HOME, /usr/local/cuda, or
    what the loader finds.

    Of several, one of the CUDA version that the installed CuPy is built for comes first.  Raises CompilerError where there is none.
    """
    return _find(config.nvrtc, os.environ.get("CUDA_PATH"), os.environ.get("CUDA_HOME"))


@functools.lru_cache(maxsize=8)
def _find(chosen: str | None, *toolkits: str | None) -> Nvrtc:
    if chosen is not None:
        try:
            return Nvrtc.load(chosen)
        except (OSError, AttributeError) as error:
            raise CompilerError(
                f"config.nvrtc={chosen!r} is no NVRTC of CUDA 11.2 or newer: {error}; "
                "name another libnvrtc.so, or unset it (DYNAGRAPH_NVRTC)"
            ) from error
    broken = ""
    for path in _candidates(*toolkits):
        try:
            return Nvrtc.load(path)
        except (OSError, AttributeError) as error:
            if os.path.exists(path):
                broken += f"; {path} does not serve: {error}"
    raise CompilerError(
        "found no NVRTC, the compiler of CUDA C: looked in NVIDIA's pip packages, $CUDA_PATH, $CUDA_HOME, "
        f"{TOOLKIT} and the loader's search{broken}; {CURE}"
    )


def _candidates(*toolkits: str | None) -> Iterator[str]:
    return candidates("nvrtc", SONAMES, toolkits)


# -- with the disk cache ------------------------------------------------------------------------------------------------


def compile_cuda(source: str, architecture: int = 90, mode: str = "strict") -> Cubin:
    """Compile CUDA C, or take what was kept of it on disk.  Threads may call it at the same time.

    source: kernels that are ``extern "C"``; architecture: of the device, 90 for compute capability 9.0; mode: a row of `OPTIONS`.
    Where NVRTC does not know the architecture, the result is PTX for the newest one before it (`Cubin.kind`).

    Raises ValueError for an unknown mode, and CompilerError where there is no NVRTC, where it refuses the source, or where the
    architecture is older than all that it knows.

    >>> cubin = compile_cuda('extern "C" __global__ void zero(float *x) { x[threadIdx.x] = 0; }', architecture=80)
    >>> list(cubin.resources)
    ['zero']
    """
    if mode not in OPTIONS:
        raise ValueError(f"compile_cuda: mode={mode!r}: expected {' or '.join(map(repr, OPTIONS))}")
    nvrtc, options, kept = find(), OPTIONS[mode], kernel_cache.cache()
    parts = (FORMAT, *map(str, nvrtc.version), str(architecture), *options, source)
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    entry = kept.load(key)
    if entry is not None:
        return _unpack(entry)
    cubin = nvrtc.compile(source, architecture, options)
    kept.store(key, _pack(cubin))
    return cubin


def _pack(cubin: Cubin) -> bytes:
    """An entry: a line of JSON, then the image."""
    row = {"kind": cubin.kind, "resources": {name: asdict(r) for name, r in cubin.resources.items()}}
    return json.dumps(row).encode() + b"\n" + cubin.image


def _unpack(entry: bytes) -> Cubin:
    line, _, image = entry.partition(b"\n")
    row = json.loads(line)
    return Cubin(image, {name: Resources(**r) for name, r in row["resources"].items()}, True, row["kind"])


__all__ = ["OPTIONS", "Cubin", "Nvrtc", "Resources", "compile_cuda", "find"]
