/* Normalization from Python. */
#ifndef DG_NORM_CALL_H
#define DG_NORM_CALL_H
#include <Python.h>

PyObject *dg_normalize(PyObject *module, PyObject *args);
PyObject *dg_normalize_back(PyObject *module, PyObject *args);

#endif
