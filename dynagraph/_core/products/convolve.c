/* convolve(which, a, b, bias, groups, stride, dilation, padding, sizes, isa): convolutions of NumPy's arrays, from Python. */
#include "../dispatch/core.h"
#include "conv.h"
#include "convolve.h"

enum { KEEP_THE_GIL = 1 << 15 }; /* what has fewer terms takes less time than giving it to others */

/* ints of a tuple, as the last ones of so many sizes; the first ones are 1 */
static int sizes_from(PyObject *given, int ndim, int64_t first, const char *what, int64_t *to)
{
    if (PyTuple_GET_SIZE(given) != ndim) {
        PyErr_Format(PyExc_ValueError, "convolve: %s: %R, of %d dimensions", what, given, ndim);
        return -1;
    }
    for (int axis = 0; axis < DG_CONV_AXES; ++axis)
        to[axis] = first;
    for (int k = 0; k < ndim; ++k) {
        to[DG_CONV_AXES - ndim + k] = PyLong_AsLongLong(PyTuple_GET_ITEM(given, k));
        if (PyErr_Occurred())
            return -1;
    }
    return 0;
}

static void last_sizes(PyArrayObject *array, int64_t *to)
{
    const int ndim = PyArray_NDIM(array) - 2;
    for (int axis = 0; axis < DG_CONV_AXES; ++axis)
        to[axis] = 1;
    for (int k = 0; k < ndim; ++k)
        to[DG_CONV_AXES - ndim + k] = PyArray_DIM(array, k + 2);
}

/* whether all windows lie within the images and their borders, and the channels fit */
static int fits(const dg_convolution *c, const int64_t *after, int64_t image_channels, int64_t filters)
{
    int is_right = c->groups > 0 && c->ins * c->groups == image_channels && c->outs * c->groups == filters;
    for (int axis = 0; axis < DG_CONV_AXES && is_right; ++axis) {
        const __int128 way = (__int128)(c->places[axis] - 1) * c->stride[axis];
        const __int128 reach = way + (__int128)(c->kernel[axis] - 1) * c->dilation[axis] + 1;
        is_right = c->stride[axis] > 0 && c->dilation[axis] > 0 && c->places[axis] >= 0 && c->kernel[axis] >= 0 &&
            c->sizes[axis] >= 0 &&
                   (c->places[axis] == 0 || c->kernel[axis] == 0 || reach <= (__int128)c->sizes[axis] + c->before[axis] + after[axis]);
    }
    return is_right;
}

/* what is asked for, by the arrays' shapes */
static int describe(dg_convolution *c, PyArrayObject *a, PyArrayObject *b, PyObject *stride, PyObject *dilation,
    PyObject *padding,
                    PyObject *sizes)
{
    const int ndim = PyArray_NDIM(a) - 2;
    int64_t pads[2][DG_CONV_AXES] = {{0}};
    if (ndim < 1 || ndim > DG_CONV_AXES || PyArray_NDIM(b) != ndim + 2 || PyTuple_GET_SIZE(padding) != ndim) {
        PyErr_Format(PyExc_ValueError, "convolve: arrays of %d and %d dimensions", PyArray_NDIM(a), PyArray_NDIM(b));
        return -1;
    }
    for (int k = 0; k < ndim; ++k) {
        long long before, after;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(padding, k), "LL;padding is pairs", &before, &after))
            return -1;
        pads[0][DG_CONV_AXES - ndim + k] = before;
        pads[1][DG_CONV_AXES - ndim + k] = after;
    }
    memcpy(c->before, pads[0], sizeof c->before);
    int64_t *of_a = c->which == DG_CONV_INPUT ? c->places : c->sizes, *of_b = c->which == DG_CONV_WEIGHT ? c->places : c->kernel;
    int64_t *of_out = c->which == DG_CONV ? c->places : c->which == DG_CONV_INPUT ? c->sizes : c->kernel;
    last_sizes(a, of_a);
    last_sizes(b, of_b);
    if (sizes_from(stride, ndim, 1, "stride", c->stride) < 0 || sizes_from(dilation, ndim, 1, "dilation", c->dilation) < 0 ||
        sizes_from(sizes, ndim, 1, "sizes", of_out) < 0)
        return -1;
    const int64_t channels = PyArray_DIM(a, 1), others = PyArray_DIM(b, 1), groups = c->groups < 1 ? 1 : c->groups;
    int64_t images, filters = c->which == DG_CONV ? PyArray_DIM(b, 0) : c->which == DG_CONV_INPUT ? channels : others;
    c->batch = PyArray_DIM(a, 0);
    c->outs = filters / groups;
    c->ins = c->which == DG_CONV_WEIGHT ? channels / groups : others;
    images = c->which == DG_CONV_INPUT ? c->ins * groups : channels;
    int is_right = fits(c, pads[1], images, filters);
    is_right &= c->which == DG_CONV_INPUT ? PyArray_DIM(b, 0) == channels : 1;
    is_right &= c->which == DG_CONV_WEIGHT ? PyArray_DIM(b, 0) == c->batch : 1;
    if (!is_right)
        PyErr_Format(PyExc_ValueError, "convolve: the shapes do not fit");
    return is_right ? 0 : -1;
}

static PyObject *new_result(const dg_convolution *c, PyArrayObject *a)
{
    const int ndim = PyArray_NDIM(a);
    npy_intp shape[DG_CONV_AXES + 2];
    const int64_t *sizes = c->which == DG_CONV ? c->places : c->which == DG_CONV_INPUT ? c->sizes : c->kernel;
    shape[0] = c->which == DG_CONV_WEIGHT ? c->outs * c->groups : c->batch;
    shape[1] = c->which == DG_CONV ? c->outs * c->groups : c->which == DG_CONV_INPUT ? c->ins * c->groups : c->ins;
    npy_intp count = shape[0] * shape[1];
    for (int k = 0; k < ndim - 2; ++k)
        count *= shape[k + 2] = (npy_intp)sizes[DG_CONV_AXES - (ndim - 2) + k];
    return dg_new_array(PyArray_DESCR(a), ndim, shape, (size_t)count * (size_t)PyArray_ITEMSIZE(a));
}

static int run(const dg_conv_code *code, const dg_convolution *c, PyArrayObject *a, PyArrayObject *b, PyArrayObject *bias,
    void *out)
{
    static const int32_t no_signals = 0;
    dg_stop stop = {.signals = &no_signals};
    const double terms = (double)(c->batch * c->groups * c->ins * c->outs) * (double)dg_conv_volume(c->places);
    PyThreadState *state = terms * (double)dg_conv_volume(c->kernel) > KEEP_THE_GIL ? PyEval_SaveThread() : NULL;
    int status = dg_convolve_by(code, &dg_the_runtime, c, PyArray_DATA(a), PyArray_DATA(b), bias ? PyArray_DATA(bias) : NULL,
        out, NULL,
                                &stop);
    if (state)
        PyEval_RestoreThread(state);
    return status;
}

PyObject *dg_convolve_arrays(PyObject *module, PyObject *args)
{
    PyObject *given[3], *stride, *dilation, *padding, *sizes, *out = NULL;
    PyArrayObject *arrays[3] = {NULL};
    dg_convolution c = {0};
    int which;
    long long groups;
    const char *isa = NULL;
    if (!PyArg_ParseTuple(args, "iO!O!OLO!O!O!O!|z:convolve", &which, &PyArray_Type, &given[0], &PyArray_Type, &given[1],
        &given[2],
                          &groups, &PyTuple_Type, &stride, &PyTuple_Type, &dilation, &PyTuple_Type, &padding, &PyTuple_Type,
                              &sizes, &isa))
        return NULL;
    const int type = PyArray_TYPE((PyArrayObject *)given[0]), n = given[2] == Py_None ? 2 : 3;
    const dg_conv_code *code = dg_conv_code_named(isa);
    if (which < DG_CONV || which > DG_CONV_WEIGHT || (type != NPY_FLOAT && type != NPY_DOUBLE) || !code)
        return PyErr_Format(PyExc_ValueError, "convolve: number %d, of %R", which, PyArray_DESCR((PyArrayObject *)given[0]));
    for (int k = 0; k < n; ++k) {
        if (!PyArray_Check(given[k]) || PyArray_TYPE((PyArrayObject *)given[k]) != type) {
            PyErr_Format(PyExc_TypeError, "convolve: expected arrays of one dtype");
            goto done;
        }
        arrays[k] = (PyArrayObject *)PyArray_FromArray((PyArrayObject *)given[k], NULL,
            NPY_ARRAY_CARRAY_RO | NPY_ARRAY_NOTSWAPPED);
        if (!arrays[k])
            goto done;
    }
    c.which = which;
    c.is_double = type == NPY_DOUBLE;
    c.groups = groups;
    if (describe(&c, arrays[0], arrays[1], stride, dilation, padding, sizes) < 0)
        goto done;
    const int64_t channels = c.groups * (which == DG_CONV ? c.outs : c.ins);
    if (arrays[2] && (which == DG_CONV_WEIGHT || PyArray_NDIM(arrays[2]) != 1 || PyArray_DIM(arrays[2], 0) != channels)) {
        PyErr_Format(PyExc_ValueError, "convolve: a bias for other channels");
        goto done;
    }
    out = new_result(&c, arrays[0]);
    if (out && run(code, &c, arrays[0], arrays[1], arrays[2], PyArray_DATA((PyArrayObject *)out)) != 0) {
        Py_CLEAR(out);
        PyErr_NoMemory();
    }
done:
    for (int k = 0; k < 3; ++k)
        Py_XDECREF(arrays[k]);
    return out;
}
