/* Micro-kernels for AVX2 with FMA. */
#include "micro.h"
#include "squares.h"

#include <string.h>

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

#define ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5)

#define T float
#define SUFFIX f32
#ifdef DG_HAS_SQUARES
#define TURNED vector8f
#define TURN columns8_f32
#endif
#define ISA avx2
#define BYTES 32
#define JOINED 0, 1, 2, 3, 4, 5, 6, 7
#define DG_ROWS ROWS
#include "kernel_template.h"

#define T double
#define SUFFIX f64
#ifdef DG_HAS_SQUARES
#define TURNED vector4d
#define TURN columns4_f64
#endif
#define ISA avx2
#define BYTES 32
#define JOINED 0, 1, 2, 3
#define DG_ROWS ROWS
#include "kernel_template.h"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
