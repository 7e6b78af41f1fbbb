/* Calls out of native loops: a Python function is called, and the loop goes on with what it gives. */
#include "loops.h"
#include <stdlib.h>

/* -- rows ---------------------------------------------------------------------------------------------------------------- */

static const dg_row_kind KINDS[] = {{"call", "('call', callable, boxes, n_slots, result)", "cbnr"}};

int dg_call_parse(dg_loop_call *call, PyObject *row, int n_parameters)
{
    if (dg_row_parse(row, "a call", KINDS, 1) < 0)
        return -1;
    PyObject *function = PyTuple_GET_ITEM(row, 1);
    if (!PyCallable_Check(function)) {
        PyErr_Format(PyExc_TypeError, "NativeLoop: a call of %R, which is not callable", function);
        return -1;
    }
    call->function = Py_NewRef(function);
    if ((call->n_slots = dg_row_number(row, PyTuple_GET_ITEM(row, 3), "n_slots", DG_MAX_SLOTS)) < 0)
        return -1;
    if (dg_box_parse_parts(&call->box, PyTuple_GET_ITEM(row, 2), n_parameters, call->n_slots) < 0)
        return -1;
    return dg_parameter_parse(&call->result, PyTuple_GET_ITEM(row, 4), call->n_slots);
}

void dg_call_clear(dg_loop_call *call)
{
    Py_CLEAR(call->function);
    dg_box_clear(&call->box);
    dg_parameter_clear(&call->result);
}

int dg_call_traverse(const dg_loop_call *call, visitproc visit, void *arg)
{
    Py_VISIT(call->function);
    int result = dg_box_traverse(&call->box, visit, arg);
    return result ? result : dg_parameter_traverse(&call->result, visit, arg);
}

/* -- arrays of Python's that the loop's variables hold -------------------------------------------------------------------- */

void dg_made_list(dg_made *made, dg_loop_lists *lists)
{
    made->listed = 1;
    made->next = lists->made;
    lists->made = made;
}

int dg_made_read(PyObject *array, dg_slot *slot, dg_loop_lists *lists)
{
    dg_made *made = calloc(1, sizeof *made);
    if (!made)
        return 0;
    made->data = PyArray_DATA((PyArrayObject *)array);
    made->object = Py_NewRef(array);
    dg_made_list(made, lists);
    slot->p = made;
    return 1;
}

void dg_made_sweep(dg_loop_lists *lists)
{
    dg_made *dead = NULL;
    for (dg_made **at = &lists->made; *at;) {
        dg_made *made = *at;
        if (made->references > 0) {
            at = &made->next;
            continue;
        }
        *at = made->next;
        made->next = dead;
        dead = made;
    }
    while (dead) { /* outside of the list: what is freed may run code */
        dg_made *next = dead->next;
        Py_XDECREF((PyObject *)dead->object);
        free(dead);
        dead = next;
    }
}

/* -- what a function raised ------------------------------------------------------------------------------------------------ */

typedef struct {
    PyObject_HEAD
    dg_raised raised;
} raiser;

static PyObject *call_raiser(raiser *self, PyObject *args, PyObject *kwargs)
{
    dg_raised raised = self->raised;
    self->raised = (dg_raised){0};
    if (!raised.type)
        return PyErr_Format(PyExc_SystemError, "Raiser: it has raised already");
    PyErr_Restore(raised.type, raised.value, raised.traceback);
    return NULL;
}

static int raiser_traverse(raiser *self, visitproc visit, void *arg)
{
    Py_VISIT(self->raised.type);
    Py_VISIT(self->raised.value);
    Py_VISIT(self->raised.traceback);
    return 0;
}

static int raiser_clear(raiser *self)
{
    dg_drop_raised(&self->raised);
    return 0;
}

static void raiser_dealloc(raiser *self)
{
    PyObject_GC_UnTrack(self);
    raiser_clear(self);
    PyObject_GC_Del(self);
}

static PyTypeObject raiser_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dynagraph._core._dispatch.Raiser",
    .tp_basicsize = sizeof(raiser),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = "Raises once, when it is called, what a function raised that a native loop called.",
    .tp_call = (ternaryfunc)call_raiser,
    .tp_dealloc = (destructor)raiser_dealloc,
    .tp_traverse = (traverseproc)raiser_traverse,
    .tp_clear = (inquiry)raiser_clear,
};

int dg_calls_ready(void) { return PyType_Ready(&raiser_type); }

/* The function that is called stands in for the user's frame, which what it raised will come through. */
static void drop_first_frame(PyObject *function, dg_raised *raised)
{
    PyTracebackObject *first = (PyTracebackObject *)raised->traceback;
    if (!first || !PyTraceBack_Check(first) || !PyFunction_Check(function))
        return;
    PyCodeObject *code = PyFrame_GetCode(first->tb_frame);
    if ((PyObject *)code == PyFunction_GET_CODE(function))
        Py_XSETREF(raised->traceback, Py_XNewRef((PyObject *)first->tb_next));
    Py_DECREF(code);
}

/* a new reference to what raises the exception that is set; null: no memory, which is set */
static PyObject *new_raiser(PyObject *function)
{
    dg_raised raised;
    PyErr_Fetch(&raised.type, &raised.value, &raised.traceback);
    PyErr_NormalizeException(&raised.type, &raised.value, &raised.traceback);
    raiser *made = PyObject_GC_New(raiser, &raiser_type);
    if (!made) {
        dg_drop_raised(&raised);
        return NULL;
    }
    drop_first_frame(function, &raised);
    made->raised = raised;
    PyObject_GC_Track(made);
    return (PyObject *)made;
}

/* -- calling ----------------------------------------------------------------------------------------------------------------- */

enum { MOST_ARGUMENTS = 32 };

static PyObject *result_of(const dg_loop_call *call, dg_loop_values *values)
{
    PyObject *given[MOST_ARGUMENTS + 1] = {NULL};
    int n = call->box.n_parts;
    if (dg_box_build_parts(&call->box, values, given + 1) < 0)
        return NULL;
    PyObject *result = PyObject_Vectorcall(call->function, given + 1, (size_t)n | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    for (int k = 1; k <= n; ++k)
        Py_DECREF(given[k]);
    return result;
}

int32_t dg_call_make(dg_loop_call *call, dg_slot *slots, PyObject *const *args, dg_loop_lists *lists, int leaves)
{
    ++call->made;
    dg_made_sweep(lists);
    dg_loop_values values = {slots, args, {0}, lists};
    PyObject *result = result_of(call, &values);
    if (dg_pass_on(&values.late) < 0)
        Py_CLEAR(result);
    if (result && !leaves && dg_parameter_read(&call->result, result, slots, lists)) {
        Py_DECREF(result);
        return 0;
    }
    slots[0].p = result ? result : new_raiser(call->function);
    return result ? DG_OTHER_TYPE : DG_RAISES;
}
