/* Filters of one channel, each for a channel of its own (depthwise), for one dtype and instruction set: part of conv_template.h.

   A channel is copied with as many zeros around it as the windows reach out, and some elements after it that vectors may read. */
#define PLANES NAME(plane_work)

typedef struct {
    const dg_phase *p;
    int64_t low[DG_CONV_AXES], sizes[DG_CONV_AXES]; /* what windows touch: where that begins in the channel, and how large it is */
    int64_t room, row;                              /* elements of the copy, and of a row of results, with what is after it */
    T *own;                                         /* of each thread: the copy; for gradients, a row of results */
    T *parts;                                       /* gradients by filters of each image: [image][group][tap] */
} PLANES;

static PLANES NAME(planes_of)(const dg_phase *p)
{
    PLANES w = {.p = p};
    for (int axis = 0; axis < DG_CONV_AXES; ++axis) {
        int64_t low = p->n_taps ? p->taps[0].offset[axis] : 0, high = low;
        for (int64_t t = 0; t < p->n_taps; ++t) {
            const int64_t offset = p->taps[t].offset[axis];
            low = offset < low ? offset : low;
            high = offset > high ? offset : high;
        }
        w.low[axis] = low;
        w.sizes[axis] = high - low + (p->counts[axis] ? p->pace[axis] * (p->counts[axis] - 1) : 0) + 1;
    }
    w.room = dg_conv_volume(w.sizes) + 2 * LANES * p->pace[2];
    w.row = (p->counts[2] + LANES) / LANES * LANES;
    return w;
}

static void NAME(copy_plane)(const PLANES *w, const T *from, T *to)
{
    const int64_t *sizes = w->p->sizes;
    const int64_t x = w->low[2] < 0 ? 0 : w->low[2], end = w->low[2] + w->sizes[2] < sizes[2] ? w->low[2] + w->sizes[2] : sizes[2];
    memset(to, 0, sizeof(T) * (size_t)w->room);
    for (int64_t z = 0; z < w->sizes[0]; ++z)
        for (int64_t y = 0; y < w->sizes[1]; ++y) {
            const int64_t at_z = z + w->low[0], at_y = y + w->low[1];
            if (at_z >= 0 && at_z < sizes[0] && at_y >= 0 && at_y < sizes[1] && x < end)
                memcpy(to + (z * w->sizes[1] + y) * w->sizes[2] + x - w->low[2], from + (at_z * sizes[1] + at_y) * sizes[2] + x,
                       sizeof(T) * (size_t)(end - x));
        }
}

static inline int64_t NAME(plane_offset)(const PLANES *w, int64_t z, int64_t y, int64_t x)
{
    return (z * w->sizes[1] + y) * w->sizes[2] + x;
}

/* results of a row of windows, `n` vectors of them */
#define DEFINE_VECTORS(n)                                                                                                         \
    static inline void NAME(plane_vectors_##n)(const PLANES *w, const T *weights, const T *from, V *sums)                        \
    {                                                                                                                             \
        const dg_phase *p = w->p;                                                                                                 \
        const int64_t pace = p->pace[2];                                                                                          \
        V found[n] = {{0}};                                                                                                       \
        for (int64_t t = 0; t < p->n_taps; ++t) {                                                                                 \
            const dg_tap *tap = &p->taps[t];                                                                                      \
            const T weight = weights[tap->weight];                                                                                \
            const T *at = from + NAME(plane_offset)(w, tap->offset[0] - w->low[0], tap->offset[1] - w->low[1],                    \
                                                    tap->offset[2] - w->low[2]);                                                  \
            for (int k = 0; k < n; ++k)                                                                                           \
                found[k] += weight * NAME(spread)(at + k * LANES * pace, pace);                                                   \
        }                                                                                                                         \
        for (int k = 0; k < n; ++k)                                                                                               \
            sums[k] = found[k];                                                                                                   \
    }
DEFINE_VECTORS(1)
DEFINE_VECTORS(4)
#undef DEFINE_VECTORS

static void NAME(plane_row)(const PLANES *w, const T *weights, const T *from, const T *bias, T *to)
{
    const dg_phase *p = w->p;
    const int64_t count = p->counts[2], step = p->step[2], pace = p->pace[2];
    V sums[4];
    for (int64_t x = 0; x < count;) {
        const int n = x + 4 * LANES <= count ? 4 : 1;
        if (n == 4)
            NAME(plane_vectors_4)(w, weights, from + x * pace, sums);
        else
            NAME(plane_vectors_1)(w, weights, from + x * pace, sums);
        if (bias)
            for (int k = 0; k < n; ++k)
                sums[k] += *bias;
        const int64_t left = count - x < n * LANES ? count - x : n * LANES;
        if (step == 1)
            memcpy(to + x, sums, sizeof(T) * (size_t)left);
        else
            for (int64_t j = 0; j < left; ++j)
                to[(x + j) * step] = sums[j / LANES][j % LANES];
        x += left;
    }
}

static void NAME(run_planes)(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    const PLANES *w = buffers[0];
    const dg_phase *p = w->p;
    const int64_t plane = dg_conv_volume(p->sizes), out_plane = dg_conv_volume(p->out_sizes);
    T *copy = w->own + thread * (w->room + w->row);
    for (int64_t number = lo; number < hi; ++number) {
        const int64_t group = number % p->groups;
        const T *weights = (const T *)p->weights + group * p->group_stride, *bias = p->bias ? (const T *)p->bias + group : NULL;
        T *out = (T *)p->out + number * out_plane;
        NAME(copy_plane)(w, (const T *)p->source + number * plane, copy);
        for (int64_t z = 0; z < p->counts[0]; ++z)
            for (int64_t y = 0; y < p->counts[1]; ++y)
                NAME(plane_row)(w, weights, copy + NAME(plane_offset)(w, z * p->pace[0], y * p->pace[1], 0), bias,
                                out + ((p->start[0] + z * p->step[0]) * p->out_sizes[1] + p->start[1] + y * p->step[1]) * p->out_sizes[2] +
                                    p->start[2]);
        if (p->finish)
            p->finish->run(p->finish, number / p->groups, group, group + 1, 0, dg_conv_volume(p->counts));
    }
}

static int NAME(planes)(const dg_phase *p)
{
    PLANES w = NAME(planes_of)(p);
    w.own = p->rt->take(sizeof(T) * (size_t)(p->rt->n_threads * (w.room + w.row)));
    if (!w.own)
        return DG_NO_MEMORY;
    void *const buffers[] = {&w};
    dg_conv_share(p, NAME(run_planes), buffers, p->batch * p->groups,
                  (double)(w.room + dg_conv_volume(p->counts) * p->n_taps) * 4 / DG_CONV_RATE);
    p->rt->give(w.own);
    return dg_conv_status(p);
}

/* -- the gradient by the filters ---------------------------------------------------------------------------------------------- */

/* the sum of the products of a row of windows and of results, whose elements after the last one are zero */
static inline V NAME(row_product)(const T *from, const T *results, int64_t count, int64_t pace, V sum)
{
    int64_t x = 0;
    for (; x + LANES <= count; x += LANES)
        sum += NAME(spread)(from + x * pace, pace) * *(const V *)(results + x);
    if (x < count) { /* what stands after the row is left out, be it NaN */
        V last = {0};
        for (int64_t j = 0; j < count - x; ++j)
            last[j] = from[(x + j) * pace];
        sum += last * *(const V *)(results + x);
    }
    return sum;
}

static void NAME(run_plane_filters)(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    const PLANES *w = buffers[0];
    const dg_phase *p = w->p;
    const int64_t plane = dg_conv_volume(p->sizes), of_image = dg_conv_volume(p->counts), width = p->counts[2];
    T *copy = w->own + thread * (w->room + w->row + p->n_taps * LANES), *row = copy + w->room;
    V *sums = (V *)(row + w->row);
    for (int64_t number = lo; number < hi; ++number) {
        const T *results = (const T *)p->weights + number * of_image;
        T *part = w->parts + number * p->n_taps;
        NAME(copy_plane)(w, (const T *)p->source + number * plane, copy);
        memset(sums, 0, sizeof(V) * (size_t)p->n_taps);
        memset(row, 0, sizeof(T) * (size_t)w->row);
        for (int64_t z = 0; z < p->counts[0]; ++z)
            for (int64_t y = 0; y < p->counts[1]; ++y) {
                memcpy(row, results + (z * p->counts[1] + y) * width, sizeof(T) * (size_t)width);
                const T *from = copy + NAME(plane_offset)(w, z * p->pace[0] - w->low[0], y * p->pace[1] - w->low[1], -w->low[2]);
                for (int64_t t = 0; t < p->n_taps; ++t) {
                    const int64_t *offset = p->taps[t].offset;
                    sums[t] = NAME(row_product)(from + NAME(plane_offset)(w, offset[0], offset[1], offset[2]), row, width, p->pace[2], sums[t]);
                }
            }
        for (int64_t t = 0; t < p->n_taps; ++t) {
            T sum = 0;
            for (int j = 0; j < LANES; ++j)
                sum += sums[t][j];
            part[t] = sum;
        }
    }
}

static int NAME(plane_filters)(const dg_phase *p)
{
    PLANES w = NAME(planes_of)(p);
    const int64_t own = p->rt->n_threads * (w.room + w.row + p->n_taps * LANES);
    w.own = p->rt->take(sizeof(T) * (size_t)(own + p->batch * p->groups * p->n_taps + 1));
    if (!w.own)
        return DG_NO_MEMORY;
    w.parts = w.own + own;
    void *const buffers[] = {&w};
    dg_conv_share(p, NAME(run_plane_filters), buffers, p->batch * p->groups,
                  (double)(w.room + dg_conv_volume(p->counts) * p->n_taps) * 4 / DG_CONV_RATE);
    if (!dg_conv_status(p))
        for (int64_t group = 0; group < p->groups; ++group)
            for (int64_t t = 0; t < p->n_taps; ++t) {
                T sum = 0;
                for (int64_t image = 0; image < p->batch; ++image)
                    sum += w.parts[(image * p->groups + group) * p->n_taps + t];
                ((T *)p->out)[group * p->group_stride + p->taps[t].weight] = sum;
            }
    p->rt->give(w.own);
    return dg_conv_status(p);
}

#undef PLANES
