"""Random numbers: the counter-based stream, its statistics, and PyTorch's own stream bit for bit."""

from __future__ import annotations

import copy
import importlib.util
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
import dynagraph.torch as torch
from dynagraph.torch.core import mersenne, philox
from dynagraph.torch.core.generator import Generator, bernoulli_mask

SIZES = (0, 1, 2, 3, 7, 15, 16, 17, 24, 31, 32, 33, 100, 625, 3000)


def numbers(x: Any) -> np.ndarray:
    return np.asarray(x.to(torch.float32) if x.dtype is torch.bfloat16 else x)


# -- Philox -----------------------------------------------------------------------------------------------------------

KNOWN = [  # kat_vectors of the Random123 distribution: counter, key, result
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]  # fmt: skip


@pytest.mark.parametrize("counter, key, expected", KNOWN)
def test_philox_gives_the_known_answers(counter: Any, key: Any, expected: Any) -> None:
    found = philox.rounds(*(np.array([c], np.uint32) for c in counter), key[0] | key[1] << 32)
    assert tuple(int(w[0]) for w in found) == expected


def test_words_are_the_same_however_the_work_is_divided() -> None:
    whole = philox.words(7, 5, 100_001)
    assert np.array_equal(whole[:11], philox.words(7, 5, 11))
    assert np.array_equal(whole[4 * 8192 :], philox.words(7, 5 + 8192, 100_001 - 4 * 8192))
    assert np.array_equal(whole[0::4], philox.block(7, np.arange(5, 25006, dtype=np.uint64))[0][: len(whole[0::4])])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_uniform_numbers_are_even_and_below_one(dtype: type) -> None:
    x = philox.uniform(1, 0, (400, 500), np.dtype(dtype)).astype(np.float64)
    assert x.min() >= 0 and x.max() < 1
    counts = np.histogram(x, 16, (0, 1))[0]
    assert ((counts - 12500) ** 2 / 12500).sum() < 40  # chi squared of 15 degrees


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_normal_numbers_have_the_moments_of_the_normal_distribution(dtype: type) -> None:
    x = philox.normal(1, 0, (200_001,), np.dtype(dtype)).astype(np.float64)
    moments = [float((x**k).mean()) for k in (1, 2, 3, 4)]
    assert np.allclose(moments, (0, 1, 0, 3), atol=0.06)
    assert abs(np.corrcoef(x[0:-1:2], x[1::2])[0, 1]) < 0.02


def test_a_state_brings_the_numbers_back() -> None:
    g = torch.Generator().manual_seed(2**63)
    torch.randn(5, generator=g)
    state = g.get_state()
    assert (state.dtype, tuple(state.shape)) == (torch.uint8, (16,))
    x = torch.rand(3, 4, generator=g)
    assert torch.equal(torch.rand(3, 4, generator=g.set_state(state)), x)
    assert torch.equal(torch.rand(3, 4, generator=Generator().set_state(state)), x)
    assert torch.equal(torch.rand(3, 4, generator=pickle.loads(pickle.dumps(g.set_state(state)))), x)
    clone = g.set_state(state).clone_state()
    assert torch.equal(torch.rand(3, 4, generator=g), torch.rand(3, 4, generator=clone))
    assert g.initial_seed() == 2**63


def test_fork_rng_leaves_the_state_as_it_was() -> None:
    torch.manual_seed(3)
    with torch.random.fork_rng():
        x = torch.rand(4)
        torch.manual_seed(9)
    assert torch.equal(torch.rand(4), x)
    assert torch.initial_seed() == 3 and torch.seed() == torch.initial_seed()


def test_seeds_are_64_bits() -> None:
    assert torch.manual_seed(-1).initial_seed() == 2**64 - 1
    with pytest.raises(RuntimeError, match="Overflow when unpacking long long"):
        torch.manual_seed(2**64)


@pytest.mark.parametrize("rate", [0.0, 0.3, 4.0, 9.9, 12.0, 80.0, 5000.0])
def test_poisson_numbers_have_mean_and_variance_of_the_rate(rate: float) -> None:
    g = torch.Generator().manual_seed(1)
    x = numbers(torch.poisson(torch.full((40_000,), rate, dtype=torch.float64), generator=g))
    assert abs(x.mean() - rate) <= 5 * (rate / 40_000) ** 0.5
    assert abs(x.var() - rate) <= 0.04 * rate
    assert (x == np.floor(x)).all() and (x >= 0).all()


@pytest.mark.parametrize("n, p", [(0, 0.5), (7, 0.3), (7, 1.0), (7, 0.0), (60, 0.5), (200, 0.93), (100_000, 0.001), (100_000, 0.4)])
def test_binomial_numbers_have_their_mean_and_variance(n: int, p: float) -> None:
    g = torch.Generator().manual_seed(1)
    x = numbers(torch.binomial(torch.full((40_000,), float(n)), torch.full((40_000,), p), generator=g)).astype(np.float64)
    variance = n * p * (1 - p)
    assert abs(x.mean() - n * p) <= 5 * (variance / 40_000) ** 0.5 + 1e-9
    assert abs(x.var() - variance) <= 0.05 * variance + 1e-9
    assert x.min() >= 0 and x.max() <= n


def test_integers_are_even() -> None:
    g = torch.Generator().manual_seed(1)
    for low, high in ((0, 7), (-3, 4), (2**40, 2**40 + 7)):
        x = numbers(torch.randint(low, high, (70_000,), generator=g)) - low
        assert ((np.bincount(x, minlength=7) - 10_000) ** 2 / 10_000).sum() < 25


def test_permutations_are_permutations() -> None:
    g = torch.Generator().manual_seed(1)
    found = {tuple(torch.randperm(4, generator=g).tolist()) for _ in range(300)}
    assert len(found) == 24 and all(sorted(f) == [0, 1, 2, 3] for f in found)


def test_multinomial_draws_in_proportion() -> None:
    g = torch.Generator().manual_seed(1)
    weights = torch.tensor([[1.0, 0.0, 3.0], [2.0, 2.0, 0.0]])
    x = numbers(torch.multinomial(weights, 20_000, replacement=True, generator=g))
    assert np.allclose([(row == k).mean() for row in x for k in range(3)], [0.25, 0, 0.75, 0.5, 0.5, 0], atol=0.02)
    once = numbers(torch.multinomial(weights.repeat(5000, 1), 2, generator=g))
    assert set(map(tuple, np.sort(once[::2], 1))) == {(0, 2)} and set(map(tuple, np.sort(once[1::2], 1))) == {(0, 1)}
    assert abs((once[::2, 0] == 2).mean() - 0.75) < 0.03


def test_masks_of_dropout() -> None:
    g = torch.Generator().manual_seed(1)
    assert abs(bernoulli_mask((100, 400), 0.3, g).mean() - 0.3) < 0.01
    assert not bernoulli_mask((100,), 0.0, g).any() and bernoulli_mask((100,), 1.0, g).all()
    first = bernoulli_mask((10,), 0.5, Generator().manual_seed(4))
    assert np.array_equal(first, philox.words(4, 0, 10) < 2**31)


def test_other_distributions() -> None:
    g = torch.Generator().manual_seed(1)
    x = torch.empty(40_000, dtype=torch.float64)
    assert abs(x.exponential_(2.0, generator=g).mean().item() - 0.5) < 0.02
    assert abs(x.geometric_(0.25, generator=g).mean().item() - 4) < 0.1 and x.min().item() == 1
    assert abs(np.median(numbers(x.cauchy_(1.0, 2.0, generator=g))) - 1) < 0.1
    assert abs(np.log(numbers(x.log_normal_(1.0, 0.5, generator=g))).std() - 0.5) < 0.02
    assert set(x.random_(3, 5, generator=g).tolist()) == {3, 4}


def test_what_is_drawn_has_no_gradient_but_zero() -> None:
    p = torch.full((3,), 0.5, requires_grad=True)
    torch.bernoulli(p).sum().backward()
    assert p.grad.tolist() == [0, 0, 0]
    y = p * 2
    y.normal_()
    assert y.grad_fn.name() == "NormalBackward0"
    (q,) = torch.autograd.grad(y.sum(), p)
    assert q.tolist() == [0, 0, 0]


COMPILED: dict[str, Callable[..., Any]] = {
    "rand": lambda x: x + torch.rand(3),
    "rand of float64": lambda x: x + torch.rand(3, dtype=torch.float64),
    "randn": lambda x: x.sum() + torch.randn(5),
    "randint": lambda x: x.sum().long() + torch.randint(-2, 10, (4,)),
    "randperm": lambda x: x.sum().long() + torch.randperm(5),
    "bernoulli": lambda x: x + torch.bernoulli(torch.full((3,), 0.5)),
    "normal_": lambda x: x + torch.empty(3).normal_(1, 2),
    "uniform_": lambda x: x + torch.empty(3).uniform_(-1, 1),
    "rand_like": lambda x: x * torch.rand_like(x),
    "twice": lambda x: x * torch.rand(3) - torch.rand(3),
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.5, True),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", COMPILED)
def test_compiled_functions_draw_the_same_numbers(name: str) -> None:
    compiled = dg.compile(COMPILED[name], mode="max")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.CompileBudgetWarning)
        found = []
        for function in (COMPILED[name], compiled):
            torch.manual_seed(2**63 + 1)
            found.append([numbers(function(torch.ones(3))) for _ in range(4)])
            found.append([torch.get_rng_state().tolist()])
    assert np.allclose(found[0], found[2], rtol=1e-5, atol=1e-6) and found[1] == found[3]
    assert not np.allclose(found[0][0], found[0][1])
    assert not compiled.stats.breaks and compiled.stats.hits


def test_followed_words_are_the_words() -> None:
    for seed, offset in ((0, 0), (7, 2**32 - 2), (2**64 - 1, 2**64 - 2)):
        as_arrays = np.array([seed], np.uint64), np.array([offset], np.uint64)
        assert np.array_equal(philox.followed(*as_arrays, 33, np), philox.words(seed, offset, 33))


# -- PyTorch's stream -------------------------------------------------------------------------------------------------

RECORDED: list[tuple[Callable[..., Any], list[Any]]] = [  # of torch 2.13.0, one after the other from seed 42
    (lambda t: t.rand(3), [0.8822692632675171, 0.9150039553642273, 0.38286375999450684]),
    (lambda t: t.randn(3), [-0.829319179058075, -1.6137069463729858, -0.21470452845096588]),
    (
        lambda t: t.randn(20),
        [
            -0.9341631531715393, -0.24825750291347504, -1.2082147598266602, -0.4776674509048462, -0.21680472791194916,
            -1.3846737146377563, -0.8712361454963684, -0.223365917801857, 1.7173614501953125, 0.3188803195953369,
            -0.42451897263526917, 0.3057209253311157, 0.3308984339237213, -1.5575724840164185, 0.9956361055374146,
            -0.8797858357429504, -0.6011420488357544, -1.2741512060165405, 2.1227850914001465, -1.234653115272522,
        ],
    ),
    (lambda t: t.rand(2, dtype=t.float64), [0.715705135378833, 0.5619801450614739]),
    (lambda t: t.randint(0, 2**40, (2,)), [812606411314, 461770120758]),
    (lambda t: t.randperm(8), [3, 7, 4, 6, 2, 1, 0, 5]),
    (lambda t: t.bernoulli(t.full((6,), 0.5)), [0.0, 1.0, 0.0, 1.0, 0.0, 1.0]),
    (lambda t: t.normal(1.0, 2.0, (2,)), [1.597870945930481, -1.031349539756775]),
]  # fmt: skip


def compatible(compute: Callable[..., Any]) -> Any:
    with torch.random.torch_compatible(True):
        return compute()


def test_torch_numbers_are_as_recorded() -> None:
    def run() -> list[Any]:
        torch.manual_seed(42)
        return [compute(torch).tolist() for compute, _ in RECORDED]

    assert compatible(run) == [expected for _, expected in RECORDED]


def test_the_switch_goes_back() -> None:
    with torch.random.torch_compatible(True):
        assert torch.random.is_torch_compatible() and torch.get_rng_state().shape == (5056,)
        with torch.random.torch_compatible(False):
            assert torch.get_rng_state().shape == (16,)
        assert torch.random.is_torch_compatible()
    assert not torch.random.is_torch_compatible()


def test_states_of_the_wrong_size_are_refused() -> None:
    with pytest.raises(RuntimeError, match="RNG state is wrong size"):
        torch.set_rng_state(torch.zeros(7, dtype=torch.uint8))
    with pytest.raises(TypeError, match=r"must be a torch\.ByteTensor"):
        torch.set_rng_state(torch.zeros(16))


def test_fused_sums_are_rounded_once() -> None:
    a = np.array([1 + 2**-12, 3], np.float32)
    c = np.array([-(1 + 2**-11), 2**-40], np.float32)
    assert mersenne._fused(a, a, c).tolist() == [2**-24, 9]


DRAWS: dict[str, Callable[..., Any]] = {  # of torch, a generator, a count, a dtype
    "rand": lambda t, g, n, d: t.rand(n, generator=g, dtype=d),
    "randn": lambda t, g, n, d: t.randn(n, generator=g, dtype=d),
    "uniform_": lambda t, g, n, d: t.empty(n, dtype=d).uniform_(-0.3, 0.7, generator=g),
    "uniform_ to the bound": lambda t, g, n, d: t.empty(n, dtype=d).uniform_(1, 1 + 2**-10, generator=g),
    "normal_": lambda t, g, n, d: t.empty(n, dtype=d).normal_(-0.3, 0.7, generator=g),
    "normal": lambda t, g, n, d: t.normal(1.5, 0.5, (n,), generator=g, dtype=d),
    "normal of tensors": lambda t, g, n, d: t.normal(t.zeros(n, dtype=d) + 0.5, t.ones(n, dtype=d) * 0.7, generator=g),
    "normal_ of a part": lambda t, g, n, d: t.zeros(n, 2, dtype=d)[:, 0].normal_(0, 2, generator=g),
    "uniform_ transposed": lambda t, g, n, d: t.zeros(3, n, dtype=d).t().uniform_(generator=g),
    "rand of shape": lambda t, g, n, d: t.rand(n, 2, 3, generator=g, dtype=d),
    "bernoulli": lambda t, g, n, d: t.bernoulli(t.rand(n, generator=g).to(d), generator=g),
    "bernoulli of p": lambda t, g, n, d: t.bernoulli(t.zeros(n, dtype=d), 0.3, generator=g),
    "bernoulli_": lambda t, g, n, d: t.zeros(n, dtype=d).bernoulli_(0.7, generator=g),
    "bernoulli_ of tensor": lambda t, g, n, d: t.zeros(n, dtype=d).bernoulli_(t.full((1,), 0.25), generator=g),
    "randint": lambda t, g, n, d: t.randint(-5, 1000, (n,), generator=g),
    "randint float": lambda t, g, n, d: t.randint(0, 100, (n,), generator=g, dtype=d),
    "randint large": lambda t, g, n, d: t.randint(2**40, (n,), generator=g),
    "random_": lambda t, g, n, d: t.empty(n, dtype=d).random_(generator=g),
    "random_ int64": lambda t, g, n, d: t.empty(n, dtype=t.int64).random_(generator=g),
    "random_ uint8": lambda t, g, n, d: t.empty(n, dtype=t.uint8).random_(3, 200, generator=g),
    "randperm": lambda t, g, n, d: t.randperm(n, generator=g),
    "exponential_": lambda t, g, n, d: t.empty(n, dtype=d).exponential_(2.0, generator=g),
    "geometric_": lambda t, g, n, d: t.empty(n, dtype=d).geometric_(0.3, generator=g),
    "multinomial": lambda t, g, n, d: t.multinomial(t.arange(1.0, 9.0), n + 2, replacement=True, generator=g),
    "multinomial once": lambda t, g, n, d: t.multinomial(t.rand(n + 2, 5, generator=g), 3, generator=g),
    "multinomial one": lambda t, g, n, d: t.multinomial(t.rand(n + 2, 5, generator=g), 1, generator=g),
    "complex": lambda t, g, n, d: t.view_as_real(t.randn(n, generator=g, dtype=t.complex64)),
    "complex uniform": lambda t, g, n, d: t.view_as_real(t.rand(n, generator=g, dtype=t.complex128)),
}
NOT_ON_INTEL = {"bernoulli of p", "bernoulli_", "exponential_", "multinomial once", "multinomial one"}  # MKL draws these there


@pytest.fixture
def real() -> Any:
    found = pytest.importorskip("torch")
    before = found.get_num_threads()
    found.set_num_threads(1)
    yield found
    found.set_num_threads(before)


def is_intel() -> bool:
    try:
        with open("/proc/cpuinfo") as file:
            return "GenuineIntel" in file.read()
    except OSError:
        return True


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", DRAWS)
def test_torch_numbers_are_torchs(real: Any, name: str, dtype: str) -> None:
    if dtype == "bfloat16" and importlib.util.find_spec("ml_dtypes") is None:
        pytest.skip("needs ml_dtypes")
    if name in NOT_ON_INTEL and is_intel():
        pytest.skip("PyTorch draws these by MKL here")
    own, theirs = torch.Generator().manual_seed(11), real.Generator().manual_seed(11)
    for n in SIZES:
        expected = DRAWS[name](real, theirs, n, getattr(real, dtype))
        got = compatible(lambda: DRAWS[name](torch, own, n, getattr(torch, dtype)))
        assert str(got.dtype) == str(expected.dtype)
        plain = expected.to(real.float32) if expected.dtype is real.bfloat16 else expected
        assert np.array_equal(numbers(got), plain.numpy()), n
        assert np.array_equal(compatible(own.get_state).numpy(), theirs.get_state().numpy()), n


def test_torch_states_are_interchangeable(real: Any) -> None:
    order = np.random.default_rng(5)
    own, theirs = torch.Generator().manual_seed(2**40 + 3), real.Generator().manual_seed(2**40 + 3)
    names = sorted(set(DRAWS) - NOT_ON_INTEL)
    for step in range(150):
        name, n = names[order.integers(len(names))], int(order.choice(SIZES))
        dtype = ("float32", "float64", "float16")[order.integers(3)]
        expected = DRAWS[name](real, theirs, n, getattr(real, dtype)).numpy()
        got = compatible(lambda: DRAWS[name](torch, own, n, getattr(torch, dtype)).numpy())
        assert np.array_equal(got, expected), (name, n, dtype)
        state = compatible(own.get_state)
        assert np.array_equal(state.numpy(), theirs.get_state().numpy())
        if step % 20 == 0:
            theirs = real.Generator()
            theirs.set_state(real.from_numpy(state.numpy().copy()))
        elif step % 20 == 10:
            own = copy.copy(torch.Generator()).set_state(torch.from_numpy(theirs.get_state().numpy().copy()))
