/* where(condition, a, b) of NumPy's arrays.  np.where branches on each element, which costs 3 to 4 ns where the processor cannot
   foresee the branches; here bits are chosen by masks. */
#include "core.h"

#include <math.h>

enum { KEEP_THE_GIL = 1 << 16 }; /* elements; fewer take less time than giving it to others */

/* a choice: an array as large as the condition, or one element for all */
typedef struct {
    const void *data;
    int is_one;
    union {
        float f32;
        double f64;
    } number; /* what `data` points to where a Python number was given */
} choice;

/* Sixteen elements at a time, since what a loop of unknown length leaves over is not vectorised under -O2. */
#define DEFINE_CHOOSE(T, bits)                                                                                        \
    static void choose_##bits(const npy_bool *restrict condition, const choice *x, const choice *y, void *out, npy_intp n) \
    {                                                                                                                 \
        enum { STEP = 16 };                                                                                           \
        const T *restrict a = x->data, *restrict b = y->data;                                                         \
        T *restrict to = out, held[2][STEP];                                                                          \
        for (int j = 0; j < STEP; ++j) {                                                                              \
            held[0][j] = x->is_one && n ? *a : 0;                                                                     \
            held[1][j] = y->is_one && n ? *b : 0;                                                                     \
        }                                                                                                             \
        npy_intp k = 0;                                                                                               \
        for (; k + STEP <= n; k += STEP) {                                                                            \
            const T *restrict own = x->is_one ? held[0] : a + k, *restrict other = y->is_one ? held[1] : b + k;       \
            for (int j = 0; j < STEP; ++j) {                                                                          \
                const T mask = (T)-(T)(condition[k + j] != 0);                                                        \
                to[k + j] = (T)((own[j] & mask) | (other[j] & (T)~mask));                                             \
            }                                                                                                         \
        }                                                                                                             \
        for (; k < n; ++k)                                                                                            \
            to[k] = condition[k] ? a[x->is_one ? 0 : k] : b[y->is_one ? 0 : k];                                       \
    }
DEFINE_CHOOSE(uint8_t, 8)
DEFINE_CHOOSE(uint16_t, 16)
DEFINE_CHOOSE(uint32_t, 32)
DEFINE_CHOOSE(uint64_t, 64)

static int is_plain(PyObject *given)
{
    return PyArray_CheckExact(given) && PyArray_ISCARRAY_RO((PyArrayObject *)given);
}

/* whether elements of this dtype are bits that may be copied */
static int is_of_bits(PyArray_Descr *descr)
{
    return PyTypeNum_ISBOOL(descr->type_num) || PyTypeNum_ISNUMBER(descr->type_num) || dg_is_bfloat16(descr->typeobj);
}

/* an array's elements; 0: it is not chosen from here */
static int of_array(PyObject *given, PyArrayObject *condition, PyArray_Descr *descr, choice *to)
{
    if (!is_plain(given))
        return 0;
    PyArrayObject *array = (PyArrayObject *)given;
    to->data = PyArray_DATA(array);
    if (PyArray_TYPE(array) != descr->type_num || (uintptr_t)to->data % (uintptr_t)PyDataType_ELSIZE(descr))
        return 0; /* complex numbers may be aligned as their parts are */
    to->is_one = PyArray_NDIM(array) == 0;
    return to->is_one || PyArray_SAMESHAPE(array, condition);
}

/* a Python number, which takes the other choice's dtype; 0: it is not chosen from here */
static int of_number(PyObject *given, PyArray_Descr *descr, choice *to)
{
    enum { EXACT = 1 << 24 }; /* ints up to here are float32's */
    double value;
    if (PyFloat_CheckExact(given)) {
        value = PyFloat_AS_DOUBLE(given);
    } else if (PyLong_CheckExact(given)) {
        int overflow;
        const long found = PyLong_AsLongAndOverflow(given, &overflow);
        if (overflow || found > EXACT || found < -EXACT)
            return 0;
        value = (double)found;
    } else {
        return 0;
    }
    to->is_one = 1;
    to->data = &to->number;
    if (descr->type_num == NPY_DOUBLE)
        to->number.f64 = value;
    else if (descr->type_num == NPY_FLOAT && !(isfinite(value) && !isfinite((float)value))) /* of which NumPy warns */
        to->number.f32 = (float)value;
    else
        return 0;
    return 1;
}

/* null without an exception: NumPy is to choose */
static PyObject *chosen(PyObject *const *args)
{
    if (!is_plain(args[0]) || PyArray_TYPE((PyArrayObject *)args[0]) != NPY_BOOL)
        return NULL;
    PyArrayObject *condition = (PyArrayObject *)args[0];
    const int of = PyArray_CheckExact(args[1]) ? 1 : 2; /* the array that says the dtype */
    if (PyArray_NDIM(condition) == 0 || !PyArray_CheckExact(args[of]) || PyArray_ISBYTESWAPPED((PyArrayObject *)args[of]))
        return NULL;
    PyArray_Descr *descr = PyArray_DESCR((PyArrayObject *)args[of]);
    choice choices[2];
    if (!is_of_bits(descr))
        return NULL;
    for (int k = 0; k < 2; ++k)
        if (!of_array(args[k + 1], condition, descr, &choices[k]) && !of_number(args[k + 1], descr, &choices[k]))
            return NULL;
    void (*choose)(const npy_bool *, const choice *, const choice *, void *, npy_intp);
    const npy_intp size = PyDataType_ELSIZE(descr), n = PyArray_SIZE(condition);
    choose = size == 1 ? choose_8 : size == 2 ? choose_16 : size == 4 ? choose_32 : size == 8 ? choose_64 : NULL;
    if (!choose)
        return NULL;
    PyObject *out = dg_new_array(descr, PyArray_NDIM(condition), PyArray_DIMS(condition), (size_t)(n * size));
    if (out) {
        PyThreadState *state = n > KEEP_THE_GIL ? PyEval_SaveThread() : NULL;
        choose(PyArray_DATA(condition), &choices[0], &choices[1], PyArray_DATA((PyArrayObject *)out), n);
        if (state)
            PyEval_RestoreThread(state);
    }
    return out;
}

/* self: what chooses where something else is given */
static PyObject *where(PyObject *self, PyObject *const *args, Py_ssize_t n_args)
{
    if (n_args == 3) {
        PyObject *out = chosen(args);
        if (out || PyErr_Occurred())
            return out;
    }
    return PyObject_Vectorcall(self, args, (size_t)n_args, NULL);
}

PyObject *dg_own_where(PyObject *module, PyObject *args)
{
    static PyMethodDef chooses = {"where", (PyCFunction)(void (*)(void))where, METH_FASTCALL,
                                  "where(condition, a, b): np.where, without a branch for each element"};
    PyObject *otherwise, *name;
    if (!PyArg_ParseTuple(args, "OU:own_where", &otherwise, &name))
        return NULL;
    return PyCFunction_NewEx(&chooses, otherwise, name);
}
