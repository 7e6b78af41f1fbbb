/* Convolutions for AVX2 with FMA. */
#include "conv.h"

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
#include "conv_template.h"

#define T double
#define SUFFIX f64
#define ELEMENT DG_F64
#include "conv_template.h"

const dg_conv_code dg_conv_avx2 = {"avx2", {places_f32_avx2, places_f64_avx2}, {filters_f32_avx2, filters_f64_avx2}};

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
