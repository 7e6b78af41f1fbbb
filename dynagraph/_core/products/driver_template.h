/* The driver for one dtype.  Included with T, SUFFIX, and ELEMENT, its number.

   The result is cut into parts, rectangles of `rows` x `columns`, each of one thread.  What several parts read is packed once,
   before them, by all threads: the right operand's panels where there are several rows of parts, the left one's where there are
   several columns of them.  What is not shared is packed by the part, DG_KC terms at a time; or it is read where it lies, if it
   is used for few rows or columns only. */
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
    int64_t row_parts, column_parts;   /* of a chunk */
    int64_t first_batch, batches;      /* of a chunk: what shares packed panels */
    int64_t first_column, last_column; /* of a chunk */
    T *shared_a, *shared_b;            /* panels with all k, or null */
    T *own;                            /* own_size elements for each thread: a's panels, b's panels, a tile of the result */
    int64_t own_a, own_b, own_size;
    const dg_matrix *direct_a, *direct_b; /* operands that are not packed, or null */
} PLAN;

/* an operand of a part, for one block of terms: element (i, p) is at[i / width * panel + i % width * outer + p * inner] */
typedef struct {
    const T *at;
    int64_t panel, outer, inner;
    int packed; /* panel = width * terms, outer = 1, inner = width */
} SIDE;

/* The panels of a batch element's operand lie by blocks of terms, then by panels: a block's panels are neighbours. */
static T *NAME(panel)(T *panels, int64_t n_panels, int64_t width, int64_t k, int64_t batch, int64_t start, int64_t number)
{
    const int64_t length = least(DG_KC, k - start);
    return panels + n_panels * width * (batch * k + start) + number * width * length;
}

/* how many groups of panels of a block of terms are shared */
static int64_t NAME(shared_groups)(const PLAN *plan, int64_t *of_a)
{
    const int64_t n = plan->last_column - plan->first_column;
    *of_a = plan->shared_a ? blocks_of(plan->product->m, plan->kernel->mr * PANELS) : 0;
    return *of_a + (plan->shared_b ? blocks_of(n, plan->kernel->nr * PANELS) : 0);
}

/* Some panels of a block of terms.  Groups of one block are packed one after the other: they lie in the same pages. */
static void NAME(pack_shared)(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    const PLAN *plan = buffers[0];
    const PRODUCT *product = plan->product;
    const int64_t mr = plan->kernel->mr, nr = plan->kernel->nr, k = product->k, blocks = blocks_of(k, DG_KC);
    const int64_t m = product->m, n = plan->last_column - plan->first_column;
    int64_t a_groups;
    const int64_t groups = NAME(shared_groups)(plan, &a_groups);
    for (int64_t x = lo; x < hi; ++x) {
        const int64_t batch = x / groups / blocks, start = x / groups % blocks * DG_KC, number = x % groups;
        const int64_t at = plan->first_batch + batch, length = least(DG_KC, k - start);
        if (number < a_groups) {
            const int64_t panel = number * PANELS;
            product->pack_a(product->a, at, panel * mr, least(PANELS * mr, m - panel * mr), start, length, mr,
                            NAME(panel)(plan->shared_a, blocks_of(m, mr), mr, k, batch, start, panel));
        } else {
            const int64_t panel = (number - a_groups) * PANELS;
            product->pack_b(product->b, at, plan->first_column + panel * nr, least(PANELS * nr, n - panel * nr), start, length, nr,
                            NAME(panel)(plan->shared_b, blocks_of(n, nr), nr, k, batch, start, panel));
        }
    }
}

/* part of a tile, which was computed aside */
static void NAME(put)(int64_t rows, int64_t columns, const T *from, int64_t ld, T *c, int64_t ldc, int accumulate)
{
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j)
            c[i * ldc + j] = accumulate ? c[i * ldc + j] + from[i * ld + j] : from[i * ld + j];
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

/* all tiles of a part, for one block of terms; where the right operand is not packed, the columns are whole tiles */
static void NAME(tiles)(const KERNEL *kernel, int64_t rows, int64_t columns, int64_t k, const SIDE *a, const SIDE *b, T *c,
                        int64_t ldc, int accumulate)
{
    const int64_t mr = kernel->mr, nr = kernel->nr;
    T edge[DG_MAX_MR * DG_MAX_NR];
    if (rows <= 2) {
        for (int64_t i = 0; i < rows; ++i)
            NAME(row)(kernel, columns, k, a->at + i * a->outer, a->inner, b, c + i * ldc, accumulate);
        return;
    }
    const int64_t piece = rounded(blocks_of(b->panel, blocks_of(rows, mr)), ALIGNED);
    for (int64_t j = 0; j < columns; j += nr)
        for (int64_t i = 0; i < rows; i += mr) {
            const int64_t high = least(mr, rows - i), wide = least(nr, columns - j);
            const int whole = (high == mr || !a->packed) && wide == nr, aside = !whole;
            const T *left = a->at + i / mr * a->panel, *right = b->at + j / nr * b->panel;
            T *tile = aside ? edge : c + i * ldc + j;
            const int64_t ld = aside ? nr : ldc;
            if (b->packed && j + nr < columns) /* the next panel, a piece with each tile */
                fetch(right + b->panel + i / mr * piece, least(piece, b->panel - i / mr * piece) * (int64_t)sizeof(T));
            if (a->packed && b->packed)
                kernel->micro(k, left, right, tile, ld, accumulate && !aside);
            else
                kernel->direct(a->packed ? mr : high, k, left, a->outer, a->inner, right, b->inner, tile, ld,
                               accumulate && !aside);
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
    const int64_t mr = plan->kernel->mr, at = plan->first_batch + batch;
    const dg_matrix *direct = plan->direct_a;
    if (direct)
        return (SIDE){(const T *)direct->data + dg_matrix_offset(direct, at) + row * direct->outer + start * direct->inner,
                      mr * direct->outer, direct->outer, direct->inner, 0};
    if (plan->shared_a)
        return (SIDE){NAME(panel)(plan->shared_a, blocks_of(product->m, mr), mr, product->k, batch, start, row / mr), mr * length,
                      1, mr, 1};
    product->pack_a(product->a, at, row, rows, start, length, mr, own);
    return (SIDE){own, mr * length, 1, mr, 1};
}

static SIDE NAME(right)(const PLAN *plan, int64_t batch, int64_t column, int64_t columns, int64_t start, int64_t length, T *own)
{
    const PRODUCT *product = plan->product;
    const int64_t nr = plan->kernel->nr, panels = blocks_of(plan->last_column - plan->first_column, nr);
    if (plan->shared_b)
        return (SIDE){NAME(panel)(plan->shared_b, panels, nr, product->k, batch, start, (column - plan->first_column) / nr),
                      nr * length, 1, nr, 1};
    product->pack_b(product->b, plan->first_batch + batch, column, columns, start, length, nr, own);
    return (SIDE){own, nr * length, 1, nr, 1};
}

/* Multiplies by the right operand where it lies, if it is not packed; gives for how many columns: without the last ones, which
   are no whole tile. */
static int64_t NAME(direct_columns)(const PLAN *plan, int64_t at, int64_t rows, int64_t column, int64_t columns, int64_t start,
                                    int64_t length, const SIDE *a, T *c, int64_t ldc)
{
    const KERNEL *kernel = plan->kernel;
    const dg_matrix *matrix = plan->direct_b;
    if (!matrix)
        return 0;
    const T *from = (const T *)matrix->data + dg_matrix_offset(matrix, at) + column * matrix->outer + start * matrix->inner;
    if (matrix->outer != 1) { /* contiguous along p, and a single row */
        const int64_t step = kernel->turned_columns, n = columns / step * step;
        for (int64_t j = 0; j < n; j += step)
            kernel->turned(length, a->at, a->inner, from + j * matrix->outer, matrix->outer, c + j, start > 0);
        return n;
    }
    const int64_t n = columns / kernel->nr * kernel->nr;
    const SIDE b = {from, kernel->nr, 1, matrix->inner, 0};
    if (n)
        NAME(tiles)(kernel, rows, n, length, a, &b, c, ldc, start > 0);
    return n;
}

static void NAME(one_part)(const PLAN *plan, int64_t batch, int64_t row, int64_t column, T *own)
{
    const PRODUCT *product = plan->product;
    const int64_t k = product->k, ldc = product->c ? product->ldc : plan->columns;
    const int64_t rows = least(plan->rows, product->m - row), columns = least(plan->columns, plan->last_column - column);
    const int64_t at = plan->first_batch + batch;
    T *own_b = own + plan->own_a, *own_c = own_b + plan->own_b;
    T *c = product->c ? product->c + at * product->c_batch + row * ldc + column : own_c;
    if (k == 0)
        NAME(zero)(rows, columns, c, ldc);
    for (int64_t start = 0; start < k; start += DG_KC) {
        const int64_t length = least(DG_KC, k - start);
        const SIDE a = NAME(left)(plan, batch, row, rows, start, length, own);
        const int64_t direct = NAME(direct_columns)(plan, at, rows, column, columns, start, length, &a, c, ldc);
        if (direct < columns) {
            const SIDE b = NAME(right)(plan, batch, column + direct, columns - direct, start, length, own_b);
            NAME(tiles)(plan->kernel, rows, columns - direct, length, &a, &b, c + direct, ldc, start > 0);
        }
    }
    if (product->finish)
        product->finish(product->context, at, row, column, rows, columns, c, ldc);
}

static void NAME(parts)(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    const PLAN *plan = buffers[0];
    for (int64_t x = lo; x < hi; ++x) {
        const int64_t in_batch = x % (plan->row_parts * plan->column_parts);
        NAME(one_part)(plan, x / (plan->row_parts * plan->column_parts), in_batch % plan->row_parts * plan->rows,
                       plan->first_column + in_batch / plan->row_parts * plan->columns, plan->own + thread * plan->own_size);
    }
}

static double NAME(terms)(const PRODUCT *product)
{
    const int64_t of_an_element = product->k + (product->finish ? FINISH_TERMS : 0);
    return (double)product->m * (double)product->n * (double)of_an_element;
}

/* The sizes of parts: large ones for the sake of the caches, but enough of them for the threads. */
static void NAME(choose_parts)(PLAN *plan, int64_t threads)
{
    const PRODUCT *product = plan->product;
    const int64_t mr = plan->kernel->mr, nr = plan->kernel->nr, m = product->m, n = product->n;
    const double terms = NAME(terms)(product);
    plan->rows = least(rounded(BLOCK_ROWS, mr), rounded(m, mr));
    plan->columns = least(rounded(BLOCK_COLUMNS, nr), rounded(n, nr));
    if (product->batches >= threads * PARTS_OF_A_THREAD) {
        if (m <= 4 * BLOCK_ROWS && n <= BLOCK_COLUMNS)
            plan->rows = rounded(m, mr); /* a part is a batch element: nothing is shared */
        return;
    }
    for (;;) {
        const int64_t in_batch = blocks_of(m, plan->rows) * blocks_of(n, plan->columns);
        if (in_batch * product->batches >= threads * PARTS_OF_A_THREAD || terms / (double)in_batch < 2 * PART_TERMS)
            return;
        if (plan->columns >= 2 * plan->rows && plan->columns > 4 * nr)
            plan->columns = rounded(blocks_of(plan->columns, 2), nr);
        else if (plan->rows > 4 * mr)
            plan->rows = rounded(blocks_of(plan->rows, 2), mr);
        else if (plan->columns > 2 * nr)
            plan->columns = rounded(blocks_of(plan->columns, 2), nr);
        else
            return;
    }
}

/* one chunk: its panels, then its parts */
static void NAME(run_chunk)(const dg_runtime *rt, PLAN *plan, int64_t threads, dg_stop *stop)
{
    void *const buffers[] = {plan};
    int64_t of_a;
    const int64_t n_packed = plan->batches * NAME(shared_groups)(plan, &of_a) * blocks_of(plan->product->k, DG_KC);
    plan->row_parts = blocks_of(plan->product->m, plan->rows);
    plan->column_parts = blocks_of(plan->last_column - plan->first_column, plan->columns);
    const int64_t n_parts = plan->batches * plan->row_parts * plan->column_parts;
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
}

/* what an operand is in memory if it can be read where it lies, else null */
static const dg_matrix *NAME(in_place)(JOIN(dg_pack, SUFFIX) pack, const void *operand)
{
    const dg_matrix *matrix = operand;
    return pack == JOIN(dg_pack_matrix, SUFFIX) && matrix->element == ELEMENT ? matrix : NULL;
}

/* Which operands are read where they lie: those that are multiplied with few rows or columns, which would not earn what packing
   costs.  Not a right operand with long rows, though: the rows of its tiles would drive one another out of the caches. */
static void NAME(choose_direct)(PLAN *plan)
{
    const PRODUCT *product = plan->product;
    const int64_t m = product->m, k = product->k;
    const dg_matrix *a = NAME(in_place)(product->pack_a, product->a), *b = NAME(in_place)(product->pack_b, product->b);
    plan->direct_a = product->n <= DIRECT ? a : NULL;
    if (!b)
        return;
    const int64_t step = b->inner < 0 ? -b->inner : b->inner;
    const int is_near = least(k, DG_KC) * step * (int64_t)sizeof(T) <= NEAR;
    const int by_rows = b->outer == 1 && (m <= 2 * plan->kernel->mr || (m <= DIRECT && is_near));
    if (by_rows || (b->inner == 1 && m == 1 && plan->kernel->turned))
        plan->direct_b = b;
}

/* what is shared, and the sizes of chunks; gives how many elements of memory it takes, and how many of them for shared panels */
static int64_t NAME(choose_chunks)(PLAN *plan, int64_t threads, int64_t *columns, int64_t *shared)
{
    const PRODUCT *product = plan->product;
    const int64_t mr = plan->kernel->mr, nr = plan->kernel->nr, m = product->m, n = product->n, k = product->k;
    const int64_t a_size = rounded(m, mr) * k, b_size = rounded(n, nr) * k, room = SHARED_BYTES / (int64_t)sizeof(T);
    NAME(choose_direct)(plan);
    /* a chunk is some batch elements or, of a large right operand, some columns */
    const int share_b = m > plan->rows && !plan->direct_b;
    const int share_a = n > plan->columns && !plan->direct_a && a_size + (share_b ? b_size : 0) <= room;
    const int64_t in_batch = (share_a ? a_size : 0) + (share_b ? b_size : 0);
    plan->batches = in_batch ? room / in_batch : product->batches;
    plan->batches = plan->batches < 1 ? 1 : least(plan->batches, product->batches);
    *columns = n;
    if (share_b && b_size > room) {
        *columns = room / k / plan->columns * plan->columns;
        *columns = *columns < plan->columns ? plan->columns : *columns;
    }
    plan->own_a = share_a || plan->direct_a ? 0 : rounded(plan->rows * least(k, DG_KC), ALIGNED);
    plan->own_b = share_b ? 0 : rounded((plan->direct_b ? DG_STRIPS * nr : plan->columns) * least(k, DG_KC), ALIGNED);
    plan->own_size = plan->own_a + plan->own_b + (product->c ? 0 : rounded(plan->rows * plan->columns, ALIGNED));
    shared[0] = share_a ? rounded(a_size * plan->batches, ALIGNED) : 0;
    shared[1] = share_b ? rounded(least(*columns, n), nr) * k * plan->batches : 0;
    return plan->own_size * threads + shared[0] + shared[1];
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
    const int64_t threads = NAME(terms)(product) * (double)batches < PARALLEL_TERMS ? 1 : rt->n_threads;
    int64_t columns, shared[2];
    NAME(choose_parts)(&plan, threads);
    const int64_t size = NAME(choose_chunks)(&plan, threads, &columns, shared), together = plan.batches;
    T *memory = NULL;
    if (size && !(memory = rt->take((size_t)size * sizeof(T))))
        return DG_NO_MEMORY;
    plan.own = memory;
    plan.shared_a = shared[0] ? memory + plan.own_size * threads : NULL;
    plan.shared_b = shared[1] ? memory + plan.own_size * threads + shared[0] : NULL;
    for (int64_t batch = 0; batch < batches && !stop->stopped; batch += together)
        for (int64_t column = 0; column < n && !stop->stopped; column += columns) {
            plan.first_batch = batch;
            plan.batches = least(together, batches - batch);
            plan.first_column = column;
            plan.last_column = least(column + columns, n);
            NAME(run_chunk)(rt, &plan, threads, stop);
        }
    if (memory)
        rt->give(memory);
    return stop->stopped ? DG_STOPPED : 0;
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
