/* Micro-kernels for AVX-512. */
#include "micro.h"
#include "squares.h"

#include <string.h>

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx2,fma")
#endif

#define ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

#define T float
#define SUFFIX f32
#ifdef DG_HAS_SQUARES
#define TURNED vector8f
#define TURN columns8_f32
#endif
#define ISA avx512
#define BYTES 64
#define JOINED 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
#define DG_ROWS ROWS
#define MANY_ROWS
#include "kernel_template.h"

#define T double
#define SUFFIX f64
#ifdef DG_HAS_SQUARES
#define TURNED vector4d
#define TURN columns4_f64
#endif
#define ISA avx512
#define BYTES 64
#define JOINED 0, 1, 2, 3, 4, 5, 6, 7
#define DG_ROWS ROWS
#define MANY_ROWS
#include "kernel_template.h"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
