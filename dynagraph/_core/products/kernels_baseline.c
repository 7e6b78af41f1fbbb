/* Micro-kernels for any processor of the architecture: 16-byte vectors (SSE2, NEON). */
#include "micro.h"
#include "squares.h"

#include <string.h>

#if defined(__aarch64__)
#define ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#else
#define ROWS(X) X(0) X(1) X(2) X(3) X(4) X(5)
#endif

#define T float
#define SUFFIX f32
#ifdef DG_HAS_SQUARES
#define TURNED vector4f
#define TURN columns4_f32
#endif
#define ISA baseline
#define BYTES 16
#define JOINED 0, 1, 2, 3
#define DG_ROWS ROWS
#include "kernel_template.h"

#define T double
#define SUFFIX f64
#ifdef DG_HAS_SQUARES
#define TURNED vector2d
#define TURN columns2_f64
#endif
#define ISA baseline
#define BYTES 16
#define JOINED 0, 1
#define DG_ROWS ROWS
#include "kernel_template.h"
