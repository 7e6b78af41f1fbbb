"""Rows of the contract that do not reach their class yet, each with the class that it does reach, and why.

The answers are right all the same: a row here runs in parts, or eagerly, where one graph is asked.  A row that does better, or
worse, than what stands here fails.
"""

from __future__ import annotations

from typing import NamedTuple


class Shortfall(NamedTuple):
    reached: str
    why: str


OVERLAP = "arrays that overlap, or lie between one another, are written by NumPy itself"
VALUES = "a size, a position or a branch that an array's value decides is Python's business"

SHORT: dict[str, Shortfall] = {
    "arrays.overlapping_views_of_one_base": Shortfall("E", OVERLAP),
    "arrays.overlapping_views_without_their_base": Shortfall("B", OVERLAP),
    "arrays.views_of_one_base_that_do_not_overlap": Shortfall("E", OVERLAP),
    "arrays.scalar_arguments_of_numpy_types": Shortfall("B", VALUES),
    "arrays.scalar_arguments_as_sizes_and_indices": Shortfall("B", VALUES),
    "exceptions.the_finally_of_a_callee_that_raises_breaks": Shortfall("E", "an exception that no captured code handles ends it"),
    "globals.global_function_and_class": Shortfall("B", "pathlib runs as it is"),
}
