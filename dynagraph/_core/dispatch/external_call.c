/* Python functions that generated code calls: NumPy's routines that no kernel replaces, over memory of the program. */
#include "core.h"

static PyObject *array_over(const dg_array *array, int flags)
{
    npy_intp shape[DG_MAX_DIMS], strides[DG_MAX_DIMS];
    for (int k = 0; k < array->ndim; ++k) {
        shape[k] = (npy_intp)array->shape[k];
        strides[k] = (npy_intp)array->strides[k];
    }
    PyArray_Descr *descr = PyArray_DescrFromType(array->type);
    return descr ? PyArray_NewFromDescr(&PyArray_Type, descr, array->ndim, shape, strides, array->data, flags, NULL) : NULL;
}

static PyObject *arrays_over(const dg_array *arrays, int n, int flags)
{
    PyObject *tuple = PyTuple_New(n);
    for (int k = 0; tuple && k < n; ++k) {
        PyObject *array = array_over(&arrays[k], flags);
        if (!array)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, k, array);
    }
    return tuple;
}

static PyObject *sizes_of(const dg_callee *callee, const int64_t *sizes)
{
    PyObject *tuple = PyTuple_New(callee->n_sizes);
    for (int k = 0; tuple && k < callee->n_sizes; ++k) {
        PyObject *size = PyLong_FromLongLong(sizes[k]);
        if (!size)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, k, size);
    }
    return tuple;
}

/* What the function raises lets the program bail out: run eagerly, the user's code raises the same at its own place, and at once
   what a signal's handler has raised meanwhile (see signals.c). What is raised after an effect is final. */
static int call(PyObject *function, PyObject *args)
{
    PyObject *given = PyObject_CallObject(function, args);
    dg_raised late = {0};
    if (given) {
        Py_DECREF(given);
        return 0;
    }
    if (dg_is_final())
        return DG_RAISED;
    if (dg_put_off(&late))
        return dg_raise_later(&late) < 0 ? DG_RAISED : DG_BAILED_OUT;
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return DG_RAISED;
    PyErr_Clear();
    return DG_BAILED_OUT;
}

int dg_external_call(void *program, int32_t number, const int64_t *sizes, int32_t n_operands, const dg_array *operands,
                int32_t n_results, const dg_array *results)
{
    const dg_callee *callee = program;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *args = Py_BuildValue("(iNNN)", (int)number, sizes_of(callee, sizes), arrays_over(operands, n_operands, 0),
                                   arrays_over(results, n_results, NPY_ARRAY_WRITEABLE));
    int status = args ? call(callee->function, args) : DG_RAISED;
    Py_XDECREF(args);
    PyGILState_Release(state);
    return status;
}
