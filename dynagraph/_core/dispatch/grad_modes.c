/* What dynagraph.torch records and in which dtypes: a state of each thread, which its tensors ask for with every operation. */
#include "core.h"

static _Thread_local unsigned modes = DG_GRAD | DG_CHECK_NAN | DG_AUTOCAST_CACHE;
static _Thread_local PyObject *casts; /* what autocast has cast in this region; NULL: outside of all */

int dg_grad_modes(void) { return (int)modes; }

/* a switch, or a number of as many bits: its mask */
static PyObject *get_mode(PyObject *self, void *mask)
{
    unsigned bits = (unsigned)(uintptr_t)mask, value = (modes & bits) / (bits & -bits);
    return bits & (bits - 1) ? PyLong_FromUnsignedLong(value) : PyBool_FromLong(value);
}

static int set_mode(PyObject *self, PyObject *value, void *mask)
{
    unsigned bits = (unsigned)(uintptr_t)mask;
    long number = !value ? -1 : bits & (bits - 1) ? PyLong_AsLong(value) : PyObject_IsTrue(value);
    if (!value)
        PyErr_SetString(PyExc_AttributeError, "a mode cannot be deleted");
    if (number < 0 || (unsigned long)number > bits / (bits & -bits)) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_ValueError, "a mode cannot be %ld", number);
        return -1;
    }
    modes = (modes & ~bits) | (unsigned)number * (bits & -bits);
    return 0;
}

static PyObject *get_casts(PyObject *self, void *ignored) { return Py_NewRef(casts ? casts : Py_None); }

static int set_casts(PyObject *self, PyObject *value, void *ignored)
{
    if (value && value != Py_None && !PyDict_Check(value)) {
        PyErr_SetString(PyExc_TypeError, "casts are a dict, or None");
        return -1;
    }
    Py_XSETREF(casts, value && value != Py_None ? Py_NewRef(value) : NULL);
    return 0;
}

static PyObject *get_backward(PyObject *self, void *ignored) { Py_RETURN_NONE; }

static int set_backward(PyObject *self, PyObject *value, void *ignored)
{
    PyErr_SetString(PyExc_AttributeError, "what backward runs is a mode of captured code only");
    return -1;
}

static PyObject *get_flags(PyObject *self, PyObject *ignored) { return PyLong_FromUnsignedLong(modes); }

static PyGetSetDef attributes[] = {
    {"grad", get_mode, set_mode, "Whether operations on tensors that require gradients are recorded.", (void *)DG_GRAD},
    {"inference", get_mode, set_mode, "Whether inference_mode is on.", (void *)DG_INFERENCE},
    {"anomaly", get_mode, set_mode, "Whether nodes keep where they were made.", (void *)DG_ANOMALY},
    {"check_nan", get_mode, set_mode, "Whether anomaly detection looks for NaN.", (void *)DG_CHECK_NAN},
    {"hooked", get_mode, set_mode, "Whether saved tensors go through hooks.", (void *)DG_HOOKED},
    {"unhookable", get_mode, set_mode, "Whether such hooks are refused.", (void *)DG_UNHOOKABLE},
    {"autocast", get_mode, set_mode, "Whether functions have to ask for autocast.", (void *)DG_AUTOCAST},
    {"autocast_cpu", get_mode, set_mode, "Whether autocast is on for the CPU.", (void *)DG_AUTOCAST_CPU},
    {"autocast_cuda", get_mode, set_mode, "Whether autocast is on for GPUs.", (void *)DG_AUTOCAST_CUDA},
    {"autocast_cache", get_mode, set_mode, "Whether autocast casts weights once.", (void *)DG_AUTOCAST_CACHE},
    {"autocast_cpu_dtype", get_mode, set_mode, "The number of its dtype.", (void *)DG_AUTOCAST_CPU_DTYPE},
    {"autocast_cuda_dtype", get_mode, set_mode, "The number of its dtype.", (void *)DG_AUTOCAST_CUDA_DTYPE},
    {"backward", get_backward, set_backward, "In captured code: what runs backward there; None outside.", NULL},
    {"casts", get_casts, set_casts, "What autocast has cast in this region, by tensor; None outside of all.", NULL},
    {0},
};

static PyMethodDef methods[] = {
    {"flags", get_flags, METH_NOARGS, "All but `backward` and `casts` as one int, for guards."},
    {0},
};

PyTypeObject dg_GradModesType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "dynagraph._core._dispatch.GradModes",
    .tp_doc = "What dynagraph.torch records in the current thread, and in which dtypes it computes.",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = PyType_GenericNew,
    .tp_getset = attributes,
    .tp_methods = methods,
};
