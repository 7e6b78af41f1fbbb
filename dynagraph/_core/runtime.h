/* What generated code and the dispatcher agree on.  The text of this file stands at the head of every generated file. */
#ifndef DG_RUNTIME_H
#define DG_RUNTIME_H
#include <stddef.h>
#include <stdint.h>

#define DG_RUNTIME_VERSION 5

/* What ends a run: a signal that waits for its handler.  Who leaves work out because of it says so in `stopped`, and all that the
   run has computed is dropped: the flag itself may be cleared at any time. */
typedef struct dg_stop {
    const int32_t *signals; /* CPython's flag */
    int32_t stopped;
} dg_stop;

static inline int dg_stops(dg_stop *stop)
{
    if (__builtin_expect(!__atomic_load_n(stop->signals, __ATOMIC_RELAXED), 1))
        return 0;
    __atomic_store_n(&stop->stopped, 1, __ATOMIC_RELAXED);
    return 1;
}

/* iterations lo..hi of a kernel; `thread` is below n_threads */
typedef void (*dg_range)(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop);

/* an array of somebody's: strides in bytes, `type` is NumPy's number of the dtype */
typedef struct dg_array {
    void *data;
    const int64_t *shape, *strides;
    int32_t ndim, type;
} dg_array;

typedef struct dg_runtime {
    int32_t version;
    int32_t n_threads;
    /* runs [0, n) in ranges that start at multiples of grain, of about `part` iterations at most; returns when all are done, or left
       out because of `stop` */
    void (*parallel)(dg_range kernel, void *const *buffers, const int64_t *sizes, int64_t n, int64_t grain, int64_t part, dg_stop *stop);
    /* CBLAS routines, null where there is none; ilp64: their integers have 64 bits */
    void *sgemm, *dgemm, *cgemm, *zgemm, *sgemv, *dgemv, *cgemv, *zgemv, *sdot, *ddot, *cdotu_sub, *zdotu_sub, *ssyrk, *dsyrk, *csyrk,
        *zsyrk;
    int32_t ilp64;
    /* calls a Python function of the program: 0, DG_REFUSED where it failed, DG_RAISED; takes the GIL for itself. `program` is the last
       of the entry's buffers. */
    int (*call_out)(void *program, int32_t number, const int64_t *sizes, int32_t n_operands, const dg_array *operands,
                    int32_t n_results, const dg_array *results);
} dg_runtime;

/* an entry point: inputs, outputs, the workspace and what `call_out` is given in `buffers`; 0, DG_REFUSED where a check or a call
   failed (and no input was written to), DG_RAISED with an exception set (likewise), DG_STOPPED because of `stop` (likewise), or
   another number where memory ran out */
enum { DG_REFUSED = -1, DG_RAISED = -2, DG_STOPPED = -3 };
typedef int (*dg_entry_point)(void *const *buffers, const int64_t *sizes, const dg_runtime *rt, dg_stop *stop);

#endif
