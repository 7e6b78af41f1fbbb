/* Where native code leaves a loop within a call that it has inlined, Python makes that call once more: of an object that does the rest
   of it. No Python code of ours runs in between: it is in the frame of the rest that signals are handled. */
#include "entries.h"
#include "loops.h"

typedef struct {
    PyObject_HEAD
    PyObject *make, *target; /* the target: what make() gave, once it was needed */
} rest;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    rest *owner;
    PyObject *state; /* a tuple */
} waiting;

static PyTypeObject waiting_type;

/* a new reference. Another thread may make it meanwhile: the first one stays. */
static PyObject *target_of(rest *self)
{
    if (self->target)
        return Py_NewRef(self->target);
    dg_raised late = {0};
    PyObject *made = dg_call_whole(self->make, NULL, &late);
    if (made && !PyCallable_Check(made)) {
        PyErr_Format(PyExc_TypeError, "Rest: %R gave %R, which is not callable", self->make, made);
        Py_CLEAR(made);
    }
    if (dg_pass_on(&late) < 0)
        Py_CLEAR(made);
    if (made && !self->target)
        self->target = Py_NewRef(made);
    return made;
}

/* whatever it is given, it goes on with the state */
static PyObject *call_waiting(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    waiting *self = (waiting *)callable;
    PyObject *target = target_of(self->owner), *state = Py_NewRef(self->state), *result = NULL;
    if (target && Py_EnterRecursiveCall(" in the rest of a call") == 0) {
        result = PyObject_Vectorcall(target, &PyTuple_GET_ITEM(state, 0), (size_t)PyTuple_GET_SIZE(state), NULL);
        result = dg_follow_tails(result);
        Py_LeaveRecursiveCall();
    }
    Py_XDECREF(target);
    Py_DECREF(state);
    return result;
}

static PyObject *call_rest(PyObject *callable, PyObject *args, PyObject *kwargs)
{
    if (kwargs && PyDict_GET_SIZE(kwargs))
        return PyErr_Format(PyExc_TypeError, "Rest: takes no keyword arguments");
    waiting *made = PyObject_GC_New(waiting, &waiting_type);
    if (!made)
        return NULL;
    made->vectorcall = call_waiting;
    made->owner = (rest *)Py_NewRef(callable);
    made->state = Py_NewRef(args);
    PyObject_GC_Track(made);
    return (PyObject *)made;
}

static PyObject *rest_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"make", NULL};
    PyObject *make;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:Rest", names, &make))
        return NULL;
    if (!PyCallable_Check(make))
        return PyErr_Format(PyExc_TypeError, "Rest: expected a callable, got %R", make);
    rest *self = (rest *)type->tp_alloc(type, 0);
    if (self)
        self->make = Py_NewRef(make);
    return (PyObject *)self;
}

static int rest_traverse(rest *self, visitproc visit, void *arg)
{
    Py_VISIT(self->make);
    Py_VISIT(self->target);
    return 0;
}

/* what makes it stays, so that other garbage may still call it */
static int rest_clear(rest *self)
{
    Py_CLEAR(self->target);
    return 0;
}

static void rest_dealloc(rest *self)
{
    PyObject_GC_UnTrack(self);
    rest_clear(self);
    Py_XDECREF(self->make);
    Py_TYPE(self)->tp_free(self);
}

/* no tp_clear: like a tuple it is made whole */
static int waiting_traverse(waiting *self, visitproc visit, void *arg)
{
    Py_VISIT(self->owner);
    Py_VISIT(self->state);
    return 0;
}

static void waiting_dealloc(waiting *self)
{
    PyObject_GC_UnTrack(self);
    Py_DECREF(self->owner);
    Py_DECREF(self->state);
    PyObject_GC_Del(self);
}

PyTypeObject dg_RestType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dynagraph._core._dispatch.Rest",
    .tp_basicsize = sizeof(rest),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Rest(make): a call of it with a state gives what stands in for a callable; that goes on in make() with the state.",
    .tp_new = rest_new,
    .tp_call = call_rest,
    .tp_dealloc = (destructor)rest_dealloc,
    .tp_traverse = (traverseproc)rest_traverse,
    .tp_clear = (inquiry)rest_clear,
    .tp_free = PyObject_GC_Del,
};

static PyTypeObject waiting_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dynagraph._core._dispatch.Waiting",
    .tp_basicsize = sizeof(waiting),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = "Stands in for the callable of a call that was inlined.",
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(waiting, vectorcall),
    .tp_dealloc = (destructor)waiting_dealloc,
    .tp_traverse = (traverseproc)waiting_traverse,
};

int dg_rests_ready(void) { return PyType_Ready(&waiting_type); }
