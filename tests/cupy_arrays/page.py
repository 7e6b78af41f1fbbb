"""``python -m tests.cupy_arrays.page`` writes docs/cupy.md from the tables of `frontend/cupy_door.py`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path

from dynagraph.array_libraries import OLDEST_CUPY
from dynagraph.frontend import cupy_door

PAGE = Path(__file__).parents[2] / "docs" / "cupy.md"
TEXT = """\
# CuPy arrays

Functions under `dg.compile` take arrays of CuPy ({oldest} or newer) as they take NumPy's, once the program has imported CuPy;
dynagraph never imports it. They are captured, guarded in C and fused into CUDA kernels of our own, which run on the device that
the arrays lie on, on CuPy's current stream, with memory of CuPy's pool ([cuda.md](cuda.md)). Matrix products, Fourier
transforms, linear algebra and sorts are CuPy's own functions, called between kernels. Without NVIDIA's driver (CuPy runs on AMD's
devices too) a program runs node by node through CuPy's own functions, and is left to the plain call where it is measured to be no
faster.

Results are those of CuPy up to rounding: sums are added in another order, functions such as `exp` are CUDA's, without the flushing
of small float32 numbers to zero that CuPy compiles its kernels with. Gradients (`dg.grad` and its kin) are captured; outside of
compiled functions they are of NumPy's arrays only.

A program is of one library. Where NumPy's arrays meet CuPy's, or arrays of two devices meet, the graph breaks, so that CuPy
raises its own error; `xp = cupy.get_array_module(x)` is followed. `np.exp(x)`, `np.sum(x)` and their kin of an array of CuPy's
mean CuPy's functions. A NumPy scalar may be an operand where it does not decide the result's dtype.

What CuPy does otherwise than NumPy is followed as CuPy does it: reductions and single elements are 0-d arrays, `x[0]` is a
view, new arrays lie in C order whatever the operands' order is, places out of bounds (`x[i]`, `x[i] = v` and `take` by arrays of
int32 or int64) are those modulo the size, `z @= y` binds a new array, nothing warns. What NumPy would check and CuPy does not
(negative exponents) breaks, and so does what is computed in another way (`x ** 0.5`, `clip`, `arange` of floats), what leaves the
device (`.get()`, `float(x)`, `if x.sum() > 0:`), `cupy.random`, and whatever is not named here. Where CuPy raises, or gives another
dtype or shape than was foreseen, the program leaves the call to the plain function (`f.stats.refusals`; the log topic `capture`
says why).

This page is written by `python -m tests.cupy_arrays.page`.

## Ufuncs

With operands and `out=`; by CuPy's name, and by NumPy's.

{ufuncs}

## Functions

{functions}

By NumPy's name, too: {dispatched}.

## Methods and attributes

{methods}

{attributes}

## Operators

{operators}; those in place as well. Indices: integers, slices, `None`, `...`, lists and arrays of integers; assignment also by
masks.
"""


def wrapped(names: Iterable[str]) -> str:
    return textwrap.fill(", ".join(f"`{name}`" for name in names), 140, break_long_words=False, break_on_hyphens=False)


def called(parameters: dict[str, str]) -> list[str]:
    """With the parameters that may be given."""
    return [f"{name}({', '.join(p for p in text.split() if not p.startswith('-'))})" for name, text in sorted(parameters.items())]


def page() -> str:
    return TEXT.format(
        oldest=OLDEST_CUPY,
        ufuncs=wrapped(sorted(cupy_door.UFUNCS)),
        functions=wrapped(called(cupy_door.FUNCTIONS)),
        dispatched=wrapped(sorted(cupy_door.OWN_DISPATCH)),
        methods=wrapped("." + text for text in called(cupy_door.METHODS)),
        attributes=wrapped("." + name for name in cupy_door.ATTRIBUTES),
        operators=wrapped([*cupy_door.BINARY, "-x", "~x", "abs(x)", "len(x)"]),
    )


if __name__ == "__main__":
    PAGE.write_text(page())
