/* Products of matrices: blocks, packing, and parts on the thread pool. */
#include "micro.h"

#include <stdlib.h>
#include <string.h>

enum {
    SHARED_BYTES = 8 << 20,   /* of packed panels that all threads read, and of sums that are added up later: of the last cache */
    BLOCK_ROWS = 96,          /* of a part: with DG_KC terms they fit into a half of the second-level cache */
    BLOCK_COLUMNS = 512,      /* ... and so does the part of the result */
    PARTS_OF_A_THREAD = 4,    /* so that nobody waits long for the last one */
    PARALLEL_TERMS = 3 << 15, /* for each column of a tile: products of fewer are the caller's own work: waking threads takes longer */
    PART_TERMS = 1 << 17,     /* parts are not smaller */
    SUMMED = 1 << 14,         /* elements of the result that a thread adds up at a time */
    FINISH_TERMS = 64,        /* what finishing an element takes, as terms of its sum */
    NEAR = 1 << 9,            /* elements for each column of a tile: as many as the first cache holds at least */
    PANELS = 8,               /* that are packed at a time */
    GROUP = 8,                /* panels of the right operand that a part packs for itself, before it multiplies by them */
    BALANCED = 4,             /* tiles */
    ALIGNED = 16,             /* elements: a cache line at least */
    FEW_ROWS = 3,             /* that leave the multipliers idle, so that any matrix is read from end to end */
    CACHED_BYTES = 1 << 20,   /* ... and a larger one by up to DG_FEW_ROWS rows: it comes from beyond the second-level cache */
    LONG_ROW = 2048,          /* bytes: shorter pieces of rows are read more slowly */
    SMALL_BYTES = 1 << 16,    /* an operand that stays in the first cache, or nearly so */
    NEAR_BYTES = 1 << 15,     /* a right operand that the first cache holds beside some rows of the left one */
    FETCHED = 16,             /* bytes that a kernel fetches of the next panel for each term */
    NEXT_BYTES = 1 << 18,     /* of the rows of a tile: if they are more, the next tile's leave the cache before their turn */
    DIRECT = 112,             /* an operand that is multiplied with no more rows or columns than that is not worth packing */
    FEW_USES = 208,           /* ... nor are rows of a left one, with no more columns, that do not collide in the first cache: */
    FOLD = 1 << 12,           /* bytes between elements that share a place in it */
};

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t blocks_of(int64_t n, int64_t block) { return (n + block - 1) / block; }
static inline int64_t rounded(int64_t n, int64_t unit) { return blocks_of(n, unit) * unit; }

/* what tiles of so many rows take, as rows of a whole one: kernels compute four, eight or all of them */
static inline int64_t cost_of(int64_t rows, int64_t most)
{
    return rows < 1 ? 0 : rows <= 4 ? least(4, most) : rows <= 8 ? least(8, most) : most;
}

/* Of tiles: of few rows, which would leave much of the last tile empty, they are as high as each other, if that takes less. */
static inline int64_t height_of(int64_t rows, int64_t most)
{
    const int64_t tiles = blocks_of(rows, most), height = blocks_of(rows, tiles);
    return tiles > BALANCED || rows / most * most + cost_of(rows % most, most) <= tiles * cost_of(height, most) ? most : height;
}

static inline void fetch(const void *from, int64_t bytes)
{
    enum { LINE = 64 };
    for (int64_t at = 0; at < bytes; at += LINE)
        __builtin_prefetch((const char *)from + at, 0, 2);
}

#define T float
#define SUFFIX f32
#define ELEMENT DG_F32
#include "driver_template.h"

#define T double
#define SUFFIX f64
#define ELEMENT DG_F64
#include "driver_template.h"
