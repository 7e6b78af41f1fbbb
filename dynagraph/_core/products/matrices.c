/* Products of matrices for generated code. */
#include "micro.h"

_Static_assert((int)DG_MATRIX_AXES == (int)DG_BATCH_AXES, "a batch is described twice");

static dg_matrix operand(const dg_matrices *what, const void *data, int64_t outer, int64_t inner, const int64_t *strides)
{
    dg_matrix matrix = {.data = data, .element = what->is_double ? DG_F64 : DG_F32, .axes = what->axes, .outer = outer,
                        .inner = inner};
    for (int axis = 0; axis < what->axes; ++axis) {
        matrix.shape[axis] = what->shape[axis];
        matrix.strides[axis] = strides[axis];
    }
    return matrix;
}

#define DEFINE_FINISH(suffix, T)                                                                                      \
    static void finish_##suffix(const void *context, int64_t batch, int64_t row, int64_t column, int64_t rows, int64_t columns, \
                                T *tile, int64_t ld)                                                                  \
    {                                                                                                                 \
        const dg_epilogue *then = context;                                                                            \
        then->run(then, batch, row, row + rows, column, column + columns);                                            \
    }
DEFINE_FINISH(f32, float)
DEFINE_FINISH(f64, double)

int dg_multiply_matrices(const dg_runtime *rt, const dg_matrices *what, dg_stop *stop)
{
    const dg_matrix a = operand(what, what->a, what->a_row, what->a_column, what->a_strides);
    const dg_matrix b = operand(what, what->b, what->b_column, what->b_row, what->b_strides);
    int64_t batches = 1;
    for (int axis = 0; axis < what->axes; ++axis)
        batches *= what->shape[axis];
    if (what->is_double) {
        const dg_product_f64 product = {.batches = batches, .m = what->m, .n = what->n, .k = what->k, .a = &a, .b = &b,
                                        .pack_a = dg_pack_matrix_f64, .pack_b = dg_pack_matrix_f64,
                                        .c = what->c, .ldc = what->n, .c_batch = what->m * what->n,
                                        .finish = what->then ? finish_f64 : NULL, .context = what->then};
        return dg_multiply_f64(rt, &product, stop);
    }
    const dg_product_f32 product = {.batches = batches, .m = what->m, .n = what->n, .k = what->k, .a = &a, .b = &b,
                                    .pack_a = dg_pack_matrix_f32, .pack_b = dg_pack_matrix_f32,
                                    .c = what->c, .ldc = what->n, .c_batch = what->m * what->n,
                                    .finish = what->then ? finish_f32 : NULL, .context = what->then};
    return dg_multiply_f32(rt, &product, stop);
}
