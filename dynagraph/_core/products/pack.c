/* Packing panels of matrices in memory. */
#include "micro.h"
#include "squares.h"

#include <string.h>

float dg_of_float16(uint16_t bits)
{
    union { uint32_t bits; float value; } to = {(uint32_t)(bits & 0x7fff) << 13};
    to.value *= 0x1p112f; /* the exponents' biases differ by 112; a subnormal becomes normal */
    if (to.value >= 65536)
        to.bits |= 0x7f800000; /* infinity, NaN */
    to.bits |= (uint32_t)(bits & 0x8000) << 16;
    return to.value;
}

uint16_t dg_to_float16(float value)
{
    union { float value; uint32_t bits; } from = {value}, scaled;
    const uint32_t sign = from.bits >> 16 & 0x8000, magnitude = from.bits & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477ff000) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000) { /* a subnormal: adding 0.5 leaves its bits, rounded, at the end of the mantissa */
        scaled.bits = magnitude;
        scaled.value += 0.5f;
        return (uint16_t)(sign | (scaled.bits - 0x3f000000));
    }
    return (uint16_t)(sign | ((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13));
}

uint16_t dg_to_bfloat16(float value)
{
    union { float value; uint32_t bits; } from = {value};
    if ((from.bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)((from.bits >> 16 & 0x8000) | 0x7fc0);
    return (uint16_t)((from.bits + 0x7fff + (from.bits >> 16 & 1)) >> 16);
}

int64_t dg_matrix_offset(const dg_matrix *matrix, int64_t batch)
{
    int64_t offset = 0;
    for (int axis = matrix->axes - 1; axis >= 0; --axis) {
        offset += batch % matrix->shape[axis] * matrix->strides[axis];
        batch /= matrix->shape[axis];
    }
    return offset;
}

enum { PANELS = 8 };

#define T float
#define SUFFIX f32
#define SMALL 4
#define LARGE 8
#define SMALL_SQUARE square4_f32
#define LARGE_SQUARE square8_f32
#include "pack_template.h"

#define T double
#define SUFFIX f64
#define SMALL 2
#define LARGE 4
#define SMALL_SQUARE square2_f64
#define LARGE_SQUARE square4_f64
#include "pack_template.h"

/* -- half types: float32 within -- */
#define DEFINE_HALF(name, convert)                                                                                    \
    static void pack_panel_##name(const uint16_t *from, int64_t outer, int64_t inner, int64_t count, int64_t k, int64_t width, \
                                  float *to)                                                                          \
    {                                                                                                                 \
        if (count < width)                                                                                            \
            memset(to, 0, (size_t)(k * width) * sizeof *to);                                                          \
        if (outer == 1) {                                                                                             \
            for (int64_t p = 0; p < k; ++p)                                                                           \
                for (int64_t i = 0; i < count; ++i)                                                                   \
                    to[p * width + i] = convert(from[p * inner + i]);                                                 \
            return;                                                                                                   \
        }                                                                                                             \
        for (int64_t i = 0; i < count; ++i)                                                                           \
            for (int64_t p = 0; p < k; ++p)                                                                           \
                to[p * width + i] = convert(from[p * inner + i * outer]);                                             \
    }                                                                                                                 \
    static void pack_##name(const uint16_t *from, int64_t outer, int64_t inner, int64_t count, int64_t k, int64_t width, \
                            float *to)                                                                                \
    {                                                                                                                 \
        for (int64_t i = 0; i < count; i += width, to += k * width)                                                   \
            pack_panel_##name(from + i * outer, outer, inner, width < count - i ? width : count - i, k, width, to);   \
    }
DEFINE_HALF(float16, dg_of_float16)
DEFINE_HALF(bfloat16, dg_of_bfloat16)

void dg_pack_matrix_f32(const void *operand, int64_t batch, int64_t first, int64_t count, int64_t start, int64_t k, int64_t width,
                        float *to)
{
    const dg_matrix *matrix = operand;
    const int64_t at = dg_matrix_offset(matrix, batch) + first * matrix->outer + start * matrix->inner;
    if (matrix->element == DG_F32)
        pack_f32((const float *)matrix->data + at, matrix->outer, matrix->inner, count, k, width, to);
    else if (matrix->element == DG_F16)
        pack_float16((const uint16_t *)matrix->data + at, matrix->outer, matrix->inner, count, k, width, to);
    else
        pack_bfloat16((const uint16_t *)matrix->data + at, matrix->outer, matrix->inner, count, k, width, to);
}

void dg_pack_matrix_f64(const void *operand, int64_t batch, int64_t first, int64_t count, int64_t start, int64_t k, int64_t width,
                        double *to)
{
    const dg_matrix *matrix = operand;
    const int64_t at = dg_matrix_offset(matrix, batch) + first * matrix->outer + start * matrix->inner;
    pack_f64((const double *)matrix->data + at, matrix->outer, matrix->inner, count, k, width, to);
}
