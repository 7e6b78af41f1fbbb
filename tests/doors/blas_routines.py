"""Compares products with NumPy's, bit for bit, in a process whose OPENBLAS_CORETYPE says which processor's routines OpenBLAS takes.

    OPENBLAS_CORETYPE=Haswell python tests/doors/blas_routines.py [one in how many]

Prints the routines' processor, how many products were compared, and a line for each that differs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import dynagraph as dg
from dynagraph.backends.blas import find_blas

SHAPES = (  # of matrices: rows, inner size, columns
    (1, 2, 1), (1, 37, 1), (5, 7, 1), (1, 7, 5), (40, 33, 1), (1, 33, 40), (3, 4, 5), (30, 40, 50),
)  # fmt: skip
SIZES = (3, 37, 300)  # of vectors


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    x = rng.normal(size=shape) + (1j * rng.normal(size=shape) if dtype[0] == "c" else 0)
    return x.astype(dtype)


def layouts(x: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """The same numbers, as they may lie in memory."""
    yield "C", x
    room = np.zeros((*x.shape[:-1], 2 * x.shape[-1] + 1), x.dtype)
    if x.ndim == 2:
        yield "transposed", np.asfortranarray(x)
        room[:, : x.shape[1]] = x
        yield "part of rows", room[:, : x.shape[1]]
    else:
        room[: 2 * x.size : 2] = x
        yield "apart", room[: 2 * x.size : 2]


def pairs(dtype: str, function: str) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(11)
    operands = [((n,), (n,)) for n in SIZES]
    if function in ("dot", "matmul"):
        operands += [shapes for m, k, n in SHAPES for shapes in (((m, k), (k, n)), ((m, k), (k,)), ((k,), (k, n)))]
    for left, right in operands:
        for left_name, x in layouts(numbers(rng, left, dtype)):
            for right_name, y in layouts(numbers(rng, right, dtype)):
                if left_name == right_name or "C" in (left_name, right_name):
                    yield f"{function} of {dtype} {left} {left_name}, {right} {right_name}", x, y
        if left[::-1] == right:
            for name, x in layouts(numbers(rng, left, dtype)):
                yield f"{function} of {dtype} {left} {name}, its own transpose", x, x.T


def batches(cases: list, size: int) -> list[list]:
    """A program has at most 255 results."""
    return [cases[at : at + size] for at in range(0, len(cases), size)]


def repeated(function: Callable) -> Callable:
    """The product in a native loop."""

    def loop(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        for _ in range(12):
            found = function(x, y)
        return found

    return loop


def main(one_in: int) -> None:
    compared = 0
    differing = []
    for dtype in ("f4", "f8", "c8", "c16"):
        for name in ("dot", "matmul", "inner"):
            function = getattr(np, name)

            def products(lefts: tuple, rights: tuple) -> list:
                return [function(x, y) for x, y in zip(lefts, rights)]

            for cases in batches(list(pairs(dtype, name))[::one_in], 100):
                names, lefts, rights = zip(*cases)
                compiled = dg.compile(products, backend="c")
                for case, got, want in zip(names, compiled(lefts, rights), products(lefts, rights)):
                    compared += 1
                    if got.tobytes() != want.tobytes():
                        differing.append(case)
                assert [p.executable is not None for p in compiled.programs] == [True], compiled.stats
    for dtype in ("f4", "f8"):
        for name in ("dot", "matmul"):
            loop = repeated(getattr(np, name))
            compiled = dg.compile(loop, backend="c", dynamic=True)
            for case, x, y in list(pairs(dtype, name))[::one_in]:
                compared += 1
                if compiled(x, y).tobytes() != loop(x, y).tobytes():
                    differing.append(f"{case}, in a loop")
            assert compiled.stats.compiles and not compiled.stats.breaks, compiled.stats
    found = find_blas()
    print(found.core if found else "no BLAS", compared)
    print(*differing, sep="\n", end="" if not differing else "\n")


if __name__ == "__main__":
    with dg.config.override(strict=True, compile_budget=None, stay_eager=False, entry_limit=999):
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
