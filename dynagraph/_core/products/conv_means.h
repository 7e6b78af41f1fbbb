/* Means of windows, and the way back, for one dtype and instruction set: part of conv_template.h.

   A window's elements are added up row by row, then its rows, then its planes, as NumPy's operations on slices of an array with a
   border of zeros do; the way back takes the axes in the other order.  `batch` is the number of boxes of the last dimensions. */
#define MEANS NAME(means_work)

typedef struct {
    const dg_pooling *what;
    const T *from;
    T *to;
    int64_t rows, row, length;   /* of a box: rows, elements of a row, sums of a row */
    int64_t part, before;        /* places of a row that are a pace apart; zeros before the sums that are spread */
    int64_t sizes[5], own_size;  /* what each thread has memory for, one after the other */
    T *own;
} MEANS;

typedef struct {
    int64_t first, end;
} NAME(range);
#define RANGE NAME(range)

/* the elements of a window within an axis */
static inline RANGE NAME(elements)(const dg_pooling *p, int axis, int64_t window)
{
    const int64_t start = window * p->stride[axis] - p->before[axis], end = start + p->kernel[axis];
    return (RANGE){start > 0 ? start : 0, end < p->sizes[axis] ? end : p->sizes[axis]};
}

/* the windows along an axis that have an element */
static inline RANGE NAME(windows)(const dg_pooling *p, int axis, int64_t element)
{
    const int64_t last = element + p->before[axis], first = last - p->kernel[axis] + 1, pace = p->stride[axis];
    const int64_t end = last / pace + 1;
    return (RANGE){first > 0 ? (first + pace - 1) / pace : 0, end < p->counts[axis] ? end : p->counts[axis]};
}

/* how many elements of an axis a window counts */
static inline int64_t NAME(counted)(const dg_pooling *p, int axis, int64_t window)
{
    const int64_t start = window * p->stride[axis] - p->before[axis], all = p->sizes[axis] + p->before[axis];
    const int64_t end = start + p->kernel[axis] < all ? start + p->kernel[axis] : all;
    if (p->whole)
        return end - start;
    return (end < p->sizes[axis] ? end : p->sizes[axis]) - (start > 0 ? start : 0);
}

/* what a row of windows is divided by, if `area` is not that of the row before */
static void NAME(divisors_of)(const dg_pooling *p, int64_t row, int64_t *area, T *divisors)
{
    const int64_t found = p->divisor ? 1 : NAME(counted)(p, 0, row / p->counts[1]) * NAME(counted)(p, 1, row % p->counts[1]);
    if (found == *area)
        return;
    for (int64_t x = 0; x < p->counts[2]; ++x)
        divisors[x] = (T)(p->divisor ? p->divisor : found * NAME(counted)(p, 2, x));
    *area = found;
}

/* -- means ------------------------------------------------------------------------------------------------------------------- */

/* sums of the windows' elements in one row, from its copy */
static void NAME(sums_across)(const MEANS *w, const T *copy, T *to)
{
    const int64_t pace = w->what->stride[2];
    for (int64_t x = 0; x < w->length; x += LANES) {
        V total = *(const V *)(copy + x);
        for (int64_t t = 1, phase = 0, at = x; t < w->what->kernel[2]; ++t) {
            if (++phase == pace) {
                phase = 0;
                ++at;
            }
            total += *(const V *)(copy + phase * w->part + at);
        }
        memcpy(to + x, &total, sizeof total);
    }
}

/* means of a row of windows from the sums of rows; what is written beyond is no result */
static void NAME(means_down)(const dg_pooling *p, const T *sums, int64_t row, const T *divisors, T *to)
{
    const RANGE zs = NAME(elements)(p, 0, row / p->counts[1]), ys = NAME(elements)(p, 1, row % p->counts[1]);
    const int64_t width = p->counts[2], plane = p->sizes[1] * width;
    /* zeros of the border are added to sums, which makes 0.0 of -0.0 */
    const int is_within = zs.end - zs.first == p->kernel[0] && ys.end - ys.first == p->kernel[1];
    for (int64_t x = 0; x < width; x += LANES) {
        V total = {0};
        for (int64_t z = zs.first; z < zs.end && ys.first < ys.end; ++z) {
            const T *from = sums + z * plane + ys.first * width + x;
            V sum = *(const V *)from;
            for (int64_t y = ys.first + 1; y < ys.end; ++y) {
                from += width;
                sum += *(const V *)from;
            }
            if (z > zs.first)
                sum = total + sum;
            total = sum;
        }
        if (!is_within)
            total += (V){0};
        total /= *(const V *)(divisors + x);
        memcpy(to + x, &total, sizeof total);
    }
}

static void NAME(run_means)(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    const MEANS *w = buffers[0];
    const dg_pooling *p = w->what;
    const int64_t plane = w->rows * w->row, n = dg_conv_volume(p->counts), width = p->counts[2];
    T *copy = w->own + thread * w->own_size, *sums = copy + w->sizes[0], *divisors = sums + w->sizes[1];
    T *last = divisors + w->sizes[2];
    int64_t area = -1;
    memset(copy, 0, sizeof(T) * (size_t)w->sizes[0]);
    for (int64_t number = lo; number < hi; ++number) {
        for (int64_t row = 0; row < w->rows; ++row) {
            NAME(copy_row)(w->from + number * plane + row * w->row, w->row, -p->before[2], w->part, p->stride[2], copy);
            NAME(sums_across)(w, copy, sums + row * w->length);
        }
        for (int64_t row = 0, at = 0; at < n; ++row, at += width) {
            T *to = w->to + number * n + at;
            const int is_last = at + width + LANES > n; /* vectors would reach beyond the box, which may be another thread's */
            NAME(divisors_of)(p, row, &area, divisors);
            NAME(means_down)(p, sums, row, divisors, is_last ? last : to);
            if (is_last)
                memcpy(to, last, sizeof(T) * (size_t)width);
        }
    }
}

/* -- the way back ------------------------------------------------------------------------------------------------------------- */

/* 0 + the last of rows + ... + the first */
static void NAME(add_back)(const T *rows, int64_t between, RANGE r, int64_t n, T *to)
{
    for (int64_t x = 0; x < n; x += LANES) {
        V total = {0};
        for (int64_t k = r.end - 1; k >= r.first; --k)
            total += *(const V *)(rows + k * between + x);
        memcpy(to + x, &total, sizeof total);
    }
}

/* what comes to the elements q * pace + phase of a row with its border, from `at`: of window q */
static inline V NAME(spread)(const dg_pooling *p, const T *at, int64_t phase)
{
    V total = {0};
    for (int64_t t = phase; t < p->kernel[2]; t += p->stride[2], --at)
        total += *(const V *)at;
    return total;
}

/* the first of each, the second of each... */
static inline void NAME(put_in_turn)(V even, V odd, T *to)
{
#ifdef __clang__
    for (int64_t k = 0; k < LANES; ++k) {
        to[2 * k] = even[k];
        to[2 * k + 1] = odd[k];
    }
#else
    const VI counted = {COUNTED}, places = (counted >> 1) + (counted & 1) * LANES;
    const V first = __builtin_shuffle(even, odd, places), second = __builtin_shuffle(even, odd, places + LANES / 2);
    memcpy(to, &first, sizeof first);
    memcpy(to + LANES, &second, sizeof second);
#endif
}

/* a row of elements, with its border, from what comes to its windows */
static void NAME(spread_across)(const MEANS *w, const T *from, T *to)
{
    const dg_pooling *p = w->what;
    const int64_t pace = p->stride[2];
    for (int64_t q = 0; q < w->part; q += LANES) {
        if (pace == 2) {
            NAME(put_in_turn)(NAME(spread)(p, from + q, 0), NAME(spread)(p, from + q, 1), to + 2 * q);
            continue;
        }
        for (int64_t phase = 0; phase < pace; ++phase) {
            const V some = NAME(spread)(p, from + q, phase);
            if (pace == 1)
                memcpy(to + q, &some, sizeof some);
            else
                for (int64_t k = 0; k < LANES && q + k < w->part; ++k)
                    to[(q + k) * pace + phase] = some[k];
        }
    }
}

static void NAME(shares_of)(const dg_pooling *p, const T *from, int64_t *area, T *divisors, T *to)
{
    const int64_t width = p->counts[2], n = dg_conv_volume(p->counts);
    for (int64_t row = 0, at = 0; at < n; ++row, at += width) {
        int64_t x = 0;
        NAME(divisors_of)(p, row, area, divisors);
        for (; x + LANES <= width; x += LANES) {
            const V share = *(const V *)(from + at + x) / *(const V *)(divisors + x);
            memcpy(to + at + x, &share, sizeof share);
        }
        for (; x < width; ++x)
            to[at + x] = from[at + x] / divisors[x];
    }
}

static void NAME(run_means_back)(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    const MEANS *w = buffers[0];
    const dg_pooling *p = w->what;
    const int64_t size = dg_conv_volume(p->sizes), n = dg_conv_volume(p->counts), width = p->counts[2], plane = p->counts[1] * width;
    T *shares = w->own + thread * w->own_size, *planes = shares + w->sizes[0], *divisors = planes + w->sizes[1];
    T *sums = divisors + w->sizes[2], *made = sums + w->sizes[3];
    int64_t area = -1;
    memset(sums, 0, sizeof(T) * (size_t)w->sizes[3]);
    for (int64_t number = lo; number < hi; ++number) {
        T *to = w->to + number * size;
        NAME(shares_of)(p, w->from + number * n, &area, divisors, shares);
        for (int64_t z = 0; z < p->sizes[0]; ++z) {
            const RANGE zs = NAME(windows)(p, 0, z);
            const int is_one = zs.end - zs.first == 1;
            RANGE before = {-1, -1};
            if (!is_one)
                NAME(add_back)(shares, plane, zs, plane, planes);
            for (int64_t y = 0; y < p->sizes[1]; ++y, to += p->sizes[2]) {
                const RANGE ys = NAME(windows)(p, 1, y);
                if (ys.first != before.first || ys.end != before.end) {
                    NAME(add_back)(is_one ? shares + zs.first * plane : planes, width, ys, width, sums + w->before);
                    memset(sums + w->before + width, 0, sizeof(T) * LANES);
                    NAME(spread_across)(w, sums + w->before, made);
                }
                before = ys;
                memcpy(to, made + p->before[2], sizeof(T) * (size_t)p->sizes[2]);
            }
        }
    }
}

/* -- shared out ---------------------------------------------------------------------------------------------------------------- */

static int NAME(share_means)(const dg_runtime *rt, MEANS *w, dg_range kernel, dg_stop *stop)
{
    const dg_pooling *p = w->what;
    for (int k = 0; k < 5; ++k)
        w->own_size += w->sizes[k];
    w->own = rt->take(sizeof(T) * (size_t)(rt->n_threads * w->own_size));
    if (!w->own)
        return DG_NO_MEMORY;
    void *const buffers[] = {w};
    const double across = (double)(w->rows * (p->kernel[2] + 4)) * (double)p->counts[2];
    const double down = (double)(p->kernel[0] * p->kernel[1] + 4) * (double)dg_conv_volume(p->counts);
    dg_share(rt, stop, kernel, buffers, p->batch, 0.15 * (across + down + (double)dg_conv_volume(p->sizes)));
    rt->give(w->own);
    return stop->stopped ? DG_STOPPED : 0;
}

static int NAME(means)(const dg_runtime *rt, const dg_pooling *what, const void *from, void *to, dg_stop *stop)
{
    const dg_pooling *p = what;
    MEANS w = {.what = p, .from = from, .to = to, .rows = p->sizes[0] * p->sizes[1], .row = p->sizes[2], .length = p->counts[2]};
    const int64_t pace = p->stride[2], width = p->counts[2];
    if (!p->before[2] && p->kernel[2] <= pace && pace * width == p->sizes[2]) { /* all rows are as one */
        w.length *= w.rows;
        w.row *= w.rows;
        w.rows = 1;
    }
    w.part = (p->kernel[2] - 1) / pace + w.length;
    const int64_t needed[5] = {w.part * pace + LANES, w.rows * w.length + LANES, width + LANES, width + LANES};
    memcpy(w.sizes, needed, sizeof needed);
    return NAME(share_means)(rt, &w, NAME(run_means), stop);
}

static int NAME(means_back)(const dg_runtime *rt, const dg_pooling *what, const void *from, void *to, dg_stop *stop)
{
    const dg_pooling *p = what;
    const int64_t pace = p->stride[2], width = p->counts[2];
    MEANS w = {.what = p, .from = from, .to = to, .rows = p->sizes[0] * p->sizes[1], .before = (p->kernel[2] - 1) / pace};
    w.part = (p->sizes[2] + p->before[2] + pace - 1) / pace;
    const int64_t longest = w.part > width ? w.part : width;
    const int64_t needed[5] = {dg_conv_volume(p->counts) + LANES, p->counts[1] * width + LANES, width + LANES,
                               w.before + longest + 2 * LANES, (w.part + LANES) * pace};
    memcpy(w.sizes, needed, sizeof needed);
    return NAME(share_means)(rt, &w, NAME(run_means_back), stop);
}
#undef MEANS
#undef RANGE
