/* What every generated CUDA file starts with: the names that NVRTC, which has no headers, leaves out; complex numbers; packs of
   elements that are moved at once; what the threads of a team make of their parts.

   The same text is compiled by g++ for tests, where DG_EMULATED is defined; it has no headers there either. */
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define INT8_MIN (-128)
#define INT8_MAX 127
#define UINT8_MAX 255
#define INT16_MIN (-32768)
#define INT16_MAX 32767
#define UINT16_MAX 65535
#define INT32_MIN (-2147483647 - 1)
#define INT32_MAX 2147483647
#define UINT32_MAX 4294967295u
#define INT64_MIN (-9223372036854775807ll - 1)
#define INT64_MAX 9223372036854775807ll
#define UINT64_MAX 18446744073709551615ull

#define DG_INL static __device__ __forceinline__
#define DG_FMA(a, b, c) fma(a, b, c)
#define DG_FMAF(a, b, c) fmaf(a, b, c)
#define DG_REACH(limit) limit
#define DG_RARE_f32(name, limit, call)                                                                                \
    DG_INL float name(float t, float x, float y, float z) { return fabsf(t) > limit ? call : z; }
#define DG_RARE_f64(name, limit, call)                                                                                \
    DG_INL double name(double t, double x, double y, double z) { return fabs(t) > limit ? call : z; }

DG_INL float dg_inff() { return __int_as_float(0x7f800000); }
DG_INL double dg_inf() { return __longlong_as_double(0x7ff0000000000000ll); }
DG_INL float dg_nanf() { return __int_as_float(0x7fc00000); }
DG_INL double dg_nan() { return __longlong_as_double(0x7ff8000000000000ll); }

typedef struct { float hi, lo; } dg_pair_f32;
typedef struct { double hi, lo; } dg_pair_f64;
typedef struct { dg_pair_f32 r; uint32_t n; } dg_angle_f32;
typedef struct { dg_pair_f64 r; uint64_t n; } dg_angle_f64;
typedef struct { float k, f; } dg_binary_f32;
typedef struct { double k, f; } dg_binary_f64;

template <class T>
struct alignas(2 * sizeof(T)) dg_complex_number {
    T re, im;
    dg_complex_number() = default;
    __device__ dg_complex_number(T real, T imag = 0) : re(real), im(imag) {}
    template <class U>
    __device__ explicit dg_complex_number(dg_complex_number<U> z) : re((T)z.re), im((T)z.im) {}
    template <class U>
    __device__ explicit operator U() const { return (U)re; }
    friend __device__ dg_complex_number operator+(dg_complex_number x, dg_complex_number y) { return {x.re + y.re, x.im + y.im}; }
    friend __device__ dg_complex_number operator-(dg_complex_number x, dg_complex_number y) { return {x.re - y.re, x.im - y.im}; }
    friend __device__ dg_complex_number operator-(dg_complex_number x) { return {-x.re, -x.im}; }
    friend __device__ bool operator==(dg_complex_number x, dg_complex_number y) { return x.re == y.re && x.im == y.im; }
    friend __device__ bool operator!=(dg_complex_number x, dg_complex_number y) { return x.re != y.re || x.im != y.im; }
};
typedef dg_complex_number<float> dg_c64;
typedef dg_complex_number<double> dg_c128;
DG_INL dg_c64 dg_complex(float re, float im) { return dg_c64(re, im); }
DG_INL dg_c128 dg_complex(double re, double im) { return dg_c128(re, im); }

/* -- packs: neighbours in memory that one thread moves at once ---------------------------------------------------------- */

template <class T, int n>
struct alignas(n * sizeof(T)) dg_pack {
    T v[n];
};

template <class T, int n>
DG_INL dg_pack<T, n> dg_load_pack(const T *from)
{
    return *(const dg_pack<T, n> *)from;
}

template <class T, int n>
DG_INL void dg_store_pack(T *to, const dg_pack<T, n> &pack)
{
    *(dg_pack<T, n> *)to = pack;
}

/* -- accesses that are checked, where config.cuda_check is on ------------------------------------------------------------- */

/* An element of memory that holds those from `low` to `end`.  An access elsewhere goes to the 16 bytes after the record's two words;
   the first one of a launch is noted there: 1 + the number of the buffer, and the index. */
template <class T>
DG_INL T &dg_checked(T *memory, int64_t index, int64_t low, int64_t end, int buffer, int64_t *record)
{
    if (index >= low && index < end)
        return memory[index];
    if (atomicCAS((unsigned long long *)record, 0ull, (unsigned long long)buffer + 1) == 0)
        record[1] = index;
    return *(T *)(record + 2);
}

/* -- scatters: elements that several threads may want at a time --------------------------------------------------------------- */

struct dg_add_of { template <class T> static __device__ T of(T x, T y) { return (T)((uint64_t)x + (uint64_t)y); } };
struct dg_mul_of { template <class T> static __device__ T of(T x, T y) { return (T)((uint64_t)x * (uint64_t)y); } };
struct dg_max_of { template <class T> static __device__ T of(T x, T y) { return x > y ? x : y; } };
struct dg_min_of { template <class T> static __device__ T of(T x, T y) { return x < y ? x : y; } };
struct dg_and_of { template <class T> static __device__ T of(T x, T y) { return (T)(x & y); } };
struct dg_or_of { template <class T> static __device__ T of(T x, T y) { return (T)(x | y); } };
struct dg_xor_of { template <class T> static __device__ T of(T x, T y) { return (T)(x ^ y); } };

/* Any function of integers: the word that an element is, or is part of, is exchanged once nobody else has done so in between. */
template <class F, class T>
DG_INL void dg_exchange(T *at, T value)
{
    if constexpr (sizeof(T) == 8) {
        unsigned long long *word = (unsigned long long *)at, seen = *(volatile unsigned long long *)at, expected;
        do {
            expected = seen;
            seen = atomicCAS(word, expected, (unsigned long long)F::of((T)expected, value));
        } while (seen != expected);
    } else {
        unsigned *word = (unsigned *)((uint64_t)at & ~3ull);
        const int shift = (int)((uint64_t)at & 3) * 8;
        const unsigned mask = 0xffffffffu >> (32 - 8 * sizeof(T)) << shift;
        unsigned seen = *(volatile unsigned *)word, expected;
        do {
            expected = seen;
            const unsigned found = (unsigned)F::of((T)(expected >> shift), value) << shift;
            seen = atomicCAS(word, expected, (expected & ~mask) | (found & mask));
        } while (seen != expected);
    }
}

#define DG_ATOMIC(name)                                                                                               \
    template <class T>                                                                                                \
    DG_INL void dg_atomic_##name(T *at, T value) { dg_exchange<dg_##name##_of>(at, value); }
DG_ATOMIC(add) DG_ATOMIC(mul) DG_ATOMIC(max) DG_ATOMIC(min) DG_ATOMIC(and) DG_ATOMIC(or) DG_ATOMIC(xor)

#define DG_ATOMIC_OF(name, function, T, native)                                                                       \
    DG_INL void dg_atomic_##name(T *at, T value) { function((native *)at, (native)value); }
#define DG_ATOMICS_OF(T, native, bits)                                                                                \
    DG_ATOMIC_OF(max, atomicMax, T, native) DG_ATOMIC_OF(min, atomicMin, T, native) DG_ATOMIC_OF(add, atomicAdd, T, bits) \
    DG_ATOMIC_OF(and, atomicAnd, T, bits) DG_ATOMIC_OF(or, atomicOr, T, bits) DG_ATOMIC_OF(xor, atomicXor, T, bits)
DG_ATOMICS_OF(int32_t, int, unsigned) DG_ATOMICS_OF(int64_t, long long, unsigned long long)
DG_ATOMICS_OF(uint32_t, unsigned, unsigned) DG_ATOMICS_OF(uint64_t, unsigned long long, unsigned long long)
DG_ATOMIC_OF(add, atomicAdd, float, float) DG_ATOMIC_OF(add, atomicAdd, double, double)

template <class T>
DG_INL void dg_atomic_add(dg_complex_number<T> *at, dg_complex_number<T> value)
{
    atomicAdd(&at->re, value.re);
    atomicAdd(&at->im, value.im);
}

/* Which of `n` owners a place has: no owner has many more places than another one, wherever they lie. */
DG_INL int dg_owner(int64_t place, int n)
{
    return (int)__umulhi((unsigned)((uint64_t)place * 0x9e3779b97f4a7c15ull >> 32), (unsigned)n);
}

/* -- what another thread of the warp has ------------------------------------------------------------------------------------ */

template <class T>
DG_INL T dg_from_lane(T x, int lane, int width)
{
    return __shfl_sync(0xffffffffu, x, lane, width);
}
DG_INL bool dg_from_lane(bool x, int lane, int width) { return __shfl_sync(0xffffffffu, (int)x, lane, width) != 0; }
DG_INL int8_t dg_from_lane(int8_t x, int lane, int width) { return (int8_t)__shfl_sync(0xffffffffu, (int)x, lane, width); }
DG_INL int16_t dg_from_lane(int16_t x, int lane, int width) { return (int16_t)__shfl_sync(0xffffffffu, (int)x, lane, width); }
DG_INL uint8_t dg_from_lane(uint8_t x, int lane, int width) { return (uint8_t)__shfl_sync(0xffffffffu, (int)x, lane, width); }
DG_INL uint16_t dg_from_lane(uint16_t x, int lane, int width) { return (uint16_t)__shfl_sync(0xffffffffu, (int)x, lane, width); }
DG_INL int64_t dg_from_lane(int64_t x, int lane, int width) { return (int64_t)__shfl_sync(0xffffffffu, (long long)x, lane, width); }
DG_INL uint64_t dg_from_lane(uint64_t x, int lane, int width)
{
    return (uint64_t)__shfl_sync(0xffffffffu, (unsigned long long)x, lane, width);
}
template <class T>
DG_INL dg_complex_number<T> dg_from_lane(dg_complex_number<T> x, int lane, int width)
{
    return dg_complex_number<T>(__shfl_sync(0xffffffffu, x.re, lane, width), __shfl_sync(0xffffffffu, x.im, lane, width));
}
