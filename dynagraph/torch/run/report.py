"""What the launcher prints: what failed, and what it does about it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dynagraph.torch.run.failures import Failure

PREFIX = "dynagraph.torch.run:"


def name_of(failure: Failure) -> str:
    """Who failed and how, in a line."""
    who = failure.starter if failure.rank is None else f"rank {failure.rank} (pid {failure.pid} on {failure.host})"
    return f"{who}: {failure.text.splitlines()[0] if failure.text else failure.kind.value}"


def say(text: str) -> None:
    """A line of the launcher's own among the ranks' output."""
    Console(stderr=True, soft_wrap=True).print(f"{PREFIX} {text}", markup=False, highlight=False)


def print_failures(script: str, failures: Sequence[Failure]) -> None:
    """The table of all attempts' failures, and the details of the last attempt's first, which is the cause of the others."""
    console = Console(stderr=True)
    table = Table(title=f"{script} failed", title_justify="left")
    for column in ("attempt", "rank", "host", "pid", "what happened", "after"):
        table.add_column(column, justify="right" if column in ("attempt", "rank", "pid", "after") else "left")
    last = [failure for failure in failures if failure.attempt == failures[-1].attempt]
    for failure in failures:
        is_cause = failure is next(each for each in failures if each.attempt == failure.attempt)
        table.add_row(
            str(failure.attempt), "" if failure.rank is None else str(failure.rank), failure.host,
            "" if failure.pid is None else str(failure.pid), escape(failure.text), f"{failure.after:.1f} s",
            style="bold" if is_cause else "dim",
        )  # fmt: skip
    console.print(table)
    cause = last[0]
    say(f"the cause: {name_of(cause)}")
    if cause.details:
        Console(stderr=True, soft_wrap=True).print(cause.details.rstrip(), markup=False, highlight=False)


__all__ = ["name_of", "print_failures", "say"]
