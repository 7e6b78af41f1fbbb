/* Squares of a matrix that is contiguous along p, `outer` elements between its rows, as columns of a panel of `width`. */
#ifndef DG_SQUARES_H
#define DG_SQUARES_H
#include <stdint.h>

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define DG_HAS_SQUARES
#define SQUARE_FUNCTION(TARGET) static inline __attribute__((always_inline)) TARGET void

typedef float vector4f __attribute__((vector_size(16), aligned(4), may_alias));
SQUARE_FUNCTION() square4_f32(const float *from, int64_t outer, int64_t width, float *to)
{
    const vector4f a = *(const vector4f *)from, b = *(const vector4f *)(from + outer), c = *(const vector4f *)(from + 2 * outer),
                   d = *(const vector4f *)(from + 3 * outer);
    const vector4f ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    const vector4f ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7), cd2 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(vector4f *)to = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    *(vector4f *)(to + width) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    *(vector4f *)(to + 2 * width) = __builtin_shufflevector(ab2, cd2, 0, 1, 4, 5);
    *(vector4f *)(to + 3 * width) = __builtin_shufflevector(ab2, cd2, 2, 3, 6, 7);
}

typedef double vector2d __attribute__((vector_size(16), aligned(8), may_alias));
SQUARE_FUNCTION() square2_f64(const double *from, int64_t outer, int64_t width, double *to)
{
    const vector2d a = *(const vector2d *)from, b = *(const vector2d *)(from + outer);
    *(vector2d *)to = __builtin_shufflevector(a, b, 0, 2);
    *(vector2d *)(to + width) = __builtin_shufflevector(a, b, 1, 3);
}

/* Vectors of two halves: one half has rows of the upper half of the square, the other has those of the lower half, so that all
   shuffles are within halves. */
#if defined(__x86_64__)
#define DG_AVX2 __attribute__((target("avx2")))
typedef float vector8f __attribute__((vector_size(32), aligned(4), may_alias));
SQUARE_FUNCTION(DG_AVX2) four_columns_f32(const float *from, int64_t outer, int64_t width, float *to)
{
#define ROW(i)                                                                                                        \
    __builtin_shufflevector(*(const vector4f *)(from + i * outer), *(const vector4f *)(from + (i + 4) * outer), 0, 1, 2, 3, 4, \
                            5, 6, 7)
    const vector8f a = ROW(0), b = ROW(1), c = ROW(2), d = ROW(3);
#undef ROW
    const vector8f ab = __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13);
    const vector8f cd = __builtin_shufflevector(c, d, 0, 8, 1, 9, 4, 12, 5, 13);
    const vector8f ab2 = __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
    const vector8f cd2 = __builtin_shufflevector(c, d, 2, 10, 3, 11, 6, 14, 7, 15);
    *(vector8f *)to = __builtin_shufflevector(ab, cd, 0, 1, 8, 9, 4, 5, 12, 13);
    *(vector8f *)(to + width) = __builtin_shufflevector(ab, cd, 2, 3, 10, 11, 6, 7, 14, 15);
    *(vector8f *)(to + 2 * width) = __builtin_shufflevector(ab2, cd2, 0, 1, 8, 9, 4, 5, 12, 13);
    *(vector8f *)(to + 3 * width) = __builtin_shufflevector(ab2, cd2, 2, 3, 10, 11, 6, 7, 14, 15);
}
SQUARE_FUNCTION(DG_AVX2) square8_f32(const float *from, int64_t outer, int64_t width, float *to)
{
    four_columns_f32(from, outer, width, to);
    four_columns_f32(from + 4, outer, width, to + 4 * width);
}

typedef double vector4d __attribute__((vector_size(32), aligned(8), may_alias));
SQUARE_FUNCTION(DG_AVX2) two_columns_f64(const double *from, int64_t outer, int64_t width, double *to)
{
    const vector4d ac = __builtin_shufflevector(*(const vector2d *)from, *(const vector2d *)(from + 2 * outer), 0, 1, 2, 3);
    const vector4d bd = __builtin_shufflevector(*(const vector2d *)(from + outer), *(const vector2d *)(from + 3 * outer), 0, 1,
                                                2, 3);
    *(vector4d *)to = __builtin_shufflevector(ac, bd, 0, 4, 2, 6);
    *(vector4d *)(to + width) = __builtin_shufflevector(ac, bd, 1, 5, 3, 7);
}
SQUARE_FUNCTION(DG_AVX2) square4_f64(const double *from, int64_t outer, int64_t width, double *to)
{
    two_columns_f64(from, outer, width, to);
    two_columns_f64(from + 2, outer, width, to + 2 * width);
}
#endif
#undef SQUARE_FUNCTION
#endif
#endif
#endif
