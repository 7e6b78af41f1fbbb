/* Recipes: how the result of a call is built from outputs, arguments and constants. */
#include "core.h"

typedef enum { R_OUT, R_ARG, R_CONST, R_TUPLE, R_LIST, R_DICT, R_VIEW, R_SCALAR_OF, R_CALL, R_MAKE, R_MEMO, R_DO, R_SIZE } kind;

struct dg_recipe {
    kind kind;
    int number, n_parts, ndim, writeable;
    PyObject *object; /* constant, callable, dtype, or the dict's keys */
    dg_recipe **parts;
    dg_size *shape, *strides, offset; /* offset: also the program of a size */
};

static const struct { const char *name; kind kind; int n_args; } NAMES[] = {
    {"out", R_OUT, 1}, {"arg", R_ARG, 1}, {"const", R_CONST, 1}, {"tuple", R_TUPLE, 1}, {"list", R_LIST, 1},
    {"dict", R_DICT, 1}, {"view", R_VIEW, 6}, {"scalar_of", R_SCALAR_OF, 1}, {"call", R_CALL, 2}, {"make", R_MAKE, 2},
    {"memo", R_MEMO, 2}, {"do", R_DO, 2}, {"size", R_SIZE, 1},
};

static int parse_parts(dg_recipe *recipe, PyObject *items, int pairs, int n_outputs, int n_symbols, int *n_memo)
{
    if (!PyTuple_Check(items)) {
        PyErr_Format(PyExc_TypeError, "recipe: expected a tuple of recipes, got %R", items);
        return -1;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(items);
    recipe->parts = PyMem_Calloc((size_t)n + 1, sizeof *recipe->parts);
    if (!recipe->parts) {
        PyErr_NoMemory();
        return -1;
    }
    if (pairs && !(recipe->object = PyTuple_New(n)))
        return -1;
    for (Py_ssize_t k = 0; k < n; ++k, recipe->n_parts = (int)k) {
        PyObject *item = PyTuple_GET_ITEM(items, k);
        if (pairs) {
            if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 2) {
                PyErr_Format(PyExc_TypeError, "recipe: expected a pair of key and recipe, got %R", item);
                return -1;
            }
            PyTuple_SET_ITEM(recipe->object, k, Py_NewRef(PyTuple_GET_ITEM(item, 0)));
            item = PyTuple_GET_ITEM(item, 1);
        }
        if (!(recipe->parts[k] = dg_recipe_new(item, n_outputs, n_symbols, n_memo)))
            return -1;
    }
    return 0;
}

static int parse_sizes(PyObject *row, int n_symbols, dg_size **out, int *n)
{
    if (!PyTuple_Check(row)) {
        PyErr_Format(PyExc_TypeError, "recipe: expected a tuple of sizes, got %R", row);
        return -1;
    }
    Py_ssize_t given = PyTuple_GET_SIZE(row);
    if (given > DG_MAX_DIMS) {
        PyErr_Format(PyExc_ValueError, "recipe: a view of %zd dimensions; at most %d are possible", given, DG_MAX_DIMS);
        return -1;
    }
    /* as many as there can be: sizes and strides are freed together, also where their numbers differ */
    if (!(*out = PyMem_Calloc(DG_MAX_DIMS, sizeof **out))) {
        PyErr_NoMemory();
        return -1;
    }
    *n = (int)given;
    for (int k = 0; k < *n; ++k)
        if (dg_size_parse(PyTuple_GET_ITEM(row, k), n_symbols, &(*out)[k]) < 0)
            return -1;
    return 0;
}

static int parse_view(dg_recipe *recipe, PyObject *row, int n_outputs, int n_symbols, int *n_memo)
{
    int n_strides;
    PyArray_Descr *descr = NULL;
    PyObject *base = PyTuple_Pack(1, PyTuple_GET_ITEM(row, 1));
    int parsed = base ? parse_parts(recipe, base, 0, n_outputs, n_symbols, n_memo) : -1;
    Py_XDECREF(base);
    if (parsed < 0 || !PyArray_DescrConverter(PyTuple_GET_ITEM(row, 2), &descr))
        return -1;
    recipe->object = (PyObject *)descr;
    if (!dg_plain_dtype(descr))
        return -1;
    if (parse_sizes(PyTuple_GET_ITEM(row, 3), n_symbols, &recipe->shape, &recipe->ndim) < 0 ||
        parse_sizes(PyTuple_GET_ITEM(row, 4), n_symbols, &recipe->strides, &n_strides) < 0 ||
        dg_size_parse(PyTuple_GET_ITEM(row, 5), n_symbols, &recipe->offset) < 0)
        return -1;
    if (n_strides != recipe->ndim) {
        PyErr_Format(PyExc_ValueError, "recipe: a view with %d sizes and %d strides", recipe->ndim, n_strides);
        return -1;
    }
    recipe->writeable = PyObject_IsTrue(PyTuple_GET_ITEM(row, 6));
    return recipe->writeable < 0 ? -1 : 0;
}

static int parse(dg_recipe *recipe, PyObject *row, int n_outputs, int n_symbols, int *n_memo)
{
    const char *name = NULL;
    if (PyTuple_Check(row) && PyTuple_GET_SIZE(row) > 0 && PyUnicode_Check(PyTuple_GET_ITEM(row, 0)))
        name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(row, 0));
    int found = -1;
    for (size_t k = 0; name && k < sizeof NAMES / sizeof *NAMES; ++k)
        if (strcmp(name, NAMES[k].name) == 0)
            found = (int)k;
    if (found < 0 || PyTuple_GET_SIZE(row) - 1 != NAMES[found].n_args) {
        PyErr_Format(PyExc_ValueError, "recipe: %R is none", row);
        return -1;
    }
    recipe->kind = NAMES[found].kind;
    PyObject *first = PyTuple_GET_ITEM(row, 1);
    int limit = recipe->kind == R_OUT ? n_outputs : DG_MAX_REGISTERS;
    if (recipe->kind == R_OUT || recipe->kind == R_ARG || recipe->kind == R_MEMO) {
        long number = PyLong_AsLong(first);
        if (PyErr_Occurred())
            return -1;
        if (number < 0 || number >= limit) {
            PyErr_Format(PyExc_ValueError, "recipe: %s %ld is not within 0..%d", name, number, limit - 1);
            return -1;
        }
        recipe->number = (int)number;
    }
    switch (recipe->kind) {
    case R_CONST:
        recipe->object = Py_NewRef(first);
        return 0;
    case R_TUPLE:
    case R_LIST:
        return parse_parts(recipe, first, 0, n_outputs, n_symbols, n_memo);
    case R_DICT:
        return parse_parts(recipe, first, 1, n_outputs, n_symbols, n_memo);
    case R_CALL:
    case R_MAKE: {
        if (!PyCallable_Check(first)) {
            PyErr_Format(PyExc_TypeError, "recipe: call of %R, which is not callable", first);
            return -1;
        }
        recipe->object = Py_NewRef(first);
        return parse_parts(recipe, PyTuple_GET_ITEM(row, 2), 0, n_outputs, n_symbols, n_memo);
    }
    case R_SIZE:
        return dg_size_parse(first, n_symbols, &recipe->offset);
    case R_DO: { /* the last part is the result */
        PyObject *result = PyTuple_Pack(1, PyTuple_GET_ITEM(row, 2)), *all = NULL;
        if (result && PyTuple_Check(first))
            all = PySequence_Concat(first, result);
        else if (result)
            PyErr_Format(PyExc_TypeError, "recipe: expected a tuple of recipes, got %R", first);
        int parsed = all ? parse_parts(recipe, all, 0, n_outputs, n_symbols, n_memo) : -1;
        Py_XDECREF(all);
        Py_XDECREF(result);
        return parsed;
    }
    case R_VIEW:
        return parse_view(recipe, row, n_outputs, n_symbols, n_memo);
    case R_SCALAR_OF:
    case R_MEMO: {
        PyObject *one = PyTuple_Pack(1, recipe->kind == R_MEMO ? PyTuple_GET_ITEM(row, 2) : first);
        int parsed = one ? parse_parts(recipe, one, 0, n_outputs, n_symbols, n_memo) : -1;
        Py_XDECREF(one);
        if (recipe->kind == R_MEMO && recipe->number >= *n_memo)
            *n_memo = recipe->number + 1;
        return parsed;
    }
    default:
        return 0;
    }
}

dg_recipe *dg_recipe_new(PyObject *description, int n_outputs, int n_symbols, int *n_memo)
{
    dg_recipe *recipe = PyMem_Calloc(1, sizeof *recipe);
    if (!recipe) {
        PyErr_NoMemory();
        return NULL;
    }
    if (Py_EnterRecursiveCall(" in a recipe") != 0) {
        PyMem_Free(recipe);
        return NULL;
    }
    int parsed = parse(recipe, description, n_outputs, n_symbols, n_memo);
    Py_LeaveRecursiveCall();
    if (parsed < 0) {
        dg_recipe_free(recipe);
        return NULL;
    }
    return recipe;
}

void dg_recipe_free(dg_recipe *recipe)
{
    if (!recipe)
        return;
    Py_CLEAR(recipe->object);
    for (int k = 0; recipe->parts && recipe->parts[k]; ++k)
        dg_recipe_free(recipe->parts[k]);
    for (int k = 0; k < recipe->ndim; ++k) {
        if (recipe->shape)
            dg_size_clear(&recipe->shape[k]);
        if (recipe->strides)
            dg_size_clear(&recipe->strides[k]);
    }
    dg_size_clear(&recipe->offset);
    PyMem_Free(recipe->shape);
    PyMem_Free(recipe->strides);
    PyMem_Free(recipe->parts);
    PyMem_Free(recipe);
}

int dg_recipe_traverse(dg_recipe *recipe, visitproc visit, void *arg)
{
    if (!recipe)
        return 0;
    Py_VISIT(recipe->object);
    for (int k = 0; recipe->parts && k < recipe->n_parts; ++k) {
        int result = dg_recipe_traverse(recipe->parts[k], visit, arg);
        if (result)
            return result;
    }
    return 0;
}

int dg_recipe_reads(const dg_recipe *recipe, unsigned char *read)
{
    int highest = recipe->kind == R_ARG ? recipe->number : -1;
    if (highest >= 0 && read)
        read[highest] = 1;
    for (int k = 0; k < recipe->n_parts; ++k) {
        int other = dg_recipe_reads(recipe->parts[k], read);
        highest = other > highest ? other : highest;
    }
    return highest;
}

int dg_recipe_is_quiet(const dg_recipe *recipe)
{
    int quiet = recipe->kind != R_CALL && recipe->kind != R_MAKE;
    for (int k = 0; quiet && k < recipe->n_parts; ++k)
        quiet = dg_recipe_is_quiet(recipe->parts[k]);
    return quiet;
}

/* one size: by the symbols, or where none of them is above `bound` */
static int one_fits(const dg_size *size, const int64_t *sizes, int64_t bound, int64_t factor)
{
    int64_t value, product;
    return (sizes ? dg_size_run(size, sizes, &value) : dg_size_most(size, bound, &value)) && !__builtin_mul_overflow(value, factor, &product);
}

static int fits(const dg_recipe *recipe, const int64_t *sizes, int64_t bound)
{
    int64_t itemsize = recipe->kind == R_VIEW ? PyDataType_ELSIZE((PyArray_Descr *)recipe->object) : 1;
    int ok = one_fits(&recipe->offset, sizes, bound, itemsize);
    for (int k = 0; ok && k < recipe->ndim; ++k)
        ok = one_fits(&recipe->shape[k], sizes, bound, itemsize) && one_fits(&recipe->strides[k], sizes, bound, itemsize);
    for (int k = 0; ok && k < recipe->n_parts; ++k)
        ok = fits(recipe->parts[k], sizes, bound);
    return ok;
}

int dg_recipe_fits(const dg_recipe *recipe, const int64_t *sizes) { return fits(recipe, sizes, 0); }
int dg_recipe_fits_below(const dg_recipe *recipe, int64_t bound) { return fits(recipe, NULL, bound); }

/* -- building ------------------------------------------------------------------------------------------------------------ */

/* The bytes that an array reaches, relative to its first element; empty arrays reach none. 0: more than there are numbers. */
static int reach(int ndim, const npy_intp *shape, const npy_intp *strides, npy_intp itemsize, npy_intp *low, npy_intp *high)
{
    *low = 0;
    *high = itemsize;
    for (int k = 0; k < ndim; ++k) {
        npy_intp *end = strides[k] < 0 ? low : high, far;
        if (shape[k] <= 0) {
            *low = *high = 0;
            return shape[k] == 0;
        }
        if (__builtin_mul_overflow(shape[k] - 1, strides[k], &far) || __builtin_add_overflow(*end, far, end))
            return 0;
    }
    return 1;
}

static int reach_of(PyArrayObject *array, npy_intp *low, npy_intp *high)
{
    if (!(PyArray_FLAGS(array) & (NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_F_CONTIGUOUS)))
        return reach(PyArray_NDIM(array), PyArray_DIMS(array), PyArray_STRIDES(array), PyArray_ITEMSIZE(array), low, high);
    *low = 0;
    *high = PyArray_ITEMSIZE(array);
    for (int k = 0; k < PyArray_NDIM(array); ++k)
        *high *= PyArray_DIM(array, k);
    return 1;
}

static int reaches_outside(PyArrayObject *base, int ndim, const npy_intp *shape, const npy_intp *strides, npy_intp itemsize,
                           npy_intp offset)
{
    npy_intp low, high, base_low, base_high;
    if (!reach(ndim, shape, strides, itemsize, &low, &high) || !reach_of(base, &base_low, &base_high))
        return 1;
    if (high == low)
        return 0;
    return __builtin_add_overflow(low, offset, &low) || __builtin_add_overflow(high, offset, &high) || low < base_low || high > base_high;
}

/* elements to bytes; 0: there are too many */
static int in_bytes(const dg_size *size, const int64_t *sizes, npy_intp itemsize, npy_intp *out)
{
    int64_t elements;
    return dg_size_run(size, sizes, &elements) && !__builtin_mul_overflow(elements, itemsize, out);
}

static PyObject *build_view(const dg_recipe *recipe, dg_results *results)
{
    PyObject *base = dg_recipe_build(recipe->parts[0], results);
    if (!base)
        return NULL;
    if (!PyArray_Check(base)) {
        PyErr_Format(PyExc_TypeError, "recipe: a view of %s", Py_TYPE(base)->tp_name);
        Py_DECREF(base);
        return NULL;
    }
    if (!dg_plain_dtype(PyArray_DESCR((PyArrayObject *)base))) {
        Py_DECREF(base);
        return NULL;
    }
    npy_intp shape[DG_MAX_DIMS], strides[DG_MAX_DIMS], offset, itemsize = PyDataType_ELSIZE((PyArray_Descr *)recipe->object);
    const int64_t *sizes = results->frame->sizes;
    int fits = in_bytes(&recipe->offset, sizes, itemsize, &offset);
    for (int k = 0; k < recipe->ndim; ++k)
        fits = fits && dg_size_run(&recipe->shape[k], sizes, &shape[k]) && in_bytes(&recipe->strides[k], sizes, itemsize, &strides[k]);
    if (!fits || reaches_outside((PyArrayObject *)base, recipe->ndim, shape, strides, itemsize, offset)) {
        PyErr_SetString(PyExc_ValueError, "recipe: a view that reaches outside of its base");
        Py_DECREF(base);
        return NULL;
    }
    char *data = PyArray_BYTES((PyArrayObject *)base) + offset;
    int flags = recipe->writeable && PyArray_ISWRITEABLE((PyArrayObject *)base) ? NPY_ARRAY_WRITEABLE : 0;
    Py_INCREF(recipe->object);
    PyObject *view = PyArray_NewFromDescr(&PyArray_Type, (PyArray_Descr *)recipe->object, recipe->ndim, shape, strides, data,
                                          flags, NULL);
    if (!view) {
        Py_DECREF(base);
        return NULL;
    }
    if (PyArray_SetBaseObject((PyArrayObject *)view, base) < 0) { /* takes the reference to base */
        Py_DECREF(view);
        return NULL;
    }
    return view; /* NumPy has set the flags that follow from its strides */
}

static PyObject *build_sequence(const dg_recipe *recipe, dg_results *results)
{
    PyObject *sequence = recipe->kind == R_LIST ? PyList_New(recipe->n_parts) : PyTuple_New(recipe->n_parts);
    for (int k = 0; sequence && k < recipe->n_parts; ++k) {
        PyObject *item = dg_recipe_build(recipe->parts[k], results);
        if (!item) {
            Py_CLEAR(sequence);
        } else if (recipe->kind == R_LIST) {
            PyList_SET_ITEM(sequence, k, item);
        } else {
            PyTuple_SET_ITEM(sequence, k, item);
        }
    }
    return sequence;
}

static PyObject *build_dict(const dg_recipe *recipe, dg_results *results)
{
    PyObject *dict = PyDict_New();
    for (int k = 0; dict && k < recipe->n_parts; ++k) {
        PyObject *value = dg_recipe_build(recipe->parts[k], results);
        if (!value || PyDict_SetItem(dict, PyTuple_GET_ITEM(recipe->object, k), value) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(value);
    }
    return dict;
}

/* The steps of a "do" before its result. What a signal cuts off in one of them (in a file's own write) is not done again; the others are
   done as they would be, had the signal come after them. */
static int run_steps(const dg_recipe *recipe, dg_results *results)
{
    for (int k = 0; k < recipe->n_parts - 1; ++k) {
        PyObject *dropped = dg_recipe_build(recipe->parts[k], results);
        if (!dropped && !dg_put_off(&results->frame->late))
            return -1;
        Py_XDECREF(dropped);
    }
    return 0;
}

PyObject *dg_recipe_build(const dg_recipe *recipe, dg_results *results)
{
    switch (recipe->kind) {
    case R_OUT:
        if (!results->outputs[recipe->number])
            return PyErr_Format(PyExc_ValueError, "the program gave no output %d", recipe->number);
        return Py_NewRef(results->outputs[recipe->number]);
    case R_ARG: return Py_NewRef(results->frame->registers[recipe->number]);
    case R_CONST: return Py_NewRef(recipe->object);
    case R_TUPLE:
    case R_LIST: return build_sequence(recipe, results);
    case R_DICT: return build_dict(recipe, results);
    case R_VIEW: return build_view(recipe, results);
    case R_SCALAR_OF: {
        PyObject *array = dg_recipe_build(recipe->parts[0], results);
        return array && PyArray_Check(array) ? PyArray_Return((PyArrayObject *)array) : array;
    }
    case R_CALL: {
        PyObject *args = build_sequence(recipe, results);
        PyObject *result = args ? PyObject_CallObject(recipe->object, args) : NULL;
        Py_XDECREF(args);
        return result;
    }
    case R_MAKE: {
        PyObject *args = build_sequence(recipe, results);
        PyObject *result = args ? dg_call_whole(recipe->object, args, &results->frame->late) : NULL;
        Py_XDECREF(args);
        return result;
    }
    case R_MEMO: {
        PyObject **slot = &results->frame->memo[recipe->number];
        if (!*slot && !(*slot = dg_recipe_build(recipe->parts[0], results)))
            return NULL;
        return Py_NewRef(*slot);
    }
    case R_DO:
        return run_steps(recipe, results) < 0 ? NULL : dg_recipe_build(recipe->parts[recipe->n_parts - 1], results);
    case R_SIZE: {
        int64_t size;
        if (!dg_size_run(&recipe->offset, results->frame->sizes, &size))
            return PyErr_Format(PyExc_OverflowError, "recipe: a size beyond 64 bits");
        return PyLong_FromLongLong(size);
    }
    }
    return NULL;
}

PyObject *dg_recipe_build_last(const dg_recipe *recipe, dg_results *results, PyObject **callee)
{
    for (; recipe->kind == R_DO; recipe = recipe->parts[recipe->n_parts - 1])
        if (run_steps(recipe, results) < 0)
            return NULL;
    if (recipe->kind != R_CALL)
        return dg_recipe_build(recipe, results);
    PyObject *args = build_sequence(recipe, results);
    if (args)
        *callee = Py_NewRef(recipe->object);
    return args;
}
