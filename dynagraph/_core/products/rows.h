/* Rows of tables from Python. */
#ifndef DG_ROWS_H
#define DG_ROWS_H
#include <Python.h>

PyObject *dg_put_rows(PyObject *module, PyObject *args);

#endif
