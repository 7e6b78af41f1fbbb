/* Guards on containers: their storage is read as C keeps it, whatever a subclass redefines. */
#include "guards.h"

static PyTypeObject *deque_type; /* collections.deque; kept for good */

int dg_know_deques(void)
{
    PyObject *module = deque_type ? NULL : PyImport_ImportModule("collections");
    if (module)
        deque_type = (PyTypeObject *)PyObject_GetAttrString(module, "deque");
    Py_XDECREF(module);
    return deque_type ? 0 : -1;
}

static inline int is_deque(PyObject *object)
{
    return deque_type && PyObject_TypeCheck(object, deque_type);
}

/* borrowed, or null without an exception */
static PyObject *stored_item(PyObject *sequence, Py_ssize_t index)
{
    if (PyTuple_Check(sequence))
        return index >= 0 && index < PyTuple_GET_SIZE(sequence) ? PyTuple_GET_ITEM(sequence, index) : NULL;
    if (PyList_Check(sequence))
        return index >= 0 && index < PyList_GET_SIZE(sequence) ? PyList_GET_ITEM(sequence, index) : NULL;
    if (!is_deque(sequence))
        return NULL;
    PyObject *item = deque_type->tp_as_sequence->sq_item(sequence, index); /* the deque keeps it alive */
    if (item)
        Py_DECREF(item);
    else
        PyErr_Clear();
    return item;
}

int dg_load_item(dg_guard *g, dg_frame *frame) { return dg_load(g, frame, stored_item(dg_guarded(g, frame), g->number)); }

int dg_load_dict_item(dg_guard *g, dg_frame *frame)
{
    PyObject *dict = dg_guarded(g, frame), *value = NULL;
    if (PyDict_Check(dict) && !(value = _PyDict_GetItem_KnownHash(dict, g->key, g->hash)))
        PyErr_Clear();
    return value && dg_load(g, frame, value);
}

int dg_lacks_item(dg_guard *g, dg_frame *frame)
{
    PyObject *object = dg_guarded(g, frame);
    if (!PyDict_Check(object) || _PyDict_GetItem_KnownHash(object, g->key, g->hash))
        return 0;
    int failed = PyErr_Occurred() != NULL;
    PyErr_Clear();
    return !failed;
}

static Py_ssize_t stored_length(PyObject *object)
{
    if (PyTuple_Check(object))
        return PyTuple_GET_SIZE(object);
    if (PyList_Check(object))
        return PyList_GET_SIZE(object);
    if (PyDict_Check(object))
        return PyDict_GET_SIZE(object);
    if (is_deque(object))
        return Py_SIZE(object);
    return PyAnySet_Check(object) ? PySet_GET_SIZE(object) : -1;
}

int dg_is_of_length(dg_guard *g, dg_frame *frame) { return stored_length(dg_guarded(g, frame)) == g->number; }

int dg_has_maxlen(dg_guard *g, dg_frame *frame)
{
    PyObject *object = dg_guarded(g, frame);
    PyObject *maxlen = is_deque(object) ? PyObject_GenericGetAttr(object, g->key) : NULL;
    Py_ssize_t number = !maxlen ? -2 : maxlen == Py_None ? -1 : PyLong_AsSsize_t(maxlen);
    Py_XDECREF(maxlen);
    PyErr_Clear();
    return number == g->number;
}

/* whether two keys are one, where no comparison runs code of the user's */
static int same_key(PyObject *key, PyObject *wanted)
{
    if (key == wanted)
        return 1;
    if (Py_TYPE(key) != Py_TYPE(wanted) || !dg_is_plain(key))
        return 0;
    if (PyFloat_CheckExact(key)) {
        double a = PyFloat_AS_DOUBLE(key), b = PyFloat_AS_DOUBLE(wanted);
        return memcmp(&a, &b, sizeof a) == 0;
    }
    return PyObject_RichCompareBool(key, wanted, Py_EQ) == 1;
}

/* whether what an iterator gives are these keys; takes the iterator */
static int gives_keys(PyObject *iterator, PyObject *wanted)
{
    Py_ssize_t k = 0, n = PyTuple_GET_SIZE(wanted);
    int holds = iterator != NULL;
    PyObject *key;
    while (holds && (key = Py_TYPE(iterator)->tp_iternext(iterator))) {
        holds = k < n && same_key(key, PyTuple_GET_ITEM(wanted, k));
        ++k;
        Py_DECREF(key);
    }
    Py_XDECREF(iterator);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    return holds && k == n;
}

int dg_has_keys(dg_guard *g, dg_frame *frame)
{
    PyObject *object = dg_guarded(g, frame);
    Py_ssize_t n = PyTuple_GET_SIZE(g->object), position = 0, k = 0;
    if (!PyDict_Check(object) || PyDict_GET_SIZE(object) != n)
        return 0;
    if (PyODict_Check(object)) /* has an order of its own */
        return gives_keys(PyODict_Type.tp_iter(object), g->object);
    PyObject *key, *value;
    while (PyDict_Next(object, &position, &key, &value))
        if (!same_key(key, PyTuple_GET_ITEM(g->object, k++)))
            return 0;
    return 1;
}

int dg_has_order(dg_guard *g, dg_frame *frame)
{
    PyObject *object = dg_guarded(g, frame);
    return PyAnySet_CheckExact(object) && gives_keys(PyObject_GetIter(object), g->object);
}

int dg_has_elements(dg_guard *g, dg_frame *frame)
{
    PyObject *object = dg_guarded(g, frame);
    if (!PyAnySet_CheckExact(object) || PySet_GET_SIZE(object) != PyDict_GET_SIZE(g->object))
        return 0;
    PyObject *iterator = PyObject_GetIter(object), *element;
    int holds = iterator != NULL;
    while (holds && (element = PyIter_Next(iterator))) {
        PyObject *same = dg_is_plain(element) ? PyDict_GetItemWithError(g->object, element) : NULL;
        holds = same && Py_TYPE(same) == Py_TYPE(element);
        if (holds && PyFloat_CheckExact(element)) {
            double a = PyFloat_AS_DOUBLE(same), b = PyFloat_AS_DOUBLE(element);
            holds = memcmp(&a, &b, sizeof a) == 0;
        }
        Py_DECREF(element);
    }
    Py_XDECREF(iterator);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    return holds;
}
