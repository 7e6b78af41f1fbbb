"""Convolutions, pooling and steps of small networks in dynagraph.torch, against PyTorch in the same process: eager and compiled.

    OMP_WAIT_POLICY=passive python benchmarks/convolutions.py [--threads 2] [--rounds 15] [--only 3x3] [--no-compile] [--json F]

All in turn; figures are medians of rounds.  "forward" is without gradients; "step" is forward, backward and the gradients by all
operands.  PyTorch is needed (`pip install -e .[bench]`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dynagraph as dg
import dynagraph.torch
from dynagraph.driver.background import WORK
from dynagraph.tools.measure import measure

Made = tuple[Callable[..., Any], list[Any]]  # a function of tensors, and these
Workload = Callable[[Any], Made]


def tensor(library: Any, *shape: int, seed: int = 0, scale: float = 1.0) -> Any:
    values = np.random.default_rng([seed, *shape]).standard_normal(shape) * scale
    return library.from_numpy(values.astype(np.float32))


def convolution(name: str, images: tuple[int, ...], filters: tuple[int, ...], **about: Any) -> Workload:
    def make(library: Any) -> Made:
        function = getattr(library.nn.functional, name)
        count = filters[0] if "transpose" not in name else filters[1]
        operands = [tensor(library, *images), tensor(library, *filters), tensor(library, count)]
        return lambda x, w, b: function(x, w, b, **about), operands

    return make


def pooling(name: str, images: tuple[int, ...], *args: Any) -> Workload:
    return lambda library: (lambda x: getattr(library.nn.functional, name)(x, *args), [tensor(library, *images)])


def normalisation(*images: int) -> Workload:
    def make(library: Any) -> Made:
        def apply(x: Any, weight: Any, bias: Any) -> Any:
            y = library.nn.functional.batch_norm(x, None, None, weight, bias, True)
            return y * y

        return apply, [tensor(library, *images), tensor(library, images[1]), tensor(library, images[1])]

    return make


def basic_block(library: Any) -> Made:
    """ResNet's, while it is trained: two convolutions, normalised by the batch, and a sum."""
    F, n = library.nn.functional, 64

    def block(x: Any, first: Any, second: Any, *about: Any) -> Any:
        y = F.relu(F.batch_norm(F.conv2d(x, first, padding=1), None, None, *about[:2], True))
        return F.relu(F.batch_norm(F.conv2d(y, second, padding=1), None, None, *about[2:], True) + x)

    filters = [tensor(library, n, n, 3, 3, seed=k, scale=0.05) for k in range(2)]
    return block, [tensor(library, 8, n, 32, 32), *filters, *(tensor(library, n, seed=k) for k in range(4))]


def folded_block(library: Any) -> Made:
    """ResNet's, once it is trained: normalised by numbers that are known."""
    F, n = library.nn.functional, 64
    mean, variance = library.zeros(n), library.ones(n)

    def block(x: Any, first: Any, second: Any, *about: Any) -> Any:
        y = F.relu(F.batch_norm(F.conv2d(x, first, padding=1), mean, variance, *about[:2], False))
        return F.relu(F.batch_norm(F.conv2d(y, second, padding=1), mean, variance, *about[2:], False) + x)

    return block, basic_block(library)[1]


def digits(library: Any) -> Made:
    """A network for images of 8 x 8: the loss of a batch."""
    F = library.nn.functional
    targets = library.from_numpy(np.random.default_rng(0).integers(0, 10, 64))

    def loss(x: Any, first: Any, a: Any, second: Any, b: Any, last: Any, c: Any) -> Any:
        h = F.max_pool2d(F.relu(F.conv2d(x, first, a, padding=1)), 2)
        h = F.max_pool2d(F.relu(F.conv2d(h, second, b, padding=1)), 2)
        return F.cross_entropy(F.linear(h.flatten(1), last, c), targets)

    shapes = ((64, 1, 8, 8), (16, 1, 3, 3), (16,), (32, 16, 3, 3), (32,), (10, 128), (10,))
    return loss, [tensor(library, *s, seed=k, scale=0.1) for k, s in enumerate(shapes)]


WORKLOADS: dict[str, Workload] = {
    "3x3, 64 channels": convolution("conv2d", (8, 64, 32, 32), (64, 64, 3, 3), padding=1),
    "3x3, stride 2": convolution("conv2d", (8, 64, 32, 32), (128, 64, 3, 3), padding=1, stride=2),
    "3x3, 512 channels, 7x7": convolution("conv2d", (8, 512, 7, 7), (512, 512, 3, 3), padding=1),
    "1x1, 64 -> 128": convolution("conv2d", (8, 64, 32, 32), (128, 64, 1, 1)),
    "1x1, 256 -> 256, 14x14": convolution("conv2d", (8, 256, 14, 14), (256, 256, 1, 1)),
    "7x7, stride 2, 3 channels": convolution("conv2d", (4, 3, 224, 224), (64, 3, 7, 7), padding=3, stride=2),
    "3x3, depthwise": convolution("conv2d", (8, 64, 56, 56), (64, 1, 3, 3), padding=1, groups=64),
    "3x3, depthwise, stride 2": convolution("conv2d", (8, 64, 56, 56), (64, 1, 3, 3), padding=1, stride=2, groups=64),
    "3x3, 32 groups": convolution("conv2d", (8, 128, 28, 28), (128, 4, 3, 3), padding=1, groups=32),
    "3x3, digits, 1 -> 16": convolution("conv2d", (64, 1, 8, 8), (16, 1, 3, 3), padding=1),
    "3x3, digits, 16 -> 32": convolution("conv2d", (64, 16, 8, 8), (32, 16, 3, 3), padding=1),
    "audio, 9, 32 -> 64": convolution("conv1d", (8, 32, 4000), (64, 32, 9), padding=4),
    "volumes, 3x3x3": convolution("conv3d", (2, 16, 16, 16, 16), (32, 16, 3, 3, 3), padding=1),
    "transposed, 4x4, stride 2": convolution("conv_transpose2d", (8, 64, 16, 16), (64, 32, 4, 4), stride=2, padding=1),
    "max_pool2d, 2": pooling("max_pool2d", (8, 64, 32, 32), 2),
    "max_pool2d, 3, stride 2": pooling("max_pool2d", (8, 64, 56, 56), 3, 2, 1),
    "avg_pool2d, 2": pooling("avg_pool2d", (8, 64, 32, 32), 2),
    "batch_norm, training": normalisation(8, 64, 32, 32),
    "basic block, training": basic_block,
    "basic block, inference": folded_block,
    "digits, training": digits,
}  # fmt: skip


def runs_of(function: Callable[..., Any], operands: list[Any], library: Any, change: Callable[..., Any]) -> dict[str, Any]:
    """The forward pass and the step as functions without arguments, changed in some way: compiled."""

    def step(*given: Any) -> Any:
        leaves = [x.detach().requires_grad_() for x in given]
        function(*leaves).sum().backward()
        return [x.grad for x in leaves]

    forward, whole = change(function), change(step)

    def without_gradients() -> Any:
        with library.no_grad():
            return forward(*operands)

    return {"forward": without_gradients, "step": lambda: whole(*operands)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", help="workloads whose name has this: 3x3, pool, digits...")
    parser.add_argument("--no-compile", action="store_true", help="the eager ones only")
    parser.add_argument("--json")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    dg.config.threads = options.threads
    found: dict[str, Any] = {}
    changes: dict[str, dict[str, Callable[..., Any]]] = {"eager": {"ours": lambda f: f, "torch": lambda f: f}}
    if not options.no_compile:
        changes["compiled"] = {"ours": lambda f: dg.compile(f, mode="max"), "torch": torch.compile}
    for name, make in WORKLOADS.items():
        if options.only not in name:
            continue
        libraries: dict[str, Any] = {"ours": dynagraph.torch, "torch": torch}
        for how, change in changes.items():
            runs = {who: runs_of(*make(library), library, change[who]) for who, library in libraries.items()}
            for what in ("forward", "step"):
                contenders = {who: of_one[what] for who, of_one in runs.items()}
                for call in contenders.values():
                    for _ in range(8):  # programs are compiled, ours beside the first calls, and compared with plain ones
                        call()
                        WORK.wait()
                samples = measure(contenders, options.rounds)
                mine, other = (samples[who].median for who in ("ours", "torch"))
                found.setdefault(name, {})[f"{how} {what}"] = {"ours_s": mine, "torch_s": other}
                times = f"{1e3 * mine:9.3f} ms  torch {1e3 * other:9.3f} ms  {other / mine:6.2f} times as fast"
                print(f"{name:27} {how:8} {what:8} {times}", flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
