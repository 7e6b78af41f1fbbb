/* What loops of Python code do with whole arrays: products as NumPy calls BLAS, and reductions in NumPy's order. */

/* a matrix as BLAS takes it: 0 by rows, 1 by columns, -1 neither; as NumPy's is_blasable2d */
static DG_UNUSED int dg_layout(int64_t size, int64_t rows, int64_t columns, int64_t by_row, int64_t by_column, int64_t *leading)
{
    if (by_column == size && by_row % size == 0 && by_row / size >= columns && by_row / size <= INT32_MAX) {
        *leading = by_row / size;
        return 0;
    }
    if (by_row == size && by_column % size == 0 && by_column / size >= rows && by_column / size <= INT32_MAX) {
        *leading = by_column / size;
        return 1;
    }
    return -1;
}

/* c = a @ b of an m x k and a k x n matrix, one of which may be a vector; 0: NumPy does it in another way */
#define DG_DEFINE_LOOP_MATMUL(suffix, T)                                                                                     \
    static DG_UNUSED int dg_loop_matmul_##suffix(const dg_runtime *rt, char *c, int64_t m, int64_t n, int64_t k, int64_t a_ndim, char *a,  \
                                                 int64_t a0, int64_t a1, int64_t b_ndim, char *b, int64_t b0, int64_t b1)    \
    {                                                                                                                        \
        const int64_t size = sizeof(T);                                                                                      \
        int64_t lda, ldb;                                                                                                    \
        int ta, tb;                                                                                                          \
        if (k < 2 || m == 0 || n == 0 || m > INT32_MAX || n > INT32_MAX || k > INT32_MAX || (a_ndim == 2 && m == 1) || (b_ndim == 2 && n == 1)) \
            return 0;                                                                                                        \
        if (a_ndim == 1) {                                                                                                   \
            if (a0 < size || a0 % size || a0 / size > INT32_MAX)                                                             \
                return 0;                                                                                                    \
            ta = a0 != size;                                                                                                 \
            lda = ta ? a0 / size : k;                                                                                        \
        } else if ((ta = dg_layout(size, m, k, a0, a1, &lda)) < 0) {                                                         \
            return 0;                                                                                                        \
        }                                                                                                                    \
        if (b_ndim == 1) {                                                                                                   \
            if (b0 < size || b0 % size || b0 / size > INT32_MAX)                                                             \
                return 0;                                                                                                    \
            tb = 0;                                                                                                          \
            ldb = b0 / size;                                                                                                 \
        } else if ((tb = dg_layout(size, k, n, b0, b1, &ldb)) < 0) {                                                         \
            return 0;                                                                                                        \
        }                                                                                                                    \
        dg_gemm_##suffix(rt, ta, tb, m, n, k, (const T *)a, lda, (const T *)b, ldb, (T *)c, n);                              \
        return 1;                                                                                                            \
    }
DG_DEFINE_LOOP_MATMUL(f64, double)
DG_DEFINE_LOOP_MATMUL(f32, float)

static DG_UNUSED int dg_in_one_piece(int64_t size, int64_t rows, int64_t columns, int64_t by_row, int64_t by_column)
{
    return (by_column == size && by_row == columns * size) || (by_row == size && by_column == rows * size);
}

/* as np.dot, which copies a part of a matrix before it multiplies it by a vector: gemv rounds otherwise where rows are apart */
#define DG_DEFINE_LOOP_MATMUL_OF_DOT(suffix, T)                                                                                        \
    static T *dg_packed_##suffix(const char *from, int64_t rows, int64_t columns, int64_t by_row, int64_t by_column)         \
    {                                                                                                                        \
        T *made = malloc((size_t)(rows * columns) * sizeof(T));                                                              \
        for (int64_t i = 0; made && i < rows; ++i)                                                                           \
            for (int64_t j = 0; j < columns; ++j)                                                                            \
                made[i * columns + j] = *(const T *)(from + i * by_row + j * by_column);                                     \
        return made;                                                                                                         \
    }                                                                                                                        \
    static DG_UNUSED int dg_loop_matmul_of_dot_##suffix(const dg_runtime *rt, char *c, int64_t m, int64_t n, int64_t k,      \
                                                        int64_t a_ndim, char *a, int64_t a0, int64_t a1,                     \
                                                        int64_t b_ndim, char *b, int64_t b0, int64_t b1)                     \
    {                                                                                                                        \
        const int64_t size = sizeof(T);                                                                                      \
        T *made = NULL;                                                                                                      \
        int done;                                                                                                            \
        if (b_ndim == 1 && m > 0 && k > 1 && !dg_in_one_piece(size, m, k, a0, a1)) {                                         \
            if (!(made = dg_packed_##suffix(a, m, k, a0, a1)))                                                               \
                return 0;                                                                                                    \
            done = dg_loop_matmul_##suffix(rt, c, m, n, k, a_ndim, (char *)made, k * size, size, b_ndim, b, b0, b1);         \
        } else if (a_ndim == 1 && n > 0 && k > 1 && !dg_in_one_piece(size, k, n, b0, b1)) {                                  \
            if (!(made = dg_packed_##suffix(b, k, n, b0, b1)))                                                               \
                return 0;                                                                                                    \
            done = dg_loop_matmul_##suffix(rt, c, m, n, k, a_ndim, a, a0, a1, b_ndim, (char *)made, n * size, size);         \
        } else {                                                                                                             \
            done = dg_loop_matmul_##suffix(rt, c, m, n, k, a_ndim, a, a0, a1, b_ndim, b, b0, b1);                            \
        }                                                                                                                    \
        free(made);                                                                                                          \
        return done;                                                                                                         \
    }
DG_DEFINE_LOOP_MATMUL_OF_DOT(f64, double)
DG_DEFINE_LOOP_MATMUL_OF_DOT(f32, float)

#define DG_AT(T, p, k, step) (*(const T *)((p) + (k) * (step)))

/* NumPy's pairwise sum: see sums.h */
#define DG_DEFINE_LOOP_SUM(suffix, T)                                                                                        \
    static T dg_loop_pairwise_##suffix(const char *p, int64_t n, int64_t step)                                               \
    {                                                                                                                        \
        if (n < 8) {                                                                                                         \
            T sum = -(T)0;                                                                                                   \
            for (int64_t k = 0; k < n; ++k)                                                                                  \
                sum += DG_AT(T, p, k, step);                                                                                 \
            return sum;                                                                                                      \
        }                                                                                                                    \
        if (n > 128) {                                                                                                       \
            int64_t half = n / 2;                                                                                            \
            half -= half % 8;                                                                                                \
            return dg_loop_pairwise_##suffix(p, half, step) + dg_loop_pairwise_##suffix(p + half * step, n - half, step);    \
        }                                                                                                                    \
        T r[8];                                                                                                              \
        int64_t k = 8;                                                                                                       \
        for (int j = 0; j < 8; ++j)                                                                                          \
            r[j] = DG_AT(T, p, j, step);                                                                                     \
        if (step == sizeof(T)) {                                                                                             \
            for (; k + 8 <= n; k += 8)                                                                                       \
                for (int j = 0; j < 8; ++j)                                                                                  \
                    r[j] += ((const T *)p)[k + j];                                                                           \
        } else {                                                                                                             \
            for (; k + 8 <= n; k += 8)                                                                                       \
                for (int j = 0; j < 8; ++j)                                                                                  \
                    r[j] += DG_AT(T, p, k + j, step);                                                                        \
        }                                                                                                                    \
        T sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));                                           \
        for (; k < n; ++k)                                                                                                   \
            sum += DG_AT(T, p, k, step);                                                                                     \
        return sum;                                                                                                          \
    }                                                                                                                        \
    static DG_UNUSED T dg_loop_sum_##suffix(const char *p, int64_t n, int64_t step) { return 0 + dg_loop_pairwise_##suffix(p, n, step); }

#define DG_DEFINE_LOOP_INT_SUM(suffix, T, R)                                                                                 \
    static DG_UNUSED R dg_loop_sum_##suffix(const char *p, int64_t n, int64_t step)                                          \
    {                                                                                                                        \
        uint64_t sum = 0;                                                                                                    \
        if (step == sizeof(T))                                                                                               \
            for (int64_t k = 0; k < n; ++k)                                                                                  \
                sum += (uint64_t)(R)((const T *)p)[k];                                                                       \
        else                                                                                                                 \
            for (int64_t k = 0; k < n; ++k)                                                                                  \
                sum += (uint64_t)(R)DG_AT(T, p, k, step);                                                                    \
        return (R)sum;                                                                                                       \
    }

/* the first of the extreme numbers, or the first NaN; `better` has x and m */
#define DG_DEFINE_LOOP_EXTREME(name, argname, suffix, T, better)                                                             \
    static DG_UNUSED int64_t dg_loop_##argname##_##suffix(const char *p, int64_t n, int64_t step)                            \
    {                                                                                                                        \
        T m = DG_AT(T, p, 0, step);                                                                                          \
        int64_t at = 0;                                                                                                      \
        for (int64_t k = 1; k < n && m == m; ++k) {                                                                          \
            T x = DG_AT(T, p, k, step);                                                                                      \
            if (better || x != x) {                                                                                          \
                m = x;                                                                                                       \
                at = k;                                                                                                      \
            }                                                                                                                \
        }                                                                                                                    \
        return at;                                                                                                           \
    }                                                                                                                        \
    static DG_UNUSED T dg_loop_##name##_##suffix(const char *p, int64_t n, int64_t step)                                     \
    {                                                                                                                        \
        return DG_AT(T, p, dg_loop_##argname##_##suffix(p, n, step), step);                                                  \
    }

#define DG_DEFINE_LOOP_TESTS(suffix, T)                                                                                      \
    static DG_UNUSED int dg_loop_any_##suffix(const char *p, int64_t n, int64_t step)                                        \
    {                                                                                                                        \
        for (int64_t k = 0; k < n; ++k)                                                                                      \
            if (DG_AT(T, p, k, step) != 0)                                                                                   \
                return 1;                                                                                                    \
        return 0;                                                                                                            \
    }                                                                                                                        \
    static DG_UNUSED int dg_loop_all_##suffix(const char *p, int64_t n, int64_t step)                                        \
    {                                                                                                                        \
        for (int64_t k = 0; k < n; ++k)                                                                                      \
            if (DG_AT(T, p, k, step) == 0)                                                                                   \
                return 0;                                                                                                    \
        return 1;                                                                                                            \
    }

/* as NumPy's binsearch finds in sorted elements; NaNs come last */
#define DG_BEFORE(a, b) ((a) < (b) || ((b) != (b) && (a) == (a)))
#define DG_DEFINE_LOOP_SEARCH(suffix, T)                                                                                     \
    static DG_UNUSED int64_t dg_loop_search_##suffix(const char *p, int64_t n, int64_t step, T key, int64_t right)           \
    {                                                                                                                        \
        int64_t low = 0, high = n;                                                                                           \
        while (low < high) {                                                                                                 \
            int64_t middle = low + (high - low) / 2;                                                                         \
            T x = DG_AT(T, p, middle, step);                                                                                 \
            if (right ? !DG_BEFORE(key, x) : DG_BEFORE(x, key))                                                              \
                low = middle + 1;                                                                                            \
            else                                                                                                             \
                high = middle;                                                                                               \
        }                                                                                                                    \
        return low;                                                                                                          \
    }

#define DG_DEFINE_LOOP_REDUCTIONS(suffix, T)                                                                                 \
    DG_DEFINE_LOOP_EXTREME(max, argmax, suffix, T, x > m)                                                                    \
    DG_DEFINE_LOOP_EXTREME(min, argmin, suffix, T, x < m)                                                                    \
    DG_DEFINE_LOOP_TESTS(suffix, T)                                                                                          \
    DG_DEFINE_LOOP_SEARCH(suffix, T)

DG_DEFINE_LOOP_SUM(f64, double)
DG_DEFINE_LOOP_SUM(f32, float)
DG_DEFINE_LOOP_REDUCTIONS(f64, double)
DG_DEFINE_LOOP_REDUCTIONS(f32, float)
#define DG_DEFINE_LOOP_INTS(suffix, T, R) DG_DEFINE_LOOP_INT_SUM(suffix, T, R) DG_DEFINE_LOOP_REDUCTIONS(suffix, T)
DG_DEFINE_LOOP_INTS(b8, uint8_t, int64_t) DG_DEFINE_LOOP_INTS(i8, int8_t, int64_t) DG_DEFINE_LOOP_INTS(i16, int16_t, int64_t)
DG_DEFINE_LOOP_INTS(i32, int32_t, int64_t) DG_DEFINE_LOOP_INTS(i64, int64_t, int64_t) DG_DEFINE_LOOP_INTS(u8, uint8_t, uint64_t)
DG_DEFINE_LOOP_INTS(u16, uint16_t, uint64_t) DG_DEFINE_LOOP_INTS(u32, uint32_t, uint64_t) DG_DEFINE_LOOP_INTS(u64, uint64_t, uint64_t)
