"""Containers and lazy layers."""

from __future__ import annotations

from typing import Any

from tests.torch.modules.layers import layer
from tests.torch.table import T, program

_X = T(2, 3)


def sequential(torch: Any, x: Any) -> Any:
    nn = torch.nn
    s = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Tanh())
    s.append(nn.Sigmoid()).extend([nn.ELU(), nn.GELU()]).insert(1, nn.SELU())
    found = [repr(s), repr(s[1:3]), repr(s[-1]), len(s)]
    s[2] = nn.Softplus()
    found += [repr(s[2]), repr(s.pop(-1)), repr(s.pop(slice(0, 3))), repr(s)]
    s.insert(-1, nn.Mish())
    del s[0]
    found += [repr(s + nn.Sequential(nn.ReLU())), repr(s * 2), repr(2 * s), list(map(repr, s)), s(x)]
    s += nn.Sequential(nn.ReLU6(), nn.CELU())
    found.append(repr(s))
    s *= 2
    return [*found, repr(s), list(s.state_dict()), [n for n, _ in s.named_modules()], "0" in dir(s)]


def lists(torch: Any, x: Any) -> Any:
    nn = torch.nn
    m = nn.ModuleList([nn.Linear(3, 3, bias=False), nn.ReLU()])
    m += [nn.ReLU(), nn.Tanh()]
    found = [repr(m), repr(m[1:]), repr(m[-1]), len(m), repr(m + [nn.ELU()])]
    m.append(nn.ELU()).extend(nn.ModuleList([nn.ELU(), nn.ELU(0.5)])).insert(1, nn.Linear(3, 2))
    m[0] = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
    del m[2]
    del m[1:3]
    found += [repr(m), repr(m.pop(0)), list(map(repr, m)), repr(nn.ModuleList()), [n for n, _ in m.named_modules()], "0" in dir(m)]
    return found


def dicts(torch: Any, x: Any) -> Any:
    nn = torch.nn
    m = nn.ModuleDict({"b": nn.Linear(3, 2), "a": nn.ReLU()})
    m["c"] = nn.Tanh()
    m.update([["d", nn.ELU()], ("a", nn.GELU())])
    m.update(nn.ModuleDict({"e": nn.SiLU()}))
    found = [repr(m), list(m), len(m), "a" in m, "z" in m, list(m.keys()), list(map(repr, m.values())), [k for k, _ in m.items()]]
    found += [repr(m.pop("b")), repr(m), repr(m.a), list(m.state_dict())]
    del m["a"]
    found.append(repr(m))
    m.clear()
    return [*found, repr(m), len(m)]


def parameters(torch: Any, x: Any) -> Any:
    nn = torch.nn
    p = nn.ParameterList([torch.zeros(2, 3), nn.Parameter(torch.ones(1)), 3])
    p.append(x.detach()).extend([torch.zeros(()), "text"])
    p[0] = torch.ones(2)
    found = [repr(p), len(p), p[0], p[-1], len(p[1:3]), repr(p[::2]), [n for n, _ in p.named_parameters()], list(p.state_dict())]
    p += [torch.zeros(1)]
    d = nn.ParameterDict({"b": torch.zeros(2), "a": nn.Parameter(torch.ones(1, 2))})
    d["c"] = 4
    d.update([("e", torch.ones(3))])
    found += [repr(d), list(d), len(d), "a" in d, list(reversed(d)), d.get("q"), d.get("a"), d.setdefault("f", torch.ones(1)), list(d.keys())]
    found += [list(d.values()), [k for k, _ in d.items()], repr(d.copy()), repr(d | nn.ParameterDict({"z": torch.ones(1)})), d.pop("c"), d.popitem()]
    d |= nn.ParameterDict({"z": torch.ones(1)})
    found += [list(d), repr(d.fromkeys(["q", "r"], torch.ones(1))), list(d.state_dict()), d["b"], repr(nn.ParameterDict())]
    del d["z"]
    d.clear()
    return [*found, len(d), repr(d)]


def old_names(torch: Any, x: Any) -> Any:
    utils = torch.nn.modules.utils
    state = torch.nn.Sequential(torch.nn.Linear(1, 1)).state_dict(prefix="module.")
    utils.consume_prefix_in_state_dict_if_present(state, "module.")
    return [
        list(state), list(state._metadata), utils._pair(3), utils._triple((1, 2)), utils._ntuple(2)([3]), utils._reverse_repeat_tuple((1, 2), 2),
        utils._list_with_default([None, 3], [5, 6, 7]), repr(torch.nn.Container(a=torch.nn.ReLU())),
    ]  # fmt: skip


def lazy(torch: Any, x: Any) -> Any:
    nn = torch.nn
    found = []
    for module, given in (
        (nn.LazyLinear(2), x), (nn.LazyLinear(2, bias=False), x), (nn.LazyConv1d(4, 3, padding=1, bias=False), x), (nn.LazyConv2d(3, 1, groups=3), x[:, :, None, None]),
        (nn.LazyConv3d(1, 1), x[:, :, None, None, None]), (nn.LazyConvTranspose1d(2, 3, stride=2, output_padding=1), x),
        (nn.LazyConvTranspose2d(4, 1), x[:, :, None, None]), (nn.LazyConvTranspose3d(2, 1, bias=False), x[:, :, None, None, None]),
        (nn.LazyBatchNorm1d(momentum=0.2), x), (nn.LazyBatchNorm1d(affine=False), x), (nn.LazyBatchNorm1d(bias=False), x),
        (nn.LazyBatchNorm2d(track_running_stats=False), x[:, :, None, None]), (nn.LazyBatchNorm3d(), x[:, :, None, None, None]),
        (nn.LazyInstanceNorm1d(), x[None]), (nn.LazyInstanceNorm2d(affine=True), x[None, None]),
    ):  # fmt: skip
        module.double()
        before = [repr(module), [type(p).__name__ for p in module.parameters()], list(module.state_dict()), module.has_uninitialized_params()]
        out = module(given)
        found += [*before, repr(module), type(module).__name__, [p.shape for p in module.parameters()], [b.shape for b in module.buffers()], out.shape, module(given).shape]
        found += [hasattr(module, "_initialize_hook"), hasattr(module, "_load_hook"), list(module.state_dict())]
    return found


def lazy_states(torch: Any, x: Any) -> Any:
    nn = torch.nn
    net = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.Linear(4, 2))
    known = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    found = [str(net.load_state_dict(known.state_dict())), repr(net[0]), net[0].weight.shape, repr(net)]
    net.double()
    net(x)
    return [*found, repr(net), bool((net[0].weight == known[0].weight).all())]


CASES = [
    program("sequential", sequential, _X, _dtypes="", _grad=False),
    program("lists", lists, _X, _dtypes="", _grad=False),
    program("dicts", dicts, _X, _dtypes="", _grad=False),
    program("parameters", parameters, _X, _dtypes="", _grad=False),
    program("old names", old_names, _X, _dtypes="", _grad=False),
    program("lazy", lazy, _X, _dtypes="", _grad=False),
    program("lazy states", lazy_states, _X, _dtypes="", _grad=False),
    layer("Sequential(Linear(3, 4), BatchNorm1d(4), Sequential(ReLU(), Linear(4, 2)))", _X),
    layer("Sequential(Linear(3, 4), BatchNorm1d(4), Sequential(ReLU(), Linear(4, 2)))", _X, train=False),
    layer("Sequential()", _X),
    layer("Sequential(Conv2d(1, 4, 3), ReLU(), MaxPool2d(2), Flatten(), Linear(16, 3), LogSoftmax(1))", T(2, 1, 6, 6)),
]
