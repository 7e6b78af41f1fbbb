"""Collectives that run on PyTorch (gloo) and on dynagraph.torch alike: each case gives tensors, which must be the same.

``python -m tests.torch.distributed.cases mpi|sockets|torch FOLDER`` is one rank: it writes what its cases gave to FOLDER.  Ranks of
MPI are started by mpiexec; PyTorch's, and those of dynagraph.torch over sockets, are told by the environment who they are.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

CASES: dict[str, Callable[..., Any]] = {}
DTYPES = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "int8", "uint8", "complex64", "complex128", "bool")
REDUCED = tuple(d for d in DTYPES if d != "bool")


def case(function: Callable[..., Any]) -> Callable[..., Any]:
    CASES[function.__name__] = function
    return function


def some(t: Any, r: int, dtype: str = "float32", shape: tuple[int, ...] = (3, 2)) -> Any:
    """Small whole numbers, others in each rank: sums are exact."""
    n = int(np.prod(shape))
    return (t.arange(n) % 5 + r + 1).reshape(shape).to(getattr(t, dtype))


@case
def sums_of_all_dtypes(t: Any, d: Any, r: int, w: int) -> Any:
    made = [some(t, r, dtype) for dtype in REDUCED]
    for x in made:
        d.all_reduce(x)
    return made


@case
def operations(t: Any, d: Any, r: int, w: int) -> Any:
    made = []
    for op in ("SUM", "PRODUCT", "MIN", "MAX", "AVG"):
        for dtype in ("float32", "float64"):
            made.append(some(t, r, dtype))
            d.all_reduce(made[-1], op=getattr(d.ReduceOp, op))
    for op in ("BAND", "BOR", "BXOR", "MIN", "MAX", "PRODUCT"):
        made.append(some(t, r, "int32"))
        d.all_reduce(made[-1], getattr(d.ReduceOp, op))
    for op in ("SUM", "MIN", "MAX", "BAND", "BOR", "PRODUCT"):
        made.append(some(t, r) % 2 == 0)
        d.all_reduce(made[-1], getattr(d.ReduceOp, op))
    return made


@case
def layouts_and_sizes(t: Any, d: Any, r: int, w: int) -> Any:
    x = some(t, r, shape=(4, 6))
    d.all_reduce(x.t())  # (gloo takes views with gaps for what lies behind their first element)
    y = some(t, r, "bfloat16", (4, 6))
    d.broadcast(y[1:3].t(), 1)
    empty, zero = t.zeros(0, 3), t.tensor(r + 1.0)
    d.all_reduce(empty)
    d.all_reduce(zero)
    leaf = t.ones(2, requires_grad=True)
    d.all_reduce(leaf)
    return [x, y, empty, zero, leaf.detach()]


@case
def movements(t: Any, d: Any, r: int, w: int) -> Any:
    made = []
    for dtype in ("float32", "bfloat16", "bool", "complex64", "int64"):
        x = some(t, r, dtype) if dtype != "bool" else some(t, r) % 2 == 0
        each = [t.zeros_like(x) for _ in range(w)]
        d.all_gather(each, x)
        root = [t.zeros_like(x) for _ in range(w)] if r == 1 else None
        part = t.zeros_like(x)
        if dtype in ("float32", "int64"):  # gloo has no gather of the others
            d.gather(x, root, dst=1)
            d.scatter(part, [x + k for k in range(w)] if r == 0 else None, src=0)
        same = x.clone()
        d.broadcast(same, src=w - 1)
        whole = t.zeros(3 * w, 2, dtype=x.dtype)
        d.all_gather_into_tensor(whole, x)
        made += [*each, *(root or ()), part, same, whole]
    return made


@case
def reductions_to_parts(t: Any, d: Any, r: int, w: int) -> Any:
    made = []
    for dtype in ("float32", "float64", "int32"):
        part = t.zeros(3, 2, dtype=getattr(t, dtype))
        d.reduce_scatter(part, [some(t, r + k, dtype) for k in range(w)])
        of_one = t.zeros(2, dtype=getattr(t, dtype))
        d.reduce_scatter_tensor(of_one, some(t, r, dtype, (2 * w,)), op=d.ReduceOp.MAX)
        root = some(t, r, dtype)
        d.reduce(root, 1, op=d.ReduceOp.SUM)
        made += [part, of_one, *([root] if r == 1 else [])]
    return made


@case
def exchanges(t: Any, d: Any, r: int, w: int) -> Any:
    single = t.zeros(2 * w, 3)
    d.all_to_all_single(single, some(t, r, shape=(2 * w, 3)))
    inward = [r + 1] * w
    outward = [k + 1 for k in range(w)]
    uneven = t.zeros(sum(inward), 2)
    d.all_to_all_single(uneven, some(t, r, shape=(sum(outward), 2)), inward, outward)
    received = [t.zeros(3, 2) for _ in range(w)]
    d.all_to_all(received, [some(t, 10 * r + k) for k in range(w)])
    return [single, uneven, *received]


@case
def messages(t: Any, d: Any, r: int, w: int) -> Any:
    made = []
    x, y = some(t, r), t.zeros(3, 2)
    after, before = (r + 1) % w, (r - 1) % w
    works = d.batch_isend_irecv([d.P2POp(d.isend, x, after), d.P2POp(d.irecv, y, before)])
    for work in works:
        work.wait()
    made.append(y)
    if r == 0:
        for k in range(1, w):
            z = t.zeros(4)
            made += [t.tensor(d.recv(z, src=k, tag=7)), z]
        z = t.zeros(2)
        made.append(t.tensor(d.recv(z, tag=3)))
    else:
        d.send(t.full((4,), float(r)), 0, tag=7)
        if r == 1:
            d.send(t.zeros(2), dst=0, tag=3)
    return made


@case
def asynchronous(t: Any, d: Any, r: int, w: int) -> Any:
    xs = [some(t, r, dtype) for dtype in ("float32", "float16", "float64")]
    works = [d.all_reduce(x, op=d.ReduceOp.AVG, async_op=True) for x in xs]
    found = []
    for work in works:
        assert work.wait() and work.is_completed()
        found.append(work.get_future().then(lambda f: f.value()).wait()[0])
    assert d.barrier(async_op=True).wait()
    return [*xs, *found]


@case
def groups(t: Any, d: Any, r: int, w: int) -> Any:
    made = []
    pair = d.new_group([0, 1])
    x = some(t, r)
    if r < 2:
        d.all_reduce(x, group=pair)
        made += [x, t.tensor([d.get_rank(pair), d.get_world_size(pair), d.get_group_rank(pair, 1)])]
    last = d.new_group([w - 1, 0])
    y = some(t, r)
    if r in (0, w - 1):
        d.broadcast(y, src=w - 1, group=last)
        made += [y, t.tensor([d.get_rank(last), *d.get_process_group_ranks(last)])]
    own, every = d.new_subgroups(w // 2)
    z = some(t, r)
    d.all_reduce(z, group=own)
    if w % 2:  # a mesh of two rows has no place for the last rank
        return [*made, z]
    mesh = d.init_device_mesh("cpu", (2, w // 2), mesh_dim_names=("a", "b"))
    v = some(t, r)
    d.all_reduce(v, group=mesh["a"].get_group())
    numbers = [*mesh.get_coordinate(), mesh["b"].get_local_rank(), mesh.size(), mesh["b"].size(), mesh.ndim, len(every)]
    return [*made, z, v, t.tensor(numbers)]


@case
def objects(t: Any, d: Any, r: int, w: int) -> Any:
    every: list[Any] = [None] * w
    d.all_gather_object(every, {"rank": r, "text": "x" * r})
    given = ["a" * (r + 1), r]
    d.broadcast_object_list(given, src=1)
    part = [None]
    d.scatter_object_list(part, [k * 10 for k in range(w)] if r == 0 else None, src=0)
    root = [None] * w if r == 0 else None
    d.gather_object(r * r, root, dst=0)
    if r == 0:
        d.send_object_list([("s", 3)], dst=1)
    received = [None]
    if r == 1:
        d.recv_object_list(received, src=0)
    text = repr((every, given, part, root, received))
    return [t.tensor(list(text.encode()))]


@case
def gradients(t: Any, d: Any, r: int, w: int) -> Any:
    f = importlib.import_module(f"{d.__name__}.nn.functional")
    made = []

    def run(function: Callable[[Any], Any]) -> None:
        x = some(t, r, "float64").requires_grad_()
        y = function(x)
        weights = t.arange(y.numel(), dtype=t.float64).reshape(y.shape) + r
        (y * weights).sum().backward()
        made.extend([y.detach(), x.grad])

    run(lambda x: f.all_reduce(x * 2))
    run(lambda x: f.broadcast(x * x, 1))
    run(lambda x: f.reduce(x * x, 0))
    if r:
        made[-2] = t.zeros(())  # not defined
    run(lambda x: t.stack(list(f.all_gather(x * 3))))
    run(lambda x: f.reduce_scatter(t.zeros(3, 2, dtype=t.float64), [x * k for k in range(w)]))
    run(lambda x: f.scatter([x * (k + 1) for k in range(w)], 0))
    run(lambda x: t.stack(list(f.gather(x * 3, 0))))
    run(lambda x: t.stack(list(f.all_to_all([t.zeros(3, 2, dtype=t.float64) for _ in range(w)], [x + k for k in range(w)]))))
    run(lambda x: f.all_to_all_single(t.zeros(2 * w, 3, dtype=t.float64), t.cat([x.t() * k for k in range(w)])))
    return made


@case
def functional(t: Any, d: Any, r: int, w: int) -> Any:
    f = importlib.import_module(f"{d.__name__}._functional_collectives")
    g, mesh, made = d.group.WORLD, d.init_device_mesh("cpu", (w,)), []
    x = some(t, r, "float64", (w, 2 * w))
    for op in ("sum", "AVG", "max", "product"):
        made.append(f.wait_tensor(f.all_reduce(x, op, g)))
    made += [f.all_reduce(x, "sum", group) for group in (g.group_name, list(range(w)), mesh, (mesh, 0))]
    made += [f.all_gather_tensor(x.t(), dim, g) for dim in (0, 1, -1)]
    made += [f.reduce_scatter_tensor(x, op, dim, g) for op in ("sum", "avg") for dim in (0, 1, -1)]
    made += [f.broadcast(x, 1, g), f.all_to_all_single(x, None, None, g)]
    made.append(f.all_to_all_single(some(t, r, shape=(w * (w + 1) // 2, 2)), [r + 1] * w, [k + 1 for k in range(w)], g))
    made.append(f.permute_tensor(some(t, r, shape=(3,)), [*range(1, w), 0], g))
    made += f.all_reduce_coalesced([x, x * 2], "sum", g) + f.all_gather_into_tensor_coalesced([x, x * 2], g)
    made += f.reduce_scatter_tensor_coalesced([x, x * 2], "sum", [0, 1], g)
    whole, part = t.zeros(w * w, 2 * w, dtype=t.float64), t.zeros(w, 2, dtype=t.float64)
    made += [f.all_gather_tensor_inplace(whole, x), f.reduce_scatter_tensor_inplace(part, x, scatter_dim=1), whole, part]
    made.append(f.all_reduce_inplace(x.clone()))
    for call in (
        lambda x: f.all_reduce(x, "sum", g), lambda x: f.all_gather_tensor(x, 1, g), lambda x: f.all_gather_tensor(x, 0, g),
        lambda x: f.reduce_scatter_tensor(x * 2, "sum", 1, g), lambda x: f.all_to_all_single_autograd(x, None, None, g),
    ):  # fmt: skip
        z = some(t, r, "float64", (w, 2 * w)).requires_grad_()
        y = call(z)
        (y * (t.arange(y.numel(), dtype=t.float64).reshape(y.shape) + r)).sum().backward()
        made += [y.detach(), z.grad]
    return [y + 0 for y in made]


def described(t: Any, x: Any) -> np.ndarray:
    x = x.detach()
    return np.array((x.to(t.float32) if x.dtype == t.bfloat16 else x).numpy())


def results(t: Any, d: Any) -> dict[str, np.ndarray]:
    r, w = d.get_rank(), d.get_world_size()
    return {f"{name} {k:03}": described(t, x) for name, run in CASES.items() for k, x in enumerate(run(t, d, r, w))}


def main(which: str, folder: str) -> None:
    t = importlib.import_module("torch" if which == "torch" else "dynagraph.torch")
    d = importlib.import_module(f"{t.__name__}.distributed")
    if which != "mpi":
        rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        d.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks)
    else:
        d.init_process_group("gloo")
    np.savez(f"{folder}/{d.get_rank()}.npz", **results(t, d))
    d.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
