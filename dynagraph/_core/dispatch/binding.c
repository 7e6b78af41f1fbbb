/* Binding: what a call gives to the parameters of a function. */
#include "core.h"

static int same_name(PyObject *a, PyObject *b)
{
    return a == b || PyUnicode_Compare(a, b) == 0;
}

PyObject *dg_bind(PyObject *function, PyObject *const *args, Py_ssize_t n_args, PyObject *kwnames)
{
    PyCodeObject *code = (PyCodeObject *)PyFunction_GET_CODE(function);
    PyObject *defaults = PyFunction_GET_DEFAULTS(function), *kw_defaults = PyFunction_GET_KW_DEFAULTS(function);
    Py_ssize_t n_positional = code->co_argcount, n_named = n_positional + code->co_kwonlyargcount;
    int has_args = !!(code->co_flags & CO_VARARGS), has_kwargs = !!(code->co_flags & CO_VARKEYWORDS);
    if (n_args > n_positional && !has_args)
        return NULL;
    PyObject *names = PyCode_GetVarnames(code);
    PyObject *values = names ? PyTuple_New(n_named + has_args + has_kwargs) : NULL;
    PyObject *extra = NULL;
    if (!values)
        goto fail;
    Py_ssize_t direct = n_args < n_positional ? n_args : n_positional;
    for (Py_ssize_t k = 0; k < direct; ++k)
        PyTuple_SET_ITEM(values, k, Py_NewRef(args[k]));
    if (has_args) {
        PyObject *rest = PyTuple_New(n_args - direct);
        if (!rest)
            goto fail;
        for (Py_ssize_t k = direct; k < n_args; ++k)
            PyTuple_SET_ITEM(rest, k - direct, Py_NewRef(args[k]));
        PyTuple_SET_ITEM(values, n_named, rest);
    }
    if (has_kwargs) {
        if (!(extra = PyDict_New()))
            goto fail;
        PyTuple_SET_ITEM(values, n_named + has_args, extra);
    }
    for (Py_ssize_t j = 0; kwnames && j < PyTuple_GET_SIZE(kwnames); ++j) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, j), *value = args[n_args + j];
        Py_ssize_t k = code->co_posonlyargcount;
        while (k < n_named && !same_name(PyTuple_GET_ITEM(names, k), name))
            ++k;
        if (k < n_named) {
            if (PyTuple_GET_ITEM(values, k))
                goto fail; /* given twice */
            PyTuple_SET_ITEM(values, k, Py_NewRef(value));
        } else if (!has_kwargs || PyDict_SetItem(extra, name, value) < 0) {
            goto fail;
        }
    }
    Py_ssize_t n_defaults = defaults ? PyTuple_GET_SIZE(defaults) : 0;
    for (Py_ssize_t k = direct; k < n_positional; ++k)
        if (!PyTuple_GET_ITEM(values, k)) {
            if (k < n_positional - n_defaults)
                goto fail;
            PyTuple_SET_ITEM(values, k, Py_NewRef(PyTuple_GET_ITEM(defaults, k - (n_positional - n_defaults))));
        }
    for (Py_ssize_t k = n_positional; k < n_named; ++k)
        if (!PyTuple_GET_ITEM(values, k)) {
            PyObject *value = kw_defaults ? PyDict_GetItemWithError(kw_defaults, PyTuple_GET_ITEM(names, k)) : NULL;
            if (!value)
                goto fail;
            PyTuple_SET_ITEM(values, k, Py_NewRef(value));
        }
    Py_DECREF(names);
    return values;
fail:
    Py_XDECREF(names);
    Py_XDECREF(values);
    PyErr_Clear();
    return NULL;
}
