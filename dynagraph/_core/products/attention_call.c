/* attention(...) and attention_gradient(...), from Python, over NumPy's arrays. */
#include "../dispatch/core.h"
#include "attention.h"
#include "attention_call.h"

enum { MOST_AXES = DG_BATCH_AXES + 3 };
static const int64_t MOST_COLUMNS = INT64_C(1) << 48;

typedef struct {
    int axes; /* batch, heads, rows, columns */
    int64_t shape[MOST_AXES];
} extent;

static extent with(extent e, int64_t heads, int64_t rows, int64_t columns)
{
    e.shape[e.axes - 3] = heads;
    e.shape[e.axes - 2] = rows;
    e.shape[e.axes - 1] = columns;
    return e;
}

/* An array as one of this extent; of sizes 1 and of missing axes, where it `broadcasts`, each element counts as many.  0: it is
   none. */
static int as_tensor(PyObject *object, extent e, int type, int broadcasts, dg_tensor *t)
{
    if (!PyArray_Check(object))
        return 0;
    PyArrayObject *array = (PyArrayObject *)object;
    const int ndim = PyArray_NDIM(array), missing = e.axes - ndim;
    const npy_intp size = PyArray_ITEMSIZE(array);
    if (PyArray_TYPE(array) != type || !PyArray_ISBEHAVED_RO(array) || missing < 0 || (missing && !broadcasts))
        return 0;
    int64_t strides[MOST_AXES] = {0};
    for (int axis = missing; axis < e.axes; ++axis) {
        const npy_intp n = PyArray_DIM(array, axis - missing), stride = PyArray_STRIDE(array, axis - missing);
        if ((n != e.shape[axis] && !(broadcasts && n == 1)) || stride % size)
            return 0;
        strides[axis] = n == 1 && (broadcasts || axis < e.axes - 1) ? 0 : stride / size;
    }
    t->data = PyArray_DATA(array);
    for (int axis = 0; axis < e.axes - 3; ++axis)
        t->batch[axis] = strides[axis];
    t->head = strides[e.axes - 3];
    t->row = strides[e.axes - 2];
    t->column = strides[e.axes - 1];
    return 1;
}

static int is_written(PyObject *object)
{
    return PyArray_Check(object) && PyArray_ISWRITEABLE((PyArrayObject *)object);
}

/* a mask, and perhaps room for the gradient by it: a contiguous array of its shape */
static int as_mask(PyObject *object, PyObject *gradient, extent e, int type, dg_mask *mask)
{
    if (object == Py_None)
        return gradient == Py_None;
    if (!PyArray_Check(object))
        return 0;
    PyArrayObject *array = (PyArrayObject *)object, *by = (PyArrayObject *)gradient;
    mask->of_bools = PyArray_TYPE(array) == NPY_BOOL;
    if (!as_tensor(object, e, mask->of_bools ? NPY_BOOL : type, 1, &mask->t))
        return 0;
    if (gradient == Py_None)
        return 1;
    if (mask->of_bools || !is_written(gradient) || !PyArray_IS_C_CONTIGUOUS(by) || !PyArray_SAMESHAPE(array, by))
        return 0;
    mask->gradient_size = PyArray_SIZE(by);
    return as_tensor(gradient, e, type, 1, &mask->gradient);
}

static int number_of(PyObject *object, uint64_t *number)
{
    PyArrayObject *array = (PyArrayObject *)object;
    if (!PyArray_Check(object) || PyArray_TYPE(array) != NPY_UINT64 || PyArray_SIZE(array) != 1 || !PyArray_ISBEHAVED_RO(array))
        return 0;
    *number = *(const uint64_t *)PyArray_DATA(array);
    return 1;
}

static PyObject *refused(void)
{
    PyErr_SetString(PyExc_ValueError, "attention: these arrays do not fit together");
    return NULL;
}

/* the sizes, by the queries, keys and values; 0: they do not fit */
static int read_sizes(PyArrayObject *q, PyArrayObject *k, PyArrayObject *v, extent *e, dg_attention *a)
{
    const int ndim = PyArray_NDIM(q);
    if (ndim < 3 || ndim > MOST_AXES || PyArray_NDIM(k) != ndim || PyArray_NDIM(v) != ndim)
        return 0;
    e->axes = ndim;
    a->axes = ndim - 3;
    a->batches = 1;
    for (int axis = 0; axis < ndim - 3; ++axis) {
        a->shape[axis] = e->shape[axis] = PyArray_DIM(q, axis);
        a->batches *= a->shape[axis];
    }
    const int64_t heads = PyArray_DIM(q, ndim - 3), shared = PyArray_DIM(k, ndim - 3);
    if (shared < 1 ? heads != 0 : heads % shared != 0)
        return 0;
    a->heads = heads;
    a->shared = shared < 1 || heads < 1 ? 1 : heads / shared;
    a->rows = PyArray_DIM(q, ndim - 2);
    a->width = PyArray_DIM(q, ndim - 1);
    a->keys = PyArray_DIM(k, ndim - 2);
    a->value_width = PyArray_DIM(v, ndim - 1);
    return a->width < MOST_COLUMNS && a->value_width < MOST_COLUMNS; /* a thread has memory for some rows */
}

/* what both directions have; 0: it does not fit */
static int read_attention(PyObject *const *arrays, PyObject *const *masks, PyObject *const *by_masks, PyObject *seed,
                          PyObject *offset, PyObject *out, PyObject *sums, extent *e, int *type, dg_attention *a)
{
    PyArrayObject *q = (PyArrayObject *)arrays[0], *k = (PyArrayObject *)arrays[1], *v = (PyArrayObject *)arrays[2];
    *type = PyArray_TYPE(q);
    if ((*type != NPY_FLOAT && *type != NPY_DOUBLE) || !read_sizes(q, k, v, e, a))
        return 0;
    const int64_t groups = PyArray_DIM(k, e->axes - 3);
    if (!as_tensor(arrays[0], with(*e, a->heads, a->rows, a->width), *type, 0, &a->q) ||
        !as_tensor(arrays[1], with(*e, groups, a->keys, a->width), *type, 0, &a->k) ||
        !as_tensor(arrays[2], with(*e, groups, a->keys, a->value_width), *type, 0, &a->v) ||
        !as_tensor(out, with(*e, a->heads, a->rows, a->value_width), *type, 0, &a->out) ||
        !as_tensor(sums, with(*e, a->heads, a->rows, 2), *type, 0, &a->sums))
        return 0;
    for (int m = 0; m < DG_MASKS; ++m)
        if (!as_mask(masks[m], by_masks ? by_masks[m] : Py_None, with(*e, a->heads, a->rows, a->keys), *type, &a->masks[m]))
            return 0;
    return seed == Py_None ? a->dropout == 0 : number_of(seed, &a->seed) && number_of(offset, &a->offset);
}

static PyObject *run(int (*of_f32)(const dg_runtime *, const dg_attention *, dg_stop *),
                     int (*of_f64)(const dg_runtime *, const dg_attention *, dg_stop *), int type, const dg_attention *a)
{
    static const int32_t no_signals = 0;
    dg_stop stop = {&no_signals, 0};
    int status;
    Py_BEGIN_ALLOW_THREADS
    status = (type == NPY_FLOAT ? of_f32 : of_f64)(&dg_the_runtime, a, &stop);
    Py_END_ALLOW_THREADS
    if (status)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

PyObject *dg_py_attention(PyObject *module, PyObject *args)
{
    PyObject *arrays[3], *masks[DG_MASKS], *seed, *offset, *out, *sums;
    dg_attention a = {0};
    extent e = {0};
    int type;
    if (!PyArg_ParseTuple(args, "O!O!O!OOOOOOdpd:attention", &PyArray_Type, &arrays[0], &PyArray_Type, &arrays[1], &PyArray_Type,
                          &arrays[2], &masks[0], &masks[1], &seed, &offset, &out, &sums, &a.scale, &a.causal, &a.dropout))
        return NULL;
    if (!read_attention(arrays, masks, NULL, seed, offset, out, sums, &e, &type, &a) || !is_written(out) || !is_written(sums))
        return refused();
    return run(dg_attention_f32, dg_attention_f64, type, &a);
}

PyObject *dg_py_attention_gradient(PyObject *module, PyObject *args)
{
    PyObject *arrays[3], *masks[DG_MASKS], *by_masks[DG_MASKS], *seed, *offset, *out, *sums, *g, *by[3];
    dg_attention a = {0};
    dg_tensor *gradients[] = {&a.dq, &a.dk, &a.dv};
    extent e = {0};
    int type;
    if (!PyArg_ParseTuple(args, "O!O!O!OOOOOOOOOOOOdpd:attention_gradient", &PyArray_Type, &arrays[0], &PyArray_Type, &arrays[1],
                          &PyArray_Type, &arrays[2], &masks[0], &masks[1], &seed, &offset, &out, &sums, &g, &by[0], &by[1], &by[2],
                          &by_masks[0], &by_masks[1], &a.scale, &a.causal, &a.dropout))
        return NULL;
    if (!read_attention(arrays, masks, by_masks, seed, offset, out, sums, &e, &type, &a) ||
        !as_tensor(g, with(e, a.heads, a.rows, a.value_width), type, 0, &a.g))
        return refused();
    for (int k = 0; k < 3; ++k) {
        PyArrayObject *like = (PyArrayObject *)arrays[k];
        const npy_intp *shape = PyArray_DIMS(like) + e.axes - 3;
        const extent whole = with(e, shape[0], shape[1], shape[2]);
        if (by[k] != Py_None && !(is_written(by[k]) && as_tensor(by[k], whole, type, 0, gradients[k])))
            return refused();
    }
    return run(dg_attention_gradient_f32, dg_attention_gradient_f64, type, &a);
}
