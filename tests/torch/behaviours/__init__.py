"""Behaviours of autograd and of torch.func: functions of a torch, run under PyTorch and under dynagraph.torch.

A behaviour gives tensors, numbers, strings or nests of these, or raises.  What PyTorch's give is recorded in `recorded.json`, so
that the comparison needs no PyTorch:

    python -m tests.torch.behaviours            record (needs PyTorch)
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import pkgutil
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

Behaviour = Callable[[Any], Any]
RECORDED = Path(__file__).with_name("recorded.json")
BEHAVIOURS: dict[str, Behaviour] = {}
LOOSE: set[str] = set()  # those whose error has another text


def behaviour(function: Behaviour) -> Behaviour:
    """Declare one; its name is its module's and its own."""
    BEHAVIOURS[f"{function.__module__.rpartition('.')[2]}.{function.__name__}"] = function
    return function


def loose(function: Behaviour) -> Behaviour:
    """Declare one whose error is of PyTorch's type, with another text."""
    LOOSE.add(f"{function.__module__.rpartition('.')[2]}.{function.__name__}")
    return behaviour(function)


def load() -> dict[str, Behaviour]:
    """All behaviours, of the modules beside this one."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.name != "__main__":
            importlib.import_module(f"{__name__}.{module.name}")
    return BEHAVIOURS


def module_of(torch: Any, name: str) -> Any:
    """A submodule of a torch: ``module_of(torch, "utils.checkpoint")``."""
    return importlib.import_module(f"{torch.__name__}.{name}")


def fresh(torch: Any, *values: float, dtype: Any = None) -> Any:
    """A leaf: of 1, 2 and 3 where no values are given."""
    return torch.tensor(values or (1.0, 2.0, 3.0), dtype=dtype or torch.float64, requires_grad=True)


def stream_of_pytorch(torch: Any) -> Any:
    """A context in which random numbers are of PyTorch's stream, in a torch that has a stream of its own."""
    own = getattr(torch.random, "torch_compatible", None)
    return contextlib.nullcontext() if own is None else own(True)


def raised(function: Callable[[], Any]) -> str:
    """The text of the error that a function raises."""
    try:
        found = function()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return f"no error, but {found}"


# -- outcomes ---------------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """What JSON can hold of a result."""
    if hasattr(value, "requires_grad") and hasattr(value, "tolist"):
        return {"tensor": plain(value.detach().tolist()), "dtype": str(value.dtype), "requires_grad": value.requires_grad}
    if isinstance(value, complex):
        return [value.real, value.imag]
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value
    if value is None or isinstance(value, (int, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    return type(value).__name__


def outcome(run: Behaviour, torch: Any) -> dict[str, Any]:
    """What a behaviour gives, or the error that it raises, and the warnings."""
    with warnings.catch_warnings(record=True) as caught, stream_of_pytorch(torch):
        warnings.simplefilter("always")
        try:
            found: dict[str, Any] = {"value": plain(run(torch))}
        except Exception as error:
            names = [kind.__name__ for kind in type(error).__mro__]
            found = {"error": names[: names.index("Exception")], "text": re.sub(r"0x[0-9a-f]+", "0x", str(error)).strip()}
    texts = [str(w.message)[:60] for w in caught if not issubclass(w.category, DeprecationWarning)]
    alone = ("Using backward() with create_graph", "Attempted to insert a get_attr Node")  # PyTorch's
    found["warnings"] = [text for text in texts if not text.startswith(alone)]
    return found


def differs(got: Any, expected: Any) -> bool:
    """Whether two outcomes are different, numbers by more than rounding."""
    if isinstance(expected, dict):
        return not isinstance(got, dict) or got.keys() != expected.keys() or any(differs(got[k], expected[k]) for k in expected)
    if isinstance(expected, list):
        return not isinstance(got, list) or len(got) != len(expected) or any(map(differs, got, expected))
    if isinstance(expected, float) and isinstance(got, (int, float)):
        return not math.isclose(got, expected, rel_tol=1e-5, abs_tol=1e-6)
    return bool(got != expected)


def record() -> None:
    """Run all under PyTorch, and write down what they give."""
    import torch

    found = {name: outcome(run, torch) for name, run in sorted(load().items())}
    RECORDED.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
