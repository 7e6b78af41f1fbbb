/* Channels whose elements lie side by side, LANES of them at once in a LANE: part of template.h, which see.  AT(name) names
   functions. */
#define LOAD(p) (*(const LANE *)(p))
#define STORE(p) (*(LANE *)(p))

typedef struct {
    const T *x, *g;
    LANE mean, root, weight;
    int64_t stride; /* from one row to the next */
} AT(column);

/* n rows, pairwise: as template.h sums up what lies in a row */
ALWAYS void AT(column_leaf)(int kind, const AT(column) *c, int64_t start, int64_t n, LANE *sums)
{
    const int count = COUNT(kind);
    LANE parts[4][8];
    int64_t k = 0;
    UNROLLED for (int q = 0; q < count; ++q) {
        sums[q] = NOTHING - (LANE){0};
        UNROLLED for (int part = 0; n >= 8 && part < 8; ++part)
            parts[q][part] = sums[q];
    }
    for (; k + 8 <= n; k += 8)
        UNROLLED for (int64_t part = 0; part < 8; ++part) {
            const int64_t at = (start + k + part) * c->stride;
            TERMS(LANE, found, kind, LOAD(c->x + at), LOAD((kind >= OWN ? c->g : c->x) + at), c->weight, c->mean, c->root)
            UNROLLED for (int q = 0; q < count; ++q)
                parts[q][part] += found[q];
        }
    UNROLLED for (int q = 0; k && q < count; ++q) {
        const LANE *p = parts[q];
        sums[q] = ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7]));
    }
    for (; k < n; ++k) {
        const int64_t at = (start + k) * c->stride;
        TERMS(LANE, found, kind, LOAD(c->x + at), LOAD((kind >= OWN ? c->g : c->x) + at), c->weight, c->mean, c->root)
        UNROLLED for (int q = 0; q < count; ++q)
            sums[q] += found[q];
    }
}

#define DEFINE_TREE(name, kind)                                                                                                   \
    static __attribute__((noinline)) void AT(name)(const AT(column) *c, int64_t start, int64_t n, LANE *sums)                                               \
    {                                                                                                                             \
        if (n <= LEAF) {                                                                                                          \
            AT(column_leaf)(kind, c, start, n, sums);                                                                             \
            return;                                                                                                               \
        }                                                                                                                         \
        const int64_t half = n / 2 - n / 2 % 8;                                                                                   \
        LANE right[4];                                                                                                            \
        AT(name)(c, start, half, sums);                                                                                           \
        AT(name)(c, start + half, n - half, right);                                                                               \
        UNROLLED for (int q = 0; q < COUNT(kind); ++q)                                                                                     \
            sums[q] += right[q];                                                                                                  \
    }                                                                                                                             \
    /* of all rows: those of an element of the batch, and one of these after the other */                                         \
    static void AT(name##_over)(const dg_norm *n, const AT(column) *c, LANE *sums)                                                \
    {                                                                                                                             \
        UNROLLED for (int q = 0; q < COUNT(kind); ++q)                                                                                     \
            sums[q] = (LANE){0};                                                                                                  \
        for (int64_t k = 0; k < n->batch; ++k) {                                                                                  \
            LANE found[4];                                                                                                        \
            if (n->size == 1)                                                                                                     \
                AT(column_leaf)(kind, c, k, 1, found);                                                                            \
            else                                                                                                                  \
                AT(name)(c, k * n->size, n->size, found);                                                                         \
            UNROLLED for (int q = 0; q < COUNT(kind); ++q)                                                                                 \
                sums[q] += found[q];                                                                                              \
        }                                                                                                                         \
    }
DEFINE_TREE(column_sum, SUM)
DEFINE_TREE(column_squares, SQUARES)
DEFINE_TREE(column_own, OWN)
DEFINE_TREE(column_affine, AFFINE)
DEFINE_TREE(column_all, ALL)
#undef DEFINE_TREE

ALWAYS void AT(spread)(const dg_norm *n, int64_t channel, LANE *found)
{
    T *lanes = (T *)found;
    for (int k = 0; k < LANES; ++k)
        lanes[k] = NAME(spread_at)(n, channel + k);
}

static void AT(forward_columns)(const dg_norm *n, int64_t channel)
{
    const int64_t rows = n->batch * n->size, stride = n->groups;
    AT(column) c = {.x = (const T *)n->x + channel, .stride = stride};
    LANE total, spread, weight = (T)1 - (LANE){0}, bias = NOTHING - (LANE){0};
    if (!n->given) {
        AT(column_sum_over)(n, &c, &total);
        STORE((T *)n->mean + channel) = c.mean = total / (T)rows;
        AT(column_squares_over)(n, &c, &total);
        STORE((T *)n->variance + channel) = total / (T)rows;
    }
    c.mean = LOAD((const T *)n->mean + channel);
    AT(spread)(n, channel, &spread);
    if (n->weight)
        weight = LOAD((const T *)n->weight + channel);
    if (n->bias)
        bias = LOAD((const T *)n->bias + channel);
    T *out = (T *)n->out + channel;
    for (int64_t k = 0; k < rows; ++k)
        STORE(out + k * stride) = (LOAD(c.x + k * stride) - c.mean) / spread * weight + bias;
}

static void AT(backward_columns)(const dg_norm *n, int64_t channel)
{
    const int64_t rows = n->batch * n->size, stride = n->groups;
    const int is_affine = n->by_weight || n->by_bias, is_plain = n->given || !n->by_x;
    AT(column) c = {.x = (const T *)n->x + channel, .g = (const T *)n->g + channel, .stride = stride,
                    .mean = LOAD((const T *)n->mean + channel)};
    LANE sums[4], spread, first = {0}, second = {0};
    sums[0] = sums[1] = sums[2] = sums[3] = (LANE){0};
    AT(spread)(n, channel, &spread);
    c.root = (T)1 / spread;
    c.weight = (T)1 - (LANE){0};
    if (n->weight)
        c.weight = LOAD((const T *)n->weight + channel);
    if (is_plain && is_affine) {
        AT(column_affine_over)(n, &c, sums + 2);
    } else if (is_affine) {
        AT(column_all_over)(n, &c, sums);
    } else if (!is_plain) {
        AT(column_own_over)(n, &c, sums);
    }
    if (n->by_weight)
        STORE((T *)n->by_weight + channel) = sums[2];
    if (n->by_bias)
        STORE((T *)n->by_bias + channel) = sums[3];
    if (!is_plain) {
        first = sums[0] / (T)rows;
        second = sums[1] / (T)rows;
    }
    T *out = (T *)n->by_x + channel;
    for (int64_t k = 0; n->by_x && k < rows; ++k) {
        const LANE hat = (LOAD(c.x + k * stride) - c.mean) * c.root;
        LANE own = LOAD(c.g + k * stride) * c.weight;
        if (!n->given)
            own = own - first - hat * second;
        STORE(out + k * stride) = c.root * own;
    }
}

#undef LOAD
#undef STORE
#undef LANE
#undef LANES
#undef AT
