/* Convolutions: what each is as products, and who runs it. */
#include "conv.h"

#include <string.h>

extern const dg_conv_code dg_conv_baseline, dg_conv_avx2, dg_conv_avx512;

const dg_conv_code *dg_conv_code_named(const char *isa)
{
    static const dg_conv_code *const all[] = {
#if defined(__x86_64__)
        &dg_conv_avx512, &dg_conv_avx2,
#endif
        &dg_conv_baseline};
    for (const dg_kernel_f32 *const *kernel = dg_kernels_f32(); (*kernel)->isa; ++kernel)
        for (size_t k = 0; k < sizeof all / sizeof *all; ++k)
            if (strcmp((*kernel)->isa, all[k]->isa) == 0 && (!isa || strcmp(isa, all[k]->isa) == 0))
                return all[k];
    return NULL;
}

void dg_share(const dg_runtime *rt, dg_stop *stop, dg_range kernel, void *const *buffers, int64_t n, double nanoseconds)
{
    static const double worth_threads = 2e4, most = 5e6; /* as generated code has it, see backends/c/entry.py */
    if (n < 1)
        return;
    if (n < 2 || (double)n * nanoseconds < worth_threads)
        kernel(buffers, NULL, 0, n, 0, stop);
    else
        rt->parallel(kernel, buffers, NULL, n, 1, nanoseconds < most ? (int64_t)(most / nanoseconds) : 1, stop);
}

void dg_conv_share(const dg_phase *phase, dg_range kernel, void *const *buffers, int64_t n, double nanoseconds)
{
    dg_share(phase->rt, phase->stop, kernel, buffers, n, nanoseconds);
}

/* the taps of a filter whose windows are as a convolution has them */
static void all_taps(const dg_convolution *c, dg_tap *taps)
{
    int64_t n = 0;
    for (int64_t z = 0; z < c->kernel[0]; ++z)
        for (int64_t y = 0; y < c->kernel[1]; ++y)
            for (int64_t x = 0; x < c->kernel[2]; ++x, ++n)
                taps[n] = (dg_tap){{z * c->dilation[0] - c->before[0], y * c->dilation[1] - c->before[1],
                                    x * c->dilation[2] - c->before[2]}, n};
}

/* those that meet the elements of the images at `start`, a stride apart, as a function of the place of the result */
static int64_t taps_at(const dg_convolution *c, const int64_t *start, dg_tap *taps)
{
    int64_t n = 0, at[DG_CONV_AXES];
    for (int64_t number = 0; number < dg_conv_volume(c->kernel); ++number) {
        at[2] = number % c->kernel[2];
        at[1] = number / c->kernel[2] % c->kernel[1];
        at[0] = number / c->kernel[2] / c->kernel[1];
        int meets = 1;
        taps[n].weight = number;
        for (int axis = 0; axis < DG_CONV_AXES; ++axis) {
            const int64_t from = start[axis] + c->before[axis] - at[axis] * c->dilation[axis];
            meets &= from % c->stride[axis] == 0;
            taps[n].offset[axis] = from / c->stride[axis];
        }
        n += meets;
    }
    return n;
}

static int convolve_images(const dg_conv_code *code, dg_phase *p, const dg_convolution *c, dg_tap *taps)
{
    all_taps(c, taps);
    int is_pointwise = 1;
    for (int axis = 0; axis < DG_CONV_AXES; ++axis) {
        is_pointwise &= c->kernel[axis] == 1 && c->stride[axis] == 1 && c->before[axis] == 0 && c->places[axis] == c->sizes[axis];
        p->sizes[axis] = c->sizes[axis];
        p->counts[axis] = p->out_sizes[axis] = c->places[axis];
        p->pace[axis] = c->places[axis] > 1 ? c->stride[axis] : 1; /* one window has no next one, however far */
        p->step[axis] = 1;
    }
    if (is_pointwise)
        for (int axis = 0; axis < DG_CONV_AXES; ++axis) /* an image is one long row */
            p->sizes[axis] = p->counts[axis] = p->out_sizes[axis] = axis == 2 ? dg_conv_volume(c->sizes) : 1;
    p->n_taps = dg_conv_volume(c->kernel);
    return c->which == DG_CONV ? code->places[c->is_double](p) : code->filters[c->is_double](p);
}

static int convolve_results(const dg_conv_code *code, dg_phase *p, const dg_convolution *c, dg_tap *taps)
{
    int status = 0;
    for (int axis = 0; axis < DG_CONV_AXES; ++axis) {
        p->sizes[axis] = c->places[axis];
        p->out_sizes[axis] = c->sizes[axis];
        p->step[axis] = c->stride[axis];
        p->pace[axis] = 1;
    }
    int64_t starts[DG_CONV_AXES]; /* that lie within an image */
    for (int axis = 0; axis < DG_CONV_AXES; ++axis)
        starts[axis] = c->stride[axis] < c->sizes[axis] ? c->stride[axis] : c->sizes[axis];
    const int64_t phases = dg_conv_volume(starts);
    for (int64_t number = 0; number < phases && status == 0; ++number) {
        p->start[2] = number % starts[2];
        p->start[1] = number / starts[2] % starts[1];
        p->start[0] = number / starts[2] / starts[1];
        for (int axis = 0; axis < DG_CONV_AXES; ++axis) {
            const int64_t left = c->sizes[axis] - p->start[axis];
            p->counts[axis] = left > 0 ? (left - 1) / c->stride[axis] + 1 : 0;
        }
        p->n_taps = taps_at(c, p->start, taps);
        if (dg_conv_volume(p->counts))
            status = code->places[c->is_double](p);
    }
    return status;
}

static void finish_channels(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    const dg_phase *p = buffers[0];
    const int64_t channels = p->groups * p->rows;
    for (int64_t k = lo; k < hi; ++k)
        p->finish->run(p->finish, k / channels, k % channels, k % channels + 1, 0, dg_conv_volume(p->out_sizes));
}

/* Whether places can be counted: what does not fit into 64 bits, or hardly, does not fit into memory. */
static int is_countable(const dg_convolution *c)
{
    const int64_t most = INT64_C(1) << 60;
    if ((double)c->kernel[0] * (double)c->kernel[1] * (double)c->kernel[2] > 0x1p48)
        return 0;
    for (int axis = 0; axis < DG_CONV_AXES; ++axis) {
        int64_t reach, way;
        if (__builtin_mul_overflow(c->kernel[axis] - 1, c->dilation[axis], &reach) || reach > most ||
            __builtin_mul_overflow(c->places[axis] - 1, c->stride[axis], &way) || way > most || c->before[axis] > most ||
            c->before[axis] < -most)
            return 0;
    }
    return 1;
}

int dg_convolve_by(const dg_conv_code *code, const dg_runtime *rt, const dg_convolution *c, const void *a, const void *b,
                   const void *bias, void *out, const dg_epilogue *finish, dg_stop *stop)
{
    const int64_t n_taps = dg_conv_volume(c->kernel);
    dg_tap few[64], *taps = n_taps <= (int64_t)(sizeof few / sizeof *few) ? few : rt->take(sizeof *taps * (size_t)n_taps);
    if (!taps || !is_countable(c)) {
        if (taps != few)
            rt->give(taps);
        return DG_NO_MEMORY;
    }
    dg_stop own = dg_begin_operation(rt, stop);
    dg_phase p = {.rt = rt, .stop = &own, .source = a, .weights = b, .bias = bias, .out = out, .batch = c->batch,
        .groups = c->groups,
                  .channels = c->ins, .rows = c->outs, .row_stride = c->ins * n_taps, .channel_stride = n_taps,
                  .group_stride = c->outs * c->ins * n_taps, .taps = taps, .finish = finish};
    int status;
    if (c->which == DG_CONV_INPUT) {
        p.channels = c->outs;
        p.rows = c->ins;
        p.row_stride = n_taps;
        p.channel_stride = c->ins * n_taps;
        p.finish = dg_conv_volume(c->stride) == 1 ? finish : NULL;
        status = convolve_results(code, &p, c, taps);
        if (finish && !p.finish && status == 0) {
            p.finish = finish;
            void *const buffers[] = {&p};
            dg_conv_share(&p, finish_channels, buffers, c->batch * c->groups * c->ins, 0.2 * (double)dg_conv_volume(p.out_sizes));
            status = dg_conv_status(&p);
        }
    } else {
        status = convolve_images(code, &p, c, taps);
    }
    if (taps != few)
        rt->give(taps);
    return dg_end_operation(&own, stop, status);
}

int dg_convolve(const dg_runtime *rt, const dg_convolution *what, const void *a, const void *b, const void *bias, void *out,
                const dg_epilogue *finish, dg_stop *stop)
{
    return dg_convolve_by(dg_conv_code_named(NULL), rt, what, a, b, bias, out, finish, stop);
}
