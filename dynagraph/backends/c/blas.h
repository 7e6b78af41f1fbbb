/* Matrix products through BLAS, as NumPy calls it. */

#ifndef DG_STEP /* in native loops */
#define DG_STEP static inline
#endif

/* y[rows or columns] = op(a) @ x, of a row-major matrix; 0: there is no such routine */
#define DG_DEFINE_GEMV(suffix, T, gemv, S, PASS)                                                                         \
    typedef void (*dg_##gemv##_64)(int, int, int64_t, int64_t, S, const T *, int64_t, const T *, int64_t, S, T *, int64_t);\
    typedef void (*dg_##gemv##_32)(int, int, int, int, S, const T *, int, const T *, int, S, T *, int);                  \
    static inline int dg_gemv_##suffix(const dg_runtime *rt, int transposed, int64_t rows, int64_t columns, const T *a,  \
                                       int64_t lda, const T *x, int64_t step, T *y, int64_t y_step)                      \
    {                                                                                                                    \
        const T one = 1, zero = 0;                                                                                       \
        enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };                                                           \
        const int how = transposed ? TRANS : NO_TRANS;                                                                   \
        if (!rt->gemv)                                                                                                   \
            return 0;                                                                                                    \
        if (rt->ilp64)                                                                                                   \
            ((dg_##gemv##_64)rt->gemv)(ROW_MAJOR, how, rows, columns, PASS(one), a, lda, x, step, PASS(zero), y, y_step);\
        else                                                                                                             \
            ((dg_##gemv##_32)rt->gemv)(ROW_MAJOR, how, (int)rows, (int)columns, PASS(one), a, (int)lda, x, (int)step,    \
                                       PASS(zero), y, (int)y_step);                                                      \
        return 1;                                                                                                        \
    }

/* *out = x . y; 0: there is no such routine.  NumPy adds what it gives to 0.0: -0.0 becomes 0.0. */
#define DG_DEFINE_DOT(suffix, T, dot)                                                                                    \
    static inline int dg_dot_##suffix(const dg_runtime *rt, int64_t n, const T *x, int64_t x_step, const T *y,           \
                                      int64_t y_step, T *out)                                                            \
    {                                                                                                                    \
        if (!rt->dot)                                                                                                    \
            return 0;                                                                                                    \
        *out = rt->ilp64 ? ((T (*)(int64_t, const T *, int64_t, const T *, int64_t))rt->dot)(n, x, x_step, y, y_step)    \
                         : ((T (*)(int, const T *, int, const T *, int))rt->dot)((int)n, x, (int)x_step, y, (int)y_step);\
        *out += 0;                                                                                                       \
        return 1;                                                                                                        \
    }
/* complex numbers are not given back but stored */
#define DG_DEFINE_COMPLEX_DOT(suffix, T, part, dot)                                                                      \
    static inline int dg_dot_##suffix(const dg_runtime *rt, int64_t n, const T *x, int64_t x_step, const T *y,           \
                                      int64_t y_step, T *out)                                                            \
    {                                                                                                                    \
        if (!rt->dot)                                                                                                    \
            return 0;                                                                                                    \
        if (rt->ilp64)                                                                                                   \
            ((void (*)(int64_t, const T *, int64_t, const T *, int64_t, T *))rt->dot)(n, x, x_step, y, y_step, out);     \
        else                                                                                                             \
            ((void (*)(int, const T *, int, const T *, int, T *))rt->dot)((int)n, x, (int)x_step, y, (int)y_step, out);  \
        ((part *)out)[0] += 0;                                                                                           \
        ((part *)out)[1] += 0;                                                                                           \
        return 1;                                                                                                        \
    }

/* what is not worth a copy for each product: the other half of what syrk gives, and products where there is no BLAS */
#define DG_DEFINE_LOOPS(suffix, T)                                                                                       \
    static __attribute__((noinline)) void dg_mirror_##suffix(int64_t n, T *c, int64_t ldc)                               \
    {                                                                                                                    \
        for (int64_t i = 0; i < n; ++i)                                                                                  \
            for (int64_t j = 0; j < i; ++j)                                                                              \
                c[i * ldc + j] = c[j * ldc + i];                                                                         \
    }                                                                                                                    \
    static __attribute__((noinline)) void dg_product_##suffix(int ta, int tb, int64_t m, int64_t n, int64_t k, const T *a,\
                                                              int64_t lda, const T *b, int64_t ldb, T *c, int64_t ldc)   \
    {                                                                                                                    \
        for (int64_t i = 0; i < m; ++i) {                                                                                \
            for (int64_t j = 0; j < n; ++j)                                                                              \
                c[i * ldc + j] = 0;                                                                                      \
            for (int64_t p = 0; p < k; ++p) {                                                                            \
                const T left = ta ? a[p * lda + i] : a[i * lda + p];                                                     \
                for (int64_t j = 0; j < n; ++j)                                                                          \
                    c[i * ldc + j] += left * (tb ? b[j * ldb + p] : b[p * ldb + j]);                                     \
            }                                                                                                            \
        }                                                                                                                \
    }

/* out[m, n] = op(a) @ op(b), row-major; ta, tb: read the operand transposed; lda, ldb, ldc: elements between rows in memory.

   Each product takes the routine that NumPy takes (cblas_matrixproduct and the loops of matmul), as another one has other bits: two
   vectors dot, a matrix and a vector gemv, a matrix and its own transpose syrk, of which half is computed, and all others gemm. */
#define DG_DEFINE_GEMM(suffix, T, gemm, syrk, S, PASS)                                                                   \
    typedef void (*dg_##syrk##_64)(int, int, int, int64_t, int64_t, S, const T *, int64_t, S, T *, int64_t);             \
    typedef void (*dg_##syrk##_32)(int, int, int, int, int, S, const T *, int, S, T *, int);                             \
    typedef void (*dg_##gemm##_64)(int, int, int, int64_t, int64_t, int64_t, S, const T *, int64_t, const T *, int64_t,  \
                                   S, T *, int64_t);                                                                     \
    typedef void (*dg_##gemm##_32)(int, int, int, int, int, int, S, const T *, int, const T *, int, S, T *, int);        \
    DG_STEP void dg_gemm_##suffix(const dg_runtime *rt, int ta, int tb, int64_t m, int64_t n, int64_t k, const T *a,     \
                                  int64_t lda, const T *b, int64_t ldb, T *c, int64_t ldc)                               \
    {                                                                                                                    \
        const T one = 1, zero = 0;                                                                                       \
        enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112, UPPER = 121 };                                              \
        if (m == 0 || n == 0)                                                                                            \
            return;                                                                                                      \
        if (k > 0 && m == 1 && n == 1 && dg_dot_##suffix(rt, k, a, ta ? lda : 1, b, tb ? 1 : ldb, c))                    \
            return;                                                                                                      \
        if (k > 0 && n == 1 && dg_gemv_##suffix(rt, ta, ta ? k : m, ta ? m : k, a, lda, b, tb ? 1 : ldb, c, ldc))        \
            return;                                                                                                      \
        if (k > 0 && m == 1 && dg_gemv_##suffix(rt, !tb, tb ? n : k, tb ? k : n, b, ldb, a, ta ? lda : 1, c, 1))         \
            return;                                                                                                      \
        if (k > 0 && a == b && ta != tb && m == n && lda == ldb && rt->syrk) {                                           \
            if (rt->ilp64)                                                                                               \
                ((dg_##syrk##_64)rt->syrk)(ROW_MAJOR, UPPER, ta ? TRANS : NO_TRANS, n, k, PASS(one), a, lda, PASS(zero), \
                                           c, ldc);                                                                      \
            else                                                                                                         \
                ((dg_##syrk##_32)rt->syrk)(ROW_MAJOR, UPPER, ta ? TRANS : NO_TRANS, (int)n, (int)k, PASS(one), a,        \
                                           (int)lda, PASS(zero), c, (int)ldc);                                           \
            dg_mirror_##suffix(n, c, ldc);                                                                               \
            return;                                                                                                      \
        }                                                                                                                \
        if (k > 0 && rt->gemm) {                                                                                         \
            if (rt->ilp64)                                                                                               \
                ((dg_##gemm##_64)rt->gemm)(ROW_MAJOR, ta ? TRANS : NO_TRANS, tb ? TRANS : NO_TRANS, m, n, k,             \
                                           PASS(one), a, lda, b, ldb, PASS(zero), c, ldc);                               \
            else                                                                                                         \
                ((dg_##gemm##_32)rt->gemm)(ROW_MAJOR, ta ? TRANS : NO_TRANS, tb ? TRANS : NO_TRANS, (int)m, (int)n,      \
                                           (int)k, PASS(one), a, (int)lda, b, (int)ldb, PASS(zero), c, (int)ldc);        \
            return;                                                                                                      \
        }                                                                                                                \
        dg_product_##suffix(ta, tb, m, n, k, a, lda, b, ldb, c, ldc);                                                    \
    }

#define DG_VALUE(x) x
#define DG_ADDRESS(x) &x
DG_DEFINE_GEMV(f32, float, sgemv, float, DG_VALUE)
DG_DEFINE_GEMV(f64, double, dgemv, double, DG_VALUE)
DG_DEFINE_GEMV(c64, float _Complex, cgemv, const void *, DG_ADDRESS)
DG_DEFINE_GEMV(c128, double _Complex, zgemv, const void *, DG_ADDRESS)
DG_DEFINE_DOT(f32, float, sdot)
DG_DEFINE_DOT(f64, double, ddot)
DG_DEFINE_COMPLEX_DOT(c64, float _Complex, float, cdotu_sub)
DG_DEFINE_COMPLEX_DOT(c128, double _Complex, double, zdotu_sub)
DG_DEFINE_LOOPS(f32, float)
DG_DEFINE_LOOPS(f64, double)
DG_DEFINE_LOOPS(c64, float _Complex)
DG_DEFINE_LOOPS(c128, double _Complex)
DG_DEFINE_GEMM(f32, float, sgemm, ssyrk, float, DG_VALUE)
DG_DEFINE_GEMM(f64, double, dgemm, dsyrk, double, DG_VALUE)
DG_DEFINE_GEMM(c64, float _Complex, cgemm, csyrk, const void *, DG_ADDRESS)
DG_DEFINE_GEMM(c128, double _Complex, zgemm, zsyrk, const void *, DG_ADDRESS)
