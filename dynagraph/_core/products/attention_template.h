/* Attention of one dtype.  Included with T and SUFFIX; attention.c says how it goes. */
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(what) JOIN(what, SUFFIX)
#define KERNEL JOIN(dg_kernel, SUFFIX)
#define LANES JOIN(dg_lanes, SUFFIX)

typedef struct {
    const dg_attention *a;
    const KERNEL *kernel;
    const LANES *lanes;
    int64_t nr, panels, tiles; /* queries of a panel, panels of a tile, tiles of queries of a head */
    int64_t whole_width, whole_value_width; /* in whole panels */
    int32_t by_queries, by_keys;            /* what a part of the gradients computes */
    int32_t by_mask[DG_MASKS];              /* likewise */
    int64_t beside; /* how many scattered rows of keys and of values there is room for side by side; 0: they are read where they lie */
    char *scratch;
    int64_t scratch_bytes; /* of a thread */
} NAME(plan);

/* Keys `first` to `last` of a head side by side, and their values: what is scattered of them; or a tile at a time. */
typedef struct {
    T *keys, *values;
    int64_t batch, head, first, last;
} NAME(beside);

static T *NAME(start)(const dg_attention *a, const dg_tensor *t, int64_t batch, int64_t head)
{
    return (T *)t->data + batch_offset(a, t, batch) + head * t->head;
}

/* c = or += a(rows, k) @ b(k, nr), for any number of rows */
static void NAME(multiplied)(const KERNEL *kernel, int64_t rows, int64_t k, const T *a, int64_t outer, int64_t inner, const T *b,
                             int64_t ldb, T *c, int64_t ldc, int accumulate)
{
    for (int64_t r = 0; r < rows; r += kernel->mr)
        kernel->direct(least(kernel->mr, rows - r), k, a + r * outer, outer, inner, b, ldb, c + r * ldc, ldc, accumulate);
}

/* queries (or gradients) `first` on as panels of columns: to[d * nr + query], times a factor */
static void NAME(pack_columns)(const LANES *lanes, const T *from, const dg_tensor *t, int64_t first, int64_t count, int64_t width,
                               int64_t nr, T factor, T *to)
{
    const dg_matrix matrix = {.data = from, .element = ELEMENT(SUFFIX), .outer = t->row, .inner = t->column};
    for (int64_t done = 0; done < count; done += nr, to += width * nr) {
        JOIN(dg_pack_matrix, SUFFIX)(&matrix, 0, first + done, least(nr, count - done), 0, width, nr, to);
        if (factor != 1)
            lanes->scale(width * nr, to, factor);
    }
}

/* rows `first` on, `count` of them and zeros up to `whole`, each filled up to `columns` */
static void NAME(pack_rows)(const LANES *lanes, const T *from, const dg_tensor *t, int64_t first, int64_t count, int64_t whole,
                            int64_t width, int64_t columns, T *to)
{
    const T *row = from + first * t->row;
    if (t->column == 1)
        lanes->copy(count, width, row, t->row, to, columns);
    else
        for (int64_t r = 0; r < count; ++r)
            for (int64_t d = 0; d < width; ++d)
                to[r * columns + d] = row[r * t->row + d * t->column];
    for (int64_t r = 0; r < count && columns > width; ++r)
        memset(to + r * columns + width, 0, (size_t)(columns - width) * sizeof(T));
    memset(to + count * columns, 0, (size_t)((whole - count) * columns) * sizeof(T));
}

/* `count` rows that lie `ld` elements apart, as rows of an array; `zero` is added, which of -0 changes nothing, of 0 what is -0 */
static void NAME(put_rows)(const LANES *lanes, int64_t count, int64_t width, const T *rows, int64_t ld, T zero, const dg_tensor *t, T *to)
{
    if (t->column == 1)
        lanes->put(count, width, rows, ld, zero, to, t->row);
    else
        for (int64_t i = 0; i < count; ++i)
            for (int64_t d = 0; d < width; ++d)
                to[i * t->row + d * t->column] = rows[i * ld + d] + zero;
}

/* a panel of columns, `columns` of them, as rows of an array; `rows` is room for one panel */
static void NAME(put_columns)(const LANES *lanes, const T *panel, int64_t nr, int64_t columns, int64_t width, T *rows, T zero,
                              const dg_tensor *t, T *to)
{
    const dg_matrix matrix = {.data = panel, .element = ELEMENT(SUFFIX), .outer = nr, .inner = 1};
    if (width)
        JOIN(dg_pack_matrix, SUFFIX)(&matrix, 0, 0, width, 0, columns, width, rows);
    NAME(put_rows)(lanes, columns, width, rows, width, zero, t, to);
}

/* room in a thread's memory */
static void NAME(carve_beside)(const NAME(plan) *p, char **at, NAME(beside) *b)
{
    b->keys = carve(at, p->beside * p->a->width, sizeof(T));
    b->values = carve(at, p->beside * p->a->value_width, sizeof(T));
    b->first = b->last = 0;
}

/* What is scattered of keys `first` to `last` and their values is put side by side, where it is not yet and there is room. */
static void NAME(bring_beside)(const NAME(plan) *p, NAME(beside) *b, int64_t batch, int64_t head, int64_t first, int64_t last)
{
    const dg_attention *a = p->a;
    head /= a->shared;
    if (last - first > p->beside) {
        b->first = b->last = 0;
        return;
    }
    if (b->last > b->first && b->batch == batch && b->head == head && b->first <= first && last <= b->last)
        return;
    b->batch = batch, b->head = head, b->first = first, b->last = last;
    const int64_t n = last - first;
    if (scattered(&a->k, a->width, sizeof(T)))
        NAME(pack_rows)(p->lanes, NAME(start)(a, &a->k, batch, head), &a->k, first, n, n, a->width, a->width, b->keys);
    if (scattered(&a->v, a->value_width, sizeof(T)))
        NAME(pack_rows)(p->lanes, NAME(start)(a, &a->v, batch, head), &a->v, first, n, n, a->value_width, a->value_width, b->values);
}

/* The rows of a tile of keys or values, of tensor t: where they lie, or in `room` side by side; t then says how they lie there. */
static const T *NAME(tile_rows)(const NAME(plan) *p, const NAME(beside) *b, dg_tensor *t, int64_t batch, int64_t head, int64_t key,
                                int64_t keys, int64_t width, T *room)
{
    const T *from = NAME(start)(p->a, t, batch, head / p->a->shared);
    if (!p->beside || !scattered(t, width, sizeof(T)))
        return from + key * t->row;
    if (b->last > b->first)
        room += (key - b->first) * width;
    else
        NAME(pack_rows)(p->lanes, from, t, key, keys, keys, width, width, room);
    t->row = width;
    t->column = 1;
    return room;
}

/* A mask on scores of keys `key` on and queries `query` on: its numbers, or minus infinity where it hides; `room` is for a panel. */
static void NAME(put_mask)(const NAME(plan) *p, const dg_mask *mask, int64_t batch, int64_t head, int64_t query, int64_t queries,
                           int64_t key, int64_t keys, T *scores, int64_t ld, T *room)
{
    static const T hidden[] = {-(T)__builtin_inf(), 0};
    const dg_tensor *m = &mask->t;
    const int64_t at = batch_offset(p->a, m, batch) + head * m->head + query * m->row + key * m->column, nr = p->nr;
    if (mask->of_bools) {
        const char *bools = (const char *)m->data + at;
        const int64_t own = m->row ? queries : 1; /* else one for all queries */
        for (int64_t j = 0; j < keys; ++j)
            for (int64_t i = 0; i < own; ++i)
                room[j * nr + i] = hidden[bools[j * m->column + i * m->row] != 0];
        p->lanes->hide(keys, nr, scores, ld, room, nr, m->row == 0);
    } else {
        const T *numbers = (const T *)m->data + at;
        const dg_matrix matrix = {.data = numbers, .element = ELEMENT(SUFFIX), .outer = m->row, .inner = m->column};
        if (m->row)
            JOIN(dg_pack_matrix, SUFFIX)(&matrix, 0, 0, queries, 0, keys, nr, room);
        p->lanes->add(keys, nr, scores, ld, m->row ? room : numbers, m->row ? nr : m->column, m->row == 0);
    }
}

/* Scores of a panel of queries, masked; gives how many of the keys any of them sees.  `room` is for a panel. */
static int64_t NAME(score)(const NAME(plan) *p, int64_t batch, int64_t head, int64_t query, int64_t key, int64_t keys,
                           const T *queries, const T *of_keys, const dg_tensor *k, T *scores, int64_t ld, T *room)
{
    const dg_attention *a = p->a;
    const int64_t n = least(p->nr, a->rows - query);
    if (a->causal)
        keys = least(keys, query + n - key);
    if (keys <= 0)
        return 0;
    NAME(multiplied)(p->kernel, keys, a->width, of_keys, k->row, k->column, queries, p->nr, scores, ld, 0);
    for (int m = 0; m < DG_MASKS; ++m)
        if (a->masks[m].t.data)
            NAME(put_mask)(p, &a->masks[m], batch, head, query, n, key, keys, scores, ld, room);
    if (a->causal)
        for (int64_t j = key > query ? 0 : query - key + 1; j < keys; ++j)
            for (int64_t i = 0; i < n && query + i < key + j; ++i)
                scores[j * ld + i] = -(T)__builtin_inf();
    return keys;
}

/* zeros where there are no queries */
static void NAME(clear_lanes)(T *tile, int64_t ld, int64_t keys, int64_t queries, int64_t nr)
{
    for (int64_t j = 0; queries < nr && j < keys; ++j)
        memset(tile + j * ld + queries, 0, (size_t)(nr - queries) * sizeof(T));
}

/* 1 / (1 - p) where a weight stays, else 0 */
static void NAME(keep)(const dg_attention *a, int64_t batch, int64_t head, int64_t query, int64_t queries, int64_t key,
                       int64_t keys, T *factors, int64_t nr)
{
    const double kept = 1 - a->dropout, bound = __builtin_rint(kept * 0x1p32);
    const uint64_t threshold = bound <= 0 ? 0 : (uint64_t)bound;
    const T factor = (T)(1 / kept);
    uint32_t words[KEYS + 8];
    for (int64_t i = 0; i < queries; ++i) {
        const uint64_t first = (((uint64_t)batch * a->heads + head) * a->rows + query + i) * a->keys + key;
        philox(a->seed, a->offset + first / 4, (first % 4 + keys + 3) / 4, words);
        for (int64_t j = 0; j < keys; ++j)
            factors[j * nr + i] = words[first % 4 + j] < threshold ? factor : 0;
    }
    NAME(clear_lanes)(factors, nr, keys, queries, nr);
}

/* -- forward ---------------------------------------------------------------------------------------------------------------- */

typedef struct {
    T *queries, *acc, *scores, *factors, *top, *sum, *rows;
    NAME(beside) beside;
} NAME(forward);

static int64_t NAME(forward_scratch)(const NAME(plan) *p, char *memory, NAME(forward) *s)
{
    const dg_attention *a = p->a;
    const int64_t queries = p->panels * p->nr;
    char *at = memory;
    s->queries = carve(&at, queries * a->width, sizeof(T));
    s->acc = carve(&at, queries * a->value_width, sizeof(T));
    s->scores = carve(&at, KEYS * p->nr, sizeof(T));
    s->factors = carve(&at, KEYS * p->nr, sizeof(T));
    s->top = carve(&at, queries, sizeof(T));
    s->sum = carve(&at, queries, sizeof(T));
    NAME(carve_beside)(p, &at, &s->beside);
    s->rows = carve(&at, p->nr * a->value_width, sizeof(T));
    return at - memory;
}

/* A panel of queries meets a tile of keys. */
static void NAME(meet)(const NAME(plan) *p, const NAME(forward) *s, int64_t panel, int64_t batch, int64_t head, int64_t query,
                       int64_t key, int64_t keys, const T *of_keys, const dg_tensor *k, const T *values, const dg_tensor *v)
{
    const dg_attention *a = p->a;
    const int64_t nr = p->nr;
    T *acc = s->acc + panel * nr * a->value_width;
    keys = NAME(score)(p, batch, head, query, key, keys, s->queries + panel * nr * a->width, of_keys, k, s->scores, nr,
                       s->factors);
    if (!keys)
        return;
    p->lanes->online(keys, nr, s->scores, nr, s->top + panel * nr, s->sum + panel * nr, acc, nr, a->value_width);
    if (a->dropout > 0) {
        NAME(keep)(a, batch, head, query, least(nr, a->rows - query), key, keys, s->factors, nr);
        p->lanes->multiply(keys, nr, s->scores, nr, s->factors, nr);
    }
    NAME(multiplied)(p->kernel, a->value_width, keys, values, v->column, v->row, s->scores, nr, acc, nr, 1);
}

static void NAME(finish)(const NAME(plan) *p, const NAME(forward) *s, int64_t batch, int64_t head, int64_t query, int64_t queries)
{
    const dg_attention *a = p->a;
    const int64_t nr = p->nr, width = a->value_width;
    T *out = NAME(start)(a, &a->out, batch, head) + query * a->out.row;
    T *sums = NAME(start)(a, &a->sums, batch, head) + query * a->sums.row;
    for (int64_t i = 0; i < queries; ++i, sums += a->sums.row) {
        sums[0] = s->top[i];
        sums[a->sums.column] = s->sum[i];
    }
    for (int64_t i = 0; i < p->panels * nr; ++i)
        s->sum[i] = s->sum[i] == 0 ? 0 : 1 / s->sum[i];
    for (int64_t first = 0; first < queries; first += nr) {
        T *acc = s->acc + first * width;
        p->lanes->multiply(width, nr, acc, nr, s->sum + first, 0);
        NAME(put_columns)(p->lanes, acc, nr, least(nr, queries - first), width, s->rows, -0.0, &a->out, out + first * a->out.row);
    }
}

static void NAME(forward_range)(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    const NAME(plan) *p = (const NAME(plan) *)buffers[0];
    const dg_attention *a = p->a;
    const int64_t nr = p->nr, tile = p->panels * nr;
    NAME(forward) s;
    NAME(forward_scratch)(p, p->scratch + thread * p->scratch_bytes, &s);
    for (int64_t item = lo; item < hi; ++item) {
        const int64_t unit = item / p->tiles, batch = unit / a->heads, head = unit % a->heads;
        const int64_t query = item % p->tiles * tile, queries = least(tile, a->rows - query);
        const int64_t visible = a->causal ? least(a->keys, query + queries) : a->keys;
        NAME(pack_columns)(p->lanes, NAME(start)(a, &a->q, batch, head), &a->q, query, queries, a->width, nr,
                           (T)(a->scale * LOG2_E), s.queries);
        memset(s.acc, 0, (size_t)(tile * a->value_width) * sizeof(T));
        for (int64_t i = 0; i < tile; ++i) {
            s.top[i] = -(T)__builtin_inf();
            s.sum[i] = 0;
        }
        NAME(bring_beside)(p, &s.beside, batch, head, 0, a->keys);
        for (int64_t key = 0; key < visible; key += KEYS) {
            const int64_t keys = least(KEYS, visible - key);
            dg_tensor of_k = a->k, of_v = a->v;
            const T *keys_at = NAME(tile_rows)(p, &s.beside, &of_k, batch, head, key, keys, a->width, s.beside.keys);
            const T *values_at = NAME(tile_rows)(p, &s.beside, &of_v, batch, head, key, keys, a->value_width, s.beside.values);
            for (int64_t i = 0; i < queries; i += nr)
                NAME(meet)(p, &s, i / nr, batch, head, query + i, key, keys, keys_at, &of_k, values_at, &of_v);
        }
        NAME(finish)(p, &s, batch, head, query, queries);
    }
}

static NAME(plan) NAME(planned)(const dg_attention *a)
{
    NAME(plan) p = {.a = a, .kernel = JOIN(dg_kernel_of, SUFFIX)()};
    p.lanes = JOIN(dg_lanes_of, SUFFIX)(p.kernel->isa);
    p.nr = p.kernel->nr;
    p.panels = least((a->rows + p.nr - 1) / p.nr, (QUERIES + p.nr - 1) / p.nr);
    p.panels = p.panels < 1 ? 1 : p.panels;
    p.tiles = (a->rows + p.panels * p.nr - 1) / (p.panels * p.nr);
    if (p.panels > 1 && (scattered(&a->k, a->width, sizeof(T)) || scattered(&a->v, a->value_width, sizeof(T))))
        p.beside = a->keys > KEYS && a->keys <= BESIDE_BYTES / ((a->width + a->value_width + 1) * (int64_t)sizeof(T)) ? a->keys : KEYS;
    p.whole_width = (a->width + p.nr - 1) / p.nr * p.nr;
    p.whole_value_width = (a->value_width + p.nr - 1) / p.nr * p.nr;
    return p;
}

#include "attention_query_template.h"

int JOIN(dg_attention, SUFFIX)(const dg_runtime *rt, const dg_attention *a, dg_stop *stop)
{
    NAME(plan) p = NAME(planned)(a);
    NAME(forward) sizes;
    p.scratch_bytes = NAME(forward_scratch)(&p, NULL, &sizes);
    if (NAME(is_query)(&p))
        return on_threads(rt, NAME(query_range), &p, &p.scratch, p.scratch_bytes, a->batches * a->heads, 1, stop);
    const int64_t units = a->batches * a->heads, part = units < FEW_HEADS * rt->n_threads ? 1 : p.tiles;
    return on_threads(rt, NAME(forward_range), &p, &p.scratch, p.scratch_bytes, units * p.tiles, part, stop);
}

#include "attention_gradient_template.h"

#undef JOIN_
#undef JOIN
#undef NAME
#undef KERNEL
#undef LANES
#undef T
#undef SUFFIX
