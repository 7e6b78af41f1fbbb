/* What generated code and the dispatcher agree on.  What a generated file uses of it stands at its head. */
#ifndef DG_RUNTIME_H
#define DG_RUNTIME_H
#ifndef DG_TYPES /* generated files define what they use of these, which takes compilers less time */
#include <stddef.h>
#include <stdint.h>
#endif

#define DG_RUNTIME_VERSION 13

/* What ends a run: a signal that waits for its handler.  Who leaves work out because of it says so in `stopped`, and all that the
   run has computed is dropped: the flag itself may be cleared at any time. */
union dg_slot;

typedef struct dg_stop {
    const int32_t *signals; /* CPython's flag */
    int32_t stopped;
    struct dg_list *lists; /* of a native loop: all that it has, which are freed when it is left */
    int64_t list_bytes, most_list_bytes; /* that they take, and past which it is left for a while */
    int64_t calls_left;                  /* of Python functions, within one another, before RecursionError */
    const char *stack_end;               /* of the C stack: what may be used of it */
    int64_t turns_left;                  /* before other threads have theirs, where it holds the GIL */
    /* calls a Python function from a native loop, with what lies in the slots, where its result then lies: 0, DG_OTHER_TYPE or
       DG_RAISES, with an object in the first slot; takes the GIL for itself */
    int32_t (*call_out)(struct dg_stop *stop, int32_t number, union dg_slot *slots);
    int32_t alone; /* there are no other Python threads, which may be in code that writes to the same arrays */
    int32_t threads; /* that its regions have at most, whose memory was made for so many; 0: as many as there are then */
} dg_stop;

enum { DG_OTHER_TYPE = 1, DG_RAISES = 2 };

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

/* a value of a native loop's state; larger ones take several */
typedef union dg_slot {
    int64_t i;
    uint64_t u;
    double d;
    void *p;
    char bytes[8];
} dg_slot;

/* an array that turns of a loop touch: strides in bytes.  Of what is written, turn k touches the indices from first + step * k + low
   to ... + high of the axis. */
enum { DG_AXES = 8 };
typedef struct dg_touched {
    char *data;
    int64_t itemsize, ndim, axis, first, step, low, high, sizes[DG_AXES], strides[DG_AXES];
} dg_touched;

/* turns of a loop that may run at the same time: `code` does those from its first slot to its second, with what is given in the
   others; the third says whether they are the last ones.  It gives 0 where a turn gives up, 1 with results after the last ones. */
struct dg_runtime;
typedef struct dg_loop_turns {
    int32_t (*code)(dg_slot *state, const struct dg_runtime *rt, dg_stop *stop);
    int64_t n_slots;
    const dg_slot *given;
    int64_t n_given;
    dg_slot *results; /* how many turns are done, and what the code gave */
    int64_t n_results;
    const dg_touched *touched; /* first those that are written */
    int64_t n_written, n_touched, n;
    int32_t keeps;                /* turns may give up */
    int32_t look_ns, parallel_ns; /* that tell how long a turn takes; that turns have to take for more threads */
} dg_loop_turns;

/* A convolution, and its gradients by the images and by the filters: images (batch, groups * ins, *sizes), filters (groups * outs, ins,
   *kernel), results (batch, groups * outs, *places); of fewer than three dimensions the first sizes are 1.  All lie in C order. */
enum { DG_CONV, DG_CONV_INPUT, DG_CONV_WEIGHT, DG_CONV_AXES = 3 };
typedef struct dg_convolution {
    int32_t which, is_double;
    int64_t batch, groups, ins, outs; /* channels of a group */
    int64_t sizes[DG_CONV_AXES], kernel[DG_CONV_AXES], places[DG_CONV_AXES];
    int64_t stride[DG_CONV_AXES], dilation[DG_CONV_AXES], before[DG_CONV_AXES]; /* before: how many zeros stand before an image */
} dg_convolution;

/* Pools: windows of `batch` boxes of three sizes; of fewer dimensions the first sizes are 1.  All arrays lie in C order.
   DG_MAX_POOL gives the greatest elements of windows, and where in its box each stood (-1: nowhere, all is border); DG_PUT_PLACES
   adds up numbers (`counts` of them for each box) at such places; DG_MEANS gives sums of windows divided by `divisor`, or, if that is
   0, by how many elements they have, those of the border in front and of one as wide behind counted if `whole`; DG_MEANS_BACK is its
   transpose; the others have as many windows as `counts` says. */
enum { DG_MAX_POOL, DG_PUT_PLACES, DG_ADAPTIVE_MAXIMA, DG_ADAPTIVE_MEANS, DG_ADAPTIVE_MEANS_BACK, DG_MEANS, DG_MEANS_BACK };
typedef struct dg_pooling {
    int32_t which, is_double;
    int64_t batch, sizes[DG_CONV_AXES], counts[DG_CONV_AXES];
    int64_t kernel[DG_CONV_AXES], stride[DG_CONV_AXES], dilation[DG_CONV_AXES], before[DG_CONV_AXES];
    int64_t whole, divisor;
} dg_pooling;

/* what becomes of parts of an array (image, channel, place) once they are computed: of channels c...c_end of an image, places
   q...q_end; runs in the thread that computed them */
typedef struct dg_epilogue {
    void (*run)(const struct dg_epilogue *finish, int64_t image, int64_t c, int64_t c_end, int64_t q, int64_t q_end);
    void *const *buffers;
    const int64_t *sizes;
} dg_epilogue;

/* what earlier runs have shown: fewer turns than `least` are left to the loop itself, but for every so often */
typedef struct dg_worth {
    int64_t least, skipped, most_skipped;
} dg_worth;

/* c[x][i][j] = sum over p of a[x][i][p] * b[x][p][j], of float32 or float64; the axes of x are `shape`, and c lies in C order.  Strides
   in elements.  The sums' order: dynagraph/_core/products/micro.h. */
enum { DG_MATRIX_AXES = 8 };
typedef struct dg_matrices {
    const void *a, *b;
    void *c; /* of no operand */
    int64_t m, n, k, a_row, a_column, b_row, b_column;
    int32_t is_double, axes;
    int64_t shape[DG_MATRIX_AXES], a_strides[DG_MATRIX_AXES], b_strides[DG_MATRIX_AXES];
    const dg_epilogue *then; /* or null; images are matrices, channels rows, places columns */
} dg_matrices;

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
    /* calls a Python function of the program: 0, DG_BAILED_OUT where it failed, DG_RAISED; takes the GIL for itself. `program` is the last
       of the entry's buffers. */
    int (*external_call)(void *program, int32_t number, const int64_t *sizes, int32_t n_operands, const dg_array *operands,
                    int32_t n_results, const dg_array *results);
    /* the first turns of a loop, as many as can be done, on threads where that is worth it */
    void (*run_turns)(const struct dg_runtime *rt, dg_stop *stop, dg_worth *worth, const dg_loop_turns *loop);
    /* out = the convolution, or gradient, of a and b, plus a number for each channel (or null), and what `finish` (or null) then makes of
       it; 0, DG_STOPPED, or another number where memory ran out */
    int (*convolve)(const struct dg_runtime *rt, const dg_convolution *what, const void *a, const void *b, const void *bias, void *out,
                    const dg_epilogue *finish, dg_stop *stop);
    /* memory that was used before, without the page faults of fresh one; null where there is none */
    void *(*take)(size_t size);
    void (*give)(void *memory);
    /* products of matrices on threads: 0, DG_STOPPED because of `stop`, or another number where memory ran out */
    int (*multiply)(const struct dg_runtime *rt, const dg_matrices *what, dg_stop *stop);
    /* to = a pool of a, or of a and the places b; `where`: places; of maxima either
       is null where it is not wanted; as `convolve` gives */
    int (*pool)(const struct dg_runtime *rt, const dg_pooling *what, const void *a, const int64_t *b, void *to, int64_t *where,
                dg_stop *stop);
} dg_runtime;

/* an entry point: inputs, outputs, the workspace and what `external_call` is given in `buffers`; 0, DG_BAILED_OUT where a check or a call
   failed (and no input was written to), DG_RAISED with an exception set (likewise), DG_STOPPED because of `stop` (likewise), or
   another number where memory ran out */
enum { DG_BAILED_OUT = -1, DG_RAISED = -2, DG_STOPPED = -3 };
typedef int (*dg_entry_point)(void *const *buffers, const int64_t *sizes, const dg_runtime *rt, dg_stop *stop);

/* a Python list or deque in a native loop: items of `width` slots each, as parameters and boxes of theirs have them */
typedef struct dg_list {
    dg_slot *items;
    int64_t length, capacity, width;
    int64_t before; /* room for so many items lies before the first one */
    int64_t taken;  /* how many more were taken off the beginning than put there: item k was item k + taken */
    int64_t changed;
    void *object;     /* the Python object that it stands for; null: none yet */
    const void *kind; /* of one that was given: how its items are read and built */
    struct dg_list *next;
} dg_list;

/* of an array that a native loop makes, or is given by a call: how many variables hold it; the array, once that was built, which then
   has the data.  What has an object while the code runs is freed by the dispatcher, which has listed it. */
typedef struct dg_made {
    int64_t references, bytes;
    char *data;
    void *object;
    int32_t type, ndim;
    int64_t shape[DG_AXES];
    int32_t listed, fortran; /* the first axis is the one whose elements are neighbours */
    struct dg_made *next;
} dg_made;

/* a native loop: the number of the exit that it took, with its values in `state`; negative where memory ran out */
typedef int32_t (*dg_native_loop)(dg_slot *state, const dg_runtime *rt, dg_stop *stop);

#endif
