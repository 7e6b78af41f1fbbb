"""What attempts to compile a loop find out of its lists, by where these are made: the next attempt begins with it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dynagraph.frontend.loops import unions
from dynagraph.frontend.loops.builder import Restart
from dynagraph.frontend.loops.types import List, Tuple, Type


class Settled(Restart):
    """The type of the items of a list that was made, or given, empty."""

    def __init__(self, site: Any, item: Type):
        super().__init__([(site, item)])


class Sites(dict[Any, Type]):
    """The types of the items of lists that are empty at first, or hold several, by where they are made.

    `widens`: those that are put into a list of others are added to its types.  `first`: what was put into each at first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.widens = True
        self.first: dict[Any, Type] = {}

    def learn(self, found: Iterable[tuple[Any, Type]]) -> None:
        """What one attempt to compile the loop has found, of the first list: others may hold what is made of its items."""
        (site, kind), *others = found
        self.first.setdefault(site, kind)
        for item in (item for other, item in others if other == site):
            kind = unions.common(kind, item) or kind
        self[site] = kind

    def narrowed(self) -> bool:
        """Whether there were several types, of which all but the first are now left to Python."""
        wide = self.widens and any(map(unions.is_mixed, self.values()))
        if wide:
            self.clear()
            self.update({site: kind for site, kind in self.first.items() if not _holds_mixed(kind)})
            self.widens = False
        return wide

    def forget_values(self) -> None:
        """Keep what is known of places in the code alone: another attempt has other values."""
        for known in (self, self.first):
            for site in [site for site in known if not isinstance(site[0], tuple)]:
                del known[site]


def _holds_mixed(kind: Type | None) -> bool:
    parts = kind.items if isinstance(kind, Tuple) else (kind.item,) if isinstance(kind, List) else ()
    return kind is not None and (unions.is_mixed(kind) or any(map(_holds_mixed, parts)))


class Stays(Exception):
    """Whether a list that was given stays Python's: the loop is compiled again."""

    def __init__(self, site: Any, stays: bool):
        self.site, self.stays = site, stays
