/* Pooling from Python. */
#ifndef DG_POOL_H
#define DG_POOL_H
#include <Python.h>

PyObject *dg_max_pool(PyObject *module, PyObject *args);
PyObject *dg_put_places(PyObject *module, PyObject *args);
PyObject *dg_put_rows(PyObject *module, PyObject *args);
PyObject *dg_adaptive_means(PyObject *module, PyObject *args);
PyObject *dg_adaptive_means_back(PyObject *module, PyObject *args);
PyObject *dg_adaptive_maxima(PyObject *module, PyObject *args);

#endif
