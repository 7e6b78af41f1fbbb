/* Turns of a loop side by side: each statement is done for a number of them, in vectors.  Where the processor's are shorter there are
   none: the compiler would split them, at a loss. */

#if defined(__AVX__) && defined(__GNUC__)
#define DG_HAS_LANES 1
#else
#define DG_HAS_LANES 0
#endif

/* lanes under masks, and short strips: they take the compiler long */
#ifdef DG_QUICK
#define DG_HAS_LANES_LATER 0
#else
#define DG_HAS_LANES_LATER DG_HAS_LANES
#endif

typedef long long dg_any_bits __attribute__((vector_size(32)));

/* whether a lane of a mask is set */
#if DG_HAS_LANES
#define dg_any(mask) ({ const dg_any_bits m_ = (dg_any_bits)(mask); !__builtin_ia32_ptestz256(m_, m_); })
#else
#define dg_any(mask) ({ const dg_any_bits m_ = (dg_any_bits)(mask); (m_[0] | m_[1] | m_[2] | m_[3]) != 0; })
#endif

#define DG_EACH_OF_4(f) f(0), f(1), f(2), f(3)
#define DG_EACH_OF_8(f) DG_EACH_OF_4(f), f(4), f(5), f(6), f(7)
#define DG_SAME(k) x
#define DG_COUNTED(k) (x + (k) * by)
#define DG_STRIDED_f64(k) *(const double *)(p + (k) * step)
#define DG_STRIDED_f32(k) *(const float *)(p + (k) * step)
#define DG_STRIDED_i8(k) *(const int8_t *)(p + (k) * step)
#define DG_STRIDED_i16(k) *(const int16_t *)(p + (k) * step)
#define DG_STRIDED_i32(k) *(const int32_t *)(p + (k) * step)
#define DG_STRIDED_i64(k) *(const int64_t *)(p + (k) * step)
#define DG_STRIDED_u8(k) *(const uint8_t *)(p + (k) * step)
#define DG_STRIDED_u16(k) *(const uint16_t *)(p + (k) * step)
#define DG_STRIDED_u32(k) *(const uint32_t *)(p + (k) * step)
#define DG_STRIDED_u64(k) *(const uint64_t *)(p + (k) * step)

/* Vectors of n values of a type T, named t, and of ints I, named i, that are as wide.  `step`: bytes from lane to lane. */
#define DG_DEFINE_LANES(T, t, i, I, n) \
    typedef T dg_##t##x##n __attribute__((vector_size(n * sizeof(T)))); \
    typedef T dg_##t##x##n##_in_memory __attribute__((vector_size(n * sizeof(T)), aligned(sizeof(T)), may_alias)); \
    typedef I dg_##t##x##n##_bits __attribute__((vector_size(n * sizeof(T)))); \
    DG_INLINE dg_##t##x##n dg_in_all_##t##x##n(T x) { return (dg_##t##x##n){DG_EACH_OF_##n(DG_SAME)}; } \
    DG_INLINE dg_##t##x##n dg_counting_##t##x##n(T x, T by) { return (dg_##t##x##n){DG_EACH_OF_##n(DG_COUNTED)}; } \
    DG_INLINE dg_##t##x##n dg_load_lanes_##t##x##n(const char *p) { return *(const dg_##t##x##n##_in_memory *)p; } \
    DG_INLINE void dg_store_lanes_##t##x##n(char *p, dg_##t##x##n x) { *(dg_##t##x##n##_in_memory *)p = x; } \
    DG_INLINE dg_##t##x##n dg_load_strided_lanes_##t##x##n(const char *p, int64_t step) \
    { \
        return (dg_##t##x##n){DG_EACH_OF_##n(DG_STRIDED_##t)}; \
    } \
    DG_INLINE void dg_store_strided_lanes_##t##x##n(char *p, int64_t step, dg_##t##x##n x) \
    { \
        for (int k = 0; k < n; k++) \
            *(T *)(p + k * step) = x[k]; \
    } \
    DG_INLINE dg_##t##x##n dg_load_masked_strided_lanes_##t##x##n(const char *p, int64_t step, dg_##t##x##n##_bits mask) \
    { \
        static const T none = 0; \
        dg_##t##x##n x; \
        for (int k = 0; k < n; k++) \
            x[k] = *(const T *)(mask[k] ? p + k * step : (const char *)&none); \
        return x; \
    } \
    DG_INLINE void dg_store_masked_strided_lanes_##t##x##n(char *p, int64_t step, dg_##t##x##n##_bits mask, dg_##t##x##n x) \
    { \
        for (int k = 0; k < n; k++) \
            if (mask[k]) \
                *(T *)(p + k * step) = x[k]; \
    } \
    DG_INLINE dg_##t##x##n dg_blend_##t##x##n(dg_##t##x##n##_bits mask, dg_##t##x##n x, dg_##t##x##n y) \
    { \
        return (dg_##t##x##n)(((dg_##t##x##n##_bits)x & mask) | ((dg_##t##x##n##_bits)y & ~mask)); \
    } \
    DG_INLINE dg_##t##x##n dg_abs_##t##x##n(dg_##t##x##n x) \
    { \
        const I sign = (I)((I)1 << (8 * sizeof(I) - 1)); \
        return (dg_##t##x##n)((dg_##t##x##n##_bits)x & (I)~sign); \
    }

/* ... neighbours in memory, of which only some may be touched; `each`: does it one by one */
#if DG_HAS_LANES
#define DG_MASKED_VECTORS(n, V, M)                                \
    typedef V dg_floats __attribute__((vector_size(n * sizeof(V)))); \
    typedef M dg_ints __attribute__((vector_size(n * sizeof(M))))
#define DG_LOAD_MASKED(each, type, T, n, builtin, V, M) \
    DG_MASKED_VECTORS(n, V, M);                         \
    return (type)__builtin_ia32_maskload##builtin((const dg_floats *)p, (dg_ints)mask)
#define DG_STORE_MASKED(each, T, n, builtin, V, M) \
    DG_MASKED_VECTORS(n, V, M);                    \
    __builtin_ia32_maskstore##builtin((dg_floats *)p, (dg_ints)mask, (dg_floats)x)
#else
#define DG_LOAD_MASKED(each, type, T, n, builtin, V, M) return each(p, sizeof(T), mask)
#define DG_STORE_MASKED(each, T, n, builtin, V, M) each(p, sizeof(T), mask, x)
#endif

#define DG_DEFINE_MASKED_LANES(T, t, n, builtin, V, M)                                                                 \
    DG_INLINE dg_##t##x##n dg_load_masked_lanes_##t##x##n(const char *p, dg_##t##x##n##_bits mask)                     \
    {                                                                                                                  \
        DG_LOAD_MASKED(dg_load_masked_strided_lanes_##t##x##n, dg_##t##x##n, T, n, builtin, V, M);                     \
    }                                                                                                                  \
    DG_INLINE void dg_store_masked_lanes_##t##x##n(char *p, dg_##t##x##n##_bits mask, dg_##t##x##n x)                  \
    {                                                                                                                  \
        DG_STORE_MASKED(dg_store_masked_strided_lanes_##t##x##n, T, n, builtin, V, M);                                 \
    }

#define DG_DEFINE_MASKED_LANES_BY_ONE(T, t, n) \
    DG_INLINE dg_##t##x##n dg_load_masked_lanes_##t##x##n(const char *p, dg_##t##x##n##_bits mask) \
    { \
        return dg_load_masked_strided_lanes_##t##x##n(p, sizeof(T), mask); \
    } \
    DG_INLINE void dg_store_masked_lanes_##t##x##n(char *p, dg_##t##x##n##_bits mask, dg_##t##x##n x) \
    { \
        dg_store_masked_strided_lanes_##t##x##n(p, sizeof(T), mask, x); \
    }

/* x ** 2 as pow() gives it: dg_is_nearest() tells for most lanes that it is the product */
static __attribute__((noinline, cold, unused)) void dg_square_lanes_again(const double *x, double *p, int n)
{
    for (int k = 0; k < n; k++)
        p[k] = dg_numpy_pow_f64(x[k], 2.0);
}

#define DG_DEFINE_SQUARES(n) \
    DG_INLINE dg_f64x##n dg_squares_f64x##n(dg_f64x##n x) \
    { \
        dg_f64x##n p = x * x, rest; \
        for (int k = 0; k < n; k++) \
            rest[k] = __builtin_fma(x[k], x[k], -p[k]); \
        if (__builtin_expect(dg_any((p <= 0x1p-64) | (p >= 0x1p64) | (p + rest * 1.03 != p)), 0)) { \
            dg_f64x##n given = x, powers; \
            dg_square_lanes_again((const double *)&given, (double *)&powers, n); \
            return powers; \
        } \
        return p; \
    }

/* whether two arrays may share memory */
DG_INLINE int dg_overlap(
    const char *data, int64_t itemsize, int ndim, const int64_t *sizes, const int64_t *strides,
    const char *other, int64_t its_itemsize, int its_ndim, const int64_t *its_sizes, const int64_t *its_strides)
{
    const char *low = data, *high = data + itemsize;
    for (int k = 0; k < ndim; k++) {
        if (sizes[k] <= 0)
            return 0;
        *(strides[k] < 0 ? &low : &high) += (sizes[k] - 1) * strides[k];
    }
    return dg_meets(low, high - low, other, its_itemsize, its_ndim, its_sizes, its_strides);
}

/* whether elements of an array may share memory, as far as its strides show */
DG_INLINE int dg_folds(int64_t itemsize, int ndim, const int64_t *sizes, const int64_t *strides)
{
    for (int k = 0; k < ndim; k++) {
        const int64_t stride = strides[k] < 0 ? -strides[k] : strides[k];
        int64_t span = itemsize;
        for (int j = 0; j < ndim; j++) {
            const int64_t other = strides[j] < 0 ? -strides[j] : strides[j];
            span += j != k && sizes[j] > 1 && other <= stride ? (sizes[j] - 1) * other : 0;
        }
        if (sizes[k] > 1 && stride < span)
            return 1;
    }
    return 0;
}
