/* Tails: what a continuation returns in place of a result.  The trampoline makes the call in its stead, so that code which
   leaves the graph again and again (a loop around a graph break) nests neither C frames nor Python frames. */
#include "core.h"

dg_tail *dg_tail_new(PyObject *function, Py_ssize_t n)
{
    dg_tail *tail = PyObject_GC_NewVar(dg_tail, &dg_TailType, n);
    if (!tail)
        return NULL;
    tail->function = Py_NewRef(function);
    memset(tail->args, 0, (size_t)n * sizeof *tail->args);
    return tail;
}

PyObject *dg_tail_of(PyObject *function, PyObject *const *args, Py_ssize_t n)
{
    dg_tail *tail = dg_tail_new(function, n);
    if (!tail)
        return NULL;
    for (Py_ssize_t k = 0; k < n; ++k)
        tail->args[k] = Py_NewRef(args[k]);
    PyObject_GC_Track(tail);
    return (PyObject *)tail;
}

static PyObject *make_tail(PyObject *const *args, Py_ssize_t n)
{
    if (n < 1)
        return PyErr_Format(PyExc_TypeError, "Tail: expected a callable and positional arguments");
    if (!PyCallable_Check(args[0]))
        return PyErr_Format(PyExc_TypeError, "Tail: expected a callable, got %R", args[0]);
    return dg_tail_of(args[0], args + 1, n - 1);
}

static PyObject *tail_new(PyObject *type, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    return make_tail(args, kwnames && PyTuple_GET_SIZE(kwnames) ? 0 : PyVectorcall_NARGS(nargsf));
}

static void tail_dealloc(dg_tail *tail)
{
    PyObject_GC_UnTrack(tail);
    Py_DECREF(tail->function);
    for (Py_ssize_t k = 0; k < Py_SIZE(tail); ++k)
        Py_XDECREF(tail->args[k]);
    PyObject_GC_Del(tail);
}

/* no tp_clear: like a tuple it is made whole, so that a cycle through it has another member that can be cleared */
static int tail_traverse(dg_tail *tail, visitproc visit, void *arg)
{
    Py_VISIT(tail->function);
    for (Py_ssize_t k = 0; k < Py_SIZE(tail); ++k)
        Py_VISIT(tail->args[k]);
    return 0;
}

static PyObject *get_function(dg_tail *tail, void *ignored) { return Py_NewRef(tail->function); }

static PyObject *get_args(dg_tail *tail, void *ignored)
{
    PyObject *args = PyTuple_New(Py_SIZE(tail));
    for (Py_ssize_t k = 0; args && k < Py_SIZE(tail); ++k)
        PyTuple_SET_ITEM(args, k, Py_NewRef(tail->args[k]));
    return args;
}

static PyGetSetDef tail_getset[] = {
    {"function", (getter)get_function, NULL, NULL, NULL},
    {"args", (getter)get_args, NULL, NULL, NULL},
    {0},
};

PyTypeObject dg_TailType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dynagraph._core._dispatch.Tail",
    .tp_basicsize = offsetof(dg_tail, args),
    .tp_itemsize = sizeof(PyObject *),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = "Tail(function, *args): returned by a continuation, the call function(*args) in its stead.",
    .tp_vectorcall = tail_new,
    .tp_dealloc = (destructor)tail_dealloc,
    .tp_traverse = (traverseproc)tail_traverse,
    .tp_free = PyObject_GC_Del,
    .tp_getset = tail_getset,
};

/* The interpreter handles signals after every call, and a continuation is no longer in the user's try block when it makes its
   tail: so it subscripts, after which nothing is handled. */
static PyObject *tail_of(PyObject *ignored, PyObject *parts)
{
    if (!PyTuple_CheckExact(parts))
        return PyErr_Format(PyExc_TypeError, "tails: expected a tuple, got %R", parts);
    return make_tail(&PyTuple_GET_ITEM(parts, 0), PyTuple_GET_SIZE(parts));
}

static PyMappingMethods tails_mapping = {.mp_subscript = tail_of};

static PyTypeObject tails_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dynagraph._core._dispatch.Tails",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = "tails[function, *args] is Tail(function, *args).",
    .tp_as_mapping = &tails_mapping,
};

PyObject *dg_tails_new(void) { return PyType_Ready(&tails_type) < 0 ? NULL : PyObject_New(PyObject, &tails_type); }
