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
#define PREFETCH(i) __builtin_prefetch(c + i * ldc, 1);
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

#ifdef TURNED
/* One row by columns that are contiguous along p: squares of b are transposed in registers. */
#define GROUPS(X) X(0) X(1) X(2) X(3)
static void NAME(turned)(int64_t k, const T *a, int64_t inner, const T *b, int64_t b_outer, T *c, int accumulate)
{
    typedef TURNED W;
    enum { SIDE = sizeof(W) / sizeof(T), AHEAD = 512 / sizeof(T) };
#define DECLARE_GROUP(g) W sum##g = {0};
    GROUPS(DECLARE_GROUP)
    int64_t p = 0;
    for (; p + 2 * SIDE <= k; p += 2 * SIDE) {
        T square[SIDE * SIDE];
#define ADD_GROUP(g)                                                                                                  \
    _Pragma("GCC unroll 8") for (int i = 0; i < SIDE; ++i)                                                            \
        __builtin_prefetch(b + (g * SIDE + i) * b_outer + p + AHEAD, 0, 2);                                           \
    _Pragma("GCC unroll 2") for (int half = 0; half < 2; ++half) {                                                    \
        TURN(b + g * SIDE * b_outer + p + half * SIDE, b_outer, SIDE, square);                                        \
        _Pragma("GCC unroll 8") for (int i = 0; i < SIDE; ++i)                                                        \
            sum##g += a[(p + half * SIDE + i) * inner] * *(const W *)(square + i * SIDE);                             \
    }
        GROUPS(ADD_GROUP)
    }
    for (; p < k; ++p) {
#define ADD_ONE(g)                                                                                                    \
    {                                                                                                                 \
        W right;                                                                                                      \
        for (int i = 0; i < SIDE; ++i)                                                                                \
            right[i] = b[(g * SIDE + i) * b_outer + p];                                                               \
        sum##g += a[p * inner] * right;                                                                               \
    }
        GROUPS(ADD_ONE)
    }
#define PUT_GROUP(g)                                                                                                  \
    if (accumulate)                                                                                                   \
        sum##g = *(const W *)(c + g * SIDE) + sum##g;                                                                 \
    *(W *)(c + g * SIDE) = sum##g;
    GROUPS(PUT_GROUP)
#undef DECLARE_GROUP
#undef ADD_GROUP
#undef ADD_ONE
#undef PUT_GROUP
}
#undef GROUPS
#define TURNED_KERNEL NAME(turned), 4 * sizeof(TURNED) / sizeof(T)
#else
#define TURNED_KERNEL NULL, 0
#endif

const JOIN(dg, kernel, SUFFIX) NAME(dg_kernel) = {QUOTE(ISA), NAME(MR), NAME(NR), NAME(micro), NAME(direct), NAME(one_row),
                                                  TURNED_KERNEL};

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
