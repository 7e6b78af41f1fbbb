"""Rows of the contract that do not reach their class yet, each with the class that it does reach, and why.

The answers are right all the same: a row here runs in parts, or eagerly, where one graph is asked.  A row that does better, or worse, than
what stands here fails.
"""

from __future__ import annotations

from typing import NamedTuple


class Shortfall(NamedTuple):
    reached: str
    why: str


IN_PLACE = "writes into arrays break the graph: they come with views and aliasing"
INDICES = "indexing by arrays of integers is done by NumPy, between two graphs"

SHORT: dict[str, Shortfall] = {}
