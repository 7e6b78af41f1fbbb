"""The kernel cache and the C compiler when things go wrong: the call must still give the right answer, and say what happened."""

from __future__ import annotations

import ctypes
import errno
import json
import logging
import os
import platform
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.backends import kernel_cache, toolchain
from dynagraph.backends.compiler_runs import CompilerRun
from dynagraph.backends.kernel_cache import KernelCache, get_library, seal, unseal
from dynagraph.errors import CompilerError, CompilerTimeoutError

SOURCE = "int answer(void) { return 42; }"
KEY = "k" * 64


@pytest.fixture
def folder(tmp_path):
    with dg.config.override(cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache"


def was_compiled(source: str = SOURCE) -> bool:
    """Ask for the code, and drop it: as long as anything holds it (pytest holds parts of assertions) it is not loaded again."""
    kernels = get_library(source)
    assert kernels.address("answer")
    return not kernels.from_cache


def entry(folder: Path) -> Path:
    (found,) = folder.glob("*.kernel")
    return found


def test_the_second_load_comes_from_disk(folder):
    assert was_compiled()
    again = get_library(SOURCE)
    assert again.from_cache and again.address("answer")
    assert kernel_cache.cache().info().entries == 1
    assert stat.S_IMODE(entry(folder).stat().st_mode) == 0o600 and stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert kernel_cache.cache().clear() == 1
    assert get_library(SOURCE).library is again.library  # for as long as anything holds it
    del again
    assert was_compiled()


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:100], lambda b: b"", lambda b: b[:500] + b"X" + b[501:],
                                    lambda b: b[:-1] + bytes([b[-1] ^ 1]), lambda b: b + b"more"])  # fmt: skip
def test_damaged_entries_are_compiled_anew(folder, caplog, damage):
    get_library(SOURCE)
    path = entry(folder)
    path.write_bytes(damage(path.read_bytes()))
    with caplog.at_level(logging.WARNING, "dynagraph.cache"):
        assert was_compiled()
    assert "damaged" in caplog.text
    assert not was_compiled()


def test_an_entry_under_another_key_is_none():
    assert unseal(KEY, seal(KEY, b"image")) == b"image"
    assert unseal("other", seal(KEY, b"image")) is None


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_entries_that_others_may_write_are_ignored(folder, mode):
    get_library(SOURCE)
    entry(folder).chmod(mode)
    assert was_compiled()


def test_links_are_not_followed(folder, tmp_path):
    get_library(SOURCE)
    path = entry(folder)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert was_compiled()


@pytest.mark.parametrize("make", ["file", "link", "open to others"])
def test_a_folder_that_is_not_private_is_not_used(tmp_path, caplog, make):
    root = tmp_path / "root"
    if make == "file":
        root.write_text("")
    elif make == "link":
        (tmp_path / "real").mkdir(mode=0o700)
        root.symlink_to(tmp_path / "real")
    else:
        root.mkdir()
        root.chmod(0o777)
    with caplog.at_level(logging.WARNING, "dynagraph.cache"), dg.config.override(cache_dir=str(root)):
        assert was_compiled() and was_compiled()
    assert "not kept on disk" in caplog.text


def test_a_full_disk_loses_only_the_cache(folder, monkeypatch, caplog):
    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "rename", full)
    with caplog.at_level(logging.WARNING, "dynagraph.cache"):
        assert was_compiled()
    assert "not kept" in caplog.text and not list(folder.glob("*.kernel")) and not list(folder.glob(".*.tmp"))


def test_the_least_recently_used_go_first(tmp_path):
    cache = KernelCache(tmp_path / "root", limit=2500)
    for age, name in ((300, "a"), (200, "b"), (100, "c")):
        cache.store(name * 64, bytes(700))
        os.utime(tmp_path / "root" / (name * 64 + ".kernel"), (1e9 - age, 1e9 - age))
    cache.store("d" * 64, bytes(700))
    assert cache.load("a" * 64) is None
    assert cache.load("c" * 64) == cache.load("d" * 64) == bytes(700)
    assert cache.info().nbytes <= 2500


def test_the_folder_is_not_looked_through_for_every_entry(tmp_path, monkeypatch):
    cache = KernelCache(tmp_path / "root", limit=64_000)
    looked = []
    monkeypatch.setattr(cache, "_evict", lambda: looked.append(cache._unchecked))
    for k in range(16):
        cache.store(f"{k:x}" * 64, bytes(50))
    assert looked == [50]  # in turn, by the key
    cache.store("f" * 64, bytes(500))
    assert looked == [50, 1300]  # ... and when much was written


def test_processes_share_a_cache_without_harm(folder):
    script = (
        "from dynagraph.backends.kernel_cache import get_library\n"
        "import ctypes\n"
        "for n in range(6):\n"
        "    lib = get_library(f'int answer(void) {{ return {n}; }}')\n"
        "    assert ctypes.CFUNCTYPE(ctypes.c_int)(lib.address('answer'))() == n\n"
    )
    environment = {**os.environ, "DYNAGRAPH_CACHE_DIR": str(folder)}
    processes = [subprocess.Popen([sys.executable, "-c", script], env=environment) for _ in range(3)]
    assert [p.wait() for p in processes] == [0, 0, 0]


# -- compilers ----------------------------------------------------------------------------------------------------------


def fake_compiler(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("body", ["echo broken >&2; exit 1", "exit 0", 'while [ "$1" != -o ]; do shift; done; echo junk > "$2"'])
def test_a_broken_compiler_leaves_the_answer_right(tmp_path, folder, caplog, body):
    compiled = dg.compile(lambda x: x * 2 + 1)
    with dg.config.override(cc=fake_compiler(tmp_path / "cc", body)), caplog.at_level(logging.WARNING, "dynagraph"):
        for _ in range(2):
            np.testing.assert_array_equal(compiled(np.ones(3)), 3.0)
    assert compiled.stats.fallbacks == 1 and isinstance(compiled.stats.last_error, CompilerError)
    assert "the compiler failed" in caplog.text
    with dg.config.override(cc=str(tmp_path / "cc"), strict=True), pytest.raises(CompilerError):
        dg.compile(lambda x: x * 2 + 1)(np.ones(3))


def test_a_compiler_that_hangs_is_stopped_with_its_helpers(tmp_path, folder, caplog):
    started = tmp_path / "started"
    hangs = fake_compiler(tmp_path / "cc", f"""
        if [ -f kernel.c ] && grep -q dg_runtime kernel.c; then sleep 600 & echo $! >> {started}; wait; fi
        exec cc "$@"
    """)  # fmt: skip
    with dg.config.override(cc=hangs):
        kernel_cache.compiler()  # may take its time
    compiled = dg.compile(lambda x: x * 2 + 1)
    with dg.config.override(cc=hangs, compiler_timeout=0.5), caplog.at_level(logging.WARNING, "dynagraph"):
        np.testing.assert_array_equal(compiled(np.ones(3)), 3.0)
    assert compiled.stats.fallbacks == 1 and isinstance(compiled.stats.last_error, CompilerTimeoutError)
    assert re.search(r"took longer than the 0.5 s that it may \(at most config.compiler_timeout\), and was stopped", caplog.text)
    for helper in started.read_text().split():
        give_up = time.monotonic() + 10
        while is_running(helper):
            assert time.monotonic() < give_up
            time.sleep(0.01)


def is_running(pid: str) -> bool:
    """Not gone, nor dead and waiting for whoever inherits it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_compiler_may_have_all_the_time(folder):
    with dg.config.override(compiler_timeout=None):
        assert was_compiled("int answer(void) { return 43; }")


def test_an_interrupted_compilation_leaves_no_process(folder, monkeypatch):
    begun = []

    def interrupted(run, seconds):
        begun.append((run, list(run._running)))
        raise KeyboardInterrupt

    monkeypatch.setattr(CompilerRun, "_sleep", interrupted)
    for compile in (toolchain.toolchain().compile, get_library):
        with pytest.raises(KeyboardInterrupt):
            compile(SOURCE)
    assert len(begun) == 2
    for run, processes in begun:
        assert [p.returncode for p in processes] == [-signal.SIGKILL] and not os.path.exists(run.folder)


def test_a_process_that_has_ended_is_not_asked_again_and_again_while_others_work(tmp_path, monkeypatch):
    slept = []
    sleep = CompilerRun._sleep
    monkeypatch.setattr(CompilerRun, "_sleep", lambda run, seconds: slept.append(seconds) or sleep(run, seconds))
    together = [["-c", "exit 0"], ["-c", "sleep 0.3; echo made > kernel.so"]]
    folder = tmp_path / "run"
    folder.mkdir()
    run = CompilerRun(("sh",), None, str(folder), "", [together])
    assert run.wait(run.begun + 60) and run.image() == b"made\n"
    assert len(slept) < 100  # they would be thousands


def test_functions_of_a_large_source_are_shared_out_evenly(monkeypatch):
    monkeypatch.setattr(toolchain, "n_processors", lambda: 2)
    parts = toolchain.parts_of("/* functions: 1 9 1 3 2 1 8 4 1 */\n", 8)
    assert sorted(k for part in parts for k in part) == list(range(9))
    weights = [1, 9, 1, 3, 2, 1, 8, 4, 1]
    assert [sum(weights[k] for k in part) for part in parts] == [15, 15]
    assert len(toolchain.parts_of("/* functions: 1 2 3 */\n", 8)) == len(toolchain.parts_of(SOURCE, 8)) == 1


def test_a_refusal_shows_the_compilers_words_and_keeps_the_source(folder):
    with pytest.raises(CompilerError, match="refused generated code") as refusal:
        get_library("int f( {")
    kept = Path(str(refusal.value).split("kept in ")[1].splitlines()[0])
    assert kept.read_text() == "int f( {"
    kept.unlink()


def test_no_compiler_is_said(folder):
    with dg.config.override(cc="no-such-compiler"):
        assert toolchain.find_compiler() is None
        with pytest.raises(CompilerError, match=r"found no C compiler: looked for 'no-such-compiler' \(config.cc\)"):
            toolchain.toolchain()


def test_without_a_compiler_programs_run_through_numpy(tmp_path):
    script = (
        "import numpy as np, warnings, dynagraph as dg\n"
        "f = dg.compile(lambda x: np.tanh(x) + 1)\n"
        "with warnings.catch_warnings(record=True) as said:\n"
        "    warnings.simplefilter('always')\n"
        "    for n in (2, 3):\n"
        "        np.testing.assert_allclose(f(np.ones(n)), np.tanh(np.ones(n)) + 1)\n"
        "assert len(said) == 1 and 'no C compiler' in str(said[0].message), said\n"
        "assert f.stats.compiles == 2 and f.stats.fallbacks == 0\n"
    )
    environment = {**os.environ, "DYNAGRAPH_CC": "no-such-compiler"}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)


DROPPED = """
#include <stdint.h>
static __attribute__((noinline)) void range(double *restrict a, const double *restrict b, int64_t lo, int64_t hi) {
    for (int64_t i = lo; i < hi; ++i) {
        const double t = a[i];
        a[3 + i * 2] = b[2 - i * 2] + (t - t);
    }
}
void run(void *const *buffers, int64_t lo, int64_t hi) { range(buffers[0], buffers[1], lo, hi); }
"""


def test_calls_of_kernels_are_not_dropped(folder):
    """As gcc 12 does with this one where it is let."""
    a, b = np.arange(6.0), np.array([10.0, 20.0, 30.0])
    library = get_library(DROPPED)
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(library.address("run"))
    run((ctypes.c_void_p * 2)(a.ctypes.data, b.ctypes.data), 0, 2)
    assert a.tolist() == [0, 1, 2, 30, 4, 10]


def test_flags_are_resolved_and_strict(folder):
    tools = toolchain.toolchain()
    assert "-march=native" not in tools.identity.split("\0") and "-ffp-contract=off" in tools.flags
    assert not set(toolchain.UNSAFE) & set(tools.flags)
    assert set(tools.describe()) == {"compiler", "version", "flags", "target", "why"}


# -- what is kept of a compiler -----------------------------------------------------------------------------------------


@pytest.fixture
def unknown(folder, monkeypatch):
    """As in a process that has asked no compiler yet."""
    monkeypatch.setattr(toolchain, "_known", {})
    return folder


def memo(folder: Path) -> Path:
    (found,) = folder.glob("*.compiler")
    return found


def test_a_compiler_is_asked_once_per_machine(unknown, monkeypatch):
    first = kernel_cache.compiler()
    toolchain._known.clear()
    with monkeypatch.context() as forbidden:
        forbidden.setattr(subprocess, "Popen", None)
        assert kernel_cache.compiler() == first
    assert memo(unknown).read_bytes().startswith(b"{") and str(first.command) not in memo(unknown).read_bytes().decode("latin-1")
    kernel_cache.cache().clear()
    assert not list(unknown.glob("*.compiler"))


def test_what_is_kept_of_a_compiler_cannot_be_forged_or_damaged(unknown, tmp_path, caplog):
    evil = fake_compiler(tmp_path / "evil", f"touch {tmp_path}/executed; exit 1")
    first = kernel_cache.compiler()
    path = memo(unknown)
    good = path.read_bytes()
    forged = json.dumps({"path": evil, "version": "", "flags": [], "target": ""}).encode()
    for bad in (forged, good[:-1], good.replace(b"O3", b"O0")):
        path.write_bytes(bad)
        toolchain._known.clear()
        with caplog.at_level(logging.WARNING, "dynagraph.cache"):
            assert kernel_cache.compiler() == first
        assert "damaged" in caplog.text and path.read_bytes() == good
        caplog.clear()
    assert not (tmp_path / "executed").exists()


# answers no question about all flags at once, as a compiler that does not know one of them
ONE_BY_ONE = 'case "$*" in *-march=native*-fno-ipa-modref*-E*) exit 1;; esac'


def test_a_compiler_that_takes_all_flags_is_asked_three_questions(unknown, tmp_path):
    log = tmp_path / "log"
    for name, more in [("cc", ""), ("old", ONE_BY_ONE)]:
        fake = fake_compiler(tmp_path / name, f"""
            echo >> {log}
            {more}
            exec cc "$@"
        """)  # fmt: skip
        with dg.config.override(cc=fake):
            tools = kernel_cache.compiler()
        questions = len(log.read_text().splitlines())
        log.unlink()
        assert questions == 3 if name == "cc" else questions > 3
        assert tools.flags == toolchain.toolchain().flags and tools.target == toolchain.toolchain().target


def test_a_compiler_that_needs_the_usual_libraries_gets_them(unknown, tmp_path):
    fake = fake_compiler(tmp_path / "cc", """
        case "$*" in *-nostdlib*) echo 'ld: cannot find -lgcc' >&2; exit 1;; esac
        exec cc "$@"
    """)  # fmt: skip
    with dg.config.override(cc=fake):
        tools = kernel_cache.compiler()
        assert tools.libraries == toolchain.USUAL_LIBRARIES and tools.flags == toolchain.toolchain().flags
        toolchain._known.clear()
        assert kernel_cache.compiler() == tools and get_library(SOURCE).address("answer")


FAILURES = {
    "fork": "echo 'gcc: fatal error: cannot execute cc1: vfork: Resource temporarily unavailable' >&2; exit 1",
    "killed": "kill -9 $$",
    "nothing": "exit 1",
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize("question", ["-fno-ipa-pure-const", "-march=native", "--version", "kernel.c"])
def test_a_probe_that_failed_is_not_kept(unknown, tmp_path, failure, question):
    """The flags that keep gcc's miscompilations out must be there when it works again."""
    once = fake_compiler(tmp_path / "cc", f"""
        {ONE_BY_ONE}
        case "$*" in *{question}*) if [ ! -e {tmp_path}/failed ]; then touch {tmp_path}/failed; {failure}; fi;; esac
        exec cc "$@"
    """)  # fmt: skip
    with dg.config.override(cc=once):
        with pytest.raises(CompilerError, match=r"failed|makes no code"):
            kernel_cache.compiler()
        assert not list(unknown.glob("*.compiler")) and not toolchain._known
        tools = kernel_cache.compiler()
    assert tools.flags == toolchain.toolchain().flags
    assert memo(unknown)


def test_flags_that_a_compiler_does_not_know_are_left_out(unknown, tmp_path):
    picky = fake_compiler(tmp_path / "cc", """
        for word; do case $word in -fno-ipa*) echo "unknown argument: '$word'" >&2; exit 1;; esac; done
        exec cc "$@"
    """)  # fmt: skip
    with dg.config.override(cc=picky):
        assert not [flag for flag in kernel_cache.compiler().flags if "ipa" in flag]
        assert was_compiled()


# -- how compilers are asked for ----------------------------------------------------------------------------------------


@pytest.fixture
def launcher(tmp_path, monkeypatch):
    """A stand-in for ccache: started with a compiler, or by a link that has the name of one."""
    real, links = shutil.which("cc"), tmp_path / "links"
    (tmp_path / "bin").mkdir()
    links.mkdir()
    fake_compiler(tmp_path / "bin" / "ccache", f"""
        echo "$@" >> {tmp_path}/seen
        case "$0" in */ccache) exec "$@";; *) exec {real} "$@";; esac
    """)  # fmt: skip
    (links / "cc").symlink_to(tmp_path / "bin" / "ccache")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def asked(text: str, monkeypatch: pytest.MonkeyPatch) -> toolchain.Toolchain:
    monkeypatch.setenv("CC", text)
    assert was_compiled()
    return kernel_cache.compiler()


def test_a_launcher_in_front_of_the_compiler(folder, launcher, monkeypatch):
    tools = asked("ccache cc", monkeypatch)
    assert "kernel.so" in (launcher / "seen").read_text()
    monkeypatch.delenv("CC")
    plain = kernel_cache.compiler()
    assert tools.identity == plain.identity != "" and tools.command.compiler == os.path.realpath(shutil.which("cc") or "")
    assert (tools.command.why, plain.command.why) == ("$CC", "cc is the first of cc, gcc, clang on the PATH")


def test_a_link_to_a_launcher_stays_one(folder, launcher, monkeypatch):
    real = os.path.realpath(shutil.which("cc") or "")
    monkeypatch.setenv("PATH", f"{launcher}/links{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CC", raising=False)
    assert was_compiled()
    tools = kernel_cache.compiler()
    assert "kernel.so" in (launcher / "seen").read_text()
    assert tools.command.words == (f"{launcher}/links/cc",) and tools.command.compiler == real


def test_options_of_the_compiler_are_kept(folder, monkeypatch):
    source = "#ifndef WANTED\n#error it is not there\n#endif\nint answer(void) { return WANTED; }"
    identities = set()
    for k in (3, 4):
        monkeypatch.setenv("CC", f"cc -DWANTED={k}")
        kernels = get_library(source)
        assert ctypes.CFUNCTYPE(ctypes.c_int)(kernels.address("answer"))() == k
        identities.add(kernel_cache.compiler().identity)
    assert len(identities) == 2


def test_an_architecture_that_is_asked_for_is_kept(folder, monkeypatch):
    monkeypatch.setenv("CC", "cc -march=x86-64" if platform.machine() == "x86_64" else "cc -mcpu=generic")
    tools = kernel_cache.compiler()
    assert not [flag for flag in tools.flags if flag.startswith(("-march", "-mcpu", "-mavx"))]


def test_options_that_change_results_are_left_out_loudly(folder, monkeypatch, caplog):
    with caplog.at_level(logging.WARNING, "dynagraph.kernels"):
        tools = asked("cc -Ofast -ffast-math -DMORE", monkeypatch)
    assert tools.command.options == ("-DMORE",) and "options that change results" in caplog.text


@pytest.mark.parametrize("how", ["$CC", "config.cc", "quoted, with options"])
def test_paths_with_spaces(folder, tmp_path, monkeypatch, how):
    place = tmp_path / "a b"
    place.mkdir()
    path = fake_compiler(place / "my cc", 'exec cc "$@"')
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.setenv("CC", {"$CC": path, "config.cc": "", "quoted, with options": f"'{path}' -DMORE"}[how])
    with dg.config.override(cache_dir=str(place / "the cache"), cc=path if how == "config.cc" else None):
        assert was_compiled() and not was_compiled()
        assert kernel_cache.compiler().command.words == (path,)
    assert not list(place.glob("dynagraph*"))


def test_what_cannot_be_loaded_here_is_said(unknown, tmp_path, monkeypatch):
    monkeypatch.setenv("CC", "cc -m32")
    said = r"the C compiler \S*cc -m32 \(\$CC\) makes no code that this Python .* can load; name another"
    with pytest.raises(CompilerError, match=said):
        get_library(SOURCE)
    compiled = dg.compile(lambda x: x * 2 + 1)
    np.testing.assert_array_equal(compiled(np.ones(3)), 3.0)
    assert compiled.stats.fallbacks == 1 and not list(unknown.glob("*.compiler"))


@pytest.mark.parametrize("text", ["no-such-compiler", "ccache", "ccache no-such-compiler", "'cc", "ccache -s"])
def test_a_compiler_that_is_not_there_is_none(launcher, monkeypatch, text):
    assert toolchain.command_of(text, "test") is None
    monkeypatch.setenv("CC", text)
    found = toolchain.find_compiler()
    assert found is not None and repr(text) in found.why


# -- what killed processes left -------------------------------------------------------------------------------------------


def test_only_old_files_of_ours_are_swept(tmp_path):
    def made(name: str, age: float, folder: bool = False) -> Path:
        path = tmp_path / name
        if folder:
            path.mkdir()
            (path / "kernel.c").write_text("")
        else:
            path.write_text("")
        os.utime(path, (time.time() - age,) * 2)
        return path

    day = toolchain.DAY
    gone = [
        made("dynagraph-compile-1", 2 * day, True), made("dynagraph-load-1.so", 2 * day), made("dynagraph-refused-1.c", 15 * day),
    ]  # fmt: skip
    kept = [
        made("dynagraph-compile-2", day / 2, True), made("dynagraph-load-2.so", 60), made("dynagraph-refused-2.c", 2 * day),
        made("dynagraph-compile-3", 20 * day), made("dynagraph-refused-3", 20 * day, True), made("dynagraph-mine", 20 * day, True),
        made("kernel.c", 20 * day),
    ]  # fmt: skip
    (tmp_path / "dynagraph-compile-4").symlink_to(kept[-2])
    toolchain.sweep(str(tmp_path))
    assert not any(path.exists() for path in gone) and all(path.exists() for path in kept)
    assert (tmp_path / "dynagraph-compile-4").is_symlink()
    toolchain.sweep(str(tmp_path / "not there"))
