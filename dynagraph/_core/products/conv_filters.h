/* The gradient by the filters, for one dtype and instruction set: part of conv_template.h.

   Rows are elements of the filters, numbered by tap, then channel; columns are channels of the results; terms are places of all
   images.  Where there are few rows the terms fall into chunks, whose sums are added up, in order, at the end. */
#define FILTERS NAME(filter_work)

enum { NAME(PITCH) = DG_CONV_BLOCK + 16, NAME(TOGETHER) = 8 }; /* of rows of windows; tiles of rows at a time */

typedef struct {
    const dg_phase *p;
    T *results; /* the gradients by the results: [group][panel][place of all images][columns of a tile] */
    T *parts;   /* of chunks: [chunk][group][row][column]; null if there is one */
    T *own;     /* of each thread: rows of windows, then sums */
    int64_t mr, nr, own_size, rows, terms, panels, blocks, chunks, chunk;
    PADDED padded;
    int64_t *place; /* of each row, from where a window begins in the padded images; null: windows are gathered */
} FILTERS;

static void NAME(pack_results)(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    const FILTERS *w = buffers[0];
    const dg_phase *p = w->p;
    const int64_t places = dg_conv_volume(p->counts);
    const dg_matrix from = {.data = p->weights, .element = ELEMENT, .axes = 1, .outer = places, .inner = 1,
                            .shape = {p->batch * p->groups}, .strides = {p->rows * places}};
    for (int64_t number = lo; number < hi; ++number) {
        const int64_t panel = number % w->panels, group = number / w->panels % p->groups, image = number / w->panels / p->groups;
        const int64_t first = panel * w->nr, count = p->rows - first < w->nr ? p->rows - first : w->nr;
        PACK(&from, image * p->groups + group, first, count, 0, places, w->nr,
             w->results + ((group * w->panels + panel) * w->terms + image * places) * w->nr);
    }
}

static void NAME(gather_rows)(const FILTERS *w, const SEGMENT *segments, int64_t n, int64_t first, int64_t count, T *to)
{
    const dg_phase *p = w->p;
    for (int64_t row = first, more; row < first + count; row += more) {
        const int64_t tap = row / p->channels, channel = row % p->channels, left = first + count - row;
        more = p->channels - channel < left ? p->channels - channel : left;
        for (int64_t k = 0; k < n; ++k)
            NAME(gather)(p, &segments[k], &p->taps[tap], channel, more, to + (row - first) * NAME(PITCH) + segments[k].at,
                NAME(PITCH));
    }
}

static T *NAME(filter_at)(const dg_phase *p, int64_t group, int64_t row)
{
    return (T *)p->out + group * p->group_stride + row % p->channels * p->channel_stride + p->taps[row / p->channels].weight;
}

static void NAME(store_filters)(const FILTERS *w, int64_t group, int64_t chunk, int64_t first, int64_t count, const T *sums)
{
    const dg_phase *p = w->p;
    const int64_t step = w->parts ? 1 : p->row_stride;
    for (int64_t r = 0; r < count; ++r) {
        const T *from = sums + r / w->mr * (w->panels * w->mr * w->nr) + r % w->mr * w->nr;
        T *to = w->parts ? w->parts + ((chunk * p->groups + group) * w->rows + first + r) * p->rows : NAME(filter_at)(p,
            group, first + r);
        for (int64_t o = 0; o < p->rows; o += w->nr, from += w->mr * w->nr)
            for (int64_t j = 0; j < w->nr && o + j < p->rows; ++j)
                to[(o + j) * step] = from[j];
    }
}

/* some rows by all columns, for a block of terms */
static void NAME(multiply_block)(const FILTERS *w, int64_t group, int64_t first, int64_t count, int64_t at, int64_t k, T *windows,
                                 T *sums, int accumulate)
{
    const int64_t tile = w->mr * w->nr;
    SEGMENT segments[DG_CONV_BLOCK];
    dg_stretch stretches[DG_CONV_BLOCK];
    const int64_t n = NAME(segments)(w->p, group, at, k, segments);
    if (w->place)
        for (int64_t s = 0; s < n; ++s)
            stretches[s] = (dg_stretch){NAME(window_at)(&w->padded, group, &segments[s]), segments[s].length};
    else
        NAME(gather_rows)(w, segments, n, first, count, windows);
    for (int64_t panel = 0; panel < w->panels; ++panel)
        for (int64_t r = 0; r < count; r += w->mr) {
            const int64_t rows = count - r < w->mr ? count - r : w->mr;
            const T *results = w->results + ((group * w->panels + panel) * w->terms + at) * w->nr;
            T *to = sums + (r / w->mr * w->panels + panel) * tile;
            if (w->place)
                NAME(dg_kernel).stretches(rows, n, stretches, w->padded.images, w->place + first + r, results, to, w->nr,
                                          accumulate);
            else
                NAME(dg_kernel).direct(rows, k, windows + r * NAME(PITCH), NAME(PITCH), 1, results, w->nr, to, w->nr,
                                       accumulate);
        }
}

static void NAME(multiply_rows)(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    const FILTERS *w = buffers[0];
    const int64_t together = NAME(TOGETHER) * w->mr;
    T *windows = w->own + thread * w->own_size, *sums = windows + together * NAME(PITCH);
    for (int64_t number = lo; number < hi; ++number) {
        const int64_t block = number % w->blocks, chunk = number / w->blocks % w->chunks, group = number / w->blocks / w->chunks;
        const int64_t first = block * together, count = w->rows - first < together ? w->rows - first : together;
        const int64_t begin = chunk * w->chunk, end = begin + w->chunk < w->terms ? begin + w->chunk : w->terms;
        if (begin >= end)
            memset(sums, 0, sizeof(T) * (size_t)(together * w->panels * w->nr));
        for (int64_t at = begin; at < end; at += DG_CONV_BLOCK)
            NAME(multiply_block)(w, group, first, count, at, end - at < DG_CONV_BLOCK ? end - at : DG_CONV_BLOCK, windows, sums,
                                 at > begin);
        NAME(store_filters)(w, group, chunk, first, count, sums);
    }
}

/* the sums of chunks, from the first to the last */
static void NAME(add_chunks)(const FILTERS *w)
{
    const dg_phase *p = w->p;
    for (int64_t group = 0; group < p->groups; ++group)
        for (int64_t row = 0; row < w->rows; ++row)
            for (int64_t o = 0; o < p->rows; ++o) {
                T sum = 0;
                for (int64_t chunk = 0; chunk < w->chunks; ++chunk)
                    sum += w->parts[((chunk * p->groups + group) * w->rows + row) * p->rows + o];
                NAME(filter_at)(p, group, row)[o * p->row_stride] = sum;
            }
}

static int NAME(filters)(const dg_phase *p)
{
    enum { UNITS = 16 }; /* that are enough to share */
    if (p->channels == 1 && p->rows == 1)
        return NAME(plane_filters)(p);
    FILTERS w = {.p = p, .mr = NAME(dg_kernel).mr, .nr = NAME(dg_kernel).nr, .rows = p->channels * p->n_taps};
    w.terms = p->batch * dg_conv_volume(p->counts);
    w.panels = (p->rows + w.nr - 1) / w.nr;
    w.blocks = (w.rows + NAME(TOGETHER) * w.mr - 1) / (NAME(TOGETHER) * w.mr);
    const int64_t units = p->groups * w.blocks, wanted = units ? UNITS / units : 0;
    const int64_t steps = (w.terms + DG_CONV_BLOCK - 1) / DG_CONV_BLOCK;
    w.chunks = wanted < 1 || steps < 1 ? 1 : wanted < steps ? wanted : steps;
    w.chunk = (steps + w.chunks - 1) / w.chunks * DG_CONV_BLOCK;
    w.own_size = NAME(TOGETHER) * w.mr * (NAME(PITCH) + w.panels * w.nr);
    const int64_t results = p->groups * w.panels * w.terms * w.nr, own = p->stop->threads * w.own_size;
    const int64_t parts = w.chunks == 1 ? 0 : w.chunks * p->groups * w.rows * p->rows;
    const int64_t padded = NAME(padded_size)(p, &w.padded), n_places = padded ? w.rows : 0;
    int64_t *memory = p->rt->take(sizeof *memory * (size_t)n_places + sizeof(T) * (size_t)(results + own + parts + padded + 1));
    if (!memory)
        return DG_NO_MEMORY;
    w.own = (T *)(memory + n_places);
    w.results = w.own + own;
    w.parts = parts ? w.results + results : NULL;
    if (padded) {
        w.padded.images = w.results + results + parts;
        w.place = memory;
        for (int64_t row = 0; row < w.rows; ++row)
            w.place[row] = row % p->channels * w.padded.plane + NAME(tap_at)(&w.padded, &p->taps[row / p->channels]);
        NAME(pad_images)(&w.padded);
    }
    void *const buffers[] = {&w};
    const double each = 2.0 * (double)(NAME(TOGETHER) * w.mr) * (double)(w.panels * w.nr) * (double)w.chunk / DG_CONV_RATE;
    dg_conv_share(p, NAME(pack_results), buffers, p->batch * p->groups * w.panels,
        0.5 * (double)(dg_conv_volume(p->counts) * w.nr));
    dg_conv_share(p, NAME(multiply_rows), buffers, p->groups * w.blocks * w.chunks, each);
    if (parts && !dg_conv_status(p))
        NAME(add_chunks)(&w);
    p->rt->give(memory);
    return dg_conv_status(p);
}

#undef FILTERS
