/* Micro-kernels over images that lie in memory with zeros around them (conv_padded.h): part of kernel_template.h. */

/* two halves of a vector */
static inline V NAME(joined)(const T *low, const T *high)
{
#ifdef DG_HAS_SQUARES
    typedef T H __attribute__((vector_size(BYTES / 2), aligned(sizeof(T)), may_alias));
    return __builtin_shufflevector(*(const H *)low, *(const H *)high, JOINED);
#else
    V both;
    memcpy(&both, low, BYTES / 2);
    memcpy((char *)&both + BYTES / 2, high, BYTES / 2);
    return both;
#endif
}

/* The right operand's panel is vectors, or halves of vectors, whose term p lies at parts[...] plus at[p]. */
#define STEP(i)                                                                                                       \
    {                                                                                                                 \
        const T left = a[i];                                                                                          \
        low##i += left * low;                                                                                         \
        high##i += left * high;                                                                                       \
    }
#define DEFINE_WINDOWS(name, ROWS_OF_TILE, LOW, HIGH)                                                                 \
    static void NAME(name)(int64_t k, const T *a, const T *const *parts, const int64_t *at, T *c, int64_t ldc, int accumulate) \
    {                                                                                                                 \
        ROWS_OF_TILE(DECLARE)                                                                                         \
        for (int64_t p = 0; p < k; ++p) {                                                                             \
            const V low = LOW, high = HIGH;                                                                           \
            ROWS_OF_TILE(STEP)                                                                                        \
            a += 0 ROWS_OF_TILE(ONE);                                                                                 \
        }                                                                                                             \
        ROWS_OF_TILE(PUT)                                                                                             \
    }
#define WHOLE(i) *(const V *)(parts[i] + at[p])
#define IN_HALVES(i) NAME(joined)(parts[2 * i] + at[p], parts[2 * i + 1] + at[p])
DEFINE_WINDOWS(windows, DG_ROWS, WHOLE(0), WHOLE(1))
DEFINE_WINDOWS(half_windows, DG_ROWS, IN_HALVES(0), IN_HALVES(1))
#ifdef MANY_ROWS
DEFINE_WINDOWS(windows_of_few, EIGHT, WHOLE(0), WHOLE(1))
DEFINE_WINDOWS(half_windows_of_few, EIGHT, IN_HALVES(0), IN_HALVES(1))
#define WINDOWS {{NAME(windows), NAME(windows_of_few)}, {NAME(half_windows), NAME(half_windows_of_few)}}, 0 EIGHT(ONE)
#else
#define WINDOWS {{NAME(windows), NAME(windows)}, {NAME(half_windows), NAME(half_windows)}}, NAME(MR)
#endif
#undef STEP
#undef DEFINE_WINDOWS
#undef WHOLE
#undef IN_HALVES

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
