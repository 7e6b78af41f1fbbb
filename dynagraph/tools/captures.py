"""Capture the functions of a file for the tools: by a call with example arguments, or by running the file."""

from __future__ import annotations

import ast
import contextlib
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FunctionType
from typing import Any

import click

from dynagraph import api
from dynagraph._core._dispatch import CompiledFunction
from dynagraph.driver.attempts import Program
from dynagraph.errors import DynagraphError
from dynagraph.tools.targets import (
    Target,
    arguments_from_expression,
    arguments_from_shapes,
    example_arguments,
    find_function,
    load_module,
    run_script,
)

NEVER_CALLED = "it was never called, or only by compiled functions, whose programs it is part of"
NOT_FOLLOWED = "what comes after a break is captured when a call gets there: --run runs the call, and shows the breaks after it"
_OFFERS = frozenset({"example_inputs", "EXAMPLE_INPUTS"})


@dataclass
class Captures:
    """What is known of one compiled function: its programs, and why calls ran eagerly, with counts."""

    name: str
    function: Any  # the plain one
    programs: list[Program] = field(default_factory=list)
    breaks: dict[str, int] = field(default_factory=dict)
    counters: str = ""  # of a function that a script called: hits, misses...

    @property
    def never_called(self) -> bool:
        return not self.programs and not self.breaks


def captures_of(target: Target, expression: str | None, shapes: str | None,
                script_arguments: tuple[str, ...], runs: bool = False) -> list[Captures]:
    """The captures that a command shows.

    ``FILE.py:FUNC`` with arguments, given or offered by the file: one capture of that call, which is run only if `runs`. Else the
    file runs as a script, and what its compiled functions captured meanwhile is collected. Raises click's errors, which
    say what is missing, where there is nothing to show.
    """
    if expression is not None and shapes is not None:
        raise click.UsageError("--args and --shapes both say what to call the function with: give one of them")
    asked = expression is not None or shapes is not None
    if target.function is None and asked:
        raise click.UsageError("--args and --shapes are arguments of one function: give FILE.py:FUNC")
    if target.function is not None and (asked or offers_arguments(target.path)):
        found = _capture_call(target, expression, shapes, runs)
        if found is not None:
            return [found]
    return _capture_script(target, script_arguments)


def offers_arguments(path: Path) -> bool:
    """Whether a file mentions example arguments, found out without running it."""
    try:
        tree = ast.parse(path.read_text(), str(path))
    except SyntaxError as error:
        raise click.ClickException(f"{path}, line {error.lineno}: {error.msg}") from None
    return any(name in _OFFERS for name in _names(tree))


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.FunctionDef):
            yield node.name


# -- one call ---------------------------------------------------------------------------------------------------------
def _capture_call(target: Target, expression: str | None, shapes: str | None, runs: bool) -> Captures | None:
    namespace = vars(load_module(target.path))
    function = find_function(namespace, target)
    arguments: tuple[Any, ...] | None
    if expression is not None:
        arguments = arguments_from_expression(expression, namespace)
    elif shapes is not None:
        arguments = arguments_from_shapes(shapes)
    else:
        arguments = example_arguments(function, str(target.function), namespace)
    if arguments is None:
        return None
    return (run_call if runs else capture_call)(str(target.function), function, arguments)


def capture_call(name: str, function: Any, arguments: tuple[Any, ...]) -> Captures:
    """One capture, which runs nothing of the function for effect."""
    _check_fit(name, plain(function), arguments)
    try:
        explanation = api.explain(function)(*arguments)
    except (DynagraphError, TypeError) as error:
        raise click.ClickException(f"{name}: {error}") from error
    found = Captures(name, plain(function))
    if explanation.program is not None:
        found.programs.append(explanation.program)
        if explanation.program.captured.stop is not None:
            found.breaks[explanation.program.captured.stop.line] = 1
    if explanation.reason is not None:
        found.breaks[explanation.reason] = 1
    return found


def run_call(name: str, function: Any, arguments: tuple[Any, ...]) -> Captures:
    """What a call that is run captures: the parts after breaks, too."""
    _check_fit(name, plain(function), arguments)
    compiled = function if isinstance(function, CompiledFunction) else api.compile(function, mode="max")
    try:
        with contextlib.redirect_stdout(sys.stderr):
            compiled(*arguments)
    except Exception as error:
        raise click.ClickException(f"{name} raised {type(error).__name__}: {error}") from error
    return replace(_captures(compiled), name=name)


def _check_fit(name: str, function: Any, arguments: tuple[Any, ...]) -> None:
    if isinstance(function, FunctionType):
        signature = inspect.signature(function)
        try:
            signature.bind(*arguments)
        except TypeError as error:
            raise click.ClickException(f"{name}: {error}; it takes {signature}, and was given {len(arguments)}") from None


def plain(function: Any) -> Any:
    """The Python function of a compiled one."""
    return getattr(function, "__wrapped__", function)


# -- a script ---------------------------------------------------------------------------------------------------------
def _capture_script(target: Target, arguments: tuple[str, ...]) -> list[Captures]:
    with api.collecting() as compiled:
        namespace = run_script(target.path, arguments)
    found = [_captures(c) for c in compiled]
    if target.function is None:
        if not found:
            raise click.ClickException(f"{target.path} compiles no function; decorate one with @dynagraph.compile, "
                                       "or give FILE.py:FUNC with --args or --shapes")
        return found
    mine = [c for c in found if c.name in (target.function, f"{target.function}.__wrapped__")]
    if not mine:
        function = find_function(namespace, target)  # says so where there is none
        assert function is not None
        raise click.ClickException(f"{target}: it is not decorated with @dynagraph.compile, so running the file "
                                   "captured nothing; give --args or --shapes to capture a call of it")
    if not any(c.programs or c.breaks for c in mine):
        raise click.ClickException(f"{target}: running the file did not call it; give --args or --shapes, "
                                   "or define EXAMPLE_INPUTS in the file")
    return mine


def _captures(compiled: Any) -> Captures:
    stats = compiled.stats
    breaks = dict(stats.breaks)
    if stats.last_error is not None:
        error = stats.last_error
        breaks[f"the compiler failed with {type(error).__name__}: {error}"] = stats.fallbacks
    counters = repr(stats).strip("<>")
    return Captures(compiled.__qualname__, compiled.__wrapped__, list(compiled.programs), breaks, counters)


__all__ = ["Captures", "capture_call", "captures_of", "offers_arguments"]
