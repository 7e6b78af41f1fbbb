/* Rows of tables, of NumPy's arrays: put_rows(...).  Sums are in order. */
#include "../dispatch/core.h"
#include "micro.h"
#include "rows.h"

enum { KEEP_THE_GIL = 1 << 13, RANGES = 8 };

/* -- sums of rows ------------------------------------------------------------------------------------------------------- */

typedef struct {
    const void *g;
    const int64_t *places;
    void *out;
    int64_t n, rows, width, step; /* step: rows of a range */
} put;

/* each range of the table's rows takes those that belong to it */
#define DEFINE_PUT(T, suffix)                                                                                                     \
    static void put_##suffix(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)       \
    {                                                                                                                             \
        const put *p = buffers[0];                                                                                                \
        const int64_t first = lo * p->step, end = hi * p->step < p->rows ? hi * p->step : p->rows;                                \
        if (first >= end)                                                                                                         \
            return;                                                                                                               \
        memset((T *)p->out + first * p->width, 0, sizeof(T) * (size_t)((end - first) * p->width));                                \
        for (int64_t k = 0; k < p->n; ++k) {                                                                                      \
            if (p->places[k] < first || p->places[k] >= end)                                                                      \
                continue;                                                                                                         \
            const T *restrict from = (const T *)p->g + k * p->width;                                                              \
            T *restrict to = (T *)p->out + p->places[k] * p->width;                                                               \
            for (int64_t c = 0; c < p->width; ++c)                                                                                \
                to[c] += from[c];                                                                                                 \
        }                                                                                                                         \
    }
DEFINE_PUT(float, f32)
DEFINE_PUT(double, f64)

static const int32_t no_signals = 0;

/* on threads, without the GIL where that is worth it */
static void run(dg_range kernel, void *what, int64_t n, double nanoseconds, int64_t elements)
{
    dg_stop stop = {.signals = &no_signals};
    void *const buffers[] = {what};
    PyThreadState *state = elements > KEEP_THE_GIL ? PyEval_SaveThread() : NULL;
    dg_share(&dg_the_runtime, &stop, kernel, buffers, n, nanoseconds);
    if (state)
        PyEval_RestoreThread(state);
}

static PyArrayObject *in_order(PyObject *given, int type)
{
    return (PyArrayObject *)PyArray_FromAny(given, PyArray_DescrFromType(type), 0, 0, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_NOTSWAPPED,
                                            NULL);
}

static int float_type_of(PyObject *given, const char *who)
{
    const int type = PyArray_TYPE((PyArrayObject *)given);
    if (type == NPY_FLOAT || type == NPY_DOUBLE)
        return type;
    PyErr_Format(PyExc_TypeError, "%s: takes float32 or float64, not %R", who, PyArray_DESCR((PyArrayObject *)given));
    return -1;
}

PyObject *dg_put_rows(PyObject *module, PyObject *args)
{
    PyObject *given, *given_places, *out = NULL;
    long long rows;
    if (!PyArg_ParseTuple(args, "O!O!L:put_rows", &PyArray_Type, &given, &PyArray_Type, &given_places, &rows))
        return NULL;
    const int type = float_type_of(given, "put_rows");
    PyArrayObject *g = type < 0 ? NULL : in_order(given, type), *places = g ? in_order(given_places, NPY_INT64) : NULL;
    if (places) {
        const int64_t n = PyArray_SIZE(places), width = PyArray_NDIM(g) ? PyArray_DIM(g, PyArray_NDIM(g) - 1) : 0;
        put p = {PyArray_DATA(g), PyArray_DATA(places), NULL, n, rows, width, (rows + RANGES - 1) / RANGES};
        int64_t k = 0;
        while (k < n && p.places[k] >= 0 && p.places[k] < rows)
            ++k;
        const npy_intp shape[] = {(npy_intp)rows, (npy_intp)width};
        if (k < n)
            PyErr_Format(PyExc_IndexError, "put_rows: a place beyond the table");
        else if (rows < 0 || PyArray_SIZE(g) != n * width)
            PyErr_Format(PyExc_ValueError, "put_rows: %lld places, and rows of another number", (long long)n);
        else
            out = dg_new_array(PyArray_DESCR(g), 2, shape, (size_t)(rows * width * PyArray_ITEMSIZE(g)));
        if (out && rows > 0 && width > 0) {
            p.out = PyArray_DATA((PyArrayObject *)out);
            const double each = (0.3 * (double)(n + rows) * (double)width) / RANGES + (double)n;
            run(type == NPY_FLOAT ? put_f32 : put_f64, &p, (rows + p.step - 1) / p.step, each, (n + rows) * width);
        }
    }
    Py_XDECREF(g);
    Py_XDECREF(places);
    return out;
}
