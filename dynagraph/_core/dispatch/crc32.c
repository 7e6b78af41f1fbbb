/* CRC-32 as zip files have it (polynomial 0x04C11DB7, reflected), at the speed of memory: reading a checkpoint with its checksums
   verified costs as much as reading it.  Where the processor multiplies polynomials (PCLMULQDQ) 64 bytes are folded at a time, as in
   Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ" (Intel, 2009); else 8 bytes by tables.
   The thread pool reads parts of large buffers, whose checksums are joined. */
#include "core.h"
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define HAS_FOLDING 1
#endif

enum {
    AT_ONCE = 1 << 18, /* bytes: what was read or written is still in the cache when it is summed */
    PART = 1 << 20,    /* bytes that one thread reads */
    PAGE = 1 << 12,
};
#define POLYNOMIAL 0xEDB88320u

static uint32_t tables[8][256];

int dg_crc32_ready(void)
{
    for (uint32_t byte = 0; byte < 256; ++byte) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; ++bit)
            crc = crc & 1 ? crc >> 1 ^ POLYNOMIAL : crc >> 1;
        tables[0][byte] = crc;
    }
    for (int k = 1; k < 8; ++k)
        for (int byte = 0; byte < 256; ++byte)
            tables[k][byte] = tables[k - 1][byte] >> 8 ^ tables[0][tables[k - 1][byte] & 255];
    return 0;
}

static uint32_t by_tables(uint32_t crc, const unsigned char *data, size_t n)
{
    for (; n >= 8; n -= 8, data += 8) {
        crc ^= (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
        crc = tables[7][crc & 255] ^ tables[6][crc >> 8 & 255] ^ tables[5][crc >> 16 & 255] ^ tables[4][crc >> 24] ^
              tables[3][data[4]] ^ tables[2][data[5]] ^ tables[1][data[6]] ^ tables[0][data[7]];
    }
    for (; n; --n)
        crc = crc >> 8 ^ tables[0][(crc ^ *data++) & 255];
    return crc;
}

#ifdef HAS_FOLDING
#define FOLDING __attribute__((target("pclmul,sse4.1")))

/* `into`, moved on by the distance that `powers` belongs to, with the data there added */
FOLDING static inline __m128i folded(__m128i into, __m128i powers, __m128i data)
{
    __m128i low = _mm_clmulepi64_si128(into, powers, 0x00), high = _mm_clmulepi64_si128(into, powers, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), data);
}

FOLDING static inline __m128i loaded(const unsigned char *data, int k) { return _mm_loadu_si128((const __m128i *)data + k); }

/* of at least 64 bytes, a multiple of 16 */
FOLDING static uint32_t by_folding(uint32_t crc, const unsigned char *data, size_t n)
{
    const __m128i by_64 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4), by_16 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i by_8 = _mm_set_epi64x(0, 0x0163cd6124), reduction = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i words = _mm_setr_epi32(~0, 0, ~0, 0);
    __m128i a = _mm_xor_si128(loaded(data, 0), _mm_cvtsi32_si128((int)crc));
    __m128i b = loaded(data, 1), c = loaded(data, 2), d = loaded(data, 3);
    for (data += 64, n -= 64; n >= 64; data += 64, n -= 64) {
        a = folded(a, by_64, loaded(data, 0));
        b = folded(b, by_64, loaded(data, 1));
        c = folded(c, by_64, loaded(data, 2));
        d = folded(d, by_64, loaded(data, 3));
    }
    a = folded(folded(folded(a, by_16, b), by_16, c), by_16, d);
    for (; n >= 16; data += 16, n -= 16)
        a = folded(a, by_16, loaded(data, 0));
    a = _mm_xor_si128(_mm_srli_si128(a, 8), _mm_clmulepi64_si128(a, by_16, 0x10)); /* 128 bits to 96, to 64 */
    a = _mm_xor_si128(_mm_srli_si128(a, 4), _mm_clmulepi64_si128(_mm_and_si128(a, words), by_8, 0x00));
    b = _mm_clmulepi64_si128(_mm_and_si128(a, words), reduction, 0x10); /* Barrett: to 32 */
    b = _mm_clmulepi64_si128(_mm_and_si128(b, words), reduction, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(a, b), 1);
}
#endif

static uint32_t crc32_of(uint32_t crc, const unsigned char *data, size_t n)
{
    crc = ~crc;
#ifdef HAS_FOLDING
    if (n >= 64 && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) {
        size_t whole = n & ~(size_t)15;
        crc = by_folding(crc, data, whole);
        data += whole;
        n -= whole;
    }
#endif
    return ~by_tables(crc, data, n);
}

PyObject *dg_crc32(PyObject *module, PyObject *args)
{
    Py_buffer data;
    unsigned int crc = 0;
    if (!PyArg_ParseTuple(args, "y*|I:crc32", &data, &crc))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    crc = crc32_of(crc, data.buf, (size_t)data.len);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(crc);
}

/* -- parts of a file ------------------------------------------------------------------------------------------------------- */

/* the product of polynomials modulo the checksum's; the highest bit is x^0 */
static uint32_t times(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (uint32_t bit = 1u << 31; bit; bit >>= 1) {
        product ^= a & bit ? b : 0;
        b = b & 1 ? b >> 1 ^ POLYNOMIAL : b >> 1;
    }
    return product;
}

/* x^(8 * bytes): times this, a checksum is that of its data with so many bytes of 0 behind it, which the next part's is added to */
static uint32_t shift_by(int64_t bytes)
{
    uint32_t result = 1u << 31, square = 1u << 23;
    for (; bytes; bytes >>= 1, square = times(square, square))
        result = bytes & 1 ? times(result, square) : result;
    return result;
}

typedef struct {
    int64_t done; /* bytes */
    uint32_t crc;
    int failure, is_end;
} file_part;

typedef struct {
    int descriptor;
    long long offset;
    unsigned char *into;
    int64_t n;
    file_part *parts;
} file_reading;

/* the pages that a part lies in, by one call of the system: a fault for each takes as long as reading them */
static void ask_for_pages(unsigned char *begin, unsigned char *end)
{
#ifdef MADV_POPULATE_WRITE
    uintptr_t low = ((uintptr_t)begin + PAGE - 1) & ~(uintptr_t)(PAGE - 1), high = (uintptr_t)end & ~(uintptr_t)(PAGE - 1);
    if (low < high)
        (void)madvise((void *)low, high - low, MADV_POPULATE_WRITE); /* without it the pages come one by one */
#endif
}

static void read_part(const file_reading *all, int64_t k, dg_stop *stop)
{
    file_part *part = &all->parts[k];
    unsigned char *into = all->into + k * PART;
    int64_t size = all->n - k * PART < PART ? all->n - k * PART : PART;
    if (size == PART && part->done == 0)
        ask_for_pages(into, into + size);
    while (part->done < size && !part->is_end && !part->failure && !dg_stops(stop)) {
        int64_t rest = size - part->done;
        ssize_t n = pread(all->descriptor, into + part->done, (size_t)(rest < AT_ONCE ? rest : AT_ONCE),
                          (off_t)(all->offset + k * PART + part->done));
        part->is_end = n == 0;
        part->failure = n < 0 && errno != EINTR ? errno : 0;
        if (n > 0) {
            part->crc = crc32_of(part->crc, into + part->done, (size_t)n);
            part->done += n;
        }
    }
}

static void read_parts(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    (void)sizes, (void)thread;
    for (; lo < hi; ++lo)
        read_part(buffers[0], lo, stop);
}

/* the parts up to the first one that ends too soon; -1: an exception is set */
static int joined_parts(const file_reading *all, int64_t *done, uint32_t *crc)
{
    uint32_t by_part = shift_by(PART);
    *done = 0, *crc = 0;
    for (int64_t k = 0; *done == k * PART && *done < all->n; ++k) {
        const file_part *part = &all->parts[k];
        if (part->failure) {
            errno = part->failure;
            PyErr_SetFromErrno(PyExc_OSError);
            return -1;
        }
        *crc = times(*crc, part->done == PART ? by_part : shift_by(part->done)) ^ part->crc;
        *done += part->done;
    }
    return 0;
}

PyObject *dg_read_crc32(PyObject *module, PyObject *args)
{
    static const int32_t no_signals = 0;
    Py_buffer into;
    int descriptor;
    long long offset;
    if (!PyArg_ParseTuple(args, "iLw*:read_crc32", &descriptor, &offset, &into))
        return NULL;
    int64_t n_parts = (into.len + PART - 1) / PART, done = 0;
    uint32_t crc = 0;
    file_reading all = {descriptor, offset, into.buf, into.len, PyMem_Calloc((size_t)n_parts + 1, sizeof(file_part))};
    int failed = all.parts ? 0 : -1;
    if (failed)
        PyErr_NoMemory();
    for (int again = 1; again && !failed;) {
        dg_stop stop = {dg_pending_signals(), 0};
        stop.signals = stop.signals ? stop.signals : &no_signals; /* of a thread that has none */
        Py_BEGIN_ALLOW_THREADS
        dg_the_runtime.parallel(read_parts, (void *const[]){&all}, NULL, n_parts, 1, 1, &stop);
        Py_END_ALLOW_THREADS
        again = stop.stopped;
        failed = again ? PyErr_CheckSignals() : joined_parts(&all, &done, &crc);
    }
    PyMem_Free(all.parts);
    PyBuffer_Release(&into);
    return failed ? NULL : Py_BuildValue("LI", (long long)done, crc);
}

PyObject *dg_write_crc32(PyObject *module, PyObject *args)
{
    Py_buffer data;
    int descriptor;
    if (!PyArg_ParseTuple(args, "iy*:write_crc32", &descriptor, &data))
        return NULL;
    uint32_t crc = 0;
    Py_ssize_t done = 0;
    int failure = 0;
    while (!failure && done < data.len) {
        ssize_t n;
        Py_BEGIN_ALLOW_THREADS
        const unsigned char *piece = (const unsigned char *)data.buf + done;
        Py_ssize_t rest = data.len - done;
        n = write(descriptor, piece, (size_t)(rest < AT_ONCE ? rest : AT_ONCE));
        failure = n < 0 ? errno : 0;
        if (n > 0)
            crc = crc32_of(crc, piece, (size_t)n);
        Py_END_ALLOW_THREADS
        if (failure == EINTR)
            failure = PyErr_CheckSignals() < 0 ? -1 : 0;
        else if (n > 0)
            done += n;
    }
    PyBuffer_Release(&data);
    if (failure < 0)
        return NULL;
    errno = failure;
    return failure ? PyErr_SetFromErrno(PyExc_OSError) : PyLong_FromUnsignedLong(crc);
}
