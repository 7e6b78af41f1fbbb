/* Recurrent layers for any processor of the architecture: 16-byte vectors (SSE2, NEON). */
#include <string.h>

#include "steps.h"

#ifndef __clang__
#pragma GCC optimize("O3", "no-math-errno", "no-trapping-math")
#endif
#include "functions.h"

#define ISA baseline
#define T float
#define SUFFIX f32
#define BYTES 16
#include "template.h"

#define T double
#define SUFFIX f64
#define BYTES 16
#include "template.h"
