/* Convolutions for AVX-512. */
#include "conv.h"

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
#include "conv_template.h"

#define T double
#define SUFFIX f64
#define ELEMENT DG_F64
#include "conv_template.h"

const dg_conv_code dg_conv_avx512 = {"avx512", {places_f32_avx512, places_f64_avx512}, {filters_f32_avx512, filters_f64_avx512}};

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
