"""Small native entries for tests, compiled once."""

from __future__ import annotations

import functools
from pathlib import Path

import dynagraph
from dynagraph._core._dispatch import Library
from dynagraph.backends.loader import load
from dynagraph.backends.toolchain import toolchain

SOURCE = r"""
#include <errno.h>
#include <time.h>

/* out = a + b + c; sizes[0] elements, or 16 where there is no symbol */
int add3(void *const *p, const int64_t *sizes, const dg_runtime *rt, dg_stop *stop)
{
    const double *a = p[0], *b = p[1], *c = p[2];
    double *out = p[3];
    for (int k = 0; k < 16; ++k)
        out[k] = a[k] + b[k] + c[k];
    return 0;
}

/* doubles its input of sizes[0] elements */
int twice(void *const *p, const int64_t *sizes, const dg_runtime *rt, dg_stop *stop)
{
    const double *a = p[0];
    double *out = p[1];
    for (int64_t k = 0; k < sizes[0]; ++k)
        out[k] = 2 * a[k];
    return 0;
}

/* negates its input of 4 elements where it lies; refuses it where the first is negative */
int negate_in_place(void *const *p, const int64_t *sizes, const dg_runtime *rt, dg_stop *stop)
{
    double *a = p[1];
    *(char *)p[2] = a[0] < 0;
    if (*(char *)p[2])
        return DG_BAILED_OUT;
    for (int k = 0; k < 4; ++k)
        a[k] = -a[k];
    return 0;
}

/* 8 bytes of input 0 to output 0 */
int copy8(void *const *p, const int64_t *sizes, const dg_runtime *rt, dg_stop *stop)
{
    *(int64_t *)p[1] = *(const int64_t *)p[0];
    return 0;
}

int copy4(void *const *p, const int64_t *sizes, const dg_runtime *rt, dg_stop *stop)
{
    *(int32_t *)p[1] = *(const int32_t *)p[0];
    return 0;
}

int copy1(void *const *p, const int64_t *sizes, const dg_runtime *rt, dg_stop *stop)
{
    *(char *)p[1] = *(const char *)p[0];
    return 0;
}

/* a complex scalar */
int imaginary(void *const *p, const int64_t *sizes, const dg_runtime *rt, dg_stop *stop)
{
    ((double *)p[0])[0] = 1.5;
    ((double *)p[0])[1] = -2.5;
    return 0;
}

int gives_nothing(void *const *p, const int64_t *sizes, const dg_runtime *rt, dg_stop *stop)
{
    ((double *)p[0])[0] = ((double *)p[0])[1] = 0;
    return 0;
}

/* makes an external call with its input of 4 elements, read backwards, for 4 of output 0 */
int calls_out(void *const *p, const int64_t *sizes, const dg_runtime *rt, dg_stop *stop)
{
    const int64_t shape[] = {4}, backwards[] = {-8}, forwards[] = {8};
    const dg_array operand = {(double *)p[0] + 3, shape, backwards, 1, 12}, result = {p[1], shape, forwards, 1, 12};
    return rt->external_call(p[3], 7, sizes, 1, &operand, 1, &result);
}

int nothing(void *const *p, const int64_t *sizes, const dg_runtime *rt, dg_stop *stop) { return 0; }
int fails(void *const *p, const int64_t *sizes, const dg_runtime *rt, dg_stop *stop) { return ENOMEM; }

/* fills the workspace (last buffer, 1 MiB) and gives its sum */
int uses_workspace(void *const *p, const int64_t *sizes, const dg_runtime *rt, dg_stop *stop)
{
    unsigned char *w = p[1];
    int64_t sum = 0;
    for (int k = 0; k < 1 << 20; ++k)
        w[k] = (unsigned char)k;
    for (int k = 0; k < 1 << 20; ++k)
        sum += w[k];
    *(int64_t *)p[0] = (uintptr_t)w % 64 ? -1 : sum;
    return 0;
}

/* p[1]: 1000000 ints, how often each index was run; p[2]: 64 ints, whether a thread number was seen */
static void mark(void *const *p, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    int32_t *times = p[0], *threads = p[1];
    threads[thread] = 1;
    if (lo % 64)
        threads[63] = 1;
    for (int64_t k = lo; k < hi; ++k)
        ++times[k];
}

int in_parallel(void *const *p, const int64_t *sizes, const dg_runtime *rt, dg_stop *stop)
{
    for (int k = 0; k < 64; ++k)
        ((int32_t *)p[1])[k] = 0;
    for (int k = 0; k < 1000000; ++k)
        ((int32_t *)p[0])[k] = 0;
    for (int repeat = 0; repeat < 10; ++repeat)
        rt->parallel(mark, p, sizes, 1000000, 64, 1000000, stop);
    rt->parallel(mark, p, sizes, 0, 64, 0, stop);
    return rt->version != DG_RUNTIME_VERSION;
}

/* who did how many iterations; whoever takes part waits until as many threads do as are to meet, for ten seconds at most */
static void meet(void *const *p, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    int32_t *done = p[2], wanted = *(int32_t *)p[0];
    __atomic_fetch_add(&done[thread], (int32_t)(hi - lo), __ATOMIC_SEQ_CST);
    for (int turn = 0; turn < 10000; ++turn) {
        int present = 0;
        for (int k = 0; k < 64; ++k)
            present += __atomic_load_n(&done[k], __ATOMIC_SEQ_CST) > 0;
        if (present >= wanted)
            break;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    if (thread == *(int32_t *)p[1])
        nanosleep(&(struct timespec){0, 300000000}, NULL);
}

/* inputs: how many threads are to meet, and which of them is slow */
int meeting(void *const *p, const int64_t *sizes, const dg_runtime *rt, dg_stop *stop)
{
    for (int k = 0; k < 64; ++k)
        ((int32_t *)p[2])[k] = 0;
    rt->parallel(meet, p, sizes, 1000000, 64, 1000000, stop);
    return 0;
}

/* counts its runs in the first number of input 0, as nothing that may stop does; gives input 0's second, after a second at most */
int waits(void *const *p, const int64_t *sizes, const dg_runtime *rt, dg_stop *stop)
{
    double *a = p[0];
    a[0] += 1;
    for (int turn = 0; turn < 1000 && a[2] != 0; ++turn) {
        if (dg_stops(stop))
            return DG_STOPPED;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    *(double *)p[1] = a[1];
    return 0;
}

/* sleeps 50 ms, then sums 16 doubles of input 0 */
int slow_sum(void *const *p, const int64_t *sizes, const dg_runtime *rt, dg_stop *stop)
{
    nanosleep(&(struct timespec){0, 50000000}, NULL);
    double sum = 0;
    for (int k = 0; k < 16; ++k)
        sum += ((const double *)p[0])[k];
    *(double *)p[1] = sum;
    return 0;
}
"""


@functools.cache
def library() -> Library:
    header = (Path(dynagraph.__file__).parent / "_core" / "runtime.h").read_text()
    return load(toolchain().compile(header + SOURCE))


def address(name: str) -> int:
    return library().address(name)
