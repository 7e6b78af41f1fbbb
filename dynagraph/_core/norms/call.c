/* normalize(...) and normalize_back(...), over NumPy's arrays of one dtype, float32 or float64. */
#include "../dispatch/core.h"
#include "call.h"
#include "norm.h"

extern const dg_norm_code dg_norm_avx2, dg_norm_baseline;

enum { KEEP_THE_GIL = 1 << 13, ACROSS = 1, LAST = 2, BY_ROOT = 4, GIVEN = 8 };

static const dg_norm_code *code_of(int baseline)
{
#if defined(__x86_64__)
    if (!baseline && __builtin_cpu_supports("avx2"))
        return &dg_norm_avx2;
#endif
    return &dg_norm_baseline;
}

/* in C order, with so many elements; None, where that may be, is NULL without an exception */
static PyArrayObject *in_order(PyObject *given, int type, int64_t elements)
{
    if (given == Py_None)
        return NULL;
    PyArrayObject *array = (PyArrayObject *)given;
    if (!PyArray_Check(given) || PyArray_TYPE(array) != type || PyArray_SIZE(array) != elements) {
        PyErr_Format(PyExc_ValueError, "normalize: expected an array of %lld elements of the input's dtype", (long long)elements);
        return NULL;
    }
    return (PyArrayObject *)PyArray_FromArray(array, NULL, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_NOTSWAPPED);
}

static const void *data_of(PyArrayObject *array) { return array ? PyArray_DATA(array) : NULL; }

static PyObject *new_like(PyArrayObject *x, PyArrayObject *shaped, npy_intp count)
{
    npy_intp *shape = shaped ? PyArray_DIMS(shaped) : &count;
    const npy_intp size = shaped ? PyArray_SIZE(shaped) : count;
    return dg_new_array(PyArray_DESCR(x), shaped ? PyArray_NDIM(shaped) : 1, shape, (size_t)(size * PyArray_ITEMSIZE(x)));
}

/* what both directions are told; 0: an error is set */
static int describe(dg_norm *n, PyObject *given, PyObject *sizes, int how, double eps)
{
    const int type = PyArray_TYPE((PyArrayObject *)given);
    long long batch, groups, inner, size, all = 1;
    if (!PyArg_ParseTuple(sizes, "LLLL", &batch, &groups, &inner, &size))
        return 0;
    const long long each[] = {batch, groups, inner, size};
    int fits = type == NPY_FLOAT || type == NPY_DOUBLE;
    for (int k = 0; k < 4; ++k)
        fits = fits && each[k] > 0 && !__builtin_mul_overflow(all, each[k], &all);
    const int across = how & ACROSS, needs_across = how & (LAST | GIVEN);
    if (!fits || all != PyArray_SIZE((PyArrayObject *)given) || (across ? inner != 1 || how & BY_ROOT : needs_across)) {
        PyErr_Format(PyExc_ValueError, "normalize: sizes %R, of %R", sizes, PyArray_DESCR((PyArrayObject *)given));
        return 0;
    }
    *n = (dg_norm){.rt = &dg_the_runtime, .is_double = type == NPY_DOUBLE, .across = across, .last = (how & LAST) != 0,
                   .by_root = (how & BY_ROOT) != 0, .given = (how & GIVEN) != 0, .batch = batch, .groups = groups, .inner = inner,
                   .size = size, .eps = eps};
    if (across && groups == 1) { /* then all elements are one run */
        n->size *= n->batch;
        n->batch = 1;
        n->last = 0;
    }
    return 1;
}

static void run(void (*code)(const dg_norm *n), dg_norm *n)
{
    static const int32_t no_signals = 0;
    dg_stop stop = {.signals = &no_signals};
    n->stop = &stop;
    PyThreadState *state = dg_norm_elements(n) > KEEP_THE_GIL ? PyEval_SaveThread() : NULL;
    code(n);
    if (state)
        PyEval_RestoreThread(state);
}

PyObject *dg_normalize(PyObject *module, PyObject *args)
{
    PyObject *given, *weight, *bias, *mean, *variance, *sizes, *made[3] = {NULL}, *results = NULL;
    PyArrayObject *arrays[5] = {NULL};
    int how, baseline = 0;
    double eps;
    dg_norm n;
    if (!PyArg_ParseTuple(args, "O!OOOOO!id|p:normalize", &PyArray_Type, &given, &weight, &bias, &mean, &variance, &PyTuple_Type,
                          &sizes, &how, &eps, &baseline) ||
        !describe(&n, given, sizes, how, eps))
        return NULL;
    const int type = PyArray_TYPE((PyArrayObject *)given);
    const int64_t channels = dg_norm_channels(&n), statistics = dg_norm_statistics(&n);
    PyObject *const each[] = {given, weight, bias, n.given ? mean : Py_None, n.given ? variance : Py_None};
    const int64_t elements[] = {PyArray_SIZE((PyArrayObject *)given), channels, channels, statistics, statistics};
    for (int k = 0; k < 5; ++k)
        if (!(arrays[k] = in_order(each[k], type, elements[k])) && PyErr_Occurred())
            goto done;
    if (n.given && !(arrays[3] && arrays[4])) {
        PyErr_SetString(PyExc_ValueError, "normalize: there are no statistics");
        goto done;
    }
    if (!(made[0] = new_like(arrays[0], arrays[0], 0)))
        goto done;
    for (int k = 1; k < 3; ++k)
        if (!(made[k] = n.given ? Py_NewRef(arrays[2 + k]) : k == 1 && n.by_root ? Py_NewRef(Py_None)
                                                              : new_like(arrays[0], NULL, statistics)))
            goto done;
    n.x = data_of(arrays[0]);
    n.weight = data_of(arrays[1]);
    n.bias = data_of(arrays[2]);
    n.out = PyArray_DATA((PyArrayObject *)made[0]);
    n.mean = made[1] == Py_None ? NULL : PyArray_DATA((PyArrayObject *)made[1]);
    n.variance = PyArray_DATA((PyArrayObject *)made[2]);
    run(code_of(baseline)->forward[n.is_double], &n);
    results = PyTuple_Pack(3, made[0], made[1], made[2]);
done:
    for (int k = 0; k < 5; ++k)
        Py_XDECREF(arrays[k]);
    for (int k = 0; k < 3; ++k)
        Py_XDECREF(made[k]);
    return results;
}

PyObject *dg_normalize_back(PyObject *module, PyObject *args)
{
    PyObject *given, *g, *weight, *mean, *variance, *sizes, *made[3] = {NULL}, *results = NULL;
    PyArrayObject *arrays[5] = {NULL};
    int how, needs, baseline = 0;
    double eps;
    dg_norm n;
    if (!PyArg_ParseTuple(args, "OO!OOOO!idi|p:normalize_back", &g, &PyArray_Type, &given, &weight, &mean, &variance,
                          &PyTuple_Type, &sizes, &how, &eps, &needs, &baseline) ||
        !describe(&n, given, sizes, how, eps))
        return NULL;
    const int type = PyArray_TYPE((PyArrayObject *)given);
    const int64_t channels = dg_norm_channels(&n), statistics = dg_norm_statistics(&n);
    const int64_t all = PyArray_SIZE((PyArrayObject *)given);
    PyObject *const each[] = {given, g, variance, n.by_root ? Py_None : mean, weight};
    const int64_t elements[] = {all, all, statistics, statistics, channels};
    for (int k = 0; k < 5; ++k)
        if (!(arrays[k] = in_order(each[k], type, elements[k])) && (PyErr_Occurred() || k < (n.by_root ? 3 : 4))) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_ValueError, "normalize_back: an array is missing");
            goto done;
        }
    for (int k = 0; k < 3; ++k)
        if (!(made[k] = needs >> k & 1 ? new_like(arrays[0], k ? NULL : arrays[0], channels) : Py_NewRef(Py_None)))
            goto done;
    void **const to[] = {&n.by_x, &n.by_weight, &n.by_bias};
    for (int k = 0; k < 3; ++k)
        *to[k] = made[k] == Py_None ? NULL : PyArray_DATA((PyArrayObject *)made[k]);
    if (!n.across) {
        const int64_t room = statistics + (channels == 1 ? all : 0);
        if (!(n.roots = n.rt->take((size_t)(room * PyArray_ITEMSIZE(arrays[0]))))) {
            PyErr_NoMemory();
            goto done;
        }
    }
    n.x = data_of(arrays[0]);
    n.g = data_of(arrays[1]);
    n.variance = (void *)data_of(arrays[2]);
    n.mean = (void *)data_of(arrays[3]);
    n.weight = data_of(arrays[4]);
    run(code_of(baseline)->backward[n.is_double], &n);
    if (n.roots)
        n.rt->give(n.roots);
    results = PyTuple_Pack(3, made[0], made[1], made[2]);
done:
    for (int k = 0; k < 5; ++k)
        Py_XDECREF(arrays[k]);
    for (int k = 0; k < 3; ++k)
        Py_XDECREF(made[k]);
    return results;
}
