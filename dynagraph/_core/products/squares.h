/* Squares of a matrix that is contiguous along p, `outer` elements between its rows, as columns: vectors of some rows of the
   matrix each, for one p after the other.  `lower` is the first row of their lower half: what a loop keeps in a register. */
#ifndef DG_SQUARES_H
#define DG_SQUARES_H
#include <stdint.h>

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define DG_HAS_SQUARES
#define SQUARE_FUNCTION(TARGET) static inline __attribute__((always_inline)) TARGET void

typedef float vector4f __attribute__((vector_size(16), aligned(4), may_alias));
SQUARE_FUNCTION() columns4_f32(const float *from, const float *lower, int64_t outer, vector4f *first, vector4f *second,
                               vector4f *third, vector4f *fourth)
{
    const vector4f a = *(const vector4f *)from, b = *(const vector4f *)(from + outer), c = *(const vector4f *)lower,
                   d = *(const vector4f *)(lower + outer);
    const vector4f ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    const vector4f ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7), cd2 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *first = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    *second = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    *third = __builtin_shufflevector(ab2, cd2, 0, 1, 4, 5);
    *fourth = __builtin_shufflevector(ab2, cd2, 2, 3, 6, 7);
}

typedef double vector2d __attribute__((vector_size(16), aligned(8), may_alias));
SQUARE_FUNCTION() columns2_f64(const double *from, const double *lower, int64_t outer, vector2d *first, vector2d *second,
                               vector2d *third, vector2d *fourth)
{
    const vector2d a = *(const vector2d *)from, b = *(const vector2d *)lower;
    const vector2d a2 = *(const vector2d *)(from + 2), b2 = *(const vector2d *)(lower + 2);
    *first = __builtin_shufflevector(a, b, 0, 2);
    *second = __builtin_shufflevector(a, b, 1, 3);
    *third = __builtin_shufflevector(a2, b2, 0, 2);
    *fourth = __builtin_shufflevector(a2, b2, 1, 3);
}

/* Vectors of two halves: one half has rows of the upper half of the square, the other has those of the lower half, so that all
   shuffles are within halves. */
#if defined(__x86_64__)
#define DG_AVX2 __attribute__((target("avx2")))
typedef float vector8f __attribute__((vector_size(32), aligned(4), may_alias));
SQUARE_FUNCTION(DG_AVX2) columns8_f32(const float *from, const float *lower, int64_t outer, vector8f *first, vector8f *second,
                                      vector8f *third, vector8f *fourth)
{
#define ROW(i)                                                                                                        \
    __builtin_shufflevector(*(const vector4f *)(from + i * outer), *(const vector4f *)(lower + i * outer), 0, 1, 2, 3, 4, \
                            5, 6, 7)
    const vector8f a = ROW(0), b = ROW(1), c = ROW(2), d = ROW(3);
#undef ROW
    const vector8f ab = __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13);
    const vector8f cd = __builtin_shufflevector(c, d, 0, 8, 1, 9, 4, 12, 5, 13);
    const vector8f ab2 = __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
    const vector8f cd2 = __builtin_shufflevector(c, d, 2, 10, 3, 11, 6, 14, 7, 15);
    *first = __builtin_shufflevector(ab, cd, 0, 1, 8, 9, 4, 5, 12, 13);
    *second = __builtin_shufflevector(ab, cd, 2, 3, 10, 11, 6, 7, 14, 15);
    *third = __builtin_shufflevector(ab2, cd2, 0, 1, 8, 9, 4, 5, 12, 13);
    *fourth = __builtin_shufflevector(ab2, cd2, 2, 3, 10, 11, 6, 7, 14, 15);
}

typedef double vector4d __attribute__((vector_size(32), aligned(8), may_alias));
SQUARE_FUNCTION(DG_AVX2) columns4_f64(const double *from, const double *lower, int64_t outer, vector4d *first, vector4d *second,
                                      vector4d *third, vector4d *fourth)
{
#define HALVES(x, y) __builtin_shufflevector(*(const vector2d *)(x), *(const vector2d *)(y), 0, 1, 2, 3)
    const vector4d a = HALVES(from, lower), b = HALVES(from + outer, lower + outer);
    const vector4d a2 = HALVES(from + 2, lower + 2), b2 = HALVES(from + outer + 2, lower + outer + 2);
#undef HALVES
    *first = __builtin_shufflevector(a, b, 0, 4, 2, 6);
    *second = __builtin_shufflevector(a, b, 1, 5, 3, 7);
    *third = __builtin_shufflevector(a2, b2, 0, 4, 2, 6);
    *fourth = __builtin_shufflevector(a2, b2, 1, 5, 3, 7);
}
#endif

/* whole squares, into a panel of `width` */
#define FOUR_COLUMNS(columns, V, side, from, outer, width, to)                                                        \
    columns(from, (from) + (side) / 2 * (outer), outer, (V *)(to), (V *)((to) + (width)), (V *)((to) + 2 * (width)),  \
            (V *)((to) + 3 * (width)))
SQUARE_FUNCTION() square4_f32(const float *from, int64_t outer, int64_t width, float *to)
{
    FOUR_COLUMNS(columns4_f32, vector4f, 4, from, outer, width, to);
}
SQUARE_FUNCTION() square2_f64(const double *from, int64_t outer, int64_t width, double *to)
{
    const vector2d a = *(const vector2d *)from, b = *(const vector2d *)(from + outer);
    *(vector2d *)to = __builtin_shufflevector(a, b, 0, 2);
    *(vector2d *)(to + width) = __builtin_shufflevector(a, b, 1, 3);
}
#if defined(__x86_64__)
SQUARE_FUNCTION(DG_AVX2) square8_f32(const float *from, int64_t outer, int64_t width, float *to)
{
    FOUR_COLUMNS(columns8_f32, vector8f, 8, from, outer, width, to);
    FOUR_COLUMNS(columns8_f32, vector8f, 8, from + 4, outer, width, to + 4 * width);
}
SQUARE_FUNCTION(DG_AVX2) square4_f64(const double *from, int64_t outer, int64_t width, double *to)
{
    FOUR_COLUMNS(columns4_f64, vector4d, 4, from, outer, width, to);
}
#endif
#undef FOUR_COLUMNS
#undef SQUARE_FUNCTION
#endif
#endif
#endif
