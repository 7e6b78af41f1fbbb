/* Functions of arrays that are others for large arrays, as kernels are worth more there than a function's own overhead. */
#include "core.h"

int dg_are_large(PyObject *const *arrays, Py_ssize_t n, npy_intp size)
{
    int some = 0;
    for (Py_ssize_t k = 0; k < n; ++k) {
        if (PyArray_CheckExact(arrays[k]))
            some |= PyArray_SIZE((PyArrayObject *)arrays[k]) >= size;
        else if (!(PyFloat_CheckExact(arrays[k]) || PyLong_CheckExact(arrays[k]) || PyBool_Check(arrays[k]) ||
                   PyComplex_CheckExact(arrays[k]) || PyArray_CheckScalar(arrays[k])))
            return 0; /* of another library */
    }
    return some;
}

/* self: (small, large, size) */
static PyObject *call_by_size(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
    Py_ssize_t size = PyLong_AsSsize_t(PyTuple_GET_ITEM(self, 2));
    PyObject *chosen = PyTuple_GET_ITEM(self, dg_are_large(args, n, size) ? 1 : 0);
    return PyObject_Vectorcall(chosen, args, (size_t)n, names);
}

PyObject *dg_by_size(PyObject *module, PyObject *args)
{
    static PyMethodDef chooses = {"by_size", (PyCFunction)(void (*)(void))call_by_size, METH_FASTCALL | METH_KEYWORDS,
                                  "what a function gives for arrays that are not large, and another one for those that are"};
    PyObject *small, *large, *name;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "OOnU:by_size", &small, &large, &size, &name))
        return NULL;
    PyObject *self = Py_BuildValue("(OOn)", small, large, size);
    PyObject *made = self ? PyCFunction_NewEx(&chooses, self, name) : NULL;
    Py_XDECREF(self);
    return made;
}

PyObject *dg_any_large(PyObject *module, PyObject *args)
{
    PyObject *arrays;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "O!n:any_large", &PyTuple_Type, &arrays, &size))
        return NULL;
    return PyBool_FromLong(dg_are_large(&PyTuple_GET_ITEM(arrays, 0), PyTuple_GET_SIZE(arrays), size));
}
