/* Recurrent layers over time, for some rows of the batch: what dispatch/recurrent.c runs on the thread pool.

   A layer's rows are independent of each other.  So each thread takes some of them through all steps, and waits for nobody. */
#ifndef DG_RECURRENT_H
#define DG_RECURRENT_H
#include <stddef.h>
#include <stdint.h>

typedef enum { DG_TANH, DG_RELU, DG_LSTM, DG_GRU } dg_recurrence;

/* A layer in one direction.  Arrays are in C order.  The rows of all steps lie one behind the other: those of step t are
   `offsets[t]` ... + `counts[t]`, and row r of a step goes on with row r of another one.

   `columns`: hidden * 1, 4 (LSTM: input, forget, cell, output) or 3 (GRU: reset, update, new).  What an LSTM hands on to the next
   step has `outputs` elements: hidden, or fewer with a projection. */
typedef struct dg_layer {
    dg_recurrence kind;
    int reverse;
    int64_t steps, batch, hidden, outputs, columns;
    const int64_t *counts, *offsets;
    const void *x;           /* (rows, columns): the input's part in the gates */
    const void *bias, *bias_of_state; /* (columns), or null */
    const void *h0, *c0;     /* (batch, outputs), (batch, hidden); null: zeros */
    const void *weights;     /* packed: see NAME(pack) */
    const void *projection;  /* packed, or null */
    void *out;               /* (rows, outputs) */
    void *cells;             /* LSTM: (rows, hidden) */
    void *gates;             /* LSTM: (rows, columns), may be `x`; GRU: (rows, 4 * hidden), at last the state's part in "new" */
    /* backward */
    const void *grad_out, *grad_cells; /* or null */
    void *grad_x;            /* (rows, columns) */
    void *grad_of_state;     /* GRU: (rows, columns), the gradient by the state's part in the gates */
    void *grad_projected;    /* with a projection: (rows, outputs), the gradient by what was projected to */
    void *shown;             /* and (rows, hidden), what was projected, computed again */
    void *grad_h0, *grad_c0;
} dg_layer;

/* One step of an LSTM or GRU, elementwise: the products have been computed.  `before`: an LSTM's cells, a GRU's state. */
typedef struct dg_cell {
    dg_recurrence kind;
    int64_t batch, hidden, columns;
    const void *x, *of_state, *before; /* (batch, columns) twice, (batch, hidden) */
    void *h, *cells, *gates;           /* (batch, hidden), of an LSTM (batch, hidden); (batch, 4 * hidden) */
    const void *grad_h, *grad_c;       /* or null */
    void *grad_x, *grad_of_state, *grad_before; /* of a GRU both parts have a gradient of their own */
} dg_cell;

/* for one dtype and instruction set */
typedef struct dg_recurrent_code {
    int64_t width;  /* of a packed panel: columns of the result */
    /* scratch memory for so many rows, in elements */
    int64_t (*scratch)(const dg_layer *layer, int64_t rows);
    void (*forward)(const dg_layer *layer, int64_t lo, int64_t hi, void *scratch);
    void (*backward)(const dg_layer *layer, int64_t lo, int64_t hi, void *scratch);
    /* panels of `width` columns of a matrix (k, n), whose element (p, j) is from[p * inner + j * outer]: to[panel][p][column],
       zeros behind the last column; the panels from lo to hi */
    void (*pack)(const void *from, int64_t k, int64_t n, int64_t inner, int64_t outer, int64_t lo, int64_t hi, void *to);
    void (*cell)(const dg_cell *cell, int64_t lo, int64_t hi, void *zeros); /* `zeros`: a row of them */
    void (*cell_back)(const dg_cell *cell, int64_t lo, int64_t hi, void *zeros);
} dg_recurrent_code;

extern const dg_recurrent_code dg_recurrent_f32_baseline, dg_recurrent_f64_baseline;
#if defined(__x86_64__)
extern const dg_recurrent_code dg_recurrent_f32_avx2, dg_recurrent_f64_avx2, dg_recurrent_f32_avx512, dg_recurrent_f64_avx512;
#endif

#endif
