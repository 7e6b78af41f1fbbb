/* Pools of NumPy's arrays, from Python. */
#include "../dispatch/core.h"
#include "conv.h"
#include "pool.h"

enum { KEEP_THE_GIL = 1 << 14, AXES = DG_CONV_AXES };
static const int32_t no_signals = 0;

/* -- arguments -------------------------------------------------------------------------------------------------------------- */

static int sizes_from(PyObject *given, const char *who, int n, int64_t first, int64_t *to)
{
    if (PyTuple_GET_SIZE(given) != n) {
        PyErr_Format(PyExc_ValueError, "%s: %R is not of %d dimensions", who, given, n);
        return -1;
    }
    for (int axis = 0; axis < AXES; ++axis)
        to[axis] = first;
    for (int k = 0; k < n; ++k)
        to[AXES - n + k] = PyLong_AsLongLong(PyTuple_GET_ITEM(given, k));
    return PyErr_Occurred() ? -1 : 0;
}

static int float_type_of(PyObject *given, const char *who)
{
    const int type = PyArray_TYPE((PyArrayObject *)given);
    if (type == NPY_FLOAT || type == NPY_DOUBLE)
        return type;
    PyErr_Format(PyExc_TypeError, "%s: takes float32 or float64, not %R", who, PyArray_DESCR((PyArrayObject *)given));
    return -1;
}

static PyArrayObject *in_order(PyObject *given, int type)
{
    return (PyArrayObject *)PyArray_FromAny(given, PyArray_DescrFromType(type), 0, 0, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_NOTSWAPPED,
                                            NULL);
}

/* the sizes of the last n dimensions, and how many arrays of these there are */
static int64_t planes_of(PyArrayObject *array, int n, int64_t *sizes)
{
    int64_t planes = 1;
    for (int axis = 0; axis < AXES; ++axis)
        sizes[axis] = 1;
    for (int k = 0; k < PyArray_NDIM(array); ++k)
        if (k < PyArray_NDIM(array) - n)
            planes *= PyArray_DIM(array, k);
        else
            sizes[AXES - PyArray_NDIM(array) + k] = PyArray_DIM(array, k);
    return planes;
}

/* -- results ---------------------------------------------------------------------------------------------------------------- */

static PyObject *new_array(PyArray_Descr *descr, int ndim, const npy_intp *shape)
{
    return dg_new_array(descr, ndim, shape, (size_t)PyArray_MultiplyList(shape, ndim) * (size_t)PyDataType_ELSIZE(descr));
}

/* of the array's shape but for the last n sizes */
static PyObject *new_like(PyArrayObject *array, PyArray_Descr *descr, int n, const int64_t *sizes)
{
    npy_intp shape[NPY_MAXDIMS];
    const int ndim = PyArray_NDIM(array);
    for (int k = 0; k < ndim; ++k)
        shape[k] = k < ndim - n ? PyArray_DIM(array, k) : (npy_intp)sizes[AXES - ndim + k];
    return new_array(descr, ndim, shape);
}

/* the arrays are null where an error is set already */
static int run(const dg_pooling *what, PyArrayObject *a, PyArrayObject *b, PyObject *to, PyObject *where, double terms)
{
    if (!to)
        return -1;
    dg_stop stop = {.signals = &no_signals};
    PyThreadState *state = (double)what->batch * terms > KEEP_THE_GIL ? PyEval_SaveThread() : NULL;
    int status = dg_pool(&dg_the_runtime, what, PyArray_DATA(a), b ? PyArray_DATA(b) : NULL, PyArray_DATA((PyArrayObject *)to),
                         where ? PyArray_DATA((PyArrayObject *)where) : NULL, &stop);
    if (state)
        PyEval_RestoreThread(state);
    if (status)
        PyErr_NoMemory();
    return status;
}

static double volume_of(const int64_t *sizes) { return (double)sizes[0] * (double)sizes[1] * (double)sizes[2]; }

/* maxima and where they stood; takes over the references, which are null after an error */
static PyObject *both(int status, PyObject *values, PyObject *where)
{
    PyObject *pair = status == 0 ? PyTuple_Pack(2, values, where) : NULL;
    Py_XDECREF(values);
    Py_XDECREF(where);
    return pair;
}

/* -- functions -------------------------------------------------------------------------------------------------------------- */

PyObject *dg_max_pool(PyObject *module, PyObject *args)
{
    PyObject *given, *kernel, *stride, *padding, *dilation, *places, *values = NULL, *where = NULL;
    dg_pooling p = {.which = DG_MAX_POOL};
    if (!PyArg_ParseTuple(args, "O!O!O!O!O!O!:max_pool", &PyArray_Type, &given, &PyTuple_Type, &kernel, &PyTuple_Type, &stride,
                          &PyTuple_Type, &padding, &PyTuple_Type, &dilation, &PyTuple_Type, &places))
        return NULL;
    const int n = (int)PyTuple_GET_SIZE(kernel), type = float_type_of(given, "max_pool");
    if (type < 0)
        return NULL;
    if (n < 1 || n > AXES || PyArray_NDIM((PyArrayObject *)given) < n)
        return PyErr_Format(PyExc_ValueError, "max_pool: windows of %d dimensions in an array of %d", n,
                            PyArray_NDIM((PyArrayObject *)given));
    if (sizes_from(kernel, "max_pool", n, 1, p.kernel) < 0 || sizes_from(stride, "max_pool", n, 1, p.stride) < 0 ||
        sizes_from(padding, "max_pool", n, 0, p.before) < 0 || sizes_from(dilation, "max_pool", n, 1, p.dilation) < 0 ||
        sizes_from(places, "max_pool", n, 1, p.counts) < 0)
        return NULL;
    for (int axis = 0; axis < AXES; ++axis)
        if (p.kernel[axis] < 1 || p.stride[axis] < 1 || p.dilation[axis] < 1 || p.before[axis] < 0)
            return PyErr_Format(PyExc_ValueError, "max_pool: windows of %R, %R apart, of elements %R apart, borders of %R", kernel,
                                stride, dilation, padding);
    PyArrayObject *x = in_order(given, type);
    PyArray_Descr *int64 = x ? PyArray_DescrFromType(NPY_INT64) : NULL;
    int status = -1;
    if (int64) {
        p.is_double = type == NPY_DOUBLE;
        p.batch = planes_of(x, n, p.sizes);
        if (!p.is_double && dg_conv_volume(p.sizes) > INT32_MAX)
            PyErr_Format(PyExc_ValueError, "max_pool: too large an array");
        else
            values = new_like(x, PyArray_DESCR(x), n, p.counts);
        where = values ? new_like(x, int64, n, p.counts) : NULL;
        status = where ? run(&p, x, NULL, values, where, (double)dg_conv_volume(p.counts) * volume_of(p.kernel)) : -1;
    }
    Py_XDECREF(int64);
    Py_XDECREF(x);
    return both(status, values, where);
}

PyObject *dg_avg_pool(PyObject *module, PyObject *args)
{
    PyObject *given, *kernel, *stride, *padding, *last, *out = NULL;
    int whole, back;
    long long divisor;
    dg_pooling p = {.which = DG_MEANS};
    if (!PyArg_ParseTuple(args, "O!O!O!O!O!pLp:avg_pool", &PyArray_Type, &given, &PyTuple_Type, &kernel, &PyTuple_Type, &stride,
                          &PyTuple_Type, &padding, &PyTuple_Type, &last, &whole, &divisor, &back))
        return NULL;
    const int n = (int)PyTuple_GET_SIZE(kernel), type = float_type_of(given, "avg_pool");
    if (type < 0)
        return NULL;
    if (n < 1 || n > AXES || PyArray_NDIM((PyArrayObject *)given) < n)
        return PyErr_Format(PyExc_ValueError, "avg_pool: windows of %d dimensions in an array of %d", n,
                            PyArray_NDIM((PyArrayObject *)given));
    int64_t *from = back ? p.counts : p.sizes, *to = back ? p.sizes : p.counts;
    if (sizes_from(kernel, "avg_pool", n, 1, p.kernel) < 0 || sizes_from(stride, "avg_pool", n, 1, p.stride) < 0 ||
        sizes_from(padding, "avg_pool", n, 0, p.before) < 0 || sizes_from(last, "avg_pool", n, 1, to) < 0)
        return NULL;
    for (int k = 0; k < AXES; ++k)
        if (p.kernel[k] < 1 || p.stride[k] < 1 || p.before[k] < 0 || to[k] < 0)
            return PyErr_Format(PyExc_ValueError, "avg_pool: windows of %R, %R apart, behind a border of %R", kernel, stride, padding);
    PyArrayObject *x = in_order(given, type);
    if (!x)
        return NULL;
    p.which = back ? DG_MEANS_BACK : DG_MEANS;
    p.is_double = type == NPY_DOUBLE;
    p.whole = whole;
    p.divisor = divisor;
    p.batch = planes_of(x, n, from);
    out = new_like(x, PyArray_DESCR(x), n, to);
    if (run(&p, x, NULL, out, NULL, dg_conv_volume(p.sizes) + dg_conv_volume(p.counts)) != 0)
        Py_CLEAR(out);
    Py_DECREF(x);
    return out;
}

static int are_within(const dg_pooling *p, const int64_t *where)
{
    const int64_t n = p->batch * dg_conv_volume(p->counts), size = dg_conv_volume(p->sizes);
    for (int64_t k = 0; k < n; ++k)
        if (where[k] < -1 || where[k] >= size)
            return 0;
    return 1;
}

PyObject *dg_put_places(PyObject *module, PyObject *args)
{
    PyObject *given, *given_places, *sizes, *out = NULL;
    dg_pooling p = {.which = DG_PUT_PLACES};
    if (!PyArg_ParseTuple(args, "O!O!O!:put_places", &PyArray_Type, &given, &PyArray_Type, &given_places, &PyTuple_Type, &sizes))
        return NULL;
    const int n = (int)PyTuple_GET_SIZE(sizes), type = float_type_of(given, "put_places");
    if (type < 0)
        return NULL;
    if (n < 1 || n > AXES || PyArray_NDIM((PyArrayObject *)given) < n ||
        !PyArray_SAMESHAPE((PyArrayObject *)given, (PyArrayObject *)given_places))
        return PyErr_Format(PyExc_ValueError, "put_places: %d dimensions of %R, at places of another shape", n,
                            PyArray_DESCR((PyArrayObject *)given));
    if (sizes_from(sizes, "put_places", n, 1, p.sizes) < 0)
        return NULL;
    PyArrayObject *g = in_order(given, type), *where = g ? in_order(given_places, NPY_INT64) : NULL;
    if (where) {
        p.is_double = type == NPY_DOUBLE;
        p.batch = planes_of(g, n, p.counts);
        if (are_within(&p, PyArray_DATA(where)))
            out = new_like(g, PyArray_DESCR(g), n, p.sizes);
        else
            PyErr_Format(PyExc_IndexError, "put_places: a place beyond the array");
        if (run(&p, g, where, out, NULL, volume_of(p.counts)) != 0)
            Py_CLEAR(out);
    }
    Py_XDECREF(g);
    Py_XDECREF(where);
    return out;
}

static PyObject *along(PyObject *args, int back)
{
    PyObject *given, *out = NULL;
    long long size, inner, count;
    if (!PyArg_ParseTuple(args, "O!LLL:adaptive_means", &PyArray_Type, &given, &size, &inner, &count))
        return NULL;
    const int type = float_type_of(given, "adaptive_means");
    const long long mine = back ? count : size, others = back ? size : count;
    const int64_t all = PyArray_SIZE((PyArrayObject *)given);
    if (type < 0)
        return NULL;
    long long row; /* elements */
    if (size < 1 || inner < 1 || count < 1 || __builtin_mul_overflow(mine, inner, &row) || all % row)
        return PyErr_Format(PyExc_ValueError, "adaptive_means: %lld elements, not in rows of %lld by %lld", (long long)all, mine,
                            inner);
    PyArrayObject *x = in_order(given, type);
    if (!x)
        return NULL;
    const dg_pooling p = {back ? DG_ADAPTIVE_MEANS_BACK : DG_ADAPTIVE_MEANS, type == NPY_DOUBLE, all / row,
                          {1, size, inner}, {1, count, inner}};
    const npy_intp shape[] = {(npy_intp)p.batch, (npy_intp)others, (npy_intp)inner};
    out = new_array(PyArray_DESCR(x), 3, shape);
    if (run(&p, x, NULL, out, NULL, ((double)size + (double)count) * (double)inner) != 0)
        Py_CLEAR(out);
    Py_DECREF(x);
    return out;
}

PyObject *dg_adaptive_means(PyObject *module, PyObject *args) { return along(args, 0); }
PyObject *dg_adaptive_means_back(PyObject *module, PyObject *args) { return along(args, 1); }

PyObject *dg_adaptive_maxima(PyObject *module, PyObject *args)
{
    PyObject *given;
    long long s[3], c[3];
    if (!PyArg_ParseTuple(args, "O!(LLL)(LLL):adaptive_maxima", &PyArray_Type, &given, s, s + 1, s + 2, c, c + 1, c + 2))
        return NULL;
    const int type = float_type_of(given, "adaptive_maxima");
    if (type < 0)
        return NULL;
    dg_pooling p = {.which = DG_ADAPTIVE_MAXIMA, .is_double = type == NPY_DOUBLE};
    for (int k = 0; k < AXES; ++k) {
        if (s[k] < 1 || c[k] < 1)
            return PyErr_Format(PyExc_ValueError, "adaptive_maxima: takes no sizes below 1");
        p.sizes[k] = s[k];
        p.counts[k] = c[k];
    }
    const int64_t all = PyArray_SIZE((PyArrayObject *)given);
    int64_t size;
    if (__builtin_mul_overflow(s[0], s[1], &size) || __builtin_mul_overflow(size, s[2], &size) || all % size)
        return PyErr_Format(PyExc_ValueError, "adaptive_maxima: %lld elements, not in planes of %lld by %lld by %lld", (long long)all,
                            s[0], s[1], s[2]);
    PyArrayObject *x = in_order(given, type);
    if (!x)
        return NULL;
    p.batch = all / size;
    const npy_intp shape[] = {(npy_intp)p.batch, (npy_intp)c[0], (npy_intp)c[1], (npy_intp)c[2]};
    PyArray_Descr *int64 = PyArray_DescrFromType(NPY_INT64);
    PyObject *values = new_array(PyArray_DESCR(x), 4, shape);
    PyObject *where = values ? new_array(int64, 4, shape) : NULL;
    const int status = where ? run(&p, x, NULL, values, where, (double)size) : -1;
    Py_DECREF(int64);
    Py_DECREF(x);
    return both(status, values, where);
}
