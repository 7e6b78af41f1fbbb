/* Plans: what an entry does once its guards hold.  A native plan calls generated code; a Python plan calls a callable. */
#include "plans.h"

int dg_plan_inputs(PyObject *plan) { return ((dg_plan *)plan)->n_inputs; }
int dg_plan_symbols(PyObject *plan) { return ((dg_plan *)plan)->n_symbols; }
const unsigned char *dg_plan_drawn(PyObject *plan) { return ((dg_plan *)plan)->drawn; }
int dg_plan_improves(PyObject *plan) { return ((dg_plan *)plan)->code.better != NULL; }

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

/* whether all sizes of the plan fit into 64 bits, for the sizes of a call, or where no symbol is above `bound` */
static int sizes_fit(const dg_plan *plan, const int64_t *sizes, int64_t bound)
{
    int fits = dg_size_fits(&plan->workspace, sizes, bound) && dg_sizes_fit(&plan->limits, sizes, bound);
    for (int k = 0; fits && k < plan->n_outputs; ++k)
        fits = !plan->outputs[k].descr || dg_output_fits(&plan->outputs[k], sizes, bound);
    for (int k = 0; fits && k < plan->n_steps; ++k)
        fits = sizes ? dg_recipe_fits(plan->prologue[k].recipe, sizes) : dg_recipe_fits_below(plan->prologue[k].recipe, bound);
    return fits && (sizes ? dg_recipe_fits(plan->recipe, sizes) : dg_recipe_fits_below(plan->recipe, bound));
}

static int fits_below(const void *plan, int64_t bound) { return sizes_fit(plan, NULL, bound); }

int dg_plan_fits(const dg_plan *plan, const int64_t *sizes)
{
    for (int k = 0; k < plan->n_symbols; ++k)
        if (sizes[k] > plan->safe)
            return sizes_fit(plan, sizes, 0);
    return 1;
}

static void plan_dealloc(dg_plan *plan)
{
    PyObject_GC_UnTrack(plan);
    dg_code_clear(&plan->code);
    Py_CLEAR(plan->callable);
    Py_CLEAR(plan->callee.function);
    Py_CLEAR(plan->launcher);
    for (int k = 0; k < plan->n_outputs && plan->outputs; ++k)
        dg_output_clear(&plan->outputs[k]);
    PyMem_Free(plan->outputs);
    for (int k = 0; k < plan->n_steps; ++k) {
        dg_recipe_free(plan->prologue[k].recipe);
        dg_output_clear(&plan->prologue[k].input);
    }
    PyMem_Free(plan->prologue);
    PyMem_Free(plan->drawn);
    PyMem_Free(plan->held);
    dg_sizes_clear(&plan->limits);
    dg_size_clear(&plan->workspace);
    dg_recipe_free(plan->recipe);
    Py_TYPE(plan)->tp_free(plan);
}

static int plan_traverse(dg_plan *plan, visitproc visit, void *arg)
{
    Py_VISIT(plan->callable);
    Py_VISIT(plan->callee.function);
    Py_VISIT(plan->launcher);
    int of_code = dg_code_traverse(&plan->code, visit, arg);
    if (of_code)
        return of_code;
    for (int k = 0; k < plan->n_steps; ++k) {
        int visited = dg_recipe_traverse(plan->prologue[k].recipe, visit, arg);
        if (visited)
            return visited;
    }
    return dg_recipe_traverse(plan->recipe, visit, arg);
}

dg_plan *dg_plan_new(PyTypeObject *type, int n_inputs, int n_outputs, int n_symbols, int n_checks)
{
    if (n_inputs < 0 || n_inputs > DG_MAX_ARRAYS || n_outputs < 0 || n_outputs > DG_MAX_ARRAYS || n_symbols < 0 ||
        n_symbols > DG_MAX_SYMBOLS) {
        PyErr_Format(PyExc_ValueError, "plan: %d inputs, %d outputs, %d symbols; at most %d, %d and %d are possible", n_inputs,
                     n_outputs, n_symbols, DG_MAX_ARRAYS, DG_MAX_ARRAYS, DG_MAX_SYMBOLS);
        return NULL;
    }
    dg_plan *plan = (dg_plan *)type->tp_alloc(type, 0);
    if (!plan)
        return NULL;
    plan->n_inputs = n_inputs;
    plan->n_symbols = n_symbols;
    plan->n_checks = n_checks;
    plan->drawn = PyMem_Calloc((size_t)n_inputs + 1, sizeof *plan->drawn);
    if (!plan->drawn || !(plan->outputs = PyMem_Calloc((size_t)n_outputs + 1, sizeof *plan->outputs))) {
        Py_DECREF(plan);
        return (dg_plan *)PyErr_NoMemory();
    }
    plan->n_outputs = n_outputs;
    for (int k = 0; k < n_outputs; ++k)
        plan->outputs[k].into = -1;
    return plan;
}

static int parse_recipe(dg_plan *plan, PyObject *description, PyObject *prologue)
{
    if (dg_prologue_parse(plan, prologue) < 0)
        return -1;
    if (!(plan->recipe = dg_recipe_new(description, plan->n_outputs, plan->n_symbols, &plan->n_memo)))
        return -1;
    plan->is_quiet = plan->n_steps == 0 && dg_recipe_is_quiet(plan->recipe);
    int highest = dg_plan_reads((PyObject *)plan, NULL);
    unsigned char *read = PyMem_Calloc((size_t)highest + 2, sizeof *read);
    if (!read || !(plan->held = PyMem_Calloc((size_t)highest + 2, sizeof *plan->held))) {
        PyMem_Free(read);
        PyErr_NoMemory();
        return -1;
    }
    dg_plan_reads((PyObject *)plan, read);
    for (int k = 0; k <= highest; ++k)
        if (read[k])
            plan->held[plan->n_held++] = k;
    PyMem_Free(read);
    return 0;
}

PyObject *dg_plan_finish(dg_plan *plan, int ok, PyObject *result, PyObject *prologue)
{
    if (!ok || parse_recipe(plan, result, prologue) < 0) {
        Py_DECREF(plan);
        return NULL;
    }
    plan->safe = dg_safe_bound(fits_below, plan);
    return (PyObject *)plan;
}

/* -- running ------------------------------------------------------------------------------------------------------------- */

static void release_memos(const dg_plan *plan, dg_frame *frame)
{
    for (int k = 0; k < plan->n_memo; ++k)
        Py_CLEAR(frame->memo[k]);
}

PyObject *dg_plan_build_result(dg_plan *plan, dg_frame *frame, PyObject **outputs, PyObject **callee)
{
    dg_results results = {frame, outputs};
    PyObject *result = dg_recipe_build_last(plan->recipe, &results, callee);
    release_memos(plan, frame);
    return result;
}

void dg_plan_release(const dg_plan *plan, PyObject **owner)
{
    if (owner && !plan->may_bail_out)
        Py_CLEAR(*owner);
}

/* the steps before the program have been made by then */
int dg_plan_can_be_repeated(const dg_plan *plan) { return plan->n_steps == 0 || plan->may_bail_out; }

int dg_plan_may_be_left(const dg_plan *plan) { return plan->repeatable && dg_plan_can_be_repeated(plan); }

static PyObject *run(dg_plan *plan, dg_frame *frame, PyObject **owner, PyObject **callee)
{
    return Py_IS_TYPE((PyObject *)plan, &dg_NativePlanType) ? dg_native_plan_run(plan, frame, owner, callee)
                                                            : dg_python_plan_run(plan, frame, owner, callee);
}

enum { FEW_MEMOS = 16 };

static PyObject *run_with_memos(dg_plan *plan, dg_frame *frame, PyObject **owner, PyObject **callee)
{
    if (plan->n_memo == 0 && plan->n_steps == 0)
        return run(plan, frame, owner, callee);
    PyObject *few[FEW_MEMOS], *result = NULL;
    size_t size = sizeof *few * (size_t)plan->n_memo;
    if (!(frame->memo = dg_room(few, sizeof few, size)))
        return PyErr_NoMemory();
    memset(frame->memo, 0, size);
    if (dg_prologue_run(plan, frame) == 0)
        result = run(plan, frame, owner, callee);
    release_memos(plan, frame);
    dg_leave(frame->memo, few);
    return result;
}

PyObject *dg_plan_run(PyObject *plan, dg_frame *frame, PyObject **owner, PyObject **callee)
{
    dg_plan *p = (dg_plan *)plan;
    /* What a guard loaded is only borrowed; from here on other code may run (without the GIL, at a garbage collection). */
    PyObject *few[DG_FEW_ARRAYS + DG_FEW_REGISTERS], **held = dg_room(few, sizeof few, sizeof *held * (size_t)(p->n_inputs + p->n_held));
    int n = 0;
    *callee = NULL;
    if (!held)
        return NULL;
    for (int k = 0; k < p->n_inputs; ++k)
        if (!p->drawn[k])
            held[n++] = Py_NewRef(frame->input_objects[k]);
    for (int k = 0; k < p->n_held; ++k)
        held[n++] = Py_NewRef(frame->registers[p->held[k]]);
    PyObject *result = NULL;
    if (dg_plan_fits(p, frame->sizes)) {
        /* a call that is refused goes on with its arguments: a native plan may find no memory */
        if (!Py_IS_TYPE(plan, &dg_NativePlanType) && !dg_plan_may_be_left(p))
            dg_plan_release(p, owner);
        result = run_with_memos(p, frame, owner, callee);
    }
    while (n > 0)
        Py_DECREF(held[--n]);
    dg_leave(held, few);
    if (dg_pass_on(&frame->late) < 0) { /* recipes run Python code too, so only now */
        Py_CLEAR(result);
        Py_CLEAR(*callee);
    }
    return result;
}

#define PLAN_TYPE(label, constructor, text)                                                                              \
    {                                                                                                                    \
        PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dynagraph._core._dispatch." label, .tp_basicsize = sizeof(dg_plan),    \
        .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, .tp_doc = text, .tp_new = constructor,                      \
        .tp_dealloc = (destructor)plan_dealloc, .tp_traverse = (traverseproc)plan_traverse, .tp_free = PyObject_GC_Del,  \
    }

PyTypeObject dg_NativePlanType = PLAN_TYPE("NativePlan", dg_native_plan_new, "Calls an entry point of generated code.");
PyTypeObject dg_PythonPlanType = PLAN_TYPE("PythonPlan", dg_python_plan_new, "Calls a callable(*inputs) -> outputs.");
