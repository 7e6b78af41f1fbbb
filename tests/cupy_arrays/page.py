"""``python -m tests.cupy_arrays.page`` writes docs/cupy.md from the tables of `doors/cupy.py`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path

from dynagraph.array_libraries import OLDEST_CUPY
from dynagraph.doors import cupy as cupy_door

PAGE = Path(__file__).parents[2] / "docs" / "cupy.md"
TEXT = """\
# CuPy arrays

After this page you know which calls of CuPy are captured, and where results differ from CuPy's.

```python
@dg.compile
def normalised(x):                                   # a cupy.ndarray
    return (x - x.mean(axis=0)) / x.std(axis=0)
```

Functions under `dg.compile` take arrays of CuPy ({oldest} or newer) like arrays of NumPy, once the program has imported CuPy.
dynagraph never imports it. Calls are captured, guarded in C and fused into CUDA kernels. The kernels run on the arrays' device,
on CuPy's current stream, with memory of CuPy's pool ([cuda.md](cuda.md)). Matrix products, Fourier transforms, linear algebra and
sorts are library functions, called between kernels. Without NVIDIA's driver (CuPy also runs on AMD devices) a program runs node
by node through CuPy's own functions, and is left to the plain call if that is measured to be no slower.

## Rules

- **Results** are CuPy's up to rounding: sums are added in another order; functions such as `exp` are CUDA's, without CuPy's
  flushing of small float32 numbers to zero.
- **Gradients** (`dg.grad` and the like) work in compiled functions; outside of them they take NumPy arrays only.
- **One library a program.** If NumPy arrays meet CuPy arrays, or arrays of two devices meet, the graph breaks, so that CuPy
  raises its own error. `xp = cupy.get_array_module(x)` is followed. `np.exp(x)`, `np.sum(x)` and the like of a CuPy array mean
  CuPy's functions. A NumPy scalar may be an operand if it does not decide the result's dtype.
- **CuPy's own behaviour is kept:** reductions and single elements are 0-d arrays, `x[0]` is a view, new arrays lie in C order,
  indices out of bounds (`x[i]`, `x[i] = v` and `take` by arrays of int32 or int64) are taken modulo the size, `z @= y` binds a
  new array, nothing warns.
- **These break:** what NumPy would check and CuPy does not (negative exponents), what CuPy computes in another way (`x ** 0.5`,
  `clip`, `arange` of floats), what leaves the device (`.get()`, `float(x)`, `if x.sum() > 0:`), `cupy.random`, and whatever is
  not named here.
- **Bailing out.** If CuPy raises, or gives another dtype or shape than expected, the plain function does the call
  (`f.stats.refusals`; the log topic `capture` says why).

This page is written by `python -m tests.cupy_arrays.page`.

## Ufuncs

With operands and `out=`, by CuPy's or NumPy's name.

{ufuncs}

## Functions

{functions}

Also by NumPy's name: {dispatched}.

## Methods and attributes

{methods}

{attributes}

## Operators

{operators}, also in place. Indices: integers, slices, `None`, `...`, lists and arrays of integers; for assignment also
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
