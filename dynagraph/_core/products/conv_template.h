/* Convolutions for one dtype and instruction set.  Included with

     T, SUFFIX   the dtype
     ELEMENT     its name as a matrix's element
     INTEGER     an integer of its size
     ISA         the instruction set, a name
     BYTES       the size of a vector
     EVERY_SECOND            places of every second element of two vectors, the second of which begins with the last one of the first
     COUNTED                 0, 1, 2... */
#define JOIN_(a, b, c) a##_##b##_##c
#define JOIN(a, b, c) JOIN_(a, b, c)
#define NAME(what) JOIN(what, SUFFIX, ISA)
#define JOIN2_(a, b) a##_##b
#define JOIN2(a, b) JOIN2_(a, b)
#define KERNEL JOIN2(dg_kernel, SUFFIX)
#define PACK JOIN2(dg_pack_matrix, SUFFIX)
#define V NAME(conv_vector)
#define H NAME(conv_half)
#define VI NAME(conv_integers)
#define SEGMENT NAME(segment)
#define WORK NAME(work)
#define ROWS NAME(rows)

typedef T V __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));
typedef T H __attribute__((vector_size(BYTES / 2), aligned(sizeof(T)), may_alias));
typedef INTEGER VI __attribute__((vector_size(BYTES)));
enum { NAME(CONV_LANES) = BYTES / sizeof(T) };
#define LANES NAME(CONV_LANES)
extern const KERNEL NAME(dg_kernel);

/* -- windows ---------------------------------------------------------------------------------------------------------------- */

/* columns that lie in one row of places, one after the other */
typedef struct {
    const T *source;            /* the first channel of the group, of this image */
    int64_t from[DG_CONV_AXES]; /* where the first window begins */
    int64_t image, place;       /* of the result: where the first one's lies in a channel */
    int64_t at, length;         /* in the panel */
} SEGMENT;

/* the segments of columns first...first + count of all images; gives how many there are */
static int64_t NAME(segments)(const dg_phase *p, int64_t group, int64_t first, int64_t count, SEGMENT *to)
{
    const int64_t of_image = dg_conv_volume(p->counts), width = p->counts[2], height = p->counts[1];
    const int64_t of_images = p->channels * dg_conv_volume(p->sizes);
    int64_t image = first / of_image, place = first % of_image, n = 0;
    int64_t x = place % width, y = place / width % height, z = place / width / height;
    for (int64_t at = 0; at < count; ++n) {
        const int64_t length = width - x < count - at ? width - x : count - at;
        const int64_t row = (p->start[0] + p->step[0] * z) * p->out_sizes[1] + p->start[1] + p->step[1] * y;
        to[n] = (SEGMENT){(const T *)p->source + (image * p->groups + group) * of_images,
                          {z * p->pace[0], y * p->pace[1], x * p->pace[2]}, image,
                          row * p->out_sizes[2] + p->start[2] + p->step[2] * x, at, length};
        at += length;
        x += length;
        if (x == width) {
            x = 0;
            ++y;
        }
        if (y == height) {
            y = 0;
            ++z;
        }
        if (z == p->counts[0]) {
            z = 0;
            ++image;
        }
    }
    return n;
}

/* n rows of `count` elements, less than two of the greatest length: its beginning and its end */
#define COPIES(length)                                                                                                            \
    for (int64_t k = 0; k < n; ++k, to += to_step, from += from_step) {                                                           \
        memcpy(to, from, sizeof(T) * (length));                                                                                   \
        memcpy(to + count - (length), from + count - (length), sizeof(T) * (length));                                             \
    }
static void NAME(copy_rows)(T *to, int64_t to_step, const T *from, int64_t from_step, int64_t n, int64_t count)
{
    for (; count > 2 * LANES; count -= LANES, to += LANES, from += LANES)
        for (int64_t k = 0; k < n; ++k)
            memcpy(to + k * to_step, from + k * from_step, sizeof(T) * LANES);
    if (count == LANES) {
        for (int64_t k = 0; k < n; ++k)
            memcpy(to + k * to_step, from + k * from_step, sizeof(T) * LANES);
    } else if (count > LANES) {
        COPIES(LANES)
    } else if (count >= 8) {
        COPIES(8)
    } else if (count >= 4) {
        COPIES(4)
    } else if (count >= 2) {
        COPIES(2)
    } else if (count == 1) {
        for (int64_t k = 0; k < n; ++k)
            to[k * to_step] = from[k * from_step];
    }
}
#undef COPIES

/* elements 0, 2, 4..., of which the last one is the last that is read */
static inline V NAME(every_second)(const T *from)
{
    const V a = *(const V *)from, b = *(const V *)(from + LANES - 1);
#ifdef __clang__
    return __builtin_shufflevector(a, b, EVERY_SECOND);
#else
    return __builtin_shuffle(a, b, (VI){EVERY_SECOND});
#endif
}

static void NAME(pick_rows)(T *to, int64_t to_step, const T *from, int64_t from_step, int64_t n, int64_t count, int64_t pace)
{
    if (pace == 1) {
        NAME(copy_rows)(to, to_step, from, from_step, n, count);
        return;
    }
    for (int64_t k = 0; k < n; ++k, to += to_step, from += from_step) {
        int64_t j = 0;
        if (pace == 2)
            for (; j + LANES <= count; j += LANES)
                *(V *)(to + j) = NAME(every_second)(from + 2 * j);
        for (; j < count; ++j)
            to[j] = from[j * pace];
    }
}

/* of at most DG_CONV_BLOCK elements each */
static void NAME(clear_rows)(T *to, int64_t to_step, int64_t n, int64_t count)
{
    static const T zeros[DG_CONV_BLOCK];
    NAME(copy_rows)(to, to_step, zeros, 0, n, count);
}

/* what a tap takes of windows in a row, of n channels; zeros beyond the image */
static void NAME(gather)(const dg_phase *p, const SEGMENT *s, const dg_tap *tap, int64_t channel, int64_t n, T *to,
    int64_t to_step)
{
    const int64_t z = s->from[0] + tap->offset[0], y = s->from[1] + tap->offset[1], x = s->from[2] + tap->offset[2];
    const int64_t pace = p->pace[2], width = p->sizes[2], plane = dg_conv_volume(p->sizes);
    if (z < 0 || z >= p->sizes[0] || y < 0 || y >= p->sizes[1]) {
        NAME(clear_rows)(to, to_step, n, s->length);
        return;
    }
    int64_t low = 0, high = s->length;
    if (x < 0)
        low = (-x + pace - 1) / pace < high ? (-x + pace - 1) / pace : high;
    if (x + pace * (s->length - 1) >= width) {
        high = x < width ? (width - x + pace - 1) / pace : 0;
        high = high < low ? low : high;
    }
    if (low)
        NAME(clear_rows)(to, to_step, n, low);
    if (low < high)
        NAME(pick_rows)(to + low, to_step, s->source + channel * plane + (z * p->sizes[1] + y) * width + x + low * pace, plane, n,
                        high - low, pace);
    if (high < s->length)
        NAME(clear_rows)(to + high, to_step, n, s->length - high);
}

#include "conv_padded.h"

/* -- products of filters and windows ---------------------------------------------------------------------------------------- */

/* what threads share, and where each has memory of its own: for a panel of windows, then the results */
typedef struct {
    const dg_phase *p;
    T *filters; /* [group][panel][term][rows of a tile] */
    T *own;
    int64_t mr, nr, own_size, terms, panels, columns, row_panels;
    int64_t shares, of_share; /* of a group's rows: pieces of work, and the rows of one, which are whole tiles */
    PADDED padded;
    int64_t part; /* neighbours among a panel's columns */
    int64_t *at;  /* of each term, from where a window begins in the padded images; null: windows are gathered */
} WORK;

/* rows of a group: the first of them begins a tile */
typedef struct {
    int64_t group, first, count;
} ROWS;

static const T *NAME(filters_of)(const WORK *w, const ROWS *rows)
{
    return w->filters + (rows->group * w->row_panels * w->mr + rows->first) * w->terms;
}

static void NAME(pack_filters)(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    const WORK *w = buffers[0];
    const dg_phase *p = w->p;
    int in_order = p->n_taps == p->channel_stride;
    for (int64_t t = 0; t < p->n_taps; ++t)
        in_order &= p->taps[t].weight == t;
    for (int64_t number = lo; number < hi; ++number) {
        const int64_t group = number / w->row_panels, first = number % w->row_panels * w->mr;
        const int64_t count = p->rows - first < w->mr ? p->rows - first : w->mr;
        const T *from = (const T *)p->weights + group * p->group_stride;
        T *to = w->filters + number * w->terms * w->mr;
        if (in_order) {
            const dg_matrix matrix = {.data = from, .element = ELEMENT, .outer = p->row_stride, .inner = 1};
            PACK(&matrix, 0, first, count, 0, w->terms, w->mr, to);
            continue;
        }
        for (int64_t channel = 0; channel < p->channels; ++channel)
            for (int64_t t = 0; t < p->n_taps; ++t, to += w->mr) {
                const T *own = from + first * p->row_stride + channel * p->channel_stride + p->taps[t].weight;
                for (int64_t i = 0; i < w->mr; ++i)
                    to[i] = i < count ? own[i * p->row_stride] : 0;
            }
    }
}

static void NAME(store_columns)(const WORK *w, const ROWS *rows, const SEGMENT *s, const T *results)
{
    const dg_phase *p = w->p;
    const int64_t plane = dg_conv_volume(p->out_sizes), step = p->step[2];
    const T *bias = p->bias ? (const T *)p->bias + rows->group * p->rows + rows->first : NULL;
    T *to = (T *)p->out + ((s->image * p->groups + rows->group) * p->rows + rows->first) * plane + s->place;
    results += s->at;
    if (!bias && step == 1) {
        NAME(copy_rows)(to, plane, results, w->nr, rows->count, s->length);
        return;
    }
    for (int64_t r = 0; r < rows->count; ++r, to += plane, results += w->nr) {
        const T more = bias ? bias[r] : 0;
        int64_t j = 0;
        if (bias && step == 1)
            for (; j + LANES <= s->length; j += LANES)
                *(V *)(to + j) = *(const V *)(results + j) + more;
        if (bias && step == 1 && j + LANES / 2 <= s->length) {
            *(H *)(to + j) = *(const H *)(results + j) + more;
            j += LANES / 2;
        }
        for (; j < s->length; ++j)
            to[j * step] = bias ? results[j] + more : results[j];
    }
}

static void NAME(multiply_panel)(const WORK *w, const ROWS *rows, const SEGMENT *segments, int64_t n, int64_t columns, T *windows,
                                 T *results)
{
    const dg_phase *p = w->p;
    const T *filters = NAME(filters_of)(w, rows);
    for (int64_t start = 0; start < w->terms || start == 0; start += DG_CONV_BLOCK) {
        const int64_t end = start + DG_CONV_BLOCK < w->terms ? start + DG_CONV_BLOCK : w->terms;
        for (int64_t k = 0; k < n; ++k)
            for (int64_t t = 0; t < p->n_taps; ++t) {
                const int64_t channel = start > t ? (start - t + p->n_taps - 1) / p->n_taps : 0;
                const int64_t beyond = end > t ? (end - t + p->n_taps - 1) / p->n_taps : 0;
                if (channel < beyond)
                    NAME(gather)(p, &segments[k], &p->taps[t], channel, beyond - channel,
                                 windows + (channel * p->n_taps + t - start) * w->nr + segments[k].at, p->n_taps * w->nr);
            }
        if (columns < w->nr)
            NAME(clear_rows)(windows + columns, w->nr, end - start, w->nr - columns);
        for (int64_t r = 0; r * w->mr < rows->count; ++r)
            NAME(dg_kernel).micro(end - start, filters + (r * w->terms + start) * w->mr, windows,
                results + r * w->mr * w->nr, w->nr,
                                  start > 0, windows);
    }
}

/* the same where windows lie in padded images: a part of a panel, half a vector or a whole one, is columns of one row */
static void NAME(multiply_padded)(const WORK *w, const ROWS *rows, const SEGMENT *segments, int64_t n, int64_t columns, T *results)
{
    const T *filters = NAME(filters_of)(w, rows), *parts[4];
    const int is_few = w->mr != NAME(dg_kernel).mr;
    for (int64_t part = 0, s = 0; part < w->nr / w->part; ++part) {
        while (s + 1 < n && segments[s + 1].at <= part * w->part)
            ++s;
        parts[part] = part * w->part >= columns ? parts[0]
                          : w->padded.images + NAME(window_at)(&w->padded, rows->group, &segments[s]) + part * w->part - segments[s].at;
    }
    for (int64_t start = 0; start < w->terms; start += DG_CONV_BLOCK) {
        const int64_t k = w->terms - start < DG_CONV_BLOCK ? w->terms - start : DG_CONV_BLOCK;
        for (int64_t r = 0; r * w->mr < rows->count; ++r)
            NAME(dg_kernel).windows[w->part < LANES][is_few](k, filters + (r * w->terms + start) * w->mr, parts, w->at + start,
                                                             results + r * w->mr * w->nr, w->nr, start > 0);
    }
}

/* what becomes of columns once they are complete: pieces of images */
static void NAME(finish)(const dg_phase *p, const ROWS *rows, int64_t first, int64_t beyond)
{
    const int64_t row = rows->group * p->rows + rows->first;
    const int64_t of_image = dg_conv_volume(p->counts);
    for (int64_t at = first, end; at < beyond; at = end) {
        const int64_t image = at / of_image;
        end = (image + 1) * of_image < beyond ? (image + 1) * of_image : beyond;
        p->finish->run(p->finish, image, row, row + rows->count, at - image * of_image, end - image * of_image);
    }
}

static void NAME(multiply)(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    enum { TOGETHER = 8 }; /* panels that are finished at a time */
    const WORK *w = buffers[0];
    const dg_phase *p = w->p;
    T *windows = w->own + thread * w->own_size, *results = windows + DG_CONV_BLOCK * w->nr;
    SEGMENT segments[DG_MAX_NR];
    for (int64_t number = lo, unfinished = lo; number < hi; ++number) {
        const int64_t first = number % w->panels * w->nr, share = number / w->panels % w->shares;
        const int64_t columns = w->columns - first < w->nr ? w->columns - first : w->nr;
        ROWS rows = {number / w->panels / w->shares, share * w->of_share, w->of_share};
        if (p->rows - rows.first < rows.count)
            rows.count = p->rows - rows.first;
        const int64_t n = NAME(segments)(p, rows.group, first, columns, segments);
        if (w->at)
            NAME(multiply_padded)(w, &rows, segments, n, columns, results);
        else
            NAME(multiply_panel)(w, &rows, segments, n, columns, windows, results);
        for (int64_t k = 0; k < n; ++k)
            NAME(store_columns)(w, &rows, &segments[k], results);
        if (p->finish && (number + 1 == hi || (number + 1) % w->panels == 0 || number + 1 == unfinished + TOGETHER)) {
            NAME(finish)(p, &rows, unfinished % w->panels * w->nr, first + columns);
            unfinished = number + 1;
        }
    }
}

#include "conv_planes.h"
#include "conv_maxima.h"
#include "conv_means.h"

/* rows of so many tiles */
static int64_t NAME(in_tiles)(int64_t rows, int64_t of_tile) { return (rows + of_tile - 1) / of_tile * of_tile; }

/* Panels are as many pieces of work, unless there are fewer than threads, or so few that threads wait for the last ones: then
   each is several, of whole tiles of rows.  Windows are gathered for each, so rows are not divided further. */
static void NAME(share_rows)(WORK *w)
{
    enum { LEAST_ROWS = 64, MANY = 4 };
    const int64_t threads = w->p->stop->threads, pieces = w->p->groups * w->panels, most = w->p->rows / LEAST_ROWS;
    int64_t shares = 1;
    if (pieces > 0 && pieces < threads)
        shares = (threads + pieces - 1) / pieces;
    else if (pieces < MANY * threads && pieces % threads)
        shares = 2;
    if (shares > most)
        shares = most > 1 ? most : 1;
    const int64_t of_share = w->row_panels > shares ? (w->row_panels + shares - 1) / shares : 1;
    w->of_share = of_share * w->mr;
    w->shares = (w->row_panels + of_share - 1) / of_share;
}

static int NAME(places)(const dg_phase *p)
{
    if (p->channels == 1 && p->rows == 1)
        return NAME(planes)(p);
    WORK w = {.p = p, .mr = NAME(dg_kernel).mr, .nr = NAME(dg_kernel).nr, .terms = p->channels * p->n_taps};
    w.columns = p->batch * dg_conv_volume(p->counts);
    w.panels = (w.columns + w.nr - 1) / w.nr;
    w.part = p->counts[2] % LANES == 0 ? LANES : LANES / 2;
    const int64_t padded = p->counts[2] % w.part == 0 ? NAME(padded_size)(p, &w.padded) : 0, n_at = padded ? w.terms : 0;
    if (padded && NAME(in_tiles)(p->rows, NAME(dg_kernel).few_rows) < NAME(in_tiles)(p->rows, w.mr))
        w.mr = NAME(dg_kernel).few_rows;
    w.row_panels = NAME(in_tiles)(p->rows, w.mr) / w.mr;
    NAME(share_rows)(&w);
    w.own_size = (DG_CONV_BLOCK + w.of_share) * w.nr;
    const int64_t filters = p->groups * w.row_panels * w.terms * w.mr;
    const int64_t own = p->stop->threads * w.own_size;
    int64_t *memory = p->rt->take(sizeof *memory * (size_t)n_at + sizeof(T) * (size_t)(filters + own + padded + 1));
    if (!memory)
        return DG_NO_MEMORY;
    w.own = (T *)(memory + n_at);
    w.filters = w.own + own;
    if (padded) {
        w.padded.images = w.filters + filters;
        w.at = memory;
        for (int64_t term = 0; term < w.terms; ++term)
            w.at[term] = term / p->n_taps * w.padded.plane + NAME(tap_at)(&w.padded, &p->taps[term % p->n_taps]);
        NAME(pad_images)(&w.padded);
    }
    void *const buffers[] = {&w};
    const double each = 2.0 * (double)w.terms * (double)(w.of_share * w.nr) / DG_CONV_RATE;
    dg_conv_share(p, NAME(pack_filters), buffers, p->groups * w.row_panels, (double)(w.terms * w.mr));
    dg_conv_share(p, NAME(multiply), buffers, p->groups * w.shares * w.panels, each);
    p->rt->give(memory);
    return dg_conv_status(p);
}

#include "conv_filters.h"

#undef JOIN_
#undef JOIN
#undef NAME
#undef JOIN2_
#undef JOIN2
#undef KERNEL
#undef PACK
#undef V
#undef H
#undef VI
#undef SEGMENT
#undef WORK
#undef ROWS
#undef PADDED
#undef PLANES
#undef LANES
#undef T
#undef SUFFIX
#undef ELEMENT
#undef INTEGER
#undef EVERY_SECOND
#undef COUNTED
