"""The table in docs/numerics.md of where sums may differ from NumPy's in the last bit: each row says what is measured.

A row that is no longer true fails here, and so does one that nothing measures.  What differs and has no row, the random cases of
`test_random_sums.py` find.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dynagraph as dg

Case = tuple[Callable[..., Any], tuple[np.ndarray, ...]]
DOCS = Path(__file__).parents[2] / "docs" / "numerics.md"
N = 12  # arrays of each case


def numbers(rng: np.random.Generator, *shape: int, dtype: str = "float64") -> np.ndarray:
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if dtype.startswith("c") else x).astype(dtype)


def of_chosen(rng: np.random.Generator) -> list[Case]:
    return [(lambda x, m: x[m].sum(), (numbers(rng, 700), rng.random(700) < 0.5)) for _ in range(N)]


def of_halves(rng: np.random.Generator) -> list[Case]:
    near = [(1 + numbers(rng, 60) / 50).astype("float16") for _ in range(N)]
    return [(function, (x,)) for x in near for function in (np.subtract.reduce, lambda x: np.prod(x, initial=1.1))]


def of_complex_numbers(rng: np.random.Generator) -> list[Case]:
    x, y = (numbers(rng, 30, 20, dtype="complex128") for _ in range(2))
    return [
        (lambda x: x.prod(axis=1), (x,)),
        (lambda x: np.linalg.norm(x, axis=1), (x,)),
        (lambda x, y: np.einsum("ij,ij->i", x, y), (x, y)),
    ]


def of_functions(rng: np.random.Generator) -> list[Case]:
    return [(function, (numbers(rng, 500),)) for _ in range(N) for function in (lambda x: np.exp(x).sum(), np.hypot.reduce)]


def of_squares(rng: np.random.Generator) -> list[Case]:
    return [(lambda x: [x[k] ** 2 for k in range(100)], (numbers(rng, 100),)) for _ in range(N)]


def of_large_temporaries(rng: np.random.Generator) -> list[Case]:
    return [(lambda x, y: (x.T * 2 + y).sum(axis=0), (numbers(rng, 190, 190), numbers(rng, 190, 190))) for _ in range(2)]


def of_reversed_arrays(rng: np.random.Generator) -> list[Case]:
    return [(lambda x, y: x[::-1] @ y, (numbers(rng, 37), numbers(rng, 37))) for _ in range(N)]


def of_casts(rng: np.random.Generator) -> list[Case]:
    """Of many magnitudes: others are added up exactly."""
    wide = [(numbers(rng, 20_000) * 10.0 ** rng.integers(-12, 12, 20_000)).astype("float32") for _ in range(N)]
    return [(lambda x: x.sum(dtype="float64"), (x,)) for x in wide]


# how a row begins -> what is measured, on which backend, and whether it depends on the machine alone whether there is a difference
MEASURED: dict[str, tuple[Callable[[np.random.Generator], list[Case]], str, bool]] = {
    "`x[mask].sum()`": (of_chosen, "c", False),
    "`subtract.reduce` of float16": (of_halves, "c", False),
    "`einsum` that is not a matrix product": (of_complex_numbers, "c", True),
    "`@` of reversed arrays": (of_reversed_arrays, "c", False),
    "sums of transcendental functions": (of_functions, "c", False),
    "squares of NumPy's scalars": (of_squares, "c", True),
    "a temporary of 256 KiB or more": (of_large_temporaries, "c", False),
    "CUDA, the `numpy` backend's buffered casts": (of_casts, "numpy", False),
}


def differing(cases: list[Case], backend: str) -> int:
    functions, arrays = [f for f, _ in cases], [given for _, given in cases]

    def program(arrays: list[tuple[np.ndarray, ...]]) -> list[Any]:
        return [f(*given) for f, given in zip(functions, arrays)]

    got = dg.compile(program, backend=backend, fullgraph=True)(arrays)
    return sum(np.asarray(g).tobytes() != np.asarray(want).tobytes() for g, want in zip(got, program(arrays)))


def rows() -> list[str]:
    text = DOCS.read_text()
    table = text[text.index("## Exceptions") :]
    return re.findall(r"^\| (.+?) \| .+ \|$", table, re.M)[1:]


def test_each_row_is_measured() -> None:
    assert len(rows()) == len(MEASURED)
    assert all(any(row.startswith(start) for row in rows()) for start in MEASURED)


@pytest.mark.parametrize("row", MEASURED)
def test_each_row_is_true(row: str) -> None:
    cases, backend, by_machine = MEASURED[row]
    assert differing(cases(np.random.default_rng(0)), backend) or by_machine
