/* Attention as one program over tiles of queries and keys: see attention.c. */
#ifndef DG_ATTENTION_H
#define DG_ATTENTION_H
#include "micro.h"

#define DG_DECLARE_LANES(suffix, T)                                                                                               \
    typedef struct dg_lanes_##suffix {                                                                                            \
        const char *isa;                                                                                                          \
        void (*online)(int64_t keys, int64_t lanes, T *scores, int64_t ld, T *top, T *sum, T *acc, int64_t acc_ld,                \
                       int64_t width);                                                                                            \
        void (*online_keys)(int64_t keys, int64_t lanes, T *scores, T *top, T *sum, T *acc, int64_t width);                       \
        void (*weigh)(int64_t keys, int64_t lanes, T *scores, int64_t ld, const T *shift, const T *factors);                      \
        void (*add)(int64_t keys, int64_t lanes, T *scores, int64_t ld, const T *numbers, int64_t numbers_ld, int each);          \
        void (*hide)(int64_t keys, int64_t lanes, T *scores, int64_t ld, const T *hidden, int64_t hidden_ld, int each);           \
        void (*slope)(int64_t keys, int64_t lanes, const T *weights, T *by_weights, int64_t ld, const T *less);                   \
        void (*multiply)(int64_t keys, int64_t lanes, T *tile, int64_t ld, const T *factors, int64_t factors_ld);                 \
        void (*scale)(int64_t count, T *tile, T factor);                                                                          \
        void (*copy)(int64_t rows, int64_t width, const T *from, int64_t ld, T *to, int64_t to_ld);                               \
        void (*put)(int64_t rows, int64_t width, const T *from, int64_t ld, T zero, T *to, int64_t to_ld);                        \
        void (*dots)(int64_t rows, int64_t width, const T *a, int64_t a_ld, const T *b, int64_t b_ld, T *sums);                   \
    } dg_lanes_##suffix;                                                                                                          \
    const dg_lanes_##suffix *dg_lanes_of_##suffix(const char *isa);
DG_DECLARE_LANES(f32, float)
DG_DECLARE_LANES(f64, double)

/* An array of `axes` leading axes (batch), heads, rows and columns; strides in elements, null data: there is none. */
typedef struct dg_tensor {
    void *data;
    int64_t batch[DG_BATCH_AXES], head, row, column;
} dg_tensor;

/* What is added to scores; a tensor whose strides are 0 where it broadcasts, without data where there is none. */
typedef struct dg_mask {
    dg_tensor t;
    int32_t of_bools;     /* true: attend; else it is added */
    dg_tensor gradient;   /* of the mask's own shape, contiguous, with strides that broadcast as its are; or no data */
    int64_t gradient_size; /* elements */
} dg_mask;

enum { DG_MASKS = 2 };

/* out = softmax(q @ k.T * scale + masks) @ v, by heads; and what the gradients need of it. */
typedef struct dg_attention {
    int64_t axes, shape[DG_BATCH_AXES], batches; /* of the batch */
    int64_t heads, shared;                       /* heads of the queries, and how many of them share those of keys and values */
    int64_t rows, keys, width, value_width;
    dg_tensor q, k, v;
    dg_mask masks[DG_MASKS];
    int32_t causal;         /* key j is visible to query i if j <= i */
    double scale;
    double dropout;         /* the share of weights that are dropped: word number (batch, head, row, key), in C order, of the */
    uint64_t seed, offset;  /* Philox stream from this block on is below the threshold where a weight stays */
    dg_tensor out, sums;    /* the result; of each row the largest score and the sum of weights, in powers of 2: see weigh */
    dg_tensor g, dq, dk, dv; /* the gradient by the result; those by the operands, or null */
} dg_attention;

/* 0, DG_NO_MEMORY or DG_STOPPED */
int dg_attention_f32(const dg_runtime *rt, const dg_attention *a, dg_stop *stop);
int dg_attention_f64(const dg_runtime *rt, const dg_attention *a, dg_stop *stop);
int dg_attention_gradient_f32(const dg_runtime *rt, const dg_attention *a, dg_stop *stop);
int dg_attention_gradient_f64(const dg_runtime *rt, const dg_attention *a, dg_stop *stop);
#endif
