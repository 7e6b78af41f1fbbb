/* Recurrent layers for AVX2 with FMA. */
#if defined(__x86_64__)
#include <string.h>

#include "steps.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC optimize("O3", "no-math-errno", "no-trapping-math")
#pragma GCC target("avx2,fma")
#endif
#include "functions.h"

#define ISA avx2
#define T float
#define SUFFIX f32
#define BYTES 32
#include "template.h"

#define T double
#define SUFFIX f64
#define BYTES 32
#include "template.h"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
