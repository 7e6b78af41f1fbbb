/* Maxima of windows of NumPy's arrays, with where they stood, and the way back: sums at such places. */
#include "../dispatch/core.h"
#include "conv.h"
#include "pool.h"

enum { KEEP_THE_GIL = 1 << 14, AXES = DG_CONV_AXES };

/* -- sums at places --------------------------------------------------------------------------------------------------------- */

#define DEFINE_PUT(T, suffix)                                                                                                     \
    static void put_##suffix(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)       \
    {                                                                                                                             \
        const dg_phase *p = buffers[0];                                                                                           \
        const int64_t n = dg_conv_volume(p->counts), size = dg_conv_volume(p->sizes);                                             \
        for (int64_t plane = lo; plane < hi; ++plane) {                                                                           \
            const T *from = (const T *)p->source + plane * n;                                                                     \
            const int64_t *where = p->where + plane * n;                                                                          \
            T *to = (T *)p->out + plane * size;                                                                                   \
            memset(to, 0, sizeof(T) * (size_t)size);                                                                              \
            for (int64_t k = 0; k < n; ++k)                                                                                       \
                to[where[k]] += from[k];                                                                                          \
        }                                                                                                                         \
    }
DEFINE_PUT(float, f32)
DEFINE_PUT(double, f64)

static int are_within(const dg_phase *p)
{
    const int64_t n = p->batch * dg_conv_volume(p->counts), size = dg_conv_volume(p->sizes);
    for (int64_t k = 0; k < n; ++k)
        if (p->where[k] < 0 || p->where[k] >= size)
            return 0;
    return 1;
}

static int put_places(const dg_phase *p, int is_double)
{
    void *const buffers[] = {(void *)p};
    dg_conv_share(p, is_double ? put_f64 : put_f32, buffers, p->batch, 2.0 * (double)dg_conv_volume(p->counts) +
                                                                           0.1 * (double)dg_conv_volume(p->sizes));
    return dg_conv_status(p);
}

/* -- arrays ----------------------------------------------------------------------------------------------------------------- */

static const int32_t no_signals = 0;

static int sizes_from(PyObject *given, int n, int64_t first, int64_t *to)
{
    if (PyTuple_GET_SIZE(given) != n) {
        PyErr_Format(PyExc_ValueError, "max_pool: %R is not of %d dimensions", given, n);
        return -1;
    }
    for (int axis = 0; axis < AXES; ++axis)
        to[axis] = first;
    for (int k = 0; k < n; ++k)
        to[AXES - n + k] = PyLong_AsLongLong(PyTuple_GET_ITEM(given, k));
    return PyErr_Occurred() ? -1 : 0;
}

static PyArrayObject *in_order(PyObject *given, int type)
{
    const int is_right = PyArray_Check(given) && (type < 0 || PyArray_TYPE((PyArrayObject *)given) == type);
    if (!is_right) {
        PyErr_Format(PyExc_TypeError, "max_pool: expected an array of another dtype");
        return NULL;
    }
    return (PyArrayObject *)PyArray_FromArray((PyArrayObject *)given, NULL, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_NOTSWAPPED);
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

static PyObject *new_like(PyArrayObject *array, PyArray_Descr *descr, int n, const int64_t *sizes)
{
    npy_intp shape[NPY_MAXDIMS];
    const int ndim = PyArray_NDIM(array);
    npy_intp count = 1;
    for (int k = 0; k < ndim; ++k)
        count *= shape[k] = k < ndim - n ? PyArray_DIM(array, k) : (npy_intp)sizes[AXES - ndim + k];
    return dg_new_array(descr, ndim, shape, (size_t)(count * PyDataType_ELSIZE(descr)));
}

/* the elements of windows; null: no memory */
static dg_tap *taps_of(dg_phase *p, const int64_t *kernel, const int64_t *dilation, const int64_t *before)
{
    p->n_taps = dg_conv_volume(kernel);
    dg_tap *taps = PyMem_Malloc(sizeof *taps * (size_t)p->n_taps + 1);
    if (!taps)
        return (dg_tap *)PyErr_NoMemory();
    for (int64_t t = 0; t < p->n_taps; ++t) {
        const int64_t at[AXES] = {t / kernel[2] / kernel[1], t / kernel[2] % kernel[1], t % kernel[2]};
        for (int axis = 0; axis < AXES; ++axis)
            taps[t].offset[axis] = at[axis] * dilation[axis] - before[axis];
        taps[t].weight = t;
    }
    return taps;
}

static int run(int (*code)(const dg_phase *phase), const dg_phase *p)
{
    PyThreadState *state = p->batch * dg_conv_volume(p->counts) * p->n_taps > KEEP_THE_GIL ? PyEval_SaveThread() : NULL;
    int status = code(p);
    if (state)
        PyEval_RestoreThread(state);
    if (status)
        PyErr_NoMemory();
    return status;
}

PyObject *dg_max_pool(PyObject *module, PyObject *args)
{
    PyObject *given, *kernel, *stride, *padding, *dilation, *places, *values = NULL, *where = NULL, *both = NULL;
    dg_stop stop = {.signals = &no_signals};
    dg_phase p = {.rt = &dg_the_runtime, .stop = &stop, .groups = 1};
    int64_t of_kernel[AXES], gaps[AXES], before[AXES];
    if (!PyArg_ParseTuple(args, "O!O!O!O!O!O!:max_pool", &PyArray_Type, &given, &PyTuple_Type, &kernel, &PyTuple_Type, &stride,
                          &PyTuple_Type, &padding, &PyTuple_Type, &dilation, &PyTuple_Type, &places))
        return NULL;
    const int n = (int)PyTuple_GET_SIZE(kernel), type = PyArray_TYPE((PyArrayObject *)given);
    if ((type != NPY_FLOAT && type != NPY_DOUBLE) || n < 1 || n > AXES || PyArray_NDIM((PyArrayObject *)given) < n)
        return PyErr_Format(PyExc_ValueError, "max_pool: %d dimensions of %R", n, PyArray_DESCR((PyArrayObject *)given));
    if (sizes_from(kernel, n, 1, of_kernel) < 0 || sizes_from(stride, n, 1, p.pace) < 0 || sizes_from(padding, n, 0,
        before) < 0 ||
        sizes_from(dilation, n, 1, gaps) < 0 || sizes_from(places, n, 1, p.counts) < 0)
        return NULL;
    if (of_kernel[0] < 1 || of_kernel[1] < 1 || of_kernel[2] < 1)
        return PyErr_Format(PyExc_ValueError, "max_pool: windows of %R", kernel);
    PyArrayObject *x = in_order(given, type);
    PyArray_Descr *int64 = x ? PyArray_DescrFromType(NPY_INT64) : NULL;
    dg_tap *taps = int64 ? taps_of(&p, of_kernel, gaps, before) : NULL;
    if (taps) {
        p.batch = planes_of(x, n, p.sizes);
        if (type == NPY_FLOAT && dg_conv_volume(p.sizes) > INT32_MAX)
            PyErr_Format(PyExc_ValueError, "max_pool: too large an array");
        else
            values = new_like(x, PyArray_DESCR(x), n, p.counts);
        where = values ? new_like(x, int64, n, p.counts) : NULL;
    }
    if (where) {
        p.taps = taps;
        p.source = PyArray_DATA(x);
        p.out = PyArray_DATA((PyArrayObject *)values);
        p.where = PyArray_DATA((PyArrayObject *)where);
        both = run(dg_conv_code_named(NULL)->maxima[type == NPY_DOUBLE], &p) == 0 ? PyTuple_Pack(2, values, where) : NULL;
    }
    PyMem_Free(taps);
    Py_XDECREF(values);
    Py_XDECREF(where);
    Py_XDECREF(int64);
    Py_XDECREF(x);
    return both;
}

static int put_f32_places(const dg_phase *p) { return put_places(p, 0); }
static int put_f64_places(const dg_phase *p) { return put_places(p, 1); }

PyObject *dg_put_places(PyObject *module, PyObject *args)
{
    PyObject *given, *given_places, *sizes, *out = NULL;
    dg_stop stop = {.signals = &no_signals};
    dg_phase p = {.rt = &dg_the_runtime, .stop = &stop, .n_taps = 1};
    if (!PyArg_ParseTuple(args, "O!O!O!:put_places", &PyArray_Type, &given, &PyArray_Type, &given_places, &PyTuple_Type, &sizes))
        return NULL;
    const int n = (int)PyTuple_GET_SIZE(sizes), type = PyArray_TYPE((PyArrayObject *)given);
    if ((type != NPY_FLOAT && type != NPY_DOUBLE) || n < 1 || n > AXES || PyArray_NDIM((PyArrayObject *)given) < n ||
        !PyArray_SAMESHAPE((PyArrayObject *)given, (PyArrayObject *)given_places))
        return PyErr_Format(PyExc_ValueError, "put_places: %d dimensions of %R", n, PyArray_DESCR((PyArrayObject *)given));
    if (sizes_from(sizes, n, 1, p.sizes) < 0)
        return NULL;
    PyArrayObject *g = in_order(given, type), *where = g ? in_order(given_places, NPY_INT64) : NULL;
    if (where) {
        p.batch = planes_of(g, n, p.counts);
        p.source = PyArray_DATA(g);
        p.where = PyArray_DATA(where);
        if (are_within(&p))
            out = new_like(g, PyArray_DESCR(g), n, p.sizes);
        else
            PyErr_Format(PyExc_IndexError, "put_places: a place beyond the array");
    }
    if (out) {
        p.out = PyArray_DATA((PyArrayObject *)out);
        if (run(type == NPY_FLOAT ? put_f32_places : put_f64_places, &p) != 0)
            Py_CLEAR(out);
    }
    Py_XDECREF(g);
    Py_XDECREF(where);
    return out;
}
