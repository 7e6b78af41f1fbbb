/* Convolutions for any processor of the architecture: 16-byte vectors (SSE2, NEON). */
#include "conv.h"

#include <math.h>
#include <string.h>

#define ISA baseline
#define BYTES 16

#define T float
#define SUFFIX f32
#define ELEMENT DG_F32
#define INTEGER int32_t
#define EVERY_SECOND 0, 2, 5, 7
#define COUNTED 0, 1, 2, 3
#include "conv_template.h"

#define T double
#define SUFFIX f64
#define ELEMENT DG_F64
#define INTEGER int64_t
#define EVERY_SECOND 0, 3
#define COUNTED 0, 1
#include "conv_template.h"

const dg_conv_code dg_conv_baseline = {"baseline", {places_f32_baseline, places_f64_baseline},
    {filters_f32_baseline, filters_f64_baseline},
    {maxima_f32_baseline, maxima_f64_baseline}, {means_f32_baseline, means_f64_baseline}, {means_back_f32_baseline, means_back_f64_baseline}};
