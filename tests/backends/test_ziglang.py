"""The wheel `ziglang` as the C compiler: a sample; `make test-zig` runs all tests of the backend under it."""

from __future__ import annotations

import importlib.util
import os
import shutil

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.backends import kernel_cache, toolchain

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="needs the wheel ziglang")


@pytest.fixture
def zig():
    with dg.config.override(cc="ziglang", compile_budget=None, strict=True):
        yield


def dynamics(x, y):
    u = np.where(x > 0.5, np.sqrt(x), -y)
    return u.sum(axis=0) + (x @ y)[0], np.cumsum(u, axis=1), u.max(), (x * 8).astype(np.int32) // 3


def elementary(x, y):
    return np.tanh(x) + np.exp(-y) * np.sin(3 * x) + np.log1p(y) + x**2.5


def of_other_types(x, y):
    return (x + 1j * y) * 2, x.astype(np.float32) * np.float32(0.1), (x > y) & (y < 0.5), x.astype(np.float16) + np.float16(1)


@pytest.mark.parametrize("function", [dynamics, elementary, of_other_types])
def test_results_are_numpys(zig, function):
    x, y = np.random.default_rng(3).random((2, 33, 33))
    compiled = dg.compile(function, fullgraph=True)
    got, expected = compiled(x, y), function(x, y)
    assert compiled.stats.compiles == 1
    for g, e in zip(got, expected) if isinstance(expected, tuple) else [(got, expected)]:
        assert g.dtype == e.dtype
        if function is elementary:
            np.testing.assert_allclose(g, e, rtol=4e-15)
        else:
            np.testing.assert_array_equal(g, e)


def test_it_is_found_where_nothing_else_is(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with dg.config.override(cc=None):  # `make test-zig` sets it
        found = toolchain.find_compiler()
        assert found is not None and found.is_zig and found.words[1:] == ("cc",) and os.path.isabs(found.words[0])
        assert found.why == "none of cc, gcc, clang is on the PATH; the wheel ziglang is installed"
        monkeypatch.setenv("CC", "gone")
        assert "$CC, 'gone', is not there" in getattr(toolchain.find_compiler(), "why", "")


def test_options_and_launchers_go_with_it(tmp_path, monkeypatch):
    launcher = tmp_path / "ccache"
    launcher.write_text('#!/bin/sh\nexec "$@"\n')
    launcher.chmod(0o755)
    found = toolchain.command_of(f"{launcher} ziglang -DMORE", "test")
    assert found is not None and found.is_zig and found.options == ("-DMORE",)
    assert found.words[0] == str(launcher) and found.words[1] == found.compiler and found.words[2:] == ("cc",)


def test_what_it_keeps_lies_in_our_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("ZIG_GLOBAL_CACHE_DIR", raising=False)
    found = toolchain.command_of("ziglang", "test")
    assert found is not None
    environment = toolchain.Toolchain(found, "", (), "", folder=tmp_path).environment("/compilation")
    assert environment is not None
    assert (environment["ZIG_GLOBAL_CACHE_DIR"], environment["ZIG_LOCAL_CACHE_DIR"]) == (str(tmp_path / "zig"), "/compilation/zig")
    with dg.config.override(cache_dir=str(tmp_path / "cache")):
        kernel_cache.cache()
        (tmp_path / "cache" / "zig" / "o").mkdir(parents=True)
        kernel_cache.cache().clear()
        assert not (tmp_path / "cache" / "zig").exists()
    shutil.rmtree(tmp_path / "cache")
    nowhere = toolchain.Toolchain(found, "", (), "").environment("/compilation")
    assert nowhere is not None and os.path.isdir(nowhere["ZIG_GLOBAL_CACHE_DIR"])
