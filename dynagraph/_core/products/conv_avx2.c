/* Convolutions for AVX2 with FMA. */
#include "conv.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

#define ISA avx2
#define BYTES 32

#define T float
#define SUFFIX f32
#define ELEMENT DG_F32
#define INTEGER int32_t
#define EVERY_SECOND 0, 2, 4, 6, 9, 11, 13, 15
#define COUNTED 0, 1, 2, 3, 4, 5, 6, 7
#include "conv_template.h"

#define T double
#define SUFFIX f64
#define ELEMENT DG_F64
#define INTEGER int64_t
#define EVERY_SECOND 0, 2, 5, 7
#define COUNTED 0, 1, 2, 3
#include "conv_template.h"

const dg_conv_code dg_conv_avx2 = {"avx2", {places_f32_avx2, places_f64_avx2}, {filters_f32_avx2, filters_f64_avx2},
    {maxima_f32_avx2, maxima_f64_avx2}, {means_f32_avx2, means_f64_avx2}, {means_back_f32_avx2, means_back_f64_avx2}};

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
