"""Machine code in the process: each library under a name of its own, nothing kept of what no program uses any more."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.backends import loader
from dynagraph.backends.kernel_cache import get_library
from dynagraph.backends.loader import load
from dynagraph.backends.toolchain import toolchain
from dynagraph.errors import CompilerError

linux = pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="counts descriptors and mappings by /proc")


@pytest.fixture(autouse=True)
def at_any_price():
    """Here programs are made, however little plain calls have cost."""
    with dg.config.override(compile_budget=None):
        yield


def run(script: str, **environment: str) -> None:
    """A script in a process of its own, which can be broken by what it tests."""
    environment = {**os.environ, "DYNAGRAPH_COMPILE_BUDGET": "unlimited", **environment}
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120, env=environment)


def mapped() -> set[str]:
    """The libraries of compiled functions that are mapped: inodes of files in memory."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split()[4] for line in lines if "memfd:dynagraph-kernel" in line}


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def image_of(number: int) -> bytes:
    """An image of its own content, whose `answer` gives a number of nine digits."""
    marked = _image().replace(MARK.to_bytes(4, "little"), number.to_bytes(4, "little"))
    assert marked != _image() or number == MARK
    return marked


MARK = 0x5EED1234
_images: list[bytes] = []


def _image() -> bytes:
    if not _images:
        _images.append(toolchain().compile(f"const unsigned mark = {MARK}; unsigned answer(void) {{ return mark; }}"))
    return _images[0]


def answer(library: loader.Library) -> int:
    return int(ctypes.CFUNCTYPE(ctypes.c_uint)(library.address("answer"))())


# -- descriptors ----------------------------------------------------------------------------------------------------------

DAEMON = """
import os, sys
import numpy as np, dynagraph as dg

def compiled(k):
    return dg.compile(eval(f"lambda x: x * {k}.0 + {k}"), fullgraph=True)

x = np.arange(5.0)
before = [compiled(k) for k in range(3)]
for k, f in enumerate(before):
    np.testing.assert_array_equal(f(x), x * k + k)
os.closerange(3, 256)
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
after = [compiled(k) for k in range(10, 15)]
for k, f in enumerate(after, 10):
    np.testing.assert_array_equal(f(x), x * k + k)
own = [open(os.devnull) for _ in range(4)]
for k, f in enumerate(before):
    np.testing.assert_array_equal(f(x), x * k + k)
for file in own:
    assert file.read() == ""
    file.close()
assert all(f.stats.fallbacks == 0 for f in before + after)
"""


def test_closing_all_descriptors_harms_nothing(tmp_path):
    """As daemons do; here in a parent and its child."""
    run(DAEMON, DYNAGRAPH_CACHE_DIR=str(tmp_path / "cache"))


FEW_DESCRIPTORS = """
import os, resource
import numpy as np, dynagraph as dg
from dynagraph.backends.kernel_cache import get_library
from dynagraph.backends.loader import load
from tests.backends.test_loading import answer, descriptors, image_of

resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
f = dg.compile(lambda x: x * 2 + 1)
f(np.ones(3))
before = descriptors()
held = [load(image_of(k)) for k in range(10**8, 10**8 + 400)]
assert [answer(library) for library in held] == list(range(10**8, 10**8 + 400))
assert descriptors() == before
files = [open(os.devnull) for _ in range(150)]
"""


@linux
def test_few_descriptors_do_for_many_programs():
    run(FEW_DESCRIPTORS, PYTHONPATH=str(Path(__file__).parents[2]))


def test_no_two_loads_have_the_same_path():
    paths = [loader.unique_path(fd) for fd in (3, 4) * 500]
    assert len(set(paths)) == len(paths)
    assert all(os.path.normpath(path) in ("/proc/self/fd/3", "/proc/self/fd/4") for path in paths)


# -- where there is no memory file ----------------------------------------------------------------------------------------


@pytest.fixture
def no_memory_files(monkeypatch):
    monkeypatch.delattr(os, "memfd_create", raising=False)


def test_without_memory_files_code_is_loaded_from_a_file_that_goes_at_once(no_memory_files, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    libraries = [load(image_of(10**8 + k)) for k in range(20)]
    assert [answer(library) for library in libraries] == [10**8 + k for k in range(20)]
    assert list(tmp_path.iterdir()) == []


def test_where_a_folder_does_not_serve_another_does(no_memory_files, tmp_path, monkeypatch):
    refused: list[str] = []

    def on_a_disk_without_execution(path):
        if Path(path).parent == tmp_path / "noexec":
            refused.append(path)
            raise OSError("failed to map segment from shared object: Operation not permitted")
        return real(path)

    real = loader.Library
    (tmp_path / "noexec").mkdir()
    (tmp_path / "cache").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "noexec"))
    monkeypatch.setattr(loader, "Library", on_a_disk_without_execution)
    assert answer(load(image_of(123456789), tmp_path / "cache")) == 123456789
    assert len(refused) == 1 and not any(folder.exists() and list(folder.iterdir()) for folder in tmp_path.iterdir())


def test_where_memory_files_are_refused_a_file_does(monkeypatch):
    def refused(*args):
        raise PermissionError("memory files may not be executed (vm.memfd_noexec)")

    monkeypatch.setattr(os, "memfd_create", refused, raising=False)
    assert answer(load(image_of(123456789))) == 123456789


def test_what_does_not_load_says_why():
    with pytest.raises(CompilerError, match=r"compiled code does not load: .*(invalid ELF header|file too short)"):
        load(b"junk")
    with pytest.raises(LookupError, match="Library: it has no question"):
        load(_image()).address("question")


# -- sharing and unloading ------------------------------------------------------------------------------------------------


def scaled(k: float) -> Callable:
    return lambda x: x * 3.0 + k


@linux
def test_programs_of_the_same_code_share_one_library_until_the_last_goes():
    gc.collect()
    before, x = mapped(), np.arange(7.0)
    functions = [dg.compile(scaled(0.625), fullgraph=True) for _ in range(4)]
    for f in functions:
        np.testing.assert_array_equal(f(x), x * 3.0 + 0.625)
    assert len(mapped() - before) == 1
    del f, functions[1:]
    gc.collect()
    np.testing.assert_array_equal(functions[0](x), x * 3.0 + 0.625)
    assert len(mapped() - before) == 1
    functions.clear()
    gc.collect()
    assert mapped() == before


@linux
def test_code_stays_while_a_call_of_it_runs():
    """Another thread forgets the program meanwhile."""
    source = r"""
        volatile int may_end;
        int *flag(void) { return (int *)&may_end; }
        int wait(void) { while (!may_end) ; return 99; }
    """
    kernels = get_library(source)
    entry, flag = kernels.address("wait"), ctypes.c_int.from_address(ctypes.CFUNCTYPE(ctypes.c_void_p)(kernels.address("flag"))())
    from dynagraph._core import _dispatch

    plan = _dispatch.NativePlan(entry, kernels.library, 0, (), 0, ("const", 1), True, 0)
    compiled = _dispatch.CompiledFunction(lambda: None, lambda *args: None)
    compiled.add_entry(_dispatch.Entry((), 0, plan))
    results: list[object] = []

    def call() -> None:
        try:
            compiled()
        except Exception as error:  # 99 is no error that the dispatcher knows
            results.append(error)

    before = mapped()
    thread = threading.Thread(target=call)
    thread.start()
    while compiled.counters()["hits"] == 0:
        pass
    del plan, kernels
    compiled.clear()
    gc.collect()
    assert mapped() == before
    flag.value = 1
    thread.join()
    gc.collect()
    assert len(before - mapped()) == 1 and len(results) == 1


def test_finalizers_may_call_what_dies_with_them():
    """In one garbage, the code goes after all that may call it."""
    seen: list[list[float]] = []

    class Caller:
        def __init__(self) -> None:
            self.compiled = dg.compile(scaled(0.875))
            self.compiled(np.ones(2))
            self.compiled.caller = self  # a cycle

        def __del__(self) -> None:
            seen.append(self.compiled(np.ones(2)).tolist())

    for _ in range(3):
        Caller()
        gc.collect()
    assert seen == [[3.875, 3.875]] * 3


# -- thousands ------------------------------------------------------------------------------------------------------------


def assert_flat(step: Callable[[int], None], n: int, megabytes: float) -> None:
    """After the first tenth, descriptors, mappings and memory stay what they are."""

    def state() -> tuple[int, int, float]:
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return descriptors(), len(mapped()), pages * resource.getpagesize() / 2**20

    for k in range(n // 10):
        step(k)
    fds, libraries, memory = state()
    for k in range(n // 10, n):
        step(k)
    now = state()
    assert now[:2] == (fds, libraries)
    assert now[2] < memory + megabytes


def drop_a_closure(k: int) -> None:
    f = dg.compile(scaled(k % 4 + 0.125))
    assert f(np.ones(2)).tolist() == [3.0 + k % 4 + 0.125] * 2
    assert f.stats.compiles == 1


def drop_a_broken_closure(k: int) -> None:
    def f(x, k=k):
        y = x * 2
        print(end="")
        return y + k % 2

    assert dg.compile(f)(np.ones(2)).tolist() == [2.0 + k % 2] * 2


def drop_new_code(k: int) -> None:
    namespace: dict = {}
    exec(f"def f(x): return x * 2.0 + {k % 3}.5", namespace)
    assert dg.compile(namespace["f"])(np.ones(2)).tolist() == [2.5 + k % 3] * 2


def drop_a_gradient(k: int) -> None:
    assert dg.grad(lambda x: (x * x).sum())(np.ones(2)).tolist() == [2.0, 2.0]


def drop_a_library(k: int) -> None:
    assert answer(load(image_of(10**8 + k))) == 10**8 + k


DROPS = [drop_a_closure, drop_a_broken_closure, drop_new_code, drop_a_gradient, drop_a_library]


@linux
@pytest.mark.parametrize("drop", DROPS)
def test_what_is_dropped_leaves_nothing(drop):
    assert_flat(drop, 120, megabytes=8)


@linux
@pytest.mark.soak
@pytest.mark.parametrize("drop", DROPS)
def test_ten_thousand_that_are_dropped_leave_nothing(drop):
    assert_flat(drop, 10_000, megabytes=20)


@linux
def test_mappings_are_named_for_people():
    """As tools that look at a process show them."""
    held = load(image_of(111111111))
    assert re.search(r"memfd:dynagraph-kernel", Path("/proc/self/maps").read_text())
    assert answer(held) == 111111111
