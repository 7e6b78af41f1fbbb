"""Split work across GPUs, if all is then done sooner.

Comes after `place`, whose model counts the seconds of all devices together: by it a second GPU as fast as the first never pays.
What follows makes the predicted time until all is done less, and leaves what the host does to the host.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, islice

from dynagraph.ir.device_segments import SEGMENT_SECONDS, earliest_starts, makespan
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.machine_model import Device, Machine
from dynagraph.ir.passes.place import place
from dynagraph.ir.placement import Placement

PAYS = 0.9  # of the predicted time: predictions are not so good that less than a tenth off it were worth another device
LEAST_SECONDS = 1e-3  # work that is done sooner is not worth it: each device costs launches and waits that the model does not know
MOST_GROUPS = 256  # of larger graphs nothing is moved: each attempt is predicted whole
MOST_ATTEMPTS = 400
ALIKE = 1.25  # times what the slowest link to the host carries the fastest may carry, of GPUs that count as alike


def place_and_share(graph: Graph, machine: Machine, home: str) -> Placement:
    """A placement of a graph whose arrays lie at `home`, results included, on as many GPUs as pays.

    GPUs that are alike are one to the cut, which is exact then: by its model a second one only adds copies.
    """
    fixed = {node: home if node.ndim else machine.host for node in graph.placeholders}
    outputs = [home] * len(graph.outputs)
    gpus = [d for d in machine.devices if d.kind == "cuda"]
    others = [d.name for d in machine.devices if d.kind != "cuda"]
    if len(gpus) < 2 or home not in others or not _are_alike(machine, gpus, others, ALIKE):
        return share(place(graph, machine, fixed, outputs))
    one = replace(gpus[0], memory=min(d.memory for d in gpus))
    kept = {*others, one.name}
    links = {pair: link for pair, link in machine.links.items() if kept.issuperset(pair)}
    placement = place(graph, Machine((*map(machine.device, others), one), links, machine.origin), fixed, outputs)
    groups = (
        replace(group, seconds={**group.seconds, **{d.name: group.seconds[one.name] for d in gpus}}) for group in placement.groups
    )
    exact = placement.exact and _are_alike(machine, gpus, others, 1.0)
    return share(replace(placement, machine=machine, groups=tuple(groups), exact=exact))


def _are_alike(machine: Machine, gpus: Sequence[Device], others: Sequence[str], ratio: float) -> bool:
    """Whether GPUs have the same numbers, but for their memory, and links to the host whose bandwidths differ by no more."""
    if any(replace(gpu, name="", memory=0.5) != replace(gpus[0], name="", memory=0.5) for gpu in gpus):
        return False
    for other in others:
        for pairs in ([(other, gpu.name) for gpu in gpus], [(gpu.name, other) for gpu in gpus]):
            rates = [machine.link(*pair).bandwidth for pair in pairs]
            if max(rates) > ratio * min(rates):
                return False
    return True


def share(placement: Placement) -> Placement:
    """The placement, or one with groups of GPUs on others of them that is predicted to be done much sooner.

    Groups are given to the GPU that would end them first, those after which most is to do earliest (Topcuoglu, Hariri, Wu: HEFT,
    2002), or parts that are joined by no result to one each; then groups and parts are moved as long as that helps.

    >>> from dynagraph.ir import dtypes, optable
    >>> from dynagraph.ir.graph import Graph, Meta
    >>> from dynagraph.ir.machine_model import on_paper
    >>> from dynagraph.ir.ops import OPS
    >>> from dynagraph.ir.passes.place import place
    >>> g = Graph()
    >>> xs = [g.placeholder(name, Meta(dtypes.float64, (8192, 8192))) for name in "xy"]
    >>> _ = g.output([g.call(OPS["matmul"], x, x) for x in xs])
    >>> placement = place(g, on_paper(count=2), outputs=["cpu", "cpu"])
    >>> [group.device for group in placement.groups], [group.device for group in share(placement).groups]
    (['cuda:0', 'cuda:0'], ['cuda:0', 'cuda:1'])
    """
    gpus = [d.name for d in placement.machine.devices if d.kind == "cuda"]
    on_gpus = [k for k, group in enumerate(placement.groups) if group.device in gpus]
    if len(gpus) < 2 or len(on_gpus) < 2 or len(placement.groups) > MOST_GROUPS or placement.makespan < LEAST_SECONDS:
        return placement
    return _Sharer(placement, gpus, on_gpus).run()


class _Sharer:
    def __init__(self, placement: Placement, gpus: list[str], movable: list[int]):
        self.placement, self.gpus, self.movable = placement, gpus, movable
        groups = placement.groups
        self.group_of = {node: k for k, group in enumerate(groups) for node in group.nodes}
        self.reads = [list(dict.fromkeys(a for n in group.nodes for a in n.args if self._is_read(a, k)))
                      for k, group in enumerate(groups)]  # fmt: skip

    def _is_read(self, value: Node, group: int) -> bool:
        return value not in self.placement.everywhere and self.group_of.get(value) != group

    def run(self) -> Placement:
        starts = [self.placement.with_groups_on(devices) for devices in (self._first_to_end(), self._parts_apart())]
        best = self._improved(min(self.placement, *starts, key=_seconds))
        if best is self.placement or _seconds(best) > PAYS * _seconds(self.placement):
            return self.placement
        return replace(best, unshared=self.placement.makespan)

    # -- a start ----------------------------------------------------------------------------------------------------
    def _first_to_end(self) -> list[str]:
        placement, machine = self.placement, self.placement.machine
        devices = [group.device for group in placement.groups]
        ranks = self._ranks()
        there: dict[tuple[Node, str], float] = dict.fromkeys(placement.homes.items(), 0.0)
        made_on = dict(placement.homes)
        free: defaultdict[object, float] = defaultdict(float)
        for k in sorted(range(len(devices)), key=lambda k: (-ranks[k], k)):
            group = placement.groups[k]
            choices = self.gpus if k in self.movable else [group.device]
            plans = []
            for device in choices:
                arrivals: dict[Node, float] = {}
                link_free: dict[object, float] = dict(free)
                for value in self.reads[k]:
                    arrived = there.get((value, device))
                    if arrived is None:
                        ends = made_on[value], device
                        link = "host" if machine.host in ends else ends
                        arrived = max(link_free.get(link, 0.0), there[value, made_on[value]])
                        arrived += machine.copy_seconds(*ends, value.meta.hint_nbytes)
                        link_free[link] = arrived
                    arrivals[value] = arrived
                end = max([free[device], *arrivals.values()]) + group.seconds[device]
                plans.append((end, choices.index(device), device, arrivals, link_free))
            end, _, device, arrivals, link_free = min(plans, key=lambda plan: plan[:2])
            devices[k] = device
            there.update({(value, device): arrived for value, arrived in arrivals.items()})
            free.update(link_free)
            free[device] = end
            for node in group.nodes:
                there[node, device], made_on[node] = end, device
        return devices

    def _parts_apart(self) -> list[str]:
        """Each part that shares no results with others on one GPU: the longest first, where least is to do."""
        devices = [group.device for group in self.placement.groups]
        busy = dict.fromkeys(self.gpus, 0.0)
        work = [(sum(min(self.placement.groups[k].seconds.values()) for k in part), part) for part in self._parts()]
        for seconds, part in sorted(work, key=lambda pair: -pair[0]):
            gpu = min(self.gpus, key=busy.__getitem__)
            busy[gpu] += seconds
            for k in part:
                devices[k] = gpu if math.isfinite(self.placement.groups[k].seconds[gpu]) else devices[k]
        return devices

    def _ranks(self) -> list[float]:
        """For each group the least time from its start until all that needs its results is done."""
        groups = self.placement.groups
        ranks = [0.0] * len(groups)
        for k in reversed(range(len(groups))):
            ranks[k] += min(groups[k].seconds.values())
            for value in self.reads[k]:
                maker = self.group_of.get(value)
                if maker is not None:
                    ranks[maker] = max(ranks[maker], ranks[k])
        return ranks

    # -- and from there ---------------------------------------------------------------------------------------------
    def _improved(self, best: Placement) -> Placement:
        """Moves of single groups, and of the parts that share no results, that make the time less."""
        moves = [(unit, device) for unit in (*self._parts(), *([k] for k in self.movable)) for device in self.gpus]
        least, idle = _seconds(best), 0
        for unit, device in islice(cycle(moves), MOST_ATTEMPTS):
            devices = [device if k in unit else group.device for k, group in enumerate(best.groups)]
            attempt = best.with_groups_on(devices)
            seconds = _seconds(attempt)
            idle = 0 if seconds < least * (1 - 1e-6) else idle + 1
            if idle == 0:
                best, least = attempt, seconds
            if idle == len(moves):
                break
        return best

    def _parts(self) -> list[list[int]]:
        """The groups on GPUs that are joined by results, as sets."""
        root = {k: k for k in self.movable}

        def found(k: int) -> int:
            while root[k] != k:
                k = root[k]
            return k

        for k in self.movable:
            for value in self.reads[k]:
                maker = self.group_of.get(value)
                if maker in root:
                    root[found(k)] = found(maker)
        parts: dict[int, list[int]] = {}
        for k in self.movable:
            parts.setdefault(found(k), []).append(k)
        return list(parts.values())


def _seconds(placement: Placement) -> float:
    """The predicted time where one thread of the host does all its copies and starts each segment; no order is searched for."""
    order = earliest_starts(placement.groups)
    return makespan(placement, order, one_host=True) + len(order) * SEGMENT_SECONDS


__all__ = ["place_and_share", "share"]
