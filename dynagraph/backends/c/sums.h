/* The order of NumPy's sums, so that they have its bits: pairwise, and blocks of at most 128 numbers in eight accumulators (those of
   a complex sum are four pairs).  The vectors are a way to write eight numbers: their width on the machine does not tell.  Two blocks
   are added up at a time, to hide the latency of an addition; of what is too long for the caches one, fetched ahead. */
#define DG_PAIRWISE_BLOCK 128
#define DG_AHEAD 512  /* bytes */

/* where NumPy divides so many real, or complex, numbers */
static inline int64_t dg_half(int64_t n, int width)
{
    n = n * width / 2;
    return (n - n % 8) / width;
}

/* vectors no wider than those of the machine: gcc keeps wider ones in memory */
#if defined(__AVX512F__)
#define DG_VECTOR 64
#elif defined(__AVX__)
#define DG_VECTOR 32
#else
#define DG_VECTOR 16
#endif

/* the eight accumulators of a block of numbers of type T */
#define DG_DEFINE_EIGHT(suffix, T)                                                                                       \
    typedef T dg_vector_##suffix __attribute__((vector_size(DG_VECTOR < 8 * sizeof(T) ? DG_VECTOR : 8 * sizeof(T)),      \
                                                aligned(sizeof(T)), may_alias));                                         \
    enum { DG_LANES_##suffix = sizeof(dg_vector_##suffix) / sizeof(T), DG_VECTORS_##suffix = 8 / DG_LANES_##suffix };    \
    typedef struct {                                                                                                     \
        dg_vector_##suffix v[DG_VECTORS_##suffix];                                                                       \
    } dg_eight_##suffix;                                                                                                 \
    DG_INLINE void dg_load_##suffix(dg_eight_##suffix *r, const T *a)                                                       \
    {                                                                                                                    \
        for (int k = 0; k < DG_VECTORS_##suffix; ++k)                                                                    \
            r->v[k] = *(const dg_vector_##suffix *)(a + k * DG_LANES_##suffix);                                          \
    }                                                                                                                    \
    DG_INLINE void dg_add_##suffix(dg_eight_##suffix *r, const T *a)                                                        \
    {                                                                                                                    \
        for (int k = 0; k < DG_VECTORS_##suffix; ++k)                                                                    \
            r->v[k] += *(const dg_vector_##suffix *)(a + k * DG_LANES_##suffix);                                         \
    }                                                                                                                    \
    DG_INLINE T dg_lane_##suffix(const dg_eight_##suffix *r, int k)                                                         \
    {                                                                                                                    \
        return r->v[k / DG_LANES_##suffix][k % DG_LANES_##suffix];                                                       \
    }

#define DG_PAIR(lane, i, j) (lane(&r, i) + lane(&r, j))

/* a block from number i on, of which the accumulators r have those before it; `few` has less than eight numbers */
#define DG_DEFINE_REST(suffix, T)                                                                                        \
    DG_INLINE T dg_rest_##suffix(dg_eight_##suffix r, const T *a, int64_t i, int64_t n)                                     \
    {                                                                                                                    \
        for (; i + 8 <= n; i += 8)                                                                                       \
            dg_add_##suffix(&r, a + i);                                                                                  \
        T sum = (DG_PAIR(dg_lane_##suffix, 0, 1) + DG_PAIR(dg_lane_##suffix, 2, 3)) +                                    \
                (DG_PAIR(dg_lane_##suffix, 4, 5) + DG_PAIR(dg_lane_##suffix, 6, 7));                                     \
        for (; i < n; ++i)                                                                                               \
            sum += a[i];                                                                                                 \
        return sum;                                                                                                      \
    }                                                                                                                    \
    DG_INLINE T dg_few_##suffix(const T *a, int64_t n)                                                                      \
    {                                                                                                                    \
        T sum = -(T)0; /* which changes no number, not even a zero */                                                    \
        for (int64_t i = 0; i < n; ++i)                                                                                  \
            sum += a[i];                                                                                                 \
        return sum;                                                                                                      \
    }

#define DG_DEFINE_COMPLEX_REST(suffix, C, T, real)                                                                       \
    DG_INLINE C dg_rest_##suffix(dg_eight_##real r, const T *a, int64_t i, int64_t n)                                       \
    {                                                                                                                    \
        for (; i + 8 <= n; i += 8)                                                                                       \
            dg_add_##real(&r, a + i);                                                                                    \
        T re = DG_PAIR(dg_lane_##real, 0, 2) + DG_PAIR(dg_lane_##real, 4, 6);                                            \
        T im = DG_PAIR(dg_lane_##real, 1, 3) + DG_PAIR(dg_lane_##real, 5, 7);                                            \
        for (; i < n; i += 2) {                                                                                          \
            re += a[i];                                                                                                  \
            im += a[i + 1];                                                                                              \
        }                                                                                                                \
        return __builtin_complex(re, im);                                                                                \
    }                                                                                                                    \
    DG_INLINE C dg_few_##suffix(const T *a, int64_t n)                                                                      \
    {                                                                                                                    \
        T re = -(T)0, im = -(T)0;                                                                                        \
        for (int64_t i = 0; i < n; i += 2) {                                                                             \
            re += a[i];                                                                                                  \
            im += a[i + 1];                                                                                              \
        }                                                                                                                \
        return __builtin_complex(re, im);                                                                                \
    }

/* the sum of n real numbers (twice as many as complex ones); `far`: whether they are part of what is too long for the caches */
#define DG_DEFINE_SUM(suffix, C, T, real)                                                                                \
    static inline C dg_block_##suffix(const T *a, int64_t n)                                                             \
    {                                                                                                                    \
        if (n < 8)                                                                                                       \
            return dg_few_##suffix(a, n);                                                                                \
        dg_eight_##real r;                                                                                               \
        dg_load_##real(&r, a);                                                                                           \
        return dg_rest_##suffix(r, a, 8, n);                                                                             \
    }                                                                                                                    \
    static C dg_far_##suffix(const T *a, int64_t n)                                                                      \
    {                                                                                                                    \
        const int64_t left = dg_half(n, 1);                                                                              \
        if (n > DG_PAIRWISE_BLOCK)                                                                                       \
            return dg_far_##suffix(a, left) + dg_far_##suffix(a + left, n - left);                                       \
        dg_eight_##real r;                                                                                               \
        dg_load_##real(&r, a);                                                                                           \
        int64_t i = 8;                                                                                                   \
        for (; i + 8 <= n; i += 8) {                                                                                     \
            __builtin_prefetch(a + i + DG_AHEAD / sizeof(T));                                                            \
            dg_add_##real(&r, a + i);                                                                                    \
        }                                                                                                                \
        return dg_rest_##suffix(r, a, i, n);                                                                             \
    }                                                                                                                    \
    static __attribute__((unused)) C dg_sum_##suffix(const T *a, int64_t n, int far)                                     \
    {                                                                                                                    \
        if (far && n > DG_PAIRWISE_BLOCK)                                                                                \
            return dg_far_##suffix(a, n);                                                                                \
        if (n <= DG_PAIRWISE_BLOCK)                                                                                      \
            return dg_block_##suffix(a, n);                                                                              \
        const int64_t left = dg_half(n, 1), right = n - left;                                                            \
        const T *b = a + left;                                                                                           \
        if (right > DG_PAIRWISE_BLOCK)                                                                                   \
            return dg_sum_##suffix(a, left, 0) + dg_sum_##suffix(b, right, 0);                                           \
        dg_eight_##real r, t;                                                                                            \
        dg_load_##real(&r, a);                                                                                           \
        dg_load_##real(&t, b);                                                                                           \
        int64_t i = 8;                                                                                                   \
        for (; i + 8 <= left; i += 8) { /* the first is the shorter one */                                               \
            dg_add_##real(&r, a + i);                                                                                    \
            dg_add_##real(&t, b + i);                                                                                    \
        }                                                                                                                \
        return dg_rest_##suffix(r, a, i, left) + dg_rest_##suffix(t, b, i, right);                                       \
    }

/* the same of numbers that lie `step` apart */
#define DG_DEFINE_STEPS(suffix, T)                                                                                       \
    static __attribute__((unused)) T dg_steps_##suffix(const T *a, int64_t n, int64_t step)                              \
    {                                                                                                                    \
        if (n > DG_PAIRWISE_BLOCK) {                                                                                     \
            const int64_t left = dg_half(n, 1);                                                                          \
            return dg_steps_##suffix(a, left, step) + dg_steps_##suffix(a + left * step, n - left, step);                \
        }                                                                                                                \
        T r[8], sum = -(T)0;                                                                                             \
        int64_t i = 0;                                                                                                   \
        if (n >= 8) {                                                                                                    \
            for (int k = 0; k < 8; ++k)                                                                                  \
                r[k] = a[k * step];                                                                                      \
            for (i = 8; i + 8 <= n; i += 8)                                                                              \
                for (int k = 0; k < 8; ++k)                                                                              \
                    r[k] += a[(i + k) * step];                                                                           \
            sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));                                     \
        }                                                                                                                \
        for (; i < n; ++i)                                                                                               \
            sum += a[i * step];                                                                                          \
        return sum;                                                                                                      \
    }

DG_DEFINE_EIGHT(f32, float)
DG_DEFINE_EIGHT(f64, double)
DG_DEFINE_REST(f32, float)
DG_DEFINE_REST(f64, double)
DG_DEFINE_COMPLEX_REST(c64, float _Complex, float, f32)
DG_DEFINE_COMPLEX_REST(c128, double _Complex, double, f64)
DG_DEFINE_SUM(f32, float, float, f32)
DG_DEFINE_SUM(f64, double, double, f64)
DG_DEFINE_STEPS(f32, float)
DG_DEFINE_STEPS(f64, double)
DG_DEFINE_SUM(c64, float _Complex, float, f32)
DG_DEFINE_SUM(c128, double _Complex, double, f64)

/* which elements are part k of 2^levels; of what is too short to be divided the second part is empty */
static inline void dg_subtree(int64_t k, int levels, int width, int64_t *at, int64_t *n)
{
    while (levels--) {
        const int64_t half = *n * width > DG_PAIRWISE_BLOCK ? dg_half(*n, width) : *n;
        if (k >> levels & 1) {
            *at += half;
            *n -= half;
        } else {
            *n = half;
        }
    }
}
