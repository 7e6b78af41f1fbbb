/* Normalization for AVX2, without FMA: each operation is rounded.  Wider vectors would gain nothing, sums have eight parts. */
#include "norm.h"
#include "kinds.h"

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC optimize("O2", "no-math-errno")
#pragma GCC target("avx2")
#endif

#define ISA avx2

#define T float
#define SUFFIX f32
#define SQRT __builtin_sqrtf
#include "template.h"

#define T double
#define SUFFIX f64
#define SQRT __builtin_sqrt
#include "template.h"

const dg_norm_code dg_norm_avx2 = {{forward_f32_avx2, forward_f64_avx2}, {backward_f32_avx2, backward_f64_avx2}};

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
