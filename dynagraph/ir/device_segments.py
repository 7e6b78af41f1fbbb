"""Segments of a placement: the order of its groups, and where one program ends and another begins.

Groups that follow each other on one device are one segment, one program.  The fewest programs are not always the fastest: devices
work at the same time, and a segment starts only when all that it reads is there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dynagraph.ir.graph import Node

if TYPE_CHECKING:
    from dynagraph.ir.placement import PlacedGroup, Placement

BEAM = 32  # ways of ordering that are followed where there are three devices or more
SEGMENT_SECONDS = 10e-6  # what one more segment has to save: a program that is started from Python, and kernels that are not fused

Order = list[list[int]]  # the numbers of the groups of each segment


def best_order(placement: "Placement") -> Order:
    """The fewest segments, or each group as early as it can run, where that is worth more segments."""
    orders = [fewest_segments(placement.groups, placement.machine.names), earliest_starts(placement.groups)]
    return min(orders, key=lambda order: makespan(placement, order) + len(order) * SEGMENT_SECONDS)


def fewest_segments(groups: Sequence["PlacedGroup"], names: Sequence[str]) -> Order:
    """As few as possible with two devices; with more as few as a search of limited width finds.

    A device runs all that can run before it is left: one that is left later can only have run more.
    """
    needs = [sum(1 << k for k in found) for found in _needs(groups)]
    everything = (1 << len(groups)) - 1
    ways: dict[int, Order] = {0: []}  # by what has run
    while everything not in ways:
        longer: dict[int, Order] = {}
        for done, way in ways.items():
            for name in names:
                ran = _as_far_as_possible(groups, name, done, needs)
                if ran:
                    longer.setdefault(done | sum(1 << k for k in ran), [*way, ran])
        furthest = sorted(longer, key=lambda done: -done.bit_count())[:BEAM]
        ways = {done: longer[done] for k, done in enumerate(furthest) if all(done | other != other for other in furthest[:k])}
    return ways[everything]


def _as_far_as_possible(groups: Sequence["PlacedGroup"], name: str, done: int, needs: Sequence[int]) -> list[int]:
    ran = []
    for k, group in enumerate(groups):
        if group.device == name and not done >> k & 1 and needs[k] & done == needs[k]:
            ran.append(k)
            done |= 1 << k
    return ran


def earliest_starts(groups: Sequence["PlacedGroup"]) -> Order:
    """Segments by how often a value has to cross before: none waits for what only a later one of its device needs."""
    rounds: list[int] = []
    segments: dict[tuple[int, str], list[int]] = {}
    for k, (group, needs) in enumerate(zip(groups, _needs(groups))):
        rounds.append(max((rounds[n] + (groups[n].device != group.device) for n in needs), default=0))
        segments.setdefault((rounds[k], group.device), []).append(k)
    return [members for _, members in sorted(segments.items(), key=lambda pair: pair[0][0])]


def _needs(groups: Sequence["PlacedGroup"]) -> list[set[int]]:
    """For each group those whose values it uses."""
    home = {node: k for k, group in enumerate(groups) for node in group.nodes}
    return [{home[a] for n in group.nodes for a in n.args if a in home} - {k} for k, group in enumerate(groups)]


def makespan(placement: "Placement", order: Order, one_host: bool = False) -> float:
    """Predicted seconds until all is done, where devices and links work at the same time, each on one thing after another.

    one_host: all links of the host carry one thing after another together, as where one thread of it copies.
    """
    host = placement.machine.host
    there: dict[tuple[Node, str], float] = dict.fromkeys(placement.homes.items(), 0.0)
    free: defaultdict[object, float] = defaultdict(float)  # when a device or link has nothing to do

    def copy_all(nodes: Sequence[Node]) -> None:
        made = set(nodes)
        for copy in placement.copies:
            if copy.value in made:
                ends = copy.source, copy.destination
                link = "host" if one_host and host in ends else ends
                free[link] = max(free[link], there[copy.value, copy.source]) + copy.seconds
                there[copy.value, copy.destination] = free[link]

    copy_all(list(placement.homes))
    for numbers in order:
        groups = [placement.groups[k] for k in numbers]
        device, nodes = groups[0].device, [node for group in groups for node in group.nodes]
        read = {a for node in nodes for a in node.args} - {*nodes} - placement.everywhere
        start = max([free[device], *(there[a, device] for a in read)])
        free[device] = start + sum(group.seconds[device] for group in groups)
        there.update({(node, device): free[device] for node in nodes})
        copy_all(nodes)
    return max(free.values(), default=0.0)


__all__ = ["Order", "best_order", "earliest_starts", "fewest_segments", "makespan"]
