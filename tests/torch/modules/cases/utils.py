"""nn.utils: parametrizations, pruning, fusion, older norms; nn.parallel on one device."""

from __future__ import annotations

import copy
import pickle
from typing import Any

from tests.torch.behaviours import module_of, raised
from tests.torch.modules.layers import about, fill
from tests.torch.table import Case, T, program

_X = T(4, 3)


def _linear(torch: Any, i: int = 3, o: int = 3, **options: Any) -> Any:
    return fill(torch, torch.nn.Linear(i, o, **options).double())


def _gradients(torch: Any, module: Any, x: Any) -> Any:
    out = module(x)
    return out, torch.autograd.grad(out.sin().sum(), [p for p in module.parameters() if p.requires_grad], allow_unused=True)


def _kinds(torch: Any) -> tuple[Any, ...]:
    nn = torch.nn

    class Symmetric(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.triu() + x.triu(1).mT

        def right_inverse(self, x: Any) -> Any:
            return x.triu()

    class Scaled(nn.Module):
        def __init__(self, by: float) -> None:
            super().__init__()
            self.by = nn.Parameter(torch.tensor(by, dtype=torch.float64))

        def forward(self, x: Any) -> Any:
            return x * self.by

    class Two(nn.Module):
        def forward(self, a: Any, b: Any) -> Any:
            return a @ b

        def right_inverse(self, x: Any) -> Any:
            return x[:, :2] * 1, x[:2] * 1

    class Other(nn.Module):
        def __init__(self, forward: Any, back: Any = None) -> None:
            super().__init__()
            self.f = forward
            if back is not None:
                self.right_inverse = back

        def forward(self, x: Any) -> Any:
            return self.f(x)

    return Symmetric, Scaled, Two, Other


def parametrized(torch: Any, x: Any) -> Any:
    p = torch.nn.utils.parametrize
    Symmetric, Scaled, Two, _ = _kinds(torch)
    m = _linear(torch)
    found = [p.is_parametrized(m), p.register_parametrization(m, "weight", Symmetric()) is m, *about(m), m.weight, _gradients(torch, m, x)]
    p.register_parametrization(m, "weight", Scaled(2.0))
    p.register_parametrization(m, "bias", Scaled(0.5))
    found += [*about(m), m.weight, m.bias, _gradients(torch, m, x), p.is_parametrized(m, "weight"), p.is_parametrized(m, "q")]
    found += [p.type_before_parametrizations(m).__name__, p.type_before_parametrizations(m.parametrizations).__name__]
    again = copy.deepcopy(m)
    found += [again(x), again.weight is m.weight, again.parametrizations.weight.original is m.parametrizations.weight.original]
    p.remove_parametrizations(m, "bias", leave_parametrized=False)
    found += [*about(m), m.bias]
    p.remove_parametrizations(m, "weight")
    found += [*about(m), m.weight, type(m.weight).__name__, p.is_parametrized(m), _gradients(torch, m, x)]
    n = _linear(torch)
    p.register_parametrization(n, "weight", Symmetric())
    n.weight = x[:3] + x[:3].T
    found += [n.weight, n.parametrizations.weight.original]
    k = p.register_parametrization(_linear(torch), "weight", Two(), unsafe=True)
    found += [*about(k), k.weight, _gradients(torch, k, x)]
    k.weight = torch.ones(3, 3, dtype=torch.float64)
    found += [k.parametrizations.weight.original0, k.parametrizations.weight.original1]
    return [*found, *about(p.remove_parametrizations(k, "weight")), k.weight]


def caches(torch: Any, x: Any) -> Any:
    p = torch.nn.utils.parametrize
    _, Scaled, _, _ = _kinds(torch)
    m = p.register_parametrization(_linear(torch), "weight", Scaled(2.0))
    found = [m.weight is m.weight]
    with p.cached():
        kept = m.weight
        with p.cached():
            found.append(m.weight is kept)
        found += [m.weight is kept, m(x)]
    return [*found, m.weight is kept]


def transferred(torch: Any, x: Any) -> Any:
    p = torch.nn.utils.parametrize
    Symmetric, Scaled, _, _ = _kinds(torch)
    a, b, c = (_linear(torch) for _ in range(3))
    p.register_parametrization(a, "weight", Symmetric())
    p.register_parametrization(a, "bias", Scaled(3.0))
    p.transfer_parametrizations_and_params(a, b)
    p.transfer_parametrizations_and_params(a, c, "bias")
    return [*about(b), b(x), *about(c), c(x), b.parametrizations.weight.original is a.parametrizations.weight.original]


def parametrization_errors(torch: Any, x: Any) -> Any:
    p = torch.nn.utils.parametrize
    Symmetric, Scaled, Two, Other = _kinds(torch)

    def m() -> Any:
        return _linear(torch)

    twice = p.register_parametrization(m(), "weight", Symmetric())
    two = p.register_parametrization(m(), "weight", Two())
    scaled = p.register_parametrization(m(), "weight", Scaled(2.0))
    register = p.register_parametrization
    return [
        raised(call)
        for call in (
            lambda: register(m(), "q", Symmetric()),
            lambda: register(m(), "weight", Other(lambda x: 3)),
            lambda: register(m(), "weight", Other(lambda x: x.float())),
            lambda: register(m(), "weight", Other(lambda x: x[0])),
            lambda: register(m(), "weight", Other(lambda x: x, lambda x: 3)),
            lambda: register(m(), "weight", Other(lambda x: x, lambda x: x.float())),
            lambda: register(m(), "weight", Other(lambda x: x, lambda x: [3])),
            lambda: register(twice, "weight", Other(lambda x: 3)),
            lambda: register(twice, "weight", Other(lambda x: x.float())),
            lambda: register(twice, "weight", Other(lambda x: x[0])),
            lambda: register(twice, "weight", Other(lambda x: x, lambda x: 3)),
            lambda: register(twice, "weight", Other(lambda x: x, lambda x: x.float())),
            lambda: register(twice, "weight", Other(lambda x: x, lambda x: x[0])),
            lambda: p.ParametrizationList([], x),
            lambda: setattr(scaled, "weight", x[:3]),
            lambda: setattr(twice, "weight", x[:3].float()),
            lambda: p.remove_parametrizations(m(), "weight"),
            lambda: p.remove_parametrizations(two, "weight", leave_parametrized=False),
            lambda: pickle.dumps(twice),
        )
    ]


def weight_norms(torch: Any, x: Any) -> Any:
    utils, nn = torch.nn.utils, torch.nn
    found = []
    for made in (lambda: _linear(torch), lambda: fill(torch, nn.Conv1d(4, 2, 2).double())):
        for dim in (0, 1, None):
            m = utils.parametrizations.weight_norm(made(), dim=dim)
            given = x if isinstance(m, nn.Linear) else x[None]
            found += [*about(m), _gradients(torch, m, given)]
            older = utils.weight_norm(made(), dim=dim)
            found += [*about(older), _gradients(torch, older, given), older.weight]
            found += [str(m.load_state_dict(older.state_dict())), m(given)]
            found += [*about(utils.remove_weight_norm(older)), older.weight, older(given)]
            found += [*about(utils.parametrize.remove_parametrizations(m, "weight")), m(given)]
    bias = utils.weight_norm(utils.weight_norm(_linear(torch)), "bias")
    found += [*about(bias), raised(lambda: utils.weight_norm(bias)), raised(lambda: utils.remove_weight_norm(bias, "q"))]
    return [*found, raised(lambda: utils.weight_norm(nn.LazyLinear(3)))]


def _set_vectors(torch: Any, module: Any, *names: str) -> None:
    for name in names:
        vector = getattr(module, name)
        vector.copy_(torch.nn.functional.normalize(torch.arange(1.0, 1 + vector.numel(), dtype=vector.dtype), dim=0))


def spectral_norms(torch: Any, x: Any) -> Any:
    utils, nn = torch.nn.utils, torch.nn
    found = []
    for made in (
        lambda: _linear(torch), lambda: fill(torch, nn.Conv1d(4, 2, 2).double()), lambda: fill(torch, nn.ConvTranspose1d(4, 2, 2).double()),
    ):  # fmt: skip
        m = utils.parametrizations.spectral_norm(made(), n_power_iterations=2)
        given = x if isinstance(m, nn.Linear) else x[None]
        _set_vectors(torch, m.parametrizations.weight[0], "_u", "_v")
        found += [about(m)[:-1], _gradients(torch, m, given), _gradients(torch, m, given), *m.buffers(), m.eval()(given), *m.buffers()]
        older = utils.spectral_norm(made())
        _set_vectors(torch, older, "weight_u", "weight_v")
        found += [about(older)[:-1], _gradients(torch, older, given), _gradients(torch, older, given), *older.buffers()]
        found += [str(older.state_dict()._metadata[""]), older.eval()(given), *about(utils.remove_spectral_norm(older)), older.weight]
    m = utils.parametrizations.spectral_norm(_linear(torch), "bias")
    found += [m.bias, m.parametrizations.bias.original]
    errors = (
        lambda: utils.parametrizations.spectral_norm(_linear(torch), "q"), lambda: utils.parametrizations.spectral_norm(_linear(torch), dim=3),
        lambda: utils.parametrizations.spectral_norm(_linear(torch), n_power_iterations=0), lambda: utils.remove_spectral_norm(_linear(torch)),
        lambda: utils.spectral_norm(utils.spectral_norm(_linear(torch))), lambda: utils.spectral_norm(_linear(torch), n_power_iterations=0),
        lambda: utils.spectral_norm(nn.LazyLinear(3)), lambda: utils.spectral_norm(_linear(torch, bias=False), "bias"),
    )  # fmt: skip
    return [*found, *map(raised, errors)]


def old_spectral_states(torch: Any, x: Any) -> Any:
    m = torch.nn.utils.spectral_norm(_linear(torch))
    _set_vectors(torch, m, "weight_u", "weight_v")
    m(x)
    state = m.state_dict()
    state["weight"] = m.weight.detach().clone()
    before = state.pop("weight_v")
    state._metadata[""]["spectral_norm"] = {}
    m.weight_v.zero_()
    found = [str(m.load_state_dict(state)), (m.weight_v - before).abs().max() < 1e-6]
    return [*found, raised(lambda: m.load_state_dict({"bias": state["bias"]}))]


def orthogonal(torch: Any, x: Any) -> Any:
    utils = torch.nn.utils
    found = []
    for shape in ((3, 3), (5, 3), (3, 5)):
        for kind in (None, "matrix_exp", "cayley", "householder"):
            for trivial in (True, False):
                m = _linear(torch, *shape)
                utils.parametrizations.orthogonal(m, orthogonal_map=kind, use_trivialization=trivial)
                q = m.weight if shape[0] > shape[1] else m.weight.mT
                product = q.mT @ q
                found += [*about(m)[:5], product]
                if not trivial or shape == (3, 3):
                    found.append(m.weight)
                    if kind == "householder" and not trivial and shape == (3, 3):
                        m.weight = m.weight.detach().flip(0)
                        found.append(m.weight)
    m = utils.parametrizations.orthogonal(_linear(torch))
    q = m.weight.detach()[[1, 2, 0]]
    m.weight = q
    found += [m.weight - q, _gradients(torch, m, x)]
    errors = (
        lambda: utils.parametrizations.orthogonal(_linear(torch), "bias"), lambda: utils.parametrizations.orthogonal(_linear(torch), "q"),
        lambda: utils.parametrizations.orthogonal(_linear(torch), orthogonal_map="q"), lambda: setattr(m, "weight", x),
        lambda: utils.parametrizations.orthogonal(torch.nn.Linear(3, 3, dtype=torch.complex64), orthogonal_map="householder"),
    )  # fmt: skip
    return [*found, *map(raised, errors)]


def pruned(torch: Any, x: Any) -> Any:
    prune = module_of(torch, "nn.utils.prune")
    found = []
    for call in (
        lambda m: prune.identity(m, "weight"), lambda m: prune.l1_unstructured(m, "weight", 3), lambda m: prune.l1_unstructured(m, "weight", 0.5),
        lambda m: prune.l1_unstructured(m, "weight", 0), lambda m: prune.ln_structured(m, "weight", 1, 2, 0), lambda m: prune.ln_structured(m, "weight", 0.4, 1, -1),
        lambda m: prune.ln_structured(m, "weight", 0, float("inf"), 1), lambda m: prune.l1_unstructured(m, "bias", 0.5, importance_scores=torch.arange(3.0)),
        lambda m: prune.custom_from_mask(m, "weight", torch.eye(3)), lambda m: prune.l1_unstructured(prune.ln_structured(m, "weight", 1, 2, 0), "weight", 2),
        lambda m: prune.ln_structured(prune.l1_unstructured(prune.ln_structured(m, "weight", 1, 2, 0), "weight", 1), "weight", 1, 1, 1),
        lambda m: prune.custom_from_mask(prune.l1_unstructured(m, "weight", 2), "weight", torch.eye(3)),
    ):  # fmt: skip
        m = call(_linear(torch))
        found += [*about(m), m.weight, m.bias, _gradients(torch, m, x), prune.is_pruned(m), prune.is_pruned(torch.nn.Sequential(m))]
        found.append(raised(lambda m=m: copy.deepcopy(m)))
        for name in ("weight", "bias"):
            if hasattr(m, f"{name}_orig"):
                prune.remove(m, name)
        found += [*about(m), m.weight, type(m.weight).__name__, m(x), prune.is_pruned(m)]
    return found


def pruned_by_chance(torch: Any, x: Any) -> Any:
    prune = module_of(torch, "nn.utils.prune")
    a, b = prune.random_unstructured(_linear(torch), "weight", 4), prune.random_structured(_linear(torch), "weight", 1, 0)
    return [int((a.weight_mask == 0).sum()), sorted(b.weight_mask.sum(1).tolist()), *about(a)[:-1], prune.random_structured(a, "weight", 0, 1).weight.shape]


def pruned_together(torch: Any, x: Any) -> Any:
    prune = module_of(torch, "nn.utils.prune")
    a, b = _linear(torch), _linear(torch, 3, 2)
    prune.l1_unstructured(a, "weight", 2)
    prune.global_unstructured([(a, "weight"), (b, "weight"), (b, "bias")], prune.L1Unstructured, amount=0.4)
    found = [*about(a), *about(b), a.weight, b.weight, b.bias]
    scores = {(b, "weight"): torch.arange(6.0, dtype=torch.float64).view(2, 3)}
    prune.global_unstructured(((b, "weight"), (b, "bias")), prune.L1Unstructured, importance_scores=scores, amount=2)
    method = prune.L1Unstructured(2)
    return [*found, *about(b), b.weight, b.bias, method.prune(x), method.prune(x, importance_scores=-x.abs()), method.prune(x, default_mask=(x > 0).double())]


def pruning_errors(torch: Any, x: Any) -> Any:
    prune = module_of(torch, "nn.utils.prune")
    container = prune.PruningContainer(prune.l1_unstructured(_linear(torch), "weight", 1)._forward_pre_hooks.popitem()[1])
    other = prune.L1Unstructured(1)
    other._tensor_name = "bias"

    def m() -> Any:
        return _linear(torch)

    texts = [
        raised(call)
        for call in (
            lambda: prune.l1_unstructured(m(), "weight", "a"), lambda: prune.l1_unstructured(m(), "weight", -1), lambda: prune.l1_unstructured(m(), "weight", 1.5),
            lambda: prune.l1_unstructured(m(), "weight", 100), lambda: prune.ln_structured(m(), "bias", 1, 2, 0), lambda: prune.ln_structured(m(), "weight", 1, 2, 5),
            lambda: prune.random_structured(m(), "weight", 5, 0), lambda: prune.remove(m(), "weight"), lambda: prune.custom_from_mask(m(), "weight", torch.ones(2)),
            lambda: prune.l1_unstructured(m(), "weight", 1, importance_scores=torch.ones(2)), lambda: prune.L1Unstructured(1).prune(x, importance_scores=x[0]),
            lambda: prune.global_unstructured(3, prune.L1Unstructured), lambda: prune.global_unstructured([(m(), "weight")], prune.L1Unstructured, importance_scores=3),
            lambda: prune.global_unstructured([(m(), "weight")], prune.LnStructured, amount=1, n=1), lambda: container.add_pruning_method(3),
            lambda: prune.l1_unstructured(m(), "q", 1), lambda: prune.BasePruningMethod(),
        )
    ]  # fmt: skip
    return [*(t.replace("dynagraph.", "") for t in texts), raised(lambda: container.add_pruning_method(other))[:80], len(container), len(list(container))]


def fused(torch: Any, x: Any) -> Any:
    utils, nn = torch.nn.utils, torch.nn
    found = []
    for layer, norm, given in (
        (nn.Conv1d(4, 2, 2), nn.BatchNorm1d(2), x[None]), (nn.Conv1d(4, 2, 2, bias=False), nn.BatchNorm1d(2, affine=False, eps=0.1), x[None]),
        (nn.Linear(3, 2), nn.BatchNorm1d(2), x), (nn.Linear(3, 2, bias=False), nn.BatchNorm1d(2), x), (nn.ConvTranspose1d(4, 2, 2), nn.BatchNorm1d(2), x[None]),
    ):  # fmt: skip
        both = fill(torch, nn.Sequential(layer, norm).double()).eval()
        is_transposed = isinstance(layer, nn.ConvTranspose1d)
        made = utils.fuse_linear_bn_eval(layer, norm) if isinstance(layer, nn.Linear) else utils.fuse_conv_bn_eval(layer, norm, is_transposed)
        found += [*about(made), made.weight, made.bias, made(given), (made(given) - both(given)).abs().max() < 1e-12]
    ready = nn.Linear(3, 2).eval()
    errors = (
        lambda: utils.fuse_linear_bn_eval(nn.Linear(3, 2), nn.BatchNorm1d(2)), lambda: utils.fuse_linear_bn_eval(ready, nn.BatchNorm1d(3).eval()),
        lambda: utils.fuse_linear_bn_eval(ready, nn.BatchNorm1d(2, track_running_stats=False).eval()), lambda: utils.fuse_conv_bn_eval(nn.Conv1d(1, 1, 1), nn.BatchNorm1d(1)),
    )  # fmt: skip
    return [*found, *map(raised, errors)]


def other_helpers(torch: Any, x: Any) -> Any:
    utils, nn = torch.nn.utils, torch.nn
    before = torch.get_rng_state()
    skipped = utils.skip_init(nn.Linear, 3, 2, dtype=torch.float64)
    found = [repr(skipped), skipped.weight.dtype, bool((torch.get_rng_state() == before).all())]
    found += [raised(lambda: utils.skip_init(dict)), raised(lambda: utils.skip_init(nn.ReLU))]
    net = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Sequential(nn.ConvTranspose2d(2, 3, 2), nn.Conv3d(2, 3, 2)))
    values = net[0].weight.detach().clone()
    utils.convert_conv2d_weight_memory_format(net, torch.channels_last)
    utils.convert_conv3d_weight_memory_format(net, torch.channels_last_3d)
    found += [[p.stride() for p in net.parameters()], bool((net[0].weight == values).all())]
    m = _linear(torch)
    found += [utils.stateless.functional_call(m, {"bias": torch.zeros(3, dtype=torch.float64)}, x), m(x)]
    wrapped = nn.DataParallel(m)
    return [*found, list(wrapped.state_dict()), repr(wrapped), wrapped(x), type(nn.parallel.DataParallel(m).module).__name__]


def old_modules(torch: Any, x: Any) -> Any:
    reduction, grad = module_of(torch, "nn._reduction"), module_of(torch, "nn.grad")
    types, conv = module_of(torch, "nn.common_types"), torch.nn.functional.conv1d
    w, g = x[:2, None, :2] * 1, x[:2, None, :2].flatten(1)[None] * 1
    given = x[None, :1] * 1
    out = torch.ones_like(conv(given, w))
    found = [grad.conv1d_input(given.shape, w, out), grad.conv1d_weight(given, w.shape, out), g]
    image = x[None, None]
    found += [grad.conv2d_input((1, 1, 5, 4), image, torch.ones(1, 1, 2, 2, dtype=x.dtype)), grad.conv2d_weight(image, (2, 1, 2, 2), torch.ones(1, 2, 5, 4, dtype=x.dtype), padding=1)]
    found += [reduction.get_enum("mean"), reduction.get_enum("sum"), reduction.legacy_get_string(False, None), reduction.legacy_get_enum(True, False)]
    return [*found, raised(lambda: reduction.get_enum("q")), types._size_2_t == int | tuple[int, int], isinstance(3, types._size_1_t.__args__[0])]


def _row(function: Any, **options: Any) -> Case:
    return program(function.__name__, function, _X, **{"_dtypes": "", "_grad": False, **options})


CASES = [
    _row(each)
    for each in (
        parametrized, caches, transferred, parametrization_errors, weight_norms, spectral_norms, old_spectral_states, pruned, pruned_by_chance, pruned_together,
        pruning_errors, fused, other_helpers, old_modules,
    )
] + [_row(orthogonal, _tolerance=100, _strides=False)]  # fmt: skip
