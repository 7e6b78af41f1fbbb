/* Attention as one program over tiles, forward and backward, in memory that does not grow with rows * keys.

   Queries lie in the lanes of vectors and keys below one another, so that a tile of scores is a product of rows of keys, as they
   are in memory, and of packed columns of queries; maxima and sums over keys go from row to row of a tile, without any work across
   lanes; and the weights are at once the right operand of the product with the values.  All products are `direct` ones of the
   micro-kernels.

   Forward: for each tile of queries, the keys tile by tile, with a running maximum and sum (Milakov and Gimelshein, "Online
   normalizer calculation for softmax", 2018; Dao et al., "FlashAttention", 2022).  The largest score and the sum of weights are
   stored for each row; backward makes the weights of a tile again from them.  (Their common logarithm would not do: where all of a
   row is hidden by large numbers, the sum would be lost in it.)

   The gradient by a mask is the one array here that is as large as rows * keys.  It is added up where it lies, by the parts that
   the mask does not broadcast over: those of one element are done one after the other, in one thread.

   Bits: an element of the result goes through the tiles of keys in order, an element of a gradient through heads, tiles of queries
   and tiles of keys.  Tiles depend on the instruction set alone, so the bits do not depend on the number of threads. */
#include "attention.h"

#include <string.h>

#define LOG2_E 0x1.71547652b82fep+0

enum {
    KEYS = 96,    /* of a tile: a multiple of the micro-kernels' rows; with their values they stay in the cache of a core */
    QUERIES = 64, /* likewise */
    BESIDE_BYTES = 1 << 19, /* of all keys and values of a head that are put side by side: of the second cache */
    FEW_HEADS = 8, /* of a thread: fewer are divided between threads */
    LINE = 64,
    PAGE = 4096,
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t batch_offset(const dg_attention *a, const dg_tensor *t, int64_t batch)
{
    int64_t offset = 0;
    for (int64_t k = a->axes - 1; k >= 0; --k) {
        offset += batch % a->shape[k] * t->batch[k];
        batch /= a->shape[k];
    }
    return offset;
}

/* how many parts of an array of gradients there are that it does not broadcast over: batches and heads of its own */
static int64_t units_of(const dg_attention *a, const dg_tensor *t)
{
    int64_t units = t->head ? a->heads : 1;
    for (int64_t k = 0; k < a->axes; ++k)
        units *= t->batch[k] ? a->shape[k] : 1;
    return units;
}

/* the batch and head of a part, and of what it broadcasts over the number `repeat`, in C order */
static void broadcast_place(const dg_attention *a, const dg_tensor *t, int64_t unit, int64_t repeat, int64_t *batch, int64_t *head)
{
    int64_t *from = t->head ? &unit : &repeat, step = 1;
    *head = *from % a->heads;
    *from /= a->heads;
    *batch = 0;
    for (int64_t k = a->axes - 1; k >= 0; --k) {
        from = t->batch[k] ? &unit : &repeat;
        *batch += *from % a->shape[k] * step;
        *from /= a->shape[k];
        step *= a->shape[k];
    }
}

/* the next array of a thread's memory */
static void *carve(char **at, int64_t count, size_t size)
{
    char *found = *at;
    *at += (count * (int64_t)size + LINE - 1) / LINE * LINE;
    return found;
}

/* whether the rows of a tile, read again and again, would push one another out of the cache, or lie element by element */
static int scattered(const dg_tensor *t, int64_t width, size_t size)
{
    return t->column != 1 || (t->row != width && t->row * (int64_t)size % 512 == 0);
}

/* the first `blocks` blocks of the Philox 4x32-10 stream from `counter` on: see dynagraph/torch/core/philox.py */
static void philox(uint64_t seed, uint64_t counter, int64_t blocks, uint32_t *words)
{
    for (int64_t n = 0; n < blocks; ++n, ++counter, words += 4) {
        uint32_t a = (uint32_t)counter, b = (uint32_t)(counter >> 32), c = 0, d = 0;
        uint32_t key = (uint32_t)seed, other = (uint32_t)(seed >> 32);
        for (int round = 0; round < 10; ++round) {
            const uint64_t first = (uint64_t)a * 0xD2511F53u, second = (uint64_t)c * 0xCD9E8D57u;
            a = (uint32_t)(second >> 32) ^ b ^ key;
            b = (uint32_t)second;
            c = (uint32_t)(first >> 32) ^ d ^ other;
            d = (uint32_t)first;
            key += 0x9E3779B9u;
            other += 0xBB67AE85u;
        }
        words[0] = a, words[1] = b, words[2] = c, words[3] = d;
    }
}

/* runs `range` over n items, about `part` at a time, each thread with memory of its own, whose address the plan has */
static int on_threads(const dg_runtime *rt, dg_range range, void *plan, char **scratch, int64_t bytes, int64_t n, int64_t part,
                      dg_stop *stop)
{
    if (n == 0)
        return 0;
    dg_stop own = dg_begin_operation(rt, stop);
    char *memory = rt->take((size_t)(bytes * own.threads + LINE));
    if (!memory)
        return DG_NO_MEMORY;
    *scratch = memory + (LINE - (uintptr_t)memory % LINE) % LINE;
    void *buffers[] = {plan};
    rt->parallel(range, buffers, NULL, n, part, part, &own);
    rt->give(memory);
    return dg_end_operation(&own, stop, own.stopped ? DG_STOPPED : 0);
}

#define ELEMENT_f32 DG_F32
#define ELEMENT_f64 DG_F64
#define ELEMENT_(suffix) ELEMENT_##suffix
#define ELEMENT(suffix) ELEMENT_(suffix)

#define T float
#define SUFFIX f32
#include "attention_template.h"

#define T double
#define SUFFIX f64
#include "attention_template.h"
