"""Who runs the workloads on a GPU: compiled functions, and the peers, each as its users call it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from gpu_workloads import Problem, Workload

import dynagraph as dg

CONTENDERS = (
    "dynagraph", "dynagraph fast", "dynagraph reduce-overhead", "cupy", "cupy.fuse", "torch", "torch.compile",
    "torch.compile max-autotune", "torch.compile reduce-overhead", "jax",
)  # fmt: skip

Run = Callable[[], Any]


@dataclass
class Contender:
    """`wait` makes the host wait for a result; `own_stream`: events do not see its work."""

    name: str
    run: Run
    wait: Callable[[Any], None]
    compiled: Any = None
    own_stream: bool = False
    found: dict[str, Any] = field(default_factory=dict)
    samples: list[float] = field(default_factory=list)


def contenders_of(workload: Workload, problem: Problem, excluded: Iterable[str] = ()) -> list[str]:
    """Who runs a workload, in order."""
    names = ["dynagraph", "cupy", "torch", "torch.compile", "jax", *workload.extra]
    if problem.pointwise:
        names.append("cupy.fuse")
    if problem.own:
        names = list(problem.own)
    return [n for n in CONTENDERS if n in names and n not in excluded]


def make(name: str, problem: Problem, device: Any) -> Contender:
    """Raises whatever the library raises that cannot do it, ImportError where it is not installed."""
    library = name.partition(" ")[0].partition(".")[0]
    mode = name.partition(" ")[2]
    return MAKERS[library](name, mode, problem, device)


def _called(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Run:
    return lambda: function(*arguments)


def _dynagraph(name: str, mode: str, problem: Problem, device: Any) -> Contender:
    if problem.own:
        run = problem.own[name]()
        return Contender(name, run, lambda result: device.synchronize(), compiled=run.compiled)  # type: ignore[attr-defined]
    compiled = dg.compile(problem.of(device.xp), mode=mode or "default")
    return Contender(name, _called(compiled, problem.arguments), lambda result: device.synchronize(), compiled=compiled)


def _cupy(name: str, mode: str, problem: Problem, device: Any) -> Contender:
    function = problem.of(device.xp)
    if name == "cupy.fuse":
        function = device.xp.fuse()(function)
    return Contender(name, _called(function, problem.arguments), lambda result: device.synchronize())


def _torch(name: str, mode: str, problem: Problem, device: Any) -> Contender:
    import torch  # an optional peer

    if not torch.cuda.is_available():
        raise RuntimeError("torch sees no GPU")
    if problem.own:
        return Contender(name, problem.own[name](), lambda result: device.synchronize())
    arguments = tuple(torch.from_dlpack(a) if hasattr(a, "dtype") else a for a in problem.arguments)
    function = problem.torch(torch)
    if name.startswith("torch.compile"):
        mode = "max-autotune-no-cudagraphs" if mode == "max-autotune" else mode or "default"
        inner = function
        function = torch.compile(lambda *given: inner(*given), mode=mode)
    call = _called(function, arguments)
    if mode == "reduce-overhead":  # whose results are overwritten by the next call, which has to be announced

        def run() -> Any:
            torch.compiler.cudagraph_mark_step_begin()
            return call()

        return Contender(name, run, lambda result: device.synchronize())
    return Contender(name, call, lambda result: device.synchronize())


def _jax(name: str, mode: str, problem: Problem, device: Any) -> Contender:
    import jax  # an optional peer

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_default_matmul_precision", "highest")  # float32, as the others
    if jax.default_backend() != "gpu":
        raise RuntimeError(f"JAX runs on the {jax.default_backend()}")
    if problem.own:
        return Contender(name, problem.own[name](), jax.block_until_ready, own_stream=True)
    arguments = tuple(jax.numpy.from_dlpack(a) if hasattr(a, "dtype") else a for a in problem.arguments)
    function = jax.jit(problem.of(jax.numpy))
    return Contender(name, _called(function, arguments), jax.block_until_ready, own_stream=True)


MAKERS = {"dynagraph": _dynagraph, "cupy": _cupy, "torch": _torch, "jax": _jax}
