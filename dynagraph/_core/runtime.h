/* What generated code and the dispatcher agree on.  The text of this file stands at the head of every generated file. */
#ifndef DG_RUNTIME_H
#define DG_RUNTIME_H
#include <stddef.h>
#include <stdint.h>

#define DG_RUNTIME_VERSION 1

/* iterations lo..hi of a kernel; `thread` is below n_threads */
typedef void (*dg_range)(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread);

typedef struct dg_runtime {
    int32_t version;
    int32_t n_threads;
    /* runs [0, n) in ranges that start at multiples of grain; returns when all are done */
    void (*parallel)(dg_range kernel, void *const *buffers, const int64_t *sizes, int64_t n, int64_t grain);
    /* CBLAS routines, null where there is none; ilp64: their integers have 64 bits */
    void *sgemm, *dgemm, *sgemv, *dgemv;
    int32_t ilp64;
} dg_runtime;

/* an entry point: inputs, outputs and the workspace in `buffers`; 0, DG_REFUSED where a check failed (and no input was written
   to), or another number where memory ran out */
enum { DG_REFUSED = -1 };
typedef int (*dg_entry_point)(void *const *buffers, const int64_t *sizes, const dg_runtime *rt);

#endif
