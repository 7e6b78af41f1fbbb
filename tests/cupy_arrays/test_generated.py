"""Small programs made at random of what the tables name, and of what breaks: compiled as plainly, in every order of memory."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from tests.cupy_arrays import stand_in
from tests.cupy_arrays.harness import assert_same_run, put, run

pytestmark = pytest.mark.sampled(6)

VALUES = (
    "{0} + {1}", "{0} * 2", "{0} - {1}", "cp.exp({0} * 0.1)", "np.sin({0})", "cp.maximum({0}, {1})", "{0}.T", "{0}[1:]",
    "{0}[::-1]", "{0}[0]", "{0}.sum()", "{0}.sum(axis=0)", "{0}.reshape(-1)", "cp.where({0} > 1, {0}, 0)", "{0}.copy()",
    "{0} @ {1}",
    "cp.zeros_like({0})", "{0}.astype(np.float32)", "cp.concatenate([{0}, {1}])", "abs({0})", "{0}[None]", "{0} > {1}",
    "{0}.mean(axis=-1, keepdims=True)", "{0}[..., 0]", "cp.ravel({0})", "{0}[[0, 1]]", "cp.argmax({0})", "{0}.ndim",
    "float({0}.sum())", "{0}.shape[0] * {1}", "cp.broadcast_to({0}, (2, *{0}.shape))", "{0} // 2", "{0} ** 2", "{0} % 3",
    "cp.cumsum({0}, axis=0)", "{0}[{0} > 1]", "{0}.flatten()", "cp.stack([{0}, {0}])", "{0}", "np.sum({0})", "{0}.max(axis=0)",
    "cp.arange({0}.shape[0])", "{0}[-1]", "[row * 2 for row in {0}][0]", "np.float64(1.5) * {0}", "cp.tril({0})",
    "cp.swapaxes({0}, 0, -1)", "cp.expand_dims({0}, 0)", "cp.full({0}.shape, 2.0)", "-{0}", "~({0} > 1)", "cp.squeeze({0})",
    "{0}.real", "cp.outer({0}, {1})", "cp.tile({0}, 2)", "cp.roll({0}, 1)", "np.zeros(4) + 1", "{0}.get().sum()",
)  # fmt: skip
WRITES = (
    "{0} += {1}", "{0} *= 2", "{0}[0] = {1}", "{0}[1:] = 3", "{0}[...] = {1}", "{0}[{0} > 1] = 0", "{0}[::2] += 1", "{0}.fill(2)",
    "cp.add({0}, {1}, out={0})", "{0}[0] -= {1}[0]", "{0}.T[0] = 1", "{0}[..., -1] *= {1}", "{0} **= 2", "{0}[1:] = {0}[:-1]",
    "{0} -= {0}.mean()",
)  # fmt: skip
SHAPES: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((3, 4), (3, 4)), ((4, 4), (4,)), ((3,), (3,)), ((2, 3, 4), (4,)), ((1, 3), (3, 1)),
)  # fmt: skip
DTYPES = ("float64", "float32", "int64", "int32", "bool", "uint8")


def program(rng: random.Random) -> str:
    lines, live = [], ["x", "y"]
    for _ in range(rng.randint(2, 7)):
        one, other = rng.choice(live), rng.choice(live)
        if rng.random() < 0.65:
            target = rng.choice(("x", "y", "a", "b", "c"))
            lines.append(f"{target} = " + rng.choice(VALUES).format(one, other))
            live += [target] if target not in live else []
        else:
            lines.append(rng.choice(WRITES).format(one, other))
    lines.append(f"return {', '.join(rng.sample(live, rng.randint(1, len(live))))},")
    return "def f(x, y):\n    " + "\n    ".join(lines)


def arguments(rng: random.Random) -> list[np.ndarray]:
    """Arrays of two shapes that mostly fit, in C order or not."""
    shapes = rng.choice(SHAPES)
    made = np.random.default_rng(rng.randint(0, 9999))
    x, y = (made.integers(0, 4, shape).astype(rng.choice(DTYPES)) for shape in shapes)
    order = rng.randint(0, 5)
    if order == 0:
        x = np.ascontiguousarray(x.T).T
    elif order == 1:
        x = np.repeat(x, 2, axis=0)[::2]
    return [x, y]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(8))
def test_programs_made_at_random(cp: Any, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(20 if cp.ndarray is stand_in.ndarray else 2):  # a device's kernels take long to compile
        source = program(rng)
        scope: dict[str, Any] = {"cp": cp, "np": np}
        exec(source, scope)
        compiled = dg.compile(scope["f"])
        for given in (arguments(rng), arguments(rng)):
            for _ in range(2):
                plain = run(scope["f"], tuple(put(cp, v) for v in given))
                ours = run(compiled, tuple(put(cp, v) for v in given))
                try:
                    assert_same_run(cp, ours, plain)
                except AssertionError as error:
                    raise AssertionError(f"{source}\n{[(v.dtype, v.shape, v.strides) for v in given]}") from error
        assert compiled.stats.fallbacks == 0 and compiled.stats.refusals == 0, source
