/* Convolutions for AVX-512. */
#include "conv.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f")
#endif

#define ISA avx512
#define BYTES 64

#define T float
#define SUFFIX f32
#define ELEMENT DG_F32
#define INTEGER int32_t
#define EVERY_SECOND 0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31
#define COUNTED 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
#include "conv_template.h"

#define T double
#define SUFFIX f64
#define ELEMENT DG_F64
#define INTEGER int64_t
#define EVERY_SECOND 0, 2, 4, 6, 9, 11, 13, 15
#define COUNTED 0, 1, 2, 3, 4, 5, 6, 7
#include "conv_template.h"

const dg_conv_code dg_conv_avx512 = {"avx512", {places_f32_avx512, places_f64_avx512}, {filters_f32_avx512, filters_f64_avx512},
    {maxima_f32_avx512, maxima_f64_avx512}, {means_f32_avx512, means_f64_avx512}, {means_back_f32_avx512, means_back_f64_avx512}};

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
