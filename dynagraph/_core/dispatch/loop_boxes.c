/* Boxes: how Python values are built from the state that a native loop left. */
#include "loops.h"

enum {
    B_INT, B_UINT, B_BOOL, B_FLOAT, B_COMPLEX, B_NONE, B_SCALAR, B_CONST, B_PARAMETER, B_OBJECT, B_OWNED, B_TUPLE, B_LIST, B_CALL,
    B_CHOOSE, B_VIEW, B_MADE, B_VIEW_OF_MADE, B_CHAR, B_ITEMS, B_DEQUE, N_KINDS
};

/* s: slot; d: dtype; o: object; c: callable; p: the number of a parameter; b: boxes; n: a number of axes; w: slots of an item; i: its box */
static const dg_row_kind KINDS[N_KINDS] = {
    [B_INT] = {"int", "('int', slot)", "s"},
    [B_UINT] = {"uint", "('uint', slot)", "s"},
    [B_BOOL] = {"bool", "('bool', slot)", "s"},
    [B_FLOAT] = {"float", "('float', slot)", "s"},
    [B_COMPLEX] = {"complex", "('complex', slot)", "s"},
    [B_NONE] = {"none", "('none',)", ""},
    [B_SCALAR] = {"scalar", "('scalar', slot, dtype)", "sd"},
    [B_CONST] = {"const", "('const', object)", "o"},
    [B_PARAMETER] = {"parameter", "('parameter', number)", "p"},
    [B_OBJECT] = {"object", "('object', slot)", "s"},
    [B_OWNED] = {"owned", "('owned', slot)", "s"},
    [B_TUPLE] = {"tuple", "('tuple', boxes)", "b"},
    [B_LIST] = {"list", "('list', boxes)", "b"},
    [B_CALL] = {"call", "('call', callable, boxes)", "cb"},
    [B_CHOOSE] = {"choose", "('choose', slot, boxes)", "sb"},
    /* from the slot on: the array whose memory it is, the address, sizes, strides, whether it is writeable */
    [B_VIEW] = {"view", "('view', slot, dtype, ndim)", "sdn"},
    /* the memory of an array that the loop made stands for that */
    [B_MADE] = {"made", "('made', slot)", "s"},
    [B_VIEW_OF_MADE] = {"view of made", "('view of made', slot, dtype, ndim)", "sdn"},
    [B_CHAR] = {"char", "('char', slot)", "s"},
    [B_ITEMS] = {"items", "('items', slot, width of items, box of an item)", "swi"},
    [B_DEQUE] = {"deque", "('deque', slot, width of items, box of an item)", "swi"},
};

int dg_box_parse_parts(dg_box *box, PyObject *rows, int n_parameters, int n_slots)
{
    if (!PyTuple_Check(rows)) {
        PyErr_Format(PyExc_TypeError, "NativeLoop: boxes are a tuple, not %R", rows);
        return -1;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(rows);
    if (!(box->parts = PyMem_Calloc((size_t)n + 1, sizeof *box->parts))) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t k = 0; k < n; ++k) {
        box->n_parts = (int)k + 1;
        if (dg_box_parse(&box->parts[k], PyTuple_GET_ITEM(rows, k), n_parameters, n_slots) < 0)
            return -1;
    }
    return 0;
}

static int parse_parameter(dg_box *box, PyObject *row, PyObject *value, int n_parameters)
{
    if (n_parameters > 0)
        return box->number = dg_row_number(row, value, "the parameter", n_parameters - 1);
    PyErr_Format(PyExc_ValueError, "NativeLoop: %R, but there are no parameters", row);
    return -1;
}

static int parse_callable(dg_box *box, PyObject *value)
{
    if (!PyCallable_Check(value)) {
        PyErr_Format(PyExc_TypeError, "NativeLoop: a box calls %R, which is not callable", value);
        return -1;
    }
    box->object = Py_NewRef(value);
    return 0;
}

static int parse_item(dg_box *box, PyObject *row, int n_parameters)
{
    PyObject *rows = PyTuple_Pack(1, row);
    int parsed = rows ? dg_box_parse_parts(box, rows, n_parameters, box->width) : -1;
    Py_XDECREF(rows);
    return parsed;
}

static int parse_operand(dg_box *box, char letter, PyObject *row, PyObject *value, int n_parameters, int n_slots)
{
    switch (letter) {
    case 's': return box->number = dg_row_number(row, value, "the slot", DG_MAX_SLOTS);
    case 'd': return dg_row_dtype(value, &box->descr);
    case 'o': box->object = Py_NewRef(value); return 0;
    case 'c': return parse_callable(box, value);
    case 'p': return parse_parameter(box, row, value, n_parameters);
    case 'n': return box->ndim = dg_row_number(row, value, "the number of axes", NPY_MAXDIMS);
    case 'w': return box->width = dg_row_number(row, value, "the width", DG_MAX_SLOTS);
    case 'i': return parse_item(box, value, n_parameters);
    default: return dg_box_parse_parts(box, value, n_parameters, n_slots);
    }
}

static int parse(dg_box *box, PyObject *row, int n_parameters, int n_slots)
{
    if ((box->kind = dg_row_parse(row, "a box", KINDS, N_KINDS)) < 0)
        return -1;
    const char *operands = KINDS[box->kind].operands;
    for (int k = 0; operands[k]; ++k)
        if (parse_operand(box, operands[k], row, PyTuple_GET_ITEM(row, k + 1), n_parameters, n_slots) < 0)
            return -1;
    if (box->kind == B_CHOOSE && box->n_parts == 0) {
        PyErr_SetString(PyExc_ValueError, "NativeLoop: 'choose' needs at least one box");
        return -1;
    }
    int width = 1;
    if (box->kind == B_COMPLEX)
        width = 2;
    else if (box->kind == B_SCALAR)
        width = dg_slots_of(box->descr);
    else if (box->kind == B_VIEW || box->kind == B_VIEW_OF_MADE)
        width = 3 + 2 * box->ndim;
    return operands[0] == 's' ? dg_row_slots(row, box->number, width, n_slots) : 0;
}

int dg_box_parse(dg_box *box, PyObject *row, int n_parameters, int n_slots)
{
    if (Py_EnterRecursiveCall(" in a box of a native loop") != 0)
        return -1;
    int parsed = parse(box, row, n_parameters, n_slots);
    Py_LeaveRecursiveCall();
    return parsed < 0 ? -1 : 0;
}

void dg_box_clear(dg_box *box)
{
    for (int k = 0; k < box->n_parts; ++k)
        dg_box_clear(&box->parts[k]);
    PyMem_Free(box->parts);
    box->parts = NULL;
    box->n_parts = 0;
    Py_CLEAR(box->object);
    Py_CLEAR(box->descr);
}

int dg_box_traverse(const dg_box *box, visitproc visit, void *arg)
{
    Py_VISIT(box->object);
    for (int k = 0; k < box->n_parts; ++k) {
        int result = dg_box_traverse(&box->parts[k], visit, arg);
        if (result)
            return result;
    }
    return 0;
}

/* -- building ------------------------------------------------------------------------------------------------------------ */

/* null: the number in its slot is of none */
static const dg_box *chosen(const dg_box *box, const dg_slot *state)
{
    int64_t choice = state[box->number].i;
    return choice >= 0 && choice < box->n_parts ? &box->parts[choice] : NULL;
}

/* a slot gives its reference once */
static PyObject *take(const dg_box *box, dg_slot *state)
{
    PyObject *object = state[box->number].p;
    state[box->number].p = NULL;
    return object;
}

/* the array keeps the data */
static void let_go(dg_made *memory)
{
    if (!memory || --memory->references > 0 || memory->listed)
        return;
    if (!memory->object)
        free(memory->data);
    Py_XDECREF((PyObject *)memory->object);
    free(memory);
}

void dg_box_drop(const dg_box *box, dg_slot *state)
{
    if (box->kind == B_OWNED) {
        Py_XDECREF(take(box, state));
    } else if (box->kind == B_MADE || box->kind == B_VIEW_OF_MADE) {
        let_go((dg_made *)take(box, state));
    } else if (box->kind == B_CHOOSE) {
        const dg_box *one = chosen(box, state);
        if (one)
            dg_box_drop(one, state);
    } else if (box->kind != B_ITEMS && box->kind != B_DEQUE) { /* the slots of items are the list's own, and own nothing */
        for (int k = 0; k < box->n_parts; ++k)
            dg_box_drop(&box->parts[k], state);
    }
}

int dg_box_is_int(const dg_box *box) { return box->kind == B_INT; }
int dg_box_is_float(const dg_box *box) { return box->kind == B_FLOAT; }

int dg_box_build_parts(const dg_box *box, dg_loop_values *values, PyObject **to)
{
    int made = 0;
    while (made < box->n_parts && (to[made] = dg_box_build(&box->parts[made], values)))
        ++made;
    if (made == box->n_parts)
        return 0;
    for (int k = made + 1; k < box->n_parts; ++k)
        dg_box_drop(&box->parts[k], values->state);
    for (int k = 0; k < made; ++k)
        Py_CLEAR(to[k]);
    return -1;
}

static PyObject *build_tuple(const dg_box *box, dg_loop_values *values)
{
    PyObject *tuple = PyTuple_New(box->n_parts);
    if (!tuple)
        dg_box_drop(box, values->state);
    else if (box->n_parts && dg_box_build_parts(box, values, &PyTuple_GET_ITEM(tuple, 0)) < 0)
        Py_CLEAR(tuple);
    return tuple;
}

static PyObject *build_list(const dg_box *box, dg_loop_values *values)
{
    PyObject *list = PyList_New(box->n_parts);
    if (!list)
        dg_box_drop(box, values->state);
    else if (box->n_parts && dg_box_build_parts(box, values, ((PyListObject *)list)->ob_item) < 0)
        Py_CLEAR(list);
    return list;
}

static PyObject *build_call(const dg_box *box, dg_loop_values *values)
{
    PyObject *args = build_tuple(box, values), *result = args ? dg_call_whole(box->object, args, &values->late) : NULL;
    Py_XDECREF(args);
    return result;
}

static PyObject *build_choice(const dg_box *box, dg_loop_values *values)
{
    const dg_box *one = chosen(box, values->state);
    if (one)
        return dg_box_build(one, values);
    return PyErr_Format(PyExc_SystemError, "NativeLoop: the code chose box %lld of %d", (long long)values->state[box->number].i,
                        box->n_parts);
}

static PyObject *missing(const dg_box *box)
{
    return PyErr_Format(PyExc_SystemError, "NativeLoop: the code left no object in slot %d, which an exit reads", box->number);
}

/* as NumPy's own: its base is the array whose memory it is, or that one's base */
static PyObject *build_view(const dg_box *box, const dg_slot *slot, PyArrayObject *owner)
{
    npy_intp sizes[NPY_MAXDIMS], strides[NPY_MAXDIMS];
    for (int k = 0; k < box->ndim; ++k) {
        sizes[k] = (npy_intp)slot[2 + k].i;
        strides[k] = (npy_intp)slot[2 + box->ndim + k].i;
    }
    int flags = slot[2 + 2 * box->ndim].i ? NPY_ARRAY_WRITEABLE : 0;
    PyArray_Descr *descr = PyArray_TYPE(owner) == box->descr->type_num ? PyArray_DESCR(owner) : box->descr;
    Py_INCREF(descr);
    PyObject *view = PyArray_NewFromDescr(&PyArray_Type, descr, box->ndim, sizes, strides, slot[1].p, flags, NULL);
    if (view && PyArray_SetBaseObject((PyArrayObject *)view, Py_NewRef((PyObject *)owner)) < 0)
        Py_CLEAR(view);
    return view;
}

/* Generated code takes its memory from malloc(). NumPy's own handler must not free it: since 2.5 it calls PyMem_RawFree. */
static void *handler_malloc(void *ctx, size_t size) { return malloc(size + !size); }
static void *handler_calloc(void *ctx, size_t n, size_t size) { return calloc(n + !n, size + !size); }
static void *handler_realloc(void *ctx, void *memory, size_t size) { return realloc(memory, size + !size); }
static void handler_free(void *ctx, void *memory, size_t size) { free(memory); }

static PyDataMem_Handler handler = {"dynagraph_malloc", 1, {NULL, handler_malloc, handler_calloc, handler_realloc, handler_free}};
static PyObject *handler_capsule;

int dg_boxes_ready(void) { return (handler_capsule = PyCapsule_New(&handler, "mem_handler", NULL)) ? 0 : -1; }

/* a new reference to the array, which is made once for all boxes */
static PyArrayObject *array_of(dg_made *m, const dg_loop_values *values)
{
    if (!m->object) {
        npy_intp shape[DG_AXES];
        for (int k = 0; k < m->ndim; ++k)
            shape[k] = (npy_intp)m->shape[k];
        PyArrayObject *made = (PyArrayObject *)PyArray_New(&PyArray_Type, m->ndim, shape, m->type, NULL, m->data, 0,
                                                           m->fortran ? NPY_ARRAY_FARRAY : NPY_ARRAY_CARRAY, NULL);
        if (!made)
            return NULL;
        PyArray_ENABLEFLAGS(made, NPY_ARRAY_OWNDATA);
        ((PyArrayObject_fields *)made)->mem_handler = Py_NewRef(handler_capsule);
        m->object = made;
        if (values->goes_on)
            dg_made_list(m, values->goes_on);
    }
    return (PyArrayObject *)Py_NewRef((PyObject *)m->object);
}

static PyObject *build_made(const dg_box *box, dg_slot *slot, const dg_loop_values *values)
{
    if (!slot->p)
        return missing(box);
    PyArrayObject *array = array_of(slot->p, values);
    PyObject *result = (PyObject *)array;
    if (array && box->kind == B_VIEW_OF_MADE) {
        result = build_view(box, slot, array);
        Py_DECREF(array);
    }
    let_go((dg_made *)take(box, values->state));
    return result;
}

PyObject *dg_box_build(const dg_box *box, dg_loop_values *values)
{
    dg_slot *slot = &values->state[box->number];
    PyObject *object;
    switch (box->kind) {
    case B_INT: return PyLong_FromLongLong(slot->i);
    case B_UINT: return PyLong_FromUnsignedLongLong(slot->u);
    case B_BOOL: return PyBool_FromLong(slot->i != 0);
    case B_FLOAT: return PyFloat_FromDouble(slot->d);
    case B_COMPLEX: return PyComplex_FromDoubles(slot[0].d, slot[1].d);
    case B_NONE: return Py_NewRef(Py_None);
    case B_SCALAR: return dg_scalar_object(box->descr, slot->bytes);
    case B_CONST: return Py_NewRef(box->object);
    case B_PARAMETER: return Py_NewRef(values->args[box->number]);
    case B_OBJECT: return slot->p ? Py_NewRef((PyObject *)slot->p) : missing(box);
    case B_OWNED: object = take(box, values->state); return object ? object : missing(box);
    case B_TUPLE: return build_tuple(box, values);
    case B_LIST: return build_list(box, values);
    case B_CALL: return build_call(box, values);
    case B_VIEW: return slot->p ? build_view(box, slot, slot->p) : missing(box);
    case B_MADE:
    case B_VIEW_OF_MADE: return build_made(box, slot, values);
    case B_CHAR: return PyUnicode_FromOrdinal((int)slot->u);
    case B_ITEMS:
    case B_DEQUE: return slot->p ? dg_list_build(box, box->kind == B_DEQUE, values) : missing(box);
    default: return build_choice(box, values);
    }
}
