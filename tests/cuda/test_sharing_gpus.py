"""Several GPUs at once: parts of a graph go to GPUs of their own where all is predicted to be done sooner, and only there."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dynagraph.backends.multi_device import compile_placed
from dynagraph.backends.reference import reference
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Graph, Meta, Node
from dynagraph.ir.machine_model import CLASSES, Machine, on_paper
from dynagraph.ir.passes import split_across_gpus as share_pass
from dynagraph.ir.passes.place import place
from dynagraph.ir.passes.split_across_gpus import PAYS, place_and_share, share
from dynagraph.ir.placement import Placement
from tests.sampling import examples

from .placements import NAMES, Fleet, call, random_graph, random_machine, random_seconds
from .simulator import simulate
from .test_placement_against_brute_force import check_structure

TWO_GPUS = on_paper(count=2)
SEEDS = settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)


def products(graph: Graph, name: str, size: int, count: int = 4) -> Node:
    """A chain of products of one matrix, each of which takes a while."""
    x = graph.placeholder(name, Meta(dtypes.float64, (size, size)))
    made = x
    for _ in range(count):
        made = call(graph, "matmul", made, x)
    return made


def branches(size: int, count: int) -> Graph:
    graph = Graph()
    graph.output([products(graph, f"x{k}", size) for k in range(count)])
    return graph


def placed(graph: Graph, machine: Machine = TWO_GPUS) -> Placement:
    return place(graph, machine, outputs=["cpu"] * len(graph.outputs))


def test_branches_that_share_nothing_run_on_a_gpu_each() -> None:
    alone = placed(branches(8192, 2))
    assert {group.device for group in alone.groups} == {"cuda:0"}
    shared = share(alone)
    assert [group.device for group in shared.groups] == ["cuda:0"] * 4 + ["cuda:1"] * 4
    assert [str(c) for c in shared.copies] == [
        "x0: cpu -> cuda:0", "x1: cpu -> cuda:1", "matmul_3: cuda:0 -> cpu", "matmul_7: cuda:1 -> cpu"]  # fmt: skip
    assert shared.unshared == alone.makespan and not shared.exact
    assert simulate(shared).makespan == pytest.approx(shared.makespan) and shared.makespan < 0.6 * alone.makespan
    assert "; shared among GPUs, else overlapped " in shared.describe()


def test_gpus_that_are_alike_are_one_to_the_cut() -> None:
    """The cut is exact then, and what is shared is what is shared behind a search over all of them."""
    for graph, expected in ((branches(8192, 1), {"cuda:0"}), (branches(8192, 2), {"cuda:0", "cuda:1"})):
        together = place_and_share(graph, TWO_GPUS, "cpu")
        apart = share(placed(graph))
        assert together.describe() == apart.describe() and {g.device for g in together.groups} == expected
    many = branches(8192, 6)
    assert not place(many, on_paper(count=3), outputs=["cpu"] * 6).exact
    assert place_and_share(many, on_paper(count=3), "cpu").makespan < 0.4 * placed(many, on_paper()).makespan


def test_gpus_that_are_not_alike_are_cut_apart() -> None:
    fast = TWO_GPUS.measured({"cuda:1": {"products": dict.fromkeys(CLASSES, 1e15)}})
    near = TWO_GPUS.measured(links={("cpu", "cuda:1"): {"bandwidth": 500e9}})
    for machine in (fast, near):
        assert {g.device for g in place_and_share(branches(8192, 1), machine, "cpu").groups} == {"cuda:1"}
    roomy = TWO_GPUS.measured({"cuda:0": {"memory": 1e9}})  # what alone differs: the least counts
    assert {g.device for g in place_and_share(branches(8192, 1), roomy, "cpu").groups} == {"cpu"}


def test_links_that_hardly_differ_are_alike_but_the_cut_is_not_exact() -> None:
    almost = TWO_GPUS.measured(links={("cpu", "cuda:1"): {"bandwidth": 45e9}})
    found = [place_and_share(branches(8192, 1), machine, "cpu") for machine in (TWO_GPUS, almost)]
    assert [p.exact for p in found] == [True, False] and found[0].machine is TWO_GPUS
    assert {g.device for p in found for g in p.groups} == {"cuda:0"}
    assert all(g.seconds["cuda:0"] == g.seconds["cuda:1"] for p in found for g in p.groups)


def test_arrays_that_live_on_a_gpu_stay_there() -> None:
    placement = place_and_share(branches(8192, 2), TWO_GPUS, "cuda:1")
    assert {g.device for g in placement.groups} >= {"cuda:1"} and set(placement.delivered) == {"cuda:1"}


def test_four_branches_are_shared_by_three_gpus() -> None:
    graph = Graph()
    graph.output([products(graph, f"x{k}", 8192, count=2 + k) for k in range(4)])
    alone = placed(graph, on_paper(count=3))
    shared = share(alone)
    assert sorted(shared.busy.values())[1:] == pytest.approx([alone.busy["cuda:0"] * part / 14 for part in (4, 5, 5)], rel=0.02)


def test_a_chain_stays_on_one_gpu() -> None:
    alone = placed(branches(8192, 1))
    assert share(alone) is alone


def test_little_work_stays_on_one_gpu() -> None:
    alone = placed(branches(512, 2))
    assert {group.device for group in alone.groups} == {"cuda:0"} and share(alone) is alone


def test_what_is_gained_by_less_than_a_tenth_is_left() -> None:
    """One branch takes twenty times what the other does."""
    graph = Graph()
    graph.output([products(graph, "x", 8192, count=40), products(graph, "y", 8192, count=2)])
    alone = placed(graph)
    assert share(alone) is alone


def test_a_slow_link_between_host_and_gpu_is_not_used_for_nothing() -> None:
    """Where the copies to the second take longer than what it would compute."""
    slow = {("cpu", "cuda:1"): {"bandwidth": 1e8}, ("cuda:0", "cuda:1"): {"bandwidth": 1e8}}
    alone = placed(branches(8192, 2), TWO_GPUS.measured(links=slow))
    assert share(alone) is alone


def test_copies_of_the_host_count_as_those_of_one_thread() -> None:
    """Two links do not carry twice as much: arrays go through the host's hands."""
    graph = branches(1024, 2)
    slow = {("cpu", f"cuda:{k}"): {"bandwidth": 4e8} for k in range(2)}
    alone = placed(graph, TWO_GPUS.measured({"cpu": {"products": dict.fromkeys(CLASSES, 1e9)}}, slow))
    apart = alone.with_groups_on(["cuda:0"] * 4 + ["cuda:1"] * 4)
    assert {group.device for group in alone.groups} == {"cuda:0"} and apart.makespan < 0.6 * alone.makespan
    assert share(alone) is alone


def test_one_gpu_and_graphs_without_gpus_are_left_alone() -> None:
    for machine in (on_paper(), on_paper(count=0)):
        alone = placed(branches(8192, 2), machine)
        assert share(alone) is alone


def test_large_graphs_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = placed(branches(8192, 2))
    assert share(alone) is not alone
    monkeypatch.setattr(share_pass, "MOST_GROUPS", 7)
    assert share(alone) is alone


def random_placement(seed: int, most: int) -> tuple[Placement, list[str | None]]:
    """Where GPUs run what they can at the same speed, and the host is slow."""
    rng = random.Random(seed)
    graph, fixed = random_graph(rng, rng.randint(2, most), NAMES)
    own = random_seconds(seed, NAMES, {}, impossible=0.0)
    wanted: list[str | None] = [rng.choice(["cpu", "cuda:0"]) for _ in graph.outputs]
    fixed = {node: "cpu" if node.kind == "placeholder" else name for node, name in fixed.items()}

    def seconds(nodes: object, device: object) -> float:
        there = own(nodes, random_machine(random.Random(0), 1).device("cpu"))  # type: ignore[arg-type]
        return 1000 * there * (1 if getattr(device, "kind", "") == "cuda" else 3)

    return place(graph, random_machine(rng, 3), fixed, wanted, seconds), wanted  # type: ignore[arg-type]


@SEEDS
@given(seed=st.integers(0, 10**6))
def test_what_is_shared_can_run_and_is_done_sooner(seed: int) -> None:
    alone, wanted = random_placement(seed, 12)
    shared = share(alone)
    check_structure(shared, wanted)
    assert shared is alone or shared.makespan < alone.makespan
    assert all(a.device == b.device for a, b in zip(alone.groups, shared.groups) if "cpu" in (a.device, b.device))
    assert shared.delivered == alone.delivered


def test_most_of_what_can_be_gained_is_gained() -> None:
    """Against all ways of giving the groups to two GPUs, by the time that the pass makes less."""
    gains, possible, seconds = 0.0, 0.0, share_pass._seconds
    for seed in range(60):
        alone, _ = random_placement(seed, 9)
        best = min(map(seconds, all_shared(alone)))
        if best <= PAYS * seconds(alone) and alone.makespan >= share_pass.LEAST_SECONDS:
            possible += seconds(alone) - best
            gains += seconds(alone) - seconds(share(alone))
    assert possible > 0 and gains > 0.9 * possible


def all_shared(placement: Placement) -> list[Placement]:
    choices = [
        [name for name, seconds in g.seconds.items() if math.isfinite(seconds) and name != "cpu"] if g.device != "cpu" else ["cpu"]
        for g in placement.groups
    ]
    return [placement.with_groups_on(devices) for devices in itertools.product(*choices)]


def test_groups_on_other_devices_are_those_of_a_fresh_placement() -> None:
    """Copies and all, where the pass puts them there itself."""
    for seed in range(30):
        placement, _ = random_placement(seed, 10)
        again = placement.with_groups_on([group.device for group in placement.groups])
        assert {str(c) for c in again.copies} == {str(c) for c in placement.copies} and again.seconds == placement.seconds


@pytest.mark.parametrize("seed", range(10))
def test_a_shared_program_gives_what_the_graph_gives(seed: int) -> None:
    placement, _ = random_placement(seed, 12)
    shared = share(placement)
    fleet = Fleet(dict.fromkeys(NAMES, reference))
    program = compile_placed(shared, fleet.backends, fleet.move)
    rng = np.random.default_rng(seed)
    inputs = [fleet.put(rng.standard_normal(tuple(map(int, n.shape))), "cpu") for n in shared.graph.placeholders]
    for got, want in zip(program(*inputs), reference(shared.graph)(*inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-14)
