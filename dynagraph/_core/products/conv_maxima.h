/* Maxima of windows, and where they stood, for one dtype and instruction set: part of conv_template.h.

   First the greatest element of each row of a window, for all rows of an array, then the greatest of a window's rows.  `batch` is
   the number of arrays of the last dimensions; where windows share out their rows, several small arrays are as one.  Of several
   equal elements the first is taken, of NaNs the last. */
#define MAXIMA NAME(maxima_work)
#define HALF NAME(half_of_integers)
#define WIDE NAME(wide_integers)
typedef INTEGER HALF __attribute__((vector_size(BYTES / 2), aligned(sizeof(INTEGER)), may_alias));
typedef int64_t WIDE __attribute__((vector_size(BYTES / 2 / sizeof(INTEGER) * sizeof(int64_t)), aligned(8), may_alias));

typedef struct {
    const dg_phase *p;
    int64_t across, down;           /* elements of a window in a row; rows of a window */
    int64_t low, part;              /* where the copy of a row begins; how many of it are a pace apart */
    int64_t rows, row, length;      /* of an array: rows, elements of a row, results of a row */
    int64_t copy, between, results; /* elements in memory: a copied row, maxima of rows, results */
    int64_t own_size;
    T *own; /* of each thread */
    int64_t arrays, plane, n; /* how many are as one; elements and results of one */
} MAXIMA;

/* where the windows at `place` have their first element within the array; -1: nowhere */
static int64_t NAME(first_within)(const dg_phase *p, int axis, int64_t place)
{
    int64_t found = -1;
    for (int64_t t = p->n_taps - 1; t >= 0; --t) {
        const int64_t at = place * p->pace[axis] + p->taps[t].offset[axis];
        found = at >= 0 && at < p->sizes[axis] && (found < 0 || at < found) ? at : found;
    }
    return found;
}

/* what is greater than the greatest so far, and where */
static inline void NAME(keep_greater)(V other, VI place, V *greatest, VI *at)
{
    const VI better = (other > *greatest) | (other != other);
    *greatest = (V)(((VI)other & better) | ((VI)*greatest & ~better));
    *at = (place & better) | (*at & ~better);
}

/* Maxima of the windows' elements in one row, from its copy.  first: of each window, where its first element within the row is;
   null: all are within.  base: the row's place in the array. */
static void NAME(maxima_across)(const MAXIMA *w, const T *copy, const INTEGER *first, INTEGER base, T *best, INTEGER *where)
{
    const int64_t pace = w->p->pace[2];
    for (int64_t x = 0; x < w->length; x += LANES) {
        const VI places = (VI){COUNTED} * (INTEGER)pace + (base + (INTEGER)(x * pace));
        VI at = places + (INTEGER)w->p->taps[0].offset[2];
        V greatest = (V){0} - (T)INFINITY;
        if (first) {
            memcpy(&at, first + x, sizeof at);
            at = (at + base) | (at < 0); /* -1: nowhere */
        }
        for (int64_t t = 0; t < w->across; ++t) {
            const int64_t offset = w->p->taps[t].offset[2], from = offset - w->low;
            const V other = *(const V *)(copy + from % pace * w->part + from / pace + x);
            NAME(keep_greater)(other, places + (INTEGER)offset, &greatest, &at);
        }
        memcpy(best + x, &greatest, sizeof greatest);
        memcpy(where + x, &at, sizeof at);
    }
}

/* Maxima of windows from those of the rows that each has; what is written beyond a row of results is written again. */
static void NAME(maxima_down)(const MAXIMA *w, const T *best, const INTEGER *where, T *to, INTEGER *to_where)
{
    const dg_phase *p = w->p;
    const int64_t width = p->counts[2];
    for (int64_t row = 0; row < p->counts[0] * p->counts[1]; ++row, to += width, to_where += width) {
        const int64_t z = row / p->counts[1] * p->pace[0], y = row % p->counts[1] * p->pace[1];
        for (int64_t x = 0; x < width; x += LANES) {
            V greatest = (V){0} - (T)INFINITY;
            VI at = (VI){0} - 1;
            int is_first = 1;
            for (int64_t t = 0; t < w->down; ++t) {
                const int64_t *offset = p->taps[t * w->across].offset, at_z = z + offset[0], at_y = y + offset[1];
                if (at_z < 0 || at_z >= p->sizes[0] || at_y < 0 || at_y >= p->sizes[1])
                    continue;
                const int64_t from = (at_z * p->sizes[1] + at_y) * width + x;
                const V other = *(const V *)(best + from);
                VI place;
                memcpy(&place, where + from, sizeof place);
                if (is_first) {
                    greatest = other;
                    at = place;
                    is_first = 0;
                } else {
                    NAME(keep_greater)(other, place, &greatest, &at);
                }
            }
            memcpy(to + x, &greatest, sizeof greatest);
            memcpy(to_where + x, &at, sizeof at);
        }
    }
}

/* places in an array, from those in several that are as one, where it begins at `base`; -1: nowhere */
static void NAME(widen)(const INTEGER *from, INTEGER base, int64_t *to, int64_t n)
{
    enum { STEP = sizeof(HALF) / sizeof(INTEGER) };
    int64_t k = 0;
    for (; k + STEP <= n; k += STEP) {
        const HALF at = *(const HALF *)(from + k);
        *(WIDE *)(to + k) = __builtin_convertvector((at - base) | (at < 0), WIDE);
    }
    for (; k < n; ++k)
        to[k] = from[k] < 0 ? -1 : from[k] - base;
}

/* a row of n elements from the one at `low`, those that are a pace apart side by side: `part` of them, but for what is beyond it */
static void NAME(copy_row)(const T *row, int64_t n, int64_t low, int64_t part, int64_t pace, T *copy)
{
    const int64_t begin = low < 0 ? 0 : low, reach = low + part * pace, end = reach < n ? reach : n;
    for (int64_t first = begin; first < begin + pace && first < end; ++first)
        NAME(pick_rows)(copy + (first - low) % pace * part + (first - low) / pace, 0, row + first, 0, 1,
                        (end - first + pace - 1) / pace, pace);
}

static void NAME(run_maxima)(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    const MAXIMA *w = buffers[0];
    const dg_phase *p = w->p;
    const int64_t plane = w->arrays * w->plane, n = w->arrays * w->n;
    const int is_whole = w->length != p->counts[2];
    T *copy = w->own + thread * w->own_size, *best = copy + w->copy, *to = best + w->between;
    INTEGER *where = (INTEGER *)(to + w->results), *to_where = where + w->between, *first = to_where + w->results;
    for (int64_t k = 0; k < w->copy; ++k)
        copy[k] = -(T)INFINITY;
    for (int64_t x = 0; x < p->counts[2]; ++x)
        first[x] = (INTEGER)NAME(first_within)(p, 2, x);
    for (int64_t number = lo; number < hi; ++number) {
        for (int64_t row = 0; row < w->rows; ++row) {
            NAME(copy_row)((const T *)p->source + number * plane + row * w->row, w->row, w->low, w->part, p->pace[2], copy);
            NAME(maxima_across)(w, copy, is_whole ? NULL : first, (INTEGER)(row * w->row), best + row * w->length,
                                where + row * w->length);
        }
        NAME(maxima_down)(w, best, where, to, to_where);
        if (p->out)
            memcpy((T *)p->out + number * n, to, sizeof(T) * (size_t)n);
        for (int64_t k = 0; p->where && k < w->arrays; ++k)
            NAME(widen)(to_where + k * w->n, (INTEGER)(k * w->plane), p->where + number * n + k * w->n, w->n);
    }
}

/* Of so many arrays, which lie one after another, `arrays` at a time. */
static int NAME(maxima_of)(const dg_phase *p, int64_t arrays)
{
    MAXIMA w = {.p = p, .arrays = arrays, .plane = dg_conv_volume(p->sizes) / arrays, .n = dg_conv_volume(p->counts) / arrays,
                .across = 1, .rows = p->sizes[0] * p->sizes[1], .row = p->sizes[2], .length = p->counts[2]};
    const int64_t pace = p->pace[2];
    while (w.across < p->n_taps && p->taps[w.across].offset[2] > p->taps[w.across - 1].offset[2])
        ++w.across;
    w.down = p->n_taps / w.across;
    w.low = p->taps[0].offset[2];
    int64_t high = p->taps[w.across - 1].offset[2];
    if (w.low >= 0 && high < pace && pace * p->counts[2] == p->sizes[2] && w.rows > 1) { /* all rows are as one */
        w.length *= w.rows;
        w.row *= w.rows;
        w.rows = 1;
    }
    w.part = (high - w.low + pace * (w.length - 1)) / pace + 1;
    w.copy = w.part * pace + LANES;
    w.between = w.rows * w.length + LANES;
    w.results = dg_conv_volume(p->counts) + LANES;
    w.own_size = w.copy + 2 * (w.between + w.results) + p->counts[2] + LANES;
    if (dg_conv_volume(p->counts) == 0)
        return 0;
    w.own = p->rt->take(sizeof(T) * (size_t)(p->stop->threads * w.own_size));
    if (!w.own)
        return DG_NO_MEMORY;
    void *const buffers[] = {&w};
    const double touched = (double)(w.between * (w.across + 2)) + (double)(w.results * (w.down + 2));
    dg_conv_share(p, NAME(run_maxima), buffers, p->batch, touched * 0.2);
    p->rt->give(w.own);
    return dg_conv_status(p);
}

/* whether each row belongs to the windows of one row of results only, and none to the border */
static int NAME(rows_are_shared_out)(const dg_phase *p)
{
    int is_so = p->sizes[0] == 1 && p->counts[0] == 1 && p->pace[1] * p->counts[1] == p->sizes[1];
    for (int64_t t = 0; is_so && t < p->n_taps; ++t)
        is_so = p->taps[t].offset[0] == 0 && p->taps[t].offset[1] >= 0 && p->taps[t].offset[1] < p->pace[1];
    return is_so;
}

static int NAME(maxima)(const dg_phase *p)
{
    enum { TOGETHER = 1 << 11 }; /* elements: what is done at a time stays in the nearest cache */
    const int64_t plane = dg_conv_volume(p->sizes), most = plane > 0 ? TOGETHER / plane : 0;
    if (most < 2 || p->batch < 2 || !NAME(rows_are_shared_out)(p))
        return NAME(maxima_of)(p, 1);
    dg_phase several = *p;
    int status = 0;
    for (int64_t arrays = most < p->batch ? most : p->batch, done = 0; done < p->batch && !status; arrays = p->batch - done) {
        several.batch = (p->batch - done) / arrays;
        several.sizes[1] = p->sizes[1] * arrays;
        several.counts[1] = p->counts[1] * arrays;
        several.source = (const T *)p->source + done * plane;
        several.out = p->out ? (T *)p->out + done * dg_conv_volume(p->counts) : NULL;
        several.where = p->where ? p->where + done * dg_conv_volume(p->counts) : NULL;
        status = NAME(maxima_of)(&several, arrays);
        done += several.batch * arrays;
    }
    return status;
}
#undef MAXIMA
#undef HALF
#undef WIDE
