/* The lanes of attention for one instruction set, of both dtypes.  Included with ISA, BYTES, and on x86 LARGER_f32 and LARGER_f64,
   the instructions that give the larger numbers. */
#define T float
#define SUFFIX f32
#ifdef LARGER_f32
#define LARGER LARGER_f32
#endif
#define BITS int32_t
#define MAGIC 0x1.8p23f
#define MANTISSA 23
#define BIAS 127
#define LEAST -126.0f
#define MOST 0x1.fffffep127f
#define COEFFICIENTS                                                                                                              \
    {                                                                                                                             \
        0x1.00a582p-16f, 0x1.444p-13f, 0x1.5d879ep-10f, 0x1.3b2a1cp-7f, 0x1.c6b08ep-5f, 0x1.ebfbep-3f, 0x1.62e43p-1f, 1.0f        \
    }
#include "attention_lanes_template.h"

#define T double
#define SUFFIX f64
#ifdef LARGER_f64
#define LARGER LARGER_f64
#endif
#define BITS int64_t
#define MAGIC 0x1.8p52
#define MANTISSA 52
#define BIAS 1023
#define LEAST -1022.0
#define MOST 0x1.fffffffffffffp1023
#define COEFFICIENTS                                                                                                              \
    {                                                                                                                             \
        0x1.c4a29324a1038p-36, 0x1.e9ec1fcb69a7fp-32, 0x1.e4cf10dec0f59p-28, 0x1.b524ebd13a55fp-24, 0x1.62c02242b879cp-20,        \
            0x1.ffcbfc6da6ed1p-17, 0x1.430912f86b7dbp-13, 0x1.5d87fe78a3f9cp-10, 0x1.3b2ab6fba4e79p-7, 0x1.c6b08d704a0c6p-5,      \
            0x1.ebfbdff82c58fp-3, 0x1.62e42fefa39efp-1, 1.0                                                                       \
    }
#include "attention_lanes_template.h"

#undef ISA
#undef BYTES
#undef LARGER_f32
#undef LARGER_f64
