"""Give GPUs parts of each other's work where all is then done sooner: they compute at the same time.

Comes after `place`, whose model counts the seconds of all devices together: by it a second GPU as fast as the first never pays.
What follows makes the predicted time until all is done less, and leaves what the host does to the host.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import cycle, islice

from dynagraph.ir.graph import Node
from dynagraph.ir.placement import Placement
from dynagraph.ir.segments import earliest_starts, makespan

PAYS = 0.9  # of the predicted time: predictions are not so good that less than a tenth off it were worth another device
LEAST_SECONDS = 1e-3  # work that is done sooner is not worth it: each device costs launches and waits that the model does not know
MOST_GROUPS = 256  # of larger graphs nothing is moved: each attempt is predicted whole
MOST_ATTEMPTS = 400


def share(placement: Placement) -> Placement:
    """The placement, or one with groups of GPUs on others of them that is predicted to be done much sooner.

    Groups are first given to the GPU that would end them first, those before whose results most is still to do earliest (Topcuoglu,
    Hariri, Wu: HEFT, 2002); then single ones and whole independent parts are moved as long as that helps.

    >>> from dynagraph.ir import dtypes, optable
    >>> from dynagraph.ir.graph import Graph, Meta
    >>> from dynagraph.ir.machines import on_paper
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
        best = self._improved(min(self.placement, self.placement.with_groups_on(self._first_to_end()), key=_seconds))
        if best is self.placement or best.makespan > PAYS * self.placement.makespan:
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
                link_free = dict(free)
                for value in self.reads[k]:
                    arrived = there.get((value, device))
                    if arrived is None:
                        link = made_on[value], device
                        arrived = max(link_free.get(link, 0.0), there[value, made_on[value]])
                        arrived += machine.copy_seconds(*link, value.meta.hint_nbytes)
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
    """`Placement.makespan`, but for the search of the best order."""
    return makespan(placement, earliest_starts(placement.groups))


__all__ = ["share"]
