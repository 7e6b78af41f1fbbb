/* Entries: a plan, and what must hold for it to serve a call. */
#include "entries.h"
#include <structmember.h>

PyObject *dg_GuardError;

/* how many parameters the guards and the plan read; -1: an exception is set */
static int parameters_of(const dg_entry *entry)
{
    unsigned char *marks = PyMem_Calloc(2 * (size_t)entry->n_registers + 1, sizeof *marks);
    if (!marks) {
        PyErr_NoMemory();
        return -1;
    }
    dg_plan_reads(entry->plan, marks);
    int n = dg_guards_parameters(entry->guards, entry->n_registers, marks, marks + entry->n_registers);
    PyMem_Free(marks);
    return n;
}

static PyObject *entry_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"guards", "n_registers", "plan", "closure", "measured", "unasked", NULL};
    PyObject *program, *plan, *closure = Py_None;
    int n_registers, measured = 0, unasked = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OiO|Opi:Entry", names, &program, &n_registers, &plan, &closure, &measured, &unasked))
        return NULL;
    if (unasked < 0 || (unasked && !measured))
        return PyErr_Format(PyExc_ValueError, "Entry: unasked=%d; at least 0, and 0 where it is not measured", unasked);
    if (!Py_IS_TYPE(plan, &dg_NativePlanType) && !Py_IS_TYPE(plan, &dg_PythonPlanType))
        return PyErr_Format(PyExc_TypeError, "Entry: expected a NativePlan or PythonPlan, got %s", Py_TYPE(plan)->tp_name);
    if (n_registers < 0 || n_registers > DG_MAX_REGISTERS)
        return PyErr_Format(PyExc_ValueError, "Entry: %d registers; at most %d are possible", n_registers, DG_MAX_REGISTERS);
    int cells = closure == Py_None || PyTuple_Check(closure);
    for (Py_ssize_t k = 0; closure != Py_None && cells && k < PyTuple_GET_SIZE(closure); ++k)
        cells = PyCell_Check(PyTuple_GET_ITEM(closure, k));
    if (!cells)
        return PyErr_Format(PyExc_TypeError, "Entry: closure must be a tuple of cells, got %R", closure);
    if (dg_plan_reads(plan, NULL) >= n_registers)
        return PyErr_Format(PyExc_ValueError, "Entry: the plan's result reads a register beyond the %d of the entry", n_registers);
    dg_entry *entry = (dg_entry *)type->tp_alloc(type, 0);
    if (!entry)
        return NULL;
    entry->n_registers = n_registers;
    entry->n_inputs = dg_plan_inputs(plan);
    entry->plan = Py_NewRef(plan);
    entry->unasked = unasked;
    entry->n_symbols = dg_plan_symbols(plan);
    entry->n_choices = !measured ? 0 : entry->n_symbols ? DG_SIZE_CLASSES : 1;
    entry->choices = measured ? PyMem_Calloc((size_t)entry->n_choices, sizeof(dg_choice)) : NULL;
    if (measured && !entry->choices) {
        Py_DECREF(entry);
        return PyErr_NoMemory();
    }
    for (int k = 0; k < entry->n_choices; ++k)
        entry->choices[k].plain = 1;
    if (entry->n_choices == 1)
        entry->choices->way = DG_MEASURED;
    entry->closure = closure == Py_None ? NULL : Py_NewRef(closure);
    entry->guards = dg_guards_new(program, n_registers, dg_plan_inputs(plan), dg_plan_symbols(plan), dg_plan_drawn(plan));
    if (!entry->guards || (entry->n_parameters = parameters_of(entry)) < 0) {
        Py_DECREF(entry);
        return NULL;
    }
    return (PyObject *)entry;
}

static int entry_clear(dg_entry *entry)
{
    dg_guards *guards = entry->guards;
    entry->guards = NULL;
    dg_guards_free(guards);
    Py_CLEAR(entry->plan);
    Py_CLEAR(entry->closure);
    return 0;
}

static void entry_dealloc(dg_entry *entry)
{
    PyObject_GC_UnTrack(entry);
    entry_clear(entry);
    PyMem_Free(entry->choices);
    Py_TYPE(entry)->tp_free(entry);
}

static int entry_traverse(dg_entry *entry, visitproc visit, void *arg)
{
    Py_VISIT(entry->plan);
    Py_VISIT(entry->closure);
    return dg_guards_traverse(entry->guards, visit, arg);
}

/* -2: an exception; -1: the guards hold */
static int check_values(dg_entry *entry, PyObject *values, dg_frame_memory *memory, dg_frame *frame)
{
    if (!PyTuple_Check(values) || PyTuple_GET_SIZE(values) > entry->n_registers) {
        PyErr_Format(PyExc_TypeError, "Entry: expected a tuple of at most %d bound parameters, got %R", entry->n_registers, values);
        return -2;
    }
    if (PyTuple_GET_SIZE(values) < entry->n_parameters || !entry->guards) {
        PyErr_Format(PyExc_TypeError, "Entry: the guards read %d parameters, got %zd", entry->n_parameters, PyTuple_GET_SIZE(values));
        return -2;
    }
    if (!dg_frame_fit(memory, frame, entry)) {
        PyErr_NoMemory();
        return -2;
    }
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(values); ++k)
        frame->registers[k] = PyTuple_GET_ITEM(values, k);
    return dg_guards_run(entry->guards, frame, entry->closure);
}

static PyObject *entry_check(dg_entry *entry, PyObject *values)
{
    dg_frame_memory memory;
    dg_frame frame = dg_frame_over(&memory);
    int failed = check_values(entry, values, &memory, &frame);
    dg_frame_leave(&memory);
    if (failed == -2)
        return NULL;
    if (failed == -1)
        Py_RETURN_NONE;
    return PyLong_FromLong(failed);
}

int dg_frame_grow(dg_frame_memory *memory, dg_frame *frame, const dg_entry *entry)
{
    int n_registers = entry->n_registers > memory->n_registers ? entry->n_registers : memory->n_registers;
    int n_inputs = entry->n_inputs > memory->n_inputs ? entry->n_inputs : memory->n_inputs;
    size_t each = sizeof *frame->scalars + sizeof *frame->inputs + sizeof *frame->input_objects;
    char *made = PyMem_Malloc((size_t)n_inputs * each + (size_t)n_registers * sizeof *frame->registers);
    if (!made)
        return 0;
    dg_frame_leave(memory);
    memory->heap = made;
    memory->n_registers = n_registers;
    memory->n_inputs = n_inputs;
    frame->scalars = (char(*)[16])made;
    frame->inputs = (void **)(frame->scalars + n_inputs);
    frame->input_objects = (PyObject **)(frame->inputs + n_inputs);
    frame->registers = frame->input_objects + n_inputs;
    return 1;
}

enum { MOST_STOPS = 2 }; /* of one call: after them it runs to its end, whatever signals come */

/* Signals stop native code before it has done anything that anybody sees, and are handled then. Where a handler raises, the call is
   left to the plain function, which raises it, within the user's try blocks. Else the plan runs again, if the guards still hold. */
PyObject *dg_entry_run_guarded(dg_entry *entry, dg_frame *frame, PyObject *closure, PyObject **owner, PyObject **callee)
{
    for (int stops = 0;; ++stops) {
        frame->undisturbed = stops == MOST_STOPS;
        frame->stopped = 0;
        frame->late = (dg_raised){0};
        PyObject *result = dg_plan_run(entry->plan, frame, owner, callee);
        if (!frame->stopped || dg_handle_signals() < 0)
            return result;
        if (!entry->guards || dg_guards_run(entry->guards, frame, closure) != -1)
            return NULL;
    }
}

/* in a function of its own: this much memory should not stay on the stack while the result's callee runs */
static __attribute__((noinline)) PyObject *run_plan(dg_entry *entry, PyObject *values, PyObject *other, PyObject **callee)
{
    dg_frame_memory memory;
    dg_frame frame = dg_frame_over(&memory);
    PyObject *result = NULL;
    Py_INCREF(entry);
    Py_INCREF(values);
    int failed = check_values(entry, values, &memory, &frame);
    if (failed == -1)
        result = dg_entry_run_guarded(entry, &frame, entry->closure, NULL, callee);
    dg_frame_leave(&memory);
    if (!result && !PyErr_Occurred()) {
        if (other)
            result = Py_NewRef(other);
        else if (failed == -1)
            PyErr_SetString(dg_GuardError, "the program bails out");
        else
            PyErr_Format(dg_GuardError, "guard %d does not hold", failed);
    }
    Py_DECREF(values);
    Py_DECREF(entry);
    return result;
}

static PyObject *entry_run(dg_entry *entry, PyObject *values)
{
    PyObject *callee = NULL, *result = run_plan(entry, values, NULL, &callee);
    return dg_finish(result, callee);
}

static PyObject *entry_run_or(dg_entry *entry, PyObject *const *args, Py_ssize_t n_args)
{
    if (n_args != 2)
        return PyErr_Format(PyExc_TypeError, "run_or: expected values and another result, got %zd arguments", n_args);
    PyObject *callee = NULL, *result = run_plan(entry, args[0], args[1], &callee);
    return dg_finish(result, callee);
}

static PyObject *entry_call(dg_entry *entry, PyObject *values) { return dg_follow_tails(entry_run(entry, values)); }

static PyObject *entry_call_or(dg_entry *entry, PyObject *const *args, Py_ssize_t n_args)
{
    return dg_follow_tails(entry_run_or(entry, args, n_args));
}

static PyMethodDef entry_methods[] = {
    {"check", (PyCFunction)entry_check, METH_O,
     "check(values) -> None where all guards hold, else the number of the first instruction that does not"},
    {"run", (PyCFunction)entry_run, METH_O,
     "run(values) -> what the plan gives, a Tail perhaps; GuardError where a guard does not hold"},
    {"run_or", (PyCFunction)(void (*)(void))entry_run_or, METH_FASTCALL,
     "run_or(values, other) -> run(values), or `other` where a guard does not hold"},
    {"call_or", (PyCFunction)(void (*)(void))entry_call_or, METH_FASTCALL,
     "call_or(values, other): run_or(values, other), and the calls that tails ask for"},
    {"call", (PyCFunction)entry_call, METH_O, "call(values): run(values), and the calls that tails ask for"},
    {0},
};

static PyMemberDef entry_members[] = {
    {"hits", T_ULONGLONG, offsetof(dg_entry, hits), READONLY, "calls that this entry served"},
    {"plan", T_OBJECT, offsetof(dg_entry, plan), READONLY, NULL},
    {0},
};

static PyObject *stays_eager(dg_entry *entry, void *ignored) { return PyBool_FromLong(dg_entry_is_any(entry, DG_STAYS_EAGER)); }

static PyGetSetDef entry_getset[] = {
    {"stays_eager", (getter)stays_eager, NULL, "whether calls that it could serve run eagerly, as that was measured to be faster", NULL},
    {0},
};

PyTypeObject dg_EntryType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dynagraph._core._dispatch.Entry",
    .tp_basicsize = sizeof(dg_entry),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Entry(guards, n_registers, plan, closure=None, measured=False, unasked=0): a plan, and what must hold for it to serve a "
              "call.",
    .tp_new = entry_new,
    .tp_dealloc = (destructor)entry_dealloc,
    .tp_traverse = (traverseproc)entry_traverse,
    .tp_clear = (inquiry)entry_clear,
    .tp_free = PyObject_GC_Del,
    .tp_methods = entry_methods,
    .tp_members = entry_members,
    .tp_getset = entry_getset,
};

