/* Normalization for one dtype and instruction set.  Included with T, SUFFIX, ISA and SQRT. */
#define JOIN_(a, b, c) a##_##b##_##c
#define JOIN(a, b, c) JOIN_(a, b, c)
#define NAME(what) JOIN(what, SUFFIX, ISA)
#define ALWAYS static inline __attribute__((always_inline))
#define UNROLLED _Pragma("GCC unroll 8")
#define V NAME(vector)
#define RUN NAME(run)
#define TREES NAME(trees)
#define NOTHING ((T)-0.0) /* what may be added without a trace */

typedef T V __attribute__((vector_size(8 * sizeof(T)), aligned(sizeof(T)), may_alias)); /* the eight partial sums of a leaf */

/* numbers that are summed up, and what their terms are made of */
typedef struct {
    const T *x, *g, *weights; /* weights: of runs of `size` elements each; null: `weight` is that of all */
    T mean, root, weight;
    int64_t size;
} RUN;

/* The terms: `own` is what comes to the normalized element, `hat`. */
#define TERMS(TYPE, q, kind, at_x, at_g, of_weight, of_mean, of_root)                                                             \
    TYPE q[4];                                                                                                                    \
    if ((kind) == SUM) {                                                                                                          \
        q[0] = (at_x);                                                                                                            \
    } else if ((kind) == SQUARES) {                                                                                               \
        const TYPE centred = (at_x) - (of_mean);                                                                                  \
        q[0] = centred * centred;                                                                                                 \
    } else {                                                                                                                      \
        const TYPE given = (at_g), hat = ((at_x) - (of_mean)) * (of_root), own = given * (of_weight);                             \
        if ((kind) == AFFINE) {                                                                                                   \
            q[0] = given * hat;                                                                                                   \
            q[1] = given;                                                                                                         \
        } else {                                                                                                                  \
            q[0] = own;                                                                                                           \
            q[1] = own * hat;                                                                                                     \
        }                                                                                                                         \
        if ((kind) == ALL) {                                                                                                      \
            q[2] = given * hat;                                                                                                   \
            q[3] = given;                                                                                                         \
        }                                                                                                                         \
    }

#define VECTOR(p) (*(const V *)(p))

/* up to 128 elements: eight partial sums, of every eighth one each */
ALWAYS void NAME(leaf)(int kind, const RUN *r, const T *x, const T *g, const T *weights, int64_t n, T *sums)
{
    const int count = COUNT(kind), weighted = kind == OWN && weights;
    V parts[4];
    int64_t k = 0;
    UNROLLED for (int c = 0; c < count; ++c)
        sums[c] = NOTHING;
    if (n >= 8) {
        UNROLLED for (int c = 0; c < count; ++c)
            parts[c] = NOTHING - (V){0};
        for (; k + 8 <= n; k += 8) {
            V by = r->weight - (V){0};
            if (weighted)
                by = VECTOR(weights + k);
            TERMS(V, q, kind, VECTOR(x + k), VECTOR((kind >= OWN ? g : x) + k), by, r->mean, r->root)
            UNROLLED for (int c = 0; c < count; ++c)
                parts[c] += q[c];
        }
        UNROLLED for (int c = 0; c < count; ++c) {
            const V p = parts[c];
            sums[c] = ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7]));
        }
    }
    for (; k < n; ++k) {
        TERMS(T, q, kind, x[k], (kind >= OWN ? g : x)[k], weighted ? weights[k] : r->weight, r->mean, r->root)
        UNROLLED for (int c = 0; c < count; ++c)
            sums[c] += q[c];
    }
}

/* the weights of n elements from `start` on */
ALWAYS const T *NAME(weights_of)(const RUN *r, int64_t start, int64_t n, T *room)
{
    if (!r->weights || r->size == 1)
        return r->weights ? r->weights + start : NULL;
    int64_t channel = start / r->size, end = (channel + 1) * r->size - start;
    for (int64_t k = 0; k < n; ++channel, end += r->size)
        for (const T weight = r->weights[channel]; k < n && k < end; ++k)
            room[k] = weight;
    return room;
}

/* pairwise: halves that are multiples of eight, as NumPy cuts them */
#define DEFINE_TREE(name, kind)                                                                                                   \
    static __attribute__((noinline)) void NAME(name)(const RUN *r, int64_t start, int64_t n, T *sums)                             \
    {                                                                                                                             \
        if (n <= LEAF) {                                                                                                          \
            T room[LEAF];                                                                                                         \
            const T *weights = (kind) == OWN ? NAME(weights_of)(r, start, n, room) : NULL;                                        \
            NAME(leaf)(kind, r, r->x + start, (kind) >= OWN ? r->g + start : r->x, weights, n, sums);                             \
            return;                                                                                                               \
        }                                                                                                                         \
        const int64_t half = n / 2 - n / 2 % 8;                                                                                   \
        T right[4];                                                                                                               \
        NAME(name)(r, start, half, sums);                                                                                         \
        NAME(name)(r, start + half, n - half, right);                                                                             \
        UNROLLED for (int c = 0; c < COUNT(kind); ++c)                                                                                     \
            sums[c] += right[c];                                                                                                  \
    }
DEFINE_TREE(sum, SUM)
DEFINE_TREE(squares, SQUARES)
DEFINE_TREE(own, OWN)
DEFINE_TREE(affine, AFFINE)
DEFINE_TREE(all, ALL)
#undef DEFINE_TREE

typedef void (*TREES)(const RUN *r, int64_t start, int64_t n, T *sums);

/* the sums of a channel over the batch, of runs of `size` elements that are `stride` apart */
static __attribute__((noinline)) void NAME(over_batch)(TREES tree, int count, RUN r, int64_t batch, int64_t stride, int64_t size,
                                                       T *sums)
{
    const T *x = r.x, *g = r.g;
    UNROLLED for (int c = 0; c < count; ++c)
        sums[c] = 0;
    for (int64_t n = 0; n < batch; ++n) {
        T found[4];
        r.x = x + n * stride;
        r.g = g ? g + n * stride : NULL;
        tree(&r, 0, size, found);
        UNROLLED for (int c = 0; c < count; ++c)
            sums[c] += found[c];
    }
}

/* -- elements ----------------------------------------------------------------------------------------------------------- */

/* n elements; weights and biases of each, or null: `weight` and `bias` are those of all */
static __attribute__((noinline)) void NAME(scale)(const T *x, T *out, int64_t n, T mean, T spread, const T *weights,
                                                  const T *biases, T weight, T bias)
{
    int64_t k = 0;
    if (!weights && !biases) {
        for (; k + 8 <= n; k += 8)
            *(V *)(out + k) = (VECTOR(x + k) - mean) / spread * weight + bias;
    } else {
        for (; k + 8 <= n; k += 8) {
            V by = weight - (V){0}, plus = bias - (V){0};
            if (weights)
                by = VECTOR(weights + k);
            if (biases)
                plus = VECTOR(biases + k);
            *(V *)(out + k) = (VECTOR(x + k) - mean) / spread * by + plus;
        }
    }
    for (; k < n; ++k)
        out[k] = (x[k] - mean) / spread * (weights ? weights[k] : weight) + (biases ? biases[k] : bias);
}

/* by_x; `first` and `second`: the means of what comes to the normalized elements, and of that times these */
static __attribute__((noinline)) void NAME(pull)(const T *x, const T *g, T *out, int64_t n, T mean, T root, T first, T second,
                                                 const T *weights, T weight)
{
    int64_t k = 0;
    if (weights) {
        for (; k + 8 <= n; k += 8)
            *(V *)(out + k) =
                root * (VECTOR(g + k) * VECTOR(weights + k) - first - (VECTOR(x + k) - mean) * root * second);
    } else {
        for (; k + 8 <= n; k += 8)
            *(V *)(out + k) = root * (VECTOR(g + k) * weight - first - (VECTOR(x + k) - mean) * root * second);
    }
    for (; k < n; ++k)
        out[k] = root * (g[k] * (weights ? weights[k] : weight) - first - (x[k] - mean) * root * second);
}

/* by_x where the statistics are given */
static void NAME(pass)(const T *g, T *out, int64_t n, T root, T weight)
{
    int64_t k = 0;
    for (; k + 8 <= n; k += 8)
        *(V *)(out + k) = root * (VECTOR(g + k) * weight);
    for (; k < n; ++k)
        out[k] = root * (g[k] * weight);
}

ALWAYS T NAME(mean_at)(const dg_norm *n, int64_t k) { return n->by_root ? (T)0 : ((const T *)n->mean)[k]; }
ALWAYS T NAME(spread_at)(const dg_norm *n, int64_t k) { return SQRT(((const T *)n->variance)[k] + (T)n->eps); }
ALWAYS T NAME(weight_at)(const dg_norm *n, int64_t k) { return n->weight ? ((const T *)n->weight)[k] : (T)1; }
ALWAYS T NAME(bias_at)(const dg_norm *n, int64_t k) { return n->bias ? ((const T *)n->bias)[k] : NOTHING; }

/* -- statistics of a row: a group of an element of the batch ------------------------------------------------------------ */

static void NAME(forward_rows)(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    const dg_norm *n = buffers[0];
    const int64_t length = n->inner * n->size;
    for (int64_t row = lo; row < hi; ++row) {
        const int64_t channel = row % n->groups * n->inner;
        RUN r = {.x = (const T *)n->x + row * length};
        T *out = (T *)n->out + row * length, total;
        if (!n->by_root) {
            NAME(sum)(&r, 0, length, &total);
            ((T *)n->mean)[row] = r.mean = (total + 0) / (T)length;
        }
        NAME(squares)(&r, 0, length, &total);
        ((T *)n->variance)[row] = (total + 0) / (T)length;
        const T spread = NAME(spread_at)(n, row);
        if (n->size == 1 || !(n->weight || n->bias)) {
            NAME(scale)(r.x, out, length, r.mean, spread, n->weight ? (const T *)n->weight + channel : NULL,
                        n->bias ? (const T *)n->bias + channel : NULL, 1, NOTHING);
            continue;
        }
        for (int64_t i = 0; i < n->inner; ++i)
            NAME(scale)(r.x + i * n->size, out + i * n->size, n->size, r.mean, spread, NULL, NULL,
                        NAME(weight_at)(n, channel + i), NAME(bias_at)(n, channel + i));
    }
}

static void NAME(backward_rows)(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    const dg_norm *n = buffers[0];
    const int64_t length = n->inner * n->size;
    for (int64_t row = n->first + lo; row < n->first + hi; ++row) {
        const int64_t channel = row % n->groups * n->inner;
        RUN r = {.x = (const T *)n->x + row * length, .g = (const T *)n->g + row * length, .mean = NAME(mean_at)(n, row),
                 .root = 1 / NAME(spread_at)(n, row), .weight = 1, .size = n->size,
                 .weights = n->weight ? (const T *)n->weight + channel : NULL};
        ((T *)n->roots)[row] = r.root;
        if (!n->by_x)
            continue;
        T *out = (T *)n->by_x + row * length, sums[4];
        NAME(own)(&r, 0, length, sums);
        const T first = n->by_root ? (T)0 : (sums[0] + 0) / (T)length, second = (sums[1] + 0) / (T)length;
        if (!r.weights || n->size == 1) {
            NAME(pull)(r.x, r.g, out, length, r.mean, r.root, first, second, r.weights, 1);
            continue;
        }
        for (int64_t i = 0; i < n->inner; ++i)
            NAME(pull)(r.x + i * n->size, r.g + i * n->size, out + i * n->size, n->size, r.mean, r.root, first, second, NULL,
                       r.weights[i]);
    }
}

static void NAME(put_affine)(const dg_norm *n, int64_t channel, T by_weight, T by_bias)
{
    if (n->by_weight)
        ((T *)n->by_weight)[channel] = by_weight;
    if (n->by_bias)
        ((T *)n->by_bias)[channel] = by_bias;
}

/* gradients by weights and biases of channels that have `size` elements in a row each */
static void NAME(affine_rows)(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    const dg_norm *n = buffers[0];
    const int64_t channels = dg_norm_channels(n);
    for (int64_t channel = lo; channel < hi; ++channel) {
        T sums[2] = {0}, found[4];
        for (int64_t k = 0; k < n->batch; ++k) {
            const int64_t row = k * n->groups + channel / n->inner, at = (k * channels + channel) * n->size;
            RUN r = {.x = (const T *)n->x + at, .g = (const T *)n->g + at, .mean = NAME(mean_at)(n, row),
                     .root = ((const T *)n->roots)[row]};
            NAME(affine)(&r, 0, n->size, found);
            sums[0] += found[0];
            sums[1] += found[1];
        }
        NAME(put_affine)(n, channel, sums[0], sums[1]);
    }
}

/* of the only channel: NumPy takes all elements for one run */
static void NAME(affine_of_one)(const dg_norm *n)
{
    const int64_t count = n->batch * n->size;
    const T *x = n->x, *g = n->g, *roots = n->roots;
    T *hats = (T *)n->roots + dg_norm_statistics(n), sums[4], by_bias;
    for (int64_t k = 0; k < count; ++k)
        hats[k] = g[k] * ((x[k] - NAME(mean_at)(n, k / n->size)) * roots[k / n->size]);
    RUN r = {.x = hats};
    NAME(sum)(&r, 0, count, sums);
    r.x = n->g;
    NAME(sum)(&r, 0, count, &by_bias);
    NAME(put_affine)(n, 0, sums[0] + 0, by_bias + 0);
}

/* -- statistics of a channel over the batch ----------------------------------------------------------------------------- */

static void NAME(forward_channels)(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    const dg_norm *n = buffers[0];
    const int64_t stride = n->groups * n->size;
    const T count = (T)(n->batch * n->size);
    for (int64_t channel = lo; channel < hi; ++channel) {
        RUN r = {.x = (const T *)n->x + channel * n->size};
        T *out = (T *)n->out + channel * n->size, total;
        if (!n->given) {
            NAME(over_batch)(NAME(sum), 1, r, n->batch, stride, n->size, &total);
            ((T *)n->mean)[channel] = r.mean = total / count;
            NAME(over_batch)(NAME(squares), 1, r, n->batch, stride, n->size, &total);
            ((T *)n->variance)[channel] = total / count;
        }
        const T mean = NAME(mean_at)(n, channel), spread = NAME(spread_at)(n, channel);
        for (int64_t k = 0; k < n->batch; ++k)
            NAME(scale)(r.x + k * stride, out + k * stride, n->size, mean, spread, NULL, NULL, NAME(weight_at)(n, channel),
                        NAME(bias_at)(n, channel));
    }
}

static void NAME(backward_channels)(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    const dg_norm *n = buffers[0];
    const int64_t stride = n->groups * n->size;
    const T count = (T)(n->batch * n->size);
    const int is_affine = n->by_weight || n->by_bias, is_plain = n->given || !n->by_x;
    for (int64_t channel = lo; channel < hi; ++channel) {
        const int64_t at = channel * n->size;
        const RUN r = {.x = (const T *)n->x + at, .g = (const T *)n->g + at, .mean = NAME(mean_at)(n, channel),
                       .root = 1 / NAME(spread_at)(n, channel), .weight = NAME(weight_at)(n, channel)};
        T sums[4], first = 0, second = 0;
        if (is_plain && is_affine) {
            NAME(over_batch)(NAME(affine), 2, r, n->batch, stride, n->size, sums);
            NAME(put_affine)(n, channel, sums[0], sums[1]);
        } else if (is_affine) {
            NAME(over_batch)(NAME(all), 4, r, n->batch, stride, n->size, sums);
            NAME(put_affine)(n, channel, sums[2], sums[3]);
        } else if (!is_plain) {
            NAME(over_batch)(NAME(own), 2, r, n->batch, stride, n->size, sums);
        }
        if (!is_plain) {
            first = sums[0] / count;
            second = sums[1] / count;
        }
        for (int64_t k = 0; n->by_x && k < n->batch; ++k) {
            T *out = (T *)n->by_x + at + k * stride;
            if (n->given)
                NAME(pass)(r.g + k * stride, out, n->size, r.root, r.weight);
            else
                NAME(pull)(r.x + k * stride, r.g + k * stride, out, n->size, r.mean, r.root, first, second, NULL, r.weight);
        }
    }
}

/* -- channels that lie side by side: eight at a time, and what is left one by one --------------------------------------- */

#define LANE V
#define LANES 8
#define AT(name) JOIN(name, lanes, NAME(x))
#include "columns.h"
#define LANE T
#define LANES 1
#define AT(name) JOIN(name, single, NAME(x))
#include "columns.h"

#define DEFINE_BLOCKS(name)                                                                                                       \
    static void NAME(name)(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)         \
    {                                                                                                                             \
        const dg_norm *n = buffers[0];                                                                                            \
        const int64_t channels = dg_norm_channels(n), end = hi * BLOCK < channels ? hi * BLOCK : channels;                        \
        int64_t channel = lo * BLOCK;                                                                                             \
        for (; channel + 8 <= end; channel += 8)                                                                                  \
            JOIN(name, lanes, NAME(x))(n, channel);                                                                               \
        for (; channel < end; ++channel)                                                                                          \
            JOIN(name, single, NAME(x))(n, channel);                                                                              \
    }
DEFINE_BLOCKS(forward_columns)
DEFINE_BLOCKS(backward_columns)
#undef DEFINE_BLOCKS

/* gradients by weights and biases of channels that are side by side, of which each row has its own statistics */
static void NAME(affine_columns)(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    const dg_norm *n = buffers[0];
    for (int64_t block = lo; block < hi; ++block) {
        const int64_t channel = block * WIDE, left = n->inner - channel, width = left < WIDE ? left : WIDE;
        T by_weight[WIDE], by_bias[WIDE];
        for (int64_t k = 0; k < width; ++k) {
            by_weight[k] = n->first && n->by_weight ? ((T *)n->by_weight)[channel + k] : 0;
            by_bias[k] = n->first && n->by_bias ? ((T *)n->by_bias)[channel + k] : 0;
        }
        for (int64_t row = n->first; row < n->end; ++row) {
            const T *x = (const T *)n->x + row * n->inner + channel, *g = (const T *)n->g + row * n->inner + channel;
            const T mean = NAME(mean_at)(n, row), root = ((const T *)n->roots)[row];
            int64_t k = 0;
            for (; k + 8 <= width; k += 8) {
                *(V *)(by_weight + k) += VECTOR(g + k) * ((VECTOR(x + k) - mean) * root);
                *(V *)(by_bias + k) += VECTOR(g + k);
            }
            for (; k < width; ++k) {
                by_weight[k] += g[k] * ((x[k] - mean) * root);
                by_bias[k] += g[k];
            }
        }
        for (int64_t k = 0; k < width; ++k)
            NAME(put_affine)(n, channel + k, by_weight[k], by_bias[k]);
    }
}

/* -- entries ------------------------------------------------------------------------------------------------------------ */

static void NAME(forward)(const dg_norm *n)
{
    void *const buffers[] = {(void *)n};
    const double each = 1.2 * sizeof(T) / 4, all = each * (double)dg_norm_elements(n);
    const int64_t channels = dg_norm_channels(n), blocks = (channels + BLOCK - 1) / BLOCK;
    if (!n->across)
        dg_share(n->rt, n->stop, NAME(forward_rows), buffers, n->batch * n->groups, each * (double)(n->inner * n->size));
    else if (n->last || n->size == 1)
        dg_share(n->rt, n->stop, NAME(forward_columns), buffers, blocks, all / (double)blocks);
    else
        dg_share(n->rt, n->stop, NAME(forward_channels), buffers, channels, all / (double)channels);
}

static void NAME(backward)(const dg_norm *n)
{
    void *const buffers[] = {(void *)n};
    const double each = 1.5 * sizeof(T) / 4, all = each * (double)dg_norm_elements(n);
    const int64_t channels = dg_norm_channels(n), blocks = (channels + BLOCK - 1) / BLOCK, wide = (channels + WIDE - 1) / WIDE;
    if (n->across) {
        if (n->last || n->size == 1)
            dg_share(n->rt, n->stop, NAME(backward_columns), buffers, blocks, all / (double)blocks);
        else
            dg_share(n->rt, n->stop, NAME(backward_channels), buffers, channels, all / (double)channels);
        return;
    }
    const double of_row = each * (double)(n->inner * n->size);
    if (n->groups > 1 || n->size > 1 || channels == 1 || !(n->by_weight || n->by_bias)) {
        dg_share(n->rt, n->stop, NAME(backward_rows), buffers, n->batch * n->groups, of_row);
        if (n->by_weight || n->by_bias) {
            if (channels == 1)
                NAME(affine_of_one)(n);
            else
                dg_share(n->rt, n->stop, NAME(affine_rows), buffers, channels, all / (double)channels);
        }
        return;
    }
    /* rows that stay in the cache until their sums are added to those of the rows before */
    dg_norm some = *n;
    void *const of_some[] = {&some};
    const int64_t step = n->inner < IN_CACHE / 32 ? IN_CACHE / n->inner : 32;
    for (; some.first < n->batch; some.first = some.end) {
        some.end = n->batch - some.first < step ? n->batch : some.first + step;
        const int64_t rows = some.end - some.first;
        dg_share(n->rt, n->stop, NAME(backward_rows), of_some, rows, of_row);
        dg_share(n->rt, n->stop, NAME(affine_columns), of_some, wide, of_row * (double)rows / (double)wide);
    }
}

#undef JOIN_
#undef JOIN
#undef NAME
#undef ALWAYS
#undef UNROLLED
#undef V
#undef RUN
#undef TREES
#undef NOTHING
#undef TERMS
#undef VECTOR
#undef T
#undef SUFFIX
#undef SQRT
