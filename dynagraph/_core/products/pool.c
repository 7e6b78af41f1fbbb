/* Pools on the thread pool: maxima and means of windows, with where maxima stood, and the ways back.  Sums are in the order of the
   same in NumPy's operations. */
#include <string.h>

#include "conv.h"
#include "pool.h"

enum { AXES = DG_CONV_AXES };

typedef struct {
    const dg_pooling *what;
    const void *from;
    const int64_t *at; /* places that are put */
    void *to;       /* of maxima: or null */
    int64_t *where; /* or null */
} job;

/* -- sums at places --------------------------------------------------------------------------------------------------------- */

/* what stood nowhere goes nowhere */
#define DEFINE_PUT(T, suffix)                                                                                                    \
    static void put_##suffix(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)      \
    {                                                                                                                            \
        const job *w = buffers[0];                                                                                               \
        const int64_t n = dg_conv_volume(w->what->counts), size = dg_conv_volume(w->what->sizes);                                \
        memset((T *)w->to + lo * size, 0, sizeof(T) * (size_t)((hi - lo) * size));                                               \
        for (int64_t plane = lo; plane < hi; ++plane) {                                                                          \
            const T *from = (const T *)w->from + plane * n;                                                                      \
            const int64_t *at = w->at + plane * n;                                                                               \
            T *to = (T *)w->to + plane * size;                                                                                   \
            for (int64_t k = 0; k < n; ++k)                                                                                      \
                if ((uint64_t)at[k] < (uint64_t)size)                                                                            \
                    to[at[k]] += from[k];                                                                                        \
        }                                                                                                                        \
    }
DEFINE_PUT(float, f32)
DEFINE_PUT(double, f64)

/* -- as many windows as are asked for: means along the middle axis of three ------------------------------------------------- */

#define DEFINE_MEANS(T, suffix)                                                                                                  \
    static T sum_##suffix(const T *x, int64_t n) /* pairwise, as NumPy has it */                                                 \
    {                                                                                                                            \
        T parts[8], total = (T)-0.0;                                                                                             \
        int64_t k = 0;                                                                                                           \
        if (n > 128) {                                                                                                           \
            const int64_t half = n / 2 - n / 2 % 8;                                                                              \
            return sum_##suffix(x, half) + sum_##suffix(x + half, n - half);                                                     \
        }                                                                                                                        \
        if (n >= 8) {                                                                                                            \
            memcpy(parts, x, sizeof parts);                                                                                      \
            for (k = 8; k + 8 <= n; k += 8)                                                                                      \
                for (int part = 0; part < 8; ++part)                                                                             \
                    parts[part] += x[k + part];                                                                                  \
            total = ((parts[0] + parts[1]) + (parts[2] + parts[3])) + ((parts[4] + parts[5]) + (parts[6] + parts[7]));           \
        }                                                                                                                        \
        for (; k < n; ++k)                                                                                                       \
            total += x[k];                                                                                                       \
        return total;                                                                                                            \
    }                                                                                                                            \
    static void means_##suffix(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)    \
    {                                                                                                                            \
        const job *w = buffers[0];                                                                                               \
        const int64_t size = w->what->sizes[1], inner = w->what->sizes[2], count = w->what->counts[1];                           \
        for (int64_t plane = lo; plane < hi; ++plane)                                                                            \
            for (int64_t j = 0; j < count; ++j) {                                                                                \
                const int64_t a = j * size / count, b = ((j + 1) * size + count - 1) / count;                                    \
                const T *from = (const T *)w->from + plane * size * inner;                                                       \
                T *to = (T *)w->to + (plane * count + j) * inner;                                                                \
                if (inner == 1) {                                                                                                \
                    *to = (sum_##suffix(from + a, b - a) + 0) / (T)(b - a);                                                      \
                    continue;                                                                                                    \
                }                                                                                                                \
                memset(to, 0, sizeof(T) * (size_t)inner);                                                                        \
                for (int64_t y = a; y < b; ++y)                                                                                  \
                    for (int64_t c = 0; c < inner; ++c)                                                                          \
                        to[c] += from[y * inner + c];                                                                            \
                for (int64_t c = 0; c < inner; ++c)                                                                              \
                    to[c] /= (T)(b - a);                                                                                         \
            }                                                                                                                    \
    }                                                                                                                            \
    static void spread_##suffix(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)   \
    {                                                                                                                            \
        const job *w = buffers[0];                                                                                               \
        const int64_t size = w->what->sizes[1], inner = w->what->sizes[2], count = w->what->counts[1];                           \
        for (int64_t plane = lo; plane < hi; ++plane) {                                                                          \
            T *to = (T *)w->to + plane * size * inner;                                                                           \
            memset(to, 0, sizeof(T) * (size_t)(size * inner));                                                                   \
            for (int64_t j = 0; j < count; ++j) {                                                                                \
                const int64_t a = j * size / count, b = ((j + 1) * size + count - 1) / count;                                    \
                const T *from = (const T *)w->from + (plane * count + j) * inner;                                                \
                for (int64_t c = 0; c < inner; ++c) {                                                                            \
                    const T share = from[c] / (T)(b - a);                                                                        \
                    for (int64_t y = a; y < b; ++y)                                                                              \
                        to[y * inner + c] += share;                                                                              \
                }                                                                                                                \
            }                                                                                                                    \
        }                                                                                                                        \
    }
DEFINE_MEANS(float, f32)
DEFINE_MEANS(double, f64)

/* -- maxima of these, along all three axes ----------------------------------------------------------------------------------- */

/* the first of several that are equal, but of NaNs the last */
#define DEFINE_MAXIMA(T, suffix)                                                                                                 \
    static void maxima_##suffix(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)   \
    {                                                                                                                            \
        const job *w = buffers[0];                                                                                               \
        const int64_t *of = w->what->sizes, *counts = w->what->counts;                                                           \
        const int64_t n = counts[0] * counts[1] * counts[2], size = of[0] * of[1] * of[2];                                       \
        for (int64_t at = lo * n; at < hi * n; ++at) {                                                                           \
            const T *from = (const T *)w->from + at / n * size;                                                                  \
            int64_t number[] = {at % n / (counts[1] * counts[2]), at / counts[2] % counts[1], at % counts[2]};                   \
            int64_t first[3], end[3];                                                                                            \
            for (int k = 0; k < 3; ++k) {                                                                                        \
                first[k] = number[k] * of[k] / counts[k];                                                                        \
                end[k] = ((number[k] + 1) * of[k] + counts[k] - 1) / counts[k];                                                  \
            }                                                                                                                    \
            int64_t where = (first[0] * of[1] + first[1]) * of[2] + first[2];                                                    \
            T best = from[where];                                                                                                \
            for (int64_t z = first[0]; z < end[0]; ++z)                                                                          \
                for (int64_t y = first[1]; y < end[1]; ++y) {                                                                    \
                    const int64_t row = (z * of[1] + y) * of[2];                                                                 \
                    for (int64_t c = row + first[2]; c < row + end[2]; ++c)                                                      \
                        if (from[c] > best || from[c] != from[c]) {                                                              \
                            best = from[c];                                                                                      \
                            where = c;                                                                                           \
                        }                                                                                                        \
                }                                                                                                                \
            if (w->to)                                                                                                           \
                ((T *)w->to)[at] = best;                                                                                         \
            if (w->where)                                                                                                        \
                w->where[at] = where;                                                                                            \
        }                                                                                                                        \
    }
DEFINE_MAXIMA(float, f32)
DEFINE_MAXIMA(double, f64)

/* -- windows of one size ----------------------------------------------------------------------------------------------------- */

/* Of windows along an axis: the first of their elements that any of them has within the array, and how many there are from there to
   the last one; one, where all is border. */
static int64_t within(const dg_pooling *what, int axis, int64_t *first)
{
    const int64_t before = what->before[axis], step = what->dilation[axis], size = what->sizes[axis], count = what->counts[axis];
    const int64_t low = before - (count > 1 ? what->stride[axis] * (count - 1) : 0), high = (size - 1 + before) / step;
    const int64_t last = high < what->kernel[axis] ? high : what->kernel[axis] - 1;
    *first = low > 0 ? (low + step - 1) / step : 0;
    if (size < 1 || size - 1 + before < 0 || *first > last)
        *first = what->kernel[axis] - 1;
    return last > *first ? last - *first + 1 : 1;
}

static int maxima_of_windows(const dg_runtime *rt, const job *w, dg_stop *stop)
{
    const dg_pooling *what = w->what;
    int64_t first[AXES], kernel[AXES];
    if (dg_conv_volume(what->counts) == 0)
        return 0;
    for (int axis = 0; axis < AXES; ++axis)
        kernel[axis] = within(what, axis, &first[axis]);
    dg_stop own = dg_begin_operation(rt, stop);
    dg_phase p = {.rt = rt, .stop = &own, .source = w->from, .out = w->to, .where = w->where, .groups = 1, .batch = what->batch,
                  .n_taps = dg_conv_volume(kernel)};
    memcpy(p.sizes, what->sizes, sizeof p.sizes);
    memcpy(p.counts, what->counts, sizeof p.counts);
    for (int axis = 0; axis < AXES; ++axis) /* there may be one window only, however far the next one is */
        p.pace[axis] = what->counts[axis] > 1 ? what->stride[axis] : 1;
    dg_tap *taps = rt->take(sizeof *taps * (size_t)p.n_taps);
    if (!taps)
        return DG_NO_MEMORY;
    for (int64_t t = 0; t < p.n_taps; ++t) {
        const int64_t at[AXES] = {t / kernel[2] / kernel[1], t / kernel[2] % kernel[1], t % kernel[2]};
        for (int axis = 0; axis < AXES; ++axis)
            taps[t].offset[axis] = (first[axis] + at[axis]) * what->dilation[axis] - what->before[axis];
        taps[t].weight = t;
    }
    p.taps = taps;
    const int status = dg_conv_code_named(NULL)->maxima[what->is_double](&p);
    rt->give(taps);
    return dg_end_operation(&own, stop, status);
}

int dg_pool(const dg_runtime *rt, const dg_pooling *what, const void *a, const int64_t *b, void *to, int64_t *where, dg_stop *stop)
{
    job w = {what, a, b, to, where};
    if (what->which == DG_MAX_POOL)
        return maxima_of_windows(rt, &w, stop);
    if (what->which == DG_MEANS)
        return dg_conv_code_named(NULL)->means[what->is_double](rt, what, a, to, stop);
    if (what->which == DG_MEANS_BACK)
        return dg_conv_code_named(NULL)->means_back[what->is_double](rt, what, a, to, stop);
    static const dg_range kernels[][2] = {
        [DG_PUT_PLACES] = {put_f32, put_f64},       [DG_ADAPTIVE_MAXIMA] = {maxima_f32, maxima_f64},
        [DG_ADAPTIVE_MEANS] = {means_f32, means_f64}, [DG_ADAPTIVE_MEANS_BACK] = {spread_f32, spread_f64},
    };
    static const double of_an_element[] = {[DG_PUT_PLACES] = 0.1, 1.5, 1.5, 1.5}, of_a_result[] = {[DG_PUT_PLACES] = 2.0, 10.0, 1.5, 1.5};
    const double size = (double)dg_conv_volume(what->sizes);
    const int64_t *counts = what->counts;
    const double n = (double)(what->which < DG_ADAPTIVE_MEANS ? dg_conv_volume(counts) : counts[1] * what->sizes[2]);
    void *const buffers[] = {&w};
    if (what->batch > 0)
        dg_share(rt, stop, kernels[what->which][what->is_double], buffers, what->batch,
                 of_an_element[what->which] * size + of_a_result[what->which] * n);
    return stop->stopped ? DG_STOPPED : 0;
}
