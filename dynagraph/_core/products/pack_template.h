/* Packing a panel of a matrix in memory, of one dtype.  Included with T, SUFFIX, and SQUARE: how many elements a 16-byte vector has. */
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(what) JOIN(what, SUFFIX)
#define V NAME(vector)

typedef T V __attribute__((vector_size(16), aligned(sizeof(T)), may_alias));

/* rows of the panel lie as they are in memory */
static inline __attribute__((always_inline)) void NAME(copy_rows)(const T *from, int64_t inner, int64_t k, int64_t width, T *to)
{
    for (int64_t p = 0; p < k; ++p, from += inner, to += width)
        memcpy(to, from, (size_t)width * sizeof(T));
}

/* SQUARE rows of the matrix, contiguous along p, become columns i .. i + SQUARE of the panel */
static inline void NAME(transpose_square)(const T *from, int64_t outer, int64_t width, T *to)
{
#if SQUARE == 4
    typedef int32_t order __attribute__((vector_size(16)));
    const V a = *(const V *)from, b = *(const V *)(from + outer), c = *(const V *)(from + 2 * outer),
            d = *(const V *)(from + 3 * outer);
#ifdef __clang__
#define SHUFFLE(x, y, ...) __builtin_shufflevector(x, y, __VA_ARGS__)
#else
#define SHUFFLE(x, y, ...) __builtin_shuffle(x, y, (order){__VA_ARGS__})
#endif
    const V ab = SHUFFLE(a, b, 0, 4, 1, 5), cd = SHUFFLE(c, d, 0, 4, 1, 5);
    const V ab2 = SHUFFLE(a, b, 2, 6, 3, 7), cd2 = SHUFFLE(c, d, 2, 6, 3, 7);
    *(V *)to = SHUFFLE(ab, cd, 0, 1, 4, 5);
    *(V *)(to + width) = SHUFFLE(ab, cd, 2, 3, 6, 7);
    *(V *)(to + 2 * width) = SHUFFLE(ab2, cd2, 0, 1, 4, 5);
    *(V *)(to + 3 * width) = SHUFFLE(ab2, cd2, 2, 3, 6, 7);
#undef SHUFFLE
    (void)sizeof(order);
#else
    for (int p = 0; p < SQUARE; ++p)
        for (int i = 0; i < SQUARE; ++i)
            to[p * width + i] = from[i * outer + p];
#endif
}

/* a whole panel of a matrix that is contiguous along p */
static void NAME(transpose_rows)(const T *from, int64_t outer, int64_t k, int64_t width, T *to)
{
    int64_t p = 0;
    for (; p + SQUARE <= k; p += SQUARE)
        for (int64_t i = 0;; i += SQUARE) {
            if (i + SQUARE > width) {
                if (i >= width)
                    break;
                i = width - SQUARE; /* some columns again */
            }
            NAME(transpose_square)(from + i * outer + p, outer, width, to + p * width + i);
        }
    for (; p < k; ++p)
        for (int64_t i = 0; i < width; ++i)
            to[p * width + i] = from[i * outer + p];
}

static void NAME(pack)(const T *from, int64_t outer, int64_t inner, int64_t count, int64_t k, int64_t width, T *to)
{
    if (count == width && outer == 1)
        switch (width) {
#define CASE(n)                                                                                                                   \
    case n:                                                                                                                       \
        NAME(copy_rows)(from, inner, k, n, to);                                                                                   \
        return;
            CASE(4) CASE(6) CASE(8) CASE(12) CASE(16) CASE(32)
#undef CASE
        default:
            NAME(copy_rows)(from, inner, k, width, to);
            return;
        }
    if (count == width && inner == 1 && width >= SQUARE) {
        NAME(transpose_rows)(from, outer, k, width, to);
        return;
    }
    if (outer == 1) {
        for (int64_t p = 0; p < k; ++p)
            for (int64_t i = 0; i < count; ++i)
                to[p * width + i] = from[p * inner + i];
        return;
    }
    for (int64_t i = 0; i < count; ++i)
        for (int64_t p = 0; p < k; ++p)
            to[p * width + i] = from[p * inner + i * outer];
}

#undef JOIN_
#undef JOIN
#undef NAME
#undef V
#undef T
#undef SUFFIX
#undef SQUARE
