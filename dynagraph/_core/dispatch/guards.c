/* Guard programs: compiled once into a flat array of instructions, run on every call.  No instruction runs user code. */
#include "core.h"
#include <structmember.h>

#if PY_VERSION_HEX < 0x030E0000
/* deprecated, and the one cheap way to know that a dict did not change */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#define DICT_VERSION(d) (((PyDictObject *)(d))->ma_version_tag)
#define HAS_DICT_VERSION 1
#else
#define DICT_VERSION(d) ((uint64_t)0)
#define HAS_DICT_VERSION 0
#endif

typedef enum {
    G_GLOBAL, G_ABSENT, G_CELL, G_CLOSURE, G_TYPE, G_TYPE_VERSION, G_ATTR, G_NO_ATTR, G_ITEM, G_DICT_ITEM, G_LEN, G_DICT_KEYS,
    G_IS, G_IS_NOT, G_SAME, G_NOT_SAME, G_EQUAL, G_ARRAY, G_SCALAR, G_DIM, G_RELATION, G_ERRSTATE,
    G_INT, G_CONTENTS, G_NO_ITEM, G_SET_IS, G_SET_ORDER, G_MAXLEN, G_TOKEN, G_UNMODIFIED, G_SELF_OF, G_VALUE,
    G_DEREF, G_DEAD, G_NO_SLOT, G_FIELD, G_DISJOINT, G_DEVICE_ARRAY,
} opcode;

typedef struct {
    opcode op;
    int dst, src, slot;       /* registers and input slots; also second register, axis, symbol */
    PyObject *object, *key;   /* owned */
    /* arrays: the flags that must be set, of those that matter; whether strides are exact */
    int flags, flags_mask, ndim, exact;
    npy_intp dims[DG_MAX_DIMS], strides[DG_MAX_DIMS];
    /* loads of dict entries: what was found when the dict had this version (the dict keeps it alive) */
    Py_hash_t hash;
    uint64_t version;
    PyObject *cached;
    unsigned int type_version;
    Py_ssize_t number;        /* lengths, indices */
    int64_t integer;          /* small ints; bits of floats */
    dg_size left, right;
    int fits64, comparison, holds;
} instruction;

enum { NEVER_READ = -1 }; /* as a version: no dict comes to have it */

struct dg_guards {
    int length, n_inputs;
    instruction *code;
};

static const struct { const char *name; opcode op; int n_args; } NAMES[] = {
    {"global", G_GLOBAL, 3}, {"absent", G_ABSENT, 2}, {"cell", G_CELL, 2}, {"closure", G_CLOSURE, 2}, {"type", G_TYPE, 2},
    {"type_version", G_TYPE_VERSION, 2}, {"attr", G_ATTR, 3}, {"no_attr", G_NO_ATTR, 2}, {"item", G_ITEM, 3},
    {"dict_item", G_DICT_ITEM, 3}, {"len", G_LEN, 2}, {"dict_keys", G_DICT_KEYS, 2}, {"is", G_IS, 2}, {"is_not", G_IS_NOT, 2},
    {"same", G_SAME, 2}, {"not_same", G_NOT_SAME, 2}, {"equal", G_EQUAL, 2}, {"array", G_ARRAY, 7}, {"scalar", G_SCALAR, 3},
    {"dim", G_DIM, 3}, {"relation", G_RELATION, 4}, {"errstate", G_ERRSTATE, 0},
    {"int", G_INT, 2}, {"contents", G_CONTENTS, 2}, {"no_item", G_NO_ITEM, 2}, {"set_is", G_SET_IS, 2}, {"token", G_TOKEN, 2},
    {"unmodified", G_UNMODIFIED, 1}, {"self_of", G_SELF_OF, 3}, {"set_order", G_SET_ORDER, 2}, {"maxlen", G_MAXLEN, 2},
    {"deref", G_DEREF, 2}, {"dead", G_DEAD, 1}, {"no_slot", G_NO_SLOT, 2},
    {"field", G_FIELD, 4}, {"value", G_VALUE, 2}, {"disjoint", G_DISJOINT, 1},
    {"device_array", G_DEVICE_ARRAY, 8},
};

/* -- NumPy's floating-point error state --------------------------------------------------------------------------------- */

static PyObject *errstate_variable; /* a ContextVar of immutable states, or null where this NumPy has none */
static PyObject *errstate_harmless; /* callable: whether the state in force asks for nothing but warnings */
static PyObject *harmless_state;    /* the last state that was found harmless */

void dg_set_errstate(PyObject *variable, PyObject *harmless)
{
    Py_XSETREF(errstate_variable, variable == Py_None ? NULL : Py_NewRef(variable));
    Py_XSETREF(errstate_harmless, Py_NewRef(harmless));
    Py_CLEAR(harmless_state);
}

/* What a function of the compiler's answers; NULL where it fails, without an exception. What a signal's handler raises meanwhile is raised
   in the next code of the user's. */
static PyObject *answer_of(PyObject *function)
{
    dg_raised late = {0};
    PyObject *answer = dg_call_whole(function, NULL, &late);
    if (!answer)
        PyErr_Clear();
    if (late.type && dg_raise_later(&late) < 0)
        PyErr_WriteUnraisable(function);
    return answer;
}

static int errstate_holds(void)
{
    PyObject *state = NULL;
    if (errstate_variable) {
        if (PyContextVar_Get(errstate_variable, Py_None, &state) < 0) {
            PyErr_Clear();
            return 0;
        }
        if (state && state == harmless_state) {
            Py_DECREF(state);
            return 1;
        }
    }
    PyObject *answer = errstate_harmless ? answer_of(errstate_harmless) : NULL;
    int holds = answer && PyObject_IsTrue(answer) == 1;
    Py_XDECREF(answer);
    PyErr_Clear();
    if (holds && state)
        Py_XSETREF(harmless_state, Py_NewRef(state));
    Py_XDECREF(state);
    return holds;
}

/* -- versions of types -------------------------------------------------------------------------------------------------- */

unsigned int dg_type_version(PyTypeObject *type)
{
#if PY_VERSION_HEX >= 0x030C0000
    if (!PyUnstable_Type_AssignVersionTag(type))
        return 0;
#else
    if (!PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG)) {
        static PyObject *name;
        if (!name && !(name = PyUnicode_InternFromString("__class__")))
            return 0;
        _PyType_Lookup(type, name); /* assigns a tag */
    }
    if (!PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG))
        return 0;
#endif
    return type->tp_version_tag;
}

static inline int type_unchanged(const instruction *g, PyTypeObject *type)
{
#if PY_VERSION_HEX < 0x030D0000
    if (!PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG))
        return 0;
#endif
    return type->tp_version_tag == g->type_version;
}

static int take_version(instruction *g)
{
    PyTypeObject *type = (PyTypeObject *)g->object;
    if ((g->type_version = dg_type_version(type)))
        return 0;
    PyErr_Format(PyExc_ValueError, "guard program: type %s has no version: changes to it would go unseen", type->tp_name);
    return -1;
}

/* -- containers: their storage is read as C keeps it, whatever a subclass redefines ------------------------------------------- */

static PyTypeObject *deque_type; /* collections.deque; kept for good */

static PyTypeObject *find_deque(void)
{
    PyObject *module = deque_type ? NULL : PyImport_ImportModule("collections");
    if (module)
        deque_type = (PyTypeObject *)PyObject_GetAttrString(module, "deque");
    Py_XDECREF(module);
    return deque_type;
}

static inline int is_deque(PyObject *object)
{
    return deque_type && PyObject_TypeCheck(object, deque_type);
}

/* borrowed, or null without an exception */
static PyObject *stored_item(PyObject *sequence, Py_ssize_t index)
{
    if (PyTuple_Check(sequence))
        return index >= 0 && index < PyTuple_GET_SIZE(sequence) ? PyTuple_GET_ITEM(sequence, index) : NULL;
    if (PyList_Check(sequence))
        return index >= 0 && index < PyList_GET_SIZE(sequence) ? PyList_GET_ITEM(sequence, index) : NULL;
    if (!is_deque(sequence))
        return NULL;
    PyObject *item = deque_type->tp_as_sequence->sq_item(sequence, index); /* the deque keeps it alive */
    if (item)
        Py_DECREF(item);
    else
        PyErr_Clear();
    return item;
}

/* -- arrays on a device: what they say of themselves, by attributes of a class in C (CuPy's) ---------------------------------- */

static PyObject *a_shape, *a_strides, *a_dtype, *a_data, *a_ptr, *a_device_id, *a_itemsize; /* names; kept for good */

static int name_attributes(void)
{
    static const struct { PyObject **name; const char *text; } names[] = {
        {&a_shape, "shape"}, {&a_strides, "strides"}, {&a_dtype, "dtype"}, {&a_data, "data"}, {&a_ptr, "ptr"},
        {&a_device_id, "device_id"}, {&a_itemsize, "itemsize"},
    };
    for (size_t k = 0; k < sizeof names / sizeof *names; ++k)
        if (!*names[k].name && !(*names[k].name = PyUnicode_InternFromString(names[k].text)))
            return -1;
    return 0;
}

typedef struct {
    int ndim;
    npy_intp dims[DG_MAX_DIMS], strides[DG_MAX_DIMS]; /* in bytes */
    npy_intp device;
    char *data;
} device_layout;

/* an attribute that is an int; -1 with an exception: it is none */
static npy_intp int_attribute(PyObject *object, PyObject *name)
{
    PyObject *value = object ? PyObject_GetAttr(object, name) : NULL;
    npy_intp number = value ? PyLong_AsSsize_t(value) : -1;
    Py_XDECREF(value);
    return number;
}

/* how many ints an attribute holds, a tuple; -1, perhaps with an exception: it is none */
static int sizes_attribute(PyObject *object, PyObject *name, npy_intp *out)
{
    PyObject *value = PyObject_GetAttr(object, name);
    int n = value && PyTuple_CheckExact(value) && PyTuple_GET_SIZE(value) <= DG_MAX_DIMS ? (int)PyTuple_GET_SIZE(value) : -1;
    for (int k = 0; k < n; ++k)
        out[k] = PyLong_AsSsize_t(PyTuple_GET_ITEM(value, k));
    Py_XDECREF(value);
    return n;
}

/* 0: the object is no such array; no exception is left behind */
static int read_layout(PyObject *object, device_layout *layout)
{
    layout->ndim = sizes_attribute(object, a_shape, layout->dims);
    int holds = layout->ndim >= 0 && sizes_attribute(object, a_strides, layout->strides) == layout->ndim;
    PyObject *data = holds ? PyObject_GetAttr(object, a_data) : NULL;
    if (data) {
        layout->data = (char *)(intptr_t)int_attribute(data, a_ptr);
        layout->device = int_attribute(data, a_device_id);
        Py_DECREF(data);
    }
    holds = data && !PyErr_Occurred();
    PyErr_Clear();
    return holds;
}

/* -- building ------------------------------------------------------------------------------------------------------------ */

static int as_index(PyObject *value, int limit, const char *what, int *out)
{
    long number = PyLong_AsLong(value);
    if (number == -1 && PyErr_Occurred())
        return -1;
    if (number < 0 || number >= limit) {
        PyErr_Format(PyExc_ValueError, "guard program: %s %ld is not within 0..%d", what, number, limit - 1);
        return -1;
    }
    *out = (int)number;
    return 0;
}

enum { NEW_ARRAY = 2 }; /* made when the guards hold: it shares memory with no other */

/* the slots of the inputs that are written to, as a byte for each input */
static int parse_disjoint(instruction *g, PyObject *slots, int n_inputs)
{
    if (!PyTuple_Check(slots)) {
        PyErr_Format(PyExc_TypeError, "guard program: disjoint takes a tuple of input slots, got %R", slots);
        return -1;
    }
    if (!(g->object = PyBytes_FromStringAndSize(NULL, n_inputs)))
        return -1;
    char *written = PyBytes_AS_STRING(g->object);
    memset(written, 0, (size_t)n_inputs);
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(slots); ++k) {
        int slot;
        if (as_index(PyTuple_GET_ITEM(slots, k), n_inputs, "input slot", &slot) < 0)
            return -1;
        written[slot] = 1;
    }
    return 0;
}

/* dims and strides, in elements; None for strides: C order */
static int parse_layout(instruction *g, PyObject *dims, PyObject *strides, npy_intp itemsize)
{
    if (!PyTuple_Check(dims) || PyTuple_GET_SIZE(dims) != g->ndim ||
        (strides != Py_None && (!PyTuple_Check(strides) || PyTuple_GET_SIZE(strides) != g->ndim))) {
        PyErr_Format(PyExc_ValueError, "guard program: array guard of rank %d with dims %R and strides %R", g->ndim, dims, strides);
        return -1;
    }
    g->exact = strides != Py_None;
    for (int k = 0; k < g->ndim; ++k) {
        PyObject *dim = PyTuple_GET_ITEM(dims, k);
        g->dims[k] = dim == Py_None ? -1 : PyLong_AsSsize_t(dim);
        if (PyErr_Occurred())
            return -1;
        if (dim != Py_None && g->dims[k] < 0) {
            PyErr_Format(PyExc_ValueError, "guard program: negative size in %R", dims);
            return -1;
        }
        npy_intp stride = g->exact ? PyLong_AsSsize_t(PyTuple_GET_ITEM(strides, k)) : 0;
        if (__builtin_mul_overflow(stride, itemsize, &g->strides[k])) {
            PyErr_Format(PyExc_ValueError, "guard program: strides %R are beyond what there is", strides);
            return -1;
        }
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* ("array", register, slot, dtype, rank, dims, strides, writeable) */
static int parse_array(instruction *g, PyObject *row, int n_registers, int n_inputs)
{
    PyObject *writeable = PyTuple_GET_ITEM(row, 7);
    if (as_index(PyTuple_GET_ITEM(row, 1), n_registers, "register", &g->src) < 0 ||
        as_index(PyTuple_GET_ITEM(row, 2), n_inputs, "input slot", &g->slot) < 0 ||
        as_index(PyTuple_GET_ITEM(row, 4), DG_MAX_DIMS + 1, "rank", &g->ndim) < 0)
        return -1;
    PyArray_Descr *descr = NULL;
    if (!PyArray_DescrConverter(PyTuple_GET_ITEM(row, 3), &descr))
        return -1;
    g->object = (PyObject *)descr;
    if (!dg_plain_dtype(descr) || parse_layout(g, PyTuple_GET_ITEM(row, 5), PyTuple_GET_ITEM(row, 6), PyDataType_ELSIZE(descr)) < 0)
        return -1;
    g->flags = NPY_ARRAY_ALIGNED | (g->exact ? 0 : NPY_ARRAY_C_CONTIGUOUS);
    g->flags_mask = g->flags;
    if (writeable != Py_None) {
        int needed = PyObject_IsTrue(writeable);
        if (needed < 0)
            return -1;
        g->flags |= needed ? NPY_ARRAY_WRITEABLE : 0;
        g->flags_mask |= NPY_ARRAY_WRITEABLE;
    }
    return 0;
}

/* ("device_array", register, slot, type, dtype, rank, dims, strides, device) */
static int parse_device_array(instruction *g, PyObject *row, int n_registers, int n_inputs)
{
    PyObject *type = PyTuple_GET_ITEM(row, 3);
    if (as_index(PyTuple_GET_ITEM(row, 1), n_registers, "register", &g->src) < 0 ||
        as_index(PyTuple_GET_ITEM(row, 2), n_inputs, "input slot", &g->slot) < 0 ||
        as_index(PyTuple_GET_ITEM(row, 5), DG_MAX_DIMS + 1, "rank", &g->ndim) < 0)
        return -1;
    if (!PyType_Check(type)) {
        PyErr_Format(PyExc_TypeError, "guard program: device_array takes a type, got %R", type);
        return -1;
    }
    g->object = Py_NewRef(type);
    PyArray_Descr *descr = NULL;
    if (take_version(g) < 0 || !PyArray_DescrConverter(PyTuple_GET_ITEM(row, 4), &descr))
        return -1;
    g->key = (PyObject *)descr;
    g->number = PyLong_AsSsize_t(PyTuple_GET_ITEM(row, 8));
    if (PyErr_Occurred() || !dg_plain_dtype(descr) || name_attributes() < 0)
        return -1;
    return parse_layout(g, PyTuple_GET_ITEM(row, 6), PyTuple_GET_ITEM(row, 7), PyDataType_ELSIZE(descr));
}

static int is_scalar_type(PyTypeObject *type)
{
    return type == &PyDoubleArrType_Type || type == &PyFloatArrType_Type || type == &PyHalfArrType_Type ||
           type == &PyCDoubleArrType_Type || type == &PyCFloatArrType_Type || type == &PyBoolArrType_Type ||
           type == &PyFloat_Type || type == &PyComplex_Type || type == &PyLong_Type || type == &PyBool_Type ||
           type == &PyByteArrType_Type || type == &PyShortArrType_Type || type == &PyIntArrType_Type ||
           type == &PyLongArrType_Type || type == &PyLongLongArrType_Type || type == &PyUByteArrType_Type ||
           type == &PyUShortArrType_Type || type == &PyUIntArrType_Type || type == &PyULongArrType_Type ||
           type == &PyULongLongArrType_Type || dg_is_bfloat16(type);
}

static int parse_equal(instruction *g, PyObject *value)
{
    PyTypeObject *type = Py_TYPE(value);
    if (type != &PyLong_Type && type != &PyFloat_Type && type != &PyComplex_Type && type != &PyUnicode_Type &&
        type != &PyBytes_Type) {
        PyErr_Format(PyExc_TypeError, "guard program: equal takes an int, float, complex, str or bytes, got %R", value);
        return -1;
    }
    g->object = Py_NewRef(value);
    if (type == &PyLong_Type) {
        int overflow;
        g->integer = PyLong_AsLongLongAndOverflow(value, &overflow);
        g->fits64 = !overflow;
    } else if (type == &PyFloat_Type) {
        double number = PyFloat_AS_DOUBLE(value);
        memcpy(&g->integer, &number, 8);
    }
    return 0;
}

/* whether comparing two objects of this type runs no code of the user's */
static int is_plain_element(PyObject *object)
{
    return object == Py_None || PyBool_Check(object) || PyLong_CheckExact(object) || PyFloat_CheckExact(object) ||
           PyUnicode_CheckExact(object) || PyBytes_CheckExact(object) || Py_IS_TYPE(object, &PyType_Type);
}

/* as a dict from elements to themselves: finds the element that equals another one */
static PyObject *elements_of(PyObject *set)
{
    if (!PyFrozenSet_CheckExact(set))
        return PyErr_Format(PyExc_TypeError, "guard program: set_is takes a frozenset, got %R", set);
    PyObject *elements = PyDict_New(), *iterator = elements ? PyObject_GetIter(set) : NULL, *element;
    while (iterator && (element = PyIter_Next(iterator))) {
        if (!is_plain_element(element))
            PyErr_Format(PyExc_TypeError, "guard program: set_is takes str, int, float, bool, bytes, None and classes, got %R", element);
        else
            PyDict_SetItem(elements, element, element);
        Py_DECREF(element);
        if (PyErr_Occurred())
            break;
    }
    Py_XDECREF(iterator);
    if (PyErr_Occurred())
        Py_CLEAR(elements);
    return elements;
}

#if PY_VERSION_HEX < 0x030C0000
#define SLOT_KIND T_OBJECT_EX
#else
#define SLOT_KIND Py_T_OBJECT_EX
#endif

static int is_slot(PyObject *object)
{
    return Py_TYPE(object) == &PyMemberDescr_Type && ((PyMemberDescrObject *)object)->d_member->type == SLOT_KIND;
}

static int parse(instruction *g, PyObject *row, int n_registers, int n_inputs, int n_symbols)
{
    if (!PyTuple_Check(row) || PyTuple_GET_SIZE(row) == 0 || !PyUnicode_Check(PyTuple_GET_ITEM(row, 0))) {
        PyErr_Format(PyExc_TypeError, "guard program: expected a tuple that starts with a name, got %R", row);
        return -1;
    }
    const char *name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(row, 0));
    Py_ssize_t given = PyTuple_GET_SIZE(row) - 1;
    int found = -1;
    for (size_t k = 0; name && k < sizeof NAMES / sizeof *NAMES; ++k)
        if (strcmp(name, NAMES[k].name) == 0)
            found = (int)k;
    if (found < 0) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_ValueError, "guard program: unknown instruction %R", PyTuple_GET_ITEM(row, 0));
        return -1;
    }
    if (given != NAMES[found].n_args) {
        PyErr_Format(PyExc_ValueError, "guard program: %s takes %d arguments, got %zd", name, NAMES[found].n_args, given);
        return -1;
    }
    g->op = NAMES[found].op;
    PyObject *a = given > 0 ? PyTuple_GET_ITEM(row, 1) : NULL, *b = given > 1 ? PyTuple_GET_ITEM(row, 2) : NULL;
    PyObject *c = given > 2 ? PyTuple_GET_ITEM(row, 3) : NULL;
    switch (g->op) {
    case G_GLOBAL:
    case G_ABSENT: {
        PyObject *dict = g->op == G_GLOBAL ? b : a, *key = g->op == G_GLOBAL ? c : b;
        if (g->op == G_GLOBAL && as_index(a, n_registers, "register", &g->dst) < 0)
            return -1;
        if (!PyDict_Check(dict) || !PyUnicode_CheckExact(key)) {
            PyErr_Format(PyExc_TypeError, "guard program: %s takes a dict and a str, got %R of type %s", name, key,
                         Py_TYPE(dict)->tp_name);
            return -1;
        }
        g->object = Py_NewRef(dict);
        g->key = Py_NewRef(key);
        g->hash = PyObject_Hash(key);
        g->version = (uint64_t)NEVER_READ;
        return g->hash == -1 ? -1 : 0;
    }
    case G_CELL:
        if (!PyCell_Check(b)) {
            PyErr_Format(PyExc_TypeError, "guard program: cell takes a cell, got %R", b);
            return -1;
        }
        g->object = Py_NewRef(b);
        return as_index(a, n_registers, "register", &g->dst);
    case G_CLOSURE:
        if (as_index(b, INT_MAX, "cell", &g->slot) < 0)
            return -1;
        g->number = g->slot;
        return as_index(a, n_registers, "register", &g->dst);
    case G_TYPE:
    case G_TYPE_VERSION:
        if (!PyType_Check(b)) {
            PyErr_Format(PyExc_TypeError, "guard program: %s takes a type, got %R", name, b);
            return -1;
        }
        g->object = Py_NewRef(b);
        if (g->op == G_TYPE_VERSION && take_version(g) < 0)
            return -1;
        return as_index(a, n_registers, "register", &g->src);
    case G_ATTR:
        if (!PyUnicode_CheckExact(c)) {
            PyErr_Format(PyExc_TypeError, "guard program: attr takes a str, got %R", c);
            return -1;
        }
        g->key = Py_NewRef(c);
        return as_index(a, n_registers, "register", &g->dst) < 0 ? -1 : as_index(b, n_registers, "register", &g->src);
    case G_ITEM:
        g->number = PyLong_AsSsize_t(c);
        if (PyErr_Occurred() || !find_deque())
            return -1;
        return as_index(a, n_registers, "register", &g->dst) < 0 ? -1 : as_index(b, n_registers, "register", &g->src);
    case G_DICT_ITEM:
        g->hash = PyObject_Hash(c);
        if (g->hash == -1)
            return -1;
        g->key = Py_NewRef(c);
        return as_index(a, n_registers, "register", &g->dst) < 0 ? -1 : as_index(b, n_registers, "register", &g->src);
    case G_NO_ATTR:
        if (!PyUnicode_CheckExact(b)) {
            PyErr_Format(PyExc_TypeError, "guard program: no_attr takes a str, got %R", b);
            return -1;
        }
        g->key = Py_NewRef(b);
        return as_index(a, n_registers, "register", &g->src);
    case G_LEN:
        g->number = PyLong_AsSsize_t(b);
        return PyErr_Occurred() || !find_deque() ? -1 : as_index(a, n_registers, "register", &g->src);
    case G_DICT_KEYS:
        if (!PyTuple_Check(b)) {
            PyErr_Format(PyExc_TypeError, "guard program: dict_keys takes a tuple, got %R", b);
            return -1;
        }
        g->object = Py_NewRef(b);
        return as_index(a, n_registers, "register", &g->src);
    case G_IS:
    case G_IS_NOT:
        g->object = Py_NewRef(b);
        return as_index(a, n_registers, "register", &g->src);
    case G_SAME:
    case G_NOT_SAME:
        return as_index(a, n_registers, "register", &g->src) < 0 ? -1 : as_index(b, n_registers, "register", &g->dst);
    case G_EQUAL:
    case G_VALUE:
        return as_index(a, n_registers, "register", &g->src) < 0 ? -1 : parse_equal(g, b);
    case G_ARRAY:
        return parse_array(g, row, n_registers, n_inputs);
    case G_DEVICE_ARRAY:
        return parse_device_array(g, row, n_registers, n_inputs);
    case G_SCALAR:
        if (as_index(a, n_registers, "register", &g->src) < 0 || as_index(b, n_inputs, "input slot", &g->slot) < 0)
            return -1;
        if (!PyType_Check(c) || !is_scalar_type((PyTypeObject *)c)) {
            PyErr_Format(PyExc_TypeError, "guard program: %R is no type of scalar inputs", c);
            return -1;
        }
        g->object = Py_NewRef(c);
        return 0;
    case G_DISJOINT:
        g->number = n_inputs;
        return parse_disjoint(g, a, n_inputs);
    case G_DIM:
        if (as_index(a, n_symbols, "symbol", &g->dst) < 0 || as_index(b, n_inputs, "input slot", &g->slot) < 0)
            return -1;
        g->number = PyLong_AsSsize_t(c);
        return PyErr_Occurred() ? -1 : 0;
    case G_RELATION: {
        if (!PyUnicode_Check(a)) {
            PyErr_Format(PyExc_TypeError, "guard program: relation takes ==, < or <=, got %R", a);
            return -1;
        }
        g->comparison = PyUnicode_CompareWithASCIIString(a, "==") == 0 ? 0 : PyUnicode_CompareWithASCIIString(a, "<") == 0 ? 1 : 2;
        if (g->comparison == 2 && PyUnicode_CompareWithASCIIString(a, "<=") != 0) {
            PyErr_Format(PyExc_ValueError, "guard program: relation takes ==, < or <=, got %R", a);
            return -1;
        }
        if ((g->holds = PyObject_IsTrue(PyTuple_GET_ITEM(row, 4))) < 0)
            return -1;
        return dg_size_parse(b, n_symbols, &g->left) < 0 ? -1 : dg_size_parse(c, n_symbols, &g->right);
    }
    case G_ERRSTATE:
        return 0;
    case G_INT:
        return as_index(a, n_registers, "register", &g->src) < 0 ? -1 : as_index(b, n_symbols, "symbol", &g->dst);
    case G_CONTENTS:
    case G_DEREF:
        return as_index(a, n_registers, "register", &g->dst) < 0 ? -1 : as_index(b, n_registers, "register", &g->src);
    case G_DEAD:
        return as_index(a, n_registers, "register", &g->src);
    case G_NO_SLOT:
        if (!is_slot(b)) {
            PyErr_Format(PyExc_TypeError, "guard program: no_slot takes the descriptor of a slot, got %R", b);
            return -1;
        }
        g->object = Py_NewRef(b);
        return as_index(a, n_registers, "register", &g->src);
    case G_FIELD:
        if (!PyType_Check(c)) {
            PyErr_Format(PyExc_TypeError, "guard program: field takes a type, got %R", c);
            return -1;
        }
        g->object = Py_NewRef(c);
        g->number = PyLong_AsSsize_t(PyTuple_GET_ITEM(row, 4));
        if (g->number < (Py_ssize_t)sizeof(PyObject) || g->number % sizeof(PyObject *) ||
            g->number > ((PyTypeObject *)c)->tp_basicsize - (Py_ssize_t)sizeof(PyObject *)) {
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_ValueError, "guard program: %R has no field at %zd", c, g->number);
            return -1;
        }
        return as_index(a, n_registers, "register", &g->dst) < 0 ? -1 : as_index(b, n_registers, "register", &g->src);
    case G_NO_ITEM:
        g->hash = PyObject_Hash(b);
        if (g->hash == -1)
            return -1;
        g->key = Py_NewRef(b);
        return as_index(a, n_registers, "register", &g->src);
    case G_SET_IS:
        if (!(g->object = elements_of(b)))
            return -1;
        return as_index(a, n_registers, "register", &g->src);
    case G_SET_ORDER:
        if (!PyTuple_Check(b)) {
            PyErr_Format(PyExc_TypeError, "guard program: set_order takes a tuple, got %R", b);
            return -1;
        }
        g->object = Py_NewRef(b);
        return as_index(a, n_registers, "register", &g->src);
    case G_MAXLEN:
        g->number = b == Py_None ? -1 : PyLong_AsSsize_t(b);
        if (!(g->key = PyUnicode_InternFromString("maxlen")))
            return -1;
        return PyErr_Occurred() || !find_deque() ? -1 : as_index(a, n_registers, "register", &g->src);
    case G_SELF_OF:
        if (!Py_IS_TYPE(c, &PyMethodDescr_Type)) {
            PyErr_Format(PyExc_TypeError, "guard program: self_of takes a method descriptor, got %R", c);
            return -1;
        }
        g->key = Py_NewRef(c);
        return as_index(a, n_registers, "register", &g->dst) < 0 ? -1 : as_index(b, n_registers, "register", &g->src);
    case G_UNMODIFIED:
        if (!PyType_Check(a)) {
            PyErr_Format(PyExc_TypeError, "guard program: %s takes a type, got %R", name, a);
            return -1;
        }
        g->object = Py_NewRef(a);
        return take_version(g);
    case G_TOKEN:
        if (!PyCFunction_CheckExact(a) || !(PyCFunction_GET_FLAGS(a) & METH_NOARGS)) {
            PyErr_Format(PyExc_TypeError, "guard program: token takes a builtin without arguments, got %R", a);
            return -1;
        }
        g->key = Py_NewRef(a);
        return parse_equal(g, b);
    }
    return 0;
}

dg_guards *dg_guards_new(PyObject *program, int n_registers, int n_inputs, int n_symbols, const unsigned char *drawn)
{
    if (!PyTuple_Check(program)) {
        PyErr_Format(PyExc_TypeError, "guard program: expected a tuple of instructions, got %s", Py_TYPE(program)->tp_name);
        return NULL;
    }
    Py_ssize_t length = PyTuple_GET_SIZE(program);
    dg_guards *guards = PyMem_Calloc(1, sizeof *guards);
    if (!guards || !(guards->code = PyMem_Calloc((size_t)length + 1, sizeof(instruction)))) {
        PyMem_Free(guards);
        PyErr_NoMemory();
        return NULL;
    }
    guards->length = (int)length;
    unsigned char bound[DG_MAX_ARRAYS] = {0}, known[DG_MAX_SYMBOLS] = {0}; /* slots (1 + rank), symbols */
    for (Py_ssize_t k = 0; k < length; ++k) {
        instruction *g = &guards->code[k];
        if (parse(g, PyTuple_GET_ITEM(program, k), n_registers, n_inputs, n_symbols) < 0)
            goto fail;
        if ((g->op == G_ARRAY || g->op == G_DEVICE_ARRAY || g->op == G_SCALAR) && drawn[g->slot]) {
            PyErr_Format(PyExc_ValueError, "guard program: input %d is given by the plan", g->slot);
            goto fail;
        }
        for (int slot = 0; g->op == G_DISJOINT && slot < n_inputs; ++slot) {
            if (drawn[slot]) {
                PyBytes_AS_STRING(g->object)[slot] = NEW_ARRAY;
            } else if (!bound[slot]) {
                PyErr_Format(PyExc_ValueError, "guard program: disjoint reads input %d, which no guard before it binds", slot);
                goto fail;
            }
        }
        if (g->op == G_ARRAY || g->op == G_DEVICE_ARRAY)
            bound[g->slot] = (unsigned char)(1 + g->ndim);
        else if (g->op == G_SCALAR)
            bound[g->slot] = 1;
        else if (g->op == G_DIM && (g->number < 0 || g->number >= bound[g->slot] - 1)) {
            PyErr_Format(PyExc_ValueError, "guard program: dim of input %d, axis %zd, which no guard before it has", g->slot,
                         g->number);
            goto fail;
        } else if (g->op == G_DIM || g->op == G_INT) {
            known[g->dst] = 1;
        } else if (g->op == G_RELATION && !(dg_size_is_bound(&g->left, known) && dg_size_is_bound(&g->right, known))) {
            PyErr_Format(PyExc_ValueError, "guard program: %R reads sizes that nothing before it gave", PyTuple_GET_ITEM(program, k));
            goto fail;
        }
    }
    for (int k = 0; k < n_symbols; ++k)
        if (!known[k]) {
            PyErr_Format(PyExc_ValueError, "guard program: nothing gives symbol %d", k);
            goto fail;
        }
    for (int k = 0; k < n_inputs; ++k)
        if (!bound[k] && !drawn[k]) {
            PyErr_Format(PyExc_ValueError, "guard program: nothing binds input %d", k);
            goto fail;
        }
    return guards;
fail:
    dg_guards_free(guards);
    return NULL;
}

void dg_guards_free(dg_guards *guards)
{
    if (!guards)
        return;
    for (int k = 0; k < guards->length; ++k) {
        instruction *g = &guards->code[k];
        Py_CLEAR(g->object);
        Py_CLEAR(g->key);
        dg_size_clear(&g->left);
        dg_size_clear(&g->right);
    }
    PyMem_Free(guards->code);
    PyMem_Free(guards);
}

int dg_guards_traverse(dg_guards *guards, visitproc visit, void *arg)
{
    for (int k = 0; guards && k < guards->length; ++k) {
        Py_VISIT(guards->code[k].object);
        Py_VISIT(guards->code[k].key);
    }
    return 0;
}

int dg_guards_parameters(const dg_guards *guards, int n_registers, const unsigned char *read)
{
    unsigned char written[DG_MAX_REGISTERS] = {0};
    int needed = 0;
    for (int k = 0; k < guards->length; ++k) {
        const instruction *g = &guards->code[k];
        int loads = g->op == G_GLOBAL || g->op == G_CELL || g->op == G_CLOSURE || g->op == G_ATTR || g->op == G_ITEM ||
                    g->op == G_DICT_ITEM || g->op == G_CONTENTS || g->op == G_SELF_OF || g->op == G_DEREF || g->op == G_FIELD;
        int reads = g->op != G_GLOBAL && g->op != G_ABSENT && g->op != G_CELL && g->op != G_CLOSURE && g->op != G_DIM &&
                    g->op != G_RELATION && g->op != G_ERRSTATE && g->op != G_TOKEN && g->op != G_UNMODIFIED &&
                    g->op != G_DISJOINT;
        if (reads && !written[g->src] && g->src >= needed)
            needed = g->src + 1;
        if ((g->op == G_SAME || g->op == G_NOT_SAME) && !written[g->dst] && g->dst >= needed)
            needed = g->dst + 1;
        if (loads)
            written[g->dst] = 1;
    }
    for (int k = 0; k < n_registers; ++k)
        if (read[k] && !written[k] && k >= needed)
            needed = k + 1;
    return needed;
}

/* -- running ------------------------------------------------------------------------------------------------------------- */

static int same_dtype(PyArray_Descr *a, PyArray_Descr *b)
{
    int plain = (a->type_num >= 0 && a->type_num < NPY_OBJECT) || a->type_num == NPY_HALF || a->type_num == NPY_DATETIME ||
                a->type_num == NPY_TIMEDELTA; /* a user's dtype could run code of theirs */
    /* np.longlong and np.int64 are equal dtypes whose scalars have types of their own */
    return plain && a->type_num == b->type_num && PyArray_EquivTypes(a, b);
}

static inline int array_holds(const instruction *g, PyObject *object, dg_frame *frame)
{
    if (Py_TYPE(object) != &PyArray_Type)
        return 0;
    PyArrayObject *array = (PyArrayObject *)object;
    if ((PyObject *)PyArray_DESCR(array) != g->object && !same_dtype(PyArray_DESCR(array), (PyArray_Descr *)g->object))
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

static int device_array_holds(const instruction *g, PyObject *object, dg_frame *frame)
{
    if ((PyObject *)Py_TYPE(object) != g->object || !type_unchanged(g, (PyTypeObject *)g->object))
        return 0;
    device_layout layout;
    PyObject *dtype = PyObject_GetAttr(object, a_dtype);
    int holds = dtype && (dtype == g->key || (PyArray_DescrCheck(dtype) && same_dtype((PyArray_Descr *)dtype, (PyArray_Descr *)g->key)));
    npy_intp packed = PyDataType_ELSIZE((PyArray_Descr *)g->key);
    Py_XDECREF(dtype);
    PyErr_Clear();
    if (!holds || !read_layout(object, &layout) || layout.ndim != g->ndim || layout.device != g->number)
        return 0;
    int empty = 0;
    for (int k = g->ndim - 1; k >= 0; --k) {
        npy_intp dim = layout.dims[k];
        if (g->dims[k] >= 0 ? dim != g->dims[k] : dim < 2)
            return 0;
        if (dim > 1 && layout.strides[k] != (g->exact ? g->strides[k] : packed))
            holds = 0;
        packed *= dim;
        empty |= dim == 0;
    }
    if (!holds && (g->exact || !empty)) /* an array without elements lies in every order */
        return 0;
    frame->inputs[g->slot] = layout.data;
    frame->input_objects[g->slot] = object;
    return 1;
}

/* a size of an input that is an array */
static npy_intp dim_of(PyObject *object, int axis)
{
    npy_intp dims[DG_MAX_DIMS];
    if (PyArray_Check(object))
        return PyArray_DIM((PyArrayObject *)object, axis);
    int n = sizes_attribute(object, a_shape, dims);
    PyErr_Clear();
    return n > axis ? dims[axis] : 0; /* a guard has read it before */
}

typedef struct {
    const char *low, *high; /* the first byte, and the one behind the last */
    int written;
} extent;

static int extent_on_device(PyObject *object, extent *e)
{
    device_layout layout;
    npy_intp itemsize = int_attribute(object, a_itemsize);
    PyErr_Clear();
    if (itemsize < 0 || !read_layout(object, &layout))
        return 0;
    e->low = e->high = layout.data;
    for (int k = 0; k < layout.ndim; ++k) {
        if (layout.dims[k] == 0)
            return 0;
        npy_intp reach = (layout.dims[k] - 1) * layout.strides[k];
        *(reach < 0 ? &e->low : &e->high) += reach;
    }
    e->high += itemsize;
    return 1;
}

/* 0: it has no elements, or is no array */
static int extent_of(PyObject *object, extent *e)
{
    int number = object && (PyArray_CheckScalar(object) || PyFloat_Check(object) || PyLong_Check(object) || PyComplex_Check(object));
    if (object && a_shape && !PyArray_Check(object) && !number)
        return extent_on_device(object, e);
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

/* Whether the inputs that are written to share no memory with one another or with any other; by extents, as most that do not overlap. */
static int disjoint_holds(const instruction *g, const dg_frame *frame)
{
    extent extents[DG_MAX_ARRAYS];
    const char *written = PyBytes_AS_STRING(g->object);
    int n = 0;
    for (int slot = 0; slot < g->number; ++slot) {
        extent e = {.written = written[slot]};
        if (written[slot] == NEW_ARRAY || !extent_of(frame->input_objects[slot], &e))
            continue;
        int place = n++;
        for (; place > 0 && extents[place - 1].low > e.low; --place)
            extents[place] = extents[place - 1];
        extents[place] = e;
    }
    const char *end = NULL, *written_end = NULL; /* of those that start before */
    for (int k = 0; k < n; ++k) {
        const extent *e = &extents[k];
        if ((e->written ? end : written_end) > e->low)
            return 0;
        end = end > e->high ? end : e->high;
        if (e->written && e->high > written_end)
            written_end = e->high;
    }
    return 1;
}

static inline int scalar_holds(const instruction *g, PyObject *object, dg_frame *frame)
{
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

/* whether an object of this type, or of a subclass, has the value; what the subclass redefines is not asked */
static inline int has_value(const instruction *g, PyObject *object, PyTypeObject *type)
{
    if (type == &PyFloat_Type) {
        double number = PyFloat_AS_DOUBLE(object);
        return memcmp(&number, &g->integer, 8) == 0;
    }
    if (type == &PyComplex_Type) {
        Py_complex a = ((PyComplexObject *)object)->cval, b = ((PyComplexObject *)g->object)->cval;
        return memcmp(&a, &b, sizeof a) == 0;
    }
    if (type == &PyLong_Type) {
        int overflow;
        int64_t number = PyLong_AsLongLongAndOverflow(object, &overflow);
        if (g->fits64)
            return !overflow && number == g->integer;
        if (!overflow)
            return 0;
    }
    PyObject *equal = type->tp_richcompare(object, g->object, Py_EQ);
    int holds = equal == Py_True;
    Py_XDECREF(equal);
    PyErr_Clear();
    return holds;
}

static inline int equal_holds(const instruction *g, PyObject *object)
{
    PyTypeObject *type = Py_TYPE(g->object);
    return object == g->object || (Py_TYPE(object) == type && has_value(g, object, type));
}

static int value_holds(const instruction *g, PyObject *object)
{
    PyTypeObject *type = Py_TYPE(g->object);
    return PyType_IsSubtype(Py_TYPE(object), type) && has_value(g, object, type);
}

/* the value of a dict entry, borrowed, or null; fast while the dict does not change */
static inline PyObject *dict_entry(instruction *g)
{
#if HAS_DICT_VERSION
    uint64_t version = DICT_VERSION(g->object);
    if (version == g->version)
        return g->cached;
    g->cached = _PyDict_GetItem_KnownHash(g->object, g->key, g->hash);
    /* The dict of an instance may share its values with it: 3.13 does not count a store through the instance. */
    g->version = ((PyDictObject *)g->object)->ma_values || PyErr_Occurred() ? (uint64_t)NEVER_READ : version;
#else
    g->cached = _PyDict_GetItem_KnownHash(g->object, g->key, g->hash);
#endif
    if (!g->cached)
        PyErr_Clear();
    return g->cached;
}

/* whether two keys are one, where no comparison runs code of the user's */
static int same_key(PyObject *key, PyObject *wanted)
{
    if (key == wanted)
        return 1;
    if (Py_TYPE(key) != Py_TYPE(wanted) || !is_plain_element(key))
        return 0;
    if (PyFloat_CheckExact(key)) {
        double a = PyFloat_AS_DOUBLE(key), b = PyFloat_AS_DOUBLE(wanted);
        return memcmp(&a, &b, sizeof a) == 0;
    }
    return PyObject_RichCompareBool(key, wanted, Py_EQ) == 1;
}

/* whether what an iterator gives are these keys; takes the iterator */
static int gives_keys(PyObject *iterator, PyObject *wanted)
{
    Py_ssize_t k = 0, n = PyTuple_GET_SIZE(wanted);
    int holds = iterator != NULL;
    PyObject *key;
    while (holds && (key = Py_TYPE(iterator)->tp_iternext(iterator))) {
        holds = k < n && same_key(key, PyTuple_GET_ITEM(wanted, k));
        ++k;
        Py_DECREF(key);
    }
    Py_XDECREF(iterator);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    return holds && k == n;
}

static int dict_keys_hold(const instruction *g, PyObject *object)
{
    Py_ssize_t n = PyTuple_GET_SIZE(g->object), position = 0, k = 0;
    if (!PyDict_Check(object) || PyDict_GET_SIZE(object) != n)
        return 0;
    if (PyODict_Check(object)) /* has an order of its own */
        return gives_keys(PyODict_Type.tp_iter(object), g->object);
    PyObject *key, *value;
    while (PyDict_Next(object, &position, &key, &value))
        if (!same_key(key, PyTuple_GET_ITEM(g->object, k++)))
            return 0;
    return 1;
}

static int set_order_holds(const instruction *g, PyObject *object)
{
    return PyAnySet_CheckExact(object) && gives_keys(PyObject_GetIter(object), g->object);
}

static int maxlen_holds(const instruction *g, PyObject *object)
{
    PyObject *maxlen = is_deque(object) ? PyObject_GenericGetAttr(object, g->key) : NULL;
    Py_ssize_t number = !maxlen ? -2 : maxlen == Py_None ? -1 : PyLong_AsSsize_t(maxlen);
    Py_XDECREF(maxlen);
    PyErr_Clear();
    return number == g->number;
}

static int lacks_attribute(PyObject *object, PyObject *name)
{
    if (Py_TYPE(object)->tp_dictoffset == 0)
        return 1; /* no __dict__ at all */
    PyObject *dict = PyObject_GenericGetDict(object, NULL);
    int has = dict ? PyDict_Contains(dict, name) : -1;
    Py_XDECREF(dict);
    if (has < 0)
        PyErr_Clear();
    return has == 0;
}

/* a new reference, or null without an exception; neither __getattr__ nor __getattribute__ is called */
static PyObject *attribute(PyObject *object, PyObject *name)
{
    PyObject *value;
    if (!PyType_Check(object))
        return _PyObject_GenericGetAttrWithDict(object, name, NULL, 1);
    value = Py_TYPE(object)->tp_getattro == PyType_Type.tp_getattro ? PyObject_GetAttr(object, name) : NULL;
    if (!value)
        PyErr_Clear();
    return value;
}

static Py_ssize_t stored_length(PyObject *object)
{
    if (PyTuple_Check(object))
        return PyTuple_GET_SIZE(object);
    if (PyList_Check(object))
        return PyList_GET_SIZE(object);
    if (PyDict_Check(object))
        return PyDict_GET_SIZE(object);
    if (is_deque(object))
        return Py_SIZE(object);
    return PyAnySet_Check(object) ? PySet_GET_SIZE(object) : -1;
}

/* borrowed, or null where the object is no reference, or a dead one */
static PyObject *referent(PyObject *reference)
{
    PyObject *object = PyWeakref_CheckRef(reference) ? PyWeakref_GET_OBJECT(reference) : NULL;
    return object == Py_None ? NULL : object;
}

static int slot_is_empty(const instruction *g, PyObject *object)
{
    PyMemberDescrObject *slot = (PyMemberDescrObject *)g->object;
    return PyObject_TypeCheck(object, PyDescr_TYPE(slot)) && !*(PyObject **)((char *)object + slot->d_member->offset);
}

/* the owner of a builtin method that this descriptor gave, borrowed; null for anything else */
static PyObject *self_of(PyObject *object, PyObject *descriptor)
{
    if (!PyCFunction_Check(object) || ((PyCFunctionObject *)object)->m_ml != ((PyMethodDescrObject *)descriptor)->d_method)
        return NULL;
    return PyCFunction_GET_SELF(object);
}

static inline int relation_holds(const instruction *g, const int64_t *sizes)
{
    int64_t left, right;
    if (!dg_size_run(&g->left, sizes, &left) || !dg_size_run(&g->right, sizes, &right))
        return 0; /* beyond 64 bits: nothing is known of it */
    int is = g->comparison == 0 ? left == right : g->comparison == 1 ? left < right : left <= right;
    return is == g->holds;
}

/* sizes from 2 on, as those of arrays are; far from where sums and products of them overflow */
static inline int int_holds(const instruction *g, PyObject *object, int64_t *sizes)
{
    int overflow;
    if (!PyLong_CheckExact(object))
        return 0;
    int64_t number = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow || number < 2 || number >= (int64_t)1 << 62)
        return 0;
    sizes[g->dst] = number;
    return 1;
}

static int lacks_item(const instruction *g, PyObject *object)
{
    if (!PyDict_Check(object) || _PyDict_GetItem_KnownHash(object, g->key, g->hash))
        return 0;
    int failed = PyErr_Occurred() != NULL;
    PyErr_Clear();
    return !failed;
}

static int set_holds(const instruction *g, PyObject *object)
{
    if (!PyAnySet_CheckExact(object) || PySet_GET_SIZE(object) != PyDict_GET_SIZE(g->object))
        return 0;
    PyObject *iterator = PyObject_GetIter(object), *element;
    int holds = iterator != NULL;
    while (holds && (element = PyIter_Next(iterator))) {
        PyObject *same = is_plain_element(element) ? PyDict_GetItemWithError(g->object, element) : NULL;
        holds = same && Py_TYPE(same) == Py_TYPE(element);
        if (holds && PyFloat_CheckExact(element)) {
            double a = PyFloat_AS_DOUBLE(same), b = PyFloat_AS_DOUBLE(element);
            holds = memcmp(&a, &b, sizeof a) == 0;
        }
        Py_DECREF(element);
    }
    Py_XDECREF(iterator);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    return holds;
}

static int token_holds(const instruction *g)
{
    PyObject *now = answer_of(g->key);
    int holds = now && equal_holds(g, now);
    Py_XDECREF(now);
    return holds;
}

#define NEED(condition) if (!(condition)) return k; break

int dg_guards_run(dg_guards *guards, dg_frame *frame, PyObject *closure)
{
    PyObject **r = frame->registers;
    for (int k = 0; k < guards->length; ++k) {
        instruction *g = &guards->code[k];
        switch (g->op) {
        case G_ARRAY: NEED(array_holds(g, r[g->src], frame));
        case G_DEVICE_ARRAY: NEED(device_array_holds(g, r[g->src], frame));
        case G_SCALAR: NEED(scalar_holds(g, r[g->src], frame));
        case G_GLOBAL: NEED((r[g->dst] = dict_entry(g)));
        case G_ABSENT: NEED(!dict_entry(g));
        case G_IS: NEED(r[g->src] == g->object);
        case G_IS_NOT: NEED(r[g->src] != g->object);
        case G_CELL: NEED((r[g->dst] = PyCell_GET(g->object)));
        case G_CLOSURE:
            if (!closure || g->number >= PyTuple_GET_SIZE(closure))
                return k;
            NEED((r[g->dst] = PyCell_GET(PyTuple_GET_ITEM(closure, g->number))));
        case G_TYPE: NEED((PyObject *)Py_TYPE(r[g->src]) == g->object);
        case G_TYPE_VERSION:
            NEED((PyObject *)Py_TYPE(r[g->src]) == g->object && type_unchanged(g, (PyTypeObject *)g->object));
        case G_ATTR: {
            PyObject *value = attribute(r[g->src], g->key);
            if (!value)
                return k;
            /* from here on the object keeps it alive; not so what a descriptor made anew */
            int kept = Py_REFCNT(value) > 1;
            Py_DECREF(value);
            if (!kept)
                return k;
            r[g->dst] = value;
            break;
        }
        case G_NO_ATTR: NEED(lacks_attribute(r[g->src], g->key));
        case G_ITEM: NEED((r[g->dst] = stored_item(r[g->src], g->number)));
        case G_DICT_ITEM: {
            if (!PyDict_Check(r[g->src]))
                return k;
            PyObject *value = _PyDict_GetItem_KnownHash(r[g->src], g->key, g->hash);
            if (!value) {
                PyErr_Clear();
                return k;
            }
            r[g->dst] = value;
            break;
        }
        case G_LEN: NEED(stored_length(r[g->src]) == g->number);
        case G_DICT_KEYS: NEED(dict_keys_hold(g, r[g->src]));
        case G_SAME: NEED(r[g->src] == r[g->dst]);
        case G_NOT_SAME: NEED(r[g->src] != r[g->dst]);
        case G_EQUAL: NEED(equal_holds(g, r[g->src]));
        case G_VALUE: NEED(value_holds(g, r[g->src]));
        case G_DIM:
            frame->sizes[g->dst] = dim_of(frame->input_objects[g->slot], (int)g->number);
            break;
        case G_RELATION: NEED(relation_holds(g, frame->sizes));
        case G_DISJOINT: NEED(disjoint_holds(g, frame));
        case G_ERRSTATE: NEED(errstate_holds());
        case G_INT: NEED(int_holds(g, r[g->src], frame->sizes));
        case G_CONTENTS: NEED(PyCell_Check(r[g->src]) && (r[g->dst] = PyCell_GET(r[g->src])));
        case G_NO_ITEM: NEED(lacks_item(g, r[g->src]));
        case G_SET_IS: NEED(set_holds(g, r[g->src]));
        case G_SET_ORDER: NEED(set_order_holds(g, r[g->src]));
        case G_MAXLEN: NEED(maxlen_holds(g, r[g->src]));
        case G_TOKEN: NEED(token_holds(g));
        case G_DEREF: NEED((r[g->dst] = referent(r[g->src])));
        case G_DEAD: NEED(PyWeakref_CheckRef(r[g->src]) && !referent(r[g->src]));
        case G_FIELD:
            NEED((PyObject *)Py_TYPE(r[g->src]) == g->object &&
                 (r[g->dst] = *(PyObject **)((char *)r[g->src] + g->number)));
        case G_NO_SLOT: NEED(slot_is_empty(g, r[g->src]));
        case G_SELF_OF: NEED((r[g->dst] = self_of(r[g->src], g->key)));
        case G_UNMODIFIED: NEED(type_unchanged(g, (PyTypeObject *)g->object));
        }
    }
    return -1;
}
