"""What tensors look like."""

from __future__ import annotations

import random

from tests.torch.table import Case, T, program

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool", "complex64", "complex128")
VALUES = {
    "zeros": [0.0, 0.0], "whole": [1.0, 2.0, -3.0], "large": [1e9, 1.0], "wide": [1e-3, 1e3, 1.5], "small": [1e-5, 2e-5], "nan": [float("nan"), 1.5], "only nan": [float("nan")],
    "inf": [float("inf"), -float("inf"), 2.0], "whole and inf": [1.0, float("inf")], "one": [1.5], "tiny": [1e-40, 1.0], "negative": [-1.25, 100.5], "hundred million": [1e8, 1.0],
    "just under": [99999999.0], "whole and wide": [1.0, 2000.0], "exact": [0.1, 0.25], "huge whole": [1e15, 3e15],
}
SHAPES: list[tuple[int, ...]] = [(), (1,), (3,), (30,), (2, 3), (2, 40), (2, 3, 4), (2, 2, 2, 2), (1000,), (1001,), (2000,), (30, 40), (10, 10, 11), (7, 200), (200, 7), (2, 600), (5, 5, 50), (0,), (0, 3), (2, 0, 3), (1, 1, 1)]


def _shown(torch, x):  # type: ignore[no-untyped-def]
    return repr(x), str(x)


def _with(torch, x, **options):  # type: ignore[no-untyped-def]
    torch.set_printoptions(**options)
    try:
        return repr(x)
    finally:
        torch.set_printoptions(profile="default")


def _grad_fns(torch, x):  # type: ignore[no-untyped-def]
    y = x.clone()
    y.mul_(2)
    z = x.clone()
    z[0] = 1
    return [repr(v) for v in (x, x + 1, x * 2, x.sum(), x.mean(), x.sum(0), x.exp(), x.view(-1), x.t(), x[0], x[:1], x.detach(), x.clone(), x.reshape(-1), x / 2, 1 - x, 2 / x, x @ x.t(), -x, x**2, y, z,
            x.max(), x.max(0).values, x.clamp(0), x.relu(), x.transpose(0, 1), x.unsqueeze(0), x.squeeze(), x.expand(2, 2, 3), x.permute(1, 0), x[[0]], torch.cat([x, x]), torch.stack([x, x]),
            x.sigmoid(), x.tanh(), x.softmax(0) if hasattr(x, "softmax") else x, x.to(torch.float64), x.to(torch.float16), x.norm(), x.std(), x.var(), x.abs(), x.sqrt(), x.prod(), x.cumsum(0),
            torch.where(x > 0, x, x * 2), x.unbind()[0], x.split(1)[0], x.chunk(2)[1], x.T, x.diagonal(), x.flatten(), x.sin(), x.log(), x.pow(3), x.flip(0), x.repeat(2, 1), x.tril(), x.requires_grad_())]


def _random(torch, seed):  # type: ignore[no-untyped-def]
    """Tensors of random shapes, sizes of numbers and options."""
    rng = random.Random(seed)
    found = []
    for _ in range(20):
        shape = tuple(rng.choice([1, 2, 3, 5, 9, 30]) for _ in range(rng.randrange(0, 4)))
        count = 1
        for n in shape:
            count *= n
        scale = 10.0 ** rng.randrange(-7, 10)
        values = [rng.choice([rng.gauss(0, 1) * scale, float(rng.randrange(-100, 100)), 0.0, rng.gauss(0, 1)]) for _ in range(count)]
        if rng.random() < 0.1:
            values[0] = float("nan")
        if rng.random() < 0.1:
            values[-1] = -float("inf")
        kind = rng.choice(["float32", "float64", "float32", "complex64", "int64", "bool", "float16"])
        if kind in ("int64", "bool"):
            values = [int(v) if v == v and abs(v) < 1e15 else 0 for v in values]
        if kind == "complex64":
            values = [complex(v, w) for v, w in zip(values, reversed(values))]
        x = torch.tensor(values, dtype=getattr(torch, kind)).reshape(shape)
        options = rng.choice([{}, {}, {"precision": 2}, {"sci_mode": True}, {"sci_mode": False}, {"linewidth": 120}, {"threshold": 5}, {"threshold": 5, "edgeitems": 1}])
        found.append(_with(torch, x, **options))
    return found


CASES: list[Case] = [
    *(program(f"shape {shape}", _shown, T(*shape), _dtypes="float32 int64 bool complex128" if len(shape) < 3 else "float32") for shape in SHAPES),
    *(program(f"{name} of {dtype}", lambda torch, values=values, dtype=dtype: repr(torch.tensor(values, dtype=getattr(torch, dtype)))) for name, values in VALUES.items()
      for dtype in ("float32", "float64", "float16", "bfloat16", "complex64")),
    *(program(f"dtype {dtype}", lambda torch, dtype=dtype: [repr(torch.ones(shape, dtype=getattr(torch, dtype))) for shape in ((), (2,), (0,), (2, 2), (0, 2))]) for dtype in DTYPES),
    program("requires_grad", lambda torch, x: (repr(x), repr(x[0]), repr(x.detach())), T(2, 3), _dtypes="float32 float16"),
    program("grad_fn", _grad_fns, T(2, 3, kind="positive"), _dtypes="float32", _second=False),
    *(program(f"options {options}", lambda torch, x, options=options: _with(torch, x, **options), T(3, 40), _dtypes="float32 int64")
      for options in ({"precision": 2}, {"precision": 8}, {"threshold": 10}, {"edgeitems": 1, "threshold": 5}, {"linewidth": 40}, {"linewidth": 200}, {"sci_mode": True}, {"sci_mode": False},
                      {"profile": "short"}, {"profile": "full"}, {"threshold": 10, "edgeitems": 5})),
    program("long suffixes break the line", lambda torch: [repr(torch.arange(n, dtype=torch.int32)) for n in range(1, 30)]),
    program("long numbers break the line", lambda torch: [repr(torch.arange(n, dtype=torch.float64) / 7) for n in range(1, 30)]),
    program("empty ones with gradients", lambda torch: [repr(torch.zeros(0, 3, requires_grad=True)), repr(torch.zeros(0, requires_grad=True) * 2), repr(torch.zeros(0, dtype=torch.float64))]),
    program("named tuples", lambda torch, x: (repr(torch.max(x, 0)), repr(x.max(1))), T(2, 3, kind="distinct"), _dtypes="int64"),
    program("sizes", lambda torch, x: (repr(x.shape), str(x.size()), repr(x.shape[:1]), f"{x.shape}"), T(2, 3)),
    program("dtypes and devices", lambda torch: [repr(v) for v in (torch.float32, torch.int64, torch.device("cpu"), torch.device("cuda:1"), torch.bool)] + [str(torch.device("cuda", 1)), str(torch.float16)]),
    program("formatting in f-strings", lambda torch, x: f"{x}", T(2, 3)),
    *(program(f"random tensors {seed}", lambda torch, seed=seed: _random(torch, seed)) for seed in range(25)),
]
