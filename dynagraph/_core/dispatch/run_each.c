/* Calls of one function on the arrays of many tensors as one region of the thread pool: the steps of optimizers.

   The function is one of rows: what it stores in element k of some of its arrays depends on element k of its arrays, and on the last
   argument, which all calls share.  So arrays of several dimensions are given to it as rows, in the order of their memory. */
#include "entries.h"
#include "plans.h"

/* LARGE: elements of an array that is worth a region of its own; FEW: elements that are not worth one */
enum { LARGE = 1 << 17, FEW = 1 << 15, MOST_WORKSPACE = 2048, MOST_BUFFERS = 64 };

typedef struct {
    dg_entry_point code;
    void **buffers; /* inputs and outputs */
    const int64_t *sizes;
    int64_t start, length; /* elements: of the jobs before it that are not large, its own */
    int n_buffers;
} job;

typedef struct {
    const char *first, *last;
    int is_written;
} extent;

/* what one region runs, and what it needs for that */
typedef struct {
    PyObject *entries, *shared, *rows, *left; /* rows: a tuple for each call; left: the calls that no entry serves */
    int n_sizes;                     /* of the entry that has most */
    Py_ssize_t n_jobs, n_extents;
    int64_t n; /* elements of the jobs that are not large */
    job *jobs;
    extent *extents;
    void **buffers;
    int64_t *sizes;
} region;

/* whether a plan does nothing but to store in its inputs what it computes */
static int only_writes(const dg_plan *plan)
{
    int fits = plan->code.run && !plan->code.better && !plan->may_bail_out && !plan->n_steps && !plan->n_checks &&
               !plan->workspace.length && plan->workspace.constant <= MOST_WORKSPACE &&
               plan->n_inputs + plan->n_outputs + 2 <= MOST_BUFFERS;
    for (int k = 0; k < plan->n_outputs && fits; ++k)
        fits = plan->outputs[k].into >= 0 && !plan->outputs[k].scalar;
    return fits;
}

/* An array as a row that shares its memory; null without an exception: it is none, and in that order none that the others are. */
static PyObject *row_of(PyObject *given, PyArrayObject *first)
{
    if (!PyArray_CheckExact(given))
        return NULL;
    PyArrayObject *array = (PyArrayObject *)given;
    int ndim = PyArray_NDIM(array), is_same = ndim == PyArray_NDIM(first);
    for (int k = 0; k < ndim && is_same; ++k)
        is_same = PyArray_DIM(array, k) == PyArray_DIM(first, k) &&
                  (PyArray_DIM(array, k) == 1 || PyArray_STRIDE(array, k) * PyArray_ITEMSIZE(first) ==
                                                     PyArray_STRIDE(first, k) * PyArray_ITEMSIZE(array));
    if (!is_same)
        return NULL;
    if (ndim == 1)
        return Py_NewRef(given);
    PyObject *row = PyArray_Ravel(array, NPY_KEEPORDER);
    if (row && PyArray_DATA((PyArrayObject *)row) != PyArray_DATA(array)) /* it has gaps */
        Py_CLEAR(row);
    return row;
}

/* the arguments of a call, its arrays as rows; null without an exception: they have none */
static PyObject *rows_of(PyObject *call, PyObject *shared)
{
    Py_ssize_t n = PyTuple_GET_SIZE(call);
    if (n < 1 || !PyArray_CheckExact(PyTuple_GET_ITEM(call, 0)))
        return NULL;
    PyObject *rows = PyTuple_New(n + 1);
    if (!rows)
        return NULL;
    PyTuple_SET_ITEM(rows, n, Py_NewRef(shared));
    for (Py_ssize_t k = 0; k < n; ++k) {
        PyObject *row = row_of(PyTuple_GET_ITEM(call, k), (PyArrayObject *)PyTuple_GET_ITEM(call, 0));
        if (!row) {
            Py_DECREF(rows);
            return NULL;
        }
        PyTuple_SET_ITEM(rows, k, row);
    }
    return rows;
}

/* notes which memory a job reads and writes; what all jobs share is noted with the first */
static void note_extents(region *all, const dg_plan *plan, const dg_frame *frame)
{
    for (int k = 0; k < plan->n_inputs; ++k) {
        PyObject *object = frame->input_objects[k];
        PyArrayObject *array = (PyArrayObject *)object;
        if (!PyArray_CheckExact(object) || (object == all->shared && all->n_jobs))
            continue;
        int is_written = 0;
        for (int out = 0; out < plan->n_outputs; ++out)
            is_written |= plan->outputs[out].into == k;
        all->extents[all->n_extents++] = (extent){PyArray_BYTES(array), PyArray_BYTES(array) + PyArray_NBYTES(array), is_written};
    }
}

/* 1: a job of an entry that serves the rows; 0: none serves them */
static int add_job(region *all, PyObject *rows, dg_frame_memory *memory, dg_frame *frame)
{
    for (Py_ssize_t e = 0; e < PyList_GET_SIZE(all->entries); ++e) {
        dg_entry *entry = (dg_entry *)PyList_GET_ITEM(all->entries, e);
        dg_plan *plan = (dg_plan *)entry->plan;
        if (!entry->guards || !Py_IS_TYPE(entry->plan, &dg_NativePlanType) || !only_writes(plan) || !dg_frame_fit(memory, frame, entry))
            continue;
        frame->registers[0] = rows;
        if (dg_guards_run(entry->guards, frame, entry->closure) != -1 || !dg_plan_fits(plan, frame->sizes))
            continue;
        void **buffers = all->buffers + all->n_jobs * MOST_BUFFERS;
        int64_t *sizes = all->sizes + all->n_jobs * all->n_sizes;
        memcpy(buffers, frame->inputs, sizeof *buffers * (size_t)plan->n_inputs);
        for (int k = 0; k < plan->n_outputs; ++k)
            buffers[plan->n_inputs + k] = buffers[plan->outputs[k].into];
        memcpy(sizes, frame->sizes, sizeof *sizes * (size_t)plan->n_symbols);
        note_extents(all, plan, frame);
        int64_t length = PyArray_SIZE((PyArrayObject *)PyTuple_GET_ITEM(rows, 0));
        all->jobs[all->n_jobs++] =
            (job){(dg_entry_point)plan->code.run, buffers, sizes, all->n, length, plan->n_inputs + plan->n_outputs};
        all->n += length < LARGE ? length : 0;
        ++entry->hits;
        return 1;
    }
    return 0;
}

static int by_address(const void *a, const void *b)
{
    const extent *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

/* whether a job writes to memory of another one; within one, the guards have looked */
static int any_shared(region *all)
{
    qsort(all->extents, (size_t)all->n_extents, sizeof *all->extents, by_address);
    const char *seen = NULL, *written = NULL; /* how far what began before reaches */
    for (Py_ssize_t k = 0; k < all->n_extents; ++k) {
        const extent *x = &all->extents[k];
        if (x->first < (x->is_written ? seen : written))
            return 1;
        seen = x->last > seen ? x->last : seen;
        written = x->is_written && x->last > written ? x->last : written;
    }
    return 0;
}

static void run_job(const job *one, dg_stop *stop)
{
    _Alignas(64) char workspace[MOST_WORKSPACE];
    void *buffers[MOST_BUFFERS];
    memcpy(buffers, one->buffers, sizeof *buffers * (size_t)one->n_buffers);
    buffers[one->n_buffers] = workspace;
    buffers[one->n_buffers + 1] = NULL;
    one->code(buffers, one->sizes, &dg_the_runtime, stop);
}

/* the jobs that begin in elements lo to hi; their loops find the pool busy, and run in this thread */
static void run_jobs(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    const region *all = buffers[0];
    Py_ssize_t first = 0, end = all->n_jobs;
    while (first < end) {
        Py_ssize_t middle = (first + end) / 2;
        if (all->jobs[middle].start < lo)
            first = middle + 1;
        else
            end = middle;
    }
    for (; first < all->n_jobs && all->jobs[first].start < hi; ++first)
        if (all->jobs[first].length < LARGE)
            run_job(&all->jobs[first], stop);
}

static void run(region *all)
{
    static const int32_t no_signals = 0; /* nothing stops it: what is written is written */
    dg_stop stop = {&no_signals, 0};
    void *given[] = {all};
    PyThreadState *state = PyEval_SaveThread();
    for (Py_ssize_t k = 0; k < all->n_jobs; ++k)
        if (all->jobs[k].length >= LARGE)
            run_job(&all->jobs[k], &stop);
    if (all->n < FEW)
        run_jobs(given, NULL, 0, all->n, 0, &stop);
    else
        dg_the_runtime.parallel(run_jobs, given, NULL, all->n, 1, all->n, &stop);
    PyEval_RestoreThread(state);
}

/* fills the region with jobs for the calls; -1: an exception is set */
static int add_jobs(region *all, PyObject *calls)
{
    dg_frame_memory memory;
    dg_frame frame = dg_frame_over(&memory);
    int failed = 0;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(calls) && !failed; ++k) {
        PyObject *call = PyList_GET_ITEM(calls, k);
        if (!PyTuple_Check(call)) {
            PyErr_Format(PyExc_TypeError, "run_each: a row is a tuple of arrays, got %s", Py_TYPE(call)->tp_name);
            failed = -1;
            break;
        }
        PyObject *rows = rows_of(call, all->shared);
        int is_added = rows && PyList_Append(all->rows, rows) == 0 && add_job(all, rows, &memory, &frame);
        failed = PyErr_Occurred() || (!is_added && PyList_Append(all->left, call) < 0) ? -1 : 0;
        Py_XDECREF(rows);
    }
    dg_frame_leave(&memory);
    return failed;
}

/* room for so many calls; 0: there is none */
static int make_room(region *all, size_t n_calls)
{
    for (Py_ssize_t e = 0; e < PyList_GET_SIZE(all->entries); ++e) {
        int n = ((dg_entry *)PyList_GET_ITEM(all->entries, e))->n_symbols;
        all->n_sizes = n > all->n_sizes ? n : all->n_sizes;
    }
    all->jobs = PyMem_Malloc((n_calls + 1) * sizeof *all->jobs);
    all->extents = PyMem_Malloc((n_calls + 1) * MOST_BUFFERS * sizeof *all->extents);
    all->buffers = PyMem_Malloc((n_calls + 1) * MOST_BUFFERS * sizeof *all->buffers);
    all->sizes = PyMem_Malloc((n_calls + 1) * ((size_t)all->n_sizes + 1) * sizeof *all->sizes);
    return all->jobs && all->extents && all->buffers && all->sizes;
}

PyObject *dg_run_each(PyObject *module, PyObject *args)
{
    region all = {0};
    PyObject *calls;
    if (!PyArg_ParseTuple(args, "O!O!O:run_each", &PyList_Type, &all.entries, &PyList_Type, &calls, &all.shared))
        return NULL;
    for (Py_ssize_t e = 0; e < PyList_GET_SIZE(all.entries); ++e)
        if (!Py_IS_TYPE(PyList_GET_ITEM(all.entries, e), &dg_EntryType))
            return PyErr_Format(PyExc_TypeError, "run_each: expected a list of entries, got %R", all.entries);
    all.rows = PyList_New(0);
    all.left = PyList_New(0);
    PyObject *result = NULL;
    if (!all.rows || !all.left)
        goto done;
    if (!make_room(&all, (size_t)PyList_GET_SIZE(calls))) {
        PyErr_NoMemory();
        goto done;
    }
    if (add_jobs(&all, calls) < 0)
        goto done;
    if (any_shared(&all))
        result = PyList_GetSlice(calls, 0, PyList_GET_SIZE(calls)); /* one after the other, then */
    else {
        run(&all);
        result = Py_NewRef(all.left);
    }
done:
    Py_XDECREF(all.rows);
    Py_XDECREF(all.left);
    PyMem_Free(all.jobs);
    PyMem_Free(all.extents);
    PyMem_Free(all.buffers);
    PyMem_Free(all.sizes);
    return result;
}
