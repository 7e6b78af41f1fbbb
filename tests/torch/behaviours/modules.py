"""nn.Module: members, hooks, state dicts, conversions, errors."""

from __future__ import annotations

import copy
import pickle
from typing import Any

from tests.torch.behaviours import behaviour, raised


def kinds(torch: Any) -> tuple[Any, Any]:
    """Two classes of modules: a layer, and a net of layers, one of them under two names."""
    nn = torch.nn

    class Layer(nn.Module):
        def __init__(self, i: int, o: int) -> None:
            super().__init__()
            self.i = i
            self.weight = nn.Parameter(torch.arange(float(i * o)).reshape(o, i))
            self.bias = nn.Parameter(torch.zeros(o))
            self.register_buffer("b", torch.ones(2))
            self.register_buffer("np", torch.ones(1), persistent=False)

        def forward(self, x: Any) -> Any:
            return x @ self.weight.t() + self.bias

        def extra_repr(self) -> str:
            return f"in={self.i}"

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = Layer(3, 4)
            self.c = Layer(4, 2)
            self.d = self.a
            self.none = None
            self.register_module("none2", None)

        def forward(self, x: Any, *, k: int = 1) -> Any:
            return self.c(torch.tanh(self.a(x))) * k

    return Layer, Net


def names(pairs: Any) -> list[str]:
    return [name for name, _ in pairs]


@behaviour
def members(torch: Any) -> Any:
    _, Net = kinds(torch)
    n = Net()
    return [
        repr(n), names(n.named_parameters()), names(n.named_parameters(remove_duplicate=False)), names(n.named_modules()),
        names(n.named_buffers()), list(n.state_dict()), str(dict(n.state_dict()._metadata)),
        sorted(set(dir(n)) & {"a", "weight", "c"}),
    ]  # fmt: skip


@behaviour
def errors(torch: Any) -> Any:
    Layer, Net = kinds(torch)
    n, nn = Net(), torch.nn

    class Early(nn.Module):
        def __init__(self, value: Any) -> None:
            self.p = value

    return [
        raised(call)
        for call in (
            lambda: setattr(n.a, "weight", torch.zeros(1)),
            lambda: setattr(n, "a", 3),
            lambda: setattr(n.a, "b", 3),
            lambda: n.foo,
            lambda: n.register_parameter("x.y", None),
            lambda: n.register_parameter("forward", None),
            lambda: n.register_buffer("q", 3),
            lambda: n.add_module("x", 3),
            lambda: n.add_module("x.y", Layer(1, 1)),
            lambda: n.add_module(3, None),
            lambda: n.load_state_dict({"a.weight": torch.zeros(2, 2), "zz": torch.zeros(1), "a.b": 3}),
            lambda: n.load_state_dict({"a.weight": torch.zeros(4, 3), "zz": torch.zeros(1)}, strict=False),
            lambda: n.load_state_dict(3),
            lambda: n.train(3),
            lambda: n.to(torch.int32),
            lambda: nn.Module()(3),
            lambda: nn.Module(3),
            lambda: nn.Module(a=3),
            lambda: Early(nn.Parameter(torch.zeros(1))),
            lambda: Early(Layer(1, 1)),
        )
    ]


@behaviour
def hooks_of_calls(torch: Any) -> Any:
    _, Net = kinds(torch)
    n, log = Net(), []
    x = torch.ones(2, 3, requires_grad=True)
    handles = [
        n.register_forward_pre_hook(lambda m, a: log.append("before")),
        n.register_forward_pre_hook(lambda m, a, k: (log.append(str(k)), (a, {"k": 3}))[1], with_kwargs=True, prepend=True),
        n.register_forward_hook(lambda m, a, k, o: log.append(str(k)), with_kwargs=True),
        n.a.register_full_backward_hook(lambda m, i, o: log.append(str((len(i), tuple(i[0].shape), tuple(o[0].shape))))),
        n.register_full_backward_hook(lambda m, i, o: (i[0] * 2,)),
        n.c.register_full_backward_pre_hook(lambda m, o: (o[0] * 3,)),
    ]
    n(x).sum().backward()
    found = [list(log), x.grad, n.a.weight.grad]
    for handle in handles:
        handle.remove()
    log.clear()
    n(x)
    return [*found, list(log)]


@behaviour
def hooks_of_calls_that_fail(torch: Any) -> Any:
    _, Net = kinds(torch)
    n, log = Net(), []

    def fail(module: Any, args: Any) -> None:
        raise ValueError("x")

    n.register_forward_pre_hook(fail)
    n.register_forward_hook(lambda m, a, o: log.append(("always", o)), always_call=True)
    found = raised(lambda: n(torch.ones(2, 3)))
    n.a.register_backward_hook(lambda m, i, o: None)
    return found, log, raised(lambda: n.a.register_full_backward_hook(lambda *a: None))


@behaviour
def copies_and_conversions(torch: Any) -> Any:
    _, Net = kinds(torch)
    n = Net()
    m = copy.deepcopy(n)
    found: list[Any] = [m.d is m.a, m.a.weight is n.a.weight, m.a.weight.requires_grad]
    n(torch.ones(2, 3)).sum().backward()
    n.double()
    found += [n.a.weight, n.a.b, n.a.weight.grad, type(n.a.weight).__name__]
    n.to(torch.float16)
    found.append(n.a.weight)
    n.float().zero_grad()
    found.append(n.a.weight.grad)
    n.eval().requires_grad_(False)
    return [*found, n.training, n.a.training, n.c.bias, pickle.loads(pickle.dumps(torch.nn.Module())).training]


@behaviour
def by_path(torch: Any) -> Any:
    Layer, Net = kinds(torch)
    n = Net()
    found = [n.get_submodule("a")._get_name(), n.get_parameter("a.weight"), n.get_buffer("c.b")]
    found += [
        raised(call)
        for call in (
            lambda: n.get_submodule("q"), lambda: n.get_parameter("a.b"), lambda: n.get_buffer("a.weight"),
            lambda: n.get_submodule("a.i"),
        )
    ]  # fmt: skip
    return [*found, n.set_submodule("zz", Layer(1, 1)), n.zz.i]


@behaviour
def members_that_change(torch: Any) -> Any:
    Layer, Net = kinds(torch)
    n = Net()
    del n.a
    found: list[Any] = [names(n.named_modules())]
    n.a = Layer(1, 1)
    found.append(names(n.named_modules()))
    n.a.weight = None
    found.append(list(n.state_dict()))
    n.a.buffer = torch.nn.Buffer(torch.ones(1), persistent=False)
    return [*found, names(n.named_buffers()), list(n.state_dict())]


@behaviour
def states(torch: Any) -> Any:
    Layer, Net = kinds(torch)
    a, b = Net(), Net()
    found: list[Any] = [str(b.load_state_dict(a.state_dict(), assign=True)), b.a.weight.data_ptr() == a.a.weight.data_ptr()]

    class More(Layer):
        def get_extra_state(self) -> Any:
            return {"i": 1}

        def set_extra_state(self, state: Any) -> None:
            self.got = state

    e, f = More(1, 1), More(1, 1)
    f.load_state_dict(e.state_dict())
    found += [list(e.state_dict()), str(f.got), raised(lambda: f.load_state_dict({}))]
    log: list[str] = []
    e.register_state_dict_pre_hook(lambda m, p, k: log.append(f"before {p!r} {k}"))
    e.register_state_dict_post_hook(lambda m, s, p, d: log.append(f"after {list(s)} {p!r} {dict(d)}"))
    e.register_load_state_dict_pre_hook(lambda m, s, p, d, strict, *lists: log.append(f"loading {p!r} {strict}"))
    e.register_load_state_dict_post_hook(lambda m, keys: log.append(f"loaded {list(keys.missing_keys)}"))
    e.load_state_dict(e.state_dict(), strict=False)
    return [*found, log]
