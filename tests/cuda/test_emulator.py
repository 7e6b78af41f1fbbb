"""The emulator of CUDA kernels: what is right agrees with NumPy in every order, and what is wrong is found."""

from __future__ import annotations

import ctypes
import math
import os
import re
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.cuda import emulator
from tests.cuda.emulator import ORDERS, EmulatorError, guarded, guarded_copy, last_error, launch, order

pytestmark = pytest.mark.sampled(20)

RNG = np.random.default_rng(0)
every_order = pytest.mark.parametrize("name", ORDERS)
every_way = pytest.mark.usefixtures("way")
search_races = False


@pytest.fixture(params=[(name, races) for name in ORDERS for races in (False, True)], ids=str)
def way(request, monkeypatch):
    """Every order, with and without the search for races: what is right passes all of them."""
    name, races = request.param
    monkeypatch.setattr(sys.modules[__name__], "search_races", races)
    with order(name):
        yield


def run(source, *arguments, grid=1, block=32, shared=0, kernel="k", races=None):
    """Launch a kernel of a source; arrays are passed by address, Python's integers as long long."""
    launch(
        emulator.compile(source, search_races if races is None else races).function(kernel),
        (*np.atleast_1d(grid), 1, 1)[:3],
        (*np.atleast_1d(block), 1, 1)[:3],
        shared,
        [as_ctypes(argument) for argument in arguments],
    )


def as_ctypes(argument):
    if isinstance(argument, np.ndarray):
        return ctypes.c_void_p(argument.ctypes.data)
    return ctypes.c_longlong(argument) if isinstance(argument, int) else argument


def error_of(source, *arguments, **how):
    with pytest.raises(EmulatorError) as caught:
        run(source, *arguments, **how)
    return caught.value


# --- what is right ----------------------------------------------------------------------------------------------------------------


@every_way
@pytest.mark.parametrize("n", [1, 255, 5000])
def test_elementwise_kernel_in_grid_strides(n):
    source = """
    extern "C" __global__ void __launch_bounds__(128) k(float *__restrict__ y, const float *__restrict__ x, long long n)
    {
        const long long step = (long long)gridDim.x * blockDim.x;
        for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step)
            y[i] = fmaf(__ldg(x + i), 2.0f, 1.0f);
    }
    """
    x, y = guarded_copy(RNG.standard_normal(n, np.float32)), guarded(4 * n).view(np.float32)
    run(source, y, x, n, grid=7, block=128)
    np.testing.assert_array_equal(y, x * np.float32(2) + np.float32(1))


BLOCK_SUM = """
template <class T> __device__ __forceinline__ T block_sum(T v)
{
    __shared__ T partial[32];
    for (int o = 16; o > 0; o >>= 1)
        v += __shfl_xor_sync(0xffffffffu, v, o);
    if ((threadIdx.x & 31) == 0)
        partial[threadIdx.x >> 5] = v;
    __syncthreads();
    v = threadIdx.x % 32 < (blockDim.x + 31) / 32 ? partial[threadIdx.x % 32] : T(0);
    for (int o = 16; o > 0; o >>= 1)
        v += __shfl_xor_sync(0xffffffffu, v, o);
    __syncthreads();
    return v;
}
"""


@every_way
@pytest.mark.parametrize("dtype, ctype", [("f4", "float"), ("f8", "double"), ("i4", "int"), ("i8", "long long")])
@pytest.mark.parametrize("threads", [32, 256, 1024])
def test_block_reduction(dtype, ctype, threads):
    source = f"""{BLOCK_SUM}
    extern "C" __global__ void k({ctype} *y, const {ctype} *x, long long columns)
    {{
        {ctype} v = 0;
        for (long long j = threadIdx.x; j < columns; j += blockDim.x)
            v += x[blockIdx.x * columns + j];
        v = block_sum(v);
        if (threadIdx.x == 0)
            y[blockIdx.x] = v;
    }}
    """
    x = guarded_copy(RNG.integers(-100, 100, (5, 1500)).astype(dtype))
    y = guarded(5 * x.itemsize).view(dtype)
    run(source, y, x, 1500, grid=5, block=threads)
    np.testing.assert_array_equal(y, x.sum(1, dtype=dtype))


SOFTMAX = """
__device__ __forceinline__ float max_of(float a, float b) { return a > b || a != a ? a : b; }
__device__ __forceinline__ float sum_of(float a, float b) { return a + b; }
#define BLOCK_REDUCE(name, f)                                           \\
    __device__ __forceinline__ float name(float v, float unit)          \\
    {                                                                   \\
        __shared__ float partial[32];                                   \\
        for (int o = 16; o > 0; o >>= 1)                                \\
            v = f(v, __shfl_xor_sync(0xffffffffu, v, o));               \\
        if ((threadIdx.x & 31) == 0)                                    \\
            partial[threadIdx.x >> 5] = v;                              \\
        __syncthreads();                                                \\
        v = threadIdx.x % 32 < blockDim.x / 32 ? partial[threadIdx.x % 32] : unit; \\
        for (int o = 16; o > 0; o >>= 1)                                \\
            v = f(v, __shfl_xor_sync(0xffffffffu, v, o));               \\
        __syncthreads();                                                \\
        return v;                                                       \\
    }
BLOCK_REDUCE(block_max, max_of)
BLOCK_REDUCE(block_sum, sum_of)
extern "C" __global__ void __launch_bounds__(256) k(float *__restrict__ y, const float *__restrict__ x, long long columns)
{
    const float lowest = __int_as_float(0xff800000);
    x += blockIdx.x * columns;
    y += blockIdx.x * columns;
    float m = lowest, s = 0;
    for (int j = threadIdx.x; j < columns; j += blockDim.x)
        m = max_of(m, x[j]);
    m = block_max(m, lowest);
    for (int j = threadIdx.x; j < columns; j += blockDim.x)
        s += y[j] = expf(x[j] - m);
    s = block_sum(s, 0);
    for (int j = threadIdx.x; j < columns; j += blockDim.x)
        y[j] /= s;
}
"""


def softmax(x):
    exponential = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return exponential / exponential.sum(1, keepdims=True)


@every_way
@pytest.mark.parametrize("columns", [1, 777])
def test_softmax(columns):
    x = guarded_copy(RNG.standard_normal((20, columns), np.float32))
    y = guarded(x.nbytes).view(np.float32).reshape(x.shape)
    run(SOFTMAX, y, x, columns, grid=20, block=256)
    np.testing.assert_allclose(y, softmax(x), rtol=2e-6)


@every_way
def test_transpose_through_shared_memory():
    source = """
    extern "C" __global__ void k(float *y, const float *x, long long rows, long long columns)
    {
        __shared__ float tile[32][33];
        int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
        for (int i = 0; i < 32; i += 8)
            if (r + i < rows && c < columns)
                tile[threadIdx.y + i][threadIdx.x] = x[(r + i) * columns + c];
        __syncthreads();
        c = blockIdx.y * 32 + threadIdx.x, r = blockIdx.x * 32 + threadIdx.y;
        for (int i = 0; i < 32; i += 8)
            if (r + i < columns && c < rows)
                y[(r + i) * rows + c] = tile[threadIdx.x][threadIdx.y + i];
    }
    """
    x = guarded_copy(RNG.standard_normal((70, 100), np.float32))
    y = guarded(x.nbytes).view(np.float32).reshape(100, 70)
    run(source, y, x, 70, 100, grid=(4, 3), block=(32, 8))
    np.testing.assert_array_equal(y, x.T)


@every_way
def test_dynamic_shared_memory_has_the_size_of_the_launch():
    source = """
    extern "C" __global__ void k(double *y, const double *x)
    {
        extern __shared__ __align__(16) double values[];
        values[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        for (int o = blockDim.x / 2; o > 0; o >>= 1) {
            if (threadIdx.x < o)
                values[threadIdx.x] += values[threadIdx.x + o];
            __syncthreads();
        }
        if (threadIdx.x == 0)
            *y = values[0];
    }
    """
    x, y = RNG.integers(0, 9, 256).astype(float), np.zeros(1)
    run(source, y, x, block=256, shared=8 * 256)
    assert y[0] == x.sum()
    error = error_of(source, y, x, block=256, shared=8 * 254)
    assert re.search(r"write to dynamic shared memory [08] bytes behind its end \(2032 bytes\)", str(error))


@every_way
@pytest.mark.parametrize("width", [8, 16, 32])
def test_shuffles_within_groups_of_lanes(width):
    source = f"""
    extern "C" __global__ void k(int *y, const int *x)
    {{
        const int v = x[threadIdx.x];
        y[threadIdx.x] = __shfl_sync(0xffffffffu, v, threadIdx.x + 3, {width});
        y[64 + threadIdx.x] = __shfl_up_sync(0xffffffffu, v, 3, {width});
        y[128 + threadIdx.x] = __shfl_down_sync(0xffffffffu, v, 3, {width});
        y[192 + threadIdx.x] = __shfl_xor_sync(0xffffffffu, v, 5, {width});
    }}
    """
    x, y = RNG.integers(0, 1000, 64).astype(np.int32), np.zeros((4, 64), np.int32)
    run(source, y, x, block=64)
    i = np.arange(64)
    within = i % width
    np.testing.assert_array_equal(y[0], x[i - within + (within + 3) % width])
    np.testing.assert_array_equal(y[1], np.where(within >= 3, x[i - 3], x))
    np.testing.assert_array_equal(y[2], np.where(within + 3 < width, x[(i + 3) % 64], x))
    np.testing.assert_array_equal(y[3], x[i ^ 5])


def test_xor_shuffles_read_groups_before_but_not_behind():
    source = """
    extern "C" __global__ void k(int *y) { y[threadIdx.x] = __shfl_xor_sync(0xffffffffu, (int)threadIdx.x, 8, 8); }
    """
    y = np.zeros(32, np.int32)
    run(source, y)
    i = np.arange(32)
    np.testing.assert_array_equal(y, np.where(i & 8, i ^ 8, i))


@pytest.mark.parametrize(
    "dtype, ctype",
    [("i1", "signed char"), ("u2", "unsigned short"), ("i4", "int"), ("f4", "float"), ("i8", "long long"), ("f8", "double")],
)
def test_shuffles_keep_all_bits_of_a_type(dtype, ctype):
    source = f"""
    extern "C" __global__ void k({ctype} *y, const {ctype} *x)
    {{
        y[threadIdx.x] = __shfl_sync(0xffffffffu, x[threadIdx.x], 31 - (int)threadIdx.x);
    }}
    """
    x = np.frombuffer(RNG.bytes(32 * np.dtype(dtype).itemsize), dtype)
    y = np.zeros_like(x)
    run(source, y, x)
    assert y.tobytes() == x[::-1].tobytes()


@every_way
def test_halves_of_a_warp_work_on_their_own():
    source = """
    extern "C" __global__ void k(int *y, const int *x)
    {
        int v = x[threadIdx.x];
        if (threadIdx.x < 16) {
            for (int o = 8; o > 0; o >>= 1)
                v += __shfl_xor_sync(0x0000ffffu, v, o);
        } else {
            for (int o = 8; o > 0; o >>= 1)
                v = max(v, __shfl_xor_sync(0xffff0000u, v, o));
        }
        __syncwarp();
        y[threadIdx.x] = v;
    }
    """
    x, y = RNG.integers(0, 1000, 32).astype(np.int32), np.zeros(32, np.int32)
    run(source, y, x)
    np.testing.assert_array_equal(y, np.repeat([x[:16].sum(), x[16:].max()], 16))


@every_way
def test_votes_and_counting_barriers():
    source = """
    extern "C" __global__ void k(unsigned *y, const int *x)
    {
        const int t = threadIdx.x, v = x[t];
        y[t] = __ballot_sync(0xffffffffu, v);
        y[64 + t] = __any_sync(0xffffffffu, v);
        y[128 + t] = __all_sync(0xffffffffu, v);
        y[192 + t] = __syncthreads_or(v);
        y[256 + t] = __syncthreads_and(v);
        y[320 + t] = __syncthreads_count(v);
    }
    """
    some = np.zeros(64, np.int32)
    some[[1, 5, 40]] = [7, -1, 2]
    for x in (some, np.zeros(64, np.int32), np.full(64, 4, np.int32), np.repeat(np.int32([1, 0]), 32)):
        y = np.zeros((6, 64), np.uint32)
        run(source, y, x, block=64)
        warps = (x != 0).reshape(2, 32)
        ballots = (warps * 2 ** np.arange(32)).sum(1)
        expected = [ballots.repeat(32), warps.any(1).repeat(32), warps.all(1).repeat(32), x.any(), x.all(), np.count_nonzero(x)]
        np.testing.assert_array_equal(y, np.stack([np.broadcast_to(row, 64) for row in expected]))


@every_way
def test_inclusive_scan():
    source = """
    extern "C" __global__ void k(int *y, const int *x)
    {
        __shared__ int sums[32];
        const int t = threadIdx.x, lane = t & 31, warp = t >> 5;
        int v = x[t];
        for (int o = 1; o < 32; o <<= 1) {
            const int before = __shfl_up_sync(0xffffffffu, v, o);
            if (lane >= o)
                v += before;
        }
        if (lane == 31)
            sums[warp] = v;
        __syncthreads();
        for (int w = 0; w < warp; ++w)
            v += sums[w];
        y[t] = v;
    }
    """
    x, y = RNG.integers(-9, 9, 512).astype(np.int32), np.zeros(512, np.int32)
    run(source, y, x, block=512)
    np.testing.assert_array_equal(y, np.cumsum(x))


@every_way
def test_atomics():
    source = """
    extern "C" __global__ void k(
        int *counts, double *sum, float *halves, unsigned *top, unsigned long long *low, int *mixed, const int *x)
    {
        const int v = x[blockIdx.x * blockDim.x + threadIdx.x];
        atomicAdd(counts + v % 8, 1);
        atomicAdd(sum, (double)v);
        atomicAdd(halves, 0.5f);
        atomicMax(top, (unsigned)v);
        atomicMin(low, (unsigned long long)v);
        int seen = *(volatile int *)mixed, next;
        do {
            next = seen;
            seen = atomicCAS(mixed, next, next ^ v);
        } while (seen != next);
    }
    """
    x = RNG.integers(1, 1000, 640).astype(np.int32)
    counts, total, halves, top, low, mixed = (
        np.zeros(8, np.int32), np.zeros(1), np.zeros(1, "f4"), np.zeros(1, "u4"), np.full(1, 2**64 - 1, "u8"), np.zeros(1, "i4"),
    )  # fmt: skip
    run(source, counts, total, halves, top, low, mixed, x, grid=5, block=128)
    np.testing.assert_array_equal(counts, np.bincount(x % 8, minlength=8))
    assert (total[0], halves[0], top[0], low[0], mixed[0]) == (x.sum(), 320, x.max(), x.min(), np.bitwise_xor.reduce(x))


def test_atomics_give_the_old_value():
    source = """
    extern "C" __global__ void k(int *y, float *z)
    {
        y[1] = atomicExch(y, 5);
        y[2] = atomicSub(y, 2);
        y[3] = atomicOr(y, 8);
        y[4] = atomicAnd(y, 9);
        y[5] = atomicCAS(y, 9, 6);
        y[6] = atomicCAS(y, 9, 7);
        z[1] = atomicExch(z, 2.5f);
        unsigned *u = (unsigned *)y + 7;
        y[8] = atomicInc(u, 3), y[9] = atomicInc(u, 3), y[10] = atomicDec(u, 7);
    }
    """
    y, z = np.array([4, 0, 0, 0, 0, 0, 0, 3, 9, 9, 9], np.int32), np.array([1.5, 0], np.float32)
    run(source, y, z, block=1)
    assert y.tolist() == [6, 4, 5, 3, 11, 9, 6, 0, 3, 0, 1]
    assert z.tolist() == [2.5, 1.5]


@every_way
def test_indices_of_three_axes():
    source = """
    extern "C" __global__ void k(unsigned *y)
    {
        const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
        const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
        y[block * blockDim.x * blockDim.y * blockDim.z + thread] += 1 + thread % warpSize;
    }
    """
    y = guarded(4 * 24 * 105).view(np.uint32)
    run(source, y, grid=(2, 3, 4), block=(5, 3, 7))
    np.testing.assert_array_equal(y.reshape(24, 105), np.broadcast_to(1 + np.arange(105) % 32, (24, 105)))


def test_intrinsics():
    source = """
    extern "C" __global__ void k(double *y, const float4 *x)
    {
        const float4 v = __ldcs(x);
        const double2 pair = {(double)v.x, (double)v.y};
        const int4 i = make_int4(__float_as_int(v.x), __float_as_int(v.y), 0, 0);
        const uint4 u = make_uint4(1u, 2u, 3u, 0xf0u);
        int n = 0;
        const double results[] = {
            __int_as_float(i.x), __longlong_as_double(__double_as_longlong(pair.y)), (double)__popc(u.w), (double)__clz(1),
            (double)__clz(0), (double)__ffs(8), (double)__clzll(1), (double)__popcll(~0ull), rsqrt(16.0), (double)rsqrtf(4.0f),
            (double)__umulhi(0x80000000u, 6u), (double)__umul64hi(1ull << 63, 6ull), fmax((double)v.z, 1.0), max(v.w, 1.0f),
            (double)min(3, 2), (double)isnan(v.z), (double)signbit(-0.0), pow(2.0, 0.5), (double)exp(v.x), fma(2.0, 3.0, 1.0),
            __hiloint2double(0x3ff00000, 0), (double)atan2(1.0f, 2.0f),
        };
        for (double result : results)
            __stcs(y + n++, result);
    }
    """
    x = np.array([1.5, -2.25, np.nan, 7], np.float32)
    y = np.zeros(22)
    run(source, y, guarded_copy(x, alignment=16), block=1)
    f4 = np.float32
    expected = [
        1.5, -2.25, 4, 31, 32, 4, 63, 64, 0.25, 0.5, 3, 3, 1, 7, 2, 1, 1, 2**0.5, np.exp(f4(1.5)), 7, 1, np.arctan2(f4(1), f4(2))
    ]  # fmt: skip
    np.testing.assert_allclose(y, expected, rtol=1e-7)


def test_sources_can_tell_that_they_are_emulated():
    y = np.zeros(1, np.int32)
    run('#ifdef DG_EMULATED\nextern "C" __global__ void k(int *y) { *y = DG_EMULATED; }\n#endif', y, block=1)
    assert y[0] == 1


def test_a_module_has_every_kernel_of_its_source():
    module = emulator.compile("""
    // extern "C" __global__ void gone(int *y)
    #define THREADS 64
    __constant__ int table[2] = {5, 6};
    __device__ int twice(int x) { return 2 * x; }
    extern "C" __global__ void first(int *y) { *y = twice(table[0]); }
    extern "C" __global__ void __launch_bounds__(THREADS, 2) second(int *y) { *y = twice(table[1]); }
    extern "C" __global__ __launch_bounds__(32) void
    third(int *y, const double by)
    {
        *y = (int)by;
    }
    """)
    y = np.zeros(1, np.int32)
    results = []
    for kernel, more in (("first", []), ("second", []), ("third", [ctypes.c_double(7.5)])):
        launch(module.function(kernel), (1, 1, 1), (1, 1, 1), 0, [as_ctypes(y), *more])
        results.append(int(y[0]))
    assert (module.kernels, results) == (("first", "second", "third"), [10, 12, 7])
    with pytest.raises(KeyError, match="no kernel 'fourth' in this module: it has first, second, third"):
        module.function("fourth")


def test_blocks_of_1024_threads():
    x = RNG.standard_normal((300, 1100), np.float32)
    y = np.zeros_like(x)
    run(SOFTMAX.replace("__launch_bounds__(256)", ""), y, x, 1100, grid=300, block=1024)
    np.testing.assert_allclose(y, softmax(x), rtol=2e-6)


# --- what is wrong: results -------------------------------------------------------------------------------------------------------


@every_order
def test_missing_barrier_before_a_read_gives_poison(name):
    source = """
    extern "C" __global__ void k(float *y, const float *x)
    {
        __shared__ float values[256];
        values[threadIdx.x] = x[threadIdx.x];
        y[threadIdx.x] = values[255 - threadIdx.x];
    }
    """
    x, y = RNG.standard_normal(256, np.float32), np.zeros(256, np.float32)
    with order(name):
        run(source, y, x, block=256)
    assert np.isnan(y).any()


def test_missing_trailing_barrier_shows_when_warps_run_ahead():
    source = BLOCK_SUM.replace("__syncthreads();\n    return", "return") + """
    extern "C" __global__ void k(int *y, const int *x)
    {
        y[threadIdx.x] = block_sum(x[threadIdx.x]);
        y[128 + threadIdx.x] = block_sum(2 * x[threadIdx.x]);
    }
    """
    x = RNG.integers(1, 100, 128).astype(np.int32)
    right = {}
    for name in ORDERS:
        y = np.zeros((2, 128), np.int32)
        with order(name):
            run(source, y, x, block=128)
        right[name] = (y == [[x.sum()], [2 * x.sum()]]).all()
    assert right["forward"]
    assert not right["warps forward"] and not right["warps reverse"]


def test_results_of_other_blocks_depend_on_the_order_of_blocks():
    source = """
    extern "C" __global__ void k(int *y) { y[blockIdx.x] = blockIdx.x == 0 ? 1 : y[blockIdx.x - 1] + 1; }
    """
    results = {}
    for blocks in emulator.BLOCK_ORDERS:
        y = np.zeros(50, np.int32)
        with order("forward", blocks):
            run(source, y, grid=50, block=1)
        results[blocks] = y.tolist()
    assert results["forward"] == list(range(1, 51))
    assert results["reverse"] == [1] * 50
    assert results["random"] not in (results["forward"], results["reverse"])


SHARED_EXCHANGE = """
{function}
{{
    {declaration};
    const T before = values[threadIdx.x];
    values[threadIdx.x] = 1;
    return before;
}}
extern "C" __global__ void k(float *y) {{ y[blockIdx.x * 64 + threadIdx.x] = {call}; }}
"""


@pytest.mark.parametrize("declaration", ["__shared__ T values[64]", "extern __shared__ T values[]"])
@pytest.mark.parametrize(
    "function, call",
    [
        ("typedef float T; __device__ T exchange()", "exchange()"),
        ("typedef float T; __device__ inline T exchange()", "exchange()"),
        ("template <class T> __device__ T exchange()", "exchange<float>()"),
    ],
)
def test_shared_memory_starts_as_nan_in_every_block(declaration, function, call):
    source = SHARED_EXCHANGE.format(declaration=declaration, function=function, call=call)
    y = np.zeros(3 * 64, np.float32)
    run(source, y, grid=3, block=64, shared=256)
    assert np.isnan(y).all()


# --- what is wrong: races ---------------------------------------------------------------------------------------------------------

RACES = {
    "missing barrier": "__shared__ int values[64]; values[t] = t; y[t] = values[63 - t];",
    "missing second barrier": "__shared__ int values[64]; values[t] = t; __syncthreads(); y[t] = values[63 - t]; values[t] = 5;",
    "missing atomic operation": "y[0] += 1;",
    "missing atomic operation of lanes": "if (t < 2) y[0] += 1;",
    "missing atomic operation of blocks": "if (t == 0) y[0] += 1;",
    "two threads write": "y[t / 2] = t;",
    "two threads write bytes": "((char *)y)[t / 2] = t;",
    "two threads write parts of one": "if (t == 0) *(int4 *)y = make_int4(1, 2, 3, 4); if (t == 1) y[3] = 4;",
    "read among atomic operations": "atomicAdd(y, 1); y[1 + t] = y[0];",
    "a shuffle orders nothing": "__shared__ int values[64]; values[t] = t; __shfl_sync(~0u, t, 0); y[t] = values[t ^ 1];",
    "warps synchronise on their own": "__shared__ int values[64]; values[t] = t; __syncwarp(); y[t] = values[63 - t];",
    "results of other blocks": "atomicAdd(y + 200, 1); y[t + 64 * b] = 1; y[128 + t] = y[t + 64 * (1 - b)];",
}
NO_RACES = {
    "barriers": "__shared__ int values[64]; values[t] = t; __syncthreads(); y[t] = values[63 - t]; __syncthreads(); values[t] = 5;",
    "atomic operations": "atomicAdd(y, 1); atomicMax(y, 5); __syncthreads(); y[1 + t] = *(volatile int *)y;",
    "bytes": "((char *)y)[t] = t; __syncthreads(); ((char *)y)[63 - t] += 1;",
    "warps": "__shared__ int values[64]; values[t] = t; __syncwarp(); int v = values[t ^ 1]; __syncwarp(); values[t ^ 31] = v;",
    "reads of everyone": "y[1 + t] = y[0]; __syncthreads(); if (t == 1) y[0] = 5;",
    "votes": "if (__syncthreads_or(y[t])) y[63 - t] = 1;",
    "the last block": """
        __shared__ int last;
        y[64 * b + t] = 1;
        __threadfence();
        __syncthreads();
        if (t == 0)
            last = atomicAdd(y + 200, 1) == gridDim.x - 1;
        __syncthreads();
        if (last)
            y[300 + t] = y[t] + y[64 + t];
    """,
}
RACE_KERNEL = """extern "C" __global__ void k(int *y)
{
    const int t = threadIdx.x, b = blockIdx.x;
"""


@every_order
@pytest.mark.parametrize("what", RACES)
def test_races_are_found(name, what):
    y = guarded(2048, alignment=16).view(np.int32)
    with order(name):
        error = error_of(f"{RACE_KERNEL}{RACES[what]}\n}}", y, grid=2 if "blocks" in what else 1, block=64, races=True)
    assert error.code == 719
    other = "another block" if "blocks" in what else r"(another thread|thread \(\d+, 0, 0\))"
    kind = "shared" if "__shared__" in RACES[what] else "global"
    assert re.search(rf": race: (read|write) of {kind} memory \(address 0x\w+\) that {other} accesses too", str(error))
    assert str(error).endswith("(kernel.cu:4)")


@every_order
@pytest.mark.parametrize("what", NO_RACES)
def test_what_is_ordered_is_no_race(name, what):
    y = guarded(2048).view(np.int32)
    with order(name):
        run(f"{RACE_KERNEL}{NO_RACES[what]}\n}}", y, grid=2 if "block" in what else 1, block=64, races=True)
    assert last_error() == ""
    if "block" in what:
        assert y[300:364].tolist() == [2] * 64


# --- what is wrong: errors --------------------------------------------------------------------------------------------------------


@every_order
def test_divergent_barrier_names_block_thread_and_line(name):
    source = """extern "C" __global__ void k(const int *x)
    {
        if (x[blockIdx.x] == 0 || threadIdx.y < 2)
            __syncthreads();
        __syncwarp();
    }
    """
    x = np.array([0, 0, 1], np.int32)
    with order(name):
        error = error_of(source, x, grid=3, block=(16, 4))
    assert error.code == 719
    assert re.fullmatch(
        r"k: block \(2, 0, 0\), thread \(0, 0, 0\), line 4: divergent barrier: 32 of 64 threads wait, "
        r"but thread \(0, 2, 0\) has ended",
        str(error),
    )


def test_barriers_of_two_branches_are_divergent():
    source = """extern "C" __global__ void k()
    {
        if (threadIdx.x < 32)
            __syncthreads();
        else
            __syncthreads();
    }
    """
    assert str(error_of(source, block=64)) == (
        "k: block (0, 0, 0), thread (32, 0, 0), line 6: divergent barrier: thread (32, 0, 0) waits in __syncthreads of line 6, "
        "but thread (0, 0, 0) waits in __syncthreads of line 4"
    )


WARP_ERRORS = {
    "if (threadIdx.x == 5) return; y[threadIdx.x] = __shfl_sync(~0u, 1, 5);": (
        r"thread \(0, 0, 0\), line 1: __shfl_sync reads lane 5, which has ended"
    ),
    "if (threadIdx.x < 8) y[threadIdx.x] = __shfl_xor_sync(0xffu, 1, 8);": (
        r"thread \(0, 0, 0\), line 1: __shfl_xor_sync reads lane 8, which is outside its mask"
    ),
    "y[threadIdx.x] = __shfl_sync(0xffffu, 1, 8);": (
        r"thread \((\d+), 0, 0\), line 1: __shfl_sync: the calling lane \1 is outside its mask 0xffff"
    ),
    "if (threadIdx.x < 8) __syncwarp(); else __shfl_sync(~0u, 1, 9);": (
        r"lanes of one warp meet in different operations: thread \(8, 0, 0\) waits in __shfl_sync of line 1 with mask 0xffffffff, "
        r"but thread \(0, 0, 0\) waits in __syncwarp of line 1 with mask 0xffffffff"
    ),
    "if (threadIdx.x < 8) __any_sync(~0u, 1); else __syncthreads();": (
        r"thread \(0, 0, 0\), line 1: deadlock: thread \(0, 0, 0\) waits in __any_sync of line 1 with mask 0xffffffff for lanes "
        r"that never come \(0xffffff00\): thread \(8, 0, 0\) waits in __syncthreads of line 1"
    ),
    "y[0] = __shfl_sync(~0u, 1, 2, 7);": r"a shuffle of width 7: it must be a power of two of at most 32",
}


@every_order
@pytest.mark.parametrize("body", WARP_ERRORS)
def test_misused_warp_operations(name, body):
    y = np.zeros(32, np.int32)
    with order(name):
        error = error_of(f'extern "C" __global__ void k(int *y) {{ {body} }}', y)
    assert re.search(WARP_ERRORS[body], str(error)), error


def test_shuffle_from_a_lane_behind_the_end_of_the_block():
    source = 'extern "C" __global__ void k(int *y) { y[threadIdx.x] = __shfl_down_sync(~0u, 1, 16); }'
    assert "thread (32, 0, 0), line 1: __shfl_down_sync reads lane 16, which is behind the end of the block" in str(
        error_of(source, np.zeros(48, np.int32), block=48)
    )


def test_ended_lanes_do_not_keep_others_waiting():
    source = """
    extern "C" __global__ void k(int *y)
    {
        if (threadIdx.x % 2)
            return;
        __syncwarp();
        y[threadIdx.x] = __all_sync(~0u, 1);
    }
    """
    for name in ORDERS:
        y = np.zeros(32, np.int32)
        with order(name):
            run(source, y)
        assert y.tolist() == [1, 0] * 16


@every_order
def test_access_behind_an_array_is_found(name):
    source = """extern "C" __global__ void k(float *y, const float *x)
    {
        const int i = blockIdx.x * 32 + threadIdx.x;
        y[i] =
            x[i];
    }
    """
    with order(name):
        read = error_of(source, guarded(512), guarded(396), grid=4)
        write = error_of(source, guarded(396), guarded(512), grid=4)
    assert (read.code, write.code) == (719, 719)
    if name == "forward":
        assert re.match(r"k: block \(3, 0, 0\), thread \(3, 0, 0\): read of address 0x\w+, outside every array", str(read))
        assert re.match(r"k: block \(3, 0, 0\), thread \(3, 0, 0\): write to address 0x\w+, outside every array", str(write))
    assert "(kernel.cu:5)" in str(read) and "(kernel.cu:4)" in str(write)


def test_access_before_the_first_page_of_an_array_is_found():
    x = guarded(5000)
    source = 'extern "C" __global__ void k(char *x, long long i) { x[i] = 1; }'
    run(source, x, 4999, block=1)
    assert x[4999] == 1
    assert "outside every array" in str(error_of(source, x, -5000, block=1))


def test_guarded_arrays_start_aligned_and_end_at_the_page():
    assert guarded(0).shape == (0,)
    for nbytes in (1, 60, 4096, 10_000):
        exact, aligned = guarded(nbytes), guarded(nbytes, alignment=64)
        assert (exact.ctypes.data + nbytes) % 4096 == 0
        assert aligned.ctypes.data % 64 == 0 and -(aligned.ctypes.data + nbytes) % 4096 < 64
        assert not exact.any() and not aligned.any()
    np.testing.assert_array_equal(guarded_copy(np.arange(6.0).reshape(2, 3)), np.arange(6.0).reshape(2, 3))


SANITIZED = {
    "__shared__ int values[8]; values[threadIdx.x] = 1; y[0] = values[0];": r"thread \(8, 0, 0\), line 1: index 8 is outside",
    "*(float4 *)(y + 1) = make_float4(1, 2, 3, 4);": r"thread \(0, 0, 0\), line 1: address 0x\w+4 is not aligned as its type needs",
    "y[0] = 7 / y[1];": r"thread \(0, 0, 0\), line 1: integer division by zero",
    "y[0] = 1 << (y[1] + 32);": r"thread \(0, 0, 0\), line 1: shift by a negative number of bits, or by all of them",
    "int big[1 << 15]; for (int i = 0; i < 1 << 15; ++i) ((volatile int *)big)[i] = 1;": r"the stack of a thread, 64 KiB, is full",
    "if (threadIdx.x == 3) __trap();": r"thread \(3, 0, 0\), line 1: __trap\(\)$",
}


@pytest.mark.parametrize("body", SANITIZED)
def test_undefined_behaviour_is_found(body):
    y = guarded(32, alignment=16).view(np.int32)
    error = error_of(f'extern "C" __global__ void k(int *y) {{ {body} }}', y)
    assert error.code == 719
    assert re.search(SANITIZED[body], str(error)), error


@every_order
def test_loops_without_an_end_are_ended(name):
    source = """
    extern "C" __global__ void k(volatile int *y)
    {
        if (threadIdx.x == 31)
            while (!*y)
                ;
        __syncthreads();
        if (threadIdx.x == 30)
            *y = 1;
    }
    """
    with order(name), emulator.time_limit(0.05):
        error = error_of(source, np.zeros(1, np.int32))
    assert error.code == 719
    assert "k: block (0, 0, 0), thread (31, 0, 0): still runs after 0.05 s: does a loop never end?" in str(error)
    run(source, np.ones(1, np.int32))


def test_modules_work_on_after_errors():
    source = """
    extern "C" __global__ void k(int *y, const int *x)
    {
        if (x[threadIdx.x / 4] < 0)
            __trap();
        if (x[threadIdx.x / 4] < 2)
            __syncthreads();
        y[threadIdx.x] = x[threadIdx.x / 4];
    }
    """
    right, y = np.ones(24, np.int32), np.zeros(96, np.int32)
    mixed, negative = right + np.arange(24, dtype=np.int32), right - 2
    for _ in range(3):
        y[:] = 0
        assert "__trap()" in str(error_of(source, y, negative, block=96))
        assert "divergent barrier" in str(error_of(source, y, mixed, block=96))
        assert "read of address 0x0, outside every array" in str(error_of(source, y, ctypes.c_void_p(0), block=96))
        run(source, y, right, block=96)
        assert y.tolist() == [1] * 96
        assert last_error() == ""


# --- launching --------------------------------------------------------------------------------------------------------------------

NOTHING = """
extern "C" __global__ void k() {}
extern "C" __global__ void __launch_bounds__(128) small() {}
extern "C" __global__ void last(int *y) { extern __shared__ char values[]; values[y[0]] = 1; }
"""


@pytest.mark.parametrize(
    "how, words",
    [
        ({"block": 1025}, r"block \(1025, 1, 1\): each size is at least 1, and at most 1024, 1024 and 64; .* at most 1024 threads"),
        ({"block": (32, 33)}, r"at most 1024 threads"),
        ({"block": (1, 1, 65)}, r"block \(1, 1, 65\)"),
        ({"block": (32, 0)}, r"block \(32, 0, 1\)"),
        ({"block": 129, "kernel": "small"}, r"small: block \(129, 1, 1\): .* this kernel takes at most 128 threads"),
        ({"grid": (1, 65536)}, r"k: grid \(1, 65536, 1\): each size is at least 1, and at most 2147483647, 65535 and 65535"),
        ({"grid": (1, 1, 65536)}, r"grid \(1, 1, 65536\)"),
        ({"grid": 0}, r"grid \(0, 1, 1\)"),
        ({"shared": 48 * 1024 + 1}, r"k: 49153 bytes of dynamic shared memory: at most 49152 are allowed"),
    ],
)
def test_launches_that_cuda_refuses(how, words):
    error = error_of(NOTHING, **how)
    assert error.code == 1
    assert re.search(words, str(error)), error


def test_more_shared_memory_on_demand():
    function = emulator.compile(NOTHING).function("last")
    y = np.array([227 * 1024 - 1], np.int32)
    with pytest.raises(EmulatorError, match="232448 bytes of dynamic shared memory: at most 49152 are allowed"):
        launch(function, (1, 1, 1), (1, 1, 1), 227 * 1024, [as_ctypes(y)])
    with pytest.raises(EmulatorError, match="last: 232449 bytes of dynamic shared memory: a block has at most 232448"):
        emulator.set_max_shared(function, 227 * 1024 + 1)
    emulator.set_max_shared(function, 227 * 1024)
    launch(function, (1, 1, 1), (1, 1, 1), 227 * 1024, [as_ctypes(y)])
    assert last_error() == ""


def test_arguments_have_the_sizes_of_the_parameters():
    source = 'extern "C" __global__ void k(int *y, float x) {}'
    y = np.zeros(1, np.int32)
    assert "k: arguments of [8] bytes, but its parameters have [8, 4]" in str(error_of(source, y))
    assert "k: arguments of [8, 8] bytes, but its parameters have [8, 4]" in str(error_of(source, y, ctypes.c_double(1)))


def test_launch_through_the_signature_of_cu_launch_kernel():
    unsigned, pointer = ctypes.c_uint, ctypes.c_void_p
    cu_launch_kernel = ctypes.CFUNCTYPE(ctypes.c_int, pointer, *[unsigned] * 7, pointer, pointer, pointer)(
        emulator.launch_kernel_address()
    )
    source = """
    extern "C" __global__ void k(int *y, int v)
    {
        if (v < 0)
            __trap();
        atomicAdd(y + blockIdx.y, v + (int)threadIdx.z);
    }
    """
    function = emulator.compile(source).function("k")
    y = np.zeros(2, np.int32)

    def launched(value, block_z=3, function=function):
        arguments = [pointer(y.ctypes.data), ctypes.c_int(value)]
        pointers = (pointer * 2)(*map(ctypes.addressof, arguments))
        return cu_launch_kernel(function, 1, 2, 1, 4, 1, block_z, 0, None, pointers, None)

    assert launched(5) == 0
    assert y.tolist() == [72, 72]
    assert launched(5, block_z=100) == 1
    assert launched(-1) == 719
    assert last_error() == "k: block (0, 0, 0), thread (0, 0, 0), line 5: __trap()"
    assert launched(5, function=None) == 400
    assert launched(5) == 0 and last_error() == ""


def test_threads_of_python_launch_at_once():
    x = RNG.standard_normal((8, 500), np.float32)
    expected = softmax(x)

    def work(number):
        texts = set()
        for _ in range(10):
            y = np.zeros_like(x)
            run(SOFTMAX, y, x, 500, grid=8, block=256)
            np.testing.assert_allclose(y, expected, rtol=2e-6)
            if number % 2:
                source = 'extern "C" __global__ void k(long long t) { if (threadIdx.x == t) __trap(); }'
                texts.add(str(error_of(source, number)))
        return texts

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(work, range(6)))
    assert found == [{f"k: block (0, 0, 0), thread ({n}, 0, 0), line 1: __trap()"} if n % 2 else set() for n in range(6)]


def test_orders_hold_inside_their_block():
    source = 'extern "C" __global__ void k(int *y) { y[1 + atomicAdd(y, 1)] = blockIdx.x * 64 + threadIdx.x; }'

    def sequence():
        y = np.zeros(1 + 256, np.int32)
        run(source, y, grid=4, block=64)
        return y[1:].tolist()

    forward, blocks = list(range(256)), np.arange(256).reshape(4, 64)
    assert sequence() == forward
    with order("reverse"):
        assert sequence() == forward[::-1]
        with order("warps reverse", blocks="forward"):
            assert sequence() == blocks[:, ::-1].ravel().tolist()
        assert sequence() == forward[::-1]
    with order("forward", blocks="reverse"):
        assert sequence() == blocks[::-1].ravel().tolist()
    with order("random"):
        one = sequence()
        assert sequence() == one != forward and sorted(one) == forward
    with order("random", seed=1):
        assert sequence() != one
    assert sequence() == forward
    with pytest.raises(ValueError, match=r"order\('sideways', 'sideways'\): threads take one of \('forward', "), order("sideways"):
        pass


# --- compiling --------------------------------------------------------------------------------------------------------------------


def test_compile_error_shows_the_lines_it_names():
    source = 'extern "C" __global__ void k(float *y)\n{\n    y[0] = INFINITY;\n}\n'
    with pytest.raises(EmulatorError) as caught:
        emulator.compile(source)
    text = str(caught.value)
    assert re.search(r"kernel\.cu:3:\d+: error: .INFINITY. was not declared", text)
    assert "    2 | {\n    3 >     y[0] = INFINITY;\n    4 | }" in text


def test_what_cuda_lacks_does_not_compile():
    for body in ("atomicMax(y, 1.0f);", "int64_t i = 0;", "atomicAdd((short *)y, (short)1);", "threadIdx.x = 1;"):
        with pytest.raises(EmulatorError, match="g\\+\\+ refuses a kernel"):
            emulator.compile(f'extern "C" __global__ void k(float *y) {{ {body} }}')


def test_missing_compiler_is_named(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(RuntimeError, match=r"compiles them with g\+\+, which is not on PATH: install it"):
        emulator._build("kernel.cu", "int x;", [], [])


# --- other processes --------------------------------------------------------------------------------------------------------------


def in_subprocess(code, **environment):
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=root, env={**os.environ, "PYTHONPATH": str(root), **environment},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


PRELUDE = f"""
import ctypes
import numpy as np
from tests.cuda.emulator import *
def p(array):
    return ctypes.c_void_p(array.ctypes.data)
softmax = {SOFTMAX!r}
x = np.arange(2000, dtype=np.float32).reshape(4, 500) % 7
y = np.zeros_like(x)
def run(*block):
    launch(compile(softmax).function("k"), (4, 1, 1), block, 0, [p(y), p(x), ctypes.c_longlong(500)])
"""


def test_processes_build_the_same_kernel_at_once(tmp_path):
    code = PRELUDE + "run(256, 1, 1); print(float(y.sum()))"
    processes = [in_subprocess(code, TMPDIR=str(tmp_path)) for _ in range(2)]
    for process in processes:
        out, words = process.communicate(timeout=120)
        assert process.returncode == 0, words
        assert math.isclose(float(out), 4, rel_tol=1e-5)
    (folder,) = tmp_path.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert len(list(folder.iterdir())) == 2  # the machine and one kernel; nothing is left over


def test_folder_of_others_is_not_used(tmp_path):
    unsafe = tmp_path / f"dynagraph-emulator-{os.getuid()}"
    unsafe.mkdir()
    unsafe.chmod(0o777)
    process = in_subprocess(PRELUDE + "run(256, 1, 1)", TMPDIR=str(tmp_path))
    assert process.communicate(timeout=120)[1] == ""
    assert list(unsafe.iterdir()) == []


def test_fibers_of_other_machines():
    code = PRELUDE + """
for name in ORDERS:
    with order(name):
        run(256, 1, 1)
    assert np.allclose(y.sum(1), 1)
    try:
        run(250, 1, 1)
    except EmulatorError as error:
        print(error)
"""
    process = in_subprocess(code, EMULATOR_FIBERS="ucontext")
    out, words = process.communicate(timeout=120)
    assert (process.returncode, words) == (0, "")
    assert out.count("which is behind the end of the block") == len(ORDERS)


def test_faults_outside_of_kernels_end_the_process_as_before():
    process = in_subprocess(PRELUDE + "run(256, 1, 1); print('launched', flush=True); ctypes.string_at(8)")
    out, _ = process.communicate(timeout=120)
    assert (out, process.returncode) == ("launched\n", -signal.SIGSEGV)
