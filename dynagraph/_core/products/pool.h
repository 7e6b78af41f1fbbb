/* Pools on the thread pool: `dg_pool`, which generated code calls, too; the others from Python. */
#ifndef DG_POOL_H
#define DG_POOL_H
#include <Python.h>

#include "../runtime.h"

/* see `pool` in runtime.h */
int dg_pool(const dg_runtime *rt, const dg_pooling *what, const void *a, const int64_t *b, void *to, int64_t *where, dg_stop *stop);

PyObject *dg_max_pool(PyObject *module, PyObject *args);
PyObject *dg_avg_pool(PyObject *module, PyObject *args);
PyObject *dg_put_places(PyObject *module, PyObject *args);
PyObject *dg_adaptive_means(PyObject *module, PyObject *args);
PyObject *dg_adaptive_means_back(PyObject *module, PyObject *args);
PyObject *dg_adaptive_maxima(PyObject *module, PyObject *args);

#endif
