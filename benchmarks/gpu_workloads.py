"""What is measured on a GPU: functions as people write them for any array library, their data, and what is right.

A `Workload` says sizes; its `problem` makes the data on a device, which offers `xp` (CuPy, or what stands in for it), `normal`,
`uniform` and `to_host`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from training import Problem as TrainingData
from training import models, problem, torch_models, update
from workloads import Workload as NumPyWorkload
from workloads import black_scholes, layernorm, softmax

SAMPLES = 100_003  # elements of a large result that are compared with float64
ROWS = 61  # rows
CHAIN = 20  # operations of the small graphs
TURNS = 100  # of a loop

Function = Callable[..., Any]


@dataclass
class Problem:
    """The data of one workload, and what the contenders run.

    `of`: the function for a namespace that spells as NumPy does; `torch`: as a user of torch writes it; `own`: contenders that
    hold state, by name, each made when it is wanted.  `pick` takes the part of a result that is compared with `expected()`, which
    computes in float64 on the host.  `nbytes`: what a call moves at least.
    """

    arguments: tuple[Any, ...]
    nbytes: int
    of: Callable[[Any], Function]
    torch: Callable[[Any], Function]
    expected: Callable[[], tuple[np.ndarray, ...]]
    pick: Callable[[Any], Any]
    tolerance: float
    flops: int = 0
    pointwise: bool = False
    own: dict[str, Callable[[], Callable[[], Any]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Workload:
    """`timing`: "device" for calls back to back between two events, the copy of as many bytes in turn with them; "wall" for calls
    back to back by the host's clock until the device is done; "launch" by the host's clock until the last call returns.
    `extra`: contenders besides the usual ones.
    """

    name: str
    problem: Callable[[Any, tuple[int, ...], str], Problem]
    shape: tuple[int, ...]
    dtype: str = "float32"
    timing: str = "device"
    extra: tuple[str, ...] = ()

    def make(self, device: Any, shrink: int = 1) -> Problem:
        return self.problem(device, tuple(max(2, n // shrink) for n in self.shape) if self.shape != (1,) else (1,), self.dtype)


# -- samples ------------------------------------------------------------------------------------------------------------------


def some(a: Any) -> Any:
    """Elements from all over an array, its first and its last ones among them."""
    flat = a.reshape(-1)
    return flat[:: max(1, flat.size // SAMPLES) | 1] if flat.size > SAMPLES else flat


def last(a: Any) -> Any:
    return a.reshape(-1)[-1000:]


def some_rows(a: Any) -> Any:
    return a[:: max(1, a.shape[0] // ROWS)] if a.ndim > 1 else a


def whole(a: Any) -> Any:
    return a


def _nbytes(*arrays: Any) -> int:
    return sum(int(a.nbytes) for a in arrays)


def _tuple(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) else (x,)


def _tolerance(dtype: str) -> float:
    return {"float16": 1e-2, "float32": 2e-5, "float64": 1e-11}[dtype]


def _pointwise(
    device: Any, of: Callable[[Any], Function], torch: Callable[[Any], Function], arguments: tuple[Any, ...], results: int
) -> Problem:  # fmt: skip
    arrays = [a for a in arguments if hasattr(a, "dtype")]

    def expected() -> tuple[np.ndarray, ...]:
        given = [device.to_host(some(a)).astype(np.float64) if hasattr(a, "dtype") else a for a in arguments]
        return _tuple(of(np)(*given))

    nbytes = _nbytes(*arrays) + results * int(arrays[0].nbytes)
    return Problem(arguments, nbytes, of, torch, expected, some, _tolerance(str(arrays[0].dtype)), pointwise=True)


# -- elementwise --------------------------------------------------------------------------------------------------------------


def chain_of_five(device: Any, shape: tuple[int, ...], dtype: str) -> Problem:
    def of(xp: Any) -> Function:
        def chain(x: Any) -> Any:
            return xp.tanh(x * 0.5 + 1.0) * x - 0.25

        return chain

    return _pointwise(device, of, of, (device.normal(shape, dtype, 1),), 1)


class _TorchNames:
    """The NumPy names that Black-Scholes uses, as torch spells them."""

    def __init__(self, torch: Any):
        self.exp, self.log, self.sqrt, self.abs, self.where = torch.exp, torch.log, torch.sqrt, torch.abs, torch.where


def options_prices(device: Any, shape: tuple[int, ...], dtype: str) -> Problem:
    written_for = NumPyWorkload("", black_scholes, (), 0).written_for
    arguments = (device.uniform(shape, dtype, 1, 50, 150), device.uniform(shape, dtype, 2, 50, 150),
                 device.uniform(shape, dtype, 3, 0.1, 2.0), 0.03, 0.25)  # fmt: skip
    return _pointwise(device, written_for, lambda torch: written_for(_TorchNames(torch)), arguments, 2)


def small_chain(device: Any, shape: tuple[int, ...], dtype: str) -> Problem:
    """Twenty operations, which are twenty kernels for whoever does not fuse."""

    def of(xp: Any) -> Function:
        def chain(x: Any) -> Any:
            y = x
            for _ in range(CHAIN // 4):
                y = xp.tanh(y * 0.75 + 0.125) - x
            return y

        return chain

    return _pointwise(device, of, of, (device.normal(shape, dtype, 1),), 1)


def small_chain_of_sums(device: Any, shape: tuple[int, ...], dtype: str) -> Problem:
    """Twenty operations, a sum among each four, so that no kernel can hold them all."""

    def written(tanh: Function, total: Function) -> Function:
        def chain(x: Any) -> Any:
            y = x
            for _ in range(CHAIN // 4):
                y = tanh(y) - total(y) * 1e-4
            return y

        return chain

    x = device.normal(shape, dtype, 1)
    return Problem(
        (x,), 2 * _nbytes(x), lambda xp: written(xp.tanh, xp.sum), lambda torch: written(torch.tanh, torch.sum),
        lambda: (written(np.tanh, np.sum)(device.to_host(x).astype(np.float64)),), whole, 1e-4,
    )  # fmt: skip


def stencil_turns(device: Any, shape: tuple[int, ...], dtype: str) -> Problem:
    """A loop too long to be written out: what a turn costs the host."""

    def of(xp: Any) -> Function:
        def diffuse(u: Any) -> Any:
            for _ in range(TURNS):
                u = u + 0.1 * (xp.roll(u, 1) - 2.0 * u + xp.roll(u, -1))
            return u

        return diffuse

    x = device.normal(shape, dtype, 1)
    return Problem(
        (x,), 2 * TURNS * _nbytes(x), of, of, lambda: (of(np)(device.to_host(x).astype(np.float64)),), whole, 1e-4
    )  # fmt: skip


def one_element(device: Any, shape: tuple[int, ...], dtype: str) -> Problem:
    def of(xp: Any) -> Function:
        return lambda x: x * 0.5 + 1.0

    return _pointwise(device, of, of, (device.normal(shape, dtype, 1),), 1)


# -- reductions and rows ------------------------------------------------------------------------------------------------------


def softmax_rows(device: Any, shape: tuple[int, ...], dtype: str) -> Problem:
    x = device.normal(shape, dtype, 1)
    return Problem(
        (x,), 2 * _nbytes(x), NumPyWorkload("", softmax, (), 0).written_for, lambda torch: lambda x: torch.softmax(x, -1),
        lambda: (softmax(device.to_host(some_rows(x)).astype(np.float64)),), some_rows, _tolerance(dtype),
    )  # fmt: skip


def layernorm_rows(device: Any, shape: tuple[int, ...], dtype: str) -> Problem:
    arguments = (device.normal(shape, dtype, 1), device.normal(shape[1:], dtype, 2), device.normal(shape[1:], dtype, 3))

    def torchs(torch: Any) -> Function:
        return lambda x, gain, bias: torch.nn.functional.layer_norm(x, (x.shape[-1],), gain, bias, 1e-5)

    return Problem(
        arguments, 2 * _nbytes(arguments[0]), NumPyWorkload("", layernorm, (), 0).written_for, torchs,
        lambda: (layernorm(*(device.to_host(some_rows(a)).astype(np.float64) for a in arguments)),), some_rows, _tolerance(dtype),
    )  # fmt: skip


def total(device: Any, shape: tuple[int, ...], dtype: str) -> Problem:
    x = device.uniform(shape, dtype, 1, 0.0, 1.0)
    part = 1 << 26

    def expected() -> tuple[np.ndarray, ...]:
        return (np.asarray(sum(device.to_host(x[k : k + part]).sum(dtype=np.float64) for k in range(0, x.size, part))),)

    return Problem((x,), _nbytes(x), lambda xp: lambda x: xp.sum(x), lambda torch: torch.sum, expected, whole, _tolerance(dtype))


def column_sums(device: Any, shape: tuple[int, ...], dtype: str) -> Problem:
    x = device.normal(shape, dtype, 1)
    return Problem(
        (x,), _nbytes(x), lambda xp: lambda x: xp.sum(x, axis=0), lambda torch: lambda x: torch.sum(x, 0),
        lambda: (device.to_host(x).sum(axis=0, dtype=np.float64),), whole, _tolerance(dtype),
    )  # fmt: skip


def transposed_add(device: Any, shape: tuple[int, ...], dtype: str) -> Problem:
    x, y = device.normal(shape, dtype, 1), device.normal(shape, dtype, 2)

    def of(xp: Any) -> Function:
        return lambda x, y: x + y.T

    def expected() -> tuple[np.ndarray, ...]:
        return (device.to_host(some_rows(x)).astype(np.float64) + device.to_host(some_rows(y.T)).astype(np.float64),)

    return Problem((x, y), 3 * _nbytes(x), of, of, expected, some_rows, _tolerance(dtype))


def running_sum(device: Any, shape: tuple[int, ...], dtype: str) -> Problem:
    x = device.uniform(shape, dtype, 1, 0.0, 1.0)
    return Problem(
        (x,), 2 * _nbytes(x), lambda xp: lambda x: xp.cumsum(x), lambda torch: lambda x: torch.cumsum(x, 0),
        lambda: (some(np.cumsum(device.to_host(x), dtype=np.float64)),), some, 1e-4,
    )  # fmt: skip


# -- products -----------------------------------------------------------------------------------------------------------------


def dense_gelu(device: Any, shape: tuple[int, ...], dtype: str) -> Problem:
    """gelu(x @ w + b) of square matrices; the data are scaled so that float16 holds all that is computed."""
    (n,) = shape
    x, w, b = device.normal((n, n), dtype, 1), device.normal((n, n), dtype, 2) * n**-0.5, device.normal((n,), dtype, 3)
    w = w.astype(dtype)

    def written(tanh: Function) -> Function:
        def dense(x: Any, w: Any, b: Any) -> Any:
            z = x @ w + b
            return 0.5 * z * (1.0 + tanh(0.7978845608 * (z + 0.044715 * z * z * z)))

        return dense

    def torchs(torch: Any) -> Function:
        return lambda x, w, b: torch.nn.functional.gelu(x @ w + b, approximate="tanh")

    def expected() -> tuple[np.ndarray, ...]:
        return (written(np.tanh)(*(device.to_host(a).astype(np.float64) for a in (some_rows(x), w, b))),)

    return Problem((x, w, b), _nbytes(x, w, b) + _nbytes(x), lambda xp: written(xp.tanh), torchs, expected, some_rows,
                   max(1e-4, _tolerance(dtype)), flops=2 * n**3)  # fmt: skip


def gelu_network(device: Any, shape: tuple[int, ...], dtype: str) -> Problem:
    """A step of training with Adam: 784-512-10, batch 256.  The first step's loss and first moments are compared."""
    data = problem("gelu")

    def expected() -> tuple[np.ndarray, ...]:
        loss, gradients = loss_and_gradients(data)
        return (np.asarray(loss), *(0.1 * gradients[k] for k in data.params))

    own = {
        "dynagraph": lambda: dynagraph_step(device, data),
        "torch": lambda: torch_step(data, compiled=False),
        "torch.compile": lambda: torch_step(data, compiled=True),
        "jax": lambda: jax_step(data),
    }
    nbytes = 7 * sum(p.nbytes for p in data.params.values()) + data.x.nbytes  # p, m, v read and written, g once
    unused: Any = None
    return Problem((), nbytes, unused, unused, expected, whole, 1e-4, own=own)


def loss_and_gradients(data: TrainingData) -> tuple[float, dict[str, np.ndarray]]:
    """By hand, in float64."""
    p = {k: a.astype(np.float64) for k, a in data.params.items()}
    x, y = data.x.astype(np.float64), data.y.astype(np.float64)
    z = x @ p["w1"] + p["b1"]
    t = np.tanh(0.7978845608 * (z + 0.044715 * z**3))
    h = 0.5 * z * (1 + t)
    slope = 0.5 * (1 + t) + 0.5 * z * (1 - t * t) * 0.7978845608 * (1 + 3 * 0.044715 * z * z)
    out = softmax(h @ p["w2"] + p["b2"])
    d_out = (out - y) / len(x)
    d_z = d_out @ p["w2"].T * slope
    gradients = {"w1": x.T @ d_z, "b1": d_z.sum(axis=0), "w2": h.T @ d_out, "b2": d_out.sum(axis=0)}
    return float(-np.mean(np.sum(y * np.log(out), axis=1))), gradients


def _state(data: TrainingData, put: Callable[[np.ndarray], Any]) -> SimpleNamespace:
    p, m, v = ({k: put(a * f) for k, a in data.params.items()} for f in (np.float32(1), np.float32(0), np.float32(0)))
    return SimpleNamespace(p=p, m=m, v=v, x=put(data.x), y=put(data.y), t=0)


def dynagraph_step(device: Any, data: TrainingData) -> Callable[[], Any]:
    import dynagraph as dg  # here, so that the tables can be read without it

    xp = device.xp
    loss = models(xp)["gelu"]

    @dg.compile
    def step(p: Any, m: Any, v: Any, x: Any, y: Any, t: int) -> Any:
        value, gradients = dg.value_and_grad(loss)(p, x, y)
        for k, g in gradients.items():
            m[k] *= 0.9
            m[k] += 0.1 * g
            v[k] *= 0.999
            v[k] += 0.001 * g * g
            p[k] -= 1e-3 * (m[k] / (1 - 0.9**t)) / (xp.sqrt(v[k] / (1 - 0.999**t)) + 1e-8)
        return value

    of = _state(data, xp.asarray)

    def run() -> Any:
        of.t += 1
        return step(of.p, of.m, of.v, of.x, of.y, of.t), *of.m.values()

    run.compiled = step  # type: ignore[attr-defined]
    return run


def torch_step(data: TrainingData, compiled: bool) -> Callable[[], Any]:
    import torch  # an optional peer

    kind = "cuda" if torch.cuda.is_available() else "cpu"  # so that the step can be tried without a GPU
    loss = torch_models(torch)["gelu"]
    p = {k: torch.tensor(a, device=kind, requires_grad=True) for k, a in data.params.items()}
    x, y = torch.tensor(data.x, device=kind), torch.tensor(data.y.argmax(1), device=kind)
    optimiser = torch.optim.Adam(list(p.values()), lr=1e-3)
    forward = torch.compile(loss) if compiled else loss
    advance = torch.compile(optimiser.step) if compiled else optimiser.step

    def run() -> Any:
        optimiser.zero_grad()
        value = forward(p, x, y)
        value.backward()
        advance()
        return value.detach(), *(optimiser.state[a]["exp_avg"] for a in p.values())

    return run


def jax_step(data: TrainingData) -> Callable[[], Any]:
    import jax  # an optional peer

    jnp = jax.numpy
    loss = models(jnp)["gelu"]

    def step(p: Any, m: Any, v: Any, x: Any, y: Any, t: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(p, x, y)
        new = {k: update(jnp, p[k], m[k], v[k], g, t, True) for k, g in gradients.items()}
        return value, *({k: n[i] for k, n in new.items()} for i in range(3))

    compiled = jax.jit(step)
    of = _state(data, jnp.asarray)

    def run() -> Any:
        of.t += 1.0
        value, of.p, of.m, of.v = compiled(of.p, of.m, of.v, of.x, of.y, np.float32(of.t))
        return value, *(of.m[k] for k in data.params)  # JAX sorts dicts by their keys

    return run


# -- the table ----------------------------------------------------------------------------------------------------------------

TUNED = ("dynagraph fast", "torch.compile max-autotune")
REPLAYED = ("dynagraph reduce-overhead", "torch.compile reduce-overhead")

# those with bars come first
WORKLOADS = (
    Workload("chain of 5, 1e8 float32", chain_of_five, (100_000_000,), extra=TUNED),
    Workload("Black-Scholes, 1e8 float32", options_prices, (100_000_000,), extra=TUNED),
    Workload("softmax, 16384x4096 float32", softmax_rows, (16384, 4096), extra=TUNED),
    Workload("layernorm, 16384x4096 float32", layernorm_rows, (16384, 4096), extra=TUNED),
    Workload("sum, 1e9 float32", total, (1_000_000_000,)),
    Workload("GELU MLP training step", gelu_network, (256,), timing="wall"),
    Workload("20 operations on 1e4 float32", small_chain, (10_000,), timing="wall", extra=REPLAYED),
    Workload("20 operations with sums on 1e4 float32", small_chain_of_sums, (10_000,), timing="wall", extra=REPLAYED),
    Workload("host time of one kernel", one_element, (1,), timing="launch", extra=REPLAYED),
    Workload("column sums, 65536x1024 float32", column_sums, (65536, 1024)),
    Workload("x + y.T, 8192x8192 float32", transposed_add, (8192, 8192)),
    Workload("cumsum, 1e8 float32", running_sum, (100_000_000,)),
    Workload("gelu(x @ w + b), 4096 float32", dense_gelu, (4096,)),
    Workload("gelu(x @ w + b), 4096 float16", dense_gelu, (4096,), "float16"),
    Workload("chain of 5, 3e7 float64", chain_of_five, (30_000_000,), "float64"),
    Workload("Black-Scholes, 3e7 float64", options_prices, (30_000_000,), "float64"),
    Workload("softmax, 4096x1024 float32", softmax_rows, (4096, 1024)),
    Workload("layernorm, 4096x1024 float32", layernorm_rows, (4096, 1024)),
    Workload("loop of 100 turns on 1e4 float32", stencil_turns, (10_000,), timing="wall"),
)
