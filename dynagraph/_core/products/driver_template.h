/* The driver for one dtype.  Included with T, SUFFIX, and ELEMENT, its number.

   The result is cut into parts, rectangles of `rows` x `columns`, each of one thread.  What several parts read is packed once,
   before them, by all threads: the right operand's panels where there are several rows of parts, the left one's where there are
   several columns of them.  What is not shared is packed by the part, DG_KC terms at a time; or it is read where it lies, if it
   is used for few rows or columns only.  A right operand whose rows are contiguous is packed by the first row of tiles, while it
   multiplies by it, where no other thread waits for it.

   Large products go by chunks, one after the other: some columns, and some blocks of terms.  Where the result has fewer parts than
   the threads need, they share out the terms, too: in spans, whose blocks are added to the result, in order, when all are there. */
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(what) JOIN(what, SUFFIX)
#define PRODUCT JOIN(dg_product, SUFFIX)
#define KERNEL JOIN(dg_kernel, SUFFIX)
#define PLAN NAME(plan)
#define SIDE NAME(side)

typedef struct {
    const PRODUCT *product;
    const KERNEL *kernel;
    int64_t rows, columns;             /* of a part */
    int64_t height;                    /* of a tile, and of a's panels */
    int64_t together;                  /* the rows of a part that go through all terms before others do */
    int64_t group;                     /* the columns that a part packs at a time */
    int64_t row_parts, column_parts;   /* of a chunk */
    int64_t first_batch, batches;      /* of a chunk: what shares packed panels */
    int64_t first_column, last_column; /* of a chunk */
    int64_t first_term, last_term;     /* of a chunk */
    int64_t chunk_batches, chunk_columns, chunk_terms; /* of a chunk, at most */
    T *shared_a, *shared_b;            /* panels of a chunk, or null */
    int64_t span;                      /* the terms of a part; all k where they are not shared out */
    T *partial;                        /* where they are: the sums of a chunk's blocks, [block][batch][m][n]; else null */
    int64_t size_a, size_b, size_partial; /* of these, in elements */
    T *own;                            /* own_size elements for each thread: a's panels, b's panels, a tile of the result */
    int64_t own_a, own_b, own_size;
    const dg_matrix *direct_a, *direct_b; /* operands that are not packed, or null */
    int by_rows;                          /* the right one is read row by row, for few rows of the left one */
    const dg_matrix *packs_first;         /* the right one, where the first row of tiles packs it, or null */
} PLAN;

/* an operand of a part, for one block of terms: element (i, p) is at[i / width * panel + i % width * outer + p * inner], where
   width is the height or the width of a tile */
typedef struct {
    const T *at;
    int64_t panel, outer, inner;
    int packed;        /* panel = width * terms, outer = 1, inner = width */
    int goes_on;       /* the next block of terms lies DG_KC elements behind this one */
    int64_t ahead;     /* elements between rows and those that are read next, which are to be fetched, or 0 */
    const T *after;    /* what is read after the last panel */
    const T *unpacked; /* the first of whole panels that the first row of tiles has to pack, or null */
    int64_t unpacked_inner;
} SIDE;

/* The panels of a batch element's operand lie by blocks of terms, then by panels: a block's panels are neighbours. */
static T *NAME(panel)(const PLAN *plan, T *panels, int64_t n_panels, int64_t width, int64_t batch, int64_t start, int64_t number)
{
    const int64_t k = plan->last_term - plan->first_term, length = least(DG_KC, plan->last_term - start);
    return panels + n_panels * width * (batch * k + start - plan->first_term) + number * width * length;
}

/* whether a right operand that is not packed is contiguous along p; then there is one row */
static int NAME(is_turned)(const PLAN *plan) { return plan->direct_b && plan->direct_b->outer != 1; }

/* of the terms of a chunk */
static int64_t NAME(spans)(const PLAN *plan)
{
    return plan->partial ? blocks_of(plan->last_term - plan->first_term, plan->span) : 1;
}

/* how many groups of panels of a block of terms are shared */
static int64_t NAME(shared_groups)(const PLAN *plan, int64_t *of_a)
{
    const int64_t n = plan->last_column - plan->first_column;
    *of_a = plan->shared_a ? blocks_of(plan->product->m, plan->height * PANELS) : 0;
    return *of_a + (plan->shared_b && !plan->packs_first ? blocks_of(n, plan->kernel->nr * PANELS) : 0);
}

/* Some panels of a block of terms.  Groups of one block are packed one after the other: they lie in the same pages. */
static void NAME(pack_shared)(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    const PLAN *plan = buffers[0];
    const PRODUCT *product = plan->product;
    const int64_t mr = plan->height, nr = plan->kernel->nr, blocks = blocks_of(plan->last_term - plan->first_term, DG_KC);
    const int64_t m = product->m, n = plan->last_column - plan->first_column;
    int64_t a_groups;
    const int64_t groups = NAME(shared_groups)(plan, &a_groups);
    for (int64_t x = lo; x < hi; ++x) {
        const int64_t batch = x / groups / blocks, start = plan->first_term + x / groups % blocks * DG_KC, number = x % groups;
        const int64_t at = plan->first_batch + batch, length = least(DG_KC, plan->last_term - start);
        if (number < a_groups) {
            const int64_t panel = number * PANELS;
            product->pack_a(product->a, at, panel * mr, least(PANELS * mr, m - panel * mr), start, length, mr,
                            NAME(panel)(plan, plan->shared_a, blocks_of(m, mr), mr, batch, start, panel));
        } else {
            const int64_t panel = (number - a_groups) * PANELS;
            product->pack_b(product->b, at, plan->first_column + panel * nr, least(PANELS * nr, n - panel * nr), start, length, nr,
                            NAME(panel)(plan, plan->shared_b, blocks_of(n, nr), nr, batch, start, panel));
        }
    }
}

/* part of a tile, which was computed aside */
static void NAME(put)(int64_t rows, int64_t columns, const T *from, int64_t ld, T *c, int64_t ldc, int accumulate)
{
    typedef T PIECE __attribute__((vector_size(16), aligned(sizeof(T)), may_alias));
    enum { LENGTH = sizeof(PIECE) / sizeof(T) };
    for (int64_t i = 0; i < rows; ++i, from += ld, c += ldc) {
        int64_t j = 0;
        if (!accumulate) {
            memcpy(c, from, (size_t)columns * sizeof(T));
            continue;
        }
        for (; j + LENGTH <= columns; j += LENGTH)
            *(PIECE *)(c + j) += *(const PIECE *)(from + j);
        for (; j < columns; ++j)
            c[j] += from[j];
    }
}

/* a row of all columns */
static void NAME(row)(const KERNEL *kernel, int64_t columns, int64_t k, const T *a, int64_t a_inner, const SIDE *b, T *c,
                      int accumulate)
{
    const int64_t nr = kernel->nr;
    int64_t j = 0;
    T edge[DG_MAX_NR];
    for (; j + DG_STRIPS * nr <= columns; j += DG_STRIPS * nr)
        kernel->one_row(k, a, a_inner, b->at + j / nr * b->panel, b->inner, b->panel, c + j, accumulate);
    for (; j + nr <= columns; j += nr)
        kernel->direct(1, k, a, 0, a_inner, b->at + j / nr * b->panel, b->inner, c + j, 0, accumulate);
    if (j < columns) { /* of a packed operand */
        kernel->direct(1, k, a, 0, a_inner, b->at + j / nr * b->panel, b->inner, edge, 0, 0);
        NAME(put)(1, columns - j, edge, nr, c + j, 0, accumulate);
    }
}

/* Of rows i ... i + rows of a left operand that is not packed: tile number j of n fetches its share of the next block of terms,
   which no prefetcher knows yet, since it begins anew with each row. */
static inline void NAME(fetch_next)(const SIDE *a, int64_t i, int64_t rows, int64_t j, int64_t n)
{
    const int64_t lines = DG_KC * (int64_t)sizeof(T) / 64, first = j * lines / n, last = (j + 1) * lines / n;
    for (int64_t row = i; row < i + rows; ++row)
        fetch(a->at + row * a->outer + DG_KC + first * (64 / (int64_t)sizeof(T)), (last - first) * 64);
}

/* two or three rows of all columns, of whole tiles where the right operand is not packed */
static void NAME(three_rows)(const KERNEL *kernel, int64_t rows, int64_t columns, int64_t k, const SIDE *a, const SIDE *b, T *c,
                             int64_t ldc, int accumulate)
{
    const int64_t nr = kernel->nr;
    int64_t j = 0;
    T edge[DG_MAX_MR * DG_MAX_NR];
    for (; j + 2 * nr <= columns; j += 2 * nr)
        kernel->three_wide(rows, k, a->at, a->outer, a->inner, b->at + j / nr * b->panel, b->inner, b->panel, c + j, ldc,
                           accumulate);
    for (; j + nr <= columns; j += nr)
        kernel->direct(rows, k, a->at, a->outer, a->inner, b->at + j / nr * b->panel, b->inner, c + j, ldc, accumulate);
    if (j < columns) {
        const int is_narrow = columns - j <= nr / 2;
        (is_narrow ? kernel->narrow : kernel->direct)(rows, k, a->at, a->outer, a->inner, b->at + j / nr * b->panel, b->inner, edge,
                                                      nr, 0);
        NAME(put)(rows, columns - j, edge, nr, c + j, ldc, accumulate);
    }
}

/* all tiles of a part, for one block of terms; where the right operand is not packed, the columns are whole tiles, or half ones */
static void NAME(tiles)(const KERNEL *kernel, int64_t height, int64_t rows, int64_t columns, int64_t k, const SIDE *a,
                        const SIDE *b, T *c, int64_t ldc, int accumulate)
{
    const int64_t mr = kernel->mr, nr = kernel->nr;
    const int64_t share = k * FETCHED / (int64_t)sizeof(T), ahead = nr * (int64_t)sizeof(T) / FETCHED;
    T edge[DG_MAX_MR * DG_MAX_NR];
    if (rows == 1) {
        NAME(row)(kernel, columns, k, a->at, a->inner, b, c, accumulate);
        return;
    }
    if (rows <= 3 && rows <= height) {
        NAME(three_rows)(kernel, rows, columns, k, a, b, c, ldc, accumulate);
        return;
    }
    for (int64_t j = 0; j < columns; j += nr)
        for (int64_t i = 0; i < rows; i += height) {
            const int64_t high = least(height, rows - i), wide = least(nr, columns - j);
            const int is_narrow = wide <= nr / 2, aside = wide < (is_narrow ? nr / 2 : nr);
            const T *left = a->at + i / height * a->panel, *right = b->at + j / nr * b->panel;
            const T *next = j + nr < columns ? right + b->panel : b->after;
            T *tile = aside ? edge : c + i * ldc + j;
            const int64_t ld = aside ? nr : ldc;
            if (a->goes_on)
                NAME(fetch_next)(a, i, high, j / nr, blocks_of(columns, nr));
            if (b->unpacked && i == 0 && wide == nr)
                kernel->packing(k, left, b->unpacked + j, b->unpacked_inner, (T *)right, tile, ld, accumulate && !aside);
            else if (a->ahead && high == mr)
                kernel->streamed[is_narrow](k, left, a->outer, right, b->inner, tile, ld, accumulate && !aside, a->ahead);
            else if (is_narrow)
                kernel->narrow(high, k, left, a->outer, a->inner, right, b->inner, tile, ld, accumulate && !aside);
            else if (a->packed && b->packed && high == mr)
                kernel->micro(k, left, right, tile, ld, accumulate && !aside,
                              i < ahead * height ? next + i / height * share : right);
            else
                kernel->direct(high, k, left, a->outer, a->inner, right, b->inner, tile, ld, accumulate && !aside);
            if (aside)
                NAME(put)(high, wide, edge, nr, c + i * ldc + j, ldc, accumulate);
        }
}

static void NAME(zero)(int64_t rows, int64_t columns, T *c, int64_t ldc)
{
    for (int64_t i = 0; i < rows; ++i)
        memset(c + i * ldc, 0, (size_t)columns * sizeof(T));
}

/* the left operand of a part */
static SIDE NAME(left)(const PLAN *plan, int64_t batch, int64_t row, int64_t rows, int64_t start, int64_t length, T *own)
{
    const PRODUCT *product = plan->product;
    const int64_t mr = plan->height, at = plan->first_batch + batch;
    const dg_matrix *direct = plan->direct_a;
    if (direct) {
        const int is_along = direct->inner == 1, is_once = is_along && plan->together == mr && mr < plan->rows;
        const int is_short = mr * product->k * (int64_t)sizeof(T) <= NEXT_BYTES;
        return (SIDE){.at = (const T *)direct->data + dg_matrix_offset(direct, at) + row * direct->outer + start * direct->inner,
                      .panel = mr * direct->outer, .outer = direct->outer, .inner = direct->inner,
                      .goes_on = is_along && start + length < product->k && !(is_once && is_short),
                      .ahead = is_once && is_short ? mr * direct->outer : 0};
    }
    const SIDE packed = {.panel = mr * length, .outer = 1, .inner = mr, .packed = 1, .at = own};
    if (plan->shared_a) {
        SIDE shared = packed;
        shared.at = NAME(panel)(plan, plan->shared_a, blocks_of(product->m, mr), mr, batch, start, row / mr);
        return shared;
    }
    product->pack_a(product->a, at, row, rows, start, length, mr, own);
    return packed;
}

static SIDE NAME(right)(const PLAN *plan, int64_t batch, int64_t row, int64_t column, int64_t columns, int64_t start,
                        int64_t length, T *own)
{
    const PRODUCT *product = plan->product;
    const int64_t nr = plan->kernel->nr, panels = blocks_of(plan->last_column - plan->first_column, nr);
    SIDE packed = {.at = own, .panel = nr * length, .outer = 1, .inner = nr, .packed = 1, .after = own};
    if (plan->shared_b) {
        const int64_t panel = (column - plan->first_column) / nr;
        const int64_t next = start + length < plan->last_term ? start + length : plan->first_term;
        packed.at = NAME(panel)(plan, plan->shared_b, panels, nr, batch, start, panel);
        packed.after = NAME(panel)(plan, plan->shared_b, panels, nr, batch, next, panel);
        if (!plan->packs_first || row > 0)
            return packed;
        own = (T *)packed.at;
    }
    const dg_matrix *first = plan->packs_first;
    const int64_t at = plan->first_batch + batch, whole = first ? columns / nr * nr : 0;
    if (whole) {
        packed.unpacked = (const T *)first->data + dg_matrix_offset(first, at) + column + start * first->inner;
        packed.unpacked_inner = first->inner;
    }
    if (whole < columns)
        product->pack_b(product->b, at, column + whole, columns - whole, start, length, nr, own + whole * length);
    return packed;
}

/* Multiplies by the right operand where it lies, if it is not packed; gives for how many columns: without the last ones, which
   are no whole tile. */
static int64_t NAME(direct_columns)(const PLAN *plan, int64_t at, int64_t rows, int64_t column, int64_t columns, int64_t start,
                                    int64_t length, const SIDE *a, T *c, int64_t ldc, int accumulate)
{
    const KERNEL *kernel = plan->kernel;
    const dg_matrix *matrix = plan->direct_b;
    if (!matrix || NAME(is_turned)(plan))
        return 0;
    const T *from = (const T *)matrix->data + dg_matrix_offset(matrix, at) + column * matrix->outer + start * matrix->inner;
    if (plan->by_rows) {
        const int64_t most = a->packed ? least(plan->height, DG_FEW_ROWS) : DG_FEW_ROWS;
        for (int64_t i = 0; i < rows; i += most)
            kernel->few(least(most, rows - i), length, a->at + i * a->outer, a->outer, a->inner, from, matrix->inner, columns,
                        c + i * ldc, ldc, accumulate);
        return columns;
    }
    const int64_t half = kernel->nr / 2, n = columns / half * half;
    const SIDE b = {.at = from, .panel = kernel->nr, .outer = 1, .inner = matrix->inner};
    if (n)
        NAME(tiles)(kernel, plan->height, rows, n, length, a, &b, c, ldc, accumulate);
    return n;
}

/* c = or += the sums of turned columns, which are those of blocks of terms, or of groups of columns */
static void NAME(add_turned)(const T *sums, int64_t columns, int64_t blocks, T *c, int accumulate)
{
    for (int64_t block = 0; block < blocks; ++block, accumulate = 1)
        for (int64_t j = 0; j < columns; ++j)
            c[j] = accumulate ? c[j] + sums[block * columns + j] : sums[block * columns + j];
}

/* A row by columns that are contiguous along p, where they lie: of few columns several blocks of terms at a time, if there are so
   many blocks, so that much is read from one place.  Columns are often a power of two apart, and share places of the first cache,
   which holds no more of them than a vector has.  Gives for how many columns. */
static int64_t NAME(turned_columns)(const PLAN *plan, int64_t batch, int64_t column, int64_t columns, T *c)
{
    const KERNEL *kernel = plan->kernel;
    const dg_matrix *matrix = plan->direct_b;
    const int64_t outer = matrix->outer, k = plan->product->k, width = kernel->turned_columns, step = DG_TURNED * width;
    const int64_t n = columns / step * step;
    const T *from = (const T *)matrix->data + dg_matrix_offset(matrix, plan->first_batch + batch) + column * outer;
    const SIDE a = NAME(left)(plan, batch, 0, 1, 0, k, NULL);
    T sums[DG_TURNED * DG_MAX_NR];
    for (int64_t j = 0; j < n; j += step)
        for (int64_t start = 0, blocks; start < k; start += blocks * DG_KC) {
            blocks = k - start >= 4 * DG_KC ? 4 : k - start >= 2 * DG_KC ? 2 : 1;
            const int64_t terms = DG_KC * a.inner, across = width * outer;
            const int64_t b_group[] = {blocks > 1 ? DG_KC : across, blocks > 2 ? 2 * DG_KC : blocks > 1 ? across : 2 * across};
            const int64_t a_group[] = {blocks > 1 ? terms : 0, blocks > 2 ? 2 * terms : 0};
            const T *after = start + blocks * DG_KC < k ? from + j * outer + start + blocks * DG_KC : from + (j + step) * outer;
            for (int64_t i = j; i < j + step; i += step / blocks) {
                const T *b = from + i * outer + start, *next = i + step / blocks < j + step ? b + step / blocks * outer : after;
                kernel->turned(least(DG_KC, k - start), a.at + start * a.inner, a.inner, a_group, b, outer, b_group, next, sums);
                for (int64_t group = 0; group < DG_TURNED / blocks; ++group)
                    NAME(add_turned)(sums + group * blocks * width, width, blocks, c + i + group * width, start > 0);
            }
        }
    return n;
}

/* rows of one part of a chunk: of the chunk's terms, or of a span of them */
static void NAME(some_rows)(const PLAN *plan, int64_t batch, int64_t row, int64_t rows, int64_t column, int64_t span, T *own,
                            dg_stop *stop)
{
    const PRODUCT *product = plan->product;
    const int64_t ldc = product->c ? product->ldc : plan->columns;
    const int64_t columns = least(plan->columns, plan->last_column - column);
    const int64_t at = plan->first_batch + batch, first = plan->first_term + span * plan->span;
    const int64_t last = least(first + plan->span, plan->last_term);
    T *own_b = own + plan->own_a, *own_c = own_b + plan->own_b;
    T *c = product->c ? product->c + at * product->c_batch + row * ldc + column : own_c;
    if (product->k == 0)
        NAME(zero)(rows, columns, c, ldc);
    const int64_t turned = NAME(is_turned)(plan) ? NAME(turned_columns)(plan, batch, column, columns, c) : 0;
    for (int64_t start = first; start < last && turned < columns && !dg_stops(stop); start += DG_KC) {
        const int64_t length = least(DG_KC, last - start), block = (start - plan->first_term) / DG_KC;
        const int accumulate = start > 0 && !plan->partial;
        T *to = plan->partial ? plan->partial + ((block * plan->batches + batch) * product->m + row) * product->n + column : c;
        const int64_t ld = plan->partial ? product->n : ldc;
        const SIDE a = NAME(left)(plan, batch, row, rows, start, length, own);
        const int64_t direct =
            turned + NAME(direct_columns)(plan, at, rows, column, columns, start, length, &a, to, ld, accumulate);
        for (int64_t j = direct; j < columns; j += plan->group) {
            const int64_t width = least(plan->group, columns - j);
            const SIDE b = NAME(right)(plan, batch, row, column + j, width, start, length, own_b);
            NAME(tiles)(plan->kernel, plan->height, rows, width, length, &a, &b, to + j, ld, accumulate);
        }
    }
    if (product->finish && !plan->partial && plan->last_term == product->k)
        product->finish(product->context, at, row, column, rows, columns, c, ldc);
}

static void NAME(parts)(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    const PLAN *plan = buffers[0];
    const int64_t spans = NAME(spans)(plan);
    for (int64_t x = lo; x < hi; ++x) {
        const int64_t place = x / spans, in_batch = place % (plan->row_parts * plan->column_parts);
        const int64_t first = in_batch % plan->row_parts * plan->rows, last = least(first + plan->rows, plan->product->m);
        for (int64_t row = first; row < last; row += plan->together)
            NAME(some_rows)(plan, place / (plan->row_parts * plan->column_parts), row, least(plan->together, last - row),
                            plan->first_column + in_batch / plan->row_parts * plan->columns, x % spans,
                            plan->own + thread * plan->own_size, stop);
    }
}

/* adds the sums of a chunk's blocks to rows of the result: number / m is the batch element, number % m the row */
static void NAME(add_up)(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    enum { PIECE = 64 / sizeof(T) };
    const PLAN *plan = buffers[0];
    const PRODUCT *product = plan->product;
    const int64_t n = product->n, blocks = blocks_of(plan->last_term - plan->first_term, DG_KC);
    const int64_t next = plan->batches * product->m * n;
    for (int64_t number = lo; number < hi; ++number) {
        const int64_t at = plan->first_batch + number / product->m, row = number % product->m;
        const T *from = plan->partial + number * n;
        T *c = product->c + at * product->c_batch + row * product->ldc;
        for (int64_t block = 0; block < blocks; ++block, from += next) {
            if (plan->first_term == 0 && block == 0) {
                memcpy(c, from, (size_t)n * sizeof(T));
                continue;
            }
            int64_t j = 0;
            for (; j + PIECE <= n; j += PIECE)
                for (int64_t in = j; in < j + PIECE; ++in)
                    c[in] += from[in];
            for (; j < n; ++j)
                c[j] += from[j];
        }
        if (product->finish && plan->last_term == product->k)
            product->finish(product->context, at, row, 0, 1, n, c, product->ldc);
    }
}

#include "driver_choices.h"

/* one chunk: its panels, then its parts */
static void NAME(run_chunk)(const dg_runtime *rt, PLAN *plan, int64_t threads, dg_stop *stop)
{
    void *const buffers[] = {plan};
    int64_t of_a;
    const int64_t blocks = blocks_of(plan->last_term - plan->first_term, DG_KC);
    const int64_t n_packed = plan->batches * NAME(shared_groups)(plan, &of_a) * blocks;
    plan->row_parts = blocks_of(plan->product->m, plan->rows);
    plan->column_parts = blocks_of(plan->last_column - plan->first_column, plan->columns);
    const int64_t n_parts = plan->batches * plan->row_parts * plan->column_parts * NAME(spans)(plan);
    if (threads < 2) {
        NAME(pack_shared)(buffers, NULL, 0, n_packed, 0, stop);
        for (int64_t x = 0; x < n_parts && !dg_stops(stop); ++x)
            NAME(parts)(buffers, NULL, x, x + 1, 0, stop);
        return;
    }
    if (n_packed)
        rt->parallel(NAME(pack_shared), buffers, NULL, n_packed, 1, n_packed, stop);
    if (!stop->stopped)
        rt->parallel(NAME(parts), buffers, NULL, n_parts, 1, 1, stop);
    if (plan->partial && !stop->stopped)
        rt->parallel(NAME(add_up), buffers, NULL, plan->batches * plan->product->m, 1, 1 + SUMMED / plan->product->n, stop);
}

/* of a column that was computed as a row */
static void NAME(finish_turned)(const void *context, int64_t batch, int64_t row, int64_t column, int64_t rows, int64_t columns,
                                T *tile, int64_t ld)
{
    const PRODUCT *product = context;
    product->finish(product->context, batch, column, row, columns, rows, tile, 1);
}

int JOIN(dg_multiply, SUFFIX)(const dg_runtime *rt, const PRODUCT *product, dg_stop *stop)
{
    PLAN plan = {.product = product, .kernel = product->kernel ? product->kernel : JOIN(dg_kernel_of, SUFFIX)()};
    const int64_t m = product->m, n = product->n, batches = product->batches;
    if (batches < 1 || m < 1 || n < 1)
        return 0;
    if (n == 1 && m > 1 && product->c && product->ldc == 1) { /* a column as a row: tiles are wide */
        PRODUCT turned = *product;
        turned.m = 1, turned.n = m, turned.ldc = m;
        turned.pack_a = product->pack_b, turned.a = product->b, turned.pack_b = product->pack_a, turned.b = product->a;
        turned.finish = product->finish ? NAME(finish_turned) : NULL, turned.context = product;
        return JOIN(dg_multiply, SUFFIX)(rt, &turned, stop);
    }
    dg_stop own = dg_begin_operation(rt, stop);
    const int64_t fewest = PARALLEL_TERMS * (int64_t)plan.kernel->nr;
    const int64_t threads = NAME(terms)(product) * (double)batches < (double)fewest ? 1 : own.threads;
    plan.height = height_of(m, plan.kernel->mr);
    NAME(choose_direct)(&plan);
    NAME(choose_parts)(&plan, threads);
    const int64_t size = NAME(choose_chunks)(&plan, threads);
    T *memory = NULL;
    if (size && !(memory = rt->take((size_t)size * sizeof(T))))
        return DG_NO_MEMORY;
    plan.own = memory;
    plan.shared_a = plan.size_a ? memory + plan.own_size * threads : NULL;
    plan.shared_b = plan.size_b ? memory + plan.own_size * threads + plan.size_a : NULL;
    plan.partial = plan.size_partial ? memory + plan.own_size * threads : NULL;
    for (int64_t batch = 0; batch < batches; batch += plan.chunk_batches)
        for (int64_t column = 0; column < n; column += plan.chunk_columns)
            for (int64_t term = 0; term == 0 || term < product->k; term += plan.chunk_terms) {
                plan.first_batch = batch;
                plan.batches = least(plan.chunk_batches, batches - batch);
                plan.first_column = column;
                plan.last_column = least(column + plan.chunk_columns, n);
                plan.first_term = term;
                plan.last_term = least(term + plan.chunk_terms, product->k);
                if (!own.stopped)
                    NAME(run_chunk)(rt, &plan, threads, &own);
            }
    if (memory)
        rt->give(memory);
    return dg_end_operation(&own, stop, own.stopped ? DG_STOPPED : 0);
}

#undef JOIN_
#undef JOIN
#undef NAME
#undef PRODUCT
#undef KERNEL
#undef PLAN
#undef SIDE
#undef T
#undef SUFFIX
#undef ELEMENT
