/* The micro-kernels of one dtype for one instruction set.  Included with

     T, SUFFIX   the dtype
     ISA         the instruction set, a name
     BYTES       the size of a vector; a tile of the result is DG_ROWS rows of two vectors
     DG_ROWS(X)  X(0) X(1) ... for each row
     MANY_ROWS   perhaps: DG_ROWS has more than eight rows
     JOINED      0, 1, 2... for each element of a vector
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

/* Eight terms at a time, written out, since a pragma does not survive optimisation at link time.  What counts beside the
   multipliers is how many instructions there are, above all where another thread of the processor shares the core. */
#define EIGHT(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define TWO(X) X(0) X(1)
#define THREE(X) TWO(X) X(2)
#define FOUR(X) THREE(X) X(3)
#define SIX(X) FOUR(X) X(4) X(5)
#define STEP(i)                                                                                                       \
    {                                                                                                                 \
        const T left = a[TERM * NAME(MR) + i];                                                                        \
        low##i += left * low;                                                                                         \
        high##i += left * high;                                                                                       \
    }
/* the result's rows are fetched one by one: many at once would hold up what is read meanwhile */
#define FETCH_RESULT                                                                                                  \
    if (row < c + NAME(MR) * ldc) { /* c is seldom aligned: lines of both ends */                                     \
        __builtin_prefetch(row, 1);                                                                                   \
        __builtin_prefetch(row + LANES, 1);                                                                           \
        __builtin_prefetch(row + NAME(NR) - 1, 1);                                                                    \
        row += ldc;                                                                                                   \
    }
static void NAME(micro)(int64_t k, const T *a, const T *b, T *c, int64_t ldc, int accumulate, const T *next)
{
    enum { LINE = 64 / sizeof(T) };
    const T *row = c;
    DG_ROWS(DECLARE)
#define ADD_TERM(p)                                                                                                   \
    {                                                                                                                 \
        enum { TERM = p };                                                                                            \
        const V low = *(const V *)(b + TERM * NAME(NR)), high = *(const V *)(b + TERM * NAME(NR) + LANES);            \
        DG_ROWS(STEP)                                                                                                 \
    }
    for (; k >= 0 EIGHT(ONE); k -= 0 EIGHT(ONE)) {
        EIGHT(ADD_TERM)
        a += (0 EIGHT(ONE)) * NAME(MR);
        b += (0 EIGHT(ONE)) * NAME(NR);
        FETCH_RESULT
        __builtin_prefetch(next, 0, 2);
        __builtin_prefetch(next + LINE, 0, 2);
        next += 2 * LINE;
    }
    for (; k > 0; --k) {
        ADD_TERM(0)
        a += NAME(MR);
        b += NAME(NR);
    }
#undef ADD_TERM
    DG_ROWS(PUT)
}

static void NAME(packing)(int64_t k, const T *a, const T *b, int64_t b_inner, T *to, T *c, int64_t ldc, int accumulate)
{
    enum { AHEAD = 8 };
    const T *row = c;
    DG_ROWS(DECLARE)
#define ADD_TERM(p)                                                                                                   \
    {                                                                                                                 \
        enum { TERM = p };                                                                                            \
        const V low = *(const V *)b, high = *(const V *)(b + LANES);                                                  \
        *(V *)(to + TERM * NAME(NR)) = low;                                                                           \
        *(V *)(to + TERM * NAME(NR) + LANES) = high;                                                                  \
        __builtin_prefetch(b + AHEAD * b_inner);                                                                      \
        __builtin_prefetch(b + AHEAD * b_inner + NAME(NR) - 1);                                                       \
        DG_ROWS(STEP)                                                                                                 \
        b += b_inner;                                                                                                 \
    }
    for (; k >= 0 FOUR(ONE); k -= 0 FOUR(ONE)) {
        FOUR(ADD_TERM)
        a += (0 FOUR(ONE)) * NAME(MR);
        to += (0 FOUR(ONE)) * NAME(NR);
        FETCH_RESULT
    }
    for (; k > 0; --k) {
        ADD_TERM(0)
        a += NAME(MR);
        to += NAME(NR);
    }
#undef ADD_TERM
    DG_ROWS(PUT)
}
#undef STEP
#undef FETCH_RESULT

/* Whole tiles of rows that are contiguous along the sum (inner is 1), or below one another (outer is 1).  Any strides would take an
   address for each row, which are more than there are registers. */
#define TERM_OF(STEPS)                                                                                                \
    {                                                                                                                 \
        const V low = *(const V *)b, high = *(const V *)(b + LANES);                                                  \
        DG_ROWS(STEPS)                                                                                                \
        b += b_inner;                                                                                                 \
    }
#define LEFT(i) (i < 3 ? a : i < 6 ? third : i < 9 ? sixth : ninth)[i % 3 * outer + TERM]
#define STEP(i)                                                                                                       \
    {                                                                                                                 \
        const T left = LEFT(i);                                                                                       \
        low##i += left * low;                                                                                         \
        high##i += left * high;                                                                                       \
    }
#define ADD_TERM(p)                                                                                                   \
    {                                                                                                                 \
        enum { TERM = p };                                                                                            \
        TERM_OF(STEP)                                                                                                 \
    }
#define DECLARE_LOW(i) V low##i = {0};
#define STEP_LOW(i) low##i += LEFT(i) * low;
#define PUT_LOW(i) *(V *)(c + i * ldc) = accumulate ? (V)(*(const V *)(c + i * ldc) + low##i) : low##i;
#define ADD_TERM_LOW(p)                                                                                               \
    {                                                                                                                 \
        enum { TERM = p };                                                                                            \
        const V low = *(const V *)b;                                                                                  \
        DG_ROWS(STEP_LOW)                                                                                             \
        b += b_inner;                                                                                                 \
    }
/* a cache line of each row, in as many terms as it has */
#define FETCH(i)                                                                                                      \
    if (sizeof(T) == 8 || i % 2 == SOME)                                                                              \
        __builtin_prefetch(&LEFT(i) + ahead, 0, 2);
#define FETCH_NONE
#define FETCH_ROWS                                                                                                    \
    if (k & (0 EIGHT(ONE))) {                                                                                         \
        enum { SOME = 0, TERM = 0 };                                                                                  \
        DG_ROWS(FETCH)                                                                                                \
    } else {                                                                                                          \
        enum { SOME = 1, TERM = 0 };                                                                                  \
        DG_ROWS(FETCH)                                                                                                \
    }
#define DEFINE_ALONG(name, DECLARE_SUMS, ADD, PUT_SUMS, FETCH_SOME)                                                   \
    static void NAME(name)(int64_t k, const T *a, int64_t outer, const T *b, int64_t b_inner, T *c, int64_t ldc, int accumulate, \
                           int64_t ahead)                                                                             \
    {                                                                                                                 \
        const T *third = a + 3 * outer, *sixth = a + 6 * outer, *ninth = a + 9 * outer;                               \
        DG_ROWS(DECLARE_SUMS)                                                                                         \
        for (; k >= 0 EIGHT(ONE); k -= 0 EIGHT(ONE)) {                                                                \
            FETCH_SOME                                                                                                \
            EIGHT(ADD)                                                                                                \
            a += 0 EIGHT(ONE);                                                                                        \
            third += 0 EIGHT(ONE);                                                                                    \
            sixth += 0 EIGHT(ONE);                                                                                    \
            ninth += 0 EIGHT(ONE);                                                                                    \
        }                                                                                                             \
        for (; k > 0; --k, ++a, ++third, ++sixth, ++ninth)                                                            \
            ADD(0)                                                                                                    \
        DG_ROWS(PUT_SUMS)                                                                                             \
    }
DEFINE_ALONG(rows_along, DECLARE, ADD_TERM, PUT, FETCH_NONE)
DEFINE_ALONG(streamed, DECLARE, ADD_TERM, PUT, FETCH_ROWS)
DEFINE_ALONG(streamed_narrow, DECLARE_LOW, ADD_TERM_LOW, PUT_LOW, FETCH_ROWS)
#undef LEFT
#undef STEP
#undef ADD_TERM
#undef STEP_LOW
#undef PUT_LOW
#undef ADD_TERM_LOW
#undef FETCH
#undef FETCH_NONE
#undef FETCH_ROWS
#undef DEFINE_ALONG

static void NAME(rows_down)(int64_t k, const T *a, int64_t inner, const T *b, int64_t b_inner, T *c, int64_t ldc, int accumulate)
{
    DG_ROWS(DECLARE)
#define STEP(i)                                                                                                       \
    {                                                                                                                 \
        const T left = a[i];                                                                                          \
        low##i += left * low;                                                                                         \
        high##i += left * high;                                                                                       \
    }
#define ADD_TERM(p)                                                                                                   \
    {                                                                                                                 \
        TERM_OF(STEP)                                                                                                 \
        a += inner;                                                                                                   \
    }
    for (; k >= 0 FOUR(ONE); k -= 0 FOUR(ONE)) {
        FOUR(ADD_TERM)
    }
    for (; k > 0; --k)
        ADD_TERM(0)
#undef ADD_TERM
#undef STEP
    DG_ROWS(PUT)
}
#undef TERM_OF

/* Rows of panels that need not be packed.  Where there are fewer rows than that, the last one is computed again and again: so
   what is added to is read before anything is written. */
#define PLACE(i) const int64_t from##i = (i < rows ? i : rows - 1) * outer, to##i = (i < rows ? i : rows - 1) * ldc;
#define STEP(i)                                                                                                       \
    {                                                                                                                 \
        const T left = a[from##i];                                                                                    \
        low##i += left * low;                                                                                         \
        high##i += left * high;                                                                                       \
    }
#define ADD(i)                                                                                                        \
    low##i = *(const V *)(c + to##i) + low##i;                                                                        \
    high##i = *(const V *)(c + to##i + LANES) + high##i;
#define STORE(i)                                                                                                      \
    *(V *)(c + to##i) = low##i;                                                                                       \
    *(V *)(c + to##i + LANES) = high##i;
#define TERMS(X) X(0) X(1) X(2) X(3)
#define DEFINE_ROWS(name, ROWS_OF_TILE)                                                                               \
    static void NAME(name)(int64_t rows, int64_t k, const T *a, int64_t outer, int64_t inner, const T *b, int64_t b_inner, T *c, \
                           int64_t ldc, int accumulate)                                                               \
    {                                                                                                                 \
        ROWS_OF_TILE(PLACE)                                                                                           \
        ROWS_OF_TILE(DECLARE)                                                                                         \
        for (; k >= 0 TERMS(ONE); k -= 0 TERMS(ONE)) {                                                                \
            TERMS(ROW_TERM_##name)                                                                                    \
        }                                                                                                             \
        for (; k > 0; --k)                                                                                            \
            ROW_TERM_##name(0)                                                                                        \
        if (accumulate) {                                                                                             \
            ROWS_OF_TILE(ADD)                                                                                         \
        }                                                                                                             \
        ROWS_OF_TILE(STORE)                                                                                           \
    }
#define ROW_TERM(ROWS_OF_TILE)                                                                                        \
    {                                                                                                                 \
        const V low = *(const V *)b, high = *(const V *)(b + LANES);                                                  \
        ROWS_OF_TILE(STEP)                                                                                            \
        a += inner;                                                                                                   \
        b += b_inner;                                                                                                 \
    }
#define ROW_TERM_two_rows(p) ROW_TERM(TWO)
#define ROW_TERM_three_rows(p) ROW_TERM(THREE)
#define ROW_TERM_four_rows(p) ROW_TERM(FOUR)
#define ROW_TERM_six_rows(p) ROW_TERM(SIX)
#define ROW_TERM_eight_rows(p) ROW_TERM(EIGHT)
#define ROW_TERM_all_rows(p) ROW_TERM(DG_ROWS)
DEFINE_ROWS(two_rows, TWO)
DEFINE_ROWS(three_rows, THREE)
DEFINE_ROWS(four_rows, FOUR)
#ifdef MANY_ROWS
DEFINE_ROWS(six_rows, SIX)
DEFINE_ROWS(eight_rows, EIGHT)
#endif
DEFINE_ROWS(all_rows, DG_ROWS)

static void NAME(direct)(int64_t rows, int64_t k, const T *a, int64_t outer, int64_t inner, const T *b, int64_t b_inner, T *c,
                         int64_t ldc, int accumulate)
{
    if (rows == NAME(MR) && inner == 1)
        NAME(rows_along)(k, a, outer, b, b_inner, c, ldc, accumulate, 0);
    else if (rows == NAME(MR) && outer == 1)
        NAME(rows_down)(k, a, inner, b, b_inner, c, ldc, accumulate);
    else if (rows <= 2)
        NAME(two_rows)(rows, k, a, outer, inner, b, b_inner, c, ldc, accumulate);
    else if (rows == 3)
        NAME(three_rows)(rows, k, a, outer, inner, b, b_inner, c, ldc, accumulate);
    else if (rows == 4)
        NAME(four_rows)(rows, k, a, outer, inner, b, b_inner, c, ldc, accumulate);
#ifdef MANY_ROWS
    else if (rows <= 6)
        NAME(six_rows)(rows, k, a, outer, inner, b, b_inner, c, ldc, accumulate);
    else if (rows <= 8)
        NAME(eight_rows)(rows, k, a, outer, inner, b, b_inner, c, ldc, accumulate);
#endif
    else
        NAME(all_rows)(rows, k, a, outer, inner, b, b_inner, c, ldc, accumulate);
}

/* ... of one vector of columns */
#define STEP_LOW(i) low##i += a[from##i] * low;
#define ADD_LOW(i) low##i = *(const V *)(c + to##i) + low##i;
#define STORE_LOW(i) *(V *)(c + to##i) = low##i;
#define NARROW(ROWS_OF_TILE)                                                                                          \
    {                                                                                                                 \
        ROWS_OF_TILE(PLACE)                                                                                           \
        ROWS_OF_TILE(DECLARE_LOW)                                                                                     \
        for (; k > 0; --k) {                                                                                          \
            const V low = *(const V *)b;                                                                              \
            ROWS_OF_TILE(STEP_LOW)                                                                                    \
            a += inner;                                                                                               \
            b += b_inner;                                                                                             \
        }                                                                                                             \
        if (accumulate) {                                                                                             \
            ROWS_OF_TILE(ADD_LOW)                                                                                     \
        }                                                                                                             \
        ROWS_OF_TILE(STORE_LOW)                                                                                       \
    }
static void NAME(narrow)(int64_t rows, int64_t k, const T *a, int64_t outer, int64_t inner, const T *b, int64_t b_inner, T *c,
                         int64_t ldc, int accumulate)
{
    if (rows <= 4)
        NARROW(FOUR)
#ifdef MANY_ROWS
    else if (rows <= 8)
        NARROW(EIGHT)
#endif
    else
        NARROW(DG_ROWS)
}
#undef NARROW
#undef DECLARE_LOW
#undef STEP_LOW
#undef ADD_LOW
#undef STORE_LOW

/* Few rows have too few sums to keep the multipliers busy, so several panels of b are taken at once: `strip` elements apart. */
static void NAME(one_row)(int64_t k, const T *a, int64_t inner, const T *b, int64_t b_inner, int64_t strip, T *c, int accumulate)
{
    const int64_t ldc = NAME(NR); /* strips take the place of rows */
    FOUR(DECLARE)
    for (; k > 0; --k) {
        const T left = *a;
#define STRIP(s)                                                                                                      \
    low##s += left * *(const V *)(b + s * strip);                                                                     \
    high##s += left * *(const V *)(b + s * strip + LANES);
        FOUR(STRIP)
#undef STRIP
        a += inner;
        b += b_inner;
    }
    FOUR(PUT)
}

/* two or three rows of two panels */
static void NAME(three_wide)(int64_t rows, int64_t k, const T *a, int64_t outer, int64_t inner, const T *b, int64_t b_inner,
                             int64_t strip, T *c, int64_t ldc, int accumulate)
{
#define DECLARE_NEXT(i) V next_low##i = {0}, next_high##i = {0};
    THREE(PLACE)
    THREE(DECLARE)
    THREE(DECLARE_NEXT)
    for (; k > 0; --k) {
        const T *const next = b + strip;
        const V low = *(const V *)b, high = *(const V *)(b + LANES);
        THREE(STEP)
        const V next_low = *(const V *)next, next_high = *(const V *)(next + LANES);
#define STEP_NEXT(i)                                                                                                  \
    {                                                                                                                 \
        const T left = a[from##i];                                                                                    \
        next_low##i += left * next_low;                                                                               \
        next_high##i += left * next_high;                                                                             \
    }
        THREE(STEP_NEXT)
        a += inner;
        b += b_inner;
    }
#define ADD_NEXT(i)                                                                                                   \
    next_low##i = *(const V *)(c + to##i + NAME(NR)) + next_low##i;                                                   \
    next_high##i = *(const V *)(c + to##i + NAME(NR) + LANES) + next_high##i;
#define STORE_NEXT(i)                                                                                                 \
    *(V *)(c + to##i + NAME(NR)) = next_low##i;                                                                       \
    *(V *)(c + to##i + NAME(NR) + LANES) = next_high##i;
    if (accumulate) {
        THREE(ADD)
        THREE(ADD_NEXT)
    }
    THREE(STORE)
    THREE(STORE_NEXT)
#undef DECLARE_NEXT
#undef STEP_NEXT
#undef ADD_NEXT
#undef STORE_NEXT
}
#undef PLACE
#undef STEP
#undef ADD
#undef STORE

#include "kernel_few.h"
#include "kernel_windows.h"

#ifdef TURNED
/* One row by columns that are contiguous along p, which are transposed in registers, some terms of one group after the other,
   since each sum waits for the one before it. */
static void NAME(turned)(int64_t k, const T *a, int64_t inner, const int64_t *a_group, const T *b, int64_t b_outer,
                         const int64_t *b_group, const T *next, T *sums)
{
    typedef TURNED W;
    enum { SIDE = sizeof(W) / sizeof(T), STEP = 0 FOUR(ONE), LINE = 64 / sizeof(T), AHEAD = 8 * LINE };
    const int64_t whole = k / STEP * STEP;
#define DECLARE_GROUP(g)                                                                                              \
    W sum##g = {0};                                                                                                   \
    const T *left##g = a + g % 2 * a_group[0] + g / 2 * a_group[1];                                                   \
    const T *upper##g = b + g % 2 * b_group[0] + g / 2 * b_group[1], *lower##g = upper##g + SIDE / 2 * b_outer;
    FOUR(DECLARE_GROUP)
    for (int64_t line = 0; line < whole; line += LINE) {
        int64_t fetched = line + AHEAD < k ? AHEAD : next - b + AHEAD - k;
        for (int64_t p = line; p < line + LINE && p < whole; p += STEP) {
#define ADD_GROUP(g)                                                                                                  \
    {                                                                                                                 \
        W first, second, third, fourth;                                                                               \
        TURN(upper##g, lower##g, b_outer, &first, &second, &third, &fourth);                                          \
        __builtin_prefetch(upper##g + fetched);                                                                       \
        __builtin_prefetch(lower##g + fetched);                                                                       \
        sum##g += left##g[0] * first;                                                                                 \
        sum##g += left##g[inner] * second;                                                                            \
        sum##g += left##g[2 * inner] * third;                                                                         \
        sum##g += left##g[3 * inner] * fourth;                                                                        \
        left##g += STEP * inner;                                                                                      \
        upper##g += STEP;                                                                                             \
        lower##g += STEP;                                                                                             \
    }
            FOUR(ADD_GROUP)
#undef ADD_GROUP
            fetched += b_outer - STEP; /* the same line of the next row */
        }
    }
    for (int64_t p = whole; p < k; ++p) {
#define ADD_GROUP(g)                                                                                                  \
    {                                                                                                                 \
        W column;                                                                                                     \
        for (int64_t i = 0; i < SIDE; ++i)                                                                            \
            column[i] = upper##g[i * b_outer];                                                                        \
        sum##g += *left##g * column;                                                                                  \
        left##g += inner;                                                                                             \
        ++upper##g;                                                                                                   \
    }
        FOUR(ADD_GROUP)
    }
#define PUT_GROUP(g) *(W *)(sums + g * SIDE) = sum##g;
    FOUR(PUT_GROUP)
#undef DECLARE_GROUP
#undef ADD_GROUP
#undef PUT_GROUP
}
#define TURNED_KERNEL NAME(turned), sizeof(TURNED) / sizeof(T)
#else
#define TURNED_KERNEL NULL, 0
#endif

const JOIN(dg, kernel, SUFFIX) NAME(dg_kernel) = {
    QUOTE(ISA), NAME(MR), NAME(NR), NAME(micro), NAME(packing), NAME(direct), NAME(narrow),
    {NAME(streamed), NAME(streamed_narrow)}, NAME(one_row), NAME(three_wide), NAME(few), TURNED_KERNEL, WINDOWS, NAME(stretches)};

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
#undef EIGHT
#undef SIX
#undef FOUR
#undef THREE
#undef TWO
#undef TERMS
#undef DEFINE_ROWS
#undef ROW_TERM
#undef ROW_TERM_two_rows
#undef ROW_TERM_three_rows
#undef ROW_TERM_four_rows
#undef ROW_TERM_six_rows
#undef ROW_TERM_eight_rows
#undef ROW_TERM_all_rows
#undef MANY_ROWS
#undef TURNED
#undef TURN
#undef TURNED_KERNEL
#undef WINDOWS
#undef JOINED
#undef DG_ROWS
