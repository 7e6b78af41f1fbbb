/* Lets g++ compile CUDA C: what NVRTC provides, as far as generated kernels use it, on top of the machine in emulator.cpp.

   It includes no header: NVRTC has none either (no INFINITY, no int64_t), and a kernel compiles in a tenth of the time. Only what
   CUDA has is declared, with the types CUDA has it for, so that source that NVRTC refuses fails here too. emulator.py puts this in
   front of a source, and one EMU_EXPORT per kernel behind it. */

#ifndef DG_EMULATED
#define DG_EMULATED 1

/* --- between compiled kernels and the machine --------------------------------------------------------------------------------- */

struct uint3 {
    unsigned x, y, z;
};

struct emu_thread {
    uint3 index;
    unsigned lane;
};

struct emu_kernel {
    const char *name;
    void (*run)(void **arguments); /* what one thread does; arguments[i] points at the value of parameter i */
    char *shared_begin, *shared_end; /* all __shared__ variables of the module */
    unsigned max_threads; /* of __launch_bounds__ */
    unsigned max_dynamic_shared;
    unsigned argument_count;
    const unsigned *argument_sizes;
};

enum emu_warp_operation { EMU_SYNCWARP, EMU_SHFL, EMU_SHFL_UP, EMU_SHFL_DOWN, EMU_SHFL_XOR, EMU_BALLOT, EMU_ANY, EMU_ALL };
enum emu_barrier_operation { EMU_BARRIER, EMU_BARRIER_OR, EMU_BARRIER_AND, EMU_BARRIER_COUNT };

extern "C" {
/* where the running thread is */
extern struct emu_position {
    const emu_thread *thread;
    uint3 block, block_size, grid_size;
    char *dynamic_shared; /* what emulator.py lets `extern __shared__ T name[];` point at */
} emu_position;

/* wait for the threads of the block; a result for the operations that have one */
int emu_barrier(int line, emu_barrier_operation, int predicate);
/* wait for the lanes of mask; of shuffles the bits of lane `source`, of votes the result */
unsigned long long emu_warp(int line, emu_warp_operation, unsigned mask, unsigned long long bits, int source);
/* an atomic operation on a place, by this code, and a fence: for the search for races */
void emu_atomic(const void *place, unsigned size, void *code);
void emu_fence();
/* end the launch with an error */
[[noreturn]] void emu_fail(int line, const char *format, ...);
}

#ifndef EMU_MACHINE /* the rest is for kernels */

/* --- keywords ----------------------------------------------------------------------------------------------------------------- */

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))

/* One block runs at a time, so that a static variable is its own. The machine poisons all memory that a module's variables without
   initial values take: hence no kernel can have such a variable that is not shared. */
#define __shared__ static

/* --- types -------------------------------------------------------------------------------------------------------------------- */

typedef __SIZE_TYPE__ size_t;

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

#define EMU_VECTOR_2_4(T, name)                                                           \
    struct alignas(2 * sizeof(T)) name##2 {                                               \
        T x, y;                                                                           \
    };                                                                                    \
    struct alignas(sizeof(T) < 4 ? 4 * sizeof(T) : 16) name##4 {                          \
        T x, y, z, w;                                                                     \
    };                                                                                    \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; }                            \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
#define EMU_VECTORS(T, name)                                                              \
    EMU_VECTOR_2_4(T, name)                                                               \
    struct name##3 {                                                                      \
        T x, y, z;                                                                        \
    };                                                                                    \
    inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }

EMU_VECTORS(signed char, char)
EMU_VECTORS(unsigned char, uchar)
EMU_VECTORS(short, short)
EMU_VECTORS(unsigned short, ushort)
EMU_VECTORS(int, int)
EMU_VECTORS(long long, longlong)
EMU_VECTORS(unsigned long long, ulonglong)
EMU_VECTORS(float, float)
EMU_VECTORS(double, double)
EMU_VECTOR_2_4(unsigned, uint)
inline uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return {x, y, z}; }

/* --- indices, barriers, warps ------------------------------------------------------------------------------------------------- */

#define threadIdx ((const uint3 &)emu_position.thread->index)
#define blockIdx ((const uint3 &)emu_position.block)
#define blockDim ((const uint3 &)emu_position.block_size)
#define gridDim ((const uint3 &)emu_position.grid_size)
#define warpSize 32

/* Macros, because messages name the line. */
#define __syncthreads() ((void)emu_barrier(__LINE__, EMU_BARRIER, 0))
#define __syncthreads_or(predicate) emu_barrier(__LINE__, EMU_BARRIER_OR, predicate)
#define __syncthreads_and(predicate) emu_barrier(__LINE__, EMU_BARRIER_AND, predicate)
#define __syncthreads_count(predicate) emu_barrier(__LINE__, EMU_BARRIER_COUNT, predicate)
#define __syncwarp(...) emu_syncwarp(__LINE__, ##__VA_ARGS__)
#define __shfl_sync(...) emu_shfl(__LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) emu_shfl_up(__LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) emu_shfl_down(__LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) emu_shfl_xor(__LINE__, __VA_ARGS__)
#define __ballot_sync(mask, predicate) ((unsigned)emu_warp(__LINE__, EMU_BALLOT, mask, (predicate) != 0, 0))
#define __any_sync(mask, predicate) ((int)emu_warp(__LINE__, EMU_ANY, mask, (predicate) != 0, 0))
#define __all_sync(mask, predicate) ((int)emu_warp(__LINE__, EMU_ALL, mask, (predicate) != 0, 0))
#define __trap() emu_fail(__LINE__, "__trap()")

inline void emu_syncwarp(int line, unsigned mask = 0xffffffffu) { emu_warp(line, EMU_SYNCWARP, mask, 0, 0); }

template <class T> T emu_shuffle(int line, emu_warp_operation operation, unsigned mask, T value, int source)
{
    static_assert(sizeof(T) <= 8, "shuffles take values of at most 8 bytes");
    unsigned long long bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    bits = emu_warp(line, operation, mask, bits, source);
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

/* the first lane of the group of `width` lanes that the calling lane is in */
inline int emu_group(int line, int width)
{
    if (width < 1 || width > 32 || width & (width - 1))
        emu_fail(line, "a shuffle of width %d: it must be a power of two of at most 32", width);
    return (int)emu_position.thread->lane & -width;
}

template <class T> T emu_shfl(int line, unsigned mask, T value, int source, int width = 32)
{
    return emu_shuffle(line, EMU_SHFL, mask, value, emu_group(line, width) + (source & (width - 1)));
}

/* where the source lies outside the group, a lane gets its own value */
template <class T> T emu_shfl_up(int line, unsigned mask, T value, unsigned delta, int width = 32)
{
    const int lane = (int)emu_position.thread->lane, source = lane - (int)delta;
    return emu_shuffle(line, EMU_SHFL_UP, mask, value, source < emu_group(line, width) ? lane : source);
}

template <class T> T emu_shfl_down(int line, unsigned mask, T value, unsigned delta, int width = 32)
{
    const int lane = (int)emu_position.thread->lane, source = lane + (int)delta;
    return emu_shuffle(line, EMU_SHFL_DOWN, mask, value, source >= emu_group(line, width) + width ? lane : source);
}

template <class T> T emu_shfl_xor(int line, unsigned mask, T value, int bits, int width = 32)
{
    const int lane = (int)emu_position.thread->lane, source = lane ^ bits;
    return emu_shuffle(line, EMU_SHFL_XOR, mask, value, source >= emu_group(line, width) + width ? lane : source);
}

inline void __threadfence() { emu_fence(); }
inline void __threadfence_block() {}
inline void __threadfence_system() { emu_fence(); }
inline void __nanosleep(unsigned) {}

/* --- memory ------------------------------------------------------------------------------------------------------------------- */

template <class T> T __ldg(const T *p) { return *p; }
template <class T> T __ldca(const T *p) { return *p; }
template <class T> T __ldcg(const T *p) { return *p; }
template <class T> T __ldcs(const T *p) { return *p; }
template <class T> void __stcg(T *p, T value) { *p = value; }
template <class T> void __stcs(T *p, T value) { *p = value; }
template <class T> void __stwb(T *p, T value) { *p = value; }

/* Threads change only where they wait, so that plain reads and writes are atomic. */
#ifdef __SANITIZE_THREAD__
#define EMU_UNSEEN __attribute__((noinline, no_sanitize("thread")))
#define EMU_NOTE_ATOMIC(p) emu_atomic(p, sizeof *p, __builtin_return_address(0))
#else
#define EMU_UNSEEN
#define EMU_NOTE_ATOMIC(p) (void)0
#endif
#define EMU_ATOMIC(name, T, result)                                                       \
    EMU_UNSEEN inline T name(T *p, T value)                                               \
    {                                                                                     \
        EMU_NOTE_ATOMIC(p);                                                               \
        const T old = *p;                                                                 \
        *p = result;                                                                      \
        return old;                                                                       \
    }
#define EMU_ATOMIC_BITS(T)                                                                \
    EMU_ATOMIC(atomicMin, T, value < old ? value : old)                                   \
    EMU_ATOMIC(atomicMax, T, old < value ? value : old)                                   \
    EMU_ATOMIC(atomicAnd, T, old & value)                                                 \
    EMU_ATOMIC(atomicOr, T, old | value)                                                  \
    EMU_ATOMIC(atomicXor, T, old ^ value)
#define EMU_ATOMIC_CAS(T)                                                                 \
    EMU_UNSEEN inline T atomicCAS(T *p, T expected, T value)                              \
    {                                                                                     \
        EMU_NOTE_ATOMIC(p);                                                               \
        const T old = *p;                                                                 \
        if (old == expected)                                                              \
            *p = value;                                                                   \
        return old;                                                                       \
    }
EMU_ATOMIC(atomicAdd, int, (int)((unsigned)old + (unsigned)value))
EMU_ATOMIC(atomicAdd, unsigned, old + value)
EMU_ATOMIC(atomicAdd, unsigned long long, old + value)
EMU_ATOMIC(atomicAdd, float, old + value)
EMU_ATOMIC(atomicAdd, double, old + value)
EMU_ATOMIC(atomicSub, int, (int)((unsigned)old - (unsigned)value))
EMU_ATOMIC(atomicSub, unsigned, old - value)
EMU_ATOMIC(atomicExch, int, value)
EMU_ATOMIC(atomicExch, unsigned, value)
EMU_ATOMIC(atomicExch, unsigned long long, value)
EMU_ATOMIC(atomicExch, float, value)
EMU_ATOMIC(atomicInc, unsigned, old >= value ? 0 : old + 1)
EMU_ATOMIC(atomicDec, unsigned, old == 0 || old > value ? value : old - 1)
EMU_ATOMIC_BITS(int)
EMU_ATOMIC_BITS(unsigned)
EMU_ATOMIC_BITS(unsigned long long)
EMU_ATOMIC(atomicMin, long long, value < old ? value : old)
EMU_ATOMIC(atomicMax, long long, old < value ? value : old)
EMU_ATOMIC_CAS(unsigned short)
EMU_ATOMIC_CAS(int)
EMU_ATOMIC_CAS(unsigned)
EMU_ATOMIC_CAS(unsigned long long)

/* --- bits --------------------------------------------------------------------------------------------------------------------- */

template <class To, class From> To emu_bits(From value)
{
    static_assert(sizeof(To) == sizeof(From), "same number of bits");
    To result;
    __builtin_memcpy(&result, &value, sizeof result);
    return result;
}

inline int __float_as_int(float x) { return emu_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return emu_bits<unsigned>(x); }
inline float __int_as_float(int x) { return emu_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return emu_bits<float>(x); }
inline long long __double_as_longlong(double x) { return emu_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return emu_bits<double>(x); }
inline int __double2hiint(double x) { return (int)(__double_as_longlong(x) >> 32); }
inline int __double2loint(double x) { return (int)__double_as_longlong(x); }
inline double __hiloint2double(int high, int low)
{
    return emu_bits<double>((unsigned long long)(unsigned)high << 32 | (unsigned)low);
}

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}

/* --- mathematics -------------------------------------------------------------------------------------------------------------- */

#define EMU_MATH_1(name)                                                                  \
    extern "C" double name(double);                                                       \
    extern "C" float name##f(float);                                                      \
    inline float name(float x) { return name##f(x); }
#define EMU_MATH_2(name)                                                                  \
    extern "C" double name(double, double);                                               \
    extern "C" float name##f(float, float);                                               \
    inline float name(float x, float y) { return name##f(x, y); }
#define EMU_MATH_TO(T, name)                                                              \
    extern "C" T name(double);                                                            \
    extern "C" T name##f(float);                                                          \
    inline T name(float x) { return name##f(x); }

EMU_MATH_1(acos) EMU_MATH_1(acosh) EMU_MATH_1(asin) EMU_MATH_1(asinh) EMU_MATH_1(atan) EMU_MATH_1(atanh) EMU_MATH_1(cbrt)
EMU_MATH_1(ceil) EMU_MATH_1(cos) EMU_MATH_1(cosh) EMU_MATH_1(erf) EMU_MATH_1(erfc) EMU_MATH_1(exp) EMU_MATH_1(exp10)
EMU_MATH_1(exp2) EMU_MATH_1(expm1) EMU_MATH_1(fabs) EMU_MATH_1(floor) EMU_MATH_1(j0) EMU_MATH_1(j1) EMU_MATH_1(lgamma)
EMU_MATH_1(log) EMU_MATH_1(log10) EMU_MATH_1(log1p) EMU_MATH_1(log2) EMU_MATH_1(logb) EMU_MATH_1(nearbyint) EMU_MATH_1(rint)
EMU_MATH_1(round) EMU_MATH_1(sin) EMU_MATH_1(sinh) EMU_MATH_1(sqrt) EMU_MATH_1(tan) EMU_MATH_1(tanh) EMU_MATH_1(tgamma)
EMU_MATH_1(trunc) EMU_MATH_1(y0) EMU_MATH_1(y1)
EMU_MATH_2(atan2) EMU_MATH_2(copysign) EMU_MATH_2(fdim) EMU_MATH_2(fmax) EMU_MATH_2(fmin) EMU_MATH_2(fmod) EMU_MATH_2(hypot)
EMU_MATH_2(nextafter) EMU_MATH_2(pow) EMU_MATH_2(remainder)
EMU_MATH_TO(int, ilogb) EMU_MATH_TO(long, lrint) EMU_MATH_TO(long, lround) EMU_MATH_TO(long long, llrint)
EMU_MATH_TO(long long, llround)

extern "C" {
int abs(int);
long labs(long);
long long llabs(long long);
double fma(double, double, double);
float fmaf(float, float, float);
double ldexp(double, int);
float ldexpf(float, int);
double scalbn(double, int);
float scalbnf(float, int);
double frexp(double, int *);
float frexpf(float, int *);
double modf(double, double *);
float modff(float, float *);
void sincos(double, double *, double *);
void sincosf(float, float *, float *);
int printf(const char *, ...);
}

inline float fma(float x, float y, float z) { return fmaf(x, y, z); }
inline float ldexp(float x, int exponent) { return ldexpf(x, exponent); }
inline float scalbn(float x, int exponent) { return scalbnf(x, exponent); }
inline float frexp(float x, int *exponent) { return frexpf(x, exponent); }
inline float modf(float x, float *whole) { return modff(x, whole); }
inline void sincos(float x, float *sine, float *cosine) { sincosf(x, sine, cosine); }
inline long abs(long x) { return labs(x); }
inline long long abs(long long x) { return llabs(x); }
inline float abs(float x) { return fabsf(x); }
inline double abs(double x) { return fabs(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float rsqrt(float x) { return rsqrtf(x); }

inline bool isnan(float x) { return __builtin_isnan(x); }
inline bool isnan(double x) { return __builtin_isnan(x); }
inline bool isinf(float x) { return __builtin_isinf(x); }
inline bool isinf(double x) { return __builtin_isinf(x); }
inline bool isfinite(float x) { return __builtin_isfinite(x); }
inline bool isfinite(double x) { return __builtin_isfinite(x); }
inline bool signbit(float x) { return __builtin_signbit(x); }
inline bool signbit(double x) { return __builtin_signbit(x); }

#define EMU_MIN_MAX(T)                                                                    \
    inline T min(T a, T b) { return b < a ? b : a; }                                      \
    inline T max(T a, T b) { return a < b ? b : a; }
EMU_MIN_MAX(int) EMU_MIN_MAX(unsigned) EMU_MIN_MAX(long) EMU_MIN_MAX(unsigned long) EMU_MIN_MAX(long long)
EMU_MIN_MAX(unsigned long long)
inline unsigned min(unsigned a, int b) { return min(a, (unsigned)b); }
inline unsigned min(int a, unsigned b) { return min((unsigned)a, b); }
inline unsigned max(unsigned a, int b) { return max(a, (unsigned)b); }
inline unsigned max(int a, unsigned b) { return max((unsigned)a, b); }
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

/* exact here, a few units in the last place off on a GPU */
inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return exp10f(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __drcp_rn(double a) { return 1.0 / a; }
inline double __dsqrt_rn(double a) { return sqrt(a); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }

/* --- export ------------------------------------------------------------------------------------------------------------------- */

template <unsigned... I> struct emu_indices {};
template <unsigned N, unsigned... I> struct emu_count : emu_count<N - 1, N - 1, I...> {};
template <unsigned... I> struct emu_count<0, I...> {
    typedef emu_indices<I...> type;
};
template <class T> struct emu_value {
    typedef T type;
};
template <class T> struct emu_value<const T> {
    typedef T type;
};

template <auto kernel> struct emu_entry;
template <class... P, void (*kernel)(P...)> struct emu_entry<kernel> {
    static constexpr unsigned count = sizeof...(P);
    static constexpr unsigned sizes[count + 1] = {(unsigned)sizeof(P)...};

    template <unsigned... I> static void call(void **arguments, emu_indices<I...>)
    {
        kernel(*(typename emu_value<P>::type *)arguments[I]...);
    }
    static void run(void **arguments) { call(arguments, typename emu_count<count>::type()); }
};

/* the linker's: around variables without initial values */
extern "C" char __bss_start[] __attribute__((visibility("hidden")));
extern "C" char _end[] __attribute__((visibility("hidden")));

#define EMU_EXPORT(kernel, max_threads)                                                                                    \
    extern "C" __attribute__((visibility("default"))) emu_kernel emu_kernel_##kernel = {                                   \
        #kernel,    emu_entry<kernel>::run,   __bss_start,              _end, (unsigned)(max_threads),                     \
        48u * 1024, emu_entry<kernel>::count, emu_entry<kernel>::sizes,                                                    \
    };

#endif
#endif
