"""`dynagraph bench`: eager against compiled, side by side, in one process."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from dynagraph import api
from dynagraph._core._dispatch import CompiledFunction
from dynagraph.errors import DynagraphError
from dynagraph.ir import dtypes
from dynagraph.tools.measure import Samples, measure, seconds_of
from dynagraph.tools.targets import (
    Target,
    arguments_from_expression,
    arguments_from_shapes,
    example_arguments,
    find_function,
    load_module,
    parse_target,
)
from dynagraph.tools.workloads import SUITE

QUICK = 0.05  # size factor of --quick


@dataclass(frozen=True)
class Case:
    """What is measured: a compiled function beside the plain one, on the same arguments."""

    name: str
    eager: Callable[..., Any]
    compiled: CompiledFunction
    arguments: tuple[Any, ...]
    flops: int | None = None


@dataclass(frozen=True)
class Result:
    """The figures of one case; seconds of one call."""

    name: str
    eager: Samples
    compiled: Samples
    first_call: float
    nbytes: int
    flops: int | None
    eager_because: str | None  # why the compiled function ran eagerly
    difference: float

    @property
    def ratio(self) -> float:
        return self.eager.median / self.compiled.median

    @property
    def rate(self) -> tuple[float, str]:
        """What the compiled function gets done: arithmetic where that was counted, else compulsory memory traffic."""
        if self.flops is not None:
            return self.flops / self.compiled.median / 1e9, "GFLOP/s"
        return self.nbytes / self.compiled.median / 1e9, "GB/s"

    def as_dict(self) -> dict[str, Any]:
        value, unit = self.rate
        return {
            "name": self.name,
            "eager": {"median_s": self.eager.median, "spread": self.eager.spread},
            "compiled": {"median_s": self.compiled.median, "spread": self.compiled.spread},
            "first_call_s": self.first_call,
            "ratio": self.ratio,
            "rate": value,
            "rate_unit": unit,
            "nbytes": self.nbytes,
            "ran_eagerly_because": self.eager_because,
            "max_relative_difference": self.difference,
        }


@click.command()
@click.argument("target", required=False, metavar="[FILE.py[:FUNC]]")
@click.option("--args", "expression", help="Arguments of FUNC as a Python expression, such as 'np.ones((3, 4)), 2.0'.")
@click.option("--shapes", help="Arguments of FUNC as shapes, such as 'f32[3,4] f64[10] 2.0'.")
@click.option("--rounds", default=15, show_default=True, type=click.IntRange(min=2), help="Samples of each contender.")
@click.option("--quick", is_flag=True, help="Small arrays: checks that everything runs; the figures mean little.")
@click.option("--only", metavar="TEXT", help="Only workloads whose name contains TEXT.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--plot", type=click.Path(dir_okay=False, writable=True, path_type=Path), metavar="OUT.png",
              help="Draw a bar chart (PNG, SVG or PDF).")
def bench(target: str | None, expression: str | None, shapes: str | None, rounds: int, quick: bool, only: str | None,
          as_json: bool, plot: Path | None) -> None:
    """Measure eager against compiled: the built-in suite, the compiled functions of FILE.py, or one of them.

    A file offers arguments for its functions as FUNC.example_inputs, EXAMPLE_INPUTS or example_inputs(): tuples of
    arguments, or a dict from names of functions to such tuples. Figures are medians of samples taken in turn; the
    spread is the middle half of the samples over the median.
    """
    if plot is not None:
        require_matplotlib()
    if target is None and (expression or shapes):
        raise click.UsageError("--args and --shapes are arguments of one function: give FILE.py:FUNC")
    if target is None:
        cases = suite_cases(QUICK if quick else 1.0)
    else:
        cases = file_cases(parse_target(target), expression, shapes)
    cases = [case for case in cases if only is None or only.lower() in case.name.lower()]
    if not cases:
        raise click.UsageError(f"no workload has {only!r} in its name")
    results = run_cases(cases, rounds)
    if as_json:
        click.echo(json.dumps({"machine": machine(), "results": [r.as_dict() for r in results]}, indent=2))
    else:
        print_table(results)
    if plot is not None:
        draw(results, plot)
        click.echo(f"wrote {plot}", err=True)


# -- what to measure ---------------------------------------------------------------------------------------------------
def suite_cases(factor: float) -> list[Case]:
    """The built-in suite."""
    cases = []
    for workload in SUITE:
        arguments = workload.inputs(factor)
        flops = workload.flops(arguments) if workload.flops else None
        cases.append(Case(workload.name, workload.function, api.compile(workload.function), arguments, flops))
    return cases


def file_cases(target: Target, expression: str | None, shapes: str | None) -> list[Case]:
    """The compiled functions of a file for which there are arguments; those without are named on stderr."""
    namespace = vars(load_module(target.path))
    if target.function is not None:
        function = find_function(namespace, target)
        compiled = function if is_compiled(function) else api.compile(function)
        return [_case(target.function, compiled, _arguments(target, function, expression, shapes, namespace))]
    if expression or shapes:
        raise click.UsageError("--args and --shapes are arguments of one function: give FILE.py:FUNC")
    functions = {name: f for name, f in namespace.items() if is_compiled(f)}
    if not functions:
        raise click.UsageError(f"{target.path} defines no function decorated with @dynagraph.compile")
    arguments = {name: example_arguments(f, name, namespace) for name, f in functions.items()}
    for name in (name for name, given in arguments.items() if given is None):
        cure = f"EXAMPLE_INPUTS = {{{name!r}: (...)}}"
        click.echo(f"{name}: left out, for {target.path} offers no arguments for it; add {cure}", err=True)
    cases = [_case(name, functions[name], given) for name, given in arguments.items() if given is not None]
    if not cases:
        raise click.UsageError(f"{target.path} offers no arguments for any of {', '.join(functions)}; "
                               "add EXAMPLE_INPUTS = {'name': (...)}, or give FILE.py:FUNC with --args or --shapes")
    return cases


def is_compiled(function: Any) -> bool:
    return isinstance(function, CompiledFunction)


def _case(name: str, compiled: Any, arguments: tuple[Any, ...]) -> Case:
    return Case(name, compiled.__wrapped__, compiled, arguments)


def _arguments(target: Target, function: Any, expression: str | None, shapes: str | None,
               namespace: dict[str, Any]) -> tuple[Any, ...]:
    if expression:
        return arguments_from_expression(expression, namespace)
    if shapes:
        return arguments_from_shapes(shapes)
    given = example_arguments(function, str(target.function), namespace)
    if given is None:
        raise click.UsageError(f"{target}: no arguments to call it with; give --args or --shapes, "
                               "or define EXAMPLE_INPUTS in the file")
    return given


# -- measuring ---------------------------------------------------------------------------------------------------------
def run_cases(cases: list[Case], rounds: int) -> list[Result]:
    """Measure every case, showing progress on a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=len(cases) * rounds)
        results = []
        for case in cases:
            progress.update(task, description=case.name)
            results.append(run_case(case, rounds, lambda: progress.advance(task)))
    return results


def run_case(case: Case, rounds: int, after_round: Callable[[], None] = lambda: None) -> Result:
    """Compile, compare with the plain function, then time both in turn."""
    with np.errstate(all="ignore"):
        try:
            expected = case.eager(*case.arguments)
            first_call = seconds_of(lambda: case.compiled(*case.arguments))
            difference = largest_difference(case.name, case.compiled(*case.arguments), expected)
        except DynagraphError:
            raise
        except Exception as error:
            raise click.ClickException(f"{case.name}: the call raised {type(error).__name__}: {error}") from error
        contenders = {"eager": lambda: case.eager(*case.arguments), "compiled": lambda: case.compiled(*case.arguments)}
        samples = measure(contenders, rounds, after_round)
    nbytes = sum(a.nbytes for a in (*arrays_in(case.arguments), *arrays_in(expected)))
    return Result(case.name, samples["eager"], samples["compiled"], first_call, nbytes, case.flops,
                  why_eager(case.compiled.stats), difference)


def why_eager(stats: Any) -> str | None:
    """The first line of a reason why calls ran eagerly; None where none did."""
    if stats.last_error is not None:
        return f"the compiler failed with {type(stats.last_error).__name__}: {stats.last_error}"
    return next((str(reason).splitlines()[0] for reason in stats.breaks), None)


def arrays_in(value: Any) -> Iterable[np.ndarray]:
    """The arrays of nested tuples, lists and dicts."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from arrays_in(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from arrays_in(item)


def largest_difference(name: str, got: Any, expected: Any) -> float:
    """The largest difference of the results, relative to the largest value; an error where they do not agree."""
    ours, theirs = _values(got), _values(expected)
    if [(a.shape, a.dtype) for a in ours] != [(a.shape, a.dtype) for a in theirs]:
        raise click.ClickException(f"{name}: the compiled function gave other shapes or dtypes than the plain one")
    worst = 0.0
    for a, b in zip(ours, theirs):
        known = dtypes.from_numpy(b.dtype)
        is_float = known is not None and known.is_float
        both = np.isfinite(a) & np.isfinite(b) if is_float else np.ones(b.shape, bool)
        scale = float(np.abs(b[both].astype(float)).max(initial=0.0)) or 1.0
        difference = float(np.abs(a[both].astype(float) - b[both].astype(float)).max(initial=0.0)) / scale
        epsilon = 2.0**-7 if known is dtypes.bfloat16 else np.finfo(b.dtype).eps if is_float else 0.0
        tolerance = 1e3 * float(epsilon)
        if difference > tolerance or not np.array_equal(np.isnan(a), np.isnan(b)):
            raise click.ClickException(f"{name}: compiled and plain results differ by {difference:.1e} of the largest")
        worst = max(worst, difference)
    return worst


def _values(value: Any) -> list[np.ndarray]:
    if isinstance(value, dict):
        return [a for item in value.values() for a in _values(item)]
    if isinstance(value, (tuple, list)):
        return [a for item in value for a in _values(item)]
    return [] if value is None else [np.asarray(value)]


# -- showing -----------------------------------------------------------------------------------------------------------
def machine() -> dict[str, Any]:
    processor = platform.processor() or platform.machine()
    versions = {"python": platform.python_version(), "numpy": np.__version__}
    return {**versions, "processor": processor, "system": platform.system()}


def print_table(results: list[Result]) -> None:
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}"
    table = Table(title=f"eager against compiled ({versions})", title_justify="left")
    table.add_column("workload", overflow="fold")
    for name in ("eager", "spread", "compiled", "spread", "ratio", "rate", "first call"):
        table.add_column(name, justify="right", no_wrap=True)
    for r in results:
        value, unit = r.rate
        table.add_row(
            r.name, duration(r.eager.median), f"±{r.eager.spread:.0%}", duration(r.compiled.median),
            f"±{r.compiled.spread:.0%}", f"{r.ratio:.2f}x", f"{value:.3g} {unit}", duration(r.first_call),
            style="red" if r.eager_because else None,
        )
    console = Console(width=None if Console().is_terminal else 140)
    console.print(table)
    for r in (r for r in results if r.eager_because):
        console.print(f"{r.name} ran eagerly: {r.eager_because}", style="red", markup=False)


def duration(seconds: float) -> str:
    """Seconds in the unit that reads best.

    >>> duration(0.00123)
    '1.23 ms'
    """
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds / 1e-9:.0f} ns"


def require_matplotlib() -> None:
    """Raises before anything is measured where the plot could not be drawn."""
    try:
        import matplotlib  # noqa: F401  # an optional extra: `pip install dynagraph[plot]`
    except ImportError:
        raise click.ClickException("--plot needs matplotlib, which is not installed; "
                                   "pip install 'dynagraph[plot]'") from None


def draw(results: list[Result], path: Path) -> None:
    """Bars of the ratio eager / compiled, one per workload."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # an optional extra, checked by require_matplotlib
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 0.45 * len(results) + 1.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    names, ratios = [r.name for r in reversed(results)], [r.ratio for r in reversed(results)]
    bars = axes.barh(names, ratios, color=["#2a7ab8" if ratio >= 1 else "#c0504d" for ratio in ratios])
    axes.bar_label(bars, labels=[f"{ratio:.2f}x" for ratio in ratios], padding=3)
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xlabel("eager time / compiled time (more is better)")
    axes.margins(x=0.12)
    figure.savefig(path, dpi=150)


__all__ = ["Case", "Result", "bench", "draw", "duration", "is_compiled", "largest_difference", "run_case"]
