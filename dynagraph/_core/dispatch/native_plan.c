/* Native plans: calls of generated code. */
#include "plans.h"
#include "sessions.h"

/* a row (dtype, shape, scalar[, input[, axes]]) */
static int parse_output(dg_output *out, PyObject *row, const dg_plan *plan)
{
    PyObject *dtype, *shape, *axes = NULL;
    if (!PyTuple_Check(row)) {
        PyErr_Format(PyExc_TypeError, "plan: an output is (dtype, shape, scalar[, input[, axes]]), got %R", row);
        return -1;
    }
    if (!PyArg_ParseTuple(row, "OO!p|iO!;an output is (dtype, shape, scalar[, input[, axes]])", &dtype, &PyTuple_Type, &shape,
                          &out->scalar, &out->into, &PyTuple_Type, &axes))
        return -1;
    if (axes && dg_output_parse_axes(out, axes) < 0)
        return -1;
    if (out->transposed && (out->into >= 0 || PyTuple_GET_SIZE(axes) != PyTuple_GET_SIZE(shape))) {
        PyErr_Format(PyExc_ValueError, "plan: axes %R of an output of %zd dimensions that is a new array", axes,
                     PyTuple_GET_SIZE(shape));
        return -1;
    }
    return dg_output_parse(out, dtype, shape, plan->n_inputs, plan->n_symbols);
}

PyObject *dg_native_plan_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"address", "keepalive", "n_inputs", "outputs", "workspace", "result", "release_gil", "n_symbols", "n_checks",
                            "external_call", "prologue", "limits", "better", NULL};
    PyObject *address, *better = NULL, *keepalive, *outputs, *workspace, *result, *external_call = Py_None, *prologue = NULL, *limits = NULL;
    int n_inputs, release_gil, n_symbols, n_checks = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OiO!OOpi|iOO!O!O:NativePlan", names, &PyLong_Type, &address, &keepalive,
                                     &n_inputs, &PyTuple_Type, &outputs, &workspace, &result, &release_gil, &n_symbols, &n_checks,
                                     &external_call, &PyTuple_Type, &prologue, &PyTuple_Type, &limits, &better))
        return NULL;
    if (external_call != Py_None && !PyCallable_Check(external_call))
        return PyErr_Format(PyExc_TypeError, "NativePlan: external_call=%R is not callable", external_call);
    int computes = PyObject_IsTrue(address);
    if (!computes && PyTuple_GET_SIZE(outputs) > 0)
        return PyErr_Format(PyExc_ValueError, "NativePlan: outputs, but the address of the entry is null");
    dg_plan *plan = dg_plan_new(type, n_inputs, (int)PyTuple_GET_SIZE(outputs), n_symbols, n_checks);
    if (!plan)
        return NULL;
    plan->release_gil = release_gil;
    plan->callee.function = external_call == Py_None ? NULL : Py_NewRef(external_call);
    plan->callee.n_sizes = n_symbols;
    plan->may_bail_out = n_checks > 0 || plan->callee.function;
    int ok = !computes || dg_code_parse(&plan->code, "NativePlan", address, keepalive, better) == 0;
    ok = ok && dg_size_parse(workspace, n_symbols, &plan->workspace) == 0 && dg_sizes_parse(limits, n_symbols, &plan->limits) == 0;
    for (int k = 0; k < plan->n_outputs && ok; ++k)
        ok = parse_output(&plan->outputs[k], PyTuple_GET_ITEM(outputs, k), plan) == 0;
    return dg_plan_finish(plan, ok, result, prologue);
}

/* -- running ------------------------------------------------------------------------------------------------------------- */

/* Where memory cannot be had and nothing has happened yet the plan bails out: the plain run raises what there is to raise. */
static void bail_out_without_memory(const dg_plan *plan)
{
    if (plan->n_steps == 0 && (PyErr_ExceptionMatches(PyExc_MemoryError) || PyErr_ExceptionMatches(PyExc_ValueError)))
        PyErr_Clear();
}

enum { MANY_ELEMENTS = 1 << 14 }; /* with so many, releasing the GIL (0.1 us) is nothing beside the work */

/* `release_gil` is what the sizes say that the program was captured with. */
static int has_grown(const dg_plan *plan, const int64_t *sizes)
{
    int64_t elements = 1;
    for (int k = 0; k < plan->n_symbols; ++k)
        if (sizes[k] > 1 && __builtin_mul_overflow(elements, sizes[k], &elements))
            return 1;
    return elements > MANY_ELEMENTS;
}

static void *take_workspace(int64_t size)
{
    void *taken = dg_pool_take((size_t)size);
    if (taken)
        return taken;
    npy_intp shape[] = {(npy_intp)size}; /* for NumPy's error */
    PyObject *array = PyArray_EMPTY(1, shape, NPY_BYTE, 0);
    Py_XDECREF(array);
    if (array)
        PyErr_NoMemory();
    return NULL;
}

/* 1: the memory of output `k` is in buffers[n_inputs + k], and *made the array that it is of (null: a scalar); 0: the plan bails out,
   or an exception is set */
static int place_output(const dg_plan *plan, const dg_frame *frame, int k, void **buffers, void *scalar, PyObject **made)
{
    const dg_output *out = &plan->outputs[k];
    void **buffer = &buffers[plan->n_inputs + k];
    *made = NULL;
    if (out->scalar) {
        *buffer = scalar;
        return 1;
    }
    if (out->into >= 0) {
        *made = Py_NewRef(frame->input_objects[out->into]);
        *buffer = buffers[out->into];
        return 1;
    }
    npy_intp dims[DG_MAX_DIMS];
    int64_t nbytes = (int64_t)out->nbytes;
    if (!out->fixed && !dg_output_bytes(out, frame->sizes, 0, dims, &nbytes)) {
        if (plan->n_steps)
            PyErr_SetString(PyExc_ValueError, "negative dimensions are not allowed");
        return 0;
    }
    if (!(*made = dg_new_array(out->descr, out->ndim, out->fixed ? out->dims : dims, (size_t)nbytes))) {
        bail_out_without_memory(plan);
        return 0;
    }
    *buffer = PyArray_DATA((PyArrayObject *)*made);
    if (out->transposed)
        dg_transpose((PyArrayObject *)*made, out->axes);
    return 1;
}

/* 1: the code has run to its end; 0: the plan bails out, the code was stopped, or an exception is set */
static int run_code(dg_plan *plan, dg_frame *frame, PyObject **owner, void **buffers)
{
    void *workspace = NULL;
    int64_t size = dg_size_now(&plan->workspace, frame->sizes);
    _Alignas(64) char small[2048];
    if (size > (int64_t)sizeof small && !(workspace = take_workspace(size))) {
        bail_out_without_memory(plan);
        return 0;
    }
    static const int32_t no_signals = 0;
    const int32_t *signals = frame->undisturbed || !dg_plan_can_be_repeated(plan) ? NULL : dg_pending_signals();
    dg_stop stop = {signals ? signals : &no_signals, 0};
    if (!signals) /* else the call may be made again */
        dg_plan_release(plan, owner);
    int n = plan->n_inputs + plan->n_outputs, failed;
    buffers[n] = workspace ? workspace : small;
    buffers[n + 1] = &plan->callee;
    dg_entry_point entry = (dg_entry_point)plan->code.run;
    PyObject *keepalive = Py_NewRef(plan->code.keepalive); /* better code may take its place while it runs */
    if (plan->release_gil || has_grown(plan, frame->sizes)) {
        PyThreadState *state = PyEval_SaveThread();
        failed = entry(buffers, frame->sizes, &dg_the_runtime, &stop);
        PyEval_RestoreThread(state);
    } else {
        failed = entry(buffers, frame->sizes, &dg_the_runtime, &stop);
    }
    Py_DECREF(keepalive);
    dg_pool_give(workspace);
    frame->stopped = failed == DG_STOPPED;
    if (failed && failed != DG_BAILED_OUT && failed != DG_RAISED && failed != DG_STOPPED)
        PyErr_NoMemory();
    return !failed;
}

/* owner is cleared once all memory is there, or where signals may stop the program, once it has ended */
PyObject *dg_native_plan_run(dg_plan *plan, dg_frame *frame, PyObject **owner, PyObject **callee)
{
    if (!plan->code.run) {
        dg_plan_release(plan, owner);
        return dg_plan_build_result(plan, frame, NULL, callee);
    }
    int looked = dg_code_look(&plan->code, &frame->late);
    if (looked < 0)
        return NULL;
    if (looked && frame->session)
        frame->session->quiet = 0;
    enum { EACH_OUTPUT = DG_SCALAR_SIZE + sizeof(PyObject *) + sizeof(void *), FEW = DG_FEW_ARRAYS };
    _Alignas(16) char few[FEW * EACH_OUTPUT + (FEW + 2) * sizeof(void *)];
    size_t n_inputs = (size_t)plan->n_inputs, n_outputs = (size_t)plan->n_outputs;
    char *room = dg_room(few, sizeof few, n_outputs * EACH_OUTPUT + (n_inputs + 2) * sizeof(void *));
    if (!room) {
        PyErr_NoMemory();
        bail_out_without_memory(plan);
        return NULL;
    }
    char (*scalars)[DG_SCALAR_SIZE] = (char(*)[DG_SCALAR_SIZE])room;
    PyObject **outputs = (PyObject **)(scalars + n_outputs), *result = NULL;
    void **buffers = (void **)(outputs + n_outputs);
    int made = 0;
    memcpy(buffers, frame->inputs, sizeof *buffers * (size_t)plan->n_inputs);
    while (made < plan->n_outputs && place_output(plan, frame, made, buffers, scalars[made], &outputs[made]))
        ++made;
    int ok = made == plan->n_outputs && run_code(plan, frame, owner, buffers);
    if (ok)
        dg_plan_release(plan, owner);
    for (int k = 0; k < plan->n_outputs && ok; ++k)
        if (plan->outputs[k].scalar)
            ok = (outputs[k] = dg_scalar_object(plan->outputs[k].descr, scalars[k])) != NULL;
    if (ok)
        result = dg_plan_build_result(plan, frame, outputs, callee);
    for (int k = 0; k < made; ++k)
        Py_XDECREF(outputs[k]);
    dg_leave(room, few);
    return result;
}
