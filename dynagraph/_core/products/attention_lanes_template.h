/* What attention does to tiles of scores, of one dtype for one instruction set.  Included with T, SUFFIX, ISA and BYTES as the
   micro-kernels are.  Queries lie in lanes, keys below one another: element (key, query) of a tile is at tile[key * ld + query],
   and `lanes` is a multiple of a vector.  Scores are logarithms to the base 2. */
#define JOIN_(a, b, c) a##_##b##_##c
#define JOIN(a, b, c) JOIN_(a, b, c)
#define NAME(what) JOIN(what, SUFFIX, ISA)
#define QUOTE_(x) #x
#define QUOTE(x) QUOTE_(x)
#define V NAME(lane_vector)
#define I NAME(lane_bits)
#define LANES ((int64_t)(BYTES / sizeof(T)))
#define AT(p) (*(V *)(p))

typedef T V __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));
typedef BITS I __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));

static inline __attribute__((always_inline)) V NAME(chosen)(I mask, V yes, V no)
{
    return (V)((mask & (I)yes) | (~mask & (I)no));
}

/* the larger one; `a`, not a NaN, where `b` is a NaN */
static inline __attribute__((always_inline)) V NAME(larger)(V a, V b)
{
#ifdef LARGER
    return (V)LARGER(b, a);
#else
    return NAME(chosen)((I)(b > a), b, a);
#endif
}

/* 2 ** x for x up to about 0: below the normal numbers 0, of NaN NaN.  The prelude's polynomial (exp2 in backends/prelude.h). */
static inline __attribute__((always_inline)) V NAME(power)(V x)
{
    static const T coefficients[] = COEFFICIENTS;
    const V magic = (V){0} + MAGIC;
    const V z = x + magic, r = x - (z - magic);
    V p = (V){0} + coefficients[0];
#pragma GCC unroll 16
    for (size_t k = 1; k < sizeof coefficients / sizeof *coefficients; ++k)
        p = p * r + coefficients[k];
    p *= (V)(((I)z + BIAS) << MANTISSA);
    return NAME(chosen)((I)(x < (V){0} + LEAST), (V){0}, p);
}

/* One step of the softmax over keys: scores become weights 2 ** (score - top).  `top` and `sum`, of each query, go on from earlier
   keys, and so does `acc`, `width` rows of what was summed with their weights. */
static void NAME(online)(int64_t keys, int64_t lanes, T *scores, int64_t ld, T *top, T *sum, T *acc, int64_t acc_ld, int64_t width)
{
    for (int64_t l = 0; l < lanes; l += LANES) {
        const V before = AT(top + l);
        V most[4] = {before, before, before, before};
        int64_t j = 0;
        for (; j + 4 <= keys; j += 4)
#pragma GCC unroll 4
            for (int u = 0; u < 4; ++u)
                most[u] = NAME(larger)(most[u], AT(scores + (j + u) * ld + l));
        for (; j < keys; ++j)
            most[0] = NAME(larger)(most[0], AT(scores + j * ld + l));
        for (int u = 1; u < 4; ++u)
            most[0] = NAME(larger)(most[0], most[u]);
        const V now = most[0], none = (V){0} - (T)__builtin_inf();
        const V shift = NAME(chosen)((I)(now == none), (V){0}, now); /* nothing is visible so far */
        V total[2] = {{0}, {0}};
        for (j = 0; j + 2 <= keys; j += 2)
#pragma GCC unroll 2
            for (int u = 0; u < 2; ++u) {
                T *at = scores + (j + u) * ld + l;
                const V weight = NAME(power)(AT(at) - shift);
                AT(at) = weight;
                total[u] += weight;
            }
        if (j < keys) {
            T *at = scores + j * ld + l;
            total[0] += AT(at) = NAME(power)(AT(at) - shift);
        }
        AT(top + l) = now;
        const V less = NAME(power)(before - shift);
        AT(sum + l) = AT(sum + l) * less + (total[0] + total[1]);
        const I same = (I)(less == (V){0} + 1);
        BITS all = -1;
        for (int64_t k = 0; k < LANES; ++k)
            all &= same[k];
        if (!all)
            for (int64_t d = 0; d < width; ++d)
                AT(acc + d * acc_ld + l) *= less;
    }
}

/* `online` of one query, whose keys lie in lanes, with minus infinity behind them: the sum has the order of `online` */
static void NAME(online_keys)(int64_t keys, int64_t lanes, T *scores, T *top, T *sum, T *acc, int64_t width)
{
    V most = (V){0} + *top;
    for (int64_t l = 0; l < lanes; l += LANES)
        most = NAME(larger)(most, AT(scores + l));
    T now = most[0];
    for (int64_t l = 1; l < LANES; ++l)
        now = most[l] > now ? most[l] : now;
    const V shift = (V){0} + (now == -(T)__builtin_inf() ? 0 : now), less = NAME(power)((V){0} + *top - shift);
    for (int64_t l = 0; l < lanes; l += LANES)
        AT(scores + l) = NAME(power)(AT(scores + l) - shift);
    T total[2] = {0, 0};
    for (int64_t j = 0; j < keys; ++j)
        total[j % 2] += scores[j];
    *top = now;
    *sum = *sum * less[0] + (total[0] + total[1]);
    for (int64_t d = 0; d < width && less[0] != 1; ++d)
        acc[d] *= less[0];
}

/* scores become weights 2 ** (score - shift) * factor, with a shift and a factor for each query */
static void NAME(weigh)(int64_t keys, int64_t lanes, T *scores, int64_t ld, const T *shift, const T *factors)
{
    for (int64_t j = 0; j < keys; ++j)
        for (int64_t l = 0; l < lanes; l += LANES)
            AT(scores + j * ld + l) = NAME(power)(AT(scores + j * ld + l) - AT(shift + l)) * AT(factors + l);
}

/* a vector; of `each` the number in all lanes */
static inline __attribute__((always_inline)) V NAME(taken)(const T *at, int each)
{
    if (each)
        return (V){0} + *at;
    return AT(at);
}

/* numbers * log2(e) are added, each one finite that was; `each`: one number for all queries */
static void NAME(add)(int64_t keys, int64_t lanes, T *scores, int64_t ld, const T *numbers, int64_t numbers_ld, int each)
{
    const V least = (V){0} - MOST, most = (V){0} + MOST;
    for (int64_t j = 0; j < keys; ++j, scores += ld, numbers += numbers_ld)
        for (int64_t l = 0; l < lanes; l += LANES) {
            const V number = NAME(taken)(each ? numbers : numbers + l, each), scaled = number * (T)0x1.71547652b82fep+0;
            const I infinite = (I)(number < least) | (I)(number > most);
            const V held = NAME(chosen)((I)(scaled < least), least, NAME(chosen)((I)(scaled > most), most, scaled));
            AT(scores + l) += NAME(chosen)(infinite, number, held);
        }
}

/* scores are minus infinity where `hidden` is, and not 0; `each`: one for all queries */
static void NAME(hide)(int64_t keys, int64_t lanes, T *scores, int64_t ld, const T *hidden, int64_t hidden_ld, int each)
{
    for (int64_t j = 0; j < keys; ++j, scores += ld, hidden += hidden_ld)
        for (int64_t l = 0; l < lanes; l += LANES) {
            const V at = NAME(taken)(each ? hidden : hidden + l, each);
            AT(scores + l) = NAME(chosen)((I)(at == (V){0}), AT(scores + l), at);
        }
}

/* the gradient by scores: by_weights becomes weights * (by_weights - less), with a `less` for each query */
static void NAME(slope)(int64_t keys, int64_t lanes, const T *weights, T *by_weights, int64_t ld, const T *less)
{
    for (int64_t j = 0; j < keys; ++j)
        for (int64_t l = 0; l < lanes; l += LANES) {
            T *at = by_weights + j * ld + l;
            AT(at) = AT(weights + j * ld + l) * (AT(at) - AT(less + l));
        }
}

/* tile *= factors */
static void NAME(multiply)(int64_t keys, int64_t lanes, T *tile, int64_t ld, const T *factors, int64_t factors_ld)
{
    for (int64_t j = 0; j < keys; ++j)
        for (int64_t l = 0; l < lanes; l += LANES)
            AT(tile + j * ld + l) *= AT(factors + j * factors_ld + l);
}

/* tile *= factor */
static void NAME(scale)(int64_t count, T *tile, T factor)
{
    int64_t k = 0;
    for (; k + LANES <= count; k += LANES)
        AT(tile + k) *= factor;
    for (; k < count; ++k)
        tile[k] *= factor;
}

/* rows of any arrays, which are short: a call of memcpy takes longer than most of them */
static void NAME(copy)(int64_t rows, int64_t width, const T *from, int64_t ld, T *to, int64_t to_ld)
{
    for (int64_t i = 0; i < rows; ++i, from += ld, to += to_ld) {
        int64_t d = 0;
        for (; d + LANES <= width; d += LANES)
            AT(to + d) = *(const V *)(from + d);
        for (; d < width; ++d)
            to[d] = from[d];
    }
}

/* the same, plus a zero: where that is 0, -0 becomes 0 */
static void NAME(put)(int64_t rows, int64_t width, const T *from, int64_t ld, T zero, T *to, int64_t to_ld)
{
    const V zeros = ((V){0} + 1) * zero; /* 0 + -0 were 0 */
    for (int64_t i = 0; i < rows; ++i, from += ld, to += to_ld) {
        int64_t d = 0;
        for (; d + LANES <= width; d += LANES)
            AT(to + d) = *(const V *)(from + d) + zeros;
        for (; d < width; ++d)
            to[d] = from[d] + zero;
    }
}

/* sums[i] = the product of row i of a and of row i of b */
static void NAME(dots)(int64_t rows, int64_t width, const T *a, int64_t a_ld, const T *b, int64_t b_ld, T *sums)
{
    for (int64_t i = 0; i < rows; ++i, a += a_ld, b += b_ld) {
        V sum = {0};
        int64_t d = 0;
        for (; d + LANES <= width; d += LANES)
            sum += *(const V *)(a + d) * *(const V *)(b + d);
        T rest = 0, part[BYTES / sizeof(T)];
        for (; d < width; ++d)
            rest += a[d] * b[d];
        AT(part) = sum;
        for (int64_t half = LANES / 2; half > 0; half /= 2)
            for (int64_t l = 0; l < half; ++l)
                part[l] += part[l + half];
        sums[i] = part[0] + rest;
    }
}

const JOIN(dg, lanes, SUFFIX) NAME(dg_lanes) = {QUOTE(ISA), NAME(online), NAME(online_keys), NAME(weigh), NAME(add), NAME(hide),
                                                NAME(slope), NAME(multiply), NAME(scale), NAME(copy), NAME(put), NAME(dots)};

#undef JOIN_
#undef JOIN
#undef NAME
#undef QUOTE_
#undef QUOTE
#undef V
#undef I
#undef LANES
#undef AT
#undef T
#undef SUFFIX
#undef BITS
#undef MAGIC
#undef MANTISSA
#undef BIAS
#undef LEAST
#undef MOST
#undef COEFFICIENTS
#undef LARGER
