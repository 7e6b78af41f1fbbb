/* Packing a panel of a matrix in memory, of one dtype.  Included with T, SUFFIX, and the squares that there are: SMALL and LARGE
   elements to a side, functions SMALL_SQUARE and LARGE_SQUARE. */
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(what) JOIN(what, SUFFIX)

/* `count` rows, contiguous along p */
static inline void NAME(transpose_plainly)(const T *from, int64_t outer, int64_t count, int64_t k, int64_t width, T *to)
{
    for (int64_t p = 0; p < k; ++p)
        for (int64_t i = 0; i < count; ++i)
            to[p * width + i] = from[i * outer + p];
}

#ifdef DG_HAS_SQUARES
/* ... a whole panel */
static void NAME(transpose_small)(const T *from, int64_t outer, int64_t k, int64_t width, T *to)
{
    int64_t p = 0;
    for (; p + SMALL <= k; p += SMALL)
        for (int64_t i = 0; i < width; i += SMALL) {
            const int64_t first = i + SMALL <= width ? i : width - SMALL; /* some of the last rows again */
            SMALL_SQUARE(from + first * outer + p, outer, width, to + p * width + first);
        }
    NAME(transpose_plainly)(from + p, outer, width, k - p, width, to + p * width);
}

#if defined(__x86_64__)
/* Whole cache lines of the rows of one square after those of the other: more rows that lie a power of two apart would drive one
   another out of the first cache. */
DG_AVX2 static void NAME(transpose_large)(const T *from, int64_t outer, int64_t k, int64_t width, T *to)
{
    enum { LINE = 64 / sizeof(T) };
    const int64_t whole = k / LARGE * LARGE;
    for (int64_t line = 0; line < whole; line += LINE) {
        for (int64_t i = 0; i < width; i += LARGE) {
            const int64_t first = i + LARGE <= width ? i : width - LARGE;
            for (int64_t p = line; p < line + LINE && p < whole; p += LARGE)
                LARGE_SQUARE(from + first * outer + p, outer, width, to + p * width + first);
        }
    }
    NAME(transpose_plainly)(from + whole, outer, width, k - whole, width, to + whole * width);
}

/* ... that is narrower than a square, by squares with rows of the next panel: what they write behind a column's end is written
   over */
DG_AVX2 static void NAME(transpose_narrow)(const T *from, int64_t outer, int64_t k, int64_t width, T *to)
{
    int64_t p = 0;
    for (; p + LARGE <= k; p += LARGE)
        LARGE_SQUARE(from + p, outer, width, to + p * width);
    NAME(transpose_plainly)(from + p, outer, width, k - p, width, to + p * width);
}
#endif
#endif

/* after: rows that lie behind these, and are packed behind them later on */
static void NAME(transpose)(const T *from, int64_t outer, int64_t count, int64_t after, int64_t k, int64_t width, T *to)
{
#ifdef DG_HAS_SQUARES
#if defined(__x86_64__)
    if (count == width && width >= LARGE && __builtin_cpu_supports("avx2")) {
        NAME(transpose_large)(from, outer, k, width, to);
        return;
    }
    if (count == width && width + after >= LARGE && 2 * width > LARGE && __builtin_cpu_supports("avx2")) {
        NAME(transpose_narrow)(from, outer, k, width, to);
        return;
    }
#endif
    if (count == width && width >= SMALL) {
        NAME(transpose_small)(from, outer, k, width, to);
        return;
    }
#endif
    NAME(transpose_plainly)(from, outer, count, k, width, to);
}

/* Rows that are neighbours in memory, of whole panels: few panels at a time, whole cache lines of each p, so that a line is read once
   however far the next p is.  The lines of later p are fetched ahead, which the processor does not do by itself for such steps. */
static inline __attribute__((always_inline)) void NAME(copy_panels)(const T *from, int64_t inner, int64_t count, int64_t k,
                                                                    int64_t width, T *to)
{
    enum { AHEAD = 12, LINE = 64 / sizeof(T) };
    for (int64_t first = 0; first < count; first += PANELS * width) {
        const int64_t panels = count - first < PANELS * width ? (count - first) / width : PANELS;
        for (int64_t p = 0; p < k; ++p) {
            const T *row = from + first + p * inner;
            for (int64_t at = 0; at < panels * width; at += LINE)
                __builtin_prefetch(row + AHEAD * inner + at);
            for (int64_t panel = 0; panel < panels; ++panel)
                memcpy(to + first * k + (panel * k + p) * width, row + panel * width, (size_t)width * sizeof(T));
        }
    }
}

static void NAME(pack_panel)(const T *from, int64_t outer, int64_t inner, int64_t count, int64_t after, int64_t k, int64_t width,
                             T *to)
{
    if (inner == 1) {
        NAME(transpose)(from, outer, count, after, k, width, to);
        return;
    }
    for (int64_t p = 0; p < k; ++p)
        for (int64_t i = 0; i < count; ++i)
            to[p * width + i] = from[p * inner + i * outer];
}

static void NAME(copy_plainly)(const T *from, int64_t inner, int64_t count, int64_t k, int64_t width, T *to)
{
    switch (width) {
#define CASE(n)                                                                                                       \
    case n:                                                                                                           \
        NAME(copy_panels)(from, inner, count, k, n, to);                                                              \
        return;
        CASE(4) CASE(6) CASE(8) CASE(12) CASE(16) CASE(32)
    default:
        NAME(copy_panels)(from, inner, count, k, width, to);
    }
}

#ifdef DG_AVX2
/* ... of panels that longer vectors copy */
DG_AVX2 static void NAME(copy_widely)(const T *from, int64_t inner, int64_t count, int64_t k, int64_t width, T *to)
{
    switch (width) {
        CASE(8) CASE(16) CASE(32)
    }
}
#endif
#undef CASE

static void NAME(pack_whole_panels)(const T *from, int64_t outer, int64_t inner, int64_t count, int64_t k, int64_t width, T *to)
{
    if (outer == 1) {
#ifdef DG_AVX2
        if ((width == 8 || width == 16 || width == 32) && __builtin_cpu_supports("avx2")) {
            NAME(copy_widely)(from, inner, count, k, width, to);
            return;
        }
#endif
        NAME(copy_plainly)(from, inner, count, k, width, to);
        return;
    }
    for (int64_t i = 0; i < count; i += width, to += width * k)
        NAME(pack_panel)(from + i * outer, outer, inner, width, count - i - width, k, width, to);
}

static void NAME(pack)(const T *from, int64_t outer, int64_t inner, int64_t count, int64_t k, int64_t width, T *to)
{
    const int64_t whole = count / width * width;
    NAME(pack_whole_panels)(from, outer, inner, whole, k, width, to);
    if (whole == count)
        return;
    memset(to + whole * k, 0, (size_t)(k * width) * sizeof(T));
    NAME(pack_panel)(from + whole * outer, outer, inner, count - whole, 0, k, width, to + whole * k);
}

#undef JOIN_
#undef JOIN
#undef NAME
#undef T
#undef SUFFIX
#undef SMALL
#undef LARGE
#undef SMALL_SQUARE
#undef LARGE_SQUARE
