"""The compile budget: compiling may cost at most what plain calls have taken so far, plus an allowance.

Each decorated function has a ledger, and the process has one for all of them.  Work that would exceed what was earned ends at a
deadline (driver/deadline.py) and is put off until plain calls have earned twice as much as it was given, so that the attempts that
came to nothing stay a bounded part: the rule of who rents skis until he has paid the price of a pair.
"""

from __future__ import annotations

import types
import weakref
from dataclasses import dataclass

from dynagraph import config
from dynagraph._core._dispatch import Entry
from dynagraph.driver.failures import Kind

FUNCTIONS_WORTH = 20  # the allowance of the process, by that of one function: 10 s by 0.5 s
USABLE = 0.8  # of the allowance, and
SURE = 0.95  # of what was earned: the rest is for what ends late, and for looking whether it is time
LEAST = 0.02  # seconds with which it is worth to begin


@dataclass
class Ledger:
    """Seconds that went into compiling, and that plain calls took or would have taken; `share`: of config.compile_budget."""

    share: float = 1.0
    spent: float = 0.0
    earned: float = 0.0

    def left(self) -> float | None:
        """Seconds that compiling may take now; None: any."""
        if config.compile_budget is None:
            return None
        return USABLE * self.share * config.compile_budget + SURE * self.earned - self.spent


PROCESS = Ledger(FUNCTIONS_WORTH)
_of_code: dict[int, tuple["weakref.ref[types.CodeType]", Ledger]] = {}


def ledger_of(code: types.CodeType) -> Ledger:
    """One for all functions of a code: closures that are made, compiled and dropped again and again cost no more than one."""
    key = id(code)
    found = _of_code.get(key)
    if found is None:
        found = _of_code[key] = weakref.ref(code, lambda _: _of_code.pop(key, None)), Ledger()
    return found[1]


class Account:
    """One compiled function's way to its own ledger and to that of the process.  `limited`: whether they limit it."""

    def __init__(self, ledger: Ledger, limited: bool):
        self.ledger = ledger
        self.limited = limited
        self._earned = 0.0  # of what the function has earned, what the ledgers know

    def settle(self, earned: float) -> None:
        """`earned`: by this function since it was made."""
        more = max(0.0, earned - self._earned)  # entries that are dropped take theirs along
        self._earned = earned
        self.ledger.earned += more
        PROCESS.earned += more

    def spend(self, seconds: float) -> None:
        self.ledger.spent += seconds
        if self.limited:
            PROCESS.spent += seconds

    def left(self) -> float | None:
        """Seconds that compiling may take now; None: any."""
        own, all_together = self.ledger.left(), PROCESS.left()
        return min(own, all_together) if self.limited and own is not None and all_together is not None else None


class Needs:
    """What compiling one function is given, by types of arguments."""

    def __init__(self) -> None:
        self._seconds: dict[Kind, float] = {}
        self._latest: dict[Kind, Entry] = {}
        self._waiting: set[Kind] = set()

    def of(self, kind: Kind) -> float:
        return self._seconds.get(kind, LEAST)

    def wait(self, kind: Kind) -> bool:
        """It is put off; False: it was already."""
        was = kind in self._waiting
        self._waiting.add(kind)
        return not was

    def exceeded(self, kind: Kind, seconds: float) -> None:
        """An attempt ended at its deadline: the next one is given twice as much, so that all of them came to no more than that."""
        self._seconds[kind] = 2 * seconds
        self._waiting.discard(kind)

    def made(self, kind: Kind, entry: Entry, seconds: float) -> None:
        """A program was made.  Where the one before has served no call since, the next one has to be worth twice as much."""
        last = self._latest.get(kind)
        in_vain = last is not None and last.hits == 0
        self._seconds[kind] = max(2 * self.of(kind) if in_vain else 0.0, seconds)
        self._latest[kind] = entry
        self._waiting.discard(kind)


__all__ = ["LEAST", "PROCESS", "Account", "Ledger", "Needs", "ledger_of"]
