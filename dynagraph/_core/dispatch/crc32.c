/* CRC-32 as zip files have it (polynomial 0x04C11DB7, reflected), at the speed of memory: reading a checkpoint with its checksums
   verified costs as much as reading it.  Where the processor multiplies polynomials (PCLMULQDQ) 64 bytes are folded at a time, as in
   Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ" (Intel, 2009); else 8 bytes by tables. */
#include "core.h"
#include <errno.h>
#include <unistd.h>
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define HAS_FOLDING 1
#endif

enum { AT_ONCE = 1 << 18 }; /* bytes: what was read or written is still in the cache when it is summed */

static uint32_t tables[8][256];

int dg_crc32_ready(void)
{
    for (uint32_t byte = 0; byte < 256; ++byte) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; ++bit)
            crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
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

PyObject *dg_read_crc32(PyObject *module, PyObject *args)
{
    Py_buffer into;
    int descriptor;
    long long offset;
    if (!PyArg_ParseTuple(args, "iLw*:read_crc32", &descriptor, &offset, &into))
        return NULL;
    uint32_t crc = 0;
    Py_ssize_t done = 0;
    int failure = 0;
    while (!failure && done < into.len) {
        ssize_t n;
        Py_BEGIN_ALLOW_THREADS
        Py_ssize_t rest = into.len - done;
        n = pread(descriptor, (char *)into.buf + done, (size_t)(rest < AT_ONCE ? rest : AT_ONCE), offset + done);
        failure = n < 0 ? errno : 0;
        if (n > 0)
            crc = crc32_of(crc, (unsigned char *)into.buf + done, (size_t)n);
        Py_END_ALLOW_THREADS
        if (failure == EINTR)
            failure = PyErr_CheckSignals() < 0 ? -1 : 0;
        else if (n == 0)
            break;
        else if (n > 0)
            done += n;
    }
    PyBuffer_Release(&into);
    if (failure < 0)
        return NULL;
    errno = failure;
    return failure ? PyErr_SetFromErrno(PyExc_OSError) : Py_BuildValue("nI", done, crc);
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
