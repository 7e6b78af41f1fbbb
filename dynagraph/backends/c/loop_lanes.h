/* Turns of a loop side by side: each statement is done for a number of them, in vectors.  Where the processor's are shorter there are
   none: the compiler would split them, at a loss. */

#if defined(__AVX__) && defined(__GNUC__)
#define DG_HAS_LANES 1
#else
#define DG_HAS_LANES 0
#endif

typedef double dg_lanes __attribute__((vector_size(32)));
typedef double dg_lanes_in_memory __attribute__((vector_size(32), aligned(8), may_alias));

#define DG_IN_ALL_LANES(x) ({ const double x_ = (x); (dg_lanes){x_, x_, x_, x_}; })

DG_INLINE dg_lanes dg_load_lanes(const char *p) { return *(const dg_lanes_in_memory *)p; }
DG_INLINE void dg_store_lanes(char *p, dg_lanes x) { *(dg_lanes_in_memory *)p = x; }

/* lanes that lie `step` bytes apart */
DG_INLINE dg_lanes dg_load_strided_lanes(const char *p, int64_t step)
{
    return (dg_lanes){*(const double *)p, *(const double *)(p + step), *(const double *)(p + 2 * step), *(const double *)(p + 3 * step)};
}

DG_INLINE void dg_store_strided_lanes(char *p, int64_t step, dg_lanes x)
{
    for (int k = 0; k < 4; k++)
        *(double *)(p + k * step) = x[k];
}

/* whether two arrays may share memory */
DG_INLINE int dg_overlap(
    const char *data, int64_t itemsize, int ndim, const int64_t *sizes, const int64_t *strides,
    const char *other, int64_t its_itemsize, int its_ndim, const int64_t *its_sizes, const int64_t *its_strides)
{
    const char *low = data, *high = data + itemsize;
    for (int k = 0; k < ndim; k++) {
        if (sizes[k] <= 0)
            return 0;
        *(strides[k] < 0 ? &low : &high) += (sizes[k] - 1) * strides[k];
    }
    return dg_meets(low, high - low, other, its_itemsize, its_ndim, its_sizes, its_strides);
}

/* whether elements of an array may share memory, as far as its strides show */
DG_INLINE int dg_folds(int64_t itemsize, int ndim, const int64_t *sizes, const int64_t *strides)
{
    for (int k = 0; k < ndim; k++) {
        const int64_t stride = strides[k] < 0 ? -strides[k] : strides[k];
        int64_t span = itemsize;
        for (int j = 0; j < ndim; j++) {
            const int64_t other = strides[j] < 0 ? -strides[j] : strides[j];
            span += j != k && sizes[j] > 1 && other <= stride ? (sizes[j] - 1) * other : 0;
        }
        if (sizes[k] > 1 && stride < span)
            return 1;
    }
    return 0;
}
