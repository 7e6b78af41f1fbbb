"""torch.signal.windows: their numbers, dtypes and errors."""

from __future__ import annotations

from typing import Any

from tests.torch.distributions.tools import wrong
from tests.torch.table import A, Case, attribute, case

NAMES = (
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann", "kaiser",
    "nuttall",
)  # fmt: skip
MORE: list[tuple[str, dict[str, Any]]] = [
    ("exponential", {"tau": 3.0}), ("exponential", {"tau": 2.0, "center": 1.5, "sym": False}), ("gaussian", {"std": 2.5}),
    ("kaiser", {"beta": 3.0}), ("kaiser", {"beta": 0.0}), ("general_hamming", {"alpha": 0.7}),
    ("general_cosine", {"a": (0.3, 0.7)}),
]  # fmt: skip
BAD: list[tuple[str, int, dict[str, Any]]] = [
    *((name, -1, {}) for name in ("hann", "kaiser", "cosine")), ("hann", 4, {"dtype": "float16"}), ("exponential", 4, {"tau": 0.0}),
    ("exponential", 4, {"center": 1.0}), ("gaussian", 4, {"std": 0.0}), ("kaiser", 4, {"beta": -1.0}),
    ("general_cosine", 4, {"a": []}), ("general_cosine", 4, {"a": 3}), ("bartlett", 4, {"dtype": "int64"}),
]  # fmt: skip


def _needed(name: str) -> dict[str, Any]:
    return {"a": [0.5, 0.3, 0.2]} if name == "general_cosine" else {}


def _bad(name: str, count: int, about: dict[str, Any]) -> Any:
    def run(torch: Any) -> Any:
        given = {k: getattr(torch, v) if k == "dtype" else v for k, v in (_needed(name) | about).items()}
        return attribute(torch, f"signal.windows.{name}")(count, **given)

    return run


CASES: list[Case] = [
    *(case(f"signal.windows.{name}", count, sym=sym, dtype=A("float64"), **_needed(name))
      for name in NAMES for count in (0, 1, 2, 7, 12) for sym in (True, False)),
    *(case(f"signal.windows.{name}", 6, requires_grad=grad, **_needed(name)) for name in NAMES for grad in (False, True)),
    *(case(f"signal.windows.{name}", 8, **about) for name, about in MORE),
    *(wrong(f"{name} of {count} with {about}", _bad(name, count, about)) for name, count, about in BAD),
]  # fmt: skip
