/* Convolutions from Python. */
#ifndef DG_CONVOLVE_H
#define DG_CONVOLVE_H
#include <Python.h>

PyObject *dg_convolve_arrays(PyObject *module, PyObject *args);

#endif
