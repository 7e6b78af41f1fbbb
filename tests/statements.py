"""Trees of statements that random programs are made of: how they render, and how a failing program is made smaller.

A program is a dataclass with a `body` and a `source`.  `reduced` deletes statements, or replaces compound ones with one of their
bodies, as long as the program fails.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

P = TypeVar("P", bound=Any)


@dataclass
class Statement:
    """A line, or a compound statement: headers, each with its body."""

    text: str = ""
    arms: list[tuple[str, list["Statement"]]] = field(default_factory=list)
    ends_loop: bool = False  # a loop around it would not end without it

    def lines(self, indent: int) -> Iterator[str]:
        margin = "    " * indent
        for line in self.text.splitlines():
            yield margin + line
        for header, body in self.arms:
            yield margin + header
            yield from rendered(body, indent + 1)


def rendered(body: list[Statement], indent: int) -> list[str]:
    return [line for statement in body for line in statement.lines(indent)] or ["    " * indent + "pass"]


def every(body: list[Statement]) -> Iterator[Statement]:
    """All statements, those within others too."""
    for statement in body:
        yield statement
        for _, inner in statement.arms:
            yield from every(inner)


class Hang(BaseException):
    """A call that goes on for too long."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    def hung(signum: int, frame: Any) -> None:
        raise Hang(f"more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, hung)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# -- making one smaller ------------------------------------------------------------------------------------------------------------


def reduced(
    program: P, fails: Callable[[P], bool], seconds: float = 20.0, simpler: Callable[[P], Iterable[P]] = lambda program: ()
) -> P:
    """The program with fewer statements, as long as it fails; `simpler` gives other programs that are worth a try."""
    end = time.monotonic() + seconds
    progress = True
    while progress:
        progress = False
        for smaller in itertools.chain(candidates(program), simpler(program)):
            if time.monotonic() > end:
                return program
            try:
                compile(smaller.source, "<smaller>", "exec")
            except SyntaxError:
                continue
            if fails(smaller):
                program, progress = smaller, True
                break
    return program


def candidates(program: P) -> Iterator[P]:
    for count in (8, 4, 2):  # runs of statements at the top first
        for start in range(0, len(program.body) - count + 1, max(1, count // 2)):
            yield dataclasses.replace(program, body=program.body[:start] + program.body[start + count :])
    for path in paths(program.body):
        for new in replacements(lookup(program.body, path)):
            body = copy.deepcopy(program.body)
            inner, index = parent(body, path)
            inner[index : index + 1] = copy.deepcopy(new)
            yield dataclasses.replace(program, body=body)


def replacements(statement: Statement) -> Iterator[list[Statement]]:
    if statement.ends_loop:
        return
    yield []
    for number, (_, body) in enumerate(statement.arms):
        yield body
        if len(statement.arms) > 1:
            yield [Statement(statement.text, statement.arms[:number] + statement.arms[number + 1 :])]


Path = tuple[tuple[int, int], ...]  # (statement, arm) down to the last, whose arm does not matter


def paths(body: list[Statement], prefix: Path = ()) -> Iterator[Path]:
    for index in reversed(range(len(body))):
        yield (*prefix, (index, 0))
        for number, (_, inner) in enumerate(body[index].arms):
            yield from paths(inner, (*prefix, (index, number)))


def parent(body: list[Statement], path: Path) -> tuple[list[Statement], int]:
    for index, arm in path[:-1]:
        body = body[index].arms[arm][1]
    return body, path[-1][0]


def lookup(body: list[Statement], path: Path) -> Statement:
    inner, index = parent(body, path)
    return inner[index]
