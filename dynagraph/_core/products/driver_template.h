/* The driver for one dtype.  Included with T and SUFFIX.

   The result is cut into parts, rectangles of `rows` x `columns`, each of one thread.  What several parts read is packed once, before
   them, by all threads: the right operand's panels where there are several rows of parts, the left one's where there are several
   columns of them.  What is not shared is packed by the part, DG_KC terms at a time. */
#define JOIN_(a, b) a##_##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(what) JOIN(what, SUFFIX)
#define PRODUCT JOIN(dg_product, SUFFIX)
#define KERNEL JOIN(dg_kernel, SUFFIX)
#define PLAN NAME(plan)

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
} PLAN;

/* The panels of a batch element's operand lie by blocks of terms, then by panels: a block's panels are neighbours. */
static T *NAME(panel)(T *panels, int64_t n_panels, int64_t width, int64_t k, int64_t batch, int64_t start, int64_t number)
{
    const int64_t length = least(DG_KC, k - start);
    return panels + n_panels * width * (batch * k + start) + number * width * length;
}

/* a panel is all terms of `width` rows of the left operand, or columns of the right one */
static void NAME(pack_shared)(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    const PLAN *plan = buffers[0];
    const PRODUCT *product = plan->product;
    const int64_t mr = plan->kernel->mr, nr = plan->kernel->nr;
    const int64_t n = plan->last_column - plan->first_column;
    const int64_t a_panels = plan->shared_a ? blocks_of(product->m, mr) : 0, b_panels = plan->shared_b ? blocks_of(n, nr) : 0;
    for (int64_t x = lo; x < hi; ++x) {
        const int64_t batch = x / (a_panels + b_panels), number = x % (a_panels + b_panels);
        for (int64_t start = 0; start < product->k; start += DG_KC) {
            const int64_t length = least(DG_KC, product->k - start);
            if (number < a_panels)
                product->pack_a(product->a, plan->first_batch + batch, number * mr, least(mr, product->m - number * mr), start,
                                length, mr, NAME(panel)(plan->shared_a, a_panels, mr, product->k, batch, start, number));
            else
                product->pack_b(product->b, plan->first_batch + batch, plan->first_column + (number - a_panels) * nr,
                                least(nr, n - (number - a_panels) * nr), start, length, nr,
                                NAME(panel)(plan->shared_b, b_panels, nr, product->k, batch, start, number - a_panels));
        }
    }
}

/* all tiles of a part, for one block of terms */
static void NAME(tiles)(const KERNEL *kernel, int64_t rows, int64_t columns, int64_t k, const T *a, const T *b, T *c, int64_t ldc,
                        int accumulate)
{
    const int64_t mr = kernel->mr, nr = kernel->nr;
    T edge[DG_MAX_MR * DG_MAX_NR];
    for (int64_t j = 0; j < columns; j += nr)
        for (int64_t i = 0; i < rows; i += mr) {
            T *tile = c + i * ldc + j;
            if (i + mr <= rows && j + nr <= columns) {
                kernel->micro(k, a + i * k, b + j * k, tile, ldc, accumulate);
                continue;
            }
            kernel->micro(k, a + i * k, b + j * k, edge, nr, 0);
            for (int64_t r = 0; r < least(mr, rows - i); ++r)
                for (int64_t s = 0; s < least(nr, columns - j); ++s)
                    tile[r * ldc + s] = accumulate ? tile[r * ldc + s] + edge[r * nr + s] : edge[r * nr + s];
        }
}

static void NAME(zero)(int64_t rows, int64_t columns, T *c, int64_t ldc)
{
    for (int64_t i = 0; i < rows; ++i)
        memset(c + i * ldc, 0, (size_t)columns * sizeof(T));
}

static void NAME(one_part)(const PLAN *plan, int64_t batch, int64_t row, int64_t column, T *own)
{
    const PRODUCT *product = plan->product;
    const int64_t mr = plan->kernel->mr, nr = plan->kernel->nr, k = product->k;
    const int64_t rows = least(plan->rows, product->m - row), columns = least(plan->columns, plan->last_column - column);
    const int64_t at = plan->first_batch + batch;
    T *own_b = own + plan->own_a, *c = product->c ? product->c + at * product->c_batch + row * product->ldc + column : own_b + plan->own_b;
    const int64_t ldc = product->c ? product->ldc : plan->columns;
    if (k == 0)
        NAME(zero)(rows, columns, c, ldc);
    for (int64_t start = 0; start < k; start += DG_KC) {
        const int64_t length = least(DG_KC, k - start);
        const T *a = own, *b = own_b;
        if (plan->shared_a)
            a = NAME(panel)(plan->shared_a, blocks_of(product->m, mr), mr, k, batch, start, row / mr);
        else
            for (int64_t i = 0; i < rows; i += mr)
                product->pack_a(product->a, at, row + i, least(mr, rows - i), start, length, mr, own + i * length);
        if (plan->shared_b)
            b = NAME(panel)(plan->shared_b, blocks_of(plan->last_column - plan->first_column, nr), nr, k, batch, start,
                            (column - plan->first_column) / nr);
        else
            for (int64_t j = 0; j < columns; j += nr)
                product->pack_b(product->b, at, column + j, least(nr, columns - j), start, length, nr, own_b + j * length);
        NAME(tiles)(plan->kernel, rows, columns, length, a, b, c, ldc, start > 0);
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

/* The sizes of parts: large ones for the sake of the caches, but enough of them for the threads. */
static void NAME(choose_parts)(PLAN *plan, int64_t threads)
{
    const PRODUCT *product = plan->product;
    const int64_t mr = plan->kernel->mr, nr = plan->kernel->nr, m = product->m, n = product->n;
    const double terms = (double)m * (double)n * (double)product->k;
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
    const int64_t panels = (plan->shared_a ? blocks_of(plan->product->m, plan->kernel->mr) : 0) +
                           (plan->shared_b ? blocks_of(plan->last_column - plan->first_column, plan->kernel->nr) : 0);
    plan->row_parts = blocks_of(plan->product->m, plan->rows);
    plan->column_parts = blocks_of(plan->last_column - plan->first_column, plan->columns);
    const int64_t n_parts = plan->batches * plan->row_parts * plan->column_parts;
    if (threads < 2) {
        NAME(pack_shared)(buffers, NULL, 0, panels ? plan->batches * panels : 0, 0, stop);
        for (int64_t x = 0; x < n_parts && !dg_stops(stop); ++x)
            NAME(parts)(buffers, NULL, x, x + 1, 0, stop);
        return;
    }
    if (panels)
        rt->parallel(NAME(pack_shared), buffers, NULL, plan->batches * panels, 1, plan->batches * panels, stop);
    if (!stop->stopped)
        rt->parallel(NAME(parts), buffers, NULL, n_parts, 1, 1, stop);
}

int JOIN(dg_multiply, SUFFIX)(const dg_runtime *rt, const PRODUCT *product, dg_stop *stop)
{
    const KERNEL *kernel = product->kernel ? product->kernel : JOIN(dg_kernel_of, SUFFIX)();
    PLAN plan = {.product = product, .kernel = kernel};
    const int64_t m = product->m, n = product->n, k = product->k, mr = kernel->mr, nr = kernel->nr;
    if (product->batches < 1 || m < 1 || n < 1)
        return 0;
    const double terms = (double)m * (double)n * (double)k * (double)product->batches;
    const int64_t threads = terms < PARALLEL_TERMS ? 1 : rt->n_threads;
    NAME(choose_parts)(&plan, threads);
    const int several_rows = m > plan.rows, several_columns = n > plan.columns;
    const int64_t a_size = rounded(m, mr) * k, b_size = rounded(n, nr) * k, room = SHARED_BYTES / (int64_t)sizeof(T);
    /* a chunk is some batch elements or, of a large right operand, some columns */
    const int share_b = several_rows, share_a = several_columns && (a_size + (share_b ? b_size : 0) <= room);
    const int64_t shared = (share_a ? a_size : 0) + (share_b ? b_size : 0);
    int64_t batches = shared ? room / shared : product->batches, columns = n;
    batches = batches < 1 ? 1 : least(batches, product->batches);
    if (share_b && b_size > room) {
        columns = room / k / plan.columns * plan.columns;
        columns = columns < plan.columns ? plan.columns : columns;
    }
    const int64_t shared_a = share_a ? a_size * batches : 0, shared_b = share_b ? rounded(least(columns, n), nr) * k * batches : 0;
    plan.own_a = share_a ? 0 : rounded(plan.rows * least(k, DG_KC), 16);
    plan.own_b = share_b ? 0 : rounded(plan.columns * least(k, DG_KC), 16);
    plan.own_size = plan.own_a + plan.own_b + (product->c ? 0 : plan.rows * plan.columns);
    const int64_t size = rounded(shared_a, 16) + rounded(shared_b, 16) + rounded(plan.own_size, 16) * threads;
    plan.own_size = rounded(plan.own_size, 16);
    T *memory = rt->take((size_t)size * sizeof(T));
    if (!memory)
        return DG_NO_MEMORY;
    plan.shared_a = share_a ? memory : NULL;
    plan.shared_b = share_b ? memory + rounded(shared_a, 16) : NULL;
    plan.own = memory + rounded(shared_a, 16) + rounded(shared_b, 16);
    for (int64_t batch = 0; batch < product->batches && !stop->stopped; batch += batches)
        for (int64_t column = 0; column < n && !stop->stopped; column += columns) {
            plan.first_batch = batch;
            plan.batches = least(batches, product->batches - batch);
            plan.first_column = column;
            plan.last_column = least(column + columns, n);
            NAME(run_chunk)(rt, &plan, threads, stop);
        }
    rt->give(memory);
    return stop->stopped ? DG_STOPPED : 0;
}

#undef JOIN_
#undef JOIN
#undef NAME
#undef PRODUCT
#undef KERNEL
#undef PLAN
#undef T
#undef SUFFIX
