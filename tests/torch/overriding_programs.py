"""Programs with classes that have ``__torch_function__``, by one torch or the other: what was asked for, and what came of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any


def classes(torch: Any, log: list[Any]) -> tuple[Any, Any, Any]:
    """A subclass that notes what it is asked for, one of it that says nothing, and a class that is no tensor."""

    class Noted(torch.Tensor):  # type: ignore[misc]
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = func.__name__.strip("_").removeprefix("linalg_").removeprefix("fft_").removeprefix("special_")
            log.append((name, [type(a).__name__ for a in args]))
            return super().__torch_function__(func, types, args, kwargs)

    class Below(Noted):
        extra = 3

    class Scalar:
        def __init__(self, value: float, size: int):
            self.value, self.size = value, size

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func not in HANDLED or not all(issubclass(kind, (torch.Tensor, Scalar)) for kind in types):
                return NotImplemented
            return HANDLED[func](*args, **(kwargs or {}))

    HANDLED: dict[Any, Callable[..., Any]] = {
        torch.mean: lambda x: x.value / x.size,
        torch.add: lambda x, y: Scalar(getattr(x, "value", 2.0) + getattr(y, "value", 2.0), 1),
        torch.nn.functional.relu: lambda x, inplace=False: Scalar(max(x.value, 0.0), x.size),
        torch.stack: lambda xs, dim=0: [getattr(x, "value", None) for x in xs],
    }
    return Noted, Below, Scalar


def said(torch: Any, value: Any) -> Any:
    """What came of it: kinds and numbers."""
    if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
        return [said(torch, each) for each in value]
    if isinstance(value, torch.Tensor):
        return type(value).__name__, str(value.dtype), value.detach().as_subclass(torch.Tensor).tolist()
    if type(value).__name__ == "Scalar":
        return "Scalar", value.value, value.size
    return type(value).__name__, value.__name__ if isinstance(value, type) else str(value)


# of torch, its functional, an instance of Noted, a plain tensor, one of Below, a Scalar
PROGRAMS: dict[str, Callable[..., Any]] = {
    "operators": lambda t, F, s, p, b, q: [s + 1, p + s, 1 + s, p - s, 1 - s, 2**s, -s, abs(s), p @ s, s @ p, p / s, s // 2, s % 2],
    "comparisons": lambda t, F, s, p, b, q: [s == p, p == s, s > 0, p >= s, s != 1, (s > 0) & (p > 0), ~(s > 0)],
    "both": lambda t, F, s, p, b, q: [s + b, b + s, t.add(s, b), t.add(p, b)],
    "functions": lambda t, F, s, p, b, q: [t.add(p, s), t.relu(s), t.zeros_like(s), t.where(p > 0, s, p), t.exp(s), t.sum(s)],
    "sequences": lambda t, F, s, p, b, q: [t.stack([p, s]), t.cat((s, p)), t.stack([p, p]), t.einsum("i,i->", s, p)],
    "functional": lambda t, F, s, p, b, q: [F.relu(s), F.mse_loss(s, p), F.layer_norm(s, (3,)), F.softmax(s, dim=0), F.gelu(s)],
    "methods": lambda t, F, s, p, b, q: [s.exp(), s.sum(), s.max(0), s.split(1), s.clone(), s.detach(), s.reshape(3, 1)],
    "attributes": lambda t, F, s, p, b, q: [s.shape, s.dtype, s.grad, s.data, s.is_leaf, s.size(), s.dim(), s.ndim],
    "items": lambda t, F, s, p, b, q: [s[0], s[1:], list(s), len(s), float(s[0]), bool(s[0] > 0), s.tolist(), 1.0 in s],
    "in place": lambda t, F, s, p, b, q: [s.add_(1), s.mul_(2), s.__iadd__(p), s.__setitem__(0, 5.0), s, s.zero_()],
    "linear algebra": lambda t, F, s, p, b, q: [t.linalg.norm(s), t.fft.rfft(s), t.special.expit(s)],
    "layers": lambda t, F, s, p, b, q: [t.nn.ReLU()(s), t.nn.Sequential(t.nn.Identity(), t.nn.Tanh())(s), t.nn.Parameter(p) + 1],
    "attributes of classes": lambda t, F, s, p, b, q: [(b + 1).extra, isinstance(b, t.Tensor), t.is_tensor(b), type(b * 2)],
    "without": lambda t, F, s, p, b, q: _without(t, s),
    "other objects": lambda t, F, s, p, b, q: [t.mean(q), t.add(q, q), t.add(p, q), t.add(q, 1), F.relu(q), t.stack([q, q])],
    "refused": lambda t, F, s, p, b, q: _refused(t, q),
    "gradients": lambda t, F, s, p, b, q: _gradients(t, s, p),
    "hash and copy": lambda t, F, s, p, b, q: [s in {s}, copy.copy(p), hash(s) == hash(s)],
}  # fmt: skip


def _without(torch: Any, s: Any) -> Any:
    with torch._C.DisableTorchFunctionSubclass():
        inside = s + 1
    return [inside, s + 1]


def _refused(torch: Any, q: Any) -> str:
    try:
        torch.sub(q, q)
    except TypeError as error:
        return type(error).__name__
    return ""


def _gradients(torch: Any, s: Any, p: Any) -> Any:
    w = torch.ones(3, requires_grad=True)
    (torch.sigmoid(s * w) * p).sum().backward()
    return [w.grad, (w * s).requires_grad]


def outcome(torch: Any, name: str) -> tuple[Any, list[Any]]:
    """What a program gives, and what was asked for."""
    log: list[Any] = []
    Noted, Below, Scalar = classes(torch, log)
    s, p, b = torch.tensor([1.0, -2.0, 3.0]).as_subclass(Noted), torch.tensor([0.5, 1.5, -1.0]), torch.ones(3).as_subclass(Below)
    log.clear()
    found = PROGRAMS[name](torch, torch.nn.functional, s, p, b, Scalar(3.0, 2))
    asked = list(log)
    with torch._C.DisableTorchFunctionSubclass():
        return said(torch, found), asked
