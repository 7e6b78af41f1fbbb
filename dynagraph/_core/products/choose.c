/* Which micro-kernels this processor can run. */
#include "micro.h"

#if defined(__x86_64__)
#define DEFINE_CHOICE(suffix)                                                                                         \
    extern const dg_kernel_##suffix dg_kernel_##suffix##_baseline, dg_kernel_##suffix##_avx2, dg_kernel_##suffix##_avx512; \
    const dg_kernel_##suffix *const *dg_kernels_##suffix(void)                                                        \
    {                                                                                                                 \
        static const dg_kernel_##suffix none, *const all[] = {&dg_kernel_##suffix##_avx512, &dg_kernel_##suffix##_avx2, \
                                                              &dg_kernel_##suffix##_baseline, &none};                 \
        const int fma = __builtin_cpu_supports("fma");                                                                \
        const int can = fma && __builtin_cpu_supports("avx512f") ? 0 : fma && __builtin_cpu_supports("avx2") ? 1 : 2; \
        return all + can;                                                                                             \
    }
#else
#define DEFINE_CHOICE(suffix)                                                                                         \
    extern const dg_kernel_##suffix dg_kernel_##suffix##_baseline;                                                    \
    const dg_kernel_##suffix *const *dg_kernels_##suffix(void)                                                        \
    {                                                                                                                 \
        static const dg_kernel_##suffix none, *const all[] = {&dg_kernel_##suffix##_baseline, &none};                 \
        return all;                                                                                                   \
    }
#endif
DEFINE_CHOICE(f32)
DEFINE_CHOICE(f64)
const dg_kernel_f32 *dg_kernel_of_f32(void) { return dg_kernels_f32()[0]; }
const dg_kernel_f64 *dg_kernel_of_f64(void) { return dg_kernels_f64()[0]; }
