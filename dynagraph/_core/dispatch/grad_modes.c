/* What dynagraph.torch records: a state of each thread, which its tensors ask for with every operation. */
#include "core.h"

static _Thread_local unsigned char modes = DG_GRAD | DG_CHECK_NAN;

int dg_grad_modes(void) { return modes; }

static PyObject *get_flag(PyObject *self, void *flag) { return PyBool_FromLong(modes & (unsigned char)(intptr_t)flag); }

static int set_flag(PyObject *self, PyObject *value, void *flag)
{
    int on = value ? PyObject_IsTrue(value) : -1;
    if (!value)
        PyErr_SetString(PyExc_AttributeError, "a mode cannot be deleted");
    if (on < 0)
        return -1;
    unsigned char bit = (unsigned char)(intptr_t)flag;
    modes = (unsigned char)(on ? modes | bit : modes & ~bit);
    return 0;
}

static PyObject *get_flags(PyObject *self, PyObject *ignored) { return PyLong_FromLong(modes); }

static PyGetSetDef flags[] = {
    {"grad", get_flag, set_flag, "Whether operations on tensors that require gradients are recorded.", (void *)DG_GRAD},
    {"inference", get_flag, set_flag, "Whether inference_mode is on.", (void *)DG_INFERENCE},
    {"anomaly", get_flag, set_flag, "Whether nodes keep where they were made.", (void *)DG_ANOMALY},
    {"check_nan", get_flag, set_flag, "Whether anomaly detection looks for NaN.", (void *)DG_CHECK_NAN},
    {"hooked", get_flag, set_flag, "Whether saved tensors go through hooks.", (void *)DG_HOOKED},
    {0},
};

static PyMethodDef methods[] = {
    {"flags", get_flags, METH_NOARGS, "All of them as one int, for guards."},
    {0},
};

PyTypeObject dg_GradModesType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "dynagraph._core._dispatch.GradModes",
    .tp_doc = "What dynagraph.torch records in the current thread.",
    .tp_basicsize = sizeof(PyObject),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = PyType_GenericNew,
    .tp_getset = flags,
    .tp_methods = methods,
};
