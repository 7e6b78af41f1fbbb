/* Micro-kernels over images that lie in memory with zeros around them (conv_padded.h): part of kernel_template.h. */

/* The right operand's panel is two halves of a vector each, whose term p lies at `low` and `high` plus at[p]. */
static void NAME(windows)(int64_t k, const T *a, const T *low_half, const T *high_half, const int64_t *at, T *c, int64_t ldc,
                          int accumulate)
{
    DG_ROWS(DECLARE)
#pragma GCC unroll 4
    for (int64_t p = 0; p < k; ++p) {
        const V low = *(const V *)(low_half + at[p]), high = *(const V *)(high_half + at[p]);
#define STEP(i)                                                                                                       \
    {                                                                                                                 \
        const T left = a[i];                                                                                          \
        low##i += left * low;                                                                                         \
        high##i += left * high;                                                                                       \
    }
        DG_ROWS(STEP)
#undef STEP
        a += NAME(MR);
    }
    DG_ROWS(PUT)
}

/* Term p of the left operand's row i lies at a[place[i] + ...], the terms in `n` stretches of neighbours. */
static inline __attribute__((always_inline)) void NAME(stretches_direct)(int64_t rows, int64_t n, const dg_stretch *stretches,
                                                                         const T *a, const int64_t *place, const T *b, T *c,
                                                                         int64_t ldc, int accumulate)
{
#define PLACE(i) const T *const row##i = a + place[i < rows ? i : rows - 1];
    DG_ROWS(PLACE)
#undef PLACE
    DG_ROWS(DECLARE)
    for (int64_t s = 0; s < n; ++s)
        for (int64_t p = stretches[s].at, end = p + stretches[s].length; p < end; ++p) {
            const V low = *(const V *)b, high = *(const V *)(b + LANES);
#define STEP(i)                                                                                                       \
    {                                                                                                                 \
        const T left = row##i[p];                                                                                     \
        low##i += left * low;                                                                                         \
        high##i += left * high;                                                                                       \
    }
            DG_ROWS(STEP)
#undef STEP
            b += NAME(NR);
        }
    DG_ROWS(PUT)
}

/* c has room for a whole tile */
static void NAME(stretches)(int64_t rows, int64_t n, const dg_stretch *stretches, const T *a, const int64_t *place, const T *b,
                            T *c, int64_t ldc, int accumulate)
{
    if (rows == NAME(MR))
        NAME(stretches_direct)(NAME(MR), n, stretches, a, place, b, c, ldc, accumulate);
    else
        NAME(stretches_direct)(rows, n, stretches, a, place, b, c, ldc, accumulate);
}
