"""Pools in compiled functions: steps that call the runtime, with the bits that they have in plain calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
import dynagraph.torch as torch
from dynagraph.backends import toolchain
from dynagraph.torch.functions import pooling

F = torch.nn.functional
needs_a_compiler = pytest.mark.skipif(toolchain.find_compiler() is None, reason="there is no C compiler")

WINDOWS: dict[str, dict[str, Any]] = {
    "plain": {"kernel_size": 2}, "overlapping": {"kernel_size": 3, "stride": 2, "padding": 1},
    "dilated, beyond the end": {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2, "ceil_mode": True},
    "apart": {"kernel_size": 2, "stride": 3, "ceil_mode": True}, "nothing but border": {"kernel_size": 2, "stride": 1, "padding": 1,
    "dilation": 6},
}  # fmt: skip
SIZES = {1: (11,), 2: (9, 8), 3: (7, 8, 9)}


def numbers(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    """With ties, NaNs and infinities."""
    made = np.random.default_rng(seed).integers(-4, 4, shape).astype(dtype)
    for value, step in ((np.nan, 29), (np.inf, 37), (-np.inf, 3)):
        made.flat[step // 2 :: step] = value
    return made


def step_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """What a function gives, and the gradients of its first result: numbers of all kinds of places."""

    def step(x: Any, seed: Any) -> Any:
        x.grad = None
        found = function(x)
        results = found if isinstance(found, tuple) else (found,)
        results[0].backward(seed.expand_as(results[0]))
        return (*results, x.grad)

    return step


def check(function: Callable[..., Any], *arrays: np.ndarray, **options: Any) -> Any:
    """That it computes compiled what it does plainly, bit for bit, for arrays one after another."""
    step = step_of(function)
    compiled = dg.compile(step, fullgraph=True, **options)
    for array in arrays:
        x, y = (torch.from_numpy(array.copy()).requires_grad_() for _ in range(2))
        seed = torch.tensor(0.3, dtype=x.dtype)
        for got, want in zip(compiled(x, seed), step(y, seed), strict=True):
            assert got.dtype is want.dtype and got.shape == want.shape
            assert got.detach().numpy().tobytes() == want.detach().numpy().tobytes()
    return compiled


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("places", [False, True], ids=["maxima", "with places"])
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("name", WINDOWS)
def test_maxima(name: str, n: int, places: bool, dtype: Any) -> None:
    sizes = (5,) * n if name == "nothing but border" else SIZES[n]
    function = getattr(F, f"max_pool{n}d")
    check(lambda x: function(x, **WINDOWS[name], return_indices=places), numbers(3, 2, *sizes, dtype=dtype))


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 3, 5, 12])
def test_as_many_windows_as_are_asked_for(n: int, count: int) -> None:
    for function, more in ((f"adaptive_max_pool{n}d", {"return_indices": True}), (f"adaptive_avg_pool{n}d", {})):
        pool = getattr(F, function)
        array = numbers(3, 2, *SIZES[n]) if more else np.random.default_rng(0).normal(size=(3, 2, *SIZES[n]))
        check(lambda x, pool=pool, more=more: pool(x, count, **more), array)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("about", [
    {"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1}, {"kernel_size": 3, "stride": 1, "padding": 1},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True, "count_include_pad": False},
    {"kernel_size": 2, "stride": 3, "ceil_mode": True}, {"kernel_size": 5, "stride": 3, "padding": 2, "ceil_mode": True},
    {"kernel_size": 2, "stride": 1, "count_include_pad": False},
], ids=str)  # fmt: skip
def test_means(about: dict[str, Any], n: int, dtype: Any) -> None:
    array = np.random.default_rng(0).normal(size=(3, 2, *SIZES[n])).astype(dtype)
    array.flat[::5] = -0.0
    array.flat[3::41] = np.nan
    check(lambda x: getattr(F, f"avg_pool{n}d")(x, **about), array, array[:, :1], array.swapaxes(-1, -2))


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("about", [{"padding": 1, "ceil_mode": True}, {"padding": 1, "count_include_pad": False}, {}], ids=str)
def test_means_have_the_bits_of_slices(about: dict[str, Any], n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the runtime computes them, kernels that are made of slices, or NumPy; halves are computed in float32."""
    pool = getattr(F, f"avg_pool{n}d")
    for dtype in (np.float32, np.float64, np.float16):
        array = np.random.default_rng(0).normal(size=(3, 2, *SIZES[n])).astype(dtype)
        array.flat[::3] = -0.0

        def computed(array: np.ndarray = array) -> list[bytes]:
            found = []
            for kernel, stride in ((2, None), (3, 2), (3, 1)):
                x = torch.from_numpy(array).requires_grad_()
                y = pool(x, kernel, stride, **about)
                (g,) = torch.autograd.grad(y.sin().sum(), x)
                found += [y.detach().numpy().tobytes(), g.numpy().tobytes()]
            return found

        by_runtime = computed()
        with monkeypatch.context() as patch:
            patch.setattr(pooling, "_has_kernels", lambda x: False)
            assert by_runtime == computed()


def test_divisors() -> None:
    array = np.random.default_rng(0).normal(size=(2, 3, 7, 8))
    for divisor in (5, -3):
        check(lambda x, divisor=divisor: F.avg_pool2d(x, 3, 2, 1, divisor_override=divisor), array)
        got = F.avg_pool2d(torch.from_numpy(array), 3, 2, 1, divisor_override=divisor)
        np.testing.assert_allclose(got.numpy() * divisor, F.avg_pool2d(torch.from_numpy(array), 3, 2, 1).numpy() * 9, rtol=1e-12)


def test_means_have_the_same_bits_for_any_number_of_threads() -> None:
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(32, 16, 28, 28)).astype(np.float32)).requires_grad_()
    found = []
    before = dg.config.threads
    try:
        for threads in (1, 2, 3):
            dg.config.threads = threads
            y = F.avg_pool2d(x, 3, 2, 1)
            (g,) = torch.autograd.grad(y.sin().sum(), x)
            found.append((y.detach().numpy().tobytes(), g.numpy().tobytes()))
    finally:
        dg.config.threads = before
    assert found[0] == found[1] == found[2]


def test_one_program_for_all_batches() -> None:
    arrays = [numbers(batch, 3, 8, 8, seed=batch) for batch in (4, 5, 7, 3)]
    compiled = check(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), *arrays, dynamic=True)
    assert compiled.stats.compiles == 1


def test_one_program_for_all_sizes() -> None:
    arrays = [numbers(batch, 3, size, size + 2, seed=batch) for batch, size in ((4, 9), (5, 14), (7, 11))]
    check(lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True), *arrays, dynamic=True)
    check(lambda x: F.adaptive_max_pool2d(x, (3, 4)), *arrays, dynamic=True)
    for about in ((2,), (3, 2, 1), (3, 2, 1, True), (3, 2, 1, True, False)):
        check(lambda x, about=about: F.avg_pool2d(x, *about), *map(np.nan_to_num, arrays), dynamic=True)


def test_images_in_another_order_of_axes() -> None:
    check(lambda x: F.max_pool2d(x.transpose(2, 3), 2), numbers(2, 3, 8, 6))
    check(lambda x: F.max_pool2d(x[:, ::2], 2, return_indices=True), numbers(2, 4, 8, 6))


def test_integers_and_halves_have_kernels_of_their_own() -> None:
    whole = np.arange(2 * 3 * 6 * 6).reshape(2, 3, 6, 6) % 7
    compiled = dg.compile(lambda x: F.max_pool2d(x, 2, return_indices=True), fullgraph=True)
    for x in (torch.from_numpy(whole), torch.from_numpy(whole).half(), torch.from_numpy(whole).bfloat16()):
        for got, want in zip(compiled(x), F.max_pool2d(x, 2, return_indices=True)):
            assert got.dtype is want.dtype and got.equal(want)


def test_second_derivatives() -> None:
    def second(x: Any, v: Any) -> Any:
        y = F.max_pool2d(x * x, 3, 2, 1) + F.adaptive_max_pool2d(x * x, 4) + F.adaptive_avg_pool2d(x * x * x, 4)
        y = y + F.avg_pool2d(x * x * x, 3, 2, 1) + F.avg_pool2d(x * x, 2, ceil_mode=True)
        (g,) = torch.autograd.grad((y * y).sum(), x, create_graph=True)
        return torch.autograd.grad((g * v).sum(), x)[0]

    x = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 3, 7, 8))).requires_grad_()
    v = torch.from_numpy(np.random.default_rng(1).normal(size=(2, 3, 7, 8)))
    got = dg.compile(second, fullgraph=True)(x, v)
    np.testing.assert_allclose(got.numpy(), second(x, v).numpy(), rtol=1e-12)


def test_gradients_of_what_has_nothing_but_border_go_nowhere() -> None:
    for dtype in (np.float32, np.float16):
        x = torch.from_numpy(np.ones((2, 1, 5, 5), dtype)).requires_grad_()
        y, places = F.max_pool2d(x, 2, 1, 1, 6, return_indices=True)
        y.sum().backward()
        assert (places == -1).all() and not x.grad.any()


def test_examples_at_once() -> None:
    def gradient(x: Any) -> Any:
        def total(x: Any) -> Any:
            y = F.max_pool2d(x, 2) * 3 + F.adaptive_max_pool2d(x, 3) + F.avg_pool2d(x, 3, 2, 1).sin() + F.avg_pool2d(x, 2).sin()
            return y.sum()

        return torch.func.grad(total)(x)

    x = torch.from_numpy(np.random.default_rng(0).normal(size=(4, 3, 6, 6)).astype(np.float32))
    want = torch.stack([gradient(example) for example in x])

    def many(x: Any) -> Any:
        return torch.func.vmap(gradient)(x)

    assert many(x).equal(want) and dg.compile(many)(x).equal(want)


@needs_a_compiler
def test_a_step_of_the_program() -> None:
    compiled = check(lambda x: F.max_pool2d(F.relu(x), 2), numbers(8, 3, 8, 8), mode="max", backend="c")
    text = compiled.programs[-1].executable.artifacts["loops"]
    assert text.count("= max_pool(") == 1 and text.count("= max_pool_back(") == 1


@needs_a_compiler
def test_means_of_windows_apart_are_computed_with_what_is_before_them() -> None:
    for about, fuses in (((2,), True), ((2, 3), True), ((3, 2), False), ((2, 2, 1), False), ((8,), False)):
        x = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 3, 8, 8)))
        compiled = dg.compile(lambda x, about=about: F.avg_pool2d(F.relu(x), *about), fullgraph=True, mode="max", backend="c")
        assert compiled(x).equal(F.avg_pool2d(F.relu(x), *about))
        text = compiled.programs[-1].executable.artifacts["loops"]
        assert text.count("= avg_pool(") == (not fuses) and text.count("kernel ") == 1


def test_an_exported_pool(tmp_path: Any) -> None:
    def pools(x: Any) -> Any:
        y = F.adaptive_avg_pool2d(x, 3) + F.avg_pool2d(x, 3, 2, 1)[..., :3, :3]
        return F.max_pool2d(x, 3, 2, 1, return_indices=True), F.adaptive_max_pool2d(x, 3), y

    x = torch.from_numpy(np.random.default_rng(0).normal(size=(4, 3, 8, 8)).astype(np.float32))
    program = dg.export(pools, (x,), dynamic_shapes=({0: dg.Dim("batch")},))
    program.save(tmp_path / "pools.dgx")
    loaded = dg.load_exported(tmp_path / "pools.dgx")
    for given in (x, x[:3]):
        got, want = loaded(given), pools(given)
        assert got[0][0].equal(want[0][0]) and got[0][1].equal(want[0][1]) and got[1].equal(want[1]) and got[2].equal(want[2])


@pytest.mark.parametrize("places_first", [False, True])
def test_results_written_to_arguments_wait_for_what_reads_these_before(places_first: bool) -> None:
    """Both results of one pool are one call, made where the first is: the second was written before its argument was read."""

    def step(x: Any, out: Any) -> Any:
        first, second = (1, 0) if places_first else (0, 1)
        early = torch.nn.functional.max_pool2d(x, 2, return_indices=True)[first]
        before = out * 3
        out.copy_(torch.nn.functional.max_pool2d(x, 2, return_indices=True)[second])
        return early, before

    compiled = dg.compile(step, mode="max", fullgraph=True)
    for n in (4, 6, 8):
        x = torch.randn(2, 3, n, n)
        own, plain = (torch.ones(2, 3, n // 2, n // 2, dtype=torch.float32 if places_first else torch.int64) for _ in range(2))
        for got, wanted in zip((*compiled(x, own), own), (*step(x, plain), plain)):
            assert torch.equal(got, wanted)
