/* sigmoid and tanh.  Those of float are written so that compilers make vectors of them; they are within 2.5 and 1.5 units of the
   last place. */
#include <math.h>
#include <stdint.h>

static inline __attribute__((always_inline)) float exp_f32(float x)
{
    /* 2^n e^r with |r| <= ln(2) / 2; the polynomial is Taylor's, with coefficients fitted to that range (S. Moshier, Cephes) */
    x = x > 88.0f ? 88.0f : x;
    x = x < -87.0f ? -87.0f : x;
    union { float value; uint32_t bits; } power = {x * 0x1.715476p+0f + 0x1.8p23f}; /* n stands in the last bits */
    const float n = power.value - 0x1.8p23f, r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    power.bits = (power.bits + 127) << 23;
    return (p * (r * r) + r + 1.0f) * power.value;
}

static inline __attribute__((always_inline)) float sigmoid_f32(float x) { return 1.0f / (1.0f + exp_f32(-x)); }

static inline __attribute__((always_inline)) float tanh_f32(float x)
{
    const float a = __builtin_fabsf(x), z = x * x;
    float p = -5.70498872745e-3f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    const float near = p * z * x + x, far = __builtin_copysignf(1.0f - 2.0f / (exp_f32(a + a) + 1.0f), x);
    return a > 0.625f ? far : near;
}

static inline double sigmoid_f64(double x) { return 1.0 / (1.0 + exp(-x)); }
static inline double tanh_f64(double x) { return tanh(x); }
