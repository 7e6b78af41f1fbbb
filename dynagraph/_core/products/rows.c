/* Rows of tables, and means and maxima of windows of all lengths, of NumPy's arrays: put_rows(...), adaptive_means(...) and its
   way back, adaptive_maxima(...).  Sums are in the order of the same in NumPy's operations. */
#include "../dispatch/core.h"
#include "micro.h"
#include "pool.h"

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

/* -- means of as many windows as are asked for, along the middle one of three axes ------------------------------------- */

typedef struct {
    const void *from;
    void *to;
    int64_t size, inner, count;
} windows;

#define DEFINE_MEANS(T, suffix)                                                                                                   \
    static T sum_##suffix(const T *x, int64_t n) /* pairwise, as NumPy has it */                                                  \
    {                                                                                                                             \
        T parts[8], total = (T)-0.0;                                                                                              \
        int64_t k = 0;                                                                                                            \
        if (n > 128) {                                                                                                            \
            const int64_t half = n / 2 - n / 2 % 8;                                                                               \
            return sum_##suffix(x, half) + sum_##suffix(x + half, n - half);                                                      \
        }                                                                                                                         \
        if (n >= 8) {                                                                                                             \
            memcpy(parts, x, sizeof parts);                                                                                       \
            for (k = 8; k + 8 <= n; k += 8)                                                                                       \
                for (int part = 0; part < 8; ++part)                                                                              \
                    parts[part] += x[k + part];                                                                                   \
            total = ((parts[0] + parts[1]) + (parts[2] + parts[3])) + ((parts[4] + parts[5]) + (parts[6] + parts[7]));            \
        }                                                                                                                         \
        for (; k < n; ++k)                                                                                                        \
            total += x[k];                                                                                                        \
        return total;                                                                                                             \
    }                                                                                                                             \
    static void means_##suffix(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)     \
    {                                                                                                                             \
        const windows *w = buffers[0];                                                                                            \
        for (int64_t plane = lo; plane < hi; ++plane)                                                                             \
            for (int64_t j = 0; j < w->count; ++j) {                                                                              \
                const int64_t a = j * w->size / w->count, b = ((j + 1) * w->size + w->count - 1) / w->count;                      \
                const T *from = (const T *)w->from + plane * w->size * w->inner;                                                  \
                T *to = (T *)w->to + (plane * w->count + j) * w->inner;                                                           \
                if (w->inner == 1) {                                                                                              \
                    *to = (sum_##suffix(from + a, b - a) + 0) / (T)(b - a);                                                       \
                    continue;                                                                                                     \
                }                                                                                                                 \
                memset(to, 0, sizeof(T) * (size_t)w->inner);                                                                      \
                for (int64_t y = a; y < b; ++y)                                                                                   \
                    for (int64_t c = 0; c < w->inner; ++c)                                                                        \
                        to[c] += from[y * w->inner + c];                                                                          \
                for (int64_t c = 0; c < w->inner; ++c)                                                                            \
                    to[c] /= (T)(b - a);                                                                                          \
            }                                                                                                                     \
    }                                                                                                                             \
    static void spread_##suffix(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)    \
    {                                                                                                                             \
        const windows *w = buffers[0];                                                                                            \
        for (int64_t plane = lo; plane < hi; ++plane) {                                                                           \
            T *to = (T *)w->to + plane * w->size * w->inner;                                                                      \
            memset(to, 0, sizeof(T) * (size_t)(w->size * w->inner));                                                              \
            for (int64_t j = 0; j < w->count; ++j) {                                                                              \
                const int64_t a = j * w->size / w->count, b = ((j + 1) * w->size + w->count - 1) / w->count;                      \
                const T *from = (const T *)w->from + (plane * w->count + j) * w->inner;                                           \
                for (int64_t c = 0; c < w->inner; ++c) {                                                                          \
                    const T share = from[c] / (T)(b - a);                                                                         \
                    for (int64_t y = a; y < b; ++y)                                                                               \
                        to[y * w->inner + c] += share;                                                                            \
                }                                                                                                                 \
            }                                                                                                                     \
        }                                                                                                                         \
    }
DEFINE_MEANS(float, f32)
DEFINE_MEANS(double, f64)

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
    if (size < 1 || inner < 1 || count < 1 || all % (mine * inner))
        return PyErr_Format(PyExc_ValueError, "adaptive_means: %lld elements, not in rows of %lld by %lld", (long long)all, mine,
                            inner);
    PyArrayObject *x = in_order(given, type);
    if (!x)
        return NULL;
    const int64_t planes = all / (mine * inner);
    const npy_intp shape[] = {(npy_intp)planes, (npy_intp)others, (npy_intp)inner};
    out = dg_new_array(PyArray_DESCR(x), 3, shape, (size_t)(planes * others * inner * PyArray_ITEMSIZE(x)));
    if (out && planes) {
        windows w = {PyArray_DATA(x), PyArray_DATA((PyArrayObject *)out), size, inner, count};
        const dg_range kernels[] = {means_f32, means_f64, spread_f32, spread_f64};
        const int64_t of_plane = (size + count) * inner;
        run(kernels[2 * back + (type == NPY_DOUBLE)], &w, planes, 1.5 * (double)of_plane, planes * of_plane);
    }
    Py_DECREF(x);
    return out;
}

PyObject *dg_adaptive_means(PyObject *module, PyObject *args) { return along(args, 0); }
PyObject *dg_adaptive_means_back(PyObject *module, PyObject *args) { return along(args, 1); }

/* -- maxima of as many windows as are asked for, along the last three axes --------------------------------------------- */

typedef struct {
    const void *from;
    void *to;
    int64_t *where, sizes[3], counts[3];
} boxes;

/* the first of several that are equal, but of NaNs the last */
#define DEFINE_MAXIMA(T, suffix)                                                                                                 \
    static void maxima_##suffix(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)   \
    {                                                                                                                            \
        const boxes *w = buffers[0];                                                                                             \
        const int64_t n = w->counts[0] * w->counts[1] * w->counts[2], size = w->sizes[0] * w->sizes[1] * w->sizes[2];            \
        for (int64_t at = lo * n; at < hi * n; ++at) {                                                                           \
            const T *from = (const T *)w->from + at / n * size;                                                                  \
            int64_t number[] = {at % n / (w->counts[1] * w->counts[2]), at / w->counts[2] % w->counts[1], at % w->counts[2]};    \
            int64_t first[3], end[3];                                                                                            \
            for (int k = 0; k < 3; ++k) {                                                                                        \
                first[k] = number[k] * w->sizes[k] / w->counts[k];                                                               \
                end[k] = ((number[k] + 1) * w->sizes[k] + w->counts[k] - 1) / w->counts[k];                                      \
            }                                                                                                                    \
            int64_t where = (first[0] * w->sizes[1] + first[1]) * w->sizes[2] + first[2];                                        \
            T best = from[where];                                                                                                \
            for (int64_t z = first[0]; z < end[0]; ++z)                                                                          \
                for (int64_t y = first[1]; y < end[1]; ++y) {                                                                    \
                    const int64_t row = (z * w->sizes[1] + y) * w->sizes[2];                                                     \
                    for (int64_t c = row + first[2]; c < row + end[2]; ++c)                                                      \
                        if (from[c] > best || from[c] != from[c]) {                                                              \
                            best = from[c];                                                                                      \
                            where = c;                                                                                           \
                        }                                                                                                        \
                }                                                                                                                \
            ((T *)w->to)[at] = best;                                                                                             \
            w->where[at] = where;                                                                                                \
        }                                                                                                                        \
    }
DEFINE_MAXIMA(float, f32)
DEFINE_MAXIMA(double, f64)

PyObject *dg_adaptive_maxima(PyObject *module, PyObject *args)
{
    PyObject *given, *values = NULL, *places = NULL;
    long long s[3], c[3];
    if (!PyArg_ParseTuple(args, "O!(LLL)(LLL):adaptive_maxima", &PyArray_Type, &given, s, s + 1, s + 2, c, c + 1, c + 2))
        return NULL;
    const int type = float_type_of(given, "adaptive_maxima");
    if (type < 0)
        return NULL;
    boxes w = {NULL};
    int64_t size = 1, n = 1;
    for (int k = 0; k < 3; ++k) {
        if (s[k] < 1 || c[k] < 1)
            return PyErr_Format(PyExc_ValueError, "adaptive_maxima: takes no sizes below 1");
        size *= w.sizes[k] = s[k];
        n *= w.counts[k] = c[k];
    }
    const int64_t all = PyArray_SIZE((PyArrayObject *)given), planes = all / size;
    if (all % size)
        return PyErr_Format(PyExc_ValueError, "adaptive_maxima: %lld elements, not in planes of %lld", (long long)all,
                            (long long)size);
    PyArrayObject *x = in_order(given, type);
    if (!x)
        return NULL;
    const npy_intp shape[] = {(npy_intp)planes, (npy_intp)c[0], (npy_intp)c[1], (npy_intp)c[2]};
    PyArray_Descr *numbers = PyArray_DescrFromType(NPY_INT64);
    values = dg_new_array(PyArray_DESCR(x), 4, shape, (size_t)(planes * n * PyArray_ITEMSIZE(x)));
    places = values ? dg_new_array(numbers, 4, shape, (size_t)(planes * n) * sizeof(int64_t)) : NULL;
    if (places && planes) {
        w.from = PyArray_DATA(x);
        w.to = PyArray_DATA((PyArrayObject *)values);
        w.where = PyArray_DATA((PyArrayObject *)places);
        run(type == NPY_FLOAT ? maxima_f32 : maxima_f64, &w, planes, 1.5 * (double)size + 10.0 * (double)n, all);
    }
    Py_DECREF(numbers);
    Py_DECREF(x);
    PyObject *both = places ? PyTuple_Pack(2, values, places) : NULL;
    Py_XDECREF(values);
    Py_XDECREF(places);
    return both;
}
