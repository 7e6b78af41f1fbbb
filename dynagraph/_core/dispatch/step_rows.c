/* What the steps of optimizers read of tensors: the arrays of parameters, gradients and states, in rows for `run_each`. */
#include "tensors.h"

/* parameters that have been stepped alike: a tuple (dtype, counters' values, counters' arrays, rows) of these */
typedef struct {
    PyObject *params, *states, *names, *counters, *groups, *rest;
    PyObject *grad_name, *one;
} gathering;

/* the array of a tensor, borrowed; null: it is no plain tensor of NumPy's array of this dtype (null: any) */
static PyArrayObject *array_of(PyObject *tensor, PyArray_Descr *dtype)
{
    PyObject *array = tensor && dg_is_tensor(tensor) ? *dg_slot_of(tensor, dg_of.array) : NULL;
    if (!array || !PyArray_CheckExact(array) || (dtype && PyArray_DESCR((PyArrayObject *)array) != dtype))
        return NULL;
    return (PyArrayObject *)array;
}

/* 1: the number in an array of no dimensions */
static int number_of(PyArrayObject *array, double *value)
{
    if (!array || PyArray_NDIM(array) || !PyArray_ISBEHAVED(array))
        return 0;
    if (PyArray_TYPE(array) == NPY_FLOAT)
        *value = *(float *)PyArray_DATA(array);
    else if (PyArray_TYPE(array) == NPY_DOUBLE)
        *value = *(double *)PyArray_DATA(array);
    else
        return 0;
    return 1;
}

/* counts a write; -1: an exception is set */
static int note_write(PyObject *tensor, PyObject *one)
{
    PyObject *storage = *dg_slot_of(tensor, dg_of.own_storage);
    PyObject *version = PyNumber_Add(*dg_slot_of(storage, dg_of.version), one);
    if (!version)
        return -1;
    dg_put(storage, dg_of.version, version);
    return 0;
}

/* tensors of a state by names, borrowed, whose arrays become items of `row` from `first` on; 1: all are plain */
static int take_states(PyObject *state, PyObject *names, PyArray_Descr *dtype, PyObject *row, Py_ssize_t first)
{
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(names); ++k) {
        PyArrayObject *array = array_of(PyDict_GetItemWithError(state, PyTuple_GET_ITEM(names, k)), dtype);
        if (!array)
            return 0;
        PyTuple_SET_ITEM(row, first + k, Py_NewRef((PyObject *)array));
    }
    return 1;
}

/* counters' values and arrays as tuples; 1: they are there; 0: they are not plain, or an exception is set */
static int take_counters(const gathering *all, PyObject *state, PyObject **values, PyObject **arrays)
{
    Py_ssize_t n = PyTuple_GET_SIZE(all->counters);
    *values = PyTuple_New(n);
    *arrays = PyTuple_New(n);
    if (!*values || !*arrays || !take_states(state, all->counters, NULL, *arrays, 0))
        return 0;
    for (Py_ssize_t k = 0; k < n; ++k) {
        double value;
        PyObject *number = number_of((PyArrayObject *)PyTuple_GET_ITEM(*arrays, k), &value) ? PyFloat_FromDouble(value) : NULL;
        if (!number)
            return 0;
        PyTuple_SET_ITEM(*values, k, number);
    }
    return 1;
}

/* the group of parameters like this one, borrowed; null: an exception is set */
static PyObject *group_of(const gathering *all, PyArray_Descr *dtype, PyObject *values)
{
    for (Py_ssize_t k = PyList_GET_SIZE(all->groups) - 1; k >= 0; --k) {
        PyObject *group = PyList_GET_ITEM(all->groups, k);
        int same = PyTuple_GET_ITEM(group, 0) == (PyObject *)dtype ? PyObject_RichCompareBool(PyTuple_GET_ITEM(group, 1), values, Py_EQ) : 0;
        if (same)
            return same < 0 ? NULL : group;
    }
    PyObject *group = Py_BuildValue("(OO[][])", dtype, values);
    int failed = !group || PyList_Append(all->groups, group) < 0;
    Py_XDECREF(group);
    return failed ? NULL : group;
}

/* 1: the parameter's row is in its group, and its writes are counted; 0: it is not plain, or an exception is set */
static int add_plain(const gathering *all, PyObject *param, PyObject *grad, PyObject *state)
{
    PyArrayObject *array = array_of(param, NULL);
    PyArray_Descr *dtype = array ? PyArray_DESCR(array) : NULL;
    Py_ssize_t n = PyTuple_GET_SIZE(all->names);
    if (!array || (dtype->type_num != NPY_FLOAT && dtype->type_num != NPY_DOUBLE) || !Py_IS_TYPE(grad, dg_of.tensor) ||
        !array_of(grad, dtype) || (n + PyTuple_GET_SIZE(all->counters) && (!state || !PyDict_CheckExact(state))))
        return 0;
    PyObject *values = NULL, *counters = NULL, *group, *row = PyTuple_New(2 + n);
    int added = row && take_states(state, all->names, dtype, row, 2) && take_counters(all, state, &values, &counters);
    if (added) {
        PyTuple_SET_ITEM(row, 0, Py_NewRef((PyObject *)array));
        PyTuple_SET_ITEM(row, 1, Py_NewRef((PyObject *)array_of(grad, dtype)));
        group = group_of(all, dtype, values);
        added = group && PyList_Append(PyTuple_GET_ITEM(group, 2), counters) == 0 && PyList_Append(PyTuple_GET_ITEM(group, 3), row) == 0 &&
                note_write(param, all->one) == 0;
        PyObject *named[] = {all->names, all->counters};
        for (int kind = 0; kind < 2; ++kind)
            for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(named[kind]) && added; ++k)
                added = note_write(PyDict_GetItemWithError(state, PyTuple_GET_ITEM(named[kind], k)), all->one) == 0;
    }
    Py_XDECREF(values);
    Py_XDECREF(counters);
    Py_XDECREF(row);
    return added;
}

PyObject *dg_step_rows(PyObject *module, PyObject *args)
{
    gathering all = {0};
    if (!PyArg_ParseTuple(args, "O!O!O!O!:step_rows", &PyList_Type, &all.params, &PyDict_Type, &all.states, &PyTuple_Type, &all.names,
                          &PyTuple_Type, &all.counters))
        return NULL;
    all.groups = PyList_New(0);
    all.rest = PyList_New(0);
    all.one = PyLong_FromLong(1);
    all.grad_name = PyUnicode_InternFromString("grad");
    int failed = !all.groups || !all.rest || !all.one || !all.grad_name;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(all.params) && !failed; ++k) {
        PyObject *param = Py_NewRef(PyList_GET_ITEM(all.params, k)), *grad = PyObject_GetAttr(param, all.grad_name);
        PyObject *state = grad && grad != Py_None ? Py_XNewRef(PyDict_GetItemWithError(all.states, param)) : NULL;
        failed = PyErr_Occurred() != NULL;
        if (!failed && grad != Py_None && !add_plain(&all, param, grad, state))
            failed = PyErr_Occurred() || PyList_Append(all.rest, param) < 0;
        Py_XDECREF(state);
        Py_XDECREF(grad);
        Py_DECREF(param);
    }
    PyObject *result = failed ? NULL : PyTuple_Pack(2, all.groups, all.rest);
    Py_XDECREF(all.groups);
    Py_XDECREF(all.rest);
    Py_XDECREF(all.one);
    Py_XDECREF(all.grad_name);
    return result;
}

PyObject *dg_fill_numbers(PyObject *module, PyObject *args)
{
    PyObject *rows, *values;
    if (!PyArg_ParseTuple(args, "O!O!:fill_numbers", &PyList_Type, &rows, &PyTuple_Type, &values))
        return NULL;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(values); ++k) {
        double value = PyFloat_AsDouble(PyTuple_GET_ITEM(values, k)), before;
        if (PyErr_Occurred())
            return NULL;
        for (Py_ssize_t row = 0; row < PyList_GET_SIZE(rows); ++row) {
            PyObject *array = dg_item(PyList_GET_ITEM(rows, row), k);
            if (!array || !PyArray_CheckExact(array) || !number_of((PyArrayObject *)array, &before))
                return PyErr_Format(PyExc_TypeError, "fill_numbers: expected arrays of one float, got %R", array ? array : Py_None);
            if (PyArray_TYPE((PyArrayObject *)array) == NPY_FLOAT)
                *(float *)PyArray_DATA((PyArrayObject *)array) = (float)value;
            else
                *(double *)PyArray_DATA((PyArrayObject *)array) = value;
        }
    }
    Py_RETURN_NONE;
}
