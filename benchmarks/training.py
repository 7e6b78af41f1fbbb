"""Whole training steps, loss, gradient and update: compiled, against HIPS autograd, JAX, torch.compile and eager torch.

    python benchmarks/training.py [--threads 2] [--rounds 15] [--only digits] [--json out.json] [--no-memory]

Everything but memory is measured in this one process, the contenders in turn; figures are medians.  Memory is the most that a
process of its own held during five steps beyond what it held before it made its arrays, one process for each contender.
Peers that are not installed are left out (`pip install -e .[bench]`).
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

CONTENDERS = (
    "dynagraph", "dynagraph.torch", "dynagraph.torch of a loss", "autograd", "jax", "torch.compile", "torch.compile of a step",
    "torch",
)  # fmt: skip
RATE = 1e-3

# -- the models, for any namespace that spells as NumPy does ------------------------------------------------------------------


def models(xp: Any) -> dict[str, Callable[..., Any]]:
    """The losses: functions of parameters, a dict of arrays, inputs and targets."""

    def cross_entropy(z: Any, y: Any) -> Any:
        z = z - xp.max(z, axis=1, keepdims=True)
        chosen = xp.sum(z * y, axis=1)
        return xp.mean(xp.log(xp.sum(xp.exp(z), axis=1)) - chosen)

    def gelu(x: Any) -> Any:
        return 0.5 * x * (1.0 + xp.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))

    def norm(x: Any, gain: Any, bias: Any) -> Any:
        centred = x - xp.mean(x, axis=-1, keepdims=True)
        variance = xp.mean(centred * centred, axis=-1, keepdims=True)
        return centred / xp.sqrt(variance + 1e-5) * gain + bias

    def softmax(x: Any) -> Any:
        e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
        return e / xp.sum(e, axis=-1, keepdims=True)

    def digits(p: Any, x: Any, y: Any) -> Any:
        h = xp.tanh(x @ p["w1"] + p["b1"])
        return cross_entropy(h @ p["w2"] + p["b2"], y)

    def gelu_net(p: Any, x: Any, y: Any) -> Any:
        return cross_entropy(gelu(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"], y)

    def transformer(p: Any, x: Any, y: Any) -> Any:
        batch, tokens, width = x.shape
        heads, size = 8, width // 8
        h = norm(x, p["gain1"], p["bias1"])
        q, k, v = (xp.transpose(xp.reshape(h @ p[w], (batch, tokens, heads, size)), (0, 2, 1, 3)) for w in ("wq", "wk", "wv"))
        weights = softmax(q @ xp.transpose(k, (0, 1, 3, 2)) * (1.0 / size**0.5))
        mixed = xp.reshape(xp.transpose(weights @ v, (0, 2, 1, 3)), (batch, tokens, width))
        x = x + mixed @ p["wo"]
        h = norm(x, p["gain2"], p["bias2"])
        x = x + gelu(h @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"]
        error = x - y
        return xp.mean(error * error)

    return {"digits": digits, "gelu": gelu_net, "transformer": transformer}


def torch_models(torch: ModuleType) -> dict[str, Callable[..., Any]]:
    """The same as a user of torch writes them."""
    F = torch.nn.functional

    def digits(p: Any, x: Any, y: Any) -> Any:
        return F.cross_entropy(torch.tanh(x @ p["w1"] + p["b1"]) @ p["w2"] + p["b2"], y)

    def gelu_net(p: Any, x: Any, y: Any) -> Any:
        return F.cross_entropy(F.gelu(x @ p["w1"] + p["b1"], approximate="tanh") @ p["w2"] + p["b2"], y)

    def transformer(p: Any, x: Any, y: Any) -> Any:
        batch, tokens, width = x.shape
        h = F.layer_norm(x, (width,), p["gain1"], p["bias1"])
        q, k, v = ((h @ p[w]).reshape(batch, tokens, 8, width // 8).transpose(1, 2) for w in ("wq", "wk", "wv"))
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, tokens, width)
        x = x + mixed @ p["wo"]
        h = F.layer_norm(x, (width,), p["gain2"], p["bias2"])
        x = x + F.gelu(h @ p["w1"] + p["b1"], approximate="tanh") @ p["w2"] + p["b2"]
        return F.mse_loss(x, y)

    return {"digits": digits, "gelu": gelu_net, "transformer": transformer}


# -- their data -----------------------------------------------------------------------------------------------------------------


@dataclass
class Problem:
    params: dict[str, np.ndarray]
    x: np.ndarray
    y: np.ndarray
    adam: bool


def problem(name: str) -> Problem:
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return (rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)

    def zeros(*shape: int) -> np.ndarray:
        return np.zeros(shape, np.float32)

    if name == "transformer":
        width, inner = 512, 2048
        params = {w: normal(width, width) for w in ("wq", "wk", "wv", "wo")}
        params |= {"w1": normal(width, inner), "b1": zeros(inner), "w2": normal(inner, width), "b2": zeros(width)}
        params |= {"gain1": zeros(width) + 1, "bias1": zeros(width), "gain2": zeros(width) + 1, "bias2": zeros(width)}
        x, y = (rng.normal(size=(8, 256, width)).astype(np.float32) for _ in range(2))
        return Problem(params, x, y, adam=True)
    inputs, hidden = (64, 128) if name == "digits" else (784, 512)
    params = {"w1": normal(inputs, hidden), "b1": zeros(hidden), "w2": normal(hidden, 10), "b2": zeros(10)}
    y = np.eye(10, dtype=np.float32)[rng.integers(0, 10, 256)]
    return Problem(params, rng.normal(size=(256, inputs)).astype(np.float32), y, adam=name != "digits")


# -- the steps -------------------------------------------------------------------------------------------------------------------


def update(xp: Any, p: Any, m: Any, v: Any, g: Any, t: Any, adam: bool) -> tuple[Any, Any, Any]:
    """New parameters and moments, for arrays that are not written to."""
    if not adam:
        return p - RATE * g, m, v
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    return p - RATE * (m / (1 - 0.9**t)) / (xp.sqrt(v / (1 - 0.999**t)) + 1e-8), m, v


def dynagraph_step(name: str, given: Problem) -> Callable[[], Any]:
    import dynagraph as dg

    loss = models(np)[name]
    adam = given.adam

    @dg.compile(mode="max")
    def step(p: Any, m: Any, v: Any, x: Any, y: Any, t: int) -> Any:
        value, gradients = dg.value_and_grad(loss)(p, x, y)
        for k, g in gradients.items():
            if adam:
                m[k] *= 0.9
                m[k] += 0.1 * g
                v[k] *= 0.999
                v[k] += 0.001 * g * g
                p[k] -= RATE * (m[k] / (1 - 0.9**t)) / (np.sqrt(v[k] / (1 - 0.999**t)) + 1e-8)
            else:
                p[k] -= RATE * g
        return value

    p, m, v = ({k: a.copy() * f for k, a in given.params.items()} for f in (np.float32(1), np.float32(0), np.float32(0)))
    state = SimpleNamespace(t=1)

    def run() -> Any:
        state.t += 1
        return step(p, m, v, given.x, given.y, state.t)

    run.compiled = step  # type: ignore[attr-defined]
    return run


def autograd_step(name: str, given: Problem) -> Callable[[], Any]:
    import autograd
    import autograd.numpy as anp

    value_and_gradient = autograd.value_and_grad(models(anp)[name])
    p, m, v = ({k: a.copy() * f for k, a in given.params.items()} for f in (np.float32(1), np.float32(0), np.float32(0)))
    state = SimpleNamespace(t=1)

    def run() -> Any:
        state.t += 1
        value, gradients = value_and_gradient(p, given.x, given.y)
        for k, g in gradients.items():
            p[k], m[k], v[k] = update(np, p[k], m[k], v[k], g, state.t, given.adam)
        return value

    return run


def jax_step(name: str, given: Problem) -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp

    loss = models(jnp)[name]

    def step(p: Any, m: Any, v: Any, x: Any, y: Any, t: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(p, x, y)
        new = {k: update(jnp, p[k], m[k], v[k], g, t, given.adam) for k, g in gradients.items()}
        return value, *({k: n[i] for k, n in new.items()} for i in range(3))

    compiled = jax.jit(step, donate_argnums=(0, 1, 2))
    x, y = jnp.asarray(given.x), jnp.asarray(given.y)
    state = SimpleNamespace(t=1.0, of=[{k: jnp.asarray(a * f) for k, a in given.params.items()} for f in (1, 0, 0)])

    def run() -> Any:
        state.t += 1
        value, *state.of = compiled(*state.of, x, y, state.t)
        return jax.block_until_ready((value, state.of))[0]

    return run


def torch_step(name: str, given: Problem, compiled: bool) -> Callable[[], Any]:
    import torch

    loss = torch_models(torch)[name]
    p = {k: torch.tensor(a, requires_grad=True) for k, a in given.params.items()}
    x = torch.from_numpy(given.x)
    y = torch.from_numpy(given.y if name == "transformer" else given.y.argmax(1))
    kind = torch.optim.Adam if given.adam else torch.optim.SGD
    optimiser = kind(list(p.values()), lr=RATE)
    forward = torch.compile(loss) if compiled else loss
    advance = torch.compile(optimiser.step) if compiled else optimiser.step

    def run() -> Any:
        optimiser.zero_grad()
        value = forward(p, x, y)
        value.backward()
        advance()
        return value

    return run


def step_in_torch(torch: Any, compiler: Callable[..., Any], name: str, given: Problem, whole: bool = True) -> Callable[[], Any]:
    """A step as a function of PyTorch's API, compiled: the same text for dynagraph.torch and for PyTorch.

    With `whole` it is one function; else the loss is one and the update is one, and backward() is called between them.
    """
    loss = torch_models(torch)[name]
    adam = given.adam
    p = {k: torch.tensor(a, requires_grad=True) for k, a in given.params.items()}
    m, v = ({k: torch.zeros_like(a) for k, a in p.items()} for _ in range(2))
    x = torch.from_numpy(given.x)
    y = torch.from_numpy(given.y if name == "transformer" else given.y.argmax(1))

    def update(p: Any, m: Any, v: Any, t: int) -> None:
        with torch.no_grad():
            for k, w in p.items():
                if adam:
                    m[k].mul_(0.9).add_(w.grad, alpha=0.1)
                    v[k].mul_(0.999).addcmul_(w.grad, w.grad, value=0.001)
                    w.sub_(RATE * (m[k] / (1 - 0.9**t)) / ((v[k] / (1 - 0.999**t)).sqrt() + 1e-8))
                else:
                    w.sub_(w.grad, alpha=RATE)

    def step(p: Any, m: Any, v: Any, x: Any, y: Any, t: int) -> Any:
        for w in p.values():
            w.grad = None
        value = loss(p, x, y)
        value.backward()
        update(p, m, v, t)
        return value.detach()

    compiled, state = compiler(step if whole else loss), SimpleNamespace(t=1)
    compiled_update = update if whole else compiler(update)

    def run() -> Any:
        state.t += 1
        return compiled(p, m, v, x, y, state.t)

    def run_in_parts() -> Any:
        state.t += 1
        for w in p.values():
            w.grad = None
        value = compiled(p, x, y)
        value.backward()
        compiled_update(p, m, v, state.t)
        return value

    made = run if whole else run_in_parts
    made.compiled = compiled  # type: ignore[attr-defined]
    return made


def step_in_dynagraph_torch(name: str, given: Problem) -> Callable[[], Any]:
    import dynagraph as dg
    import dynagraph.torch

    return step_in_torch(dynagraph.torch, dg.compile(mode="max"), name, given)


def loss_in_dynagraph_torch(name: str, given: Problem) -> Callable[[], Any]:
    import dynagraph as dg
    import dynagraph.torch

    return step_in_torch(dynagraph.torch, dg.compile(mode="max"), name, given, whole=False)


def step_in_torch_compile(name: str, given: Problem) -> Callable[[], Any]:
    import torch

    return step_in_torch(torch, torch.compile, name, given)


MAKERS: dict[str, Callable[[str, Problem], Callable[[], Any]]] = {
    "dynagraph": dynagraph_step,
    "autograd": autograd_step,
    "jax": jax_step,
    "dynagraph.torch": step_in_dynagraph_torch,
    "dynagraph.torch of a loss": loss_in_dynagraph_torch,
    "torch.compile": lambda name, given: torch_step(name, given, compiled=True),
    "torch.compile of a step": step_in_torch_compile,
    "torch": lambda name, given: torch_step(name, given, compiled=False),
}


def set_threads(threads: int, contenders: list[str]) -> None:
    if any(c.startswith("dynagraph") for c in contenders):
        import dynagraph as dg

        dg.config.threads = threads
    if any(c.startswith("torch") for c in contenders):
        import torch

        torch.set_num_threads(threads)


# -- measuring ---------------------------------------------------------------------------------------------------------------------


def measure(name: str, contenders: list[str], rounds: int) -> dict[str, dict[str, float]]:
    runs, found = {}, {}
    for contender in contenders:
        run = MAKERS[contender](name, problem(name))
        start = time.perf_counter()
        first = run().item()
        found[contender] = {"first_call_s": time.perf_counter() - start, "first_loss": first}
        for _ in range(3):
            run()
        runs[contender] = run
    samples: dict[str, list[float]] = {c: [] for c in contenders}
    calls = {}
    for contender, run in runs.items():
        start = time.perf_counter()
        run()
        calls[contender] = max(1, round(0.02 / (time.perf_counter() - start)))
    for _ in range(rounds):
        for contender, run in runs.items():
            start = time.perf_counter()
            for _ in range(calls[contender]):
                run()
            samples[contender].append((time.perf_counter() - start) / calls[contender])
    for contender in contenders:
        found[contender] |= {"median_s": statistics.median(samples[contender]), "loss": runs[contender]().item()}
    for contender in {"dynagraph", "dynagraph.torch", "dynagraph.torch of a loss"} & runs.keys():
        compiled = runs[contender].compiled  # type: ignore[attr-defined]
        stats = compiled.stats
        assert not stats.breaks and not stats.fallbacks, (stats, stats.breaks, stats.last_error)
        found[contender]["cold_compile_s"] = max(p.capture_seconds + p.compile_seconds for p in compiled.programs)
    return found


def peak_memory(name: str, contender: str, threads: int) -> float | None:
    """MB that a process of its own holds at most during five warm steps, beyond what it held before the arrays were made."""
    script = f"import training; print(training.held_by_steps({name!r}, {contender!r}, {threads}))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=600, check=False
    )
    return float(done.stdout.split()[-1]) if done.returncode == 0 else None


def held_by_steps(name: str, contender: str, threads: int) -> float:
    set_threads(threads, [contender])
    warm = MAKERS[contender]("digits", problem("digits"))
    for _ in range(3):
        warm()
    gc.collect()
    before = _status("VmRSS")
    run = MAKERS[contender](name, problem(name))
    for _ in range(3):
        run()
    Path("/proc/self/clear_refs").write_text("5")
    for _ in range(5):
        run()
    return (_status("VmHWM") - before) / 1024


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", choices=list(models(np)))
    parser.add_argument("--contenders", default=",".join(CONTENDERS))
    parser.add_argument("--json")
    parser.add_argument("--no-memory", action="store_true")
    options = parser.parse_args()
    contenders = [c for c in options.contenders.split(",") if importlib.util.find_spec(c.split(".")[0])]
    set_threads(options.threads, contenders)
    results: dict[str, Any] = {}
    for name in [options.only] if options.only else list(models(np)):
        found = results[name] = measure(name, contenders, options.rounds)
        if not options.no_memory:
            for contender in contenders:
                found[contender]["peak_mb"] = peak_memory(name, contender, options.threads)
        ours = found.get("dynagraph", {}).get("median_s", float("nan"))
        for contender, row in found.items():
            memory = "" if row.get("peak_mb") is None else f"  peak {row['peak_mb']:7.1f} MB"
            cold = f"  cold compile {row['cold_compile_s']:.2f} s" if "cold_compile_s" in row else ""
            print(
                f"{name:12s} {contender:24s} {1e3 * row['median_s']:9.3f} ms  {row['median_s'] / ours:6.2f}x of ours{memory}"
                f"  first call {row['first_call_s']:6.2f} s  loss {row['first_loss']:.6f} to {row['loss']:.6f}{cold}",
                flush=True,
            )
    if options.json:
        Path(options.json).write_text(json.dumps({"threads": options.threads, "cpu": os.cpu_count(), "steps": results}, indent=1))


if __name__ == "__main__":
    main()
