/* Normalization, and its gradient, of arrays in C order.

   x is (batch, groups, inner, size): channel `group * inner + i`, of which there is a weight and a bias.  Statistics are of each
   group of each element of the batch, or, `across`, of each channel over the batch (inner is 1 then).  `last`: the channels are
   the last axis in memory, (batch, size, groups); only across.

   Bits: sums are NumPy's, as if `x` were in C order as (batch, groups, inner, size): pairwise over what lies side by side, by
   eight partial sums for up to 128 elements (the tree of NumPy's pairwise_sum), and one after the other over the batch, from 0 on.
   All else is one rounding for each operation, without contraction.  So a result is what the same formula gives in NumPy's operations, for
   any number of threads and any instruction set. */
#ifndef DG_NORM_H
#define DG_NORM_H
#include "../products/micro.h"

typedef struct dg_norm {
    const dg_runtime *rt;
    dg_stop *stop;
    int is_double, across, last;
    int given;   /* the statistics are operands, and no gradient goes to them */
    int by_root; /* the means are 0: there are none, and `variance` has mean squares */
    int64_t batch, groups, inner, size;
    int64_t first, end; /* of rows, where some are looked at; else 0 */
    double eps;
    const void *x, *weight, *bias, *g; /* weight and bias may be null */
    void *mean, *variance;             /* of each statistic */
    void *out, *by_x, *by_weight, *by_bias; /* null: not asked for */
    void *roots;                       /* room for a number of each statistic, and for all elements where there is one channel */
} dg_norm;

/* what there is for an instruction set, for float and double */
typedef struct dg_norm_code {
    void (*forward[2])(const dg_norm *n);
    void (*backward[2])(const dg_norm *n);
} dg_norm_code;

static inline int64_t dg_norm_channels(const dg_norm *n) { return n->groups * n->inner; }
static inline int64_t dg_norm_statistics(const dg_norm *n) { return n->across ? n->groups : n->batch * n->groups; }
static inline int64_t dg_norm_elements(const dg_norm *n) { return n->batch * n->groups * n->inner * n->size; }

#endif
