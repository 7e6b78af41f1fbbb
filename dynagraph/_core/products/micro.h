/* Products of matrices on the thread pool: c[batch][i][j] = sum over p of a[batch][i][p] * b[batch][p][j].

   How to compute one: fill a `dg_product_f32` (or _f64; zero what is not used) and call `dg_multiply_f32`.

   - An operand is anything that a *packing callback* can read: `dg_pack_matrix_f32` with a `dg_matrix` reads matrices with any
     strides, of the dtype itself or of float16 and bfloat16, which are converted.  A convolution passes a callback of its own,
     which gathers windows.
   - A *finishing callback* is called for each rectangle of the result once its sums are complete, in the thread that computed it:
     for a bias, an activation, a sum with another array, a cast.  It may change the rectangle in place, or, where the product has
     no result array (`c` is null), store it elsewhere.
   - The call runs on the thread pool in parts that threads claim, so that a thread that the system does not run just now delays
     the call by one part at most.  Callbacks run in several threads at once, without the GIL.  If they multiply in turn, that is
     right, but serial.

   Bits: an element of the result is the sum of blocks of DG_KC terms (the last one may be shorter), from the first to the last.
   A block's terms are added one by one, in order, with fused multiply-add where the instruction set has it, beginning from +0.
   So the bits depend on the operands' values and on k alone: neither on m and n, nor on the place in the matrix, the strides, the
   batch or the number of threads.

   Panels: `micro` multiplies a packed panel of a, [k][MR], by one of b, [k][NR].  Callers that need no more than this (attention)
   may use `dg_kernel_of_f32()->micro` and the packing functions directly. */
#ifndef DG_MICRO_H
#define DG_MICRO_H
#include <stddef.h>
#include <stdint.h>

#include "../runtime.h"

enum {
    DG_KC = 256,       /* terms of a block: what is added up before it is added to the result */
    DG_MAX_MR = 16,    /* of all kernels */
    DG_MAX_NR = 64,
    DG_STRIPS = 4,
    DG_FEW_ROWS = 8,
    DG_TURNED = 4,     /* groups of turned columns */
    DG_BATCH_AXES = 8, /* leading axes of a dg_matrix */
};

/* dtypes of a dg_matrix in memory */
typedef enum { DG_F32, DG_F64, DG_F16, DG_BF16 } dg_element;

/* Matrices in memory, as one operand of a product: elements (i, p) of the left operand or (j, p) of the right one, where p is the
   index that is summed over, lie `outer * i + inner * p` elements after `data`.  So for row-major a[m][k] outer is the row stride
   and inner 1; for row-major b[k][n] outer is 1 and inner the row stride.  Batch number x is unravelled over `shape`. */
typedef struct dg_matrix {
    const void *data;
    dg_element element;
    int32_t axes; /* of the batch; 0: the same matrix for all */
    int64_t outer, inner;                                /* in elements */
    int64_t shape[DG_BATCH_AXES], strides[DG_BATCH_AXES]; /* likewise; stride 0: broadcast */
} dg_matrix;

/* of one batch element's matrix, in elements */
int64_t dg_matrix_offset(const dg_matrix *matrix, int64_t batch);

/* terms of an operand that are neighbours */
typedef struct dg_stretch {
    int64_t at, length;
} dg_stretch;

/* Writes packed panels, one behind the other: to[i / width * k * width + p * width + i % width] = operand(first + i, start + p) for
   0 <= p < k and 0 <= i < count, and 0 for further i of the last panel.  i numbers rows of the left operand, or columns of the right
   one.  count >= 1.  `to` is aligned to an element's size. */
#define DG_DECLARE_PRODUCT(suffix, T)                                                                                 \
    typedef void (*dg_pack_##suffix)(const void *operand, int64_t batch, int64_t first, int64_t count, int64_t start, int64_t k, \
                                     int64_t width, T *to);                                                           \
    /* the operand is a `const dg_matrix *` */                                                                        \
    void dg_pack_matrix_##suffix(const void *operand, int64_t batch, int64_t first, int64_t count, int64_t start, int64_t k, \
                                 int64_t width, T *to);                                                               \
    /* A complete tile of the result, of `rows` x `columns` elements, whose first is (row, column): tile[i * ld + j]. */ \
    typedef void (*dg_finish_##suffix)(const void *context, int64_t batch, int64_t row, int64_t column, int64_t rows, \
                                       int64_t columns, T *tile, int64_t ld);                                         \
    typedef struct dg_kernel_##suffix {                                                                               \
        const char *isa;                                                                                              \
        int32_t mr, nr;                                                                                               \
        /* c[i * ldc + j] = (accumulate ? c[i * ldc + j] : 0) + sum over p of a[p * mr + i] * b[p * nr + j], of a whole tile; */ \
        /* panels are aligned to the size of an element.  next: what is read soon, of which it fetches 16 bytes for each term */ \
        void (*micro)(int64_t k, const T *a, const T *b, T *c, int64_t ldc, int accumulate, const T *next);           \
        /* the same of a panel of b that lies at b[p * b_inner + j], which it also packs: `to` is written */            \
        void (*packing)(int64_t k, const T *a, const T *b, int64_t b_inner, T *to, T *c, int64_t ldc, int accumulate); \
        /* the same where panels are not packed: of rows <= mr, a[i * a_outer + p * a_inner], and of b[p * b_inner + j] */ \
        void (*direct)(int64_t rows, int64_t k, const T *a, int64_t a_outer, int64_t a_inner, const T *b, int64_t b_inner, T *c, \
                       int64_t ldc, int accumulate);                                                                  \
        /* the same of half as many columns */                                                                         \
        void (*narrow)(int64_t rows, int64_t k, const T *a, int64_t a_outer, int64_t a_inner, const T *b, int64_t b_inner, T *c, \
                       int64_t ldc, int accumulate);                                                                  \
        /* direct and narrow of mr rows that are contiguous along p and are read once: the rows that lie `ahead` elements \
           behind them are fetched */                                                                                 \
        void (*streamed[2])(int64_t k, const T *a, int64_t a_outer, const T *b, int64_t b_inner, T *c, int64_t ldc,    \
                            int accumulate, int64_t ahead);                                                           \
        /* one row of DG_STRIPS panels of b that lie `strip` elements apart: c[s * nr + j] */                         \
        void (*one_row)(int64_t k, const T *a, int64_t a_inner, const T *b, int64_t b_inner, int64_t strip, T *c,     \
                        int accumulate);                                                                              \
        /* rows <= 3 of two panels of b, likewise */                                                                    \
        void (*three_wide)(int64_t rows, int64_t k, const T *a, int64_t a_outer, int64_t a_inner, const T *b, int64_t b_inner, \
                           int64_t strip, T *c, int64_t ldc, int accumulate);                                         \
        /* rows <= DG_FEW_ROWS of any number of columns that are not packed, b[p * b_inner + j]; k <= DG_KC */          \
        void (*few)(int64_t rows, int64_t k, const T *a, int64_t a_outer, int64_t a_inner, const T *b, int64_t b_inner, \
                    int64_t columns, T *c, int64_t ldc, int accumulate);                                              \
        /* one row of four groups of `turned_columns` columns that are contiguous along p, or null: column i of group g is \
           b[g % 2 * b_group[0] + g / 2 * b_group[1] + i * b_outer + p], and its row a[p * a_inner + likewise a_group's].  \
           Groups are other columns, or other terms.  next: the b of a later call, to be fetched */                          \
        void (*turned)(int64_t k, const T *a, int64_t a_inner, const int64_t *a_group, const T *b, int64_t b_outer,   \
                       const int64_t *b_group, const T *next, T *sums);                                               \
        int64_t turned_columns;                                                                                       \
        /* micro, of a right operand whose columns are groups of neighbours: b[p] is parts[0][at[p] + j], then parts[1][at[p] + j]... \
           windows[0]: of two groups, windows[1]: of four; [1]: with `few_rows` in place of mr */                       \
        void (*windows[2][2])(int64_t k, const T *a, const T *const *parts, const int64_t *at, T *c, int64_t ldc,      \
                              int accumulate);                                                                        \
        int64_t few_rows;                                                                                             \
        /* micro, of a left operand's rows <= mr at a[place[i] + ...], whose terms are n stretches; c has room for mr */ \
        void (*stretches)(int64_t rows, int64_t n, const dg_stretch *stretches, const T *a, const int64_t *place, const T *b, \
                          T *c, int64_t ldc, int accumulate);                                                         \
    } dg_kernel_##suffix;                                                                                             \
    const dg_kernel_##suffix *dg_kernel_of_##suffix(void); /* the best one for this processor */                      \
    typedef struct dg_product_##suffix {                                                                              \
        int64_t batches, m, n, k;                                                                                     \
        dg_pack_##suffix pack_a;                                                                                      \
        const void *a; /* what pack_a is given */                                                                     \
        dg_pack_##suffix pack_b;                                                                                      \
        const void *b;                                                                                                \
        T *c; /* c[batch * c_batch + i * ldc + j]; null: the tiles go to `finish` only.  No operand's memory. */      \
        int64_t ldc, c_batch;                                                                                         \
        dg_finish_##suffix finish; /* or null */                                                                      \
        const void *context;       /* what `finish` is given */                                                       \
        const dg_kernel_##suffix *kernel; /* null: the best one */                                                    \
    } dg_product_##suffix;                                                                                            \
    /* 0; DG_NO_MEMORY; DG_STOPPED because of `stop`, with a result that is not complete */                           \
    int dg_multiply_##suffix(const dg_runtime *rt, const dg_product_##suffix *product, dg_stop *stop);

/* What an operation runs under whose memory is made for the number of threads: set_threads may give its regions fewer, but no more.
   It ends by saying to `outer` what `dg_end_operation` gives. */
static inline dg_stop dg_begin_operation(const dg_runtime *rt, const dg_stop *outer)
{
    return (dg_stop){.signals = outer->signals, .threads = __atomic_load_n(&rt->n_threads, __ATOMIC_RELAXED)};
}

/* the status of an operation: 0, or what went wrong */
static inline int dg_end_operation(const dg_stop *own, dg_stop *outer, int status)
{
    if (own->stopped)
        __atomic_store_n(&outer->stopped, 1, __ATOMIC_RELAXED);
    return status;
}

/* runs [0, n), of so many nanoseconds each, on threads if that is worth it */
void dg_share(const dg_runtime *rt, dg_stop *stop, dg_range kernel, void *const *buffers, int64_t n, double nanoseconds);

enum { DG_NO_MEMORY = 12 };
DG_DECLARE_PRODUCT(f32, float)
DG_DECLARE_PRODUCT(f64, double)

/* all kernels that this processor can run, from the best to the baseline; ends with one whose isa is null */
const dg_kernel_f32 *const *dg_kernels_f32(void);
const dg_kernel_f64 *const *dg_kernels_f64(void);

static inline float dg_of_bfloat16(uint16_t bits)
{
    union { uint32_t bits; float value; } to = {(uint32_t)bits << 16};
    return to.value;
}
float dg_of_float16(uint16_t bits);
/* to the nearest, ties to even */
uint16_t dg_to_float16(float value);
uint16_t dg_to_bfloat16(float value);

#endif
