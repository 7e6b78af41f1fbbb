/* The micro-kernels of one dtype for one instruction set.  Included with

     T, SUFFIX   the dtype
     ISA         the instruction set, a name
     BYTES       the size of a vector; a tile of the result is DG_ROWS rows of two vectors
     DG_ROWS(X)  X(0) X(1) ... for each row
     TURNED      perhaps: the vectors that TURN (of squares.h) makes

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
#define PUT(i)                                                                                                        \
    if (accumulate) {                                                                                                 \
        low##i = *(const V *)(c + i * ldc) + low##i;                                                                  \
        high##i = *(const V *)(c + i * ldc + LANES) + high##i;                                                        \
    }                                                                                                                 \
    *(V *)(c + i * ldc) = low##i;                                                                                     \
    *(V *)(c + i * ldc + LANES) = high##i;

static void NAME(micro)(int64_t k, const T *a, const T *b, T *c, int64_t ldc, int accumulate)
{
    DG_ROWS(DECLARE)
#define PREFETCH(i)                                                                                                   \
    __builtin_prefetch(c + i * ldc, 1);                                                                               \
    __builtin_prefetch(c + i * ldc + NAME(NR) - 1, 1); /* c is seldom aligned: the row's second line */
    DG_ROWS(PREFETCH)
#undef PREFETCH
#pragma GCC unroll 4
    for (int64_t p = 0; p < k; ++p) {
        const V low = *(const V *)b, high = *(const V *)(b + LANES);
#define STEP(i)                                                                                                       \
    {                                                                                                                 \
        const T left = a[i];                                                                                          \
        low##i += left * low;                                                                                         \
        high##i += left * high;                                                                                       \
    }
        DG_ROWS(STEP)
#undef STEP
        a += NAME(MR);
        b += NAME(NR);
    }
    DG_ROWS(PUT)
}

/* For fewer rows than a tile has the last one is computed again and again. */
static inline __attribute__((always_inline)) void NAME(rows_direct)(int64_t rows, int64_t k, const T *a, int64_t outer,
                                                                     int64_t inner, const T *b, int64_t b_inner, T *c,
                                                                     int64_t ldc, int accumulate)
{
#define PLACE(i) const int64_t place##i = (i < rows ? i : rows - 1) * outer;
    DG_ROWS(PLACE)
#undef PLACE
    DG_ROWS(DECLARE)
    for (int64_t p = 0; p < k; ++p) {
        const V low = *(const V *)b, high = *(const V *)(b + LANES);
#define STEP(i)                                                                                                       \
    {                                                                                                                 \
        const T left = a[place##i];                                                                                   \
        low##i += left * low;                                                                                         \
        high##i += left * high;                                                                                       \
    }
        DG_ROWS(STEP)
#undef STEP
        a += inner;
        b += b_inner;
    }
    DG_ROWS(PUT)
}

/* Few rows have too few sums to keep the multipliers busy, so several panels of b are taken at once: `strip` elements apart. */
#define STRIPS(X) X(0) X(1) X(2) X(3)
static void NAME(one_row)(int64_t k, const T *a, int64_t inner, const T *b, int64_t b_inner, int64_t strip, T *c, int accumulate)
{
    const int64_t ldc = NAME(NR); /* strips take the place of rows */
    STRIPS(DECLARE)
    for (int64_t p = 0; p < k; ++p) {
        const T left = *a;
#define STEP(s)                                                                                                       \
    low##s += left * *(const V *)(b + s * strip);                                                                     \
    high##s += left * *(const V *)(b + s * strip + LANES);
        STRIPS(STEP)
#undef STEP
        a += inner;
        b += b_inner;
    }
    STRIPS(PUT)
}
#undef STRIPS

static void NAME(direct)(int64_t rows, int64_t k, const T *a, int64_t outer, int64_t inner, const T *b, int64_t b_inner, T *c,
                         int64_t ldc, int accumulate)
{
    T aside[NAME(MR) * NAME(NR)];
    if (rows == NAME(MR)) {
        NAME(rows_direct)(NAME(MR), k, a, outer, inner, b, b_inner, c, ldc, accumulate);
        return;
    }
    NAME(rows_direct)(rows, k, a, outer, inner, b, b_inner, aside, NAME(NR), 0);
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < NAME(NR); ++j)
            c[i * ldc + j] = accumulate ? c[i * ldc + j] + aside[i * NAME(NR) + j] : aside[i * NAME(NR) + j];
}

/* One row by rows of b, which are read from end to end, several at a time: the sums stay in the first cache. */
#define TOGETHER(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
static void NAME(along)(int64_t k, const T *a, int64_t inner, const T *b, int64_t b_inner, int64_t columns, T *c, int accumulate)
{
    enum { ROWS = 0 TOGETHER(ONE), CHUNK = 8192 / sizeof(T) };
    T sums[CHUNK];
    for (int64_t first = 0; first < columns; first += CHUNK) {
        const int64_t n = columns - first < CHUNK ? columns - first : CHUNK;
        int64_t p = 0, j;
        memset(sums, 0, (size_t)n * sizeof(T));
        for (; p + ROWS <= k; p += ROWS) {
#define TERM(q)                                                                                                       \
    const T left##q = a[(p + q) * inner];                                                                             \
    const T *const row##q = b + (p + q) * b_inner + first;
            TOGETHER(TERM)
#undef TERM
            for (j = 0; j + LANES <= n; j += LANES) {
                V sum = *(const V *)(sums + j);
#define ADD(q) sum += left##q * *(const V *)(row##q + j);
                TOGETHER(ADD)
#undef ADD
                *(V *)(sums + j) = sum;
            }
            for (; j < n; ++j) {
                T sum = sums[j];
#define ADD(q) sum += left##q * row##q[j];
                TOGETHER(ADD)
#undef ADD
                sums[j] = sum;
            }
        }
        for (; p < k; ++p) {
            const T left = a[p * inner], *row = b + p * b_inner + first;
            for (j = 0; j + LANES <= n; j += LANES)
                *(V *)(sums + j) += left * *(const V *)(row + j);
            for (; j < n; ++j)
                sums[j] += left * row[j];
        }
        for (j = 0; j < n; ++j)
            c[first + j] = accumulate ? c[first + j] + sums[j] : sums[j];
    }
}
#undef TOGETHER

#include "kernel_windows.h"

#ifdef TURNED
/* One row by columns that are contiguous along p: some terms of one group after the other are transposed, then added up in turns,
   since each sum waits for the one before it. */
#define GROUPS(X) X(0) X(1) X(2) X(3)
static void NAME(turned)(int64_t k, const T *a, int64_t inner, int64_t a_group, const T *b, int64_t b_outer, int64_t b_group,
                         const T *next, T *sums)
{
    typedef TURNED W;
    enum { SIDE = sizeof(W) / sizeof(T), WIDTH = (0 GROUPS(ONE)) * SIDE };
    enum { LINE = 64 / sizeof(T), TERMS = 4 * LINE, AHEAD = 8 * LINE };
    T turned[TERMS * WIDTH] __attribute__((aligned(64)));
#define DECLARE_GROUP(g) W sum##g = {0};
    GROUPS(DECLARE_GROUP)
    for (int64_t start = 0; start < k; start += TERMS) {
        const int64_t terms = k - start < TERMS ? k - start : TERMS;
        const T *ahead = start + AHEAD < k ? b + start + AHEAD : next + (start + AHEAD - k);
        for (int64_t g = 0; g < WIDTH / SIDE; ++g) {
            const T *from = b + g * b_group + start;
            int64_t p = 0;
            for (; p + LINE <= terms; p += LINE) {
                for (int64_t i = 0; i < SIDE; ++i)
                    __builtin_prefetch(ahead + g * b_group + i * b_outer + p, 0, 2);
                TURN(from + p, b_outer, WIDTH, turned + p * WIDTH + g * SIDE);
                TURN(from + p + SIDE, b_outer, WIDTH, turned + (p + SIDE) * WIDTH + g * SIDE);
            }
            for (; p < terms; ++p)
                for (int64_t i = 0; i < SIDE; ++i)
                    turned[p * WIDTH + g * SIDE + i] = from[i * b_outer + p];
        }
        for (int64_t p = 0; p < terms; ++p) {
#define ADD_GROUP(g) sum##g += a[g * a_group + (start + p) * inner] * *(const W *)(turned + p * WIDTH + g * SIDE);
            GROUPS(ADD_GROUP)
        }
    }
#define PUT_GROUP(g) *(W *)(sums + g * SIDE) = sum##g;
    GROUPS(PUT_GROUP)
#undef DECLARE_GROUP
#undef ADD_GROUP
#undef PUT_GROUP
}
#undef GROUPS
#define TURNED_KERNEL NAME(turned), sizeof(TURNED) / sizeof(T)
#else
#define TURNED_KERNEL NULL, 0
#endif

const JOIN(dg, kernel, SUFFIX) NAME(dg_kernel) = {QUOTE(ISA), NAME(MR), NAME(NR), NAME(micro), NAME(direct), NAME(one_row), NAME(along),
                                                  TURNED_KERNEL, NAME(windows), NAME(stretches)};

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
#undef TURNED
#undef TURN
#undef TURNED_KERNEL
#undef DG_ROWS
