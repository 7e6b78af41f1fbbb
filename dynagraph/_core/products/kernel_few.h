/* Few rows by a matrix that is not packed, whose rows are read from end to end: part of kernel_template.h.

   Sums of some columns stay in the first cache.  Of the matrix a few terms are read at a time, and the next ones are fetched. */

/* adds a few terms, whose left operands are left[i * STEP...] for row i, to sums[i * chunk + j] */
#define ROW_OF(q) const T *const row##q = b + q * b_inner;
#define FETCH_TWO(q)                                                                                                  \
    __builtin_prefetch(row##q + STEP * b_inner + j);                                                                  \
    if (BYTES > 32)                                                                                                   \
        __builtin_prefetch(row##q + STEP * b_inner + j + LANES);
#define LOAD_LOW(q) const V low##q = *(const V *)(row##q + j);
#define LOAD_TWO(q)                                                                                                   \
    LOAD_LOW(q)                                                                                                       \
    const V high##q = *(const V *)(row##q + j + LANES);
#define ADD_LOW(q) low += left[i * STEP + q] * low##q;
#define ADD_TWO(q)                                                                                                    \
    {                                                                                                                 \
        const T factor = left[i * STEP + q];                                                                          \
        low += factor * low##q;                                                                                       \
        high += factor * high##q;                                                                                     \
    }
#define ADD_ONE(q) *sum += left[i * STEP + q] * row##q[j];
#define DEFINE_FEW(name, TERMS_AT_A_TIME)                                                                             \
    static inline __attribute__((always_inline)) void NAME(name)(int64_t rows, const T *left, const T *b, int64_t b_inner, \
                                                                 int64_t n, T *sums, int64_t chunk)                   \
    {                                                                                                                 \
        enum { STEP = 0 TERMS_AT_A_TIME(ONE) };                                                                       \
        TERMS_AT_A_TIME(ROW_OF)                                                                                       \
        int64_t j = 0;                                                                                                \
        for (; j + 2 * LANES <= n; j += 2 * LANES) {                                                                  \
            TERMS_AT_A_TIME(LOAD_TWO)                                                                                 \
            TERMS_AT_A_TIME(FETCH_TWO)                                                                                \
            for (int64_t i = 0; i < rows; ++i) {                                                                      \
                V *const sum = (V *)(sums + i * chunk + j);                                                           \
                V low = sum[0], high = sum[1];                                                                        \
                TERMS_AT_A_TIME(ADD_TWO)                                                                              \
                sum[0] = low;                                                                                         \
                sum[1] = high;                                                                                        \
            }                                                                                                         \
        }                                                                                                             \
        if (j + LANES <= n) {                                                                                         \
            TERMS_AT_A_TIME(LOAD_LOW)                                                                                 \
            for (int64_t i = 0; i < rows; ++i) {                                                                      \
                V *const sum = (V *)(sums + i * chunk + j), low = *sum;                                               \
                TERMS_AT_A_TIME(ADD_LOW)                                                                              \
                *sum = low;                                                                                           \
            }                                                                                                         \
            j += LANES;                                                                                               \
        }                                                                                                             \
        for (; j < n; ++j)                                                                                            \
            for (int64_t i = 0; i < rows; ++i) {                                                                      \
                T *const sum = sums + i * chunk + j;                                                                  \
                TERMS_AT_A_TIME(ADD_ONE)                                                                              \
            }                                                                                                         \
    }
#define ALONE(X) X(0)
DEFINE_FEW(few_terms, FOUR)
DEFINE_FEW(one_term, ALONE)

static inline __attribute__((always_inline)) void NAME(few_rows)(int64_t rows, int64_t k, const T *a, int64_t outer,
                                                                 int64_t inner, const T *b, int64_t b_inner, int64_t columns,
                                                                 T *c, int64_t ldc, int accumulate)
{
    enum { STEP = 0 FOUR(ONE), ALL = 8192 / sizeof(T), MOST = 0 EIGHT(ONE) };
    T sums[ALL] __attribute__((aligned(64))), left[MOST * DG_KC];
    const int64_t chunk = ALL / rows / (2 * LANES) * (2 * LANES), whole = k / STEP * STEP;
    for (int64_t p = 0; p < whole; ++p)
        for (int64_t i = 0; i < rows; ++i)
            left[p / STEP * STEP * rows + i * STEP + p % STEP] = a[i * outer + p * inner];
    for (int64_t p = whole; p < k; ++p)
        for (int64_t i = 0; i < rows; ++i)
            left[p * rows + i] = a[i * outer + p * inner];
    for (int64_t first = 0; first < columns; first += chunk) {
        const int64_t n = columns - first < chunk ? columns - first : chunk;
        memset(sums, 0, (size_t)(rows * chunk) * sizeof(T));
        for (int64_t p = 0; p < whole; p += STEP)
            NAME(few_terms)(rows, left + p * rows, b + p * b_inner + first, b_inner, n, sums, chunk);
        for (int64_t p = whole; p < k; ++p)
            NAME(one_term)(rows, left + p * rows, b + p * b_inner + first, b_inner, n, sums, chunk);
        for (int64_t i = 0; i < rows; ++i) {
            T *const to = c + i * ldc + first, *const sum = sums + i * chunk;
            int64_t j = 0;
            for (; j + LANES <= n; j += LANES) {
                const V found = *(const V *)(sum + j);
                *(V *)(to + j) = accumulate ? (V)(*(const V *)(to + j) + found) : found;
            }
            for (; j < n; ++j)
                to[j] = accumulate ? to[j] + sum[j] : sum[j];
        }
    }
}

/* rows <= DG_FEW_ROWS; so many in each case that their loops are unrolled */
static void NAME(few)(int64_t rows, int64_t k, const T *a, int64_t outer, int64_t inner, const T *b, int64_t b_inner,
                      int64_t columns, T *c, int64_t ldc, int accumulate)
{
    switch (rows) {
#define CASE(i)                                                                                                       \
    case i + 1:                                                                                                       \
        NAME(few_rows)(i + 1, k, a, outer, inner, b, b_inner, columns, c, ldc, accumulate);                           \
        break;
        EIGHT(CASE)
#undef CASE
    }
}
#undef ROW_OF
#undef FETCH_TWO
#undef LOAD_LOW
#undef LOAD_TWO
#undef ADD_LOW
#undef ADD_TWO
#undef ADD_ONE
#undef DEFINE_FEW
#undef ALONE
