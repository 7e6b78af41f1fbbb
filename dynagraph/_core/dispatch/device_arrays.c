/* Arrays on a device: what they say of themselves, by attributes of a class in C (CuPy's). */
#include "core.h"

static PyObject *a_shape, *a_strides, *a_dtype, *a_data, *a_ptr, *a_device_id, *a_itemsize;

int dg_device_arrays_start(void)
{
    static const struct { PyObject **name; const char *text; } names[] = {
        {&a_shape, "shape"}, {&a_strides, "strides"}, {&a_dtype, "dtype"}, {&a_data, "data"}, {&a_ptr, "ptr"},
        {&a_device_id, "device_id"}, {&a_itemsize, "itemsize"},
    };
    for (size_t k = 0; k < sizeof names / sizeof *names; ++k)
        if (!*names[k].name && !(*names[k].name = PyUnicode_InternFromString(names[k].text)))
            return -1;
    return 0;
}

/* an attribute that is an int; -1 with an exception: it is none */
static npy_intp int_attribute(PyObject *object, PyObject *name)
{
    PyObject *value = object ? PyObject_GetAttr(object, name) : NULL;
    npy_intp number = value ? PyLong_AsSsize_t(value) : -1;
    Py_XDECREF(value);
    return number;
}

/* how many ints an attribute holds, a tuple; -1, perhaps with an exception: it is none */
static int sizes_attribute(PyObject *object, PyObject *name, npy_intp *out)
{
    PyObject *value = PyObject_GetAttr(object, name);
    int n = value && PyTuple_CheckExact(value) && PyTuple_GET_SIZE(value) <= DG_MAX_DIMS ? (int)PyTuple_GET_SIZE(value) : -1;
    for (int k = 0; k < n; ++k)
        out[k] = PyLong_AsSsize_t(PyTuple_GET_ITEM(value, k));
    Py_XDECREF(value);
    return n;
}

char *dg_device_address(PyObject *array)
{
    PyObject *data = PyObject_GetAttr(array, a_data), *pointer = data ? PyObject_GetAttr(data, a_ptr) : NULL;
    char *address = pointer ? PyLong_AsVoidPtr(pointer) : NULL;
    Py_XDECREF(pointer);
    Py_XDECREF(data);
    return address;
}

PyObject *dg_device_dtype(PyObject *array) { return PyObject_GetAttr(array, a_dtype); }

int dg_device_shape(PyObject *array, npy_intp *dims) { return sizes_attribute(array, a_shape, dims); }

int dg_device_layout_of(PyObject *object, dg_device_layout *layout)
{
    layout->ndim = sizes_attribute(object, a_shape, layout->dims);
    int holds = layout->ndim >= 0 && sizes_attribute(object, a_strides, layout->strides) == layout->ndim;
    PyObject *data = holds ? PyObject_GetAttr(object, a_data) : NULL;
    if (data) {
        layout->data = (char *)(intptr_t)int_attribute(data, a_ptr);
        layout->device = int_attribute(data, a_device_id);
        Py_DECREF(data);
        layout->itemsize = int_attribute(object, a_itemsize);
    }
    holds = data && !PyErr_Occurred();
    PyErr_Clear();
    return holds;
}
