/* What attention does to tiles of scores, for each instruction set that there are micro-kernels for. */
#include "attention.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__x86_64__)
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f")
#endif
#define ISA avx512
#define BYTES 64
#define LARGER_f32 _mm512_max_ps
#define LARGER_f64 _mm512_max_pd
#include "attention_lanes.h"
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#define ISA avx2
#define BYTES 32
#define LARGER_f32 _mm256_max_ps
#define LARGER_f64 _mm256_max_pd
#include "attention_lanes.h"
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif

#define ISA baseline
#define BYTES 16
#if defined(__x86_64__)
#define LARGER_f32 _mm_max_ps
#define LARGER_f64 _mm_max_pd
#endif
#include "attention_lanes.h"

#if defined(__x86_64__)
#define LANES_OF(suffix)                                                                                                          \
    const dg_lanes_##suffix *dg_lanes_of_##suffix(const char *isa)                                                                \
    {                                                                                                                             \
        return strcmp(isa, "avx512") == 0 ? &dg_lanes_##suffix##_avx512                                                           \
               : strcmp(isa, "avx2") == 0 ? &dg_lanes_##suffix##_avx2                                                             \
                                          : &dg_lanes_##suffix##_baseline;                                                        \
    }
#else
#define LANES_OF(suffix)                                                                                                          \
    const dg_lanes_##suffix *dg_lanes_of_##suffix(const char *isa) { return &dg_lanes_##suffix##_baseline; }
#endif
LANES_OF(f32)
LANES_OF(f64)
