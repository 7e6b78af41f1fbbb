/* Recurrent layers over all steps of sequences: arguments, results, memory and threads.  ../recurrent/ has the computation. */
#include "core.h"

#include "../recurrent/steps.h"

enum { MOST_ARRAYS = 16, FEW_ROWS = 4, MANY_ROWS = 48 };

/* what a call reads and makes; references are owned */
typedef struct {
    dg_layer layer;
    const dg_recurrent_code *code;
    PyArray_Descr *descr; /* borrowed: of an operand */
    PyObject *read[MOST_ARRAYS], *results[5];
    int n_read, n_results;
    PyObject *given; /* memory for results: a tuple of arrays and None, or None */
    npy_intp lead[2]; /* all axes of the rows of steps */
    int n_lead;
    int64_t *room;    /* counts and offsets */
    const char *who;
} call;

static const dg_recurrent_code *code_for(int type)
{
    int is_single = type == NPY_FLOAT;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw"))
        return is_single ? &dg_recurrent_f32_avx512 : &dg_recurrent_f64_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return is_single ? &dg_recurrent_f32_avx2 : &dg_recurrent_f64_avx2;
#endif
    return is_single ? &dg_recurrent_f32_baseline : &dg_recurrent_f64_baseline;
}

/* -- operands ------------------------------------------------------------------------------------------------------------ */

static int fail(const call *c, const char *name)
{
    PyErr_Format(PyExc_ValueError, "%s: %s has another dtype or shape than the other arrays ask for", c->who, name);
    return -1;
}

/* the data of an operand in C order; null where it is None.  A size of -1 is any. */
static int operand(call *c, PyObject *given, const char *name, int ndim, const npy_intp *shape, const void **data)
{
    *data = NULL;
    if (given == Py_None)
        return 0;
    if (!PyArray_Check(given) || PyArray_NDIM((PyArrayObject *)given) != ndim || c->n_read == MOST_ARRAYS)
        return fail(c, name);
    PyArrayObject *array = (PyArrayObject *)given;
    for (int k = 0; k < ndim; ++k)
        if (shape[k] >= 0 && PyArray_DIM(array, k) != shape[k])
            return fail(c, name);
    if (!c->descr)
        c->descr = PyArray_DESCR(array);
    if (!PyArray_EquivTypes(PyArray_DESCR(array), c->descr))
        return fail(c, name);
    PyObject *packed = PyArray_FROM_OF(given, NPY_ARRAY_CARRAY_RO);
    if (!packed)
        return -1;
    c->read[c->n_read++] = packed;
    *data = PyArray_DATA((PyArrayObject *)packed);
    return 0;
}

static int read_matrix(call *c, PyObject *given, const char *name, npy_intp rows, npy_intp columns, const void **data)
{
    npy_intp shape[] = {rows, columns};
    return operand(c, given, name, 2, shape, data);
}

static int read_rows(call *c, PyObject *given, const char *name, npy_intp columns, const void **data)
{
    npy_intp shape[] = {c->lead[0], c->n_lead == 2 ? c->lead[1] : columns, columns};
    return operand(c, given, name, c->n_lead + 1, shape, data);
}

/* how many rows each step has: all the same, or those of a packed sequence, which never grow */
static int set_steps(call *c, PyObject *rows, PyObject *counts)
{
    dg_layer *l = &c->layer;
    c->n_lead = counts == Py_None ? 2 : 1;
    if (!PyArray_Check(rows) || PyArray_NDIM((PyArrayObject *)rows) != c->n_lead + 1)
        return fail(c, "the rows of all steps");
    memcpy(c->lead, PyArray_DIMS((PyArrayObject *)rows), (size_t)c->n_lead * sizeof *c->lead);
    PyObject *array = counts == Py_None ? NULL : PyArray_FROM_OTF(counts, NPY_INT64, NPY_ARRAY_CARRAY_RO);
    if (counts != Py_None && !array)
        return -1;
    if (array && PyArray_NDIM((PyArrayObject *)array) != 1) {
        Py_DECREF(array);
        return fail(c, "counts");
    }
    l->steps = array ? PyArray_DIM((PyArrayObject *)array, 0) : c->lead[0];
    const int64_t *given = array ? PyArray_DATA((PyArrayObject *)array) : NULL;
    l->batch = !array ? c->lead[1] : l->steps ? given[0] : 0;
    c->room = PyMem_Malloc((size_t)(2 * l->steps + 1) * sizeof *c->room);
    int64_t total = 0, fits = c->room && l->batch >= 0;
    for (int64_t k = 0; fits && k < l->steps; ++k) {
        c->room[k] = given ? given[k] : l->batch;
        c->room[l->steps + k] = total;
        fits = c->room[k] >= 0 && (k == 0 || c->room[k] <= c->room[k - 1]) && (!given || c->room[k] <= c->lead[0] - total);
        total += c->room[k];
    }
    l->counts = c->room;
    l->offsets = c->room + l->steps;
    Py_XDECREF(array);
    if (!c->room) {
        PyErr_NoMemory();
        return -1;
    }
    return fits && (!given || total == c->lead[0]) ? 0 : fail(c, "counts");
}

static int set_kind(call *c, const char *kind)
{
    static const char *const names[] = {[DG_TANH] = "tanh", [DG_RELU] = "relu", [DG_LSTM] = "lstm", [DG_GRU] = "gru"};
    for (int k = DG_TANH; k <= DG_GRU; ++k)
        if (strcmp(kind, names[k]) == 0) {
            c->layer.kind = (dg_recurrence)k;
            return 0;
        }
    PyErr_Format(PyExc_ValueError, "%s: there is no kind '%s'", c->who, kind);
    return -1;
}

/* -- results ------------------------------------------------------------------------------------------------------------- */

static int is_room(const call *c, PyObject *given, int ndim, const npy_intp *shape)
{
    PyArrayObject *array = (PyArrayObject *)given;
    return PyArray_Check(given) && PyArray_ISCARRAY(array) && PyArray_NDIM(array) == ndim &&
           PyArray_CompareLists(PyArray_DIMS(array), shape, ndim) && PyArray_EquivTypes(PyArray_DESCR(array), c->descr);
}

/* (rows of steps or `batch`, columns): the memory that was given for it, if it fits, or new */
static int result(call *c, npy_intp batch, npy_intp columns, void **data)
{
    npy_intp shape[3] = {batch, columns};
    int ndim = 2;
    if (batch < 0) {
        memcpy(shape, c->lead, sizeof c->lead);
        shape[c->n_lead] = columns;
        ndim = c->n_lead + 1;
    }
    int is_given = PyTuple_Check(c->given) && c->n_results < PyTuple_GET_SIZE(c->given);
    PyObject *given = is_given ? PyTuple_GET_ITEM(c->given, c->n_results) : NULL;
    if (given && is_room(c, given, ndim, shape))
        Py_INCREF(given);
    else {
        size_t size = (size_t)PyArray_MultiplyList(shape, ndim) * (size_t)PyDataType_ELSIZE(c->descr);
        if (!(given = dg_new_array(c->descr, ndim, shape, size)))
            return -1;
    }
    c->results[c->n_results++] = given;
    *data = PyArray_DATA((PyArrayObject *)given);
    return 0;
}

static PyObject *finish(call *c, int status)
{
    PyObject *results = status == 0 ? PyTuple_New(c->n_results) : NULL;
    for (int k = 0; k < c->n_results; ++k)
        if (results)
            PyTuple_SET_ITEM(results, k, c->results[k]);
        else
            Py_DECREF(c->results[k]);
    for (int k = 0; k < c->n_read; ++k)
        Py_DECREF(c->read[k]);
    PyMem_Free(c->room);
    return results;
}

/* -- running ------------------------------------------------------------------------------------------------------------- */

typedef struct {
    const call *call;
    int is_backward;
    int64_t rows;  /* of a chunk */
    char *scratch; /* of all threads */
    int64_t scratch_size;
    /* a matrix to be packed */
    const void *matrix;
    int64_t k, n, inner, outer;
    void *packed;
} job;

static void run_chunks(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    const job *j = buffers[0];
    const call *c = j->call;
    for (; lo < hi; ++lo) {
        int64_t first = lo * j->rows, end = first + j->rows < c->layer.batch ? first + j->rows : c->layer.batch;
        (j->is_backward ? c->code->backward : c->code->forward)(&c->layer, first, end, j->scratch + thread * j->scratch_size);
    }
}

static void pack_panels(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    const job *j = buffers[0];
    j->call->code->pack(j->matrix, j->k, j->n, j->inner, j->outer, lo, hi, j->packed);
}

static int64_t packed_size(const call *c, int64_t k, int64_t n)
{
    return (n + c->code->width - 1) / c->code->width * c->code->width * k * PyDataType_ELSIZE(c->descr);
}

/* `matrix` (rows, columns), by whose transposed, or in backward by which, states are multiplied */
static const void *pack(job *j, const void *matrix, int64_t rows, int64_t columns, void *to)
{
    static const int32_t no_signals = 0;
    dg_stop stop = {.signals = &no_signals};
    j->matrix = matrix;
    j->packed = to;
    j->k = j->is_backward ? rows : columns;
    j->n = j->is_backward ? columns : rows;
    j->inner = j->is_backward ? columns : 1;
    j->outer = j->is_backward ? 1 : columns;
    int64_t panels = (j->n + j->call->code->width - 1) / j->call->code->width;
    dg_the_runtime.parallel(pack_panels, (void *const[]){j}, NULL, panels, 1, panels, &stop);
    return to;
}

/* Chunks of rows run beside each other; each reads all weights in each step, so a chunk is as large as the threads allow; there
   are two for each thread where there are many rows. */
static int run(call *c, const void *weights, const void *projection, int is_backward)
{
    static const int32_t no_signals = 0;
    dg_layer *l = &c->layer;
    dg_stop stop = {.signals = &no_signals, .threads = dg_the_runtime.n_threads};
    int64_t threads = stop.threads, chunks = threads * (l->batch >= threads * MANY_ROWS ? 2 : 1);
    int64_t most = (l->batch + FEW_ROWS - 1) / FEW_ROWS;
    chunks = chunks < most ? chunks : most;
    if (chunks < 1)
        return 0;
    job j = {.call = c, .is_backward = is_backward, .rows = (l->batch + chunks - 1) / chunks};
    j.scratch_size = (c->code->scratch(l, j.rows) * PyDataType_ELSIZE(c->descr) + 127) / 64 * 64;
    int64_t packed = packed_size(c, is_backward ? l->columns : l->outputs, is_backward ? l->outputs : l->columns);
    int64_t more = !projection ? 0 : packed_size(c, is_backward ? l->outputs : l->hidden, is_backward ? l->hidden : l->outputs);
    char *room = dg_pool_take((size_t)(threads * j.scratch_size + packed + more + 128));
    if (!room) {
        PyErr_NoMemory();
        return -1;
    }
    j.scratch = room;
    char *to = room + threads * j.scratch_size;
    Py_BEGIN_ALLOW_THREADS
    l->weights = pack(&j, weights, l->columns, l->outputs, to);
    if (projection)
        l->projection = pack(&j, projection, l->outputs, l->hidden, to + (packed + 63) / 64 * 64);
    dg_the_runtime.parallel(run_chunks, (void *const[]){&j}, NULL, (l->batch + j.rows - 1) / j.rows, 1, 1, &stop);
    Py_END_ALLOW_THREADS
    dg_pool_give(room);
    return 0;
}

static int set_sizes(call *c, PyObject *weights, PyObject *projection, const void **w, const void **p)
{
    dg_layer *l = &c->layer;
    if (read_matrix(c, weights, "weights", -1, -1, w) < 0 || !*w)
        return PyErr_Occurred() ? -1 : fail(c, "weights");
    l->columns = PyArray_DIM((PyArrayObject *)weights, 0);
    l->outputs = PyArray_DIM((PyArrayObject *)weights, 1);
    int64_t times = l->kind == DG_LSTM ? 4 : l->kind == DG_GRU ? 3 : 1;
    l->hidden = l->columns / times;
    int type = c->descr->type_num;
    if (l->hidden * times != l->columns || (type != NPY_FLOAT && type != NPY_DOUBLE))
        return fail(c, "weights");
    c->code = code_for(type);
    if (read_matrix(c, projection, "projection", l->outputs, l->hidden, p) < 0)
        return -1;
    return (*p ? l->kind == DG_LSTM : l->outputs == l->hidden) ? 0 : fail(c, "weights");
}

PyObject *dg_recurrent_forward(PyObject *module, PyObject *args, PyObject *kwargs)
{
    const char *kind;
    PyObject *x, *h0, *c0, *weights, *bias, *of_state, *projection, *counts;
    const void *w, *p;
    call c = {.who = "recurrent_forward", .given = Py_None};
    dg_layer *l = &c.layer;
    static char *names[] = {"kind", "reverse", "x", "h0", "c0", "weights", "bias", "bias_of_state", "projection", "counts", "out",
                            NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "spOOOOOOOO|O:recurrent_forward", names, &kind, &l->reverse, &x, &h0, &c0,
                                     &weights, &bias, &of_state, &projection, &counts, &c.given))
        return NULL;
    int status = -1;
    if (set_kind(&c, kind) < 0 || set_steps(&c, x, counts) < 0 || set_sizes(&c, weights, projection, &w, &p) < 0)
        goto done;
    npy_intp columns = l->columns, n = l->hidden;
    if (read_rows(&c, x, "x", columns, &l->x) < 0 || read_matrix(&c, h0, "h0", l->batch, l->outputs, &l->h0) < 0 ||
        read_matrix(&c, c0, "c0", l->batch, n, &l->c0) < 0 || operand(&c, bias, "bias", 1, &columns, &l->bias) < 0 ||
        operand(&c, of_state, "bias", 1, &columns, &l->bias_of_state) < 0 || result(&c, -1, l->outputs, &l->out) < 0)
        goto done;
    if (l->kind == DG_LSTM && result(&c, -1, n, &l->cells) < 0)
        goto done;
    if ((l->kind == DG_LSTM || l->kind == DG_GRU) && result(&c, -1, 4 * n, &l->gates) < 0)
        goto done;
    status = run(&c, w, p, 0);
done:
    return finish(&c, status);
}

PyObject *dg_recurrent_backward(PyObject *module, PyObject *args, PyObject *kwargs)
{
    const char *kind;
    PyObject *grad_out, *grad_cells, *out, *cells, *gates, *h0, *c0, *weights, *projection, *counts;
    const void *w, *p, *shown, *cell, *gate;
    call c = {.who = "recurrent_backward", .given = Py_None};
    dg_layer *l = &c.layer;
    static char *names[] = {"kind", "reverse", "grad_outputs", "grad_cells", "outputs", "cells", "gates", "h0", "c0", "weights",
                            "projection", "counts", "out", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "spOOOOOOOOOO|O:recurrent_backward", names, &kind, &l->reverse, &grad_out,
                                     &grad_cells, &out, &cells, &gates, &h0, &c0, &weights, &projection, &counts, &c.given))
        return NULL;
    int status = -1;
    if (set_kind(&c, kind) < 0 || set_steps(&c, out, counts) < 0 || set_sizes(&c, weights, projection, &w, &p) < 0)
        goto done;
    npy_intp n = l->hidden;
    if (read_rows(&c, grad_out, "grad_out", l->outputs, &l->grad_out) < 0 ||
        read_rows(&c, grad_cells, "grad_cells", n, &l->grad_cells) < 0 || read_rows(&c, out, "out", l->outputs, &shown) < 0 ||
        read_rows(&c, cells, "cells", n, &cell) < 0 || read_rows(&c, gates, "gates", 4 * n, &gate) < 0 ||
        read_matrix(&c, h0, "h0", l->batch, l->outputs, &l->h0) < 0 || read_matrix(&c, c0, "c0", l->batch, n, &l->c0) < 0)
        goto done;
    if ((l->kind == DG_LSTM && !cell) || ((l->kind == DG_LSTM || l->kind == DG_GRU) && !gate)) {
        fail(&c, "what forward has kept");
        goto done;
    }
    l->out = (void *)shown;
    l->cells = (void *)cell;
    l->gates = (void *)gate;
    if (result(&c, -1, l->columns, &l->grad_x) < 0 || result(&c, l->batch, l->outputs, &l->grad_h0) < 0)
        goto done;
    if (l->kind == DG_LSTM && result(&c, l->batch, n, &l->grad_c0) < 0)
        goto done;
    if (p && (result(&c, -1, l->outputs, &l->grad_projected) < 0 || result(&c, -1, n, &l->shown) < 0))
        goto done;
    if (l->kind == DG_GRU && result(&c, -1, l->columns, &l->grad_of_state) < 0)
        goto done;
    status = run(&c, w, p, 1);
done:
    return finish(&c, status);
}

/* the states before each step, in the order of the rows */
PyObject *dg_recurrent_before(PyObject *module, PyObject *args)
{
    PyObject *out, *h0, *counts;
    const void *shown;
    void *to;
    call c = {.who = "recurrent_before", .given = Py_None};
    dg_layer *l = &c.layer;
    if (!PyArg_ParseTuple(args, "pOOO:recurrent_before", &l->reverse, &out, &h0, &counts))
        return NULL;
    int status = -1;
    if (set_steps(&c, out, counts) < 0)
        return finish(&c, status);
    npy_intp n = PyArray_DIM((PyArrayObject *)out, c.n_lead);
    if (read_rows(&c, out, "out", n, &shown) < 0 || read_matrix(&c, h0, "h0", l->batch, n, &l->h0) < 0 ||
        result(&c, -1, n, &to) < 0)
        return finish(&c, status);
    size_t size = (size_t)n * (size_t)PyDataType_ELSIZE(c.descr);
    for (int64_t step = 0; step < l->steps; ++step) {
        int64_t earlier = l->reverse ? step + 1 : step - 1, known = earlier >= 0 && earlier < l->steps ? l->counts[earlier] : 0;
        int64_t count = l->counts[step];
        known = known < count ? known : count;
        char *first = (char *)to + (size_t)l->offsets[step] * size;
        if (known)
            memcpy(first, (const char *)shown + (size_t)l->offsets[earlier] * size, (size_t)known * size);
        if (known < count && l->h0)
            memcpy(first + (size_t)known * size, (const char *)l->h0 + (size_t)known * size, (size_t)(count - known) * size);
        else if (known < count)
            memset(first + (size_t)known * size, 0, (size_t)(count - known) * size);
    }
    return finish(&c, 0);
}

/* -- one step ------------------------------------------------------------------------------------------------------------ */

enum { CELL_GRAIN = 1 << 13 /* elements of a state that are worth a thread */ };

static void run_cell(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    const dg_cell *cell = buffers[0];
    ((const dg_recurrent_code *)buffers[1])->cell(cell, lo, hi, buffers[2]);
}

static void run_cell_back(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    const dg_cell *cell = buffers[0];
    ((const dg_recurrent_code *)buffers[1])->cell_back(cell, lo, hi, buffers[2]);
}

static int run_step(call *c, dg_cell *cell, dg_range range)
{
    static const int32_t no_signals = 0;
    dg_stop stop = {.signals = &no_signals};
    void *zeros = PyMem_Calloc((size_t)cell->columns + 1, (size_t)PyDataType_ELSIZE(c->descr));
    if (!zeros) {
        PyErr_NoMemory();
        return -1;
    }
    void *const buffers[] = {cell, (void *)c->code, zeros};
    int64_t grain = CELL_GRAIN / (cell->hidden + 1) + 1;
    if (cell->batch <= grain)
        range(buffers, NULL, 0, cell->batch, 0, &stop);
    else {
        Py_BEGIN_ALLOW_THREADS
        dg_the_runtime.parallel(range, buffers, NULL, cell->batch, grain, cell->batch, &stop);
        Py_END_ALLOW_THREADS
    }
    PyMem_Free(zeros);
    return 0;
}

/* the sizes of a step, by the state before it */
static int set_cell(call *c, const char *kind, dg_cell *cell, PyObject *before)
{
    if (set_kind(c, kind) < 0 || read_matrix(c, before, "the state before", -1, -1, &cell->before) < 0)
        return -1;
    int type = c->descr ? c->descr->type_num : NPY_VOID;
    cell->kind = c->layer.kind;
    if ((cell->kind != DG_LSTM && cell->kind != DG_GRU) || (type != NPY_FLOAT && type != NPY_DOUBLE))
        return fail(c, "the state before");
    c->code = code_for(type);
    cell->batch = PyArray_DIM((PyArrayObject *)before, 0);
    cell->hidden = PyArray_DIM((PyArrayObject *)before, 1);
    cell->columns = cell->hidden * (cell->kind == DG_LSTM ? 4 : 3);
    return 0;
}

PyObject *dg_recurrent_cell(PyObject *module, PyObject *args, PyObject *kwargs)
{
    const char *kind;
    PyObject *x, *of_state, *before;
    call c = {.who = "recurrent_cell", .given = Py_None};
    dg_cell cell = {0};
    static char *names[] = {"kind", "x", "of_state", "before", "out", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sOOO|O:recurrent_cell", names, &kind, &x, &of_state, &before, &c.given))
        return NULL;
    int status = -1;
    if (set_cell(&c, kind, &cell, before) < 0 || read_matrix(&c, x, "x", cell.batch, cell.columns, &cell.x) < 0 ||
        read_matrix(&c, of_state, "of_state", cell.batch, cell.columns, &cell.of_state) < 0 ||
        result(&c, cell.batch, cell.hidden, &cell.h) < 0 ||
        (cell.kind == DG_LSTM && result(&c, cell.batch, cell.hidden, &cell.cells) < 0) ||
        result(&c, cell.batch, 4 * cell.hidden, &cell.gates) < 0)
        return finish(&c, status);
    if (!cell.x || !cell.of_state)
        fail(&c, "x");
    else
        status = run_step(&c, &cell, run_cell);
    return finish(&c, status);
}

PyObject *dg_recurrent_cell_backward(PyObject *module, PyObject *args, PyObject *kwargs)
{
    const char *kind;
    PyObject *grad_h, *grad_c, *cells, *gates, *before;
    const void *cell_values, *gate_values;
    call c = {.who = "recurrent_cell_backward", .given = Py_None};
    dg_cell cell = {0};
    static char *names[] = {"kind", "grad_h", "grad_c", "cells", "gates", "before", "out", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sOOOOO|O:recurrent_cell_backward", names, &kind, &grad_h, &grad_c, &cells,
                                     &gates, &before, &c.given))
        return NULL;
    int status = -1;
    if (set_cell(&c, kind, &cell, before) < 0 || read_matrix(&c, grad_h, "grad_h", cell.batch, cell.hidden, &cell.grad_h) < 0 ||
        read_matrix(&c, grad_c, "grad_c", cell.batch, cell.hidden, &cell.grad_c) < 0 ||
        read_matrix(&c, cells, "cells", cell.batch, cell.hidden, &cell_values) < 0 ||
        read_matrix(&c, gates, "gates", cell.batch, 4 * cell.hidden, &gate_values) < 0 ||
        result(&c, cell.batch, cell.columns, &cell.grad_x) < 0 || result(&c, cell.batch, cell.hidden, &cell.grad_before) < 0 ||
        (cell.kind == DG_GRU && result(&c, cell.batch, cell.columns, &cell.grad_of_state) < 0))
        return finish(&c, status);
    cell.cells = (void *)cell_values;
    cell.gates = (void *)gate_values;
    if (!gate_values || (cell.kind == DG_LSTM && !cell_values))
        fail(&c, "what forward has kept");
    else
        status = run_step(&c, &cell, run_cell_back);
    return finish(&c, status);
}
