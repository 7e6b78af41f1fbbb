/* Images with the zeros around them that windows reach, for one dtype and instruction set: part of conv_template.h.

   Where filters have several taps, such a copy is less work than gathering each window: micro-kernels then read windows where
   they lie.  Elements a stride apart along the last axis lie side by side.  So an element of a window is at the sum of two
   numbers, one for where the window begins and one for the tap. */
#define PADDED NAME(padded)

typedef struct {
    const dg_phase *p;
    T *images; /* [image][channel of all groups][z][y][x modulo pace][x / pace] */
    int64_t low[DG_CONV_AXES], sizes[DG_CONV_AXES]; /* zeros before an image; what windows reach, with these */
    int64_t length, row, plane;                     /* of elements that are a stride apart; of a row; from channel to channel */
} PADDED;

/* the layout; gives how many elements it has, or 0: windows are to be gathered */
static int64_t NAME(padded_size)(const dg_phase *p, PADDED *to)
{
    enum { MOST = 1 << 24, TAPS = 3, GROWTH = 3, LINE = 64 / sizeof(T) };
    const int64_t channels = p->batch * p->groups * p->channels;
    to->p = p;
    for (int axis = 0; axis < DG_CONV_AXES; ++axis) {
        int64_t least = 0, most = 0;
        for (int64_t t = 0; t < p->n_taps; ++t) {
            const int64_t offset = p->taps[t].offset[axis];
            least = offset < least ? offset : least;
            most = offset > most ? offset : most;
        }
        to->low[axis] = -least;
        to->sizes[axis] = most - least + p->pace[axis] * (p->counts[axis] - 1) + 1;
    }
    const int64_t volume = dg_conv_volume(p->sizes);
    if ((double)to->sizes[0] * (double)to->sizes[1] * (double)to->sizes[2] > MOST)
        return 0;
    to->length = (to->sizes[2] + p->pace[2] - 1) / p->pace[2];
    to->row = to->length * p->pace[2];
    to->plane = (to->sizes[0] * to->sizes[1] * to->row + LINE - 1) / LINE * LINE;
    to->plane += to->plane / LINE % 2 ? 0 : LINE; /* an odd number of lines: channels fall into all sets of the cache */
    const int is_worth = p->n_taps >= TAPS && channels && dg_conv_volume(p->counts) && to->plane <= GROWTH * volume + LINE;
    return is_worth && to->plane * channels <= MOST ? to->plane * channels : 0;
}

/* one row of an image, with zeros around it */
static void NAME(pad_row)(const PADDED *w, const T *from, T *to)
{
    const dg_phase *p = w->p;
    const int64_t pace = p->pace[2], low = w->low[2];
    if (!from) {
        memset(to, 0, sizeof(T) * (size_t)w->row);
        return;
    }
    const int64_t end = low + p->sizes[2] < w->sizes[2] ? low + p->sizes[2] : w->sizes[2]; /* of the image */
    if (pace == 1) {
        memset(to, 0, sizeof(T) * (size_t)low);
        memcpy(to + low, from, sizeof(T) * (size_t)(end - low));
        memset(to + end, 0, sizeof(T) * (size_t)(w->row - end));
        return;
    }
    for (int64_t r = 0; r < pace; ++r)
        for (int64_t q = 0; q < w->length; ++q) {
            const int64_t x = q * pace + r;
            to[r * w->length + q] = x >= low && x < end ? from[x - low] : 0;
        }
}

/* an image of short rows: zeros, and the rows over them */
static void NAME(pad_short_rows)(const PADDED *w, const T *from, T *to)
{
    const dg_phase *p = w->p;
    int64_t within[DG_CONV_AXES];
    for (int axis = 0; axis < DG_CONV_AXES; ++axis) {
        const int64_t reached = w->sizes[axis] - w->low[axis];
        within[axis] = reached < p->sizes[axis] ? reached : p->sizes[axis];
    }
    memset(to, 0, sizeof(T) * (size_t)(w->sizes[0] * w->sizes[1] * w->row));
    for (int64_t z = 0; z < within[0]; ++z)
        NAME(copy_rows)(to + ((z + w->low[0]) * w->sizes[1] + w->low[1]) * w->row + w->low[2], w->row,
                        from + z * p->sizes[1] * p->sizes[2], p->sizes[2], within[1], within[2]);
}

static void NAME(pad_channels)(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    enum { SHORT = 2 * LANES };
    const PADDED *w = buffers[0];
    const dg_phase *p = w->p;
    for (int64_t channel = lo; channel < hi; ++channel) {
        const T *from = (const T *)p->source + channel * dg_conv_volume(p->sizes);
        T *to = w->images + channel * w->plane;
        if (p->pace[2] == 1 && p->sizes[2] <= SHORT) {
            NAME(pad_short_rows)(w, from, to);
            continue;
        }
        for (int64_t z = -w->low[0]; z < w->sizes[0] - w->low[0]; ++z)
            for (int64_t y = -w->low[1]; y < w->sizes[1] - w->low[1]; ++y, to += w->row) {
                const int is_within = z >= 0 && z < p->sizes[0] && y >= 0 && y < p->sizes[1];
                NAME(pad_row)(w, is_within ? from + (z * p->sizes[1] + y) * p->sizes[2] : NULL, to);
            }
    }
}

static void NAME(pad_images)(const PADDED *w)
{
    const dg_phase *p = w->p;
    void *const buffers[] = {(void *)w};
    dg_conv_share(p, NAME(pad_channels), buffers, p->batch * p->groups * p->channels, 0.2 * (double)w->plane);
}

/* where a tap lies, from where a window begins */
static int64_t NAME(tap_at)(const PADDED *w, const dg_tap *tap)
{
    const int64_t z = tap->offset[0] + w->low[0], y = tap->offset[1] + w->low[1], x = tap->offset[2] + w->low[2];
    const int64_t pace = w->p->pace[2];
    return (z * w->sizes[1] + y) * w->row + x % pace * w->length + x / pace;
}

/* where the first window of a segment begins in a channel, and the first channel of its group */
static int64_t NAME(window_at)(const PADDED *w, int64_t group, const SEGMENT *s)
{
    const dg_phase *p = w->p;
    const int64_t channel = (s->image * p->groups + group) * p->channels;
    return channel * w->plane + (s->from[0] * w->sizes[1] + s->from[1]) * w->row + s->from[2] / p->pace[2];
}
