/* How a product is computed: which operands are packed, and the sizes of parts and chunks: part of driver_template.h. */

static double NAME(terms)(const PRODUCT *product)
{
    const int64_t of_an_element = product->k + (product->finish ? FINISH_TERMS : 0);
    return (double)product->m * (double)product->n * (double)of_an_element;
}

/* what an operand is in memory if it can be read where it lies, else null */
static const dg_matrix *NAME(in_place)(JOIN(dg_pack, SUFFIX) pack, const void *operand)
{
    const dg_matrix *matrix = operand;
    return pack == JOIN(dg_pack_matrix, SUFFIX) && matrix->element == ELEMENT ? matrix : NULL;
}

/* the right operand, if it is read where it lies and its rows are contiguous */
static const dg_matrix *NAME(in_rows)(const PRODUCT *product)
{
    const dg_matrix *matrix = NAME(in_place)(product->pack_b, product->b);
    return matrix && matrix->outer == 1 ? matrix : NULL;
}

/* Which operands are read where they lie: those that are multiplied with few rows or columns, which would not earn what packing
   costs.  Not a right operand with long rows, though: the rows of its tiles would drive one another out of the caches.  So would a
   left one's that share places of the first cache; packing them costs less than that, unless they come from memory. */
static void NAME(choose_direct)(PLAN *plan)
{
    const PRODUCT *product = plan->product;
    const int64_t m = product->m, k = product->k;
    const dg_matrix *a = NAME(in_place)(product->pack_a, product->a), *b = NAME(in_place)(product->pack_b, product->b);
    const int64_t few = 2 * plan->kernel->nr;
    const int collide = a && a->outer * (int64_t)sizeof(T) % FOLD == 0 && m * k * (int64_t)sizeof(T) <= 4 * CACHED_BYTES;
    const int few_uses = product->n <= (collide ? DIRECT : FEW_USES) && (!a || a->inner == 1 || k <= few || product->n <= few);
    plan->direct_a = few_uses || m <= DG_FEW_ROWS ? a : NULL;
    if (!b)
        return;
    const int64_t step = b->inner < 0 ? -b->inner : b->inner;
    const int is_few = m <= DG_FEW_ROWS, is_cached = product->n * k * (int64_t)sizeof(T) <= CACHED_BYTES;
    const int is_near = least(k, DG_KC) * step <= NEAR * plan->kernel->nr;
    const int is_direct = b->outer == 1 && (is_few || (m <= DIRECT && is_near));
    plan->by_rows = b->outer == 1 && (m <= FEW_ROWS || (is_few && !is_cached));
    if (is_direct || (b->inner == 1 && m == 1 && plan->direct_a && plan->kernel->turned))
        plan->direct_b = b;
    if (is_direct && a && a->inner == 1 && m * k * (int64_t)sizeof(T) <= SMALL_BYTES)
        plan->direct_a = a;
}

/* Whether threads share out the terms, of a small result that has many of them; if so, in spans of how many. */
static int NAME(shares_terms)(PLAN *plan, int64_t wanted)
{
    const PRODUCT *product = plan->product;
    const int64_t m = product->m, n = product->n, of_a_block = m * n * DG_KC, blocks = blocks_of(product->k, DG_KC);
    const int64_t length = blocks_of(PART_TERMS, of_a_block), spans = blocks_of(wanted, product->batches);
    const int is_small = m <= 2 * BLOCK_ROWS && m * n <= BLOCK_ROWS * BLOCK_COLUMNS;
    if (wanted < 2 || !is_small || blocks < spans * length || !product->c || NAME(is_turned)(plan))
        return 0;
    plan->rows = rounded(m, plan->height);
    plan->columns = rounded(n, plan->kernel->nr);
    plan->span = DG_KC * blocks_of(blocks, spans);
    return 1;
}

/* The sizes of parts: large ones for the sake of the caches, but enough of them for the threads. */
static void NAME(choose_parts)(PLAN *plan, int64_t threads)
{
    const PRODUCT *product = plan->product;
    const int64_t wanted = threads < 2 ? 1 : threads * PARTS_OF_A_THREAD;
    const int64_t mr = plan->height, nr = plan->kernel->nr, m = product->m, n = product->n;
    const double terms = NAME(terms)(product);
    plan->rows = least(rounded(BLOCK_ROWS, mr), rounded(m, mr));
    plan->columns = plan->by_rows ? rounded(n, nr) : least(rounded(BLOCK_COLUMNS, nr), rounded(n, nr));
    plan->span = product->k;
    if (product->batches >= threads * PARTS_OF_A_THREAD) {
        if (m <= 4 * BLOCK_ROWS && n <= BLOCK_COLUMNS)
            plan->rows = rounded(m, mr); /* a part is a batch element: nothing is shared */
        return;
    }
    if (NAME(shares_terms)(plan, wanted))
        return;
    for (;;) {
        const int64_t in_batch = blocks_of(m, plan->rows) * blocks_of(n, plan->columns);
        if (in_batch * product->batches >= wanted || terms / (double)in_batch < 2 * PART_TERMS)
            return;
        if (plan->by_rows && plan->columns < 2 * LONG_ROW / (int64_t)sizeof(T))
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

/* What is shared, and the sizes of chunks: several batch elements, or of a large one some columns and blocks of terms, so that the
   panels of both operands stay in the last cache.  Gives how many elements of memory it takes. */
static int64_t NAME(choose_chunks)(PLAN *plan, int64_t threads)
{
    const PRODUCT *product = plan->product;
    const int64_t mr = plan->height, nr = plan->kernel->nr, m = product->m, n = product->n, k = product->k;
    const int64_t room = SHARED_BYTES / (int64_t)sizeof(T);
    const int64_t fewest = product->c ? least(k, DG_KC) : k; /* terms: without a result array, sums cannot wait */
    const int64_t half = fewest ? room / fewest / 2 : room;
    const int share_b = m > plan->rows && !plan->direct_b;
    /* parts that are enough have all columns, or half of them, and pack their own rows */
    const int64_t row_parts = blocks_of(m, plan->rows);
    const int is_high = share_b && !plan->direct_a && row_parts >= (threads > 1 ? threads * PARTS_OF_A_THREAD : 1);
    const int share_a = n > plan->columns && !plan->direct_a && rounded(m, mr) <= half && !is_high;
    plan->chunk_columns = rounded(n, nr);
    if (share_b && plan->chunk_columns > half)
        plan->chunk_columns = half < plan->columns ? plan->columns : half / plan->columns * plan->columns;
    if (is_high) {
        const int are_many = threads < 2 || row_parts >= 4 * threads * PARTS_OF_A_THREAD;
        plan->columns = are_many ? plan->chunk_columns : rounded(blocks_of(plan->chunk_columns, 2), nr);
    }
    if (m >= mr && mr == plan->kernel->mr && !plan->direct_a && !plan->direct_b && (threads < 2 || !share_b))
        plan->packs_first = NAME(in_rows)(product);
    const int64_t width = (share_a ? rounded(m, mr) : 0) + (share_b ? plan->chunk_columns : 0);
    plan->chunk_batches = product->batches;
    plan->chunk_terms = k ? k : 1;
    plan->size_partial = 0;
    if (plan->span < k) {
        const int64_t of_a_block = product->batches * m * n, blocks = least(blocks_of(k, DG_KC), 1 + room / of_a_block);
        plan->chunk_terms = blocks * DG_KC;
        plan->size_partial = rounded(of_a_block * blocks, ALIGNED);
    }
    if (width && width * k > room) {
        plan->chunk_batches = 1;
        plan->chunk_terms = product->c && room / width < k ? rounded(room / width + 1, DG_KC) - DG_KC : k;
        plan->chunk_terms = plan->chunk_terms < fewest ? fewest : plan->chunk_terms;
    } else if (width && k)
        plan->chunk_batches = least(room / (width * k), product->batches);
    /* rows that are used once are read from end to end: pieces of them would come more slowly */
    const int is_narrow = n <= nr || rounded(n, nr) * k * (int64_t)sizeof(T) <= NEAR_BYTES;
    plan->together = share_b && plan->direct_a && plan->direct_a->inner == 1 && is_narrow ? plan->height : plan->rows;
    const int64_t length = least(k, DG_KC), panels = plan->chunk_batches * plan->chunk_terms;
    plan->own_a = share_a || plan->direct_a ? 0 : rounded(plan->rows * length, ALIGNED);
    plan->group = share_b ? plan->columns : least(plan->columns, GROUP * nr);
    plan->own_b = share_b ? 0 : rounded(plan->group * length, ALIGNED);
    plan->own_size = plan->own_a + plan->own_b + (product->c ? 0 : rounded(plan->rows * plan->columns, ALIGNED));
    plan->size_a = share_a ? rounded(rounded(m, mr) * panels, ALIGNED) : 0;
    plan->size_b = share_b ? plan->chunk_columns * panels : 0;
    return plan->own_size * threads + plan->size_a + plan->size_b + plan->size_partial;
}
