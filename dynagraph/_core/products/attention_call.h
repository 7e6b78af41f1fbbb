/* Attention from Python. */
#ifndef DG_ATTENTION_CALL_H
#define DG_ATTENTION_CALL_H
#include <Python.h>

PyObject *dg_py_attention(PyObject *module, PyObject *args);
PyObject *dg_py_attention_gradient(PyObject *module, PyObject *args);

#endif
