"""Command-line targets: ``FILE.py`` or ``FILE.py:FUNC``, and example arguments for the function."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import os
import re
import runpy
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import numpy as np

from dynagraph.ir import dtypes

_SHORT_NAMES = {
    "b1": "bool", "b": "bool", **{d.suffix: d.name for d in dtypes.KNOWN if not d.is_bool},
}  # fmt: skip
_ARRAY = re.compile(r"(?P<dtype>\w+)\[(?P<sizes>[^\]]*)\]")


@dataclass(frozen=True)
class Target:
    """A file, and a function in it (``Class.method`` too) or None for all of the file."""

    path: Path
    function: str | None = None

    def __str__(self) -> str:
        return f"{self.path}:{self.function}" if self.function else str(self.path)


def parse_target(text: str) -> Target:
    """``FILE.py`` or ``FILE.py:FUNC``.  Raises a usage error that says what is wrong."""
    name, _, function = text.rpartition(":") if not Path(text).exists() else (text, "", "")
    path = Path(name or text)
    if not path.exists():
        raise click.UsageError(f"{text}: there is no file {str(path)!r}; give FILE.py or FILE.py:FUNC")
    if path.is_dir():
        raise click.UsageError(f"{text}: {str(path)!r} is a folder; give FILE.py or FILE.py:FUNC")
    if function and not all(part.isidentifier() for part in function.split(".")):
        raise click.UsageError(f"{text}: {function!r} is not the name of a function; give FILE.py:FUNC")
    return Target(path, function or None)


# -- running user files ------------------------------------------------------------------------------------------------
def load_module(path: Path) -> ModuleType:
    """The file imported as a module (its ``__main__`` block does not run)."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise click.UsageError(f"{path}: Python cannot import this file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # so that its functions pickle, and dataclasses find their module
    with _as_script(path, []), _faults_of(path):
        spec.loader.exec_module(module)
    return module


def run_script(path: Path, arguments: tuple[str, ...] = ()) -> dict[str, Any]:
    """Run a file as ``python FILE`` does; gives its globals.  What it prints goes to stderr."""
    with _as_script(path, arguments), _faults_of(path):
        return runpy.run_path(str(path), run_name="__main__")


@contextlib.contextmanager
def _as_script(path: Path, arguments: Any) -> Iterator[None]:
    """``sys.argv`` and ``sys.path`` as the file expects them; stdout is kept for the command's own output."""
    saved_argv, saved_path = sys.argv, list(sys.path)
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.resolve().parent))
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        sys.argv, sys.path[:] = saved_argv, saved_path


@contextlib.contextmanager
def _faults_of(path: Path) -> Iterator[None]:
    """Errors of the user's file are shown as Python shows them, from the file on; leaving with status 0 is no error."""
    try:
        yield
    except SystemExit as stop:
        if stop.code not in (None, 0):
            raise click.ClickException(f"{path}: the script exited with status {stop.code}") from None
    except Exception as error:
        raise click.ClickException(f"{path} raised {type(error).__name__}\n{user_traceback(error, path)}") from error


def user_traceback(error: BaseException, path: Path) -> str:
    """The traceback without the frames above the user's file; of a file that does not even begin, without any."""
    lines = traceback.TracebackException.from_exception(error)
    frames = lines.stack
    first = next((k for k, f in enumerate(frames) if os.path.abspath(f.filename) == str(path.resolve())), len(frames))
    lines.stack = traceback.StackSummary.from_list(list(frames)[first:])
    return "".join(lines.format()).rstrip()


def find_function(namespace: dict[str, Any], target: Target) -> Any:
    """The function that the target names."""
    assert target.function is not None
    first, *rest = target.function.split(".")
    if first not in namespace:
        own = (k for k, v in namespace.items() if callable(v) and not k.startswith("_") and _is_own(v, namespace))
        known = ", ".join(sorted(own)) or "no functions"
        raise click.UsageError(f"{target.path} has no function {first!r}; it defines {known}")
    found = namespace[first]
    for name in rest:
        if not hasattr(found, name):
            raise click.UsageError(f"{target.path}: {first!r} has no attribute {name!r}")
        found = getattr(found, name)
    return found


def _is_own(value: Any, namespace: dict[str, Any]) -> bool:
    return getattr(value, "__module__", None) == namespace.get("__name__")


# -- arguments ---------------------------------------------------------------------------------------------------------
def arguments_from_expression(text: str, namespace: dict[str, Any]) -> tuple[Any, ...]:
    """``--args "np.ones((3, 4)), 2.0"``: a Python expression; ``np`` and the names of the module are in scope."""
    try:
        value = eval(compile(text, "<--args>", "eval"), {**namespace, "np": np})
    except Exception as error:
        raise click.UsageError(f"--args {text!r}: {type(error).__name__}: {error}") from error
    return value if isinstance(value, tuple) else (value,)


def arguments_from_shapes(text: str) -> tuple[Any, ...]:
    """``--shapes "f32[3,4] i64[10] 2.0"``: arrays of uniform random values (seed 0) and Python literals."""
    parts = re.findall(r"\w+\[[^\]]*\]|\S+", text)
    return tuple(_argument_from_shape(part, seed) for seed, part in enumerate(parts))


def _argument_from_shape(text: str, seed: int) -> Any:
    found = _ARRAY.fullmatch(text)
    if found is None:
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError):
            shape = "neither a shape, such as f32[3,4] or f64[] for one value, nor a Python literal"
            raise click.UsageError(f"--shapes: {text!r} is {shape}") from None
    name = _SHORT_NAMES.get(found["dtype"], found["dtype"])
    if name not in dtypes.BY_NAME:
        known = ", ".join((*_SHORT_NAMES, *dtypes.BY_NAME))
        raise click.UsageError(f"--shapes: {text!r}: unknown dtype {found['dtype']!r}; known are {known}")
    sizes = [size.strip() for size in found["sizes"].split(",") if size.strip()]
    if not all(size.isdigit() for size in sizes):
        raise click.UsageError(f"--shapes: {text!r}: sizes must be whole numbers, such as f32[3,4]")
    try:
        return random_array(dtypes.BY_NAME[name], tuple(map(int, sizes)), seed)
    except (MemoryError, ValueError) as error:
        raise click.UsageError(f"--shapes: {text!r}: {error}; the array is made here, so give a smaller one") from None


def random_array(dtype: dtypes.DType, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Uniform in [0, 1) for floating point and the parts of complex numbers, 0 to 9 for integers, either of bools."""
    rng = np.random.default_rng(seed)
    if dtype.is_complex:
        return np.asarray(rng.random(shape) + 1j * rng.random(shape)).astype(dtype.numpy)
    if dtype.is_float:
        return np.asarray(rng.random(shape)).astype(dtype.numpy)
    return np.asarray(rng.integers(0, 2 if dtype.is_bool else 10, shape)).astype(dtype.numpy)


def example_arguments(function: Any, name: str, namespace: dict[str, Any]) -> tuple[Any, ...] | None:
    """The arguments that the file offers for a function; None where there are none.

    In this order: ``FUNC.example_inputs``, ``EXAMPLE_INPUTS``, ``example_inputs``, each a value or a function without
    parameters that gives it: a tuple of arguments, or a dict from function names to such tuples.
    """
    own = getattr(function, "example_inputs", None)
    for offer in (own, namespace.get("EXAMPLE_INPUTS"), namespace.get("example_inputs")):
        if callable(offer):
            offer = offer()
        if isinstance(offer, dict):
            offer = offer.get(name)
        if offer is not None:
            return tuple(offer) if isinstance(offer, (tuple, list)) else (offer,)
    return None


__all__ = [
    "Target", "arguments_from_expression", "arguments_from_shapes", "example_arguments", "find_function", "load_module",
    "parse_target", "random_array", "run_script", "user_traceback",
]
