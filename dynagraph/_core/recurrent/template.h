/* Recurrent layers of one dtype for one instruction set.  Included with

     T, SUFFIX   the dtype
     ISA         the instruction set, a name
     BYTES       the size of a vector

   The products of a step are of few rows by a matrix that all steps share: it is packed once, and a tile of the result, of up to
   six rows by two vectors, is summed up in registers.  (The kernels of ../products compute all rows of a tile, wanted or not.) */
#define JOIN_(a, b, c) a##_##b##_##c
#define JOIN(a, b, c) JOIN_(a, b, c)
#define NAME(what) JOIN(what, SUFFIX, ISA)
#define PAIR_(a, b) a##_##b
#define PAIR(a, b) PAIR_(a, b)
#define SIGMOID PAIR(sigmoid, SUFFIX)
#define TANH PAIR(tanh, SUFFIX)
#define V NAME(vector)

typedef T V __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));
enum { NAME(LANES) = BYTES / sizeof(T), NAME(WIDTH) = 2 * NAME(LANES), NAME(BLOCK) = 256 };
#define LANES NAME(LANES)
#define WIDTH NAME(WIDTH)

/* c[i][j] += sum over p of a[i][p] * b[p][j] for ROWS rows and WIDTH columns */
#define DECLARE(i) V low##i = *(const V *)(c + i * ldc), high##i = *(const V *)(c + i * ldc + LANES);
#define STEP(i)                                                                                                       \
    low##i += a[i * lda + p] * low;                                                                                   \
    high##i += a[i * lda + p] * high;
#define PUT(i)                                                                                                        \
    *(V *)(c + i * ldc) = low##i;                                                                                     \
    *(V *)(c + i * ldc + LANES) = high##i;
#define TILE(name, ROWS)                                                                                              \
    static void NAME(name)(int64_t k, const T *a, int64_t lda, const T *b, T *c, int64_t ldc)                         \
    {                                                                                                                 \
        ROWS(DECLARE)                                                                                                 \
        for (int64_t p = 0; p < k; ++p, b += WIDTH) {                                                                 \
            const V low = *(const V *)b, high = *(const V *)(b + LANES);                                              \
            ROWS(STEP)                                                                                                \
        }                                                                                                             \
        ROWS(PUT)                                                                                                     \
    }
#define ROWS1(X) X(0)
#define ROWS2(X) ROWS1(X) X(1)
#define ROWS3(X) ROWS2(X) X(2)
#define ROWS4(X) ROWS3(X) X(3)
#define ROWS5(X) ROWS4(X) X(4)
#define ROWS6(X) ROWS5(X) X(5)
TILE(tile1, ROWS1)
TILE(tile2, ROWS2)
TILE(tile3, ROWS3)
TILE(tile4, ROWS4)
TILE(tile5, ROWS5)
TILE(tile6, ROWS6)

static inline int64_t NAME(padded)(int64_t n) { return (n + WIDTH - 1) / WIDTH * WIDTH; }

/* c (m, padded n) += a (m, k) @ b, which is packed: in blocks of k that stay in the first cache while all rows pass */
static void NAME(add_product)(int64_t m, int64_t n, int64_t k, const T *a, int64_t lda, const T *b, T *c)
{
    static void (*const tiles[])(int64_t, const T *, int64_t, const T *, T *, int64_t) = {
        NAME(tile1), NAME(tile2), NAME(tile3), NAME(tile4), NAME(tile5), NAME(tile6)};
    const int64_t ldc = NAME(padded)(n);
    for (int64_t j = 0; j < n; j += WIDTH)
        for (int64_t p = 0; p < k; p += NAME(BLOCK)) {
            const int64_t depth = k - p < NAME(BLOCK) ? k - p : NAME(BLOCK);
            for (int64_t i = 0, rows; i < m; i += rows) { /* tiles of about the same height */
                const int64_t left = (m - i + 5) / 6;
                rows = (m - i + left - 1) / left;
                tiles[rows - 1](depth, a + i * lda + p, lda, b + j * k + p * WIDTH, c + i * ldc + j, ldc);
            }
        }
}

static void NAME(pack)(const void *from, int64_t k, int64_t n, int64_t inner, int64_t outer, int64_t lo, int64_t hi, void *to)
{
    for (int64_t panel = lo; panel < hi; ++panel) {
        const T *first = (const T *)from + panel * WIDTH * outer;
        T *packed = (T *)to + panel * WIDTH * k;
        const int64_t count = n - panel * WIDTH < WIDTH ? n - panel * WIDTH : WIDTH;
        for (int64_t p = 0; p < k; ++p, packed += WIDTH) {
            int64_t j = 0;
            for (; j < count; ++j)
                packed[j] = first[p * inner + j * outer];
            for (; j < WIDTH; ++j)
                packed[j] = 0;
        }
    }
}

/* rows of the batch that take part in a step */
static inline int64_t NAME(active)(const dg_layer *l, int64_t step, int64_t lo, int64_t hi)
{
    const int64_t end = l->counts[step] < hi ? l->counts[step] : hi;
    return end > lo ? end - lo : 0;
}

static void NAME(start)(const T *given, int64_t lo, int64_t rows, int64_t n, T *state)
{
    if (given)
        memcpy(state, given + lo * n, (size_t)(rows * n) * sizeof(T));
    else
        memset(state, 0, (size_t)(rows * n) * sizeof(T));
}

/* -- forward: of one row; z is the state's part in the gates ---------------------------------------------------------------- */

static void NAME(plain_row)(int relu, int64_t n, const T *x, const T *z, const T *bias, T *out, T *h)
{
    if (relu) {
#pragma GCC ivdep
        for (int64_t j = 0; j < n; ++j) {
            const T sum = x[j] + z[j] + bias[j];
            out[j] = h[j] = sum < 0 ? 0 : sum;
        }
        return;
    }
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j)
        out[j] = h[j] = TANH(x[j] + z[j] + bias[j]);
}

static void NAME(lstm_row)(int64_t n, const T *x, const T *z, const T *bias, T *gates, T *c, T *cells, T *h)
{
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) {
        const T in = SIGMOID(x[j] + z[j] + bias[j]), forget = SIGMOID(x[n + j] + z[n + j] + bias[n + j]);
        const T new = TANH(x[2 * n + j] + z[2 * n + j] + bias[2 * n + j]);
        const T shown = SIGMOID(x[3 * n + j] + z[3 * n + j] + bias[3 * n + j]);
        const T cell = forget * c[j] + in * new;
        gates[j] = in;
        gates[n + j] = forget;
        gates[2 * n + j] = new;
        gates[3 * n + j] = shown;
        c[j] = cells[j] = cell;
        h[j] = shown * TANH(cell);
    }
}

static void NAME(gru_row)(int64_t n, const T *x, const T *z, const T *bias, const T *of_state, T *gates, T *out, T *h)
{
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) {
        const T reset = SIGMOID(x[j] + z[j] + bias[j]), update = SIGMOID(x[n + j] + z[n + j] + bias[n + j]);
        const T part = z[2 * n + j] + of_state[j];
        const T new = TANH(x[2 * n + j] + bias[2 * n + j] + reset * part);
        gates[j] = reset;
        gates[n + j] = update;
        gates[2 * n + j] = new;
        gates[3 * n + j] = part;
        out[j] = h[j] = new + update * (h[j] - new);
    }
}

/* the biases of both parts together; those of a GRU's "new" apart: its state's part comes behind the others */
static void NAME(sum_biases)(const dg_layer *l, T *bias)
{
    const T *a = l->bias, *b = l->bias_of_state;
    const int64_t n = l->columns, apart = l->kind == DG_GRU ? 2 * l->hidden : n;
    for (int64_t j = 0; j < n; ++j)
        bias[j] = (a ? a[j] : 0) + (b && j < apart ? b[j] : 0);
    for (int64_t j = apart; j < n; ++j)
        bias[n + j - apart] = b ? b[j] : 0;
}

static void NAME(forward_row)(const dg_layer *l, int64_t row, const T *z, const T *bias, T *h, T *c, T *shown)
{
    const int64_t n = l->hidden;
    const T *x = (const T *)l->x + row * l->columns;
    T *out = (T *)l->out + row * l->outputs;
    if (l->kind == DG_LSTM)
        NAME(lstm_row)(n, x, z, bias, (T *)l->gates + row * l->columns, c, (T *)l->cells + row * n, shown);
    else if (l->kind == DG_GRU)
        NAME(gru_row)(n, x, z, bias, bias + 3 * n, (T *)l->gates + row * 4 * n, out, h);
    else
        NAME(plain_row)(l->kind == DG_RELU, n, x, z, bias, out, h);
}

static int64_t NAME(scratch)(const dg_layer *l, int64_t rows)
{
    const int64_t columns = NAME(padded)(l->columns), outputs = NAME(padded)(l->outputs), hidden = NAME(padded)(l->hidden);
    return rows * (columns + 2 * outputs + 3 * hidden) + columns + hidden;
}

static void NAME(forward)(const dg_layer *l, int64_t lo, int64_t hi, void *scratch)
{
    const int64_t n = l->hidden, outputs = l->outputs, rows = hi - lo, width = NAME(padded)(l->columns);
    T *z = scratch, *h = z + rows * width, *c = h + rows * outputs, *shown = c + rows * n, *bias = shown + rows * n;
    T *projected = bias + l->columns + n;
    NAME(sum_biases)(l, bias);
    NAME(start)(l->h0, lo, rows, outputs, h);
    if (l->kind == DG_LSTM)
        NAME(start)(l->c0, lo, rows, n, c);
    for (int64_t s = 0; s < l->steps; ++s) {
        const int64_t step = l->reverse ? l->steps - 1 - s : s, m = NAME(active)(l, step, lo, hi), first = l->offsets[step] + lo;
        memset(z, 0, (size_t)(m * width) * sizeof(T));
        NAME(add_product)(m, l->columns, outputs, h, outputs, l->weights, z);
        for (int64_t i = 0; i < m; ++i)
            NAME(forward_row)(l, first + i, z + i * width, bias, h + i * outputs, c + i * n, shown + i * n);
        if (l->kind != DG_LSTM)
            continue;
        const int64_t stride = l->projection ? NAME(padded)(outputs) : n;
        if (l->projection) {
            memset(projected, 0, (size_t)(m * stride) * sizeof(T));
            NAME(add_product)(m, outputs, n, shown, n, l->projection, projected);
        }
        for (int64_t i = 0; i < m; ++i) {
            const T *result = (l->projection ? projected : shown) + i * stride;
            memcpy(h + i * outputs, result, (size_t)outputs * sizeof(T));
            memcpy((T *)l->out + (first + i) * outputs, result, (size_t)outputs * sizeof(T));
        }
    }
}

/* -- backward: of one row --------------------------------------------------------------------------------------------------- */

static void NAME(plain_row_back)(int relu, int64_t n, const T *grad, const T *out, T *grad_x)
{
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j)
        grad_x[j] = relu ? (out[j] > 0 ? grad[j] : 0) : grad[j] * (1 - out[j] * out[j]);
}

/* grad: by what the cell shows; c: the gradient by the cell, from later steps and then for the earlier one */
static void NAME(lstm_row_back)(int64_t n, const T *grad, const T *gates, const T *cells, const T *before, T *c, T *grad_x)
{
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) {
        const T in = gates[j], forget = gates[n + j], new = gates[2 * n + j], shown = gates[3 * n + j], cell = TANH(cells[j]);
        const T by_cell = c[j] + grad[j] * shown * (1 - cell * cell);
        grad_x[j] = by_cell * new * in * (1 - in);
        grad_x[n + j] = by_cell * before[j] * forget * (1 - forget);
        grad_x[2 * n + j] = by_cell * in * (1 - new * new);
        grad_x[3 * n + j] = grad[j] * cell * shown * (1 - shown);
        c[j] = by_cell * forget;
    }
}

/* h: the gradient by the result, then the part of that by the earlier one that does not come through the gates */
static void NAME(gru_row_back)(int64_t n, const T *gates, const T *before, T *h, T *grad_x, T *of_state)
{
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) {
        const T reset = gates[j], update = gates[n + j], new = gates[2 * n + j], part = gates[3 * n + j], grad = h[j];
        const T by_new = grad * (1 - update) * (1 - new * new), by_reset = by_new * part * reset * (1 - reset);
        const T by_update = grad * (before[j] - new) * update * (1 - update);
        grad_x[j] = of_state[j] = by_reset;
        grad_x[n + j] = of_state[n + j] = by_update;
        grad_x[2 * n + j] = by_new;
        of_state[2 * n + j] = by_new * reset;
        h[j] = grad * update;
    }
}

static void NAME(show_row)(int64_t n, const T *gates, const T *cells, T *shown)
{
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j)
        shown[j] = gates[3 * n + j] * TANH(cells[j]);
}

static void NAME(add_row)(int64_t n, const T *given, T *to)
{
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j)
        to[j] += given[j];
}

/* what a row of the batch had of a state before a step */
static const T *NAME(before)(const dg_layer *l, int64_t step, int64_t row, const T *states, const T *initial, int64_t n,
                             const T *zeros)
{
    const int64_t earlier = l->reverse ? step + 1 : step - 1;
    if (earlier >= 0 && earlier < l->steps && row < l->counts[earlier])
        return states + (l->offsets[earlier] + row) * n;
    return initial ? initial + row * n : zeros;
}

static void NAME(backward_row)(const dg_layer *l, int64_t step, int64_t in_batch, const T *grad, T *h, T *c, const T *zeros)
{
    const int64_t n = l->hidden, row = l->offsets[step] + in_batch;
    T *grad_x = (T *)l->grad_x + row * l->columns;
    if (l->kind == DG_LSTM) {
        if (l->grad_cells)
            NAME(add_row)(n, (const T *)l->grad_cells + row * n, c);
        NAME(lstm_row_back)(n, grad, (const T *)l->gates + row * l->columns, (const T *)l->cells + row * n,
                            NAME(before)(l, step, in_batch, l->cells, l->c0, n, zeros), c, grad_x);
        if (l->projection)
            NAME(show_row)(n, (const T *)l->gates + row * l->columns, (const T *)l->cells + row * n, (T *)l->shown + row * n);
    } else if (l->kind == DG_GRU)
        NAME(gru_row_back)(n, (const T *)l->gates + row * 4 * n, NAME(before)(l, step, in_batch, l->out, l->h0, n, zeros), h,
                           grad_x, (T *)l->grad_of_state + row * l->columns);
    else
        NAME(plain_row_back)(l->kind == DG_RELU, n, grad, (const T *)l->out + row * n, grad_x);
}

static void NAME(backward)(const dg_layer *l, int64_t lo, int64_t hi, void *scratch)
{
    const int64_t n = l->hidden, outputs = l->outputs, rows = hi - lo, width = NAME(padded)(outputs), wide = NAME(padded)(n);
    T *h = scratch, *c = h + rows * width, *shown = c + rows * n, *zeros = shown + rows * wide;
    memset(h, 0, (size_t)(rows * width) * sizeof(T));
    memset(c, 0, (size_t)(rows * n) * sizeof(T));
    memset(zeros, 0, (size_t)n * sizeof(T));
    for (int64_t s = l->steps - 1; s >= 0; --s) {
        const int64_t step = l->reverse ? l->steps - 1 - s : s, m = NAME(active)(l, step, lo, hi), first = l->offsets[step] + lo;
        for (int64_t i = 0; l->grad_out && i < m; ++i)
            NAME(add_row)(outputs, (const T *)l->grad_out + (first + i) * outputs, h + i * width);
        if (l->projection) {
            for (int64_t i = 0; i < m; ++i)
                memcpy((T *)l->grad_projected + (first + i) * outputs, h + i * width, (size_t)outputs * sizeof(T));
            memset(shown, 0, (size_t)(m * wide) * sizeof(T));
            NAME(add_product)(m, n, outputs, h, width, l->projection, shown);
        }
        for (int64_t i = 0; i < m; ++i) {
            const T *grad = l->projection ? shown + i * wide : h + i * width;
            NAME(backward_row)(l, step, lo + i, grad, h + i * width, c + i * n, zeros);
        }
        if (l->kind != DG_GRU)
            memset(h, 0, (size_t)(m * width) * sizeof(T));
        const T *by_state = l->kind == DG_GRU ? l->grad_of_state : l->grad_x;
        NAME(add_product)(m, outputs, l->columns, by_state + first * l->columns, l->columns, l->weights, h);
    }
    for (int64_t i = 0; l->grad_h0 && i < rows; ++i)
        memcpy((T *)l->grad_h0 + (lo + i) * outputs, h + i * width, (size_t)outputs * sizeof(T));
    if (l->grad_c0)
        memcpy((T *)l->grad_c0 + lo * n, c, (size_t)(rows * n) * sizeof(T));
}

/* -- one step, of the input's and the state's part in the gates ------------------------------------------------------------- */

static void NAME(cell)(const dg_cell *l, int64_t lo, int64_t hi, void *zeros)
{
    const int64_t n = l->hidden, columns = l->columns;
    for (int64_t i = lo; i < hi; ++i) {
        const T *x = (const T *)l->x + i * columns, *z = (const T *)l->of_state + i * columns;
        const T *before = (const T *)l->before + i * n;
        T *h = (T *)l->h + i * n, *gates = (T *)l->gates + i * 4 * n, *cells = (T *)l->cells + i * n;
        memcpy(l->kind == DG_LSTM ? cells : h, before, (size_t)n * sizeof(T));
        if (l->kind == DG_LSTM)
            NAME(lstm_row)(n, x, z, zeros, gates, cells, cells, h);
        else
            NAME(gru_row)(n, x, z, zeros, zeros, gates, h, h);
    }
}

static void NAME(cell_back)(const dg_cell *l, int64_t lo, int64_t hi, void *zeros)
{
    const int64_t n = l->hidden, columns = l->columns;
    const size_t size = (size_t)n * sizeof(T);
    for (int64_t i = lo; i < hi; ++i) {
        const T *gates = (const T *)l->gates + i * 4 * n, *before = (const T *)l->before + i * n;
        const T *grad_h = l->grad_h ? (const T *)l->grad_h + i * n : zeros;
        const T *grad_c = l->grad_c ? (const T *)l->grad_c + i * n : zeros;
        T *grad_x = (T *)l->grad_x + i * columns, *grad_before = (T *)l->grad_before + i * n;
        memcpy(grad_before, l->kind == DG_LSTM ? grad_c : grad_h, size);
        if (l->kind == DG_LSTM)
            NAME(lstm_row_back)(n, grad_h, gates, (const T *)l->cells + i * n, before, grad_before, grad_x);
        else
            NAME(gru_row_back)(n, gates, before, grad_before, grad_x, (T *)l->grad_of_state + i * columns);
    }
}

const dg_recurrent_code JOIN(dg_recurrent, SUFFIX, ISA) = {
    WIDTH, NAME(scratch), NAME(forward), NAME(backward), NAME(pack), NAME(cell), NAME(cell_back)};

#undef JOIN_
#undef JOIN
#undef NAME
#undef PAIR_
#undef PAIR
#undef SIGMOID
#undef TANH
#undef V
#undef LANES
#undef WIDTH
#undef DECLARE
#undef STEP
#undef PUT
#undef TILE
#undef ROWS1
#undef ROWS2
#undef ROWS3
#undef ROWS4
#undef ROWS5
#undef ROWS6
#undef T
#undef SUFFIX
#undef BYTES
