/* Filters of one channel, each for a channel of its own (depthwise), for one dtype and instruction set: part of conv_template.h.

   A channel is copied with as many zeros around it as windows reach out, and some elements after it that vectors may read.  Where
   windows are some elements apart, elements that are as far apart are neighbours in the copy: so those that a tap takes
   always are. */
#define PLANES NAME(plane_work)

typedef struct {
    const dg_phase *p;
    /* what windows touch: where that begins in the channel, and how large it is */
    int64_t low[DG_CONV_AXES], sizes[DG_CONV_AXES];
    int64_t part, pitch;                            /* of a row of the copy: elements that are `pace` apart, and all */
    int64_t room, row, own_size;                    /* elements of the copy, of a row of results, and of a thread's memory */
    int64_t *offsets;                               /* of taps: where they take the first place's element from */
    T *own;                                         /* of each thread: the copy, rows of results, a filter */
    T *parts;                                       /* gradients by the filters, of each image: [image][group][tap] */
} PLANES;

/* with memory for so many rows of results and `more` elements; 0: there is none */
static int NAME(prepare_planes)(PLANES *w, const dg_phase *p, int64_t rows, int64_t more)
{
    w->p = p;
    for (int axis = 0; axis < DG_CONV_AXES; ++axis) {
        int64_t low = p->n_taps ? p->taps[0].offset[axis] : 0, high = low;
        for (int64_t t = 0; t < p->n_taps; ++t) {
            const int64_t offset = p->taps[t].offset[axis];
            low = offset < low ? offset : low;
            high = offset > high ? offset : high;
        }
        w->low[axis] = low;
        w->sizes[axis] = high - low + (p->counts[axis] ? p->pace[axis] * (p->counts[axis] - 1) : 0) + 1;
    }
    if ((double)w->sizes[0] * (double)w->sizes[1] * ((double)w->sizes[2] + (double)p->pace[2]) > 0x1p48) /* more than there is */
        return 0;
    w->part = (w->sizes[2] + p->pace[2] - 1) / p->pace[2];
    w->pitch = w->part * p->pace[2];
    w->room = w->sizes[0] * w->sizes[1] * w->pitch + 4 * LANES;
    w->row = (p->counts[2] + LANES) / LANES * LANES;
    w->own_size = w->room + rows * w->row + p->n_taps;
    const size_t offsets = sizeof *w->offsets * (size_t)p->n_taps + BYTES;
    w->offsets = p->rt->take(offsets + sizeof(T) * (size_t)(p->stop->threads * w->own_size + more));
    if (!w->offsets)
        return 0;
    w->own = (T *)((char *)w->offsets + offsets / BYTES * BYTES);
    w->parts = w->own + p->stop->threads * w->own_size;
    for (int64_t t = 0; t < p->n_taps; ++t) {
        const int64_t *offset = p->taps[t].offset, x = offset[2] - w->low[2];
        w->offsets[t] = ((offset[0] - w->low[0]) * w->sizes[1] + offset[1] - w->low[1]) * w->pitch + x % p->pace[2] * w->part +
                        x / p->pace[2];
    }
    return 1;
}

/* `fill`: what stands around it */
static void NAME(copy_plane)(const PLANES *w, const T *from, T *to, T fill)
{
    const int64_t *sizes = w->p->sizes, pace = w->p->pace[2], low = w->low[2];
    const int64_t begin = low < 0 ? 0 : low, end = low + w->sizes[2] < sizes[2] ? low + w->sizes[2] : sizes[2];
    if (fill == 0)
        memset(to, 0, sizeof(T) * (size_t)w->room);
    else
        for (int64_t k = 0; k < w->room; ++k)
            to[k] = fill;
    for (int64_t z = 0; z < w->sizes[0]; ++z)
        for (int64_t y = 0; y < w->sizes[1]; ++y) {
            const int64_t at_z = z + w->low[0], at_y = y + w->low[1];
            if (at_z < 0 || at_z >= sizes[0] || at_y < 0 || at_y >= sizes[1] || begin >= end)
                continue;
            const T *row = from + (at_z * sizes[1] + at_y) * sizes[2];
            T *copy = to + (z * w->sizes[1] + y) * w->pitch;
            for (int64_t first = begin; first < begin + pace && first < end; ++first)
                NAME(pick_rows)(copy + (first - low) % pace * w->part + (first - low) / pace, 0, row + first, 0, 1,
                                (end - first + pace - 1) / pace, pace);
        }
}

/* `n` vectors of results of a row of windows */
#define DEFINE_VECTORS(n)                                                                                                         \
    static inline void NAME(plane_vectors_##n)(int64_t n_taps, const int64_t *offsets, const T *filter, const T *from, T bias, T *to) \
    {                                                                                                                             \
        V sums[n] = {{0}};                                                                                                        \
        for (int64_t t = 0; t < n_taps; ++t) {                                                                                    \
            const T *at = from + offsets[t];                                                                                      \
            _Pragma("GCC unroll 4") for (int k = 0; k < n; ++k)                                                                   \
                sums[k] += filter[t] * *(const V *)(at + k * LANES);                                                              \
        }                                                                                                                         \
        _Pragma("GCC unroll 4") for (int k = 0; k < n; ++k)                                                                       \
            *(V *)(to + k * LANES) = sums[k] + bias;                                                                              \
    }
DEFINE_VECTORS(1)
DEFINE_VECTORS(2)
DEFINE_VECTORS(4)
#undef DEFINE_VECTORS

static void NAME(plane_row)(const PLANES *w, const T *filter, const T *from, T bias, T *row, T *to)
{
    const int64_t count = w->p->counts[2], step = w->p->step[2], n_taps = w->p->n_taps;
    T *const at = step == 1 ? to : row;
    int64_t x = 0;
    for (; x + 4 * LANES <= count; x += 4 * LANES)
        NAME(plane_vectors_4)(n_taps, w->offsets, filter, from + x, bias, at + x);
    if (x + 2 * LANES <= count) {
        NAME(plane_vectors_2)(n_taps, w->offsets, filter, from + x, bias, at + x);
        x += 2 * LANES;
    }
    for (; x + LANES <= count; x += LANES)
        NAME(plane_vectors_1)(n_taps, w->offsets, filter, from + x, bias, at + x);
    if (x < count) {
        NAME(plane_vectors_1)(n_taps, w->offsets, filter, from + x, bias, row + x);
        if (step == 1)
            NAME(copy_rows)(to + x, 0, row + x, 0, 1, count - x);
    }
    if (step > 1)
        for (x = 0; x < count; ++x)
            to[x * step] = row[x];
}

static void NAME(run_planes)(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    const PLANES *w = buffers[0];
    const dg_phase *p = w->p;
    const int64_t plane = dg_conv_volume(p->sizes), out_plane = dg_conv_volume(p->out_sizes);
    T *copy = w->own + thread * w->own_size, *row = copy + w->room, *filter = row + w->row;
    for (int64_t number = lo; number < hi; ++number) {
        const int64_t group = number % p->groups;
        const T bias = p->bias ? ((const T *)p->bias)[group] : 0;
        for (int64_t t = 0; t < p->n_taps; ++t)
            filter[t] = ((const T *)p->weights)[group * p->group_stride + p->taps[t].weight];
        NAME(copy_plane)(w, (const T *)p->source + number * plane, copy, 0);
        for (int64_t z = 0; z < p->counts[0]; ++z)
            for (int64_t y = 0; y < p->counts[1]; ++y) {
                const int64_t to = (p->start[0] + z * p->step[0]) * p->out_sizes[1] + p->start[1] + y * p->step[1];
                NAME(plane_row)(w, filter, copy + (z * p->pace[0] * w->sizes[1] + y * p->pace[1]) * w->pitch, bias, row,
                                (T *)p->out + number * out_plane + to * p->out_sizes[2] + p->start[2]);
            }
        if (p->finish)
            p->finish->run(p->finish, number / p->groups, group, group + 1, 0, dg_conv_volume(p->counts));
    }
}

static double NAME(plane_nanoseconds)(const PLANES *w)
{
    return (double)w->room * 0.1 + (double)(dg_conv_volume(w->p->counts) * w->p->n_taps) * 4 / DG_CONV_RATE;
}

static int NAME(planes)(const dg_phase *p)
{
    PLANES w;
    if (!NAME(prepare_planes)(&w, p, 1, 0))
        return DG_NO_MEMORY;
    void *const buffers[] = {&w};
    dg_conv_share(p, NAME(run_planes), buffers, p->batch * p->groups, NAME(plane_nanoseconds)(&w));
    p->rt->give(w.offsets);
    return dg_conv_status(p);
}

/* -- the gradient by the filters -------------------------------------------------------------------------------------------- */

/* the sum of the products of windows' elements for a tap and of results; what stands after a row of windows is left out,
   be it NaN */
static T NAME(plane_product)(const PLANES *w, const T *copy, const T *results)
{
    const dg_phase *p = w->p;
    const int64_t count = p->counts[2], vectors = count / LANES;
    const VI chosen = (VI){COUNTED} < (INTEGER)(count % LANES);
    V sums[4] = {{0}};
    for (int64_t z = 0; z < p->counts[0]; ++z)
        for (int64_t y = 0; y < p->counts[1]; ++y, results += w->row) {
            const T *from = copy + (z * p->pace[0] * w->sizes[1] + y * p->pace[1]) * w->pitch;
            int64_t k = 0;
            for (; k + 4 <= vectors; k += 4)
#pragma GCC unroll 4
                for (int j = 0; j < 4; ++j)
                    sums[j] += *(const V *)(from + (k + j) * LANES) * *(const V *)(results + (k + j) * LANES);
            if (k < vectors)
                sums[0] += *(const V *)(from + k * LANES) * *(const V *)(results + k * LANES);
            if (k + 1 < vectors)
                sums[1] += *(const V *)(from + (k + 1) * LANES) * *(const V *)(results + (k + 1) * LANES);
            if (k + 2 < vectors)
                sums[2] += *(const V *)(from + (k + 2) * LANES) * *(const V *)(results + (k + 2) * LANES);
            if (count % LANES)
                sums[3] += (V)((VI) * (const V *)(from + vectors * LANES) & chosen) * *(const V *)(results + vectors * LANES);
        }
    const V all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    T sum = 0;
    for (int j = 0; j < LANES; ++j)
        sum += all[j];
    return sum;
}

static void NAME(run_plane_filters)(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    const PLANES *w = buffers[0];
    const dg_phase *p = w->p;
    const int64_t plane = dg_conv_volume(p->sizes), of_image = dg_conv_volume(p->counts), width = p->counts[2];
    T *copy = w->own + thread * w->own_size, *rows = copy + w->room;
    const int64_t n_rows = p->counts[0] * p->counts[1];
    memset(rows, 0, sizeof(T) * (size_t)(n_rows * w->row));
    for (int64_t number = lo; number < hi; ++number) {
        const T *results = (const T *)p->weights + number * of_image;
        NAME(copy_plane)(w, (const T *)p->source + number * plane, copy, 0);
        for (int64_t y = 0; y < n_rows; ++y)
            memcpy(rows + y * w->row, results + y * width, sizeof(T) * (size_t)width);
        for (int64_t t = 0; t < p->n_taps; ++t)
            w->parts[number * p->n_taps + t] = NAME(plane_product)(w, copy + w->offsets[t], rows);
    }
}

static int NAME(plane_filters)(const dg_phase *p)
{
    PLANES w;
    if (!NAME(prepare_planes)(&w, p, p->counts[0] * p->counts[1], p->batch * p->groups * p->n_taps))
        return DG_NO_MEMORY;
    void *const buffers[] = {&w};
    dg_conv_share(p, NAME(run_plane_filters), buffers, p->batch * p->groups, NAME(plane_nanoseconds)(&w));
    if (!dg_conv_status(p))
        for (int64_t group = 0; group < p->groups; ++group)
            for (int64_t t = 0; t < p->n_taps; ++t) {
                T sum = 0;
                for (int64_t image = 0; image < p->batch; ++image)
                    sum += w.parts[(image * p->groups + group) * p->n_taps + t];
                ((T *)p->out)[group * p->group_stride + p->taps[t].weight] = sum;
            }
    p->rt->give(w.offsets);
    return dg_conv_status(p);
}
