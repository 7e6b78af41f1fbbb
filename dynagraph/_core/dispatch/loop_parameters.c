/* Parameters of native loops: from Python values to slots. No user code runs. */
#include "loops.h"

enum { P_INT, P_UINT, P_BOOL, P_FLOAT, P_COMPLEX, P_NONE, P_SCALAR, P_ARRAY, P_OBJECT, P_UNUSED, P_TUPLE, P_CHAR, P_TEXT, P_BYTES, P_LIST, P_DEQUE, P_EITHER, P_GIVEN, P_GENERATOR, P_TWISTER, N_KINDS };

/* s: slot; d: dtype; n: ndim; c: whether the last axis is contiguous; t: parts; w: slots of an item; i: an item; b: its box */
static const dg_row_kind KINDS[N_KINDS] = {
    [P_INT] = {"int", "('int', slot)", "s"},
    [P_UINT] = {"uint", "('uint', slot)", "s"},
    [P_BOOL] = {"bool", "('bool', slot)", "s"},
    [P_FLOAT] = {"float", "('float', slot)", "s"},
    [P_COMPLEX] = {"complex", "('complex', slot)", "s"},
    [P_NONE] = {"none", "('none', slot)", "s"},
    [P_SCALAR] = {"scalar", "('scalar', slot, dtype)", "sd"},
    [P_ARRAY] = {"array", "('array', slot, dtype, ndim, contiguous)", "sdnc"},
    [P_OBJECT] = {"object", "('object', slot)", "s"},
    [P_UNUSED] = {"unused", "('unused', slot)", "s"},
    [P_TUPLE] = {"tuple", "('tuple', parts)", "t"},
    [P_CHAR] = {"char", "('char', slot)", "s"},
    [P_TEXT] = {"text", "('text', slot)", "s"},
    [P_BYTES] = {"bytes", "('bytes', slot)", "s"},
    [P_EITHER] = {"either", "('either', slot, parts)", "st"}, /* which part it is, and that */
    /* the array that a call gave: it is kept, as one that the loop has made */
    [P_GIVEN] = {"given", "('given', slot, dtype, ndim, contiguous)", "sdnc"},
    /* a method of a random generator: its bits, as NumPy's functions take them; the state of one of Python's */
    [P_GENERATOR] = {"generator", "('generator', slot)", "s"},
    [P_TWISTER] = {"twister", "('twister', slot)", "s"},
    [P_LIST] = {"list", "('list', slot, width of items, item, box of an item)", "swib"},
    [P_DEQUE] = {"deque", "('deque', slot, width of items, item, box of an item)", "swib"},
};

static int width_of(const dg_parameter *p)
{
    switch (p->kind) {
    case P_NONE:
    case P_UNUSED:
    case P_TUPLE: return 0;
    case P_TEXT:
    case P_BYTES: return 2; /* the address and the length */
    case P_COMPLEX: return 2;
    case P_SCALAR: return dg_slots_of(p->descr);
    case P_ARRAY: return 2 + 2 * p->ndim; /* the address, shape, strides, whether it is writeable */
    case P_GIVEN: return 3 + 2 * p->ndim; /* its memory before these */
    default: return 1;
    }
}

static int parse_parts(dg_parameter *p, PyObject *rows, int n_slots)
{
    if (!PyTuple_Check(rows)) {
        PyErr_Format(PyExc_TypeError, "NativeLoop: parts of a parameter are a tuple, not %R", rows);
        return -1;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(rows);
    if (!(p->parts = PyMem_Calloc((size_t)n + 1, sizeof *p->parts))) {
        PyErr_NoMemory();
        return -1;
    }
    for (p->n_parts = 0; p->n_parts < n;) {
        dg_parameter *part = &p->parts[p->n_parts];
        if (dg_parameter_parse(part, PyTuple_GET_ITEM(rows, p->n_parts++), n_slots) < 0)
            return -1;
    }
    return 0;
}

static int parse_item(dg_parameter *p, PyObject *row)
{
    PyObject *rows = PyTuple_Pack(1, row);
    int parsed = rows ? parse_parts(p, rows, p->item_width) : -1;
    Py_XDECREF(rows);
    p->row = Py_NewRef(row);
    return parsed;
}

static int parse_box(dg_parameter *p, PyObject *row)
{
    if (!(p->box = PyMem_Calloc(1, sizeof *p->box))) {
        PyErr_NoMemory();
        return -1;
    }
    return dg_box_parse(p->box, row, 0, p->item_width);
}

static int parse_operands(dg_parameter *p, PyObject *row, int n_slots)
{
    if ((p->kind = dg_row_parse(row, "a parameter", KINDS, N_KINDS)) < 0)
        return -1;
    const char *operands = KINDS[p->kind].operands;
    for (int k = 0; operands[k]; ++k) {
        PyObject *value = PyTuple_GET_ITEM(row, k + 1);
        int parsed = operands[k] == 's'   ? (p->slot = dg_row_number(row, value, "the slot", DG_MAX_SLOTS))
                     : operands[k] == 'd' ? dg_row_dtype(value, &p->descr)
                     : operands[k] == 'n' ? (p->ndim = dg_row_number(row, value, "ndim", NPY_MAXDIMS))
                     : operands[k] == 'w' ? (p->item_width = dg_row_number(row, value, "the width", DG_MAX_SLOTS))
                     : operands[k] == 't' ? parse_parts(p, value, n_slots)
                     : operands[k] == 'i' ? parse_item(p, value)
                     : operands[k] == 'b' ? parse_box(p, value)
                                          : (p->contiguous = PyObject_IsTrue(value));
        if (parsed < 0)
            return -1;
    }
    p->width = width_of(p);
    return dg_row_slots(row, p->slot, p->width, n_slots);
}

int dg_parameter_parse(dg_parameter *p, PyObject *row, int n_slots)
{
    if (Py_EnterRecursiveCall(" in a parameter of a native loop") != 0)
        return -1;
    int parsed = parse_operands(p, row, n_slots);
    Py_LeaveRecursiveCall();
    return parsed;
}

void dg_parameter_clear(dg_parameter *p)
{
    Py_CLEAR(p->descr);
    for (int k = 0; k < p->n_parts; ++k)
        dg_parameter_clear(&p->parts[k]);
    PyMem_Free(p->parts);
    Py_CLEAR(p->row);
    if (p->box)
        dg_box_clear(p->box);
    PyMem_Free(p->box);
}

int dg_parameter_traverse(const dg_parameter *p, visitproc visit, void *arg)
{
    Py_VISIT(p->row);
    int result = p->box ? dg_box_traverse(p->box, visit, arg) : 0;
    for (int k = 0; !result && k < p->n_parts; ++k)
        result = dg_parameter_traverse(&p->parts[k], visit, arg);
    return result;
}

const char *dg_parameter_name(const dg_parameter *p) { return KINDS[p->kind].name; }

static int read_int(PyObject *object, dg_slot *slot)
{
    if (!PyLong_CheckExact(object))
        return 0;
    int overflow;
    slot->i = PyLong_AsLongLongAndOverflow(object, &overflow);
    return !overflow;
}

static int read_uint(PyObject *object, dg_slot *slot)
{
    if (!PyLong_CheckExact(object))
        return 0;
    slot->u = PyLong_AsUnsignedLongLong(object);
    if (slot->u != UINT64_MAX || !PyErr_Occurred())
        return 1;
    PyErr_Clear();
    return 0;
}

static int read_complex(PyObject *object, dg_slot *slot)
{
    if (!PyComplex_CheckExact(object))
        return 0;
    slot[0].d = PyComplex_RealAsDouble(object);
    slot[1].d = PyComplex_ImagAsDouble(object);
    return 1;
}

static int read_array(const dg_parameter *p, PyObject *object, dg_slot *slot)
{
    if (Py_TYPE(object) != &PyArray_Type)
        return 0;
    PyArrayObject *array = (PyArrayObject *)object;
    if (PyArray_NDIM(array) != p->ndim || !PyArray_ISALIGNED(array) ||
        (PyArray_DESCR(array) != p->descr && !dg_same_dtype(PyArray_DESCR(array), p->descr)))
        return 0;
    int n = p->ndim;
    const npy_intp *dims = PyArray_DIMS(array), *strides = PyArray_STRIDES(array);
    slot[0].p = PyArray_DATA(array);
    for (int k = 0; k < n; ++k) {
        slot[1 + k].i = dims[k];
        slot[1 + n + k].i = strides[k];
    }
    slot[1 + 2 * n].i = PyArray_ISWRITEABLE(array) != 0;
    if (!p->contiguous || n == 0)
        return 1;
    int64_t itemsize = PyDataType_ELSIZE(p->descr);
    if (dims[n - 1] <= 1 || PyArray_SIZE(array) == 0) /* the stride is never used, and NumPy leaves any number there */
        slot[2 * n].i = itemsize;
    return slot[2 * n].i == itemsize;
}

static int read_tuple(const dg_parameter *p, PyObject *object, dg_slot *state, dg_loop_lists *lists)
{
    if (!PyTuple_CheckExact(object) || PyTuple_GET_SIZE(object) != p->n_parts)
        return 0;
    for (int k = 0; k < p->n_parts; ++k)
        if (!dg_parameter_read(&p->parts[k], PyTuple_GET_ITEM(object, k), state, lists))
            return 0;
    return 1;
}

static int read_either(const dg_parameter *p, PyObject *object, dg_slot *state, dg_loop_lists *lists)
{
    for (int k = 0; k < p->n_parts; ++k) {
        const dg_parameter *part = &p->parts[k];
        if (dg_parameter_read(part, object, state, lists)) {
            state[p->slot].i = k;
            return 1;
        }
        memset(&state[part->slot], 0, (size_t)part->width * sizeof *state); /* items are compared as a whole */
    }
    return 0;
}

static int read_char(PyObject *object, dg_slot *slot)
{
    if (!PyUnicode_CheckExact(object) || PyUnicode_GET_LENGTH(object) != 1)
        return 0;
    slot->u = PyUnicode_READ_CHAR(object, 0);
    return 1;
}

/* Who holds the lock draws without the GIL, which we have. */
static int is_free(PyObject *bits)
{
    PyObject *lock = PyObject_GetAttrString(bits, "lock"), *got = lock ? PyObject_CallMethod(lock, "acquire", "O", Py_False) : NULL;
    int free = got == Py_True;
    PyObject *released = free ? PyObject_CallMethod(lock, "release", NULL) : NULL;
    Py_XDECREF(released);
    Py_XDECREF(got);
    Py_XDECREF(lock);
    return free;
}

static int read_generator(PyObject *object, dg_slot *slot)
{
    PyObject *owner = PyObject_GetAttrString(object, "__self__");
    PyObject *bits = owner ? PyObject_GetAttrString(owner, "_bit_generator") : NULL;
    PyObject *capsule = bits ? PyObject_GetAttrString(bits, "capsule") : NULL;
    slot->p = capsule && is_free(bits) ? PyCapsule_GetPointer(capsule, "BitGenerator") : NULL;
    Py_XDECREF(capsule);
    Py_XDECREF(bits);
    Py_XDECREF(owner);
    PyErr_Clear();
    return slot->p != NULL;
}

static int read_twister(PyObject *object, dg_slot *slot)
{
    PyObject *owner = PyCFunction_Check(object) ? PyCFunction_GET_SELF(object) : NULL;
    slot->p = owner ? (char *)owner + sizeof(PyObject) : NULL;
    return owner != NULL;
}

int dg_parameter_is_float(const dg_parameter *p) { return p->kind == P_FLOAT; }
int dg_parameter_is_deque(const dg_parameter *p) { return p->kind == P_DEQUE; }

int dg_parameter_is_generator(const dg_parameter *p) { return p->kind == P_GENERATOR; }

static int read_bytes(PyObject *object, dg_slot *slot)
{
    if (!PyBytes_CheckExact(object))
        return 0;
    slot[0].p = PyBytes_AS_STRING(object);
    slot[1].i = PyBytes_GET_SIZE(object);
    return 1;
}

int dg_parameter_read(const dg_parameter *p, PyObject *object, dg_slot *state, dg_loop_lists *lists)
{
    dg_slot *slot = &state[p->slot];
    switch (p->kind) {
    case P_INT: return read_int(object, slot);
    case P_UINT: return read_uint(object, slot);
    case P_BOOL: slot->i = object == Py_True; return PyBool_Check(object);
    case P_FLOAT:
        if (!PyFloat_CheckExact(object))
            return 0;
        slot->d = PyFloat_AS_DOUBLE(object);
        return 1;
    case P_COMPLEX: return read_complex(object, slot);
    case P_NONE: return object == Py_None;
    case P_SCALAR: return dg_scalar_read(object, p->descr, slot->bytes);
    case P_ARRAY: return read_array(p, object, slot);
    case P_GIVEN: return read_array(p, object, slot + 1) && dg_made_read(object, slot, lists);
    case P_GENERATOR: return read_generator(object, slot);
    case P_TWISTER: return read_twister(object, slot);
    case P_OBJECT: slot->p = object; return 1;
    case P_TUPLE: return read_tuple(p, object, state, lists);
    case P_EITHER: return read_either(p, object, state, lists);
    case P_CHAR: return read_char(object, slot);
    case P_TEXT: return dg_text_read(object, slot, lists);
    case P_BYTES: return read_bytes(object, slot);
    case P_LIST:
    case P_DEQUE: return dg_list_read(p, object, slot, lists);
    default: return 1;
    }
}
