/* multiply(a, b, out): products of NumPy's matrices, from Python. */
#include "../dispatch/core.h"
#include "micro.h"
#include "multiply.h"

enum { KEEP_THE_GIL = 1 << 15 }; /* products of fewer terms take less time than giving it to others */

/* -1: a dtype that is not multiplied here */
static int element_of(PyArrayObject *array)
{
    PyArray_Descr *descr = PyArray_DESCR(array);
    if (!PyArray_ISBEHAVED_RO(array))
        return -1;
    switch (descr->type_num) {
    case NPY_FLOAT:
        return DG_F32;
    case NPY_DOUBLE:
        return DG_F64;
    case NPY_HALF:
        return DG_F16;
    default:
        return dg_is_bfloat16(descr->typeobj) ? DG_BF16 : -1;
    }
}

/* one operand: the axes of a matrix that are kept and summed over, counted from the end */
static int matrix_of(PyArrayObject *array, int element, int outer, int inner, PyArrayObject *out, dg_matrix *matrix)
{
    const int ndim = PyArray_NDIM(array), batch = PyArray_NDIM(out) - 2, own = ndim - 2;
    const npy_intp size = PyArray_ITEMSIZE(array), *strides = PyArray_STRIDES(array);
    *matrix = (dg_matrix){.data = PyArray_DATA(array), .element = (dg_element)element, .axes = batch,
                          .outer = strides[ndim - outer] / size, .inner = strides[ndim - inner] / size};
    for (int axis = 0; axis < ndim; ++axis)
        if (strides[axis] % size)
            return 0;
    if (own > batch || batch > DG_BATCH_AXES)
        return 0;
    for (int axis = 0; axis < batch; ++axis) {
        const int mine = axis - (batch - own);
        const npy_intp n = mine < 0 ? 1 : PyArray_DIM(array, mine);
        if (n != 1 && n != PyArray_DIM(out, axis))
            return 0;
        matrix->shape[axis] = PyArray_DIM(out, axis);
        matrix->strides[axis] = n == 1 ? 0 : strides[mine] / size;
    }
    return 1;
}

static const void *kernel_named(const char *isa, int is_double)
{
    if (is_double) {
        for (const dg_kernel_f64 *const *k = dg_kernels_f64(); (*k)->isa; ++k)
            if (!isa || strcmp((*k)->isa, isa) == 0)
                return *k;
        return NULL;
    }
    for (const dg_kernel_f32 *const *k = dg_kernels_f32(); (*k)->isa; ++k)
        if (!isa || strcmp((*k)->isa, isa) == 0)
            return *k;
    return NULL;
}

/* -- float16 and bfloat16 results: rounded once ------------------------------------------------------------------------------ */

typedef struct {
    uint16_t *to;
    int64_t ld, batch;
    uint16_t (*round)(float value);
} half_result;

static void finish_half(const void *context, int64_t batch, int64_t row, int64_t column, int64_t rows, int64_t columns, float *tile,
                        int64_t ld)
{
    const half_result *result = context;
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j)
            result->to[batch * result->batch + (row + i) * result->ld + column + j] = result->round(tile[i * ld + j]);
}

static int run(const dg_matrix *a, const dg_matrix *b, PyArrayObject *out, int element, int64_t batches, int64_t k, const void *kernel)
{
    static const int32_t no_signals = 0;
    dg_stop stop = {.signals = &no_signals};
    const int ndim = PyArray_NDIM(out);
    const int64_t m = PyArray_DIM(out, ndim - 2), n = PyArray_DIM(out, ndim - 1), ld = n;
    PyThreadState *state = (double)batches * (double)m * (double)n * (double)k > KEEP_THE_GIL ? PyEval_SaveThread() : NULL;
    int status;
    if (element == DG_F64) {
        const dg_product_f64 product = {batches, m, n, k, dg_pack_matrix_f64, a, dg_pack_matrix_f64, b,
                                        PyArray_DATA(out), ld, m * ld, NULL, NULL, kernel};
        status = dg_multiply_f64(&dg_the_runtime, &product, &stop);
    } else {
        const half_result half = {PyArray_DATA(out), ld, m * ld, element == DG_F16 ? dg_to_float16 : dg_to_bfloat16};
        const int is_half = element != DG_F32;
        const dg_product_f32 product = {batches, m, n, k, dg_pack_matrix_f32, a, dg_pack_matrix_f32, b,
                                        is_half ? NULL : PyArray_DATA(out), ld, m * ld, is_half ? finish_half : NULL, &half, kernel};
        status = dg_multiply_f32(&dg_the_runtime, &product, &stop);
    }
    if (state)
        PyEval_RestoreThread(state);
    return status;
}

PyObject *dg_multiply(PyObject *module, PyObject *args)
{
    PyArrayObject *a, *b, *out;
    const char *isa = NULL;
    dg_matrix left, right;
    if (!PyArg_ParseTuple(args, "O!O!O!|z:multiply", &PyArray_Type, &a, &PyArray_Type, &b, &PyArray_Type, &out, &isa))
        return NULL;
    const int element = element_of(out), ndim = PyArray_NDIM(out);
    if (element < 0 || element_of(a) != element || element_of(b) != element)
        return PyErr_Format(PyExc_TypeError, "multiply: expected arrays of one float dtype, got %R, %R and %R", PyArray_DESCR(a),
                            PyArray_DESCR(b), PyArray_DESCR(out));
    if (PyArray_NDIM(a) < 2 || PyArray_NDIM(b) < 2 || ndim < 2 || !PyArray_IS_C_CONTIGUOUS(out) || !PyArray_ISWRITEABLE(out))
        return PyErr_Format(PyExc_ValueError, "multiply: expected matrices, and a contiguous result");
    const int64_t k = PyArray_DIM(a, PyArray_NDIM(a) - 1);
    if (PyArray_DIM(b, PyArray_NDIM(b) - 2) != k || PyArray_DIM(a, PyArray_NDIM(a) - 2) != PyArray_DIM(out, ndim - 2) ||
        PyArray_DIM(b, PyArray_NDIM(b) - 1) != PyArray_DIM(out, ndim - 1) || !matrix_of(a, element, 2, 1, out, &left) ||
        !matrix_of(b, element, 1, 2, out, &right))
        return PyErr_Format(PyExc_ValueError, "multiply: the shapes do not fit");
    const void *kernel = kernel_named(isa, element == DG_F64);
    if (!kernel)
        return PyErr_Format(PyExc_ValueError, "multiply: this processor has no %s", isa);
    int64_t batches = 1;
    for (int axis = 0; axis < ndim - 2; ++axis)
        batches *= PyArray_DIM(out, axis);
    if (run(&left, &right, out, element, batches, k, kernel) != 0)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

PyObject *dg_product_kernels(PyObject *module, PyObject *ignored)
{
    PyObject *names = PyList_New(0);
    for (const dg_kernel_f32 *const *k = dg_kernels_f32(); names && (*k)->isa; ++k) {
        PyObject *row = Py_BuildValue("(sii)", (*k)->isa, (*k)->mr, (*k)->nr);
        if (!row || PyList_Append(names, row) < 0)
            Py_CLEAR(names);
        Py_XDECREF(row);
    }
    return names;
}
