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

/* An element of memory that holds those from `low` to `end`.  An access elsewhere goes to the 16 bytes behind the record's two words;
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
