/* Plans: what an entry does once its guards hold.  A native plan calls generated code; a Python plan calls a callable. */
#include "core.h"

#include <structmember.h>

enum { SCALAR_SIZE = 16 };

typedef struct {
    PyArray_Descr *descr;
    int ndim, scalar;
    int into; /* the input whose memory it is written to; -1: a new array */
    int transposed; /* so many axes (or 0), by which the user gets the transpose of the C-contiguous array that the program writes */
    signed char axes[DG_MAX_DIMS];
    dg_size shape[DG_MAX_DIMS];
    /* where all sizes are constants */
    int fixed;
    npy_intp dims[DG_MAX_DIMS];
    size_t nbytes;
} output;

/* a call that is made before the program runs; what it gives may be an input of the program */
typedef struct {
    dg_recipe *recipe; /* a memo: the result's recipe refers to what it gave */
    int slot;          /* of the input; -1: none */
    output input;      /* what the input is */
} step;

struct dg_plan {
    PyObject_HEAD
    dg_entry_point entry;      /* native; null: nothing to compute, the recipe only */
    PyObject *keepalive;       /* what owns the code; or the callable */
    int n_checks; /* the last outputs: bools, one of which being true refuses the call */
    int n_inputs, n_outputs, n_symbols, n_memo, release_gil;
    dg_callee callee; /* native: the function that the code calls out to, or null */
    int may_refuse;
    int repeatable; /* the callable is a function of its inputs: what it raises it raises again */
    PyObject *launcher; /* of the callable's kernels, for the calls that it serves; or null */
    output *outputs;
    int n_steps;
    step *prologue;
    unsigned char drawn[DG_MAX_ARRAYS]; /* inputs that the prologue gives */
    dg_size workspace;
    int n_limits;
    dg_size *limits;
    int64_t safe; /* where no symbol is above it no size of the plan exceeds 64 bits */
    dg_recipe *recipe;
    /* registers that the recipe reads: while a program runs, other code may change what they were loaded from */
    int n_held;
    short *held;
};

int dg_plan_inputs(PyObject *plan) { return ((dg_plan *)plan)->n_inputs; }
int dg_plan_symbols(PyObject *plan) { return ((dg_plan *)plan)->n_symbols; }
const unsigned char *dg_plan_drawn(PyObject *plan) { return ((dg_plan *)plan)->drawn; }

int dg_plan_reads(PyObject *plan, unsigned char *read)
{
    dg_plan *p = (dg_plan *)plan;
    int highest = dg_recipe_reads(p->recipe, read);
    for (int k = 0; k < p->n_steps; ++k) {
        int other = dg_recipe_reads(p->prologue[k].recipe, read);
        highest = other > highest ? other : highest;
    }
    return highest;
}

/* -- making ---------------------------------------------------------------------------------------------------------------- */

/* The bytes of an output: by the sizes of a call, or the most where no symbol is above `bound`; 0: that does not fit into 64 bits, or
   a size is negative. */
static int output_bytes(const output *out, const int64_t *sizes, int64_t bound, npy_intp *dims, int64_t *nbytes)
{
    int is_empty = 0, fits = 1;
    *nbytes = PyDataType_ELSIZE(out->descr);
    for (int k = 0; k < out->ndim && fits; ++k) {
        int64_t dim;
        fits = (sizes ? dg_size_run(&out->shape[k], sizes, &dim) : dg_size_most(&out->shape[k], bound, &dim)) && dim >= 0;
        dims[k] = fits ? (npy_intp)dim : 0;
        is_empty |= fits && dim == 0;
        fits = fits && !__builtin_mul_overflow(*nbytes, dim ? dim : 1, nbytes); /* as NumPy does: empty arrays have limits too */
    }
    if (is_empty)
        *nbytes = 0;
    return fits;
}

static int one_fits(const dg_size *size, const int64_t *sizes, int64_t bound)
{
    int64_t value;
    return sizes ? dg_size_run(size, sizes, &value) : dg_size_most(size, bound, &value);
}

/* whether all sizes of the plan fit into 64 bits, for the sizes of a call, or where no symbol is above `bound` */
static int sizes_fit(const dg_plan *plan, const int64_t *sizes, int64_t bound)
{
    npy_intp dims[DG_MAX_DIMS];
    int64_t nbytes;
    int fits = one_fits(&plan->workspace, sizes, bound);
    for (int k = 0; fits && k < plan->n_outputs; ++k)
        fits = !plan->outputs[k].descr || output_bytes(&plan->outputs[k], sizes, bound, dims, &nbytes);
    for (int k = 0; fits && k < plan->n_limits; ++k)
        fits = one_fits(&plan->limits[k], sizes, bound);
    for (int k = 0; fits && k < plan->n_steps; ++k)
        fits = sizes ? dg_recipe_fits(plan->prologue[k].recipe, sizes) : dg_recipe_fits_below(plan->prologue[k].recipe, bound);
    return fits && (sizes ? dg_recipe_fits(plan->recipe, sizes) : dg_recipe_fits_below(plan->recipe, bound));
}

static void find_safe(dg_plan *plan)
{
    for (plan->safe = (int64_t)1 << 62; plan->safe && !sizes_fit(plan, NULL, plan->safe);)
        plan->safe >>= 1;
}

static inline int fits_sizes(const dg_plan *plan, const int64_t *sizes)
{
    for (int k = 0; k < plan->n_symbols; ++k)
        if (sizes[k] > plan->safe)
            return sizes_fit(plan, sizes, 0);
    return 1;
}

/* axes: empty, or a permutation of 0 to n - 1 */
static int parse_axes(output *out, PyObject *axes)
{
    unsigned seen = 0;
    Py_ssize_t n = PyTuple_GET_SIZE(axes);
    for (Py_ssize_t k = 0; k < n && n <= DG_MAX_DIMS; ++k) {
        long axis = PyLong_AsLong(PyTuple_GET_ITEM(axes, k));
        if (axis == -1 && PyErr_Occurred())
            return -1;
        if (axis < 0 || axis >= n)
            break;
        out->axes[k] = (signed char)axis;
        seen |= 1u << axis;
    }
    if (n > DG_MAX_DIMS || seen != (1u << n) - 1) {
        PyErr_Format(PyExc_ValueError, "plan: the axes of an output are a permutation of all of its axes, not %R", axes);
        return -1;
    }
    out->transposed = (int)n;
    return 0;
}

static int parse_output(output *out, PyObject *row, int n_symbols, int n_inputs)
{
    PyObject *shape, *axes = NULL;
    out->into = -1;
    if (!PyTuple_Check(row) ||
        !PyArg_ParseTuple(row, "O&O!p|iO!;an output is (dtype, shape, scalar[, input[, axes]])", PyArray_DescrConverter,
                          &out->descr, &PyTuple_Type, &shape, &out->scalar, &out->into, &PyTuple_Type, &axes)) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_TypeError, "plan: an output is (dtype, shape, scalar[, input[, axes]]), got %R", row);
        return -1;
    }
    if (axes && parse_axes(out, axes) < 0)
        return -1;
    if (out->transposed && (out->into >= 0 || PyTuple_GET_SIZE(axes) != PyTuple_GET_SIZE(shape))) {
        PyErr_Format(PyExc_ValueError, "plan: axes %R of an output of %zd dimensions that is a new array", axes,
                     PyTuple_GET_SIZE(shape));
        return -1;
    }
    if (out->into >= n_inputs || (out->into >= 0 && out->scalar)) {
        PyErr_Format(PyExc_ValueError, "plan: an output into input %d of %d", out->into, n_inputs);
        return -1;
    }
    if (PyTuple_GET_SIZE(shape) > DG_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "plan: an output of %zd dimensions; at most %d are possible", PyTuple_GET_SIZE(shape),
                     DG_MAX_DIMS);
        return -1;
    }
    if (!dg_plain_dtype(out->descr))
        return -1;
    out->ndim = (int)PyTuple_GET_SIZE(shape);
    out->fixed = 1;
    for (int k = 0; k < out->ndim; ++k) {
        if (dg_size_parse(PyTuple_GET_ITEM(shape, k), n_symbols, &out->shape[k]) < 0)
            return -1;
        out->fixed &= out->shape[k].length == 0;
        if (out->shape[k].constant < 0) {
            PyErr_Format(PyExc_ValueError, "plan: an output of negative size %lld", (long long)out->shape[k].constant);
            return -1;
        }
    }
    int64_t nbytes = 0;
    if (out->fixed && !output_bytes(out, NULL, 0, out->dims, &nbytes)) {
        PyErr_Format(PyExc_ValueError, "plan: an output of shape %R, whose size in bytes does not fit into 64 bits", shape);
        return -1;
    }
    out->nbytes = (size_t)nbytes;
    if (out->scalar && (out->ndim != 0 || PyDataType_ELSIZE(out->descr) > SCALAR_SIZE)) {
        PyErr_Format(PyExc_ValueError, "plan: a scalar output is 0-d, of at most %d bytes, not %d-d of %R", SCALAR_SIZE, out->ndim,
                     out->descr);
        return -1;
    }
    return 0;
}

static void output_clear(output *out)
{
    Py_XDECREF(out->descr);
    for (int axis = 0; axis < DG_MAX_DIMS; ++axis)
        dg_size_clear(&out->shape[axis]);
}

static void plan_dealloc(dg_plan *plan)
{
    PyObject_GC_UnTrack(plan);
    Py_CLEAR(plan->keepalive);
    Py_CLEAR(plan->callee.function);
    Py_CLEAR(plan->launcher);
    for (int k = 0; k < plan->n_outputs && plan->outputs; ++k)
        output_clear(&plan->outputs[k]);
    PyMem_Free(plan->outputs);
    for (int k = 0; k < plan->n_steps; ++k) {
        dg_recipe_free(plan->prologue[k].recipe);
        output_clear(&plan->prologue[k].input);
    }
    PyMem_Free(plan->prologue);
    PyMem_Free(plan->held);
    for (int k = 0; k < plan->n_limits && plan->limits; ++k)
        dg_size_clear(&plan->limits[k]);
    PyMem_Free(plan->limits);
    dg_size_clear(&plan->workspace);
    dg_recipe_free(plan->recipe);
    Py_TYPE(plan)->tp_free(plan);
}

static int plan_traverse(dg_plan *plan, visitproc visit, void *arg)
{
    Py_VISIT(plan->keepalive);
    Py_VISIT(plan->callee.function);
    Py_VISIT(plan->launcher);
    for (int k = 0; k < plan->n_steps; ++k) {
        int visited = dg_recipe_traverse(plan->prologue[k].recipe, visit, arg);
        if (visited)
            return visited;
    }
    return dg_recipe_traverse(plan->recipe, visit, arg);
}

static int counts_fit(dg_plan *plan)
{
    if (plan->n_inputs < 0 || plan->n_inputs > DG_MAX_ARRAYS || plan->n_outputs < 0 || plan->n_outputs > DG_MAX_ARRAYS ||
        plan->n_symbols < 0 || plan->n_symbols > DG_MAX_SYMBOLS) {
        PyErr_Format(PyExc_ValueError, "plan: %d inputs, %d outputs, %d symbols; at most %d, %d and %d are possible",
                     plan->n_inputs, plan->n_outputs, plan->n_symbols, DG_MAX_ARRAYS, DG_MAX_ARRAYS, DG_MAX_SYMBOLS);
        return 0;
    }
    return 1;
}

/* a recipe that keeps what it gives while the plan runs */
static int is_memo(PyObject *recipe)
{
    PyObject *name = PyTuple_Check(recipe) && PyTuple_GET_SIZE(recipe) ? PyTuple_GET_ITEM(recipe, 0) : NULL;
    return name && PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, "memo") == 0;
}

static int parse_limits(dg_plan *plan, PyObject *programs)
{
    Py_ssize_t n = programs ? PyTuple_GET_SIZE(programs) : 0;
    if (n && !(plan->limits = PyMem_Calloc((size_t)n, sizeof *plan->limits)))
        return -1;
    for (; plan->n_limits < n; ++plan->n_limits)
        if (dg_size_parse(PyTuple_GET_ITEM(programs, plan->n_limits), plan->n_symbols, &plan->limits[plan->n_limits]) < 0)
            return -1;
    return 0;
}

/* rows (memo,) or (memo, slot, dtype, shape, scalar) */
static int parse_prologue(dg_plan *plan, PyObject *rows)
{
    Py_ssize_t n = rows ? PyTuple_GET_SIZE(rows) : 0;
    if (n && !(plan->prologue = PyMem_Calloc((size_t)n, sizeof *plan->prologue)))
        return -1;
    for (Py_ssize_t k = 0; k < n; ++k) {
        step *s = &plan->prologue[k];
        PyObject *row = PyTuple_GET_ITEM(rows, k);
        Py_ssize_t length = PyTuple_Check(row) ? PyTuple_GET_SIZE(row) : 0;
        s->slot = -1;
        plan->n_steps = (int)k + 1;
        if ((length != 1 && length != 5) || !is_memo(PyTuple_GET_ITEM(row, 0))) {
            PyErr_Format(PyExc_TypeError, "plan: a step is (memo,) or (memo, slot, dtype, shape, scalar), got %R", row);
            return -1;
        }
        if (!(s->recipe = dg_recipe_new(PyTuple_GET_ITEM(row, 0), 0, plan->n_symbols, &plan->n_memo)))
            return -1;
        if (length == 1)
            continue;
        long slot = PyLong_AsLong(PyTuple_GET_ITEM(row, 1));
        if (slot < 0 || slot >= plan->n_inputs || plan->drawn[slot]) {
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_ValueError, "plan: a step gives input %ld of %d", slot, plan->n_inputs);
            return -1;
        }
        PyObject *what = PyTuple_GetSlice(row, 2, 5);
        int parsed = what ? parse_output(&s->input, what, plan->n_symbols, plan->n_inputs) : -1;
        Py_XDECREF(what);
        if (parsed < 0)
            return -1;
        s->slot = (int)slot;
        plan->drawn[slot] = 1;
    }
    return 0;
}

static int parse_recipe(dg_plan *plan, PyObject *description, PyObject *prologue)
{
    unsigned char read[DG_MAX_REGISTERS] = {0};
    if (parse_prologue(plan, prologue) < 0)
        return -1;
    if (!(plan->recipe = dg_recipe_new(description, plan->n_outputs, plan->n_symbols, &plan->n_memo)))
        return -1;
    int highest = dg_plan_reads((PyObject *)plan, read);
    if (!(plan->held = PyMem_Calloc((size_t)highest + 2, sizeof *plan->held)))
        return -1;
    for (int k = 0; k <= highest; ++k)
        if (read[k])
            plan->held[plan->n_held++] = (short)k;
    return 0;
}

static PyObject *native_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"address", "keepalive", "n_inputs", "outputs", "workspace", "result", "release_gil", "n_symbols", "n_checks",
                            "call_out", "prologue", "limits", NULL};
    unsigned long long address;
    PyObject *keepalive, *outputs, *workspace, *result, *call_out = Py_None, *prologue = NULL, *limits = NULL;
    int n_inputs, release_gil, n_symbols, n_checks = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "KOiO!OOpi|iOO!O!:NativePlan", names, &address, &keepalive, &n_inputs, &PyTuple_Type,
                                     &outputs, &workspace, &result, &release_gil, &n_symbols, &n_checks, &call_out, &PyTuple_Type,
                                     &prologue, &PyTuple_Type, &limits))
        return NULL;
    if (call_out != Py_None && !PyCallable_Check(call_out))
        return PyErr_Format(PyExc_TypeError, "NativePlan: call_out=%R is not callable", call_out);
    if (address == 0 && PyTuple_GET_SIZE(outputs) > 0)
        return PyErr_Format(PyExc_ValueError, "NativePlan: outputs, but the address of the entry is null");
    dg_plan *plan = (dg_plan *)type->tp_alloc(type, 0);
    if (!plan)
        return NULL;
    plan->entry = (dg_entry_point)(uintptr_t)address;
    plan->keepalive = Py_NewRef(keepalive);
    plan->n_inputs = n_inputs;
    plan->n_symbols = n_symbols;
    plan->release_gil = release_gil;
    plan->n_checks = n_checks;
    plan->callee.function = call_out == Py_None ? NULL : Py_NewRef(call_out);
    plan->callee.n_sizes = n_symbols;
    plan->may_refuse = n_checks > 0 || plan->callee.function;
    plan->n_outputs = (int)PyTuple_GET_SIZE(outputs);
    if (!counts_fit(plan) || !(plan->outputs = PyMem_Calloc((size_t)plan->n_outputs + 1, sizeof *plan->outputs)))
        goto fail;
    for (int k = 0; k < plan->n_outputs; ++k)
        if (parse_output(&plan->outputs[k], PyTuple_GET_ITEM(outputs, k), n_symbols, n_inputs) < 0)
            goto fail;
    if (dg_size_parse(workspace, n_symbols, &plan->workspace) < 0 || parse_limits(plan, limits) < 0 ||
        parse_recipe(plan, result, prologue) < 0)
        goto fail;
    find_safe(plan);
    return (PyObject *)plan;
fail:
    if (!PyErr_Occurred())
        PyErr_NoMemory();
    Py_DECREF(plan);
    return NULL;
}

static PyObject *python_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"callable", "n_inputs", "result", "n_symbols", "n_outputs", "scalars", "repeatable",
                            "into", "n_checks", "may_refuse", "prologue", "axes", "launcher", NULL};
    PyObject *callable, *result, *scalars = NULL, *into = NULL, *prologue = NULL, *axes = NULL, *launcher = Py_None;
    int n_inputs, n_symbols = 0, n_outputs = DG_MAX_ARRAYS, repeatable = 0, n_checks = 0, may_refuse = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OiO|iiO!pO!ipO!O!O:PythonPlan", names, &callable, &n_inputs, &result, &n_symbols,
                                     &n_outputs, &PyTuple_Type, &scalars, &repeatable, &PyTuple_Type, &into, &n_checks, &may_refuse,
                                     &PyTuple_Type, &prologue, &PyTuple_Type, &axes, &launcher))
        return NULL;
    if (!PyCallable_Check(callable))
        return PyErr_Format(PyExc_TypeError, "PythonPlan: %R is not callable", callable);
    if (launcher != Py_None && !Py_IS_TYPE(launcher, &dg_LauncherType))
        return PyErr_Format(PyExc_TypeError, "PythonPlan: launcher=%R is no Launcher", launcher);
    dg_plan *plan = (dg_plan *)type->tp_alloc(type, 0);
    if (!plan)
        return NULL;
    plan->keepalive = Py_NewRef(callable);
    plan->n_inputs = n_inputs;
    plan->n_symbols = n_symbols;
    plan->n_outputs = n_outputs;
    plan->repeatable = repeatable;
    plan->n_checks = n_checks;
    plan->may_refuse = n_checks > 0 || may_refuse;
    plan->launcher = launcher == Py_None ? NULL : Py_NewRef(launcher);
    if (!counts_fit(plan) || !(plan->outputs = PyMem_Calloc((size_t)n_outputs + 1, sizeof *plan->outputs)) ||
        parse_recipe(plan, result, prologue) < 0)
        goto fail;
    for (Py_ssize_t k = 0; scalars && k < PyTuple_GET_SIZE(scalars) && k < n_outputs; ++k)
        plan->outputs[k].scalar = PyObject_IsTrue(PyTuple_GET_ITEM(scalars, k));
    for (Py_ssize_t k = 0; axes && k < PyTuple_GET_SIZE(axes) && k < n_outputs; ++k) {
        PyObject *row = PyTuple_GET_ITEM(axes, k);
        if (!PyTuple_Check(row)) {
            PyErr_Format(PyExc_TypeError, "PythonPlan: the axes of an output are a tuple, not %R", row);
            goto fail;
        }
        if (parse_axes(&plan->outputs[k], row) < 0)
            goto fail;
    }
    for (int k = 0; k < n_outputs; ++k) {
        long slot = into && k < PyTuple_GET_SIZE(into) ? PyLong_AsLong(PyTuple_GET_ITEM(into, k)) : -1;
        if (PyErr_Occurred() || slot >= n_inputs) {
            PyErr_Format(PyExc_ValueError, "PythonPlan: outputs into %R of %d inputs", into, n_inputs);
            goto fail;
        }
        plan->outputs[k].into = slot < 0 ? -1 : (int)slot;
    }
    find_safe(plan);
    return (PyObject *)plan;
fail:
    if (!PyErr_Occurred())
        PyErr_NoMemory();
    Py_DECREF(plan);
    return NULL;
}

/* -- running --------------------------------------------------------------------------------------------------------------- */

static void release_memos(const dg_plan *plan, dg_frame *frame)
{
    for (int k = 0; k < plan->n_memo; ++k)
        Py_CLEAR(frame->memo[k]);
}

static PyObject *build_result(dg_plan *plan, dg_frame *frame, PyObject **outputs, PyObject **callee)
{
    dg_results results = {frame, outputs};
    PyObject *result = dg_recipe_build_last(plan->recipe, &results, callee);
    release_memos(plan, frame);
    return result;
}

static PyObject *scalar_object(const output *out, void *value)
{
    if (out->descr->type_num == NPY_DOUBLE) {
        PyObject *number = PyDoubleArrType_Type.tp_alloc(&PyDoubleArrType_Type, 0);
        if (number)
            memcpy(&((PyDoubleScalarObject *)number)->obval, value, 8);
        return number;
    }
    return PyArray_Scalar(value, out->descr, NULL);
}

/* An array that nobody else has, transposed: it goes on owning its memory. */
static void transpose(PyArrayObject *array, const signed char *axes)
{
    npy_intp dims[DG_MAX_DIMS], strides[DG_MAX_DIMS];
    int n = PyArray_NDIM(array);
    memcpy(dims, PyArray_DIMS(array), sizeof *dims * (size_t)n);
    memcpy(strides, PyArray_STRIDES(array), sizeof *strides * (size_t)n);
    for (int k = 0; k < n; ++k) {
        PyArray_DIMS(array)[k] = dims[axes[k]];
        PyArray_STRIDES(array)[k] = strides[axes[k]];
    }
    PyArray_UpdateFlags(array, NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_F_CONTIGUOUS);
}

/* Where memory cannot be had and nothing has happened yet the plan refuses the call: the plain run raises what there is to raise. */
static void refuse_without_memory(const dg_plan *plan)
{
    if (plan->n_steps == 0 && (PyErr_ExceptionMatches(PyExc_MemoryError) || PyErr_ExceptionMatches(PyExc_ValueError)))
        PyErr_Clear();
}

static void release(const dg_plan *plan, PyObject **owner)
{
    if (owner && !plan->may_refuse)
        Py_CLEAR(*owner);
}

/* Whether a call that has gone no further than the program can begin anew: the steps before it have been made by then. */
static int can_be_repeated(const dg_plan *plan) { return plan->n_steps == 0 || plan->may_refuse; }

/* whether a Python program that a signal ends can be left to the plain function */
static int may_be_left(const dg_plan *plan) { return plan->repeatable && can_be_repeated(plan); }

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

/* owner: as dg_plan_run's; it is cleared once all memory is there, or where signals may stop the program, once it has ended */
static PyObject *native_run(dg_plan *plan, dg_frame *frame, PyObject **owner, PyObject **callee)
{
    void *buffers[2 * DG_MAX_ARRAYS + 2];
    PyObject *outputs[DG_MAX_ARRAYS];
    _Alignas(16) char scalars[DG_MAX_ARRAYS][SCALAR_SIZE];
    PyObject *result = NULL;
    int made = 0, n = plan->n_inputs;
    if (!plan->entry) {
        release(plan, owner);
        return build_result(plan, frame, NULL, callee);
    }
    memcpy(buffers, frame->inputs, sizeof *buffers * (size_t)n);
    for (; made < plan->n_outputs; ++made) {
        output *out = &plan->outputs[made];
        outputs[made] = NULL;
        if (out->scalar) {
            buffers[n + made] = scalars[made];
            continue;
        }
        if (out->into >= 0) {
            outputs[made] = Py_NewRef(frame->input_objects[out->into]);
            buffers[n + made] = buffers[out->into];
            continue;
        }
        npy_intp dims[DG_MAX_DIMS];
        const npy_intp *shape = out->dims;
        size_t nbytes = out->nbytes;
        if (!out->fixed) {
            int64_t needed;
            if (!output_bytes(out, frame->sizes, 0, dims, &needed)) {
                if (plan->n_steps)
                    PyErr_SetString(PyExc_ValueError, "negative dimensions are not allowed");
                goto done;
            }
            nbytes = (size_t)needed;
            shape = dims;
        }
        outputs[made] = dg_new_array(out->descr, out->ndim, shape, nbytes);
        if (!outputs[made]) {
            refuse_without_memory(plan);
            goto done;
        }
        buffers[n + made] = PyArray_DATA((PyArrayObject *)outputs[made]);
        if (out->transposed)
            transpose((PyArrayObject *)outputs[made], out->axes);
    }
    void *workspace = NULL;
    int64_t size = 0;
    dg_size_run(&plan->workspace, frame->sizes, &size); /* it fits: fits_sizes has looked */
    _Alignas(64) char small[2048];
    if (size > (int64_t)sizeof small && !(workspace = take_workspace(size))) {
        refuse_without_memory(plan);
        goto done;
    }
    static const int32_t no_signals = 0;
    const int32_t *signals = frame->undisturbed || !can_be_repeated(plan) ? NULL : dg_pending_signals();
    dg_stop stop = {signals ? signals : &no_signals, 0};
    if (!signals) /* else the call may be made again */
        release(plan, owner);
    buffers[n + plan->n_outputs] = workspace ? workspace : small;
    buffers[n + plan->n_outputs + 1] = &plan->callee;
    int failed;
    if (plan->release_gil || has_grown(plan, frame->sizes)) {
        PyThreadState *state = PyEval_SaveThread();
        failed = plan->entry(buffers, frame->sizes, &dg_the_runtime, &stop);
        PyEval_RestoreThread(state);
    } else {
        failed = plan->entry(buffers, frame->sizes, &dg_the_runtime, &stop);
    }
    dg_pool_give(workspace);
    if (failed) {
        frame->stopped = failed == DG_STOPPED;
        if (failed != DG_REFUSED && failed != DG_RAISED && failed != DG_STOPPED)
            PyErr_NoMemory();
        goto done;
    }
    release(plan, owner);
    for (int k = 0; k < plan->n_outputs; ++k)
        if (plan->outputs[k].scalar && !(outputs[k] = scalar_object(&plan->outputs[k], scalars[k])))
            goto done;
    result = build_result(plan, frame, outputs, callee);
done:
    for (int k = 0; k < made; ++k)
        Py_XDECREF(outputs[k]);
    return result;
}

/* an input as Python code takes it: arrays and NumPy scalars as they are, Python numbers as 0-d arrays of the graph's dtype */
static PyObject *python_input(PyObject *object)
{
    int number = PyFloat_CheckExact(object) || PyLong_CheckExact(object) || PyComplex_CheckExact(object) || PyBool_Check(object);
    if (!number)
        return Py_NewRef(object);
    int type = PyBool_Check(object) ? NPY_BOOL : PyLong_Check(object) ? NPY_INT64 : PyComplex_Check(object) ? NPY_CDOUBLE : NPY_DOUBLE;
    return PyArray_FromAny(object, PyArray_DescrFromType(type), 0, 0, 0, NULL);
}

/* 1: the program refuses the call; -1: an exception is set */
static int checks_fail(const dg_plan *plan, PyObject *const *outputs, Py_ssize_t n)
{
    for (Py_ssize_t k = n - plan->n_checks; k < n; ++k) {
        int failed = k < 0 ? 0 : PyObject_IsTrue(outputs[k]);
        if (failed)
            return failed;
    }
    return 0;
}

/* Outputs that are meant for the memory of inputs are copied there. */
static int write_back(const dg_plan *plan, const dg_frame *frame, PyObject **outputs, Py_ssize_t n)
{
    for (Py_ssize_t k = 0; k < n && k < plan->n_outputs; ++k) {
        int into = plan->outputs[k].into;
        if (into < 0)
            continue;
        PyObject *target = frame->input_objects[into];
        if (target == outputs[k]) /* it was written there */
            continue;
        if (!PyArray_Check(target)) { /* of another library: target[...] = output */
            if (PyObject_SetItem(target, Py_Ellipsis, outputs[k]) < 0)
                return -1;
            Py_SETREF(outputs[k], Py_NewRef(target));
            continue;
        }
        if (!PyArray_Check(outputs[k])) {
            PyErr_Format(PyExc_TypeError, "a backend's output %zd is no array", k);
            return -1;
        }
        if (PyArray_CopyInto((PyArrayObject *)target, (PyArrayObject *)outputs[k]) < 0)
            return -1;
        Py_SETREF(outputs[k], Py_NewRef(target));
    }
    return 0;
}

/* Outputs that lie in another order than C order; what the backend gave may be in use elsewhere. */
static int lay_out(const dg_plan *plan, PyObject **outputs, Py_ssize_t n)
{
    for (Py_ssize_t k = 0; k < n && k < plan->n_outputs; ++k) {
        if (!plan->outputs[k].transposed)
            continue;
        PyObject *copy = PyArray_FromAny(outputs[k], NULL, 0, 0, NPY_ARRAY_CARRAY | NPY_ARRAY_ENSURECOPY | NPY_ARRAY_ENSUREARRAY, NULL);
        if (!copy)
            return -1;
        if (PyArray_NDIM((PyArrayObject *)copy) != plan->outputs[k].transposed) {
            PyErr_Format(PyExc_ValueError, "a backend's output %zd has %d dimensions, not %d", k,
                         PyArray_NDIM((PyArrayObject *)copy), plan->outputs[k].transposed);
            Py_DECREF(copy);
            return -1;
        }
        transpose((PyArrayObject *)copy, plan->outputs[k].axes);
        Py_SETREF(outputs[k], copy);
    }
    return 0;
}

/* Whether the exception that is set came after arguments had been written to, as the program says: the plain run would write again. */
static int is_final(void)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    int final = error && PyObject_HasAttrString(error, "dynagraph_is_final");
    PyErr_Restore(type, error, traceback);
    return final;
}

/* Leaves the call to the plain function where the program may refuse it: the user's code raises the error at its own place, and what
   a signal's handler has raised as well. */
static void refuse_if_may(const dg_plan *plan)
{
    dg_raised late = {0};
    if (!plan->may_refuse || is_final())
        return;
    if (dg_put_off(&late))
        dg_raise_later(&late);
    else if (PyErr_ExceptionMatches(PyExc_Exception))
        PyErr_Clear();
}

/* What a signal's handler raises while the program runs is not the program's: it waits until code of the user's runs, which may be
   within a try block. That is the plain function, to which the call is left; where the program cannot leave it, it runs again. */
static PyObject *call_program(dg_plan *plan, PyObject *args, dg_raised *late)
{
    PyObject *given = PyObject_CallObject(plan->keepalive, args);
    dg_raised raised = {0};
    if (!given && may_be_left(plan) && dg_put_off(&raised)) {
        dg_raise_later(&raised);
        return NULL;
    }
    if (!given && plan->repeatable && dg_take_raised(&raised)) {
        given = PyObject_CallObject(plan->keepalive, args);
        dg_drop_raised(given ? late : &raised);
        if (given)
            *late = raised;
    }
    if (!given)
        refuse_if_may(plan);
    return given;
}

/* By the launcher: 0: it does not serve this call, nothing has happened; else *result is what the plan gives. */
static int launched(dg_plan *plan, dg_frame *frame, PyObject **owner, PyObject **callee, PyObject **result)
{
    PyObject *outputs[DG_MAX_ARRAYS];
    *result = NULL;
    if (!dg_launcher_fits(plan->launcher, plan->n_inputs, plan->n_symbols, plan->n_outputs)) {
        PyErr_SetString(PyExc_ValueError, "PythonPlan: its launcher has other inputs, symbols or outputs");
        return -1;
    }
    int served = dg_launcher_run(plan->launcher, frame, outputs);
    if (served > 0) {
        int n = dg_launcher_results(plan->launcher);
        release(plan, owner);
        *result = build_result(plan, frame, outputs, callee);
        for (int k = 0; k < n; ++k)
            Py_DECREF(outputs[k]);
    } else if (served < 0) {
        refuse_if_may(plan);
    }
    return served;
}

/* owner: as dg_plan_run's; it is cleared once the program has ended */
static PyObject *python_run(dg_plan *plan, dg_frame *frame, PyObject **owner, PyObject **callee)
{
    PyObject *at_once;
    if (plan->launcher && launched(plan, frame, owner, callee, &at_once))
        return at_once;
    PyObject *result = NULL, *args = PyTuple_New(plan->n_inputs), *given = NULL, *items = NULL;
    for (int k = 0; args && k < plan->n_inputs; ++k) {
        PyObject *input = python_input(frame->input_objects[k]);
        if (!input) {
            Py_CLEAR(args);
            break;
        }
        PyTuple_SET_ITEM(args, k, input);
    }
    if (args && (given = call_program(plan, args, &frame->late)))
        release(plan, owner);
    if (given)
        items = PySequence_Fast(given, "a backend's program must return a tuple or list of arrays");
    if (items) {
        PyObject *outputs[DG_MAX_ARRAYS] = {NULL};
        Py_ssize_t n = PySequence_Fast_GET_SIZE(items);
        int ok = n <= DG_MAX_ARRAYS;
        if (!ok)
            PyErr_Format(PyExc_ValueError, "a backend's program gave %zd outputs; at most %d are possible", n, DG_MAX_ARRAYS);
        for (Py_ssize_t k = 0; ok && k < n; ++k) {
            PyObject *item = PySequence_Fast_GET_ITEM(items, k);
            outputs[k] = Py_NewRef(item);
            if (k < plan->n_outputs && plan->outputs[k].scalar && PyArray_Check(item)) {
                outputs[k] = PyArray_Return((PyArrayObject *)outputs[k]); /* takes the reference */
                ok = outputs[k] != NULL;
            }
        }
        for (int k = (int)n; k < DG_MAX_ARRAYS; ++k)
            outputs[k] = NULL;
        ok = ok && checks_fail(plan, outputs, n) == 0 && write_back(plan, frame, outputs, n) == 0 && lay_out(plan, outputs, n) == 0;
        if (ok)
            result = build_result(plan, frame, outputs, callee);
        for (Py_ssize_t k = 0; k < n && k < DG_MAX_ARRAYS; ++k)
            Py_XDECREF(outputs[k]);
    }
    Py_XDECREF(items);
    Py_XDECREF(given);
    Py_XDECREF(args);
    return result;
}

static int is_of_shape(const output *out, PyArrayObject *array, const int64_t *sizes)
{
    if (PyArray_NDIM(array) != out->ndim)
        return 0;
    for (int k = 0; k < out->ndim; ++k)
    {
        int64_t dim;
        if (!dg_size_run(&out->shape[k], sizes, &dim) || PyArray_DIM(array, k) != (npy_intp)dim)
            return 0;
    }
    return 1;
}

/* what a step gave becomes an input of the program; 0: it is not what the program takes */
static int bind_input(const step *s, PyObject *given, dg_frame *frame)
{
    int type = s->input.descr->type_num;
    frame->input_objects[s->slot] = given;
    if (s->input.scalar) {
        frame->inputs[s->slot] = frame->scalars[s->slot];
        if (PyFloat_CheckExact(given)) {
            double number = PyFloat_AS_DOUBLE(given);
            memcpy(frame->scalars[s->slot], &number, sizeof number);
            return type == NPY_DOUBLE;
        }
        if (!PyArray_IsScalar(given, Generic))
            return 0;
        PyArray_Descr *descr = PyArray_DescrFromScalar(given);
        int fits = descr && descr->type_num == type;
        Py_XDECREF(descr);
        return fits && dg_scalar_value(given, frame->scalars[s->slot]);
    }
    PyArrayObject *array = (PyArrayObject *)given;
    if (!PyArray_CheckExact(given) || PyArray_TYPE(array) != type || !PyArray_IS_C_CONTIGUOUS(array) || !PyArray_ISBEHAVED(array))
        return 0;
    frame->inputs[s->slot] = PyArray_DATA(array);
    return is_of_shape(&s->input, array, frame->sizes);
}

static int run_prologue(dg_plan *plan, dg_frame *frame)
{
    dg_results results = {frame, NULL};
    for (int k = 0; k < plan->n_steps; ++k) {
        const step *s = &plan->prologue[k];
        PyObject *given = dg_recipe_build(s->recipe, &results);
        if (!given)
            return -1;
        int fits = s->slot < 0 || bind_input(s, given, frame);
        if (!fits)
            PyErr_Format(PyExc_TypeError, "a step before the program gave %R, which is not what the program takes", given);
        Py_DECREF(given); /* the memo holds it */
        if (!fits)
            return -1;
    }
    return 0;
}

static PyObject *run(dg_plan *plan, dg_frame *frame, PyObject **owner, PyObject **callee)
{
    return Py_IS_TYPE((PyObject *)plan, &dg_NativePlanType) ? native_run(plan, frame, owner, callee) : python_run(plan, frame, owner, callee);
}

enum { FEW_MEMOS = 16 };

static PyObject *run_with_memos(dg_plan *plan, dg_frame *frame, PyObject **owner, PyObject **callee)
{
    if (plan->n_memo == 0 && plan->n_steps == 0)
        return run(plan, frame, owner, callee);
    PyObject *few[FEW_MEMOS], *result = NULL;
    size_t size = sizeof *few * (size_t)plan->n_memo;
    if (!(frame->memo = plan->n_memo <= FEW_MEMOS ? few : PyMem_Malloc(size)))
        return PyErr_NoMemory();
    memset(frame->memo, 0, size);
    if (run_prologue(plan, frame) == 0)
        result = run(plan, frame, owner, callee);
    release_memos(plan, frame);
    if (frame->memo != few)
        PyMem_Free(frame->memo);
    return result;
}

/* What a signal's handler raised meanwhile; recipes run Python code too, so only now. */
static PyObject *pass_on(dg_raised *late, PyObject *result, PyObject **callee)
{
    if (late->type && PyErr_Occurred()) {
        dg_drop_raised(late);
    } else if (late->type && dg_raise_later(late) < 0) {
        Py_CLEAR(result);
        Py_CLEAR(*callee);
    }
    return result;
}

PyObject *dg_plan_run(PyObject *plan, dg_frame *frame, PyObject **owner, PyObject **callee)
{
    dg_plan *p = (dg_plan *)plan;
    /* What a guard loaded is only borrowed; from here on other code may run (without the GIL, at a garbage collection). */
    PyObject *held[DG_MAX_ARRAYS + DG_MAX_REGISTERS];
    int n = 0;
    for (int k = 0; k < p->n_inputs; ++k)
        if (!p->drawn[k])
            held[n++] = Py_NewRef(frame->input_objects[k]);
    for (int k = 0; k < p->n_held; ++k)
        held[n++] = Py_NewRef(frame->registers[p->held[k]]);
    *callee = NULL;
    PyObject *result = NULL;
    if (fits_sizes(p, frame->sizes)) {
        /* a call that is refused goes on with its arguments: a native plan may find no memory */
        if (!Py_IS_TYPE(plan, &dg_NativePlanType) && !may_be_left(p))
            release(p, owner);
        result = run_with_memos(p, frame, owner, callee);
    }
    while (n > 0)
        Py_DECREF(held[--n]);
    return pass_on(&frame->late, result, callee);
}

#define PLAN_TYPE(label, constructor, text)                                                                              \
    {                                                                                                                    \
        PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dynagraph._core._dispatch." label, .tp_basicsize = sizeof(dg_plan),    \
        .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, .tp_doc = text, .tp_new = constructor,                      \
        .tp_dealloc = (destructor)plan_dealloc, .tp_traverse = (traverseproc)plan_traverse, .tp_free = PyObject_GC_Del,  \
    }

PyTypeObject dg_NativePlanType = PLAN_TYPE("NativePlan", native_new, "Calls an entry point of generated code.");
PyTypeObject dg_PythonPlanType = PLAN_TYPE("PythonPlan", python_new, "Calls a callable(*inputs) -> outputs.");
