/* Calls of one function on the arrays of many tensors as one region of the thread pool: the steps of optimizers.

   The function is one of rows: what it stores in element k of some of its arrays depends on element k of its arrays, and on the last
   argument, which all calls share.  So arrays of several dimensions are given to it as rows, in the order of their memory. */
#include "entries.h"
#include "plans.h"

/* LARGE: elements of an array that is worth a region of its own; FEW: elements that are not worth one */
enum { LARGE = 1 << 17, FEW = 1 << 15, MOST_WORKSPACE = 2048, MOST_BUFFERS = 64, MOST_KINDS = 16, SHARED = MOST_BUFFERS };

typedef struct {
    dg_entry_point code;
    void **buffers; /* inputs and outputs */
    const int64_t *sizes;
    int64_t start, length; /* elements: of the jobs before it that are not large, its own */
    int n_buffers, n_extents;
} job;

/* Calls that an entry is known to serve without asking its guards: their arrays are floats and lie in memory as those of `call` do.
   Guards see nothing else of them, but for which memory they share; of that, `all_disjoint` sees all. */
typedef struct {
    PyObject *call;
    dg_entry *entry;
    const job *job;
    unsigned char arguments[MOST_BUFFERS]; /* of inputs: numbers of arrays in the call, or SHARED */
} kind;

/* what one region runs, and what it needs for that */
typedef struct {
    PyObject *entries, *shared, *kept, *left; /* kept: what keeps the jobs' arrays; left: the calls that no entry serves */
    int n_sizes, n_buffers, n_kinds;          /* sizes and buffers: of the entry that has most */
    Py_ssize_t n_jobs, n_extents;
    int64_t n; /* elements of the jobs that are not large */
    job *jobs;
    kind kinds[MOST_KINDS];
    dg_extent *extents; /* of each job's inputs; `sharing` has room to put them in order */
    uint32_t *sharing;
    void **buffers;
    int64_t *sizes;
} region;

static int n_buffers_of(const dg_plan *plan) { return plan->n_inputs + plan->n_outputs; }

/* whether a plan does nothing but to store in its inputs what it computes */
static int only_writes(const dg_plan *plan)
{
    int fits = plan->code.run && !plan->code.better && !plan->may_bail_out && !plan->n_steps && !plan->n_checks &&
               !plan->workspace.length && plan->workspace.constant <= MOST_WORKSPACE &&
               n_buffers_of(plan) + 2 <= MOST_BUFFERS;
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

static int is_written(const dg_plan *plan, int input)
{
    int written = 0;
    for (int out = 0; out < plan->n_outputs; ++out)
        written |= plan->outputs[out].into == input;
    return written;
}

/* notes which memory a job reads and writes; what all jobs share is noted with the first */
static int note_extents(region *all, const dg_plan *plan, PyObject *const *inputs)
{
    const Py_ssize_t before = all->n_extents;
    for (int k = 0; k < plan->n_inputs; ++k) {
        PyArrayObject *array = (PyArrayObject *)inputs[k];
        if (!PyArray_CheckExact(inputs[k]) || (inputs[k] == all->shared && all->n_jobs))
            continue;
        const char *data = PyArray_BYTES(array);
        all->extents[all->n_extents++] = (dg_extent){data, data + PyArray_NBYTES(array), is_written(plan, k)};
    }
    return (int)(all->n_extents - before);
}

static void add(region *all, dg_entry *entry, void *const *inputs, const int64_t *sizes, int64_t length, int n_extents)
{
    const dg_plan *plan = (dg_plan *)entry->plan;
    void **buffers = all->buffers + all->n_jobs * all->n_buffers;
    memcpy(buffers, inputs, sizeof *buffers * (size_t)plan->n_inputs);
    for (int k = 0; k < plan->n_outputs; ++k)
        buffers[plan->n_inputs + k] = buffers[plan->outputs[k].into];
    all->jobs[all->n_jobs++] = (job){.code = (dg_entry_point)plan->code.run, .buffers = buffers, .sizes = sizes, .start = all->n,
                                     .length = length, .n_buffers = n_buffers_of(plan), .n_extents = n_extents};
    all->n += length < LARGE ? length : 0;
    ++entry->hits;
}

/* -- calls like others ------------------------------------------------------------------------------------------------------ */

/* remembers what was found of a call, if all that the guards have seen of it is how its arrays lie */
static void add_kind(region *all, PyObject *call, PyObject *rows, dg_entry *entry, PyObject *const *inputs)
{
    const dg_plan *plan = (dg_plan *)entry->plan;
    const Py_ssize_t n = PyTuple_GET_SIZE(call);
    kind *made = &all->kinds[all->n_kinds];
    if (all->n_kinds == MOST_KINDS || n >= SHARED)
        return;
    for (Py_ssize_t k = 0; k < n; ++k)
        if (!PyArray_ISFLOAT((PyArrayObject *)PyTuple_GET_ITEM(call, k)))
            return;
    for (int input = 0; input < plan->n_inputs; ++input) {
        int n_found = 0;
        for (Py_ssize_t k = 0; k <= n; ++k)
            if (PyTuple_GET_ITEM(rows, k) == inputs[input]) {
                made->arguments[input] = k < n ? (unsigned char)k : SHARED;
                ++n_found;
            }
        if (n_found != 1 || (inputs[input] == all->shared && is_written(plan, input)))
            return;
    }
    made->call = call;
    made->entry = entry;
    made->job = &all->jobs[all->n_jobs - 1];
    ++all->n_kinds;
}

static int lie_alike(PyObject *given, PyArrayObject *other)
{
    enum { FLAGS = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_F_CONTIGUOUS | NPY_ARRAY_ALIGNED | NPY_ARRAY_WRITEABLE };
    if (!PyArray_CheckExact(given))
        return 0;
    PyArrayObject *array = (PyArrayObject *)given;
    const int ndim = PyArray_NDIM(array);
    if (PyArray_DESCR(array) != PyArray_DESCR(other) || ndim != PyArray_NDIM(other) ||
        (PyArray_FLAGS(array) & FLAGS) != (PyArray_FLAGS(other) & FLAGS))
        return 0;
    for (int k = 0; k < ndim; ++k)
        if (PyArray_DIM(array, k) != PyArray_DIM(other, k) || PyArray_STRIDE(array, k) != PyArray_STRIDE(other, k))
            return 0;
    return 1;
}

/* 1: a job of an entry that has served a call like this one; 0: none was */
static int add_alike(region *all, PyObject *call)
{
    const Py_ssize_t n = PyTuple_GET_SIZE(call);
    for (int number = all->n_kinds; number-- > 0;) {
        const kind *like = &all->kinds[number];
        int same = PyTuple_GET_SIZE(like->call) == n;
        for (Py_ssize_t k = 0; k < n && same; ++k) {
            same = lie_alike(PyTuple_GET_ITEM(call, k), (PyArrayObject *)PyTuple_GET_ITEM(like->call, k));
            for (Py_ssize_t other = 0; other < k && same; ++other)
                same = PyTuple_GET_ITEM(call, k) != PyTuple_GET_ITEM(call, other);
        }
        if (!same)
            continue;
        const dg_plan *plan = (dg_plan *)like->entry->plan;
        PyObject *inputs[MOST_BUFFERS];
        void *data[MOST_BUFFERS];
        for (int k = 0; k < plan->n_inputs; ++k) {
            inputs[k] = like->arguments[k] == SHARED ? all->shared : PyTuple_GET_ITEM(call, like->arguments[k]);
            data[k] = like->arguments[k] == SHARED ? like->job->buffers[k] : PyArray_DATA((PyArrayObject *)inputs[k]);
        }
        add(all, like->entry, data, like->job->sizes, like->job->length, note_extents(all, plan, inputs));
        return 1;
    }
    return 0;
}

/* -- others ----------------------------------------------------------------------------------------------------------------- */

/* 1: a job of an entry that serves the rows of a call; 0: none serves them */
static int add_job(region *all, PyObject *call, PyObject *rows, dg_frame_memory *memory, dg_frame *frame)
{
    for (Py_ssize_t e = 0; e < PyList_GET_SIZE(all->entries); ++e) {
        dg_entry *entry = (dg_entry *)PyList_GET_ITEM(all->entries, e);
        dg_plan *plan = (dg_plan *)entry->plan;
        if (!entry->guards || !Py_IS_TYPE(entry->plan, &dg_NativePlanType) || !only_writes(plan) ||
            n_buffers_of(plan) > all->n_buffers || plan->n_symbols > all->n_sizes || !dg_frame_fit(memory, frame, entry))
            continue;
        frame->registers[0] = rows;
        if (dg_guards_run(entry->guards, frame, entry->closure) != -1 || !dg_plan_fits(plan, frame->sizes))
            continue;
        int64_t *sizes = all->sizes + all->n_jobs * all->n_sizes;
        memcpy(sizes, frame->sizes, sizeof *sizes * (size_t)plan->n_symbols);
        const int n_extents = note_extents(all, plan, frame->input_objects);
        add(all, entry, frame->inputs, sizes, PyArray_SIZE((PyArrayObject *)PyTuple_GET_ITEM(rows, 0)), n_extents);
        add_kind(all, call, rows, entry, frame->input_objects);
        return 1;
    }
    return 0;
}

/* Whether no job writes to memory of another one or, twice, of its own.  Arrays of one argument mostly lie in order: extents are
   sorted argument by argument. */
static int all_disjoint(const region *all)
{
    uint32_t n = 0;
    for (int argument = 0, more = 1; more; ++argument) {
        more = 0;
        for (Py_ssize_t k = 0, first = 0; k < all->n_jobs; first += all->jobs[k++].n_extents)
            if (argument < all->jobs[k].n_extents) {
                all->sharing[n++] = (uint32_t)(first + argument);
                more = 1;
            }
    }
    return dg_extents_are_disjoint(all->extents, all->sharing, all->sharing + all->n_extents, n);
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
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(calls) && !failed; ++k) {
        PyObject *call = PyTuple_GET_ITEM(calls, k);
        if (!PyTuple_Check(call)) {
            PyErr_Format(PyExc_TypeError, "run_each: a row is a tuple of arrays, got %s", Py_TYPE(call)->tp_name);
            failed = -1;
            break;
        }
        PyObject *rows = NULL; /* once the call is kept: guards may run any code */
        int is_added = PyList_Append(all->kept, call) == 0 && (add_alike(all, call) || ((rows = rows_of(call, all->shared)) &&
                       PyList_Append(all->kept, rows) == 0 && add_job(all, call, rows, &memory, &frame)));
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
        const dg_entry *entry = (dg_entry *)PyList_GET_ITEM(all->entries, e);
        const dg_plan *plan = (dg_plan *)entry->plan;
        all->n_sizes = entry->n_symbols > all->n_sizes ? entry->n_symbols : all->n_sizes;
        if (Py_IS_TYPE(entry->plan, &dg_NativePlanType) && n_buffers_of(plan) > all->n_buffers)
            all->n_buffers = n_buffers_of(plan);
    }
    const size_t n_buffers = (n_calls + 1) * (size_t)all->n_buffers + 1;
    all->jobs = PyMem_Malloc((n_calls + 1) * sizeof *all->jobs);
    all->extents = PyMem_Malloc(n_buffers * sizeof *all->extents);
    all->sharing = PyMem_Malloc(n_buffers * 2 * sizeof *all->sharing);
    all->buffers = PyMem_Malloc(n_buffers * sizeof *all->buffers);
    all->sizes = PyMem_Malloc((n_calls + 1) * ((size_t)all->n_sizes + 1) * sizeof *all->sizes);
    return all->jobs && all->extents && all->sharing && all->buffers && all->sizes;
}

PyObject *dg_run_each(PyObject *module, PyObject *args)
{
    region all = {0};
    PyObject *given;
    if (!PyArg_ParseTuple(args, "O!O!O:run_each", &PyList_Type, &all.entries, &PyList_Type, &given, &all.shared))
        return NULL;
    for (Py_ssize_t e = 0; e < PyList_GET_SIZE(all.entries); ++e)
        if (!Py_IS_TYPE(PyList_GET_ITEM(all.entries, e), &dg_EntryType))
            return PyErr_Format(PyExc_TypeError, "run_each: expected a list of entries, got %R", all.entries);
    all.kept = PyList_New(0);
    all.left = PyList_New(0);
    PyObject *result = NULL, *calls = PyList_AsTuple(given); /* as it is now: guards may run any code */
    if (!calls || !all.kept || !all.left)
        goto done;
    if (!make_room(&all, (size_t)PyTuple_GET_SIZE(calls))) {
        PyErr_NoMemory();
        goto done;
    }
    if (add_jobs(&all, calls) < 0)
        goto done;
    if (!all_disjoint(&all))
        result = PySequence_List(calls); /* one after the other, then */
    else {
        run(&all);
        result = Py_NewRef(all.left);
    }
done:
    Py_XDECREF(calls);
    Py_XDECREF(all.kept);
    Py_XDECREF(all.left);
    PyMem_Free(all.jobs);
    PyMem_Free(all.extents);
    PyMem_Free(all.sharing);
    PyMem_Free(all.buffers);
    PyMem_Free(all.sizes);
    return result;
}
