"""Write down what CuPy offers under NumPy's names, with the parameters that it takes: tests/cupy_arrays/names.json.

    pip install cupy-cuda13x && python scripts/cupy_names.py

No GPU is needed.  The tests compare the tables of `dynagraph/doors/cupy.py` with this, and make their stand-in of it.
"""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import cupy
import numpy as np

TARGET = Path(__file__).parents[1] / "tests" / "cupy_arrays" / "names.json"


def parameters(function: Any) -> str | None:
    """The parameters as source, without annotations; None where the function does not say them."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    text = str(signature.replace(parameters=plain, return_annotation=signature.empty))[1:-1]
    return re.sub(r"<class '(\w+)'>", r"\1", text)


def parameters_of_method(name: str) -> str | None:
    """From the first line of the docstring, which Cython writes."""
    line = (getattr(cupy.ndarray, name).__doc__ or "").partition("\n")[0]
    found = re.match(r"\w+\.\w+\(self(?:, )?(.*?)\)(?: -> .*)?$", line)
    return None if found is None else re.sub(r"(?:_ndarray_base|Py_ssize_t|int) (\w+)", r"\1", found.group(1))


def names_of_cuda() -> dict[str, str]:
    """The public names of what stands in `cupy.cuda`, of its modules and classes."""
    cuda = cupy.cuda
    whats = {
        "cuda": cuda, "runtime": cuda.runtime, "memory_hook": cuda.memory_hook, "Device": cuda.Device, "Stream": cuda.Stream.null,
        "Event": cuda.Event, "MemoryPointer": cuda.MemoryPointer, "MemoryPool": cuda.MemoryPool, "MemoryHook": cuda.MemoryHook,
        "PinnedMemoryPool": cuda.PinnedMemoryPool, "PinnedMemoryPointer": cuda.PinnedMemoryPointer,
    }  # fmt: skip
    return {what: " ".join(n for n in dir(value) if not n.startswith("_")) for what, value in whats.items()}


def functions_of(module: str) -> dict[str, str]:
    """The functions of a module that NumPy has, too, by dotted names."""
    theirs, numpys = getattr(cupy, module), getattr(np, module)
    functions = {n: f for n, f in sorted(vars(theirs).items()) if inspect.isfunction(f) and not n.startswith("_")}
    texts = {f"{module}.{n}": parameters(f) for n, f in functions.items() if hasattr(numpys, n)}
    return {n: text for n, text in texts.items() if text is not None}


def main() -> None:
    shared = [n for n in sorted(vars(cupy)) if not n.startswith("_") and callable(getattr(np, n, None)) and callable(vars(cupy)[n])]
    own = [n for n in shared if vars(cupy)[n] is not getattr(np, n) and not isinstance(vars(cupy)[n], type)]
    ufuncs = {n: vars(cupy)[n] for n in own if type(vars(cupy)[n]) is type(cupy.add)}
    methods = [n for n in dir(cupy.ndarray) if not n.startswith("_") and hasattr(np.ndarray, n)]
    functions = {n: text for n in own if n not in ufuncs and (text := parameters(vars(cupy)[n])) is not None}
    data = {
        "version": cupy.__version__,
        "ufuncs": {n: [f.nin, f.nout, " ".join(f.types)] for n, f in ufuncs.items()},
        "functions": functions | functions_of("fft") | functions_of("linalg"),
        "methods": {n: text for n in methods if (text := parameters_of_method(n)) is not None},
        "attributes": [n for n in methods if not callable(getattr(cupy.ndarray, n))],
        "cuda": names_of_cuda(),
        "special": [n for n in dir(cupy.ndarray) if n.startswith("__") and n.endswith("__")],
    }
    TARGET.write_text(json.dumps(data, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
