"""Minimum-cost labeling: give each item one of several labels, by minimum cuts over item costs and crossing costs.

The combinatorial half of `place`; knows nothing of graphs and devices.  Costs are whole numbers, so that sums are exact and equal
costs are equal.
"""

from __future__ import annotations

import importlib
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

EXACT_ITEMS = 12  # with three labels or more all assignments of up to this many free items are searched

Labels = tuple[int, ...]


@dataclass(frozen=True)
class Value:
    """What one item makes and others use: made at p, it pays ``costs[p][d]`` once for each other label d of its consumers."""

    source: int
    consumers: tuple[int, ...]
    costs: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Problem:
    """``costs[item][label]``; None: never there.  Every item has a label that it can take; all costs are at least 0."""

    costs: tuple[tuple[int | None, ...], ...]
    values: tuple[Value, ...] = ()

    @property
    def n_labels(self) -> int:
        return len(self.costs[0]) if self.costs else 0

    def possible(self, item: int) -> list[int]:
        """The labels that an item can take."""
        return [label for label, cost in enumerate(self.costs[item]) if cost is not None]

    @property
    def free(self) -> list[int]:
        """The items that have a choice."""
        return [item for item in range(len(self.costs)) if len(self.possible(item)) > 1]

    def cost(self, labels: Sequence[int]) -> int | None:
        """What an assignment costs; None where it is not possible."""
        total = 0
        for cost, label in zip(self.costs, labels):
            there = cost[label]
            if there is None:
                return None
            total += there
        return total + sum(self.values[k].costs[labels[self.values[k].source]][d] for k, d in crossings(self, labels))


def crossings(problem: Problem, labels: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The numbers of the values that an assignment carries to other labels, each with one of these; in order."""
    for number, value in enumerate(problem.values):
        wanted = {labels[c] for c in value.consumers} - {labels[value.source]}
        for label in sorted(wanted):
            yield number, label


def assign(problem: Problem, exact_items: int = EXACT_ITEMS) -> tuple[Labels, bool]:
    """The labels of the items, and whether no assignment costs less.

    Of equally cheap assignments the one with fewer crossings, then the one with smaller labels (their sum), is better.  With two
    labels one minimum cut finds the best of all.  With more, minimum cuts that let the items of two labels choose between these are
    made from several starts until none helps, which proves nothing; up to `exact_items` free items are searched by branch and
    bound.
    The same problem has the same answer always.

    >>> assign(Problem(((0, None), (5, 1)), (Value(0, (1,), ((0, 3), (3, 0))),)))
    ((0, 1), True)
    """
    if not problem.costs:
        return (), True
    weighted = _with_ties_broken(problem)
    if problem.n_labels <= 2:
        start = tuple(weighted.possible(item)[0] for item in range(len(weighted.costs)))
        return (start if problem.n_labels == 1 else _choose_between(weighted, start, 0, 1)), True
    found = [_improved(weighted, start) for start in _starts(weighted)]
    best = min(found, key=lambda labels: (_cost(weighted, labels), labels))
    if len(weighted.free) > exact_items:
        return best, False
    return _best_of_all(weighted, _cost(weighted, best)), True


def _cost(problem: Problem, labels: Labels) -> int:
    cost = problem.cost(labels)
    assert cost is not None  # no start is impossible, and no step leads there
    return cost


def _with_ties_broken(problem: Problem) -> Problem:
    """The problem whose costs hold the number of crossings and the sum of labels in their lowest places."""
    others = max(1, problem.n_labels - 1)
    crossing = len(problem.costs) * others + 1
    unit = crossing * (len(problem.values) * others + 1)
    costs = tuple(tuple(None if c is None else c * unit + label for label, c in enumerate(row)) for row in problem.costs)
    values = tuple(replace(v, costs=tuple(tuple(c * unit + crossing for c in row) for row in v.costs)) for v in problem.values)
    return Problem(costs, values)


# -- two labels: a minimum cut ----------------------------------------------------------------------------------------------------


class _Network:
    """Capacities between vertices; None: without limit.  Edges between the same two add up."""

    def __init__(self) -> None:
        self.edges: dict[tuple[Hashable, Hashable], int | None] = {}

    def add(self, tail: Hashable, head: Hashable, capacity: int | None) -> None:
        known = self.edges.get((tail, head), 0)
        self.edges[tail, head] = None if capacity is None or known is None else known + capacity

    def cut(self, source: Hashable, sink: Hashable) -> set[Hashable]:
        """The vertices on the source's side of a minimum cut: the largest such set, whatever way it is found."""
        networkx = importlib.import_module("networkx")  # takes longer to import than all of this package
        flow = networkx.DiGraph()
        flow.add_nodes_from((source, sink))
        for (tail, head), capacity in self.edges.items():
            if capacity != 0:
                flow.add_edge(tail, head, **({} if capacity is None else {"capacity": capacity}))
        _, (near, _) = networkx.minimum_cut(flow, source, sink, flow_func=networkx.algorithms.flow.shortest_augmenting_path)
        return set(near)


def _choose_between(problem: Problem, labels: Labels, first: int, second: int) -> Labels:
    """The best that items with either label can do by choosing between the two; the others keep theirs.

    A cut has those with the first label on the source's side.  For a value that several items use at the same label a vertex of its
    own is on their side as soon as one is, by edges without limit, so that the value pays once.
    """
    movable = {item for item, label in enumerate(labels) if label in (first, second)}
    if not any(len(problem.possible(item)) > 1 for item in movable):
        return labels
    network = _Network()
    at_first = {item: problem.costs[item][first] for item in movable}
    at_second = {item: problem.costs[item][second] for item in movable}
    for number, value in enumerate(problem.values):
        users = [item for item in dict.fromkeys(value.consumers) if item in movable and item != value.source]
        if value.source in movable:
            for label in {labels[c] for c in value.consumers} - {first, second}:
                at_first[value.source] = _plus(at_first[value.source], value.costs[first][label])
                at_second[value.source] = _plus(at_second[value.source], value.costs[second][label])
            tail: Hashable = value.source
            head: Hashable = value.source
            there, back = value.costs[first][second], value.costs[second][first]
        else:
            tail, head = "source", "sink"
            there, back = value.costs[labels[value.source]][second], value.costs[labels[value.source]][first]
        if len(users) == 1:
            network.add(tail, users[0], there)
            network.add(users[0], head, back)
        elif users:
            network.add(tail, (number, "at second"), there)
            network.add((number, "at first"), head, back)
            for user in users:
                network.add((number, "at second"), user, None)
                network.add(user, (number, "at first"), None)
    for item in sorted(movable):
        network.add("source", item, at_second[item])
        network.add(item, "sink", at_first[item])
    near = network.cut("source", "sink")
    return tuple((first if item in near else second) if item in movable else label for item, label in enumerate(labels))


def _plus(cost: int | None, more: int) -> int | None:
    return None if cost is None else cost + more


# -- more labels ------------------------------------------------------------------------------------------------------------------


def _starts(problem: Problem) -> Iterable[Labels]:
    """For each label all that can be there, the rest where it costs least; and all where they cost least."""
    cheapest = tuple(min(problem.possible(item), key=lambda d, row=row: row[d]) for item, row in enumerate(problem.costs))  # type: ignore[misc]
    together = [
        tuple(label if row[label] is not None else cheapest[item] for item, row in enumerate(problem.costs))
        for label in range(problem.n_labels)
    ]
    return dict.fromkeys([*together, cheapest])


def _improved(problem: Problem, labels: Labels) -> Labels:
    """Let the items of each two labels choose between these until that helps no more."""
    pairs = list(combinations(range(problem.n_labels), 2))
    cost, idle = _cost(problem, labels), 0
    while idle < len(pairs):
        for first, second in pairs:
            changed = _choose_between(problem, labels, first, second)
            changed_cost = _cost(problem, changed)
            idle = 0 if changed_cost < cost else idle + 1
            if changed_cost < cost:
                labels, cost = changed, changed_cost
            if idle == len(pairs):
                break
    return labels


def _best_of_all(problem: Problem, known: int) -> Labels:
    """The best assignment by branch and bound, the first in order of labels among equals; one that costs `known` exists."""
    return _Search(problem, known).run()


class _Search:
    def __init__(self, problem: Problem, known: int):
        self.problem = problem
        self.least = known + 1  # what is looked for costs less
        self.labels = [row[0] if len(row) == 1 else -1 for row in map(problem.possible, range(len(problem.costs)))]
        self.best: Labels = ()
        self.order = problem.free
        self.made: list[list[Value]] = [[] for _ in problem.costs]
        self.used: list[list[Value]] = [[] for _ in problem.costs]
        for value in problem.values:
            self.made[value.source].append(value)
            for consumer in set(value.consumers) - {value.source}:
                self.used[consumer].append(value)
        self.ahead = [0]  # the least that the items from a position on cost by themselves
        for item in reversed(self.order):
            self.ahead.append(self.ahead[-1] + min(c for c in problem.costs[item] if c is not None))
        self.ahead.reverse()

    def run(self) -> Labels:
        fixed, self.labels = self.labels, [-1] * len(self.labels)
        settled = 0
        for item, label in enumerate(fixed):
            if label >= 0:
                settled += self._added(item, label)
                self.labels[item] = label
        self._branch(0, settled)
        return self.best

    def _branch(self, position: int, cost: int) -> None:
        if position == len(self.order):
            self.best, self.least = tuple(self.labels), cost
            return
        item = self.order[position]
        for label in self.problem.possible(item):
            total = cost + self._added(item, label)
            if total + self.ahead[position + 1] < self.least:
                self.labels[item] = label
                self._branch(position + 1, total)
                self.labels[item] = -1

    def _added(self, item: int, label: int) -> int:
        """What an item with a label costs, with the crossings between it and the items that have theirs."""
        labels = self.labels
        own = self.problem.costs[item][label]
        assert own is not None
        total = own
        for value in self.made[item]:
            total += sum(value.costs[label][d] for d in {labels[c] for c in value.consumers} - {label, -1})
        for value in self.used[item]:
            source = labels[value.source]
            if source not in (-1, label) and all(labels[c] != label for c in value.consumers):
                total += value.costs[source][label]
        return total


__all__ = ["EXACT_ITEMS", "Problem", "Value", "assign", "crossings"]
