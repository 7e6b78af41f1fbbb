/* Convolutions on the thread pool: `dg_convolve` chooses the code for the processor and the dtype.

   A convolution, as a function of its images, is a product of matrices: the filters, and the windows as columns. The windows
   are gathered into panels of a few columns, a block of terms at a time, right before they are multiplied
   (`conv_template.h`); or, where filters have several taps, the images are copied once with zeros around them, and windows
   are read where they lie (`conv_padded.h`). No array of all windows is made. The gradient by the images is such a product,
   too: for strides it falls into *phases*, one for each place within a stride, with those elements of the filters that meet
   it. The gradient by the filters is a product over all places of all images (`conv_filters.h`). Filters of one channel are
   taken to the images as they are (`conv_planes.h`).

   Bits: each sum is added up block by block, in order, and the blocks depend on sizes alone. So results have the same bits
   for any number of threads. */
#ifndef DG_CONV_H
#define DG_CONV_H
#include "micro.h"

enum { DG_CONV_BLOCK = 256 }; /* terms that are added up before they are added to the result */
#define DG_CONV_RATE 50.0     /* operations in a nanosecond, roughly */

/* one element of a filter: where its window has the element, counted from where the window begins; where the filters have it */
typedef struct dg_tap {
    int64_t offset[DG_CONV_AXES], weight;
} dg_tap;

/* Results at places start + step * q, for q below `counts`, of windows of `source` that begin at pace * q.  Of a group there are
   `channels` of the source and `rows` of the result.  For the gradient by the filters `weights` are the gradients by the results,
   (batch, groups * rows, counts), and `out` the filters'. */
typedef struct dg_phase {
    const dg_runtime *rt;
    dg_stop *stop; /* with the number of threads that there is memory for */
    const void *source, *weights, *bias;
    void *out;
    int64_t batch, groups, channels, rows;
    int64_t sizes[DG_CONV_AXES], out_sizes[DG_CONV_AXES], start[DG_CONV_AXES], step[DG_CONV_AXES], counts[DG_CONV_AXES],
        pace[DG_CONV_AXES];
    int64_t row_stride, channel_stride, group_stride; /* of the filters */
    int64_t n_taps;
    const dg_tap *taps;
    const dg_epilogue *finish; /* or null */
    int64_t *where; /* for maxima, of which `out` or this is null where nobody wants it */
} dg_phase;

/* what there is for an instruction set, for float and double; 0, DG_NO_MEMORY or DG_STOPPED */
typedef struct dg_conv_code {
    const char *isa; /* as products' kernels call it */
    int (*places[2])(const dg_phase *phase);
    int (*filters[2])(const dg_phase *phase);
    int (*maxima[2])(const dg_phase *phase); /* of windows; see pool.c */
    int (*means[2])(const dg_runtime *rt, const dg_pooling *what, const void *from, void *to, dg_stop *stop);
    int (*means_back[2])(const dg_runtime *rt, const dg_pooling *what, const void *from, void *to, dg_stop *stop);
} dg_conv_code;
const dg_conv_code *dg_conv_code_named(const char *isa); /* null: the best; gives null where this processor cannot run it */

void dg_conv_share(const dg_phase *phase, dg_range kernel, void *const *buffers, int64_t n, double nanoseconds);

int dg_convolve(const dg_runtime *rt, const dg_convolution *what, const void *a, const void *b, const void *bias, void *out,
                const dg_epilogue *finish, dg_stop *stop);
int dg_convolve_by(const dg_conv_code *code, const dg_runtime *rt, const dg_convolution *what, const void *a, const void *b,
                   const void *bias, void *out, const dg_epilogue *finish, dg_stop *stop);

static inline int64_t dg_conv_volume(const int64_t *sizes) { return sizes[0] * sizes[1] * sizes[2]; }
static inline int dg_conv_status(const dg_phase *phase) { return phase->stop->stopped ? DG_STOPPED : 0; }

#endif
