/* Normalization for any processor of the architecture. */
#include "norm.h"
#include "kinds.h"

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("O2", "no-math-errno", "fp-contract=off")
#endif

#define ISA baseline

#define T float
#define SUFFIX f32
#define SQRT __builtin_sqrtf
#include "template.h"

#define T double
#define SUFFIX f64
#define SQRT __builtin_sqrt
#include "template.h"

const dg_norm_code dg_norm_baseline = {{forward_f32_baseline, forward_f64_baseline},
                                         {backward_f32_baseline, backward_f64_baseline}};
