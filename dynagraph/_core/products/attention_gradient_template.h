/* The gradients of attention, of one dtype.  Included by attention_template.h. */

typedef struct {
    T *queries, *by_out, *query_rows, *by_out_rows; /* panels of columns; rows */
    T *weights, *slopes, *factors;                  /* [keys][queries] */
    T *shift, *share, *less;                        /* of each query */
    T *by_queries;                                  /* panels of columns */
    T *by_keys, *by_values;                         /* rows */
    T *rows;                                        /* room for a panel, or for two rows */
    NAME(beside) beside;
} NAME(backward);

static int64_t NAME(backward_scratch)(const NAME(plan) *p, int64_t keys, char *memory, NAME(backward) *s)
{
    const dg_attention *a = p->a;
    const int64_t queries = p->panels * p->nr;
    char *at = memory;
    s->queries = carve(&at, queries * a->width, sizeof(T));
    s->by_out = carve(&at, queries * a->value_width, sizeof(T));
    s->query_rows = carve(&at, queries * p->whole_width, sizeof(T));
    s->by_out_rows = carve(&at, queries * p->whole_value_width, sizeof(T));
    s->weights = carve(&at, KEYS * queries, sizeof(T));
    s->slopes = carve(&at, KEYS * queries, sizeof(T));
    s->factors = carve(&at, KEYS * p->nr, sizeof(T));
    s->shift = carve(&at, queries, sizeof(T));
    s->share = carve(&at, queries, sizeof(T));
    s->less = carve(&at, queries, sizeof(T));
    s->by_queries = carve(&at, queries * a->width, sizeof(T));
    s->rows = carve(&at, p->nr * (a->width + a->value_width), sizeof(T));
    NAME(carve_beside)(p, &at, &s->beside);
    s->by_keys = carve(&at, keys * p->whole_width, sizeof(T));
    s->by_values = carve(&at, keys * p->whole_value_width, sizeof(T));
    return at - memory;
}

/* of each query, its gradient times its result */
static void NAME(dots)(const NAME(plan) *p, const NAME(backward) *s, const T *g, const T *out, int64_t queries)
{
    const dg_attention *a = p->a;
    const int64_t width = a->value_width;
    if (a->g.column == 1 && a->out.column == 1) {
        p->lanes->dots(queries, width, g, a->g.row, out, a->out.row, s->less);
        return;
    }
    for (int64_t i = 0; i < queries; ++i) {
        NAME(pack_rows)(p->lanes, g, &a->g, i, 1, 1, width, width, s->rows);
        NAME(pack_rows)(p->lanes, out, &a->out, i, 1, 1, width, width, s->rows + width);
        p->lanes->dots(1, width, s->rows, 0, s->rows + width, 0, s->less + i);
    }
}

/* what a tile of queries brings: packed operands, and what is subtracted from scores and from gradients by weights */
static void NAME(bring)(const NAME(plan) *p, const NAME(backward) *s, int64_t batch, int64_t head, int64_t query, int64_t queries)
{
    const dg_attention *a = p->a;
    const int64_t nr = p->nr, tile = p->panels * nr;
    const T *q = NAME(start)(a, &a->q, batch, head), *g = NAME(start)(a, &a->g, batch, head);
    const T *out = NAME(start)(a, &a->out, batch, head), *sums = NAME(start)(a, &a->sums, batch, head) + query * a->sums.row;
    NAME(pack_columns)(p->lanes, q, &a->q, query, queries, a->width, nr, (T)(a->scale * LOG2_E), s->queries);
    NAME(pack_columns)(p->lanes, g, &a->g, query, queries, a->value_width, nr, 1, s->by_out);
    if (p->by_keys) {
        NAME(pack_rows)(p->lanes, q, &a->q, query, queries, tile, a->width, p->whole_width, s->query_rows);
        NAME(pack_rows)(p->lanes, g, &a->g, query, queries, tile, a->value_width, p->whole_value_width, s->by_out_rows);
    }
    for (int64_t i = 0; i < tile; ++i, sums += a->sums.row) {
        s->shift[i] = __builtin_inf(); /* no weights: of rows that see nothing, and where there are no rows */
        s->share[i] = s->less[i] = 0;
        if (i >= queries)
            continue;
        if (sums[0] != -(T)__builtin_inf()) {
            s->shift[i] = sums[0];
            s->share[i] = 1 / sums[a->sums.column];
        }
    }
    NAME(dots)(p, s, g + query * a->g.row, out + query * a->out.row, queries);
}

/* The gradients by scores of a panel are added to those by a mask. */
static void NAME(add_by_mask)(const dg_attention *a, const dg_tensor *t, int64_t batch, int64_t head, int64_t query,
                              int64_t queries, int64_t key, int64_t keys, const T *slopes, int64_t ld)
{
    T *to = NAME(start)(a, t, batch, head) + query * t->row + key * t->column;
    for (int64_t i = 0; i < queries; ++i, ++slopes, to += t->row)
        for (int64_t j = 0; j < keys; ++j)
            to[j * t->column] += slopes[j * ld];
}

/* A tile of queries meets a tile of keys: weights and slopes again, and what both give to the gradients. */
static void NAME(meet_again)(const NAME(plan) *p, const NAME(backward) *s, int64_t batch, int64_t head, int64_t query,
                             int64_t queries, int64_t key, int64_t keys, T *by_keys, T *by_values)
{
    const dg_attention *a = p->a;
    const int64_t nr = p->nr, ld = p->panels * nr, depth = (queries + nr - 1) / nr * nr;
    dg_tensor of_k = a->k, of_v = a->v;
    const T *k = NAME(tile_rows)(p, &s->beside, &of_k, batch, head, key, keys, a->width, s->beside.keys);
    const T *v = NAME(tile_rows)(p, &s->beside, &of_v, batch, head, key, keys, a->value_width, s->beside.values);
    for (int64_t i = 0; i < depth; i += nr) {
        T *weights = s->weights + i, *slopes = s->slopes + i;
        const int64_t seen = NAME(score)(p, batch, head, query + i, key, keys, s->queries + i * a->width, k, &of_k, weights, ld,
                                        s->factors);
        const T *by_out = s->by_out + i * a->value_width;
        NAME(multiplied)(p->kernel, seen, a->value_width, v, of_v.row, of_v.column, by_out, nr, slopes, ld, 0);
        p->lanes->weigh(seen, nr, weights, ld, s->shift + i, s->share + i);
        if (a->dropout > 0) {
            NAME(keep)(a, batch, head, query + i, least(nr, queries - i), key, seen, s->factors, nr);
            p->lanes->multiply(seen, nr, slopes, ld, s->factors, nr);
        }
        p->lanes->slope(seen, nr, weights, slopes, ld, s->less + i);
        for (int m = 0; m < DG_MASKS; ++m)
            if (p->by_mask[m])
                NAME(add_by_mask)(a, &a->masks[m].gradient, batch, head, query + i, least(nr, queries - i), key, seen, slopes, ld);
        if (a->dropout > 0)
            p->lanes->multiply(seen, nr, weights, ld, s->factors, nr);
        NAME(clear_lanes)(weights, ld, seen, queries - i, nr);
        NAME(clear_lanes)(slopes, ld, seen, queries - i, nr);
        for (int64_t j = seen; j < keys; ++j) {
            memset(weights + j * ld, 0, (size_t)nr * sizeof(T));
            memset(slopes + j * ld, 0, (size_t)nr * sizeof(T));
        }
        if (p->by_queries)
            NAME(multiplied)(p->kernel, a->width, seen, k, of_k.column, of_k.row, slopes, ld, s->by_queries + i * a->width, nr, 1);
    }
    if (!p->by_keys)
        return;
    for (int64_t d = 0; d < p->whole_value_width; d += nr)
        NAME(multiplied)(p->kernel, keys, depth, s->weights, ld, 1, s->by_out_rows + d, p->whole_value_width, by_values + d,
                         p->whole_value_width, 1);
    for (int64_t d = 0; d < p->whole_width; d += nr)
        NAME(multiplied)(p->kernel, keys, depth, s->slopes, ld, 1, s->query_rows + d, p->whole_width, by_keys + d, p->whole_width,
                         1);
}

static void NAME(put_by_queries)(const NAME(plan) *p, const NAME(backward) *s, int64_t batch, int64_t head, int64_t query,
                                 int64_t queries)
{
    const dg_attention *a = p->a;
    const int64_t nr = p->nr;
    T *to = NAME(start)(a, &a->dq, batch, head) + query * a->dq.row;
    p->lanes->scale(p->panels * nr * a->width, s->by_queries, (T)a->scale);
    for (int64_t first = 0; first < queries; first += nr)
        NAME(put_columns)(p->lanes, s->by_queries + first * a->width, nr, least(nr, queries - first), a->width, s->rows, 0, &a->dq,
                          to + first * a->dq.row);
}

static void NAME(put_by_keys)(const LANES *lanes, const dg_attention *a, const dg_tensor *t, int64_t batch, int64_t head, int64_t key,
                              int64_t keys, int64_t width, T *from, int64_t ld, T factor)
{
    if (!t->data)
        return;
    if (factor != 1)
        lanes->scale(keys * ld, from, factor);
    NAME(put_rows)(lanes, keys, width, from, ld, 0, t, NAME(start)(a, t, batch, head) + key * t->row);
}

/* The gradients that come of queries `query` to `end` of heads that share keys, and the keys `key` to `last`. */
static void NAME(gradients)(const NAME(plan) *p, NAME(backward) *s, int64_t batch, int64_t head, int64_t heads,
                            int64_t query, int64_t end, int64_t key, int64_t last)
{
    const dg_attention *a = p->a;
    const int64_t tile = p->panels * p->nr, span = last - key, shared = head / a->shared;
    if (p->by_keys) {
        memset(s->by_keys, 0, (size_t)(span * p->whole_width) * sizeof(T));
        memset(s->by_values, 0, (size_t)(span * p->whole_value_width) * sizeof(T));
    }
    NAME(bring_beside)(p, &s->beside, batch, head, key, last);
    for (int64_t h = head; h < head + heads; ++h)
        for (int64_t i = query; i < end; i += tile) {
            const int64_t queries = least(tile, end - i), seen = a->causal ? least(last, i + queries) : last;
            if (p->by_queries)
                memset(s->by_queries, 0, (size_t)(tile * a->width) * sizeof(T));
            if (key < seen)
                NAME(bring)(p, s, batch, h, i, queries);
            for (int64_t j = key; j < seen; j += KEYS)
                NAME(meet_again)(p, s, batch, h, i, queries, j, least(KEYS, last - j), s->by_keys + (j - key) * p->whole_width,
                                 s->by_values + (j - key) * p->whole_value_width);
            if (p->by_queries)
                NAME(put_by_queries)(p, s, batch, h, i, queries);
        }
    if (p->by_keys) {
        NAME(put_by_keys)(p->lanes, a, &a->dk, batch, shared, key, span, a->width, s->by_keys, p->whole_width, (T)a->scale);
        NAME(put_by_keys)(p->lanes, a, &a->dv, batch, shared, key, span, a->value_width, s->by_values, p->whole_value_width, 1);
    }
}

static void NAME(backward_range)(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    const NAME(plan) *p = (const NAME(plan) *)buffers[0];
    const dg_attention *a = p->a;
    const int64_t key_tiles = (a->keys + KEYS - 1) / KEYS, groups = a->heads / a->shared, tile = p->panels * p->nr;
    NAME(backward) s;
    NAME(backward_scratch)(p, p->by_queries ? a->keys : KEYS, p->scratch + thread * p->scratch_bytes, &s);
    for (int64_t item = lo; item < hi; ++item) {
        if (p->by_queries && p->by_keys) { /* all of the heads that share keys */
            NAME(gradients)(p, &s, item / groups, item % groups * a->shared, a->shared, 0, a->rows, 0, a->keys);
        } else if (p->by_keys) { /* a tile of keys */
            const int64_t unit = item / key_tiles, key = item % key_tiles * KEYS, last = least(key + KEYS, a->keys);
            NAME(gradients)(p, &s, unit / groups, unit % groups * a->shared, a->shared, 0, a->rows, key, last);
        } else { /* a tile of queries */
            const int64_t unit = item / p->tiles, query = item % p->tiles * tile;
            NAME(gradients)(p, &s, unit / a->heads, unit % a->heads, 1, query, least(query + tile, a->rows), 0, a->keys);
        }
    }
}

/* the number of the plan's mask whose gradient alone is computed */
static int NAME(mask_of)(const NAME(plan) *p)
{
    int m = 0;
    while (!p->by_mask[m])
        ++m;
    return m;
}

/* A part of the gradient by a mask: for a tile of its rows and columns, all that it broadcasts over. */
static void NAME(by_mask_range)(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    const NAME(plan) *p = (const NAME(plan) *)buffers[0];
    const dg_attention *a = p->a;
    const dg_tensor *t = &a->masks[NAME(mask_of)(p)].gradient;
    const int64_t rows = t->row ? p->panels * p->nr : a->rows, keys = t->column ? KEYS : a->keys;
    const int64_t row_tiles = (a->rows + rows - 1) / rows, key_tiles = (a->keys + keys - 1) / keys;
    NAME(backward) s;
    NAME(backward_scratch)(p, 0, p->scratch + thread * p->scratch_bytes, &s);
    for (int64_t item = lo; item < hi; ++item) {
        const int64_t unit = item / key_tiles / row_tiles, query = item / key_tiles % row_tiles * rows;
        const int64_t key = item % key_tiles * keys, repeats = a->batches * a->heads / units_of(a, t);
        for (int64_t repeat = 0; repeat < repeats; ++repeat) {
            int64_t batch, head;
            broadcast_place(a, t, unit, repeat, &batch, &head);
            NAME(gradients)(p, &s, batch, head, 1, query, least(query + rows, a->rows), key, least(key + keys, a->keys));
        }
    }
}

/* the gradients by masks that broadcast; the others are left to the parts that compute those by operands */
static int NAME(by_masks)(const dg_runtime *rt, NAME(plan) *p, dg_stop *stop)
{
    const dg_attention *a = p->a;
    NAME(backward) sizes;
    int32_t own[DG_MASKS] = {0};
    int status = 0;
    for (int m = 0; m < DG_MASKS && !status; ++m) {
        const dg_tensor *t = &a->masks[m].gradient;
        if (!t->data)
            continue;
        memset(t->data, 0, (size_t)a->masks[m].gradient_size * sizeof(T));
        const int64_t units = units_of(a, t);
        own[m] = (a->dk.data || a->dv.data) && t->column && units == a->batches * a->heads;
        if (own[m] || a->batches * a->heads * a->rows * a->keys == 0)
            continue;
        p->by_mask[m] = 1;
        p->scratch_bytes = NAME(backward_scratch)(p, 0, NULL, &sizes);
        const int64_t tiles = (t->row ? p->tiles : 1) * (t->column ? (a->keys + KEYS - 1) / KEYS : 1);
        status = on_threads(rt, NAME(by_mask_range), p, &p->scratch, p->scratch_bytes, units * tiles, 1, stop);
        p->by_mask[m] = 0;
    }
    memcpy(p->by_mask, own, sizeof own);
    return status;
}

/* If there are as many heads as threads, or more, they are the parts of the work: each computes all gradients at once.  Else tiles
   of keys are, and then tiles of queries: scores are computed twice.  The sums are the same ones in the same order. */
int JOIN(dg_attention_gradient, SUFFIX)(const dg_runtime *rt, const dg_attention *a, dg_stop *stop)
{
    NAME(plan) p = NAME(planned)(a);
    NAME(backward) sizes;
    int status = NAME(by_masks)(rt, &p, stop);
    if (status)
        return status;
    const int64_t units = a->batches * (a->heads / a->shared), by_keys = a->dk.data || a->dv.data;
    if (by_keys && a->dq.data && (units >= rt->n_threads || rt->n_threads == 1)) {
        p.by_queries = p.by_keys = 1;
        p.scratch_bytes = NAME(backward_scratch)(&p, a->keys, NULL, &sizes);
        return on_threads(rt, NAME(backward_range), &p, &p.scratch, p.scratch_bytes, units, 1, stop);
    }
    if (by_keys) {
        p.by_keys = 1;
        p.scratch_bytes = NAME(backward_scratch)(&p, KEYS, NULL, &sizes);
        const int64_t tiles = units * ((a->keys + KEYS - 1) / KEYS);
        status = on_threads(rt, NAME(backward_range), &p, &p.scratch, p.scratch_bytes, tiles, 1, stop);
    }
    if (a->dq.data && !status) {
        p.by_keys = 0, p.by_queries = 1;
        memset(p.by_mask, 0, sizeof p.by_mask);
        p.scratch_bytes = NAME(backward_scratch)(&p, a->keys, NULL, &sizes);
        status = on_threads(rt, NAME(backward_range), &p, &p.scratch, p.scratch_bytes, a->batches * a->heads * p.tiles, 1, stop);
    }
    return status;
}
