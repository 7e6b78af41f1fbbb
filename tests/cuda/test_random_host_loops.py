"""Random loops of array operations on a device, against NumPy: results, arguments, and which results are one object."""

from __future__ import annotations

import linecache
import random
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.backends.cuda import driver
from tests import sampling
from tests.cuda.device import EmulatedDevice, QueuedDevice

RNG = np.random.default_rng(3)
X, Y = RNG.standard_normal(8), RNG.standard_normal(8)
STATEMENTS = (
    "a = a * 0.5 + b * 0.25", "b = a - 0.125 * b", "c = b[::-1] * 0.5 + c * 0.25", "a, b = b, a", "a, b, c = c, a, b", "c = a",
    "a[1:-1] += 0.125 * (b[2:] - b[:-2])", "b[:4] = c[4:] * 0.5", "c *= 0.5", "c += a * 0.25", "v = a[2:6]", "v *= 0.5",
    "v = v + 0.5", "a[3] = b[2] * 0.5", "b = b + (k % 3) * 0.5", "t = t + 1", "b = b * (1.0 / (t + 2))", "s = a.sum() * 0.125",
    "c = c * 0.5 + s", "if k == 40: kept = a", "if t > 50: c = c + 0.25", "if k % 7 == 3: a, c = c, a", "a = a.copy()", "d = b",
    "b = d * 0.5 + a[:1]", "c = a[:1] + b", "a = np.where(a > 0, a * 0.5, b)", "if k == 55: break",
)  # fmt: skip
BEGIN = """def loop(x, y, n):
    a, b, c = x, y + 0, x * 0.5
    v, d, kept, t, s = a[2:6], b, b, 0, a.sum()
    for k in range(n):
"""
END = "    return a, b, c, v, d, kept, t, s\n"


def program(seed: int) -> Callable[..., Any]:
    chosen = random.Random(seed)
    body = chosen.sample(STATEMENTS, chosen.randint(2, 6))
    text = BEGIN + "".join(f"        {line}\n" for line in body) + END
    name = f"<random host loop {seed}>"
    linecache.cache[name] = len(text), None, text.splitlines(True), name
    module = types.ModuleType(name)
    vars(module)["np"] = np
    exec(compile(text, name, "exec"), vars(module))
    return module.loop  # type: ignore[no-any-return]


def check(cp: Any, seed: int) -> None:
    if hasattr(cp, "machine"):
        driver.install(cp, (QueuedDevice, EmulatedDevice)[seed % 2](cp))
    function = program(seed)
    compiled = dg.compile(function)
    for n in (150, 90, 3, 151, 0, 152):
        plain, given = (X.copy(), Y.copy()), (cp.asarray(X), cp.asarray(Y))
        try:
            wanted = function(*plain, n)
        except UnboundLocalError:
            with pytest.raises(UnboundLocalError):
                compiled(*given, n)
            continue
        found = compiled(*given, n)
        said = f"seed {seed}, {n} turns:\n{''.join(linecache.getlines(function.__code__.co_filename))}"
        for one, other in zip((*found, *given), (*wanted, *plain)):
            np.testing.assert_allclose(one.get() if hasattr(one, "get") else one, other, 1e-9, 1e-12, err_msg=said)
        assert [[x is y for x in found[:6]] for y in found[:6]] == [[x is y for x in wanted[:6]] for y in wanted[:6]], said


@pytest.fixture(autouse=True)
def without_warnings(cp: Any) -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield
    driver.install(cp, None)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(6))
def test_random_loops(cp: Any, seed: int) -> None:
    check(cp, seed)


@pytest.mark.fuzz
def test_many_random_loops(cp: Any) -> None:
    first = random.randrange(1 << 40)
    for seed in range(first, first + sampling.programs // 10):
        check(cp, seed)
