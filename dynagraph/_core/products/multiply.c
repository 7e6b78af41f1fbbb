/* Products of NumPy's matrices, from Python. */
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

/* an operand with two axes at least: a vector is a row on the left, a column on the right */
typedef struct {
    PyArrayObject *array;
    int ndim;
    npy_intp dims[NPY_MAXDIMS + 1], strides[NPY_MAXDIMS + 1]; /* in bytes */
} operand;

static void operand_of(PyArrayObject *array, int is_left, operand *to)
{
    const int ndim = PyArray_NDIM(array), is_vector = ndim == 1, first = is_vector && is_left;
    to->array = array;
    to->ndim = ndim + is_vector;
    for (int axis = 0; axis < ndim; ++axis) {
        to->dims[axis + first] = PyArray_DIM(array, axis);
        to->strides[axis + first] = PyArray_STRIDE(array, axis);
    }
    if (is_vector) {
        to->dims[!is_left] = 1;
        to->strides[!is_left] = PyArray_ITEMSIZE(array);
    }
}

/* What the driver reads.  outer, inner: the axes that are kept and summed over, counted from the end.  0: strides of no whole
   elements. */
static int matrix_of(const operand *from, int element, int outer, int inner, const npy_intp *shape, int ndim, dg_matrix *matrix)
{
    const int batch = ndim - 2, own = from->ndim - 2;
    const npy_intp size = PyArray_ITEMSIZE(from->array);
    *matrix = (dg_matrix){.data = PyArray_DATA(from->array), .element = (dg_element)element, .axes = batch,
                          .outer = from->strides[from->ndim - outer] / size, .inner = from->strides[from->ndim - inner] / size};
    for (int axis = 0; axis < from->ndim; ++axis)
        if (from->strides[axis] % size)
            return 0;
    for (int axis = 0; axis < batch; ++axis) {
        const int mine = axis - (batch - own);
        matrix->shape[axis] = shape[axis];
        matrix->strides[axis] = mine < 0 || from->dims[mine] == 1 ? 0 : from->strides[mine] / size;
    }
    return 1;
}

/* The shape of the product, of up to DG_BATCH_AXES and two axes; gives how many; -1: the operands do not fit, or have more. */
static int result_shape(const operand *a, const operand *b, npy_intp *shape)
{
    const int a_batch = a->ndim - 2, b_batch = b->ndim - 2, batch = a_batch > b_batch ? a_batch : b_batch;
    if (batch > DG_BATCH_AXES || a->dims[a_batch + 1] != b->dims[b_batch])
        return -1;
    for (int axis = 0; axis < batch; ++axis) {
        const int in_a = axis - (batch - a_batch), in_b = axis - (batch - b_batch);
        const npy_intp x = in_a < 0 ? 1 : a->dims[in_a], y = in_b < 0 ? 1 : b->dims[in_b];
        if (x != y && x != 1 && y != 1)
            return -1;
        shape[axis] = x == 1 ? y : x;
    }
    shape[batch] = a->dims[a_batch];
    shape[batch + 1] = b->dims[b_batch + 1];
    return batch + 2;
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

static void finish_half(const void *context, int64_t batch, int64_t row, int64_t column, int64_t rows, int64_t columns,
                        float *tile, int64_t ld)
{
    const half_result *result = context;
    for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < columns; ++j)
            result->to[batch * result->batch + (row + i) * result->ld + column + j] = result->round(tile[i * ld + j]);
}

static int run(const dg_matrix *a, const dg_matrix *b, PyArrayObject *out, const npy_intp *shape, int ndim, int64_t k,
               const void *kernel)
{
    static const int32_t no_signals = 0;
    dg_stop stop = {.signals = &no_signals};
    const int64_t m = shape[ndim - 2], n = shape[ndim - 1], batches = PyArray_MultiplyList(shape, ndim - 2);
    PyThreadState *state = (double)batches * (double)m * (double)n * (double)k > KEEP_THE_GIL ? PyEval_SaveThread() : NULL;
    int status;
    if (a->element == DG_F64) {
        const dg_product_f64 product = {.batches = batches, .m = m, .n = n, .k = k, .pack_a = dg_pack_matrix_f64, .a = a,
                                        .pack_b = dg_pack_matrix_f64, .b = b, .c = PyArray_DATA(out), .ldc = n, .c_batch = m * n,
                                        .kernel = kernel};
        status = dg_multiply_f64(&dg_the_runtime, &product, &stop);
    } else {
        const half_result half = {PyArray_DATA(out), n, m * n, a->element == DG_F16 ? dg_to_float16 : dg_to_bfloat16};
        const int is_half = a->element != DG_F32;
        const dg_product_f32 product = {.batches = batches, .m = m, .n = n, .k = k, .pack_a = dg_pack_matrix_f32, .a = a,
                                        .pack_b = dg_pack_matrix_f32, .b = b, .c = is_half ? NULL : PyArray_DATA(out), .ldc = n,
                                        .c_batch = m * n, .finish = is_half ? finish_half : NULL, .context = &half,
                                        .kernel = kernel};
        status = dg_multiply_f32(&dg_the_runtime, &product, &stop);
    }
    if (state)
        PyEval_RestoreThread(state);
    return status;
}

/* -- matmul(a, b) ----------------------------------------------------------------------------------------------------------- */

static int own = 1; /* whether matmul multiplies at all, or leaves it to the other function */

/* null without an exception: these are not multiplied here */
static PyObject *product_of(PyArrayObject *a, PyArrayObject *b)
{
    npy_intp shape[DG_BATCH_AXES + 2], kept[DG_BATCH_AXES + 2];
    operand x, y;
    dg_matrix left, right;
    const int element = element_of(a);
    if (element < 0 || element_of(b) != element || PyArray_NDIM(a) < 1 || PyArray_NDIM(b) < 1 ||
        PyArray_NDIM(a) + PyArray_NDIM(b) < 3) /* a product of vectors is a sum */
        return NULL;
    operand_of(a, 1, &x);
    operand_of(b, 0, &y);
    const int ndim = result_shape(&x, &y, shape);
    if (ndim < 0 || !matrix_of(&x, element, 2, 1, shape, ndim, &left) || !matrix_of(&y, element, 1, 2, shape, ndim, &right))
        return NULL;
    int n_kept = 0;
    for (int axis = 0; axis < ndim; ++axis)
        if (!(axis == ndim - 2 && PyArray_NDIM(a) == 1) && !(axis == ndim - 1 && PyArray_NDIM(b) == 1))
            kept[n_kept++] = shape[axis];
    const int64_t size = PyArray_MultiplyList(shape, ndim);
    PyObject *out = dg_new_array(PyArray_DESCR(a), n_kept, kept, (size_t)(size * PyArray_ITEMSIZE(a)));
    if (out && run(&left, &right, (PyArrayObject *)out, shape, ndim, x.dims[x.ndim - 1], NULL) != 0) {
        Py_DECREF(out);
        return PyErr_NoMemory();
    }
    return out;
}

/* self: what multiplies all that is no pair of NumPy's float matrices */
static PyObject *matmul(PyObject *self, PyObject *const *args, Py_ssize_t n_args)
{
    if (own && n_args == 2 && PyArray_CheckExact(args[0]) && PyArray_CheckExact(args[1])) {
        PyObject *out = product_of((PyArrayObject *)args[0], (PyArrayObject *)args[1]);
        if (out || PyErr_Occurred())
            return out;
    }
    return PyObject_Vectorcall(self, args, (size_t)n_args, NULL);
}

PyObject *dg_own_matmul(PyObject *module, PyObject *args)
{
    static PyMethodDef multiplies = {"matmul", (PyCFunction)(void (*)(void))matmul, METH_FASTCALL,
                                     "matmul(a, b): products of matrices on dynagraph's own threads"};
    PyObject *otherwise, *name;
    if (!PyArg_ParseTuple(args, "OU:own_matmul", &otherwise, &name))
        return NULL;
    return PyCFunction_NewEx(&multiplies, otherwise, name);
}

PyObject *dg_use_own_products(PyObject *module, PyObject *value)
{
    const int truth = PyObject_IsTrue(value);
    if (truth < 0)
        return NULL;
    own = truth;
    Py_RETURN_NONE;
}

/* -- multiply(a, b, out) --------------------------------------------------------------------------------------------------- */

PyObject *dg_multiply(PyObject *module, PyObject *args)
{
    PyArrayObject *a, *b, *out;
    const char *isa = NULL;
    npy_intp shape[DG_BATCH_AXES + 2];
    operand x, y;
    dg_matrix left, right;
    if (!PyArg_ParseTuple(args, "O!O!O!|z:multiply", &PyArray_Type, &a, &PyArray_Type, &b, &PyArray_Type, &out, &isa))
        return NULL;
    const int element = element_of(out);
    if (element < 0 || element_of(a) != element || element_of(b) != element)
        return PyErr_Format(PyExc_TypeError, "multiply: expected arrays of one float dtype, got %R, %R and %R", PyArray_DESCR(a),
                            PyArray_DESCR(b), PyArray_DESCR(out));
    if (PyArray_NDIM(a) < 2 || PyArray_NDIM(b) < 2 || !PyArray_IS_C_CONTIGUOUS(out) || !PyArray_ISWRITEABLE(out))
        return PyErr_Format(PyExc_ValueError, "multiply: expected matrices, and a contiguous result");
    operand_of(a, 1, &x);
    operand_of(b, 0, &y);
    const int ndim = result_shape(&x, &y, shape);
    if (ndim < 0 || ndim != PyArray_NDIM(out) || !PyArray_CompareLists(shape, PyArray_DIMS(out), ndim) ||
        !matrix_of(&x, element, 2, 1, shape, ndim, &left) || !matrix_of(&y, element, 1, 2, shape, ndim, &right))
        return PyErr_Format(PyExc_ValueError, "multiply: the shapes do not fit");
    const void *kernel = kernel_named(isa, element == DG_F64);
    if (!kernel)
        return PyErr_Format(PyExc_ValueError, "multiply: this processor has no %s", isa);
    if (run(&left, &right, out, shape, ndim, x.dims[x.ndim - 1], kernel) != 0)
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
