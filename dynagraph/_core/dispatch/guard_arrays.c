/* Guards that give a program its inputs and sizes, and those on them. */
#include "guards.h"
#include "sessions.h"

int dg_is_array(dg_guard *g, dg_frame *frame)
{
    PyObject *object = dg_guarded(g, frame);
    if (Py_TYPE(object) != &PyArray_Type)
        return 0;
    PyArrayObject *array = (PyArrayObject *)object;
    if ((PyObject *)PyArray_DESCR(array) != g->object && !dg_same_dtype(PyArray_DESCR(array), (PyArray_Descr *)g->object))
        return 0;
    if (PyArray_NDIM(array) != g->ndim || (PyArray_FLAGS(array) & g->flags_mask) != g->flags)
        return 0;
    const npy_intp *dims = PyArray_DIMS(array);
    for (int k = 0; k < g->ndim; ++k)
        if (g->dims[k] >= 0 ? dims[k] != g->dims[k] : dims[k] < 2)
            return 0;
    if (g->exact) {
        const npy_intp *strides = PyArray_STRIDES(array);
        for (int k = 0; k < g->ndim; ++k)
            if (strides[k] != g->strides[k] && dims[k] > 1)
                return 0;
    }
    frame->inputs[g->slot] = PyArray_DATA(array);
    frame->input_objects[g->slot] = object;
    return 1;
}

int dg_is_device_array(dg_guard *g, dg_frame *frame)
{
    PyObject *object = dg_guarded(g, frame);
    if ((PyObject *)Py_TYPE(object) != g->object || !dg_is_unchanged(g, (PyTypeObject *)g->object))
        return 0;
    dg_device_layout own;
    PyObject *dtype;
    const dg_device_layout *layout = dg_session_layout(frame->session, object, &own, &dtype);
    int holds = layout && (dtype == g->key || (PyArray_DescrCheck(dtype) && dg_same_dtype((PyArray_Descr *)dtype, (PyArray_Descr *)g->key)));
    npy_intp packed = g->itemsize;
    Py_XDECREF(dtype);
    if (!holds || layout->ndim != g->ndim || layout->device != g->number)
        return 0;
    int empty = 0;
    for (int k = g->ndim - 1; k >= 0; --k) {
        npy_intp dim = layout->dims[k];
        if (g->dims[k] >= 0 ? dim != g->dims[k] : dim < 2)
            return 0;
        if (dim > 1 && layout->strides[k] != (g->exact ? g->strides[k] : packed))
            holds = 0;
        packed *= dim;
        empty |= dim == 0;
    }
    if (!holds && (g->exact || !empty)) /* an array without elements lies in every order */
        return 0;
    frame->inputs[g->slot] = layout->data;
    frame->input_objects[g->slot] = object;
    return 1;
}

/* gives a symbol a size of an input that a guard has read before */
int dg_load_size(dg_guard *g, dg_frame *frame)
{
    PyObject *object = frame->input_objects[g->slot];
    if (PyArray_Check(object)) {
        frame->sizes[g->dst] = PyArray_DIM((PyArrayObject *)object, (int)g->number);
        return 1;
    }
    npy_intp read[DG_MAX_DIMS];
    const npy_intp *dims = read;
    const dg_session_array *known = dg_session_find(frame->session, object);
    int n = known ? known->layout.ndim : dg_device_shape(object, read);
    if (known)
        dims = known->layout.dims;
    PyErr_Clear();
    frame->sizes[g->dst] = n > g->number ? dims[g->number] : 0;
    return 1;
}

/* 0: the input is no vector of int64 with elements, or their sum is beyond 64 bits */
static int held_number(const dg_guard *g, const dg_frame *frame, int64_t *number)
{
    PyArrayObject *array = (PyArrayObject *)frame->input_objects[g->slot];
    if (!PyArray_Check((PyObject *)array) || PyArray_NDIM(array) != 1 || PyArray_ITEMSIZE(array) != sizeof *number ||
        !PyArray_ISSIGNED(array) || !PyArray_ISINTEGER(array) || !PyArray_ISBEHAVED_RO(array) || !PyArray_DIM(array, 0))
        return 0;
    memcpy(number, PyArray_DATA(array), sizeof *number);
    for (npy_intp k = 1; g->how != DG_FIRST && k < PyArray_DIM(array, 0); ++k) {
        int64_t each = *(int64_t *)PyArray_GETPTR1(array, k);
        if (g->how == DG_GREATEST)
            *number = *number > each ? *number : each;
        else if (__builtin_add_overflow(*number, each, number))
            return 0;
    }
    return 1;
}

/* gives a symbol what an input holds: a number as symbolic ints are */
int dg_load_held(dg_guard *g, dg_frame *frame)
{
    int64_t number;
    if (!held_number(g, frame, &number) || number < 2 || number >= (int64_t)1 << 62)
        return 0;
    frame->sizes[g->dst] = number;
    return 1;
}

int dg_holds_number(dg_guard *g, dg_frame *frame)
{
    int64_t number;
    return held_number(g, frame, &number) && number == g->number;
}

static int extent_on_device(dg_session *session, PyObject *object, dg_extent *e)
{
    dg_device_layout own;
    PyObject *dtype;
    const dg_device_layout *layout = dg_session_layout(session, object, &own, &dtype);
    Py_XDECREF(dtype);
    if (!layout)
        return 0;
    e->low = e->high = layout->data;
    for (int k = 0; k < layout->ndim; ++k) {
        if (layout->dims[k] == 0)
            return 0;
        npy_intp reach = (layout->dims[k] - 1) * layout->strides[k];
        *(reach < 0 ? &e->low : &e->high) += reach;
    }
    e->high += layout->itemsize;
    return 1;
}

/* 0: it has no elements, or is no array */
static int extent_of(dg_session *session, PyObject *object, dg_extent *e)
{
    int number = object && (PyArray_CheckScalar(object) || PyFloat_Check(object) || PyLong_Check(object) || PyComplex_Check(object));
    if (object && !PyArray_Check(object) && !number)
        return extent_on_device(session, object, e);
    if (!object || !PyArray_Check(object) || PyArray_SIZE((PyArrayObject *)object) == 0)
        return 0;
    PyArrayObject *array = (PyArrayObject *)object;
    e->low = e->high = PyArray_BYTES(array);
    for (int k = 0; k < PyArray_NDIM(array); ++k) {
        npy_intp reach = (PyArray_DIM(array, k) - 1) * PyArray_STRIDE(array, k);
        *(reach < 0 ? &e->low : &e->high) += reach;
    }
    e->high += PyArray_ITEMSIZE(array);
    return 1;
}

/* Puts the numbers of extents in order of their addresses: runs that are in order are merged.  They mostly are one run, as calls before
   have left them. */
static void sort(const dg_extent *extents, uint32_t *order, uint32_t *spare, uint32_t n)
{
    for (uint32_t n_runs = 2; n_runs > 1;) {
        n_runs = 0;
        for (uint32_t begin = 0, middle, end; begin < n; begin = end, ++n_runs) {
            for (middle = begin + 1; middle < n && extents[order[middle - 1]].low <= extents[order[middle]].low;)
                ++middle;
            for (end = middle + (middle < n); end < n && extents[order[end - 1]].low <= extents[order[end]].low;)
                ++end;
            if (middle == end)
                continue;
            memcpy(spare, order + begin, (middle - begin) * sizeof *spare);
            for (uint32_t left = 0, right = middle, to = begin; left < middle - begin; ++to)
                order[to] = right < end && extents[order[right]].low < extents[spare[left]].low ? order[right++] : spare[left++];
        }
    }
}

int dg_extents_are_disjoint(const dg_extent *extents, uint32_t *order, uint32_t *spare, uint32_t n)
{
    sort(extents, order, spare, n);
    const char *end = NULL, *written_end = NULL; /* of those that start before */
    int disjoint = 1;
    for (uint32_t k = 0; k < n && disjoint; ++k) {
        const dg_extent *e = &extents[order[k]];
        disjoint = (e->written ? end : written_end) <= e->low;
        end = end > e->high ? end : e->high;
        if (e->written && e->high > written_end)
            written_end = e->high;
    }
    return disjoint;
}

/* Whether the inputs that are written to share no memory with one another or with any other; by extents, as most that do not overlap. */
int dg_is_disjoint(dg_guard *g, dg_frame *frame)
{
    dg_extent few[DG_FEW_ARRAYS], *extents;
    uint32_t few_numbers[DG_FEW_ARRAYS], *spare;
    const char *written = PyBytes_AS_STRING(g->object);
    size_t n = (size_t)g->number;
    if (!(extents = dg_room(few, sizeof few, n * sizeof *few)))
        return 0;
    for (size_t slot = 0; slot < n; ++slot) {
        extents[slot] = (dg_extent){.written = written[slot]};
        if (written[slot] == DG_NEW_ARRAY || !extent_of(frame->session, frame->input_objects[slot], &extents[slot]))
            extents[slot] = (dg_extent){0};
    }
    int disjoint = (spare = dg_room(few_numbers, sizeof few_numbers, n * sizeof *spare)) != NULL;
    if (disjoint) /* from here on no Python code runs: the guard's order is that of one call at a time */
        disjoint = dg_extents_are_disjoint(extents, g->order, spare, (uint32_t)n);
    dg_leave(spare, few_numbers);
    dg_leave(extents, few);
    return disjoint;
}

int dg_is_scalar(dg_guard *g, dg_frame *frame)
{
    PyObject *object = dg_guarded(g, frame);
    if (Py_TYPE(object) != (PyTypeObject *)g->object)
        return 0;
    char *to = frame->scalars[g->slot];
    if (PyFloat_CheckExact(object)) {
        double number = PyFloat_AS_DOUBLE(object);
        memcpy(to, &number, 8);
    } else if (PyComplex_CheckExact(object)) {
        Py_complex number = PyComplex_AsCComplex(object);
        memcpy(to, &number, 16);
    } else if (PyBool_Check(object)) {
        *to = object == Py_True;
    } else if (PyLong_CheckExact(object)) {
        int overflow;
        int64_t number = PyLong_AsLongLongAndOverflow(object, &overflow);
        if (overflow)
            return 0;
        memcpy(to, &number, 8);
    } else if (!dg_scalar_value(object, to)) {
        return 0;
    }
    frame->inputs[g->slot] = to;
    frame->input_objects[g->slot] = object;
    return 1;
}

int dg_is_related(dg_guard *g, dg_frame *frame)
{
    int64_t left, right;
    if (!dg_size_run(&g->left, frame->sizes, &left) || !dg_size_run(&g->right, frame->sizes, &right))
        return 0; /* beyond 64 bits: nothing is known of it */
    int is = g->comparison == 0 ? left == right : g->comparison == 1 ? left < right : left <= right;
    return is == g->truth;
}

/* sizes from 2 on, as those of arrays are; far from where sums and products of them overflow */
int dg_is_symbolic_int(dg_guard *g, dg_frame *frame)
{
    PyObject *object = dg_guarded(g, frame);
    int overflow;
    if (!PyLong_CheckExact(object))
        return 0;
    int64_t number = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow || number < 2 || number >= (int64_t)1 << 62)
        return 0;
    frame->sizes[g->dst] = number;
    return 1;
}
