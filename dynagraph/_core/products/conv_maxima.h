/* Maxima of windows, and where they stood, for one dtype and instruction set: part of conv_template.h.

   `batch` is the number of arrays of the last dimensions.  Of several equal elements the first is taken, of NaNs the last. */

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

/* a vector of results; `first` is where they are taken from if nothing is greater */
static inline void NAME(vector_of_maxima)(const PLANES *w, const T *from, int64_t place, const INTEGER *first, INTEGER row,
    V *best,
                                          VI *where)
{
    const dg_phase *p = w->p;
    VI at;
    V greatest;
    for (int j = 0; j < LANES; ++j) {
        at[j] = row < 0 || first[j] < 0 ? -1 : row + first[j];
        greatest[j] = -(T)INFINITY;
    }
    for (int64_t t = 0; t < p->n_taps; ++t) {
        const int64_t *sizes = p->sizes, *offset = p->taps[t].offset;
        const INTEGER number = (INTEGER)(place + (offset[0] * sizes[1] + offset[1]) * sizes[2] + offset[2]);
        const VI numbers = number + (VI){COUNTED} * (INTEGER)p->pace[2];
        const V other = *(const V *)(from + w->offsets[t]);
        const VI better = (other > greatest) | (other != other);
        greatest = (V)(((VI)other & better) | ((VI)greatest & ~better));
        at = (numbers & better) | (at & ~better);
    }
    *best = greatest;
    *where = at;
}

static void NAME(run_maxima)(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    const PLANES *w = buffers[0];
    const dg_phase *p = w->p;
    const int64_t plane = dg_conv_volume(p->sizes), width = p->counts[2];
    T *copy = w->own + thread * w->own_size, *to = (T *)p->out + lo * dg_conv_volume(p->counts);
    int64_t *where = p->where + lo * dg_conv_volume(p->counts);
    INTEGER *first = (INTEGER *)(copy + w->room);
    for (int64_t x = 0; x < w->row; ++x)
        first[x] = (INTEGER)NAME(first_within)(p, 2, x);
    for (int64_t number = lo; number < hi; ++number) {
        NAME(copy_plane)(w, (const T *)p->source + number * plane, copy, -(T)INFINITY);
        for (int64_t row = 0; row < p->counts[0] * p->counts[1]; ++row, to += width, where += width) {
            const int64_t z = row / p->counts[1] * p->pace[0], y = row % p->counts[1] * p->pace[1];
            const int64_t first_z = NAME(first_within)(p, 0, row / p->counts[1]);
            const int64_t first_y = NAME(first_within)(p, 1, row % p->counts[1]);
            const int64_t begin = first_z < 0 || first_y < 0 ? -1 : (first_z * p->sizes[1] + first_y) * p->sizes[2];
            const T *from = copy + (z * w->sizes[1] + y) * w->pitch;
            for (int64_t x = 0; x < width; x += LANES) {
                const int64_t place = (z * p->sizes[1] + y) * p->sizes[2] + x * p->pace[2],
                    count = width - x < LANES ? width - x : LANES;
                V best;
                VI at;
                NAME(vector_of_maxima)(w, from + x, place, first + x, (INTEGER)begin, &best, &at);
                NAME(copy_rows)(to + x, 0, (const T *)&best, 0, 1, count);
                for (int64_t j = 0; j < count; ++j)
                    where[x + j] = at[j];
            }
        }
    }
}

static int NAME(maxima)(const dg_phase *p)
{
    PLANES w;
    if (!NAME(prepare_planes)(&w, p, 2, 0))
        return DG_NO_MEMORY;
    void *const buffers[] = {&w};
    dg_conv_share(p, NAME(run_maxima), buffers, p->batch, NAME(plane_nanoseconds)(&w));
    p->rt->give(w.offsets);
    return dg_conv_status(p);
}
