"""Run CUDA C kernels on the CPU, under several orders of threads and blocks.

`compile` gives the kernels of a source, `launch` runs one; `launch_kernel_address` is for C code that calls cuLaunchKernel. What a
GPU leaves undefined raises EmulatorError: barriers that not all threads reach, shuffles from lanes that take no part, accesses
outside memory (of arrays that `guarded` made), indices outside arrays of known size, misaligned accesses, shifts by too many bits,
loops that do not end. Shared memory starts as NaN.

What depends on the order of threads or blocks shows as results that differ between ORDERS:

    for name in ORDERS:
        with order(name):
            launch(function, grid, block, shared_bytes, arguments)

Threads take turns only at barriers and in warp operations, so that a missing atomic operation changes no result in any order:
`compile(source, races=True)` finds that and every missing barrier, in any order, as accesses to the same place that nothing orders.
See races.h for what orders; a compare-and-swap loop reads its first value through a volatile pointer.

Stricter than a GPU: all threads of a block must reach a barrier, at the same line, even where others have ended; a thread cannot
wait for what another one writes except at barriers and in warp operations; `__device__` variables need an initial value. Not seen:
coalescing, registers, the last bits of CUDA's mathematical functions, casts of floats that do not fit (a GPU saturates, a CPU does
not), static shared memory above 48 KiB.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import mmap
import os
import re
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dynagraph._core import _frame_hook

Function = TypeVar("Function", bound=Callable[..., Any])

ORDERS = ("forward", "reverse", "random", "warps forward", "warps reverse")
BLOCK_ORDERS = ORDERS[:3]

_HERE = Path(__file__).parent
_SHIM = _HERE / "emulator.h"
_MACHINE = _HERE / "emulator.cpp"
# what the sanitizers find they report to emulator.cpp, which stands in for their library: hence no standard libraries
_KERNEL_FLAGS = ["-std=gnu++17", "-O1", "-g1", "-ffp-contract=off", "-w", "-fPIC", "-shared", "-fvisibility=hidden", "-nostdlib"]
_KERNEL_FLAGS += ["-fsanitize=alignment,bounds,integer-divide-by-zero,shift-exponent", "-fno-sanitize-recover=all"]
_KERNEL_FLAGS += ["-fstack-clash-protection"]  # large arrays on the stack do not step over its guard
_KERNEL_FLAGS += ["-fno-threadsafe-statics"]  # nobody initialises shared variables: g++ would guard those of complex numbers
_RACES_FLAGS = ["-fsanitize=thread", "--param=tsan-instrument-func-entry-exit=0", "--param=tsan-distinguish-volatile=1"]
_KERNEL_LIBRARIES = ["-lm", "-lc", "-lgcc"]
# fortified, longjmp refuses fibers
_MACHINE_FLAGS = ["-std=gnu++17", "-O2", "-Wall", "-Wextra", "-Werror", "-U_FORTIFY_SOURCE", "-fPIC", "-shared"]
_FORGOTTEN_AFTER_DAYS = 7

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_LAUNCH_BOUNDS = r"(?:__launch_bounds__\s*\(\s*([^(),]+)[^()]*\)\s*)?"
_KERNEL = re.compile(rf'\bextern\s+"C"\s+__global__\s+{_LAUNCH_BOUNDS}void\s+{_LAUNCH_BOUNDS}(\w+)\s*\(')
# g++ guards static arrays of classes, which it takes to have something to construct
_SHARED_CLASSES = re.compile(r"\b__shared__\s+(dg_c\w+)\s+(\w+)((?:\[[^\]]*\])+)\s*;")
_DYNAMIC_SHARED = re.compile(r"\bextern\s+__shared__\s+([^;\[\]]*?)\s*\b(\w+)\s*\[\s*\]\s*;")


class EmulatorError(Exception):
    """A source that does not compile, a launch that CUDA refuses (`code` 1 or 400), or one that went wrong on the way (719)."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class Module:
    """The kernels of one source; see `compile`."""

    def __init__(self, path: Path, kernels: Sequence[str]) -> None:
        self.path = path
        self.kernels = tuple(kernels)
        self._library = ctypes.CDLL(str(path))

    def function(self, name: str) -> int:
        """The handle of the kernel `name`, as a CUfunction is one; KeyError where the source has no such kernel."""
        if name not in self.kernels:
            raise KeyError(f"no kernel {name!r} in this module: it has {', '.join(self.kernels) or 'none'}")
        return ctypes.addressof(_Kernel.in_dll(self._library, f"emu_kernel_{name}"))


def compile(source: str, races: bool = False) -> Module:
    """Compile CUDA C; its kernels are the functions that are declared `extern "C" __global__ void`.

    `races`: launches raise EmulatorError for the first race between threads; they take about twice as long.
    As NVRTC, it knows no header. Dynamic shared memory (`extern __shared__ T name[];`) is declared inside of functions. The result
    is kept on disk. EmulatorError gives the compiler's words and the lines that they name; RuntimeError where there is no g++.

    >>> module = compile('extern "C" __global__ void set(int *x) { x[threadIdx.x] = 1; }')
    >>> x = np.zeros(4, np.int32)
    >>> launch(module.function("set"), (1, 1, 1), (4, 1, 1), 0, [ctypes.c_void_p(x.ctypes.data)])
    >>> x
    array([1, 1, 1, 1], dtype=int32)
    """
    _machine()
    return _compile(source, races)


@functools.cache
def _compile(source: str, races: bool) -> Module:
    kernels = {match[3]: match[1] or match[2] or "1024" for match in _KERNEL.finditer(_COMMENT.sub(" ", source))}
    exports = "".join(f"EMU_EXPORT({name}, {threads.strip()})\n" for name, threads in kernels.items())
    body = _DYNAMIC_SHARED.sub(r"\1 *const \2 = (\1 *)emu_position.dynamic_shared;", source)
    body = _SHARED_CLASSES.sub(r"alignas(16) __shared__ char \2_bytes[sizeof(\1\3)]; \1 (&\2)\3 = *(\1 (*)\3)\2_bytes;", body)
    # In a namespace without a name nothing is seen from outside, inline functions and templates included, so that their shared
    # variables can lie in one section.
    text = f"namespace {{\n#line 1\n{body}\n}}\n{exports}"
    try:
        flags = [*_KERNEL_FLAGS, *(_RACES_FLAGS if races else []), "-include", str(_SHIM)]
        path = _build("kernel.cu", text, flags, _KERNEL_LIBRARIES)
    except subprocess.CalledProcessError as error:
        raise EmulatorError(f"g++ refuses a kernel:\n{error.stderr}\n{_lines_named(error.stderr, source)}") from None
    return Module(path, list(kernels))


def _lines_named(words: str, source: str, around: int = 2) -> str:
    """The lines of the source that messages of g++ name, with some around them, numbered."""
    named = {int(number) for number in re.findall(r"\bkernel\.cu:(\d+)", words)}
    lines = source.split("\n")
    shown = [n for n in range(1, len(lines) + 1) if any(abs(n - number) <= around for number in named)]
    return "\n".join(f"{n:5} {'>' if n in named else '|'} {lines[n - 1]}" for n in shown)


def device_side(function: Function) -> Function:
    """Marks what a GPU does itself: the frame hook is not asked about its frames, nor about those in their extent."""
    _frame_hook.skip(function.__code__, deep=True)
    return function


@device_side
def launch(
    function: int,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared_bytes: int,
    arguments: Sequence[ctypes._SimpleCData],
) -> None:
    """Run a kernel to its end; the arguments are ctypes values of the sizes of its parameters, arrays as c_void_p.

    EmulatorError, whose `code` is what cuLaunchKernel would give, says what is wrong and in which block and thread.
    """
    machine = _machine()
    _check_arguments(_Kernel.from_address(function), arguments)
    pointers = (ctypes.c_void_p * max(len(arguments), 1))(*map(ctypes.addressof, arguments))
    code = machine.emu_launch_kernel(function, *grid, *block, shared_bytes, None, pointers, None)
    if code:
        raise EmulatorError(last_error(), code)


def _check_arguments(kernel: _Kernel, arguments: Sequence[ctypes._SimpleCData]) -> None:
    given = [ctypes.sizeof(argument) for argument in arguments]
    wanted = argument_sizes(ctypes.addressof(kernel))
    if given != wanted:
        name = kernel.name.decode()
        rule = "pass ctypes values of these sizes"
        raise EmulatorError(f"{name}: arguments of {given} bytes, but its parameters have {wanted}: {rule}", 1)


def argument_sizes(function: int) -> list[int]:
    """The bytes of each parameter of a kernel."""
    kernel = _Kernel.from_address(function)
    return list(kernel.argument_sizes[: kernel.argument_count])


def launch_kernel_address() -> int:
    """The address of a C function with the signature of cuLaunchKernel; functions are those of `Module.function`.

    It gives 0, or CUDA's codes: 1 for values that CUDA refuses, 400 for a null function, 719 for what goes wrong on the way; then
    `last_error` says what happened. It needs no GIL.
    """
    address = ctypes.cast(_machine().emu_launch_kernel, ctypes.c_void_p).value
    assert address is not None
    return address


def last_error() -> str:
    """What went wrong in the last launch of this thread, through whichever door; "" where nothing did."""
    machine = _machine()
    text = machine.emu_error_text().decode(errors="replace")
    offset = ctypes.c_ulong()
    file = machine.emu_error_place(ctypes.byref(offset))
    line = _line_at(file.decode(), offset.value) if file else ""
    return f"{text} ({line})" if line else text


def _line_at(file: str, offset: int) -> str:
    """ "kernel.cu:12" of a place in compiled code, "" where that is not known."""
    run = subprocess.run(["addr2line", "-e", file, hex(offset)], capture_output=True, text=True, check=False)
    found = re.search(r"kernel\.cu:\d+", run.stdout)
    return found[0] if found else ""


def set_max_shared(function: int, nbytes: int) -> None:
    """Allow a kernel more than 48 KiB of dynamic shared memory, at most 227 KiB, as cuFuncSetAttribute does."""
    code = _machine().emu_set_max_shared(function, nbytes)
    if code:
        raise EmulatorError(last_error(), code)


@contextlib.contextmanager
def order(name: str, blocks: str | None = None, seed: int = 0) -> Iterator[None]:
    """Launches of this process run the threads of a block in this order, one of ORDERS, and the blocks in one of BLOCK_ORDERS.

    Threads take turns from barrier to barrier, in the order of their indices, the reverse, or at random; in "warps ..." a warp runs
    on as long as it can, before the next one starts. Blocks run one after the other: unless given, in the direction of the threads.
    """
    global _order
    if blocks is None:
        blocks = name.removeprefix("warps ")
    if name not in ORDERS or blocks not in BLOCK_ORDERS:
        raise ValueError(f"order({name!r}, {blocks!r}): threads take one of {ORDERS}, blocks one of {BLOCK_ORDERS}")
    before, _order = _order, (ORDERS.index(name), BLOCK_ORDERS.index(blocks), seed)
    _machine().emu_set_order(*_order)
    try:
        yield
    finally:
        _order = before
        _machine().emu_set_order(*_order)


_order = (0, 0, 0)


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """How long launches of this process may take, in processor time: 60 s outside."""
    _machine().emu_set_time_limit(seconds)
    try:
        yield
    finally:
        _machine().emu_set_time_limit(60.0)


def guarded(nbytes: int, alignment: int = 1) -> np.ndarray:
    """`nbytes` zero bytes, uint8[nbytes], behind which (and before whose first page) no access is possible.

    The first byte is at a multiple of `alignment`, so that up to alignment - 1 bytes behind the last are accessible; a GPU's arrays
    start at multiples of 256.

    >>> x = guarded(12).view(np.float32)  # x[3] cannot be read by a kernel
    """
    page = mmap.PAGESIZE
    room = -(-nbytes // alignment) * alignment
    pages = -(-room // page) * page
    memory = mmap.mmap(-1, pages + 2 * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for guard in (address, address + page + pages):
        if _libc().mprotect(guard, page, 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    return np.frombuffer(memory, np.uint8, nbytes, page + pages - room)


def guarded_copy(array: np.ndarray, alignment: int = 1) -> np.ndarray:
    """The array's elements, in C order, in `guarded` memory."""
    copy = guarded(array.nbytes, alignment).view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


# --- building ---------------------------------------------------------------------------------------------------------------------


class _Kernel(ctypes.Structure):
    """emu_kernel of emulator.h."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("run", ctypes.c_void_p),
        ("shared_begin", ctypes.c_void_p),
        ("shared_end", ctypes.c_void_p),
        ("max_threads", ctypes.c_uint),
        ("max_dynamic_shared", ctypes.c_uint),
        ("argument_count", ctypes.c_uint),
        ("argument_sizes", ctypes.POINTER(ctypes.c_uint)),
    ]


@functools.cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return libc


def stand_in_library(file: Path) -> Path:
    """The shared library of a C++ file of its own, whose arithmetic is as strict as the kernels'."""
    return _build(file.name, file.read_text(), [*_MACHINE_FLAGS, "-ffp-contract=off"], [])


@functools.cache
def _machine() -> ctypes.CDLL:
    # for its own tests: fibers as on machines other than x86-64
    ucontext = ["-DEMU_UCONTEXT"] if os.environ.get("EMULATOR_FIBERS") == "ucontext" else []
    try:
        path = _build(_MACHINE.name, _MACHINE.read_text(), [*_MACHINE_FLAGS, *ucontext, f"-I{_HERE}"], [])
    except subprocess.CalledProcessError as error:
        raise EmulatorError(f"g++ refuses {_MACHINE.name}:\n{error.stderr}") from None
    machine = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)  # kernels find it there
    launch_sizes = [ctypes.c_uint] * 7
    machine.emu_launch_kernel.argtypes = [ctypes.c_void_p, *launch_sizes, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    machine.emu_set_max_shared.argtypes = [ctypes.c_void_p, ctypes.c_uint]
    machine.emu_set_order.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_ulonglong]
    machine.emu_set_time_limit.argtypes = [ctypes.c_double]
    machine.emu_error_text.restype = ctypes.c_char_p
    machine.emu_error_place.argtypes = [ctypes.POINTER(ctypes.c_ulong)]
    machine.emu_error_place.restype = ctypes.c_char_p
    return machine


def _build(name: str, text: str, flags: list[str], libraries: list[str]) -> Path:
    """The shared library of a C++ file of this name and text, which may include the headers here: from the folder, or made now."""
    headers = [path.read_text() for path in sorted(_HERE.glob("*.h"))]
    key = "\0".join([text, *headers, *flags, *libraries, *_compiler_identity()])
    path = _folder() / f"{hashlib.sha256(key.encode()).hexdigest()}.so"
    try:
        os.utime(path)
        return path
    except FileNotFoundError:
        pass
    with tempfile.TemporaryDirectory(dir=path.parent) as own:
        made = Path(own) / "library.so"
        Path(own, name).write_text(text)
        command = [_compiler(), *flags, "-x", "c++", name, "-x", "none", "-o", made.name, *libraries]
        subprocess.run(command, cwd=own, check=True, capture_output=True, text=True)
        made.rename(path)  # other processes see all of it or nothing
    return path


def _compiler() -> str:
    path = shutil.which("g++")
    if path is None:
        raise RuntimeError("the emulator of CUDA kernels compiles them with g++, which is not on PATH: install it (Debian: g++)")
    return path


@functools.cache
def _compiler_identity() -> tuple[str, ...]:
    path = os.path.realpath(_compiler())
    return path, str(os.stat(path).st_mtime_ns)


@functools.cache
def _folder() -> Path:
    """Where libraries are kept between runs of the tests: the user's own folder, or one of this process where that is not safe."""
    folder = Path(tempfile.gettempdir()) / f"dynagraph-emulator-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        return Path(tempfile.mkdtemp(prefix="dynagraph-emulator-"))
    oldest = time.time() - _FORGOTTEN_AFTER_DAYS * 24 * 3600
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # another process may forget it too
            if path.stat().st_mtime < oldest and path.is_file():
                path.unlink()
    return folder
