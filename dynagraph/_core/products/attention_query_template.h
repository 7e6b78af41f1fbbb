/* Attention of one query, as a decoder has it for each new token, of one dtype.  Included by attention_template.h.

   Keys lie in lanes, where tiles have queries: so each key and each value is read once, and no lane is empty.  Terms are added in
   the order of tiles, so that the query has the bits that it has beside others. */

/* whether this is one, whose keys and values can be read so */
static int NAME(is_query)(const NAME(plan) *p)
{
    const dg_attention *a = p->a;
    return a->rows == 1 && a->dropout == 0 && p->kernel->turned && 4 * p->kernel->turned_columns <= KEYS &&
           a->keys >= 4 * p->kernel->turned_columns && a->k.column == 1 && a->v.column == 1;
}

/* scores of keys `first` to `last`, of which there is one at least */
static void NAME(score_keys)(const NAME(plan) *p, const T *query, const T *keys, int64_t first, int64_t last, T *scores)
{
    const dg_attention *a = p->a;
    const int64_t side = p->kernel->turned_columns, step = 4 * side, row = a->k.row;
    const int64_t same[] = {0, 0}, groups[] = {side * row, 2 * side * row};
    T found[DG_MAX_NR];
    for (int64_t key = first; key < last; key += step) {
        const int64_t from = least(key, a->keys - step), n = least(step, last - key); /* the last keys with some before them */
        p->kernel->turned(a->width, query, 1, same, keys + from * row, row, groups, keys + least(from + step, a->keys - step) * row,
                          found);
        memcpy(scores + key - first, found + key - from, (size_t)n * sizeof(T));
    }
}

/* A mask on scores of the keys from `key` on; `room` is for a tile. */
static void NAME(mask_keys)(const NAME(plan) *p, const dg_mask *mask, int64_t batch, int64_t head, int64_t key, int64_t keys,
                            T *scores, T *room)
{
    const dg_tensor *m = &mask->t;
    const int64_t at = batch_offset(p->a, m, batch) + head * m->head + key * m->column;
    memset(room, 0, KEYS * sizeof(T));
    for (int64_t j = 0; j < keys; ++j)
        if (!mask->of_bools)
            room[j] = ((const T *)m->data)[at + j * m->column];
        else if (!((const char *)m->data)[at + j * m->column])
            room[j] = -(T)__builtin_inf();
    (mask->of_bools ? p->lanes->hide : p->lanes->add)(1, KEYS, scores, KEYS, room, KEYS, 0);
}

static void NAME(query_range)(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    const NAME(plan) *p = (const NAME(plan) *)buffers[0];
    const dg_attention *a = p->a;
    NAME(forward) s;
    NAME(forward_scratch)(p, p->scratch + thread * p->scratch_bytes, &s);
    for (int64_t item = lo; item < hi; ++item) {
        const int64_t batch = item / a->heads, head = item % a->heads, visible = a->causal ? 1 : a->keys;
        const T *k = NAME(start)(a, &a->k, batch, head / a->shared), *v = NAME(start)(a, &a->v, batch, head / a->shared);
        T *sums = NAME(start)(a, &a->sums, batch, head), *scores = s.scores, *room = s.factors;
        NAME(pack_rows)(p->lanes, NAME(start)(a, &a->q, batch, head), &a->q, 0, 1, 1, a->width, a->width, s.queries);
        p->lanes->scale(a->width, s.queries, (T)(a->scale * LOG2_E));
        memset(s.acc, 0, (size_t)a->value_width * sizeof(T));
        s.top[0] = -(T)__builtin_inf();
        s.sum[0] = 0;
        for (int64_t key = 0; key < visible; key += KEYS) {
            const int64_t keys = least(KEYS, visible - key);
            NAME(score_keys)(p, s.queries, k, key, key + keys, scores);
            for (int m = 0; m < DG_MASKS; ++m)
                if (a->masks[m].t.data)
                    NAME(mask_keys)(p, &a->masks[m], batch, head, key, keys, scores, room);
            for (int64_t j = keys; j < KEYS; ++j)
                scores[j] = -(T)__builtin_inf();
            p->lanes->online_keys(keys, KEYS, scores, s.top, s.sum, s.acc, a->value_width);
            p->kernel->few(1, keys, scores, 0, 1, v + key * a->v.row, a->v.row, a->value_width, s.acc, 0, 1);
        }
        sums[0] = s.top[0];
        sums[a->sums.column] = s.sum[0];
        p->lanes->scale(a->value_width, s.acc, s.sum[0] == 0 ? 0 : 1 / s.sum[0]);
        NAME(put_rows)(p->lanes, 1, a->value_width, s.acc, 0, -0.0, &a->out, NAME(start)(a, &a->out, batch, head));
    }
}
