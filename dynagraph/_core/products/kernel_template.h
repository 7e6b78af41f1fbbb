/* The micro-kernels of one dtype for one instruction set.  Included with

     T, SUFFIX   the dtype
     ISA         the instruction set, a name
     BYTES       the size of a vector; a tile of the result is DG_ROWS rows of two vectors
     DG_ROWS(X)  X(0) X(1) ... for each row

   Sums are kept in variables of their own, not in an array: so each is a register with every compiler. */
#define JOIN_(a, b, c) a##_##b##_##c
#define JOIN(a, b, c) JOIN_(a, b, c)
#define NAME(what) JOIN(what, SUFFIX, ISA)
#define QUOTE_(x) #x
#define QUOTE(x) QUOTE_(x)
#define V NAME(vector)

typedef T V __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));
#define ONE(i) +1
enum { NAME(LANES) = BYTES / sizeof(T), NAME(NR) = 2 * NAME(LANES), NAME(MR) = 0 DG_ROWS(ONE) };
#define LANES NAME(LANES)

#define DECLARE(i) V low##i = {0}, high##i = {0};
#define PUT(i)                                                                                                                    \
    if (accumulate) {                                                                                                             \
        low##i = *(const V *)(c + i * ldc) + low##i;                                                                              \
        high##i = *(const V *)(c + i * ldc + LANES) + high##i;                                                                    \
    }                                                                                                                             \
    *(V *)(c + i * ldc) = low##i;                                                                                                 \
    *(V *)(c + i * ldc + LANES) = high##i;

static void NAME(micro)(int64_t k, const T *a, const T *b, T *c, int64_t ldc, int accumulate)
{
    DG_ROWS(DECLARE)
#define PREFETCH(i) __builtin_prefetch(c + i * ldc, 1);
    DG_ROWS(PREFETCH)
#undef PREFETCH
#pragma GCC unroll 4
    for (int64_t p = 0; p < k; ++p) {
        const V low = *(const V *)b, high = *(const V *)(b + LANES);
#define STEP(i)                                                                                                                   \
    {                                                                                                                             \
        const T left = a[i];                                                                                                      \
        low##i += left * low;                                                                                                     \
        high##i += left * high;                                                                                                   \
    }
        DG_ROWS(STEP)
#undef STEP
        a += NAME(MR);
        b += NAME(NR);
    }
    DG_ROWS(PUT)
}

static void NAME(whole_direct)(int64_t k, const T *a, int64_t outer, int64_t inner, const T *b, int64_t b_inner, T *c, int64_t ldc,
                               int accumulate)
{
    DG_ROWS(DECLARE)
    for (int64_t p = 0; p < k; ++p) {
        const V low = *(const V *)b, high = *(const V *)(b + LANES);
#define STEP(i)                                                                                                                   \
    {                                                                                                                             \
        const T left = a[i * outer];                                                                                              \
        low##i += left * low;                                                                                                     \
        high##i += left * high;                                                                                                   \
    }
        DG_ROWS(STEP)
#undef STEP
        a += inner;
        b += b_inner;
    }
    DG_ROWS(PUT)
}

/* few rows: the same sums, in four chains at least */
static void NAME(row_direct)(int64_t k, const T *a, int64_t inner, const T *b, int64_t b_inner, T *c, int accumulate)
{
    V low0 = {0}, high0 = {0};
    const int64_t ldc = 0;
    for (int64_t p = 0; p < k; ++p) {
        low0 += a[p * inner] * *(const V *)(b + p * b_inner);
        high0 += a[p * inner] * *(const V *)(b + p * b_inner + LANES);
    }
    PUT(0)
}

static void NAME(two_rows_direct)(int64_t k, const T *a, int64_t outer, int64_t inner, const T *b, int64_t b_inner, T *c, int64_t ldc,
                                  int accumulate)
{
    V low0 = {0}, high0 = {0}, low1 = {0}, high1 = {0};
    for (int64_t p = 0; p < k; ++p) {
        const V low = *(const V *)b, high = *(const V *)(b + LANES);
        low0 += a[0] * low;
        high0 += a[0] * high;
        low1 += a[outer] * low;
        high1 += a[outer] * high;
        a += inner;
        b += b_inner;
    }
    PUT(0)
    PUT(1)
}

static void NAME(direct)(int64_t rows, int64_t k, const T *a, int64_t outer, int64_t inner, const T *b, int64_t b_inner, T *c,
                         int64_t ldc, int accumulate)
{
    if (rows == NAME(MR)) {
        NAME(whole_direct)(k, a, outer, inner, b, b_inner, c, ldc, accumulate);
        return;
    }
    for (; rows >= 2; rows -= 2, a += 2 * outer, c += 2 * ldc)
        NAME(two_rows_direct)(k, a, outer, inner, b, b_inner, c, ldc, accumulate);
    if (rows)
        NAME(row_direct)(k, a, inner, b, b_inner, c, accumulate);
}

const JOIN(dg, kernel, SUFFIX) NAME(dg_kernel) = {QUOTE(ISA), NAME(MR), NAME(NR), NAME(micro), NAME(direct)};

#undef JOIN_
#undef JOIN
#undef NAME
#undef QUOTE_
#undef QUOTE
#undef V
#undef ONE
#undef LANES
#undef DECLARE
#undef PUT
#undef T
#undef SUFFIX
#undef ISA
#undef BYTES
#undef DG_ROWS
