/* Outputs: the arrays and scalars that a program gives. */
#include "plans.h"

int dg_output_bytes(const dg_output *out, const int64_t *sizes, int64_t bound, npy_intp *dims, int64_t *nbytes)
{
    int is_empty = 0, fits = 1;
    *nbytes = PyDataType_ELSIZE(out->descr);
    for (int k = 0; k < out->ndim && fits; ++k) {
        int64_t dim;
        fits = (sizes ? dg_size_run(&out->shape[k], sizes, &dim) : dg_size_most(&out->shape[k], bound, &dim)) && dim >= 0;
        dims[k] = fits ? (npy_intp)dim : 0;
        is_empty |= fits && dim == 0;
        fits = fits && !__builtin_mul_overflow(*nbytes, dim ? dim : 1, nbytes); /* as NumPy does: empty arrays have limits too */
    }
    if (is_empty)
        *nbytes = 0;
    return fits;
}

int dg_output_fits(const dg_output *out, const int64_t *sizes, int64_t bound)
{
    npy_intp dims[DG_MAX_DIMS];
    int64_t nbytes;
    return dg_output_bytes(out, sizes, bound, dims, &nbytes);
}

int dg_output_parse_axes(dg_output *out, PyObject *axes)
{
    unsigned seen = 0;
    Py_ssize_t n = PyTuple_GET_SIZE(axes);
    for (Py_ssize_t k = 0; k < n && n <= DG_MAX_DIMS; ++k) {
        long axis = PyLong_AsLong(PyTuple_GET_ITEM(axes, k));
        if (axis == -1 && PyErr_Occurred())
            return -1;
        if (axis < 0 || axis >= n)
            break;
        out->axes[k] = (signed char)axis;
        seen |= 1u << axis;
    }
    if (n > DG_MAX_DIMS || seen != (1u << n) - 1) {
        PyErr_Format(PyExc_ValueError, "plan: the axes of an output are a permutation of all of its axes, not %R", axes);
        return -1;
    }
    out->transposed = (int)n;
    return 0;
}

int dg_output_parse(dg_output *out, PyObject *dtype, PyObject *shape, int n_inputs, int n_symbols)
{
    if (!PyArray_DescrConverter(dtype, &out->descr) || !dg_plain_dtype(out->descr))
        return -1;
    if (out->into >= n_inputs || (out->into >= 0 && out->scalar)) {
        PyErr_Format(PyExc_ValueError, "plan: an output into input %d of %d", out->into, n_inputs);
        return -1;
    }
    if (PyTuple_GET_SIZE(shape) > DG_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "plan: an output of %zd dimensions; at most %d are possible", PyTuple_GET_SIZE(shape),
                     DG_MAX_DIMS);
        return -1;
    }
    out->ndim = (int)PyTuple_GET_SIZE(shape);
    out->fixed = 1;
    for (int k = 0; k < out->ndim; ++k) {
        if (dg_size_parse(PyTuple_GET_ITEM(shape, k), n_symbols, &out->shape[k]) < 0)
            return -1;
        out->fixed &= out->shape[k].length == 0;
        if (out->shape[k].constant < 0) {
            PyErr_Format(PyExc_ValueError, "plan: an output of negative size %lld", (long long)out->shape[k].constant);
            return -1;
        }
    }
    int64_t nbytes = 0;
    if (out->fixed && !dg_output_bytes(out, NULL, 0, out->dims, &nbytes)) {
        PyErr_Format(PyExc_ValueError, "plan: an output of shape %R, whose size in bytes does not fit into 64 bits", shape);
        return -1;
    }
    out->nbytes = (size_t)nbytes;
    if (out->scalar && (out->ndim != 0 || PyDataType_ELSIZE(out->descr) > DG_SCALAR_SIZE)) {
        PyErr_Format(PyExc_ValueError, "plan: a scalar output is 0-d, of at most %d bytes, not %d-d of %R", DG_SCALAR_SIZE, out->ndim,
                     out->descr);
        return -1;
    }
    return 0;
}

void dg_output_clear(dg_output *out)
{
    Py_CLEAR(out->descr);
    for (int axis = 0; axis < DG_MAX_DIMS; ++axis)
        dg_size_clear(&out->shape[axis]);
}

int dg_output_is_of_shape(const dg_output *out, PyArrayObject *array, const int64_t *sizes)
{
    if (PyArray_NDIM(array) != out->ndim)
        return 0;
    for (int k = 0; k < out->ndim; ++k) {
        int64_t dim;
        if (!dg_size_run(&out->shape[k], sizes, &dim) || PyArray_DIM(array, k) != (npy_intp)dim)
            return 0;
    }
    return 1;
}

void dg_transpose(PyArrayObject *array, const signed char *axes)
{
    npy_intp dims[DG_MAX_DIMS], strides[DG_MAX_DIMS];
    int n = PyArray_NDIM(array);
    memcpy(dims, PyArray_DIMS(array), sizeof *dims * (size_t)n);
    memcpy(strides, PyArray_STRIDES(array), sizeof *strides * (size_t)n);
    for (int k = 0; k < n; ++k) {
        PyArray_DIMS(array)[k] = dims[axes[k]];
        PyArray_STRIDES(array)[k] = strides[axes[k]];
    }
    PyArray_UpdateFlags(array, NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_F_CONTIGUOUS);
}
