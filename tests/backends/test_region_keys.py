"""A native loop that an earlier process has compiled is found by its region: no pass runs for it, and nothing is printed."""

import copy
import os
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.backends import kernel_cache
from dynagraph.backends.c import region_keys
from dynagraph.backends.c import regions as printer
from dynagraph.ir import dtypes
from dynagraph.ir.expr import call, const, var
from dynagraph.ir.regions import Block, Checked, Exit, Interruptible, Jump, Leave, Region, Require, Set

F64, I64 = dtypes.float64, dtypes.int64


def total(x, y):
    s = 0.0
    for k in range(len(x)):
        s += x[k] * y[k]
        if s > 1e9:
            s = -0.0
    return s


@pytest.fixture
def cached(tmp_path):
    with dg.config.override(cache_dir=tmp_path / "kernels", tiers="best"):
        yield tmp_path / "kernels"


@pytest.fixture
def printed(monkeypatch):
    found: list[Region] = []
    plain = printer.print_region
    monkeypatch.setattr(printer, "print_region", lambda region: found.append(region) or plain(region))
    return found


X = np.random.default_rng(1).random(100)


def test_a_later_process_prints_nothing(cached, printed, monkeypatch):
    want = total(X, X)
    assert dg.compile(total)(X, X) == want
    assert len(printed) == 1
    monkeypatch.setattr(kernel_cache, "_loaded", {})
    compiled = dg.compile(total)
    assert compiled(X, X) == want
    assert len(printed) == 1
    assert "fast copy" in compiled.programs[0].loops[0]


def test_another_loop_is_compiled(cached, printed):
    def other(x, y):
        s = 0.0
        for k in range(len(x)):
            s += x[k] * y[k]
            if s > 1e9:
                s = 0.0
        return s

    big = np.array([1e9, 1e9, -1.0])
    for f in (total, other):
        assert np.array(dg.compile(f)(big, big)).tobytes() == np.array(f(big, big)).tobytes()
    assert len(printed) == 2


def empty(path):
    path.write_bytes(b"")


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize("harm", [empty, cut_short, os.unlink])
def test_damaged_entries_are_made_anew(cached, printed, harm):
    want = total(X, X)
    dg.compile(total)(X, X)
    for path in list(cached.glob("*" + kernel_cache.REGION)):
        harm(path)
    assert dg.compile(total)(X, X) == want
    assert len(printed) == 2


def test_the_kernel_is_gone(cached, printed, monkeypatch):
    dg.compile(total)(X, X)
    monkeypatch.setattr(kernel_cache, "_loaded", {})
    for path in list(cached.glob("*" + kernel_cache.SUFFIX)):
        path.unlink()
    assert dg.compile(total)(X, X) == total(X, X)
    assert len(printed) == 2


def test_clear_takes_them_out(cached):
    dg.compile(total)(X, X)
    assert list(cached.glob("*" + kernel_cache.REGION))
    kernels = kernel_cache.cache().info().entries
    assert kernels == len(list(cached.glob("*" + kernel_cache.SUFFIX)))
    assert kernel_cache.cache().clear() == kernels
    assert not list(cached.glob("*" + kernel_cache.REGION))


# -- keys --------------------------------------------------------------------------------------------------------------


def small(value=0.5, line=3, op="add", exit_of_require=0, kind=F64, function="float_div", name="s"):
    """A region of two blocks that go to one another."""
    region = Region("small", {"s": kind, "n": I64, "x": F64}, ["n", "x"])
    exits = [Exit(k, [var("s", F64)]) for k in range(2)]
    first, second = Block(0, line), Block(1, line + 1)
    first.body = [Set(name, call(op, var("x", F64), const(value, F64)))]
    test = call("gt", var("n", I64), const(0, I64))
    second.body = [
        Require(test, exits[exit_of_require]),
        Checked("s", function, (var("s", F64), var("x", F64)), exits[0]),
        Interruptible(exits[1]),
    ]
    first.end, second.end = Jump(second), Jump(first)
    region.blocks, region.exits = [first, second], exits
    return region


CHANGES = {
    "constant": {"value": 0.25},
    "zero": {"value": 0.0},
    "negative zero": {"value": -0.0},
    "nan": {"value": float("nan")},
    "line": {"line": 4},
    "op": {"op": "sub"},
    "exit": {"exit_of_require": 1},
    "dtype": {"kind": dtypes.float32},
    "function": {"function": "float_mod"},
    "name": {"name": "x"},
}


def test_what_differs_has_other_keys():
    keys = [region_keys.key_of(small(**change)) for change in [{}, *CHANGES.values()]]
    assert None not in keys and len(set(keys)) == len(keys)


def test_the_same_made_twice_has_one_key():
    for change in [{}, *CHANGES.values()]:
        assert region_keys.key_of(small(**change)) == region_keys.key_of(small(**change))


def test_ends_functions_and_flags_count():
    plain, others = small(), [small() for _ in range(6)]
    others[0].blocks[1].end = Jump(others[0].blocks[1])
    others[1].blocks[1].end = Leave(others[1].exits[0])
    others[2].functions = [small()]
    others[3].holds_gil = True
    others[4].parameters = ["x", "n"]
    others[5].exits[1].state = []
    keys = {region_keys.key_of(region) for region in [plain, *others]}
    assert len(keys) == 7
    nested = replace(small(), functions=[small(value=2.0)])
    assert region_keys.key_of(nested) != region_keys.key_of(others[2])


def test_a_key_leaves_the_region_as_it_is():
    region = small()
    before = copy.copy(vars(region)), [copy.copy(vars(b)) for b in region.blocks]
    region_keys.key_of(region)
    assert before == (vars(region), [vars(b) for b in region.blocks])


def test_what_has_no_key_is_compiled_all_the_same(cached, printed, monkeypatch):
    monkeypatch.setattr(region_keys, "key_of", lambda region: None)
    for _ in range(2):
        assert dg.compile(total)(X, X) == total(X, X)
    assert len(printed) == 2


def test_what_cannot_be_written_has_no_key():
    region = small()
    region.blocks[0].body.append(lambda: None)
    assert region_keys.key_of(region) is None
    deep = var("x", F64)
    for _ in range(100_000):
        deep = call("neg", deep)
    region.blocks[0].body[-1] = Set("s", deep)
    assert region_keys.key_of(region) is None


def test_another_compiler_or_other_passes_have_other_keys(monkeypatch):
    key = region_keys.key_of(small())
    monkeypatch.setattr(region_keys, "_version", lambda: "of tomorrow")
    assert region_keys.key_of(small()) != key


SCRIPT = """
import numpy as np, dynagraph as dg
from dynagraph.backends.c import region_keys

key_of, found = region_keys.key_of, []
region_keys.key_of = lambda region: found.append(key_of(region)) or found[-1]

@dg.compile
def f(x, words):
    n, s, made = 0, 0.0, []
    for i in range(len(x)):
        if (words[i], "a") in {("a", "a"), ("c", "a"), ("g", "u"), ("u", "g")} or words[i] in {"t", "k", "z"}:
            n += 1
        s += x[i]
        made.append(s)
    return n, s, made

f(np.arange(6.0), "actgzz")
print(*found)
"""


def test_processes_with_other_hashes_have_the_same_keys(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)

    def keys(seed):
        environment = {**os.environ, "PYTHONHASHSEED": str(seed), "DYNAGRAPH_COMPILE_BUDGET": "unlimited"}
        run = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=True)
        return run.stdout.split()

    found = [keys(seed) for seed in (1, 2, 3)]
    assert found[0] and "None" not in found[0]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("operation", ["load", "store"])
def test_what_a_signals_handler_raises_meanwhile_is_no_failure_of_the_cache(tmp_path, monkeypatch, operation):
    cache = kernel_cache.KernelCache(tmp_path / "kernels", 1 << 20)
    opened = os.open

    def late(path, *args, **kwargs):
        if str(path).endswith((kernel_cache.REGION, ".tmp")):
            signal.raise_signal(signal.SIGALRM)
        return opened(path, *args, **kwargs)

    def stop(*_):
        raise TimeoutError("enough")  # an OSError

    before = signal.signal(signal.SIGALRM, stop)
    monkeypatch.setattr(os, "open", late)
    try:
        with pytest.raises(TimeoutError, match="enough"):
            cache.load("0" * 64, kernel_cache.REGION) if operation == "load" else cache.store("0" * 64, b"x", kernel_cache.REGION)
    finally:
        signal.signal(signal.SIGALRM, before)
