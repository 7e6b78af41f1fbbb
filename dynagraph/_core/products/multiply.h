/* Products from Python. */
#ifndef DG_MULTIPLY_H
#define DG_MULTIPLY_H
#include <Python.h>

PyObject *dg_multiply(PyObject *module, PyObject *args);
PyObject *dg_product_kernels(PyObject *module, PyObject *ignored);

#endif
