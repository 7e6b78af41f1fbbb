/* What loops of Python code call: Python's meaning of operators on numbers.  Where Python would raise, or give an int beyond 64 bits,
   a function with a result gives 1, and Python does the operation itself. */

/* what is called of the C library: its headers take the compiler longer than most loops */
void *malloc(size_t), *calloc(size_t, size_t), *realloc(void *, size_t), free(void *);
void *memcpy(void *, const void *, size_t), *memmove(void *, const void *, size_t), *memset(void *, int, size_t);
void *memchr(const void *, int, size_t);
int memcmp(const void *, const void *, size_t);

#define DG_UNUSED __attribute__((unused))

/* tuned for some processors, gcc keeps ints in vector registers where others run out, and each use then takes a slow move.  Before
   gcc 9, functions that are always inlined have to be tuned as their callers are */
#if defined(__x86_64__) && defined(__GNUC__) && __GNUC__ >= 9 && !defined(__clang__)
#define DG_LOOP __attribute__((target("tune=generic")))
#else
#define DG_LOOP
#endif

DG_INLINE int dg_add_overflows(int64_t a, int64_t b, int64_t *r) { return __builtin_add_overflow(a, b, r); }
DG_INLINE int dg_sub_overflows(int64_t a, int64_t b, int64_t *r) { return __builtin_sub_overflow(a, b, r); }
/* whether an element of `size` bytes lies in what an array takes of memory */
DG_INLINE int dg_meets(const char *p, int64_t size, const char *data, int64_t itemsize, int ndim, const int64_t *sizes, const int64_t *strides)
{
    const char *low = data, *high = data + itemsize;
    for (int k = 0; k < ndim; k++) {
        if (sizes[k] <= 0)
            return 0;
        *(strides[k] < 0 ? &low : &high) += (sizes[k] - 1) * strides[k];
    }
    return p < high && p + size > low;
}

DG_INLINE int dg_mul_overflows(int64_t a, int64_t b, int64_t *r) { return __builtin_mul_overflow(a, b, r); }

DG_INLINE int dg_int_floordiv(int64_t a, int64_t b, int64_t *r)
{
    if (b == 0 || (b == -1 && a == INT64_MIN))
        return 1;
    int64_t q = a / b;
    *r = q - ((a % b != 0) & ((a ^ b) < 0));
    return 0;
}

DG_INLINE int dg_int_mod(int64_t a, int64_t b, int64_t *r)
{
    if (b == 0 || (b == -1 && a == INT64_MIN))
        return 1;
    if (!__builtin_constant_p(b) && b > 0) { /* neighbours that go round, (i + 1) % n, need no division */
        if (a >= 0 && (uint64_t)a < 2 * (uint64_t)b) {
            *r = a - (a >= b ? b : 0);
            return 0;
        }
        if (a < 0 && a >= -b) {
            *r = a + b;
            return 0;
        }
    }
    int64_t m = a % b;
    *r = m + (((m != 0) & ((m ^ b) < 0)) ? b : 0);
    return 0;
}

/* of ints that doubles hold exactly, the quotient is rounded once */
DG_INLINE int dg_int_truediv(int64_t a, int64_t b, double *r)
{
    const int64_t most = INT64_C(1) << 53;
    if (b == 0 || a > most || a < -most || b > most || b < -most)
        return 1;
    *r = (double)a / (double)b;
    return 0;
}

static DG_UNUSED int dg_int_pow(int64_t a, int64_t b, int64_t *r)
{
    int64_t result = 1;
    while (b > 0) {
        if ((b & 1) && __builtin_mul_overflow(result, a, &result))
            return 1;
        b >>= 1;
        if (b && __builtin_mul_overflow(a, a, &a))
            return 1;
    }
    *r = result;
    return 0;
}

DG_INLINE int dg_int_lshift(int64_t a, int64_t b, int64_t *r)
{
    if (b < 0 || b > 62)
        return !(b > 62 && a == 0) || (*r = 0);
    *r = (int64_t)((uint64_t)a << b);
    return *r >> b != a;
}

DG_INLINE int dg_int_rshift(int64_t a, int64_t b, int64_t *r)
{
    if (b < 0)
        return 1;
    *r = a >> (b > 63 ? 63 : b);
    return 0;
}

/* NaN fails every comparison */
DG_INLINE int dg_int_of_float(double x, int64_t *r)
{
    if (!(x >= -0x1p63 && x < 0x1p63))
        return 1;
    *r = (int64_t)x;
    return 0;
}

DG_INLINE int dg_float_floor(double x, int64_t *r) { return dg_int_of_float(__builtin_floor(x), r); }
DG_INLINE int dg_float_ceil(double x, int64_t *r) { return dg_int_of_float(__builtin_ceil(x), r); }
DG_INLINE int dg_float_round(double x, int64_t *r) { return dg_int_of_float(__builtin_rint(x), r); }

DG_INLINE int dg_float_div(double a, double b, double *r)
{
    *r = a / b;
    return b == 0.0;
}

/* CPython's float_divmod: the remainder has the divisor's sign, the quotient is rounded to the nearest whole number */
DG_INLINE int dg_float_mod(double a, double b, double *r)
{
    if (b == 0.0)
        return 1;
    double m = __builtin_fmod(a, b);
    *r = m != 0.0 ? ((b < 0) != (m < 0) ? m + b : m) : __builtin_copysign(0.0, b);
    return 0;
}

DG_INLINE int dg_float_floordiv(double a, double b, double *r)
{
    if (b == 0.0)
        return 1;
    double m = __builtin_fmod(a, b), q = (a - m) / b;
    if (m != 0.0 && (b < 0) != (m < 0))
        q -= 1.0;
    if (q == 0.0) {
        *r = __builtin_copysign(0.0, a / b);
    } else {
        double whole = __builtin_floor(q);
        *r = q - whole > 0.5 ? whole + 1.0 : whole;
    }
    return 0;
}

/* libm's own functions, as CPython and NumPy call them: the compiler shall not compute, or replace, what they give */
#define DG_DEFINE_MATH_1(name)                                                                                                                      \
    double name(double);                                                                                                                     \
    DG_INLINE double dg_math_##name(double x)                                                                                                \
    {                                                                                                                                        \
        double (*volatile f)(double) = name;                                                                                                 \
        return f(x);                                                                                                                         \
    }
#define DG_DEFINE_MATH_2(name)                                                                                                                      \
    double name(double, double);                                                                                                             \
    DG_INLINE double dg_math_##name(double x, double y)                                                                                      \
    {                                                                                                                                        \
        double (*volatile f)(double, double) = name;                                                                                         \
        return f(x, y);                                                                                                                      \
    }
DG_DEFINE_MATH_1(exp) DG_DEFINE_MATH_1(expm1) DG_DEFINE_MATH_1(log) DG_DEFINE_MATH_1(log2) DG_DEFINE_MATH_1(log10) DG_DEFINE_MATH_1(log1p) DG_DEFINE_MATH_1(sin) DG_DEFINE_MATH_1(cos)
DG_DEFINE_MATH_1(tan) DG_DEFINE_MATH_1(asin) DG_DEFINE_MATH_1(acos) DG_DEFINE_MATH_1(atan) DG_DEFINE_MATH_1(sinh) DG_DEFINE_MATH_1(cosh) DG_DEFINE_MATH_1(tanh) DG_DEFINE_MATH_1(asinh)
DG_DEFINE_MATH_1(acosh) DG_DEFINE_MATH_1(atanh) DG_DEFINE_MATH_1(cbrt) DG_DEFINE_MATH_1(erf) DG_DEFINE_MATH_1(erfc) DG_DEFINE_MATH_1(exp2) DG_DEFINE_MATH_1(fabs)
DG_DEFINE_MATH_2(atan2) DG_DEFINE_MATH_2(copysign) DG_DEFINE_MATH_2(fmod) DG_DEFINE_MATH_2(pow) DG_DEFINE_MATH_2(hypot)

/* pow() of glibc and musl is within 0.511 + 0.0000318 |log2 (x ** y)| units in the last place (log and exp in their pow.c): it gives the
   number nearest to x ** y, but where that lies near the middle of two numbers.  For a few exponents the power is a product or a root,
   `p`, and what is left of it, `rest`, which the bounds keep exact: that tells. */
DG_INLINE int dg_is_nearest(double p, double rest)
{
    double size = __builtin_fabs(p);
    if (__builtin_expect((size > 0x1p-64) & (size < 0x1p64) & (p + rest * 1.03 == p), 1)) /* pow is within 0.5131 units, rest within 0.485 */
        return 1;
    return size > 0x1p-300 && size < 0x1p300 && p + rest * 1.06 == p; /* 0.5206, 0.472; half of that below a power of 2 */
}

DG_INLINE double dg_rest_of_product(double x, double y) { return __builtin_fma(x, y, -(x * y)); }

/* of what is rounded once, `rest` is at most half a unit; of others the nearest number may be another one */
DG_INLINE int dg_sum_is_nearest(double p, double rest, double *r)
{
    *r = p + rest;
    return dg_is_nearest(*r, rest - (*r - p));
}

/* x ** y, for y of 2, 3, 4, -1, 0.5 or 1.5; 0: it may not be pow's */
DG_INLINE int dg_short_power(double x, double y, double *r)
{
    double square = x * x, of_square = dg_rest_of_product(x, x), inverse = 1.0 / x;
    double root = __builtin_sqrt(x), of_root = __builtin_fma(-root, root, x) / (2 * root);
    if (y == 2.0)
        return dg_is_nearest(*r = square, of_square);
    if (y == 3.0)
        return dg_sum_is_nearest(square * x, dg_rest_of_product(square, x) + of_square * x, r);
    if (y == 4.0)
        return dg_sum_is_nearest(square * square, dg_rest_of_product(square, square) + 2 * square * of_square, r);
    if (y == -1.0)
        return dg_is_nearest(*r = inverse, __builtin_fma(-inverse, x, 1.0) * inverse);
    if (y == 0.5)
        return dg_is_nearest(*r = root, of_root);
    if (y == 1.5)
        return dg_sum_is_nearest(root * x, dg_rest_of_product(root, x) + of_root * x, r);
    return 0;
}

DG_INLINE double dg_numpy_pow_f64(double x, double y)
{
    double r;
    if (__builtin_constant_p(y) && __builtin_expect(dg_short_power(x, y, &r), 1))
        return r;
    return dg_math_pow(x, y);
}

float powf(float, float);
DG_INLINE float dg_numpy_pow_f32(float x, float y)
{
    float (*volatile f)(float, float) = powf;
    return f(x, y);
}
#define dg_numpy_pow(x, y) _Generic((x), float: dg_numpy_pow_f32, default: dg_numpy_pow_f64)(x, y)

DG_INLINE int dg_float_pow(double x, double y, double *r)
{
    *r = dg_numpy_pow_f64(x, y);
    return !__builtin_isfinite(*r) || (x == 0.0 && y < 0.0);
}

DG_INLINE double _Complex dg_python_complex_mul(double _Complex a, double _Complex b)
{
    double ar = __real__ a, ai = __imag__ a, br = __real__ b, bi = __imag__ b;
    return __builtin_complex(DG_ROUNDED(ar * br) - ai * bi, ar * bi + ai * br);
}

/* as CPython's, but for what is not finite */
DG_INLINE int dg_python_complex_div(double _Complex a, double _Complex b, double _Complex *r)
{
    double ar = __real__ a, ai = __imag__ a, br = __real__ b, bi = __imag__ b;
    if (__builtin_fabs(br) >= __builtin_fabs(bi)) {
        if (br == 0)
            return 1;
        double ratio = bi / br, divisor = br + bi * ratio;
        *r = __builtin_complex((ar + ai * ratio) / divisor, (ai - ar * ratio) / divisor);
    } else {
        double ratio = br / bi, divisor = br * ratio + bi;
        *r = __builtin_complex((ar * ratio + ai) / divisor, (ai * ratio - ar) / divisor);
    }
    return !__builtin_isfinite(__real__ *r) || !__builtin_isfinite(__imag__ *r);
}

DG_INLINE int dg_python_complex_exp(double _Complex z, double _Complex *r)
{
    double x = __real__ z, y = __imag__ z, length;
    if (!__builtin_isfinite(x) || !__builtin_isfinite(y) || x > 700) /* there it is scaled */
        return 1;
    length = dg_math_exp(x);
    *r = __builtin_complex(length * dg_math_cos(y), length * dg_math_sin(y));
    return 0;
}

DG_INLINE int64_t dg_bit_length(int64_t x)
{
    uint64_t u = x < 0 ? 0 - (uint64_t)x : (uint64_t)x;
    return u ? 64 - __builtin_clzll(u) : 0;
}

/* of an int above zero */
DG_INLINE int64_t dg_bit_count(int64_t x) { return __builtin_popcountll((uint64_t)x); }
DG_INLINE int64_t dg_highest_bit(int64_t x) { return INT64_C(1) << (63 - __builtin_clzll((uint64_t)x)); }

/* -- random numbers ------------------------------------------------------------------------------------------------------------ */

/* by NumPy's random_bounded_uint64_fill: from low to low + width */
DG_INLINE int64_t dg_draw_integer(int64_t function, char *bits, int64_t low, int64_t width, int64_t masked)
{
    uint64_t drawn;
    ((void (*)(void *, uint64_t, uint64_t, intptr_t, _Bool, uint64_t *))(intptr_t)function)(bits, (uint64_t)low, (uint64_t)width, 1,
                                                                                         masked != 0, &drawn);
    return (int64_t)drawn;
}

/* the next word of Python's Mersenne Twister (Matsumoto and Nishimura, 1998), whose state is the next one's index and 624 words */
static DG_UNUSED uint32_t dg_next_word(char *twister)
{
    uint32_t *index = (uint32_t *)twister, *state = index + 1, y;
    if (*index >= 624) {
        for (int k = 0; k < 624; ++k) {
            y = (state[k] & 0x80000000u) | (state[(k + 1) % 624] & 0x7fffffffu);
            state[k] = state[(k + 397) % 624] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
        }
        *index = 0;
    }
    y = state[(*index)++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

/* random.getrandbits(k), of 1 to 62 bits: the first word has the lowest */
DG_INLINE int64_t dg_twist_bits(char *twister, int64_t k)
{
    if (k <= 32)
        return dg_next_word(twister) >> (32 - k);
    uint64_t low = dg_next_word(twister), high = dg_next_word(twister) >> (64 - k);
    return (int64_t)(high << 32 | low);
}

/* random.random(): 53 bits */
DG_INLINE double dg_twist(char *twister)
{
    uint32_t a = dg_next_word(twister) >> 5, b = dg_next_word(twister) >> 6;
    return (a * 67108864.0 + b) * (1.0 / 9007199254740992.0);
}

/* -- arrays ------------------------------------------------------------------------------------------------------------------ */

DG_INLINE void dg_extent(const char *p, int64_t size, int64_t ndim, const int64_t *sizes, const int64_t *strides, const char **low,
                         const char **high)
{
    *low = p;
    *high = p + size;
    for (int64_t k = 0; k < ndim; ++k)
        *(strides[k] < 0 ? low : high) += (sizes[k] - 1) * strides[k];
}

DG_INLINE int dg_is_empty(int64_t ndim, const int64_t *sizes)
{
    int empty = 0;
    for (int64_t k = 0; k < ndim; ++k)
        empty |= sizes[k] <= 0;
    return empty;
}

/* whether the elements of an expression may be stored one after the other, each as soon as it is computed: of what is read, none
   has been stored to before.  The first array is written, the second read; `repeated`: the second's elements more than once. */
DG_INLINE int dg_in_order(const char *p, int64_t size, const char *q, int64_t its_size, int repeated, int64_t ndim, int64_t its_ndim,
                          const int64_t *sizes, const int64_t *strides, const int64_t *its_sizes, const int64_t *its_strides)
{
    if (dg_is_empty(ndim, sizes) || dg_is_empty(its_ndim, its_sizes))
        return 1;
    const char *low, *high, *its_low, *its_high;
    dg_extent(p, size, ndim, sizes, strides, &low, &high);
    dg_extent(q, its_size, its_ndim, its_sizes, its_strides, &its_low, &its_high);
    if (high <= its_low || its_high <= low)
        return 1;
    if (size != its_size || ndim != its_ndim || repeated)
        return 0;
    int same = 1;
    for (int64_t k = 0; k < ndim; ++k)
        same &= sizes[k] == 1 || strides[k] == its_strides[k];
    if (p == q && same)
        return 1;
    if (ndim != 1 || strides[0] != its_strides[0] || strides[0] <= 0)
        return 0;
    int64_t apart = (q - p) % strides[0];
    if (apart < 0)
        apart += strides[0];
    return q > p || (apart >= size && strides[0] - apart >= size);
}

DG_INLINE char *dg_memory(int in_order, int64_t size) { return in_order ? 0 : malloc((size_t)size + 1); }

DG_INLINE int dg_free(char *p)
{
    free(p);
    return 1;
}

DG_INLINE int dg_clear(char *p, int64_t size)
{
    memset(p, 0, (size_t)size);
    return 1;
}

/* -- arrays that the region makes */

#define DG_MADE(m) ((dg_made *)(m))

DG_INLINE void dg_let_go(char *m)
{
    if (m && --DG_MADE(m)->references == 0 && !DG_MADE(m)->object) {
        free(DG_MADE(m)->data);
        free(m);
    }
}

DG_INLINE void dg_hold(char **name, char *m)
{
    if (m)
        ++DG_MADE(m)->references;
    dg_let_go(*name);
    *name = m;
}

/* as a region is left: not inlined, as there are many exits.  Nor cold, as each way leads here: gcc takes a function whose ways all
   come to cold ones for one that is never called, and has no vectors in it */
static __attribute__((noinline, unused)) void dg_give(dg_slot *slot, char *m)
{
    slot->p = m;
    if (m)
        ++DG_MADE(m)->references;
}

static __attribute__((noinline, unused)) void dg_drop(char *m) { dg_let_go(m); }

DG_INLINE char *dg_data_of(char *m) { return DG_MADE(m)->data; }

/* 1: there is no memory, or a size is below zero.  What nobody else holds is used again. */
static DG_UNUSED int dg_new_memory(char **name, int type, int64_t itemsize, int ndim, const int64_t *sizes, int fortran)
{
    int64_t bytes = itemsize;
    for (int k = 0; k < ndim; ++k)
        if (sizes[k] < 0 || __builtin_mul_overflow(bytes, sizes[k], &bytes))
            return 1;
    if (bytes > INT64_MAX / 2)
        return 1;
    dg_made *m = DG_MADE(*name);
    if (!m || m->references != 1 || m->bytes != bytes || m->object) {
        if (!(m = malloc(sizeof *m)))
            return 1;
        if (!(m->data = malloc((size_t)bytes + !bytes))) {
            free(m);
            return 1;
        }
        dg_let_go(*name);
        *name = (char *)m;
    }
    *m = (dg_made){.references = 1, .bytes = bytes, .data = m->data, .type = type, .ndim = ndim, .fortran = fortran};
    for (int k = 0; k < ndim; ++k)
        m->shape[k] = sizes[k];
    return 0;
}

/* as NumPy's DOUBLE_dot and FLOAT_dot: BLAS in parts, where the steps are ones that it takes */
#define DG_DEFINE_LOOP_DOT(suffix, T, routine)                                                                               \
    static DG_UNUSED T dg_loop_dot_##suffix(const dg_runtime *rt, int64_t n, const char *x, int64_t sx, const char *y, int64_t sy) \
    {                                                                                                                        \
        const int64_t size = sizeof(T), most = rt->ilp64 ? INT64_MAX / 2 + 1 : INT32_MAX / 2 + 1;                            \
        if (rt->routine && sx > 0 && sy > 0 && sx % size == 0 && sy % size == 0 && sx / size <= INT32_MAX && sy / size <= INT32_MAX) { \
            double sum = 0;                                                                                                  \
            while (n > 0) {                                                                                                  \
                int64_t part = n < most ? n : most;                                                                          \
                if (rt->ilp64)                                                                                               \
                    sum += ((T(*)(int64_t, const T *, int64_t, const T *, int64_t))rt->routine)(part, (const T *)x, sx / size, (const T *)y, sy / size); \
                else                                                                                                         \
                    sum += ((T(*)(int, const T *, int, const T *, int))rt->routine)((int)part, (const T *)x, (int)(sx / size), (const T *)y, (int)(sy / size)); \
                x += part * sx;                                                                                              \
                y += part * sy;                                                                                              \
                n -= part;                                                                                                   \
            }                                                                                                                \
            return (T)sum;                                                                                                   \
        }                                                                                                                    \
        T sum = 0;                                                                                                           \
        for (int64_t k = 0; k < n; ++k)                                                                                      \
            sum += *(const T *)(x + k * sx) * *(const T *)(y + k * sy);                                                      \
        return sum;                                                                                                          \
    }
DG_DEFINE_LOOP_DOT(f64, double, ddot)
DG_DEFINE_LOOP_DOT(f32, float, sdot)

/* the elements one after the other, where they are not or (`any_step` set) where their steps are none that BLAS takes; `held`: to be
   freed */
static DG_UNUSED const char *dg_packed(const char *x, int64_t n, int64_t *step, int64_t size, int any_step, char **held)
{
    *held = 0;
    if (n < 2 || *step == size || (any_step && *step > 0 && *step % size == 0 && (intptr_t)x % size == 0))
        return x;
    char *made = malloc((size_t)(n * size));
    if (!made)
        return x;
    for (int64_t k = 0; k < n; ++k)
        memcpy(made + k * size, x + k * *step, (size_t)size);
    *step = size;
    return *held = made;
}

/* as np.dot (any_step set), see _bad_strides in NumPy's cblasfuncs.c, and np.linalg.norm: of copies, where these take some */
#define DG_DEFINE_LOOP_DOT_OF_COPIES(suffix, T)                                                                              \
    static DG_UNUSED T dg_loop_dot_of_copies_##suffix(const dg_runtime *rt, int any_step, int64_t n, const char *x, int64_t sx, \
                                                      const char *y, int64_t sy)                                             \
    {                                                                                                                        \
        char *held, *other;                                                                                                  \
        x = dg_packed(x, n, &sx, sizeof(T), any_step, &held);                                                                \
        y = dg_packed(y, n, &sy, sizeof(T), any_step, &other);                                                               \
        T sum = dg_loop_dot_##suffix(rt, n, x, sx, y, sy);                                                                   \
        free(held);                                                                                                          \
        free(other);                                                                                                         \
        return sum;                                                                                                          \
    }
DG_DEFINE_LOOP_DOT_OF_COPIES(f64, double)
DG_DEFINE_LOOP_DOT_OF_COPIES(f32, float)

/* -- lists: what the loop does not free, its caller does ------------------------------------------------------------------- */

#define DG_LIST(l) ((dg_list *)(l))

/* items that are not set; the exit where memory runs out, and Python raises MemoryError */
static DG_UNUSED int dg_list_new(dg_stop *stop, int64_t n, int64_t width, char **r)
{
    n = n < 0 ? 0 : n;
    int64_t bytes;
    if (__builtin_mul_overflow(n, 8 * width, &bytes) || bytes > INT64_C(1) << 46)
        return 1;
    dg_list *list = calloc(1, sizeof *list);
    if (!list || !(list->items = malloc((size_t)(bytes ? bytes : 8)))) {
        free(list);
        return 1;
    }
    list->length = list->capacity = n;
    list->width = width;
    list->next = stop->lists;
    stop->lists = list;
    stop->list_bytes += bytes + 128;
    *r = (char *)list;
    return 0;
}

static DG_UNUSED int dg_list_repeat(dg_stop *stop, char *list, int64_t n, char **r)
{
    int64_t length = DG_LIST(list)->length, width = DG_LIST(list)->width, total;
    if (__builtin_mul_overflow(length, n < 0 ? 0 : n, &total) || dg_list_new(stop, total, width, r))
        return 1;
    const dg_slot *from = DG_LIST(list)->items;
    dg_slot *to = DG_LIST(*r)->items;
    if (length * width == 1)
        for (int64_t k = 0; k < total; ++k)
            to[k] = from[0];
    else
        for (int64_t k = 0; k < total; k += length)
            memcpy(to + k * width, from, (size_t)(length * width) * sizeof *to);
    return 0;
}

static DG_UNUSED int dg_list_range(dg_stop *stop, int64_t start, int64_t n, int64_t step, char **r)
{
    if (dg_list_new(stop, n, 1, r))
        return 1;
    for (int64_t k = 0; k < n; ++k)
        DG_LIST(*r)->items[k].i = start + k * step;
    return 0;
}

/* items of one slot, as those of several types are */
static DG_UNUSED int dg_list_tagged(dg_stop *stop, char *list, int64_t width, int64_t tag, int64_t at, char **r)
{
    const int64_t n = DG_LIST(list)->length;
    if (dg_list_new(stop, n, width, r))
        return 1;
    dg_slot *to = DG_LIST(*r)->items;
    memset(to, 0, (size_t)(n * width) * sizeof *to);
    for (int64_t k = 0; k < n; ++k) {
        to[k * width].i = tag;
        to[k * width + at] = DG_LIST(list)->items[k];
    }
    return 0;
}

static DG_UNUSED int dg_list_slice(dg_stop *stop, char *list, int64_t start, int64_t end, char **r)
{
    int64_t width = DG_LIST(list)->width;
    if (dg_list_new(stop, end - start, width, r))
        return 1;
    if (end > start)
        memcpy(DG_LIST(*r)->items, DG_LIST(list)->items + start * width, (size_t)((end - start) * width) * sizeof(dg_slot));
    return 0;
}

static DG_UNUSED int dg_list_concat(dg_stop *stop, char *a, char *b, char **r)
{
    int64_t n = DG_LIST(a)->length, m = DG_LIST(b)->length, width = DG_LIST(a)->width;
    if (dg_list_new(stop, n + m, width, r))
        return 1;
    memcpy(DG_LIST(*r)->items, DG_LIST(a)->items, (size_t)(n * width) * sizeof(dg_slot));
    memcpy(DG_LIST(*r)->items + n * width, DG_LIST(b)->items, (size_t)(m * width) * sizeof(dg_slot));
    return 0;
}

/* into other memory, with room before the items and for them */
static __attribute__((noinline, unused)) int dg_list_move(dg_stop *stop, dg_list *list, int64_t before, int64_t capacity)
{
    int64_t bytes;
    if (__builtin_mul_overflow(before + capacity, 8 * list->width, &bytes) || bytes > INT64_C(1) << 46)
        return 1;
    dg_slot *base = malloc((size_t)(bytes ? bytes : 8)), *items = base + before * list->width;
    if (!base)
        return 1;
    memcpy(items, list->items, (size_t)(list->length * list->width) * sizeof *items);
    free(list->items - list->before * list->width);
    stop->list_bytes += 8 * list->width * (before + capacity - list->before - list->capacity);
    list->items = items;
    list->before = before;
    list->capacity = capacity;
    return 0;
}

/* a queue goes back to where its memory begins once it has moved on by its own length */
static DG_UNUSED void dg_list_go_back(dg_list *list)
{
    dg_slot *base = list->items - list->before * list->width;
    memmove(base, list->items, (size_t)(list->length * list->width) * sizeof *base);
    list->items = base;
    list->capacity += list->before;
    list->before = 0;
}

static __attribute__((noinline, unused)) int dg_list_grow(dg_stop *stop, dg_list *list)
{
    int64_t capacity = list->capacity < 4 ? 8 : 2 * list->capacity, bytes;
    if (list->before && list->before >= list->capacity) {
        dg_list_go_back(list);
        return 0;
    }
    if (list->before)
        return dg_list_move(stop, list, 0, capacity);
    if (__builtin_mul_overflow(capacity, 8 * list->width, &bytes) || bytes > INT64_C(1) << 46)
        return 1;
    void *items = realloc(list->items, (size_t)(bytes ? bytes : 8));
    if (!items)
        return 1;
    stop->list_bytes += 8 * list->width * (capacity - list->capacity);
    list->items = items;
    list->capacity = capacity;
    return 0;
}

DG_INLINE int dg_list_append(dg_stop *stop, char *list, char **r)
{
    dg_list *l = DG_LIST(list);
    if (__builtin_expect(l->length == l->capacity, 0) && dg_list_grow(stop, l))
        return 1;
    *r = (char *)(l->items + l->length++ * l->width);
    l->changed = 1;
    return 0;
}

/* of a deque: the place of one more item at its beginning */
DG_INLINE int dg_list_append_left(dg_stop *stop, char *list, char **r)
{
    dg_list *l = DG_LIST(list);
    if (__builtin_expect(l->before == 0, 0) && dg_list_move(stop, l, l->length + 8, l->capacity))
        return 1;
    l->items -= l->width;
    --l->before;
    --l->taken;
    ++l->length;
    ++l->capacity;
    l->changed = 1;
    *r = (char *)l->items;
    return 0;
}

/* without its first item, of a deque that has one */
DG_INLINE int dg_list_pop_left(char *list, char **r)
{
    dg_list *l = DG_LIST(list);
    l->items += l->width;
    ++l->before;
    ++l->taken;
    --l->length;
    --l->capacity;
    l->changed = 1;
    *r = list;
    return 0;
}

static DG_UNUSED int dg_list_insert(dg_stop *stop, char *list, int64_t at, char **r)
{
    dg_list *l = DG_LIST(list);
    if (dg_list_append(stop, list, r))
        return 1;
    dg_slot *place = l->items + at * l->width;
    memmove(place + l->width, place, (size_t)((l->length - 1 - at) * l->width) * sizeof *place);
    *r = (char *)place;
    return 0;
}

static DG_UNUSED int dg_list_remove(char *list, int64_t at, char **r)
{
    dg_list *l = DG_LIST(list);
    dg_slot *place = l->items + at * l->width;
    --l->length;
    memmove(place, place + l->width, (size_t)((l->length - at) * l->width) * sizeof *place);
    l->changed = 1;
    *r = list;
    return 0;
}

static DG_UNUSED int dg_list_reverse(char *list, char **r)
{
    dg_list *l = DG_LIST(list);
    for (int64_t k = 0, last = l->length - 1; k < last; ++k, --last)
        for (int64_t s = 0; s < l->width; ++s) {
            dg_slot held = l->items[k * l->width + s];
            l->items[k * l->width + s] = l->items[last * l->width + s];
            l->items[last * l->width + s] = held;
        }
    l->changed = 1;
    *r = list;
    return 0;
}

/* stable, as Python's: for one order of the items there is one result */
#define DG_DEFINE_SORT(T, part, is_unordered)                                                                     \
    static DG_UNUSED int dg_list_sort_##T(char *list, char **r)                                                   \
    {                                                                                                             \
        enum { RUN = 8, SMALL = 64 };                                                                             \
        dg_list *l = DG_LIST(list);                                                                               \
        dg_slot *from = l->items, few[SMALL], *held = few, *to;                                                   \
        const int64_t n = l->length;                                                                              \
        for (int64_t k = 0; k < n; ++k)                                                                           \
            if (is_unordered(from[k].part))                                                                       \
                return 1;                                                                                         \
        if (n > SMALL && !(held = malloc((size_t)n * sizeof *held)))                                              \
            return 1;                                                                                             \
        for (int64_t first = 0; first < n; first += RUN)                                                          \
            for (int64_t k = first + 1; k < n && k < first + RUN; ++k) {                                          \
                dg_slot item = from[k];                                                                           \
                int64_t at = k;                                                                                   \
                for (; at > first && item.part < from[at - 1].part; --at)                                         \
                    from[at] = from[at - 1];                                                                      \
                from[at] = item;                                                                                  \
            }                                                                                                     \
        to = held;                                                                                                \
        for (int64_t width = RUN; width < n; width *= 2) {                                                        \
            for (int64_t low = 0; low < n; low += 2 * width) {                                                    \
                int64_t middle = low + width < n ? low + width : n, high = low + 2 * width < n ? low + 2 * width : n; \
                for (int64_t i = low, j = middle, k = low; k < high; ++k)                                         \
                    to[k] = i < middle && (j >= high || !(from[j].part < from[i].part)) ? from[i++] : from[j++];  \
            }                                                                                                     \
            dg_slot *other = from;                                                                                \
            from = to;                                                                                            \
            to = other;                                                                                           \
        }                                                                                                         \
        if (from != l->items)                                                                                     \
            memcpy(l->items, from, (size_t)n * sizeof *from);                                                     \
        if (held != few)                                                                                          \
            free(held);                                                                                           \
        l->changed = 1;                                                                                           \
        *r = list;                                                                                                \
        return 0;                                                                                                 \
    }
#define DG_NEVER(x) 0
DG_DEFINE_SORT(int, i, DG_NEVER)
DG_DEFINE_SORT(float, d, __builtin_isnan)

static DG_UNUSED int dg_list_extend(dg_stop *stop, char *list, char *other, char **r)
{
    dg_list *l = DG_LIST(list), *o = DG_LIST(other);
    int64_t n = l->length, m = o->length;
    while (l->capacity < n + m)
        if (dg_list_grow(stop, l))
            return 1;
    memmove(l->items + n * l->width, o->items, (size_t)(m * l->width) * sizeof(dg_slot));
    l->length = n + m;
    l->changed = 1;
    *r = list;
    return 0;
}

static DG_UNUSED int dg_list_find_int(char *list, int64_t x, int64_t *r)
{
    const dg_list *l = DG_LIST(list);
    for (int64_t k = 0; k < l->length; ++k)
        if (l->items[k].i == x) {
            *r = k;
            return 0;
        }
    *r = -1;
    return 0;
}

static DG_UNUSED int dg_list_find_float(char *list, double x, int64_t *r)
{
    const dg_list *l = DG_LIST(list);
    for (int64_t k = 0; k < l->length; ++k)
        if (l->items[k].d == x) {
            *r = k;
            return 0;
        }
    *r = -1;
    return 0;
}

/* -- functions that call themselves -------------------------------------------------------------------------------------------- */

typedef struct {
    dg_slot slot;
    int64_t gave_up;
} dg_result;

/* what cannot go on here is done by Python, beginning with the outermost call; the stack grows downwards */
DG_INLINE int dg_gives_up(dg_stop *stop, int64_t depth)
{
    return depth <= 0 || __atomic_load_n(stop->signals, __ATOMIC_RELAXED) || (const char *)__builtin_frame_address(0) < stop->stack_end;
}

/* what was in memory before functions wrote there, which is put back where they give up */
typedef struct {
    char *at;
    int64_t size;
    uint64_t value;
} dg_kept;

typedef struct {
    dg_kept *kept;
    int64_t n, room;
} dg_log;

enum { DG_FEW_KEPT = 1 << 17, DG_MOST_KEPT = 1 << 23 }; /* more are dropped by calls that Python makes one by one */

/* of what was kept of one place, the first: later ones are put back before it. A table of places finds it, in which neighbours are
   neighbours. */
static __attribute__((noinline, cold, unused)) void dg_log_tidy(dg_log *log)
{
    const uint64_t size = 2 * (uint64_t)log->room; /* a power of two */
    uint32_t *table = calloc(size, sizeof *table);
    int64_t n = 0;
    for (int64_t k = 0; table && k < log->n; ++k) {
        const dg_kept kept = log->kept[k];
        uint64_t at = (uint64_t)kept.at / 8 & (size - 1);
        const uint64_t step = (uint64_t)kept.at * UINT64_C(0x9e3779b97f4a7c15) >> 32 | 1;
        while (table[at] && (log->kept[table[at] - 1].at != kept.at || log->kept[table[at] - 1].size != kept.size))
            at = (at + step) & (size - 1);
        if (!table[at]) {
            log->kept[n++] = kept;
            table[at] = (uint32_t)n;
        }
    }
    if (table)
        log->n = n;
    free(table);
}

static __attribute__((noinline, cold, unused)) int dg_log_grow(dg_log *log)
{
    if (log->n >= DG_FEW_KEPT)
        dg_log_tidy(log);
    if (log->n < log->room / 2)
        return 0;
    int64_t room = log->room ? 2 * log->room : 512;
    dg_kept *kept = room > DG_MOST_KEPT ? NULL : realloc(log->kept, (size_t)room * sizeof *kept);
    if (!kept)
        return 1;
    log->kept = kept;
    log->room = room;
    return 0;
}

DG_INLINE int dg_keep(dg_log *log, char *at, int64_t size)
{
    for (; size > 0; at += 8, size -= 8) {
        if (__builtin_expect(log->n == log->room, 0) && dg_log_grow(log))
            return 1;
        dg_kept *kept = &log->kept[log->n++];
        kept->at = at;
        kept->size = size < 8 ? size : 8;
        memcpy(&kept->value, at, (size_t)kept->size);
    }
    return 0;
}

/* after the outermost call */
DG_INLINE int dg_done(dg_log *log, int gave_up)
{
    while (gave_up && log->n > 0) {
        const dg_kept *kept = &log->kept[--log->n];
        memcpy(kept->at, &kept->value, (size_t)kept->size);
    }
    log->n = 0;
    return gave_up;
}

/* -- text -------------------------------------------------------------------------------------------------------------------- */

static DG_UNUSED int dg_text_equal(char *a, int64_t n, char *b, int64_t m, int64_t *r)
{
    *r = n == m && memcmp(a, b, (size_t)n * sizeof(uint32_t)) == 0;
    return 0;
}

static DG_UNUSED int dg_text_find(char *text, int64_t n, int64_t code, int64_t *r)
{
    *r = -1;
    for (int64_t k = 0; *r < 0 && k < n; ++k)
        if (((const uint32_t *)text)[k] == code)
            *r = k;
    return 0;
}

static DG_UNUSED int dg_bytes_find(char *bytes, int64_t n, int64_t code, int64_t *r)
{
    const char *found = n ? memchr(bytes, (int)code, (size_t)n) : 0;
    *r = found ? found - bytes : -1;
    return 0;
}
