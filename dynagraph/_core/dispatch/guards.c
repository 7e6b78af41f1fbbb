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
    const char *operands;     /* of its row in INSTRUCTIONS */
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

/* One row for each instruction; the letters of its operands are those of OPERANDS: d is a register that it loads, r and R are registers
   that it reads. */
static const struct { const char *name; opcode op; const char *operands; } INSTRUCTIONS[] = {
    {"global", G_GLOBAL, "dDK"}, {"absent", G_ABSENT, "DK"}, {"cell", G_CELL, "dc"}, {"closure", G_CLOSURE, "di"},
    {"type", G_TYPE, "rt"}, {"type_version", G_TYPE_VERSION, "rT"}, {"attr", G_ATTR, "drs"}, {"no_attr", G_NO_ATTR, "rs"},
    {"item", G_ITEM, "drl"}, {"dict_item", G_DICT_ITEM, "drk"}, {"len", G_LEN, "rl"}, {"dict_keys", G_DICT_KEYS, "rp"},
    {"is", G_IS, "ro"}, {"is_not", G_IS_NOT, "ro"}, {"same", G_SAME, "rR"}, {"not_same", G_NOT_SAME, "rR"},
    {"equal", G_EQUAL, "rv"}, {"value", G_VALUE, "rv"}, {"array", G_ARRAY, "rSaN[]w"},
    {"device_array", G_DEVICE_ARRAY, "rSTAN[]n"}, {"scalar", G_SCALAR, "rSx"}, {"dim", G_DIM, "ySn"},
    {"relation", G_RELATION, "=zZh"}, {"disjoint", G_DISJOINT, "W"}, {"errstate", G_ERRSTATE, ""}, {"int", G_INT, "ry"},
    {"contents", G_CONTENTS, "dr"}, {"no_item", G_NO_ITEM, "rk"}, {"set_is", G_SET_IS, "re"}, {"set_order", G_SET_ORDER, "rp"},
    {"maxlen", G_MAXLEN, "rM"}, {"token", G_TOKEN, "bv"}, {"unmodified", G_UNMODIFIED, "T"}, {"self_of", G_SELF_OF, "drm"},
    {"deref", G_DEREF, "dr"}, {"dead", G_DEAD, "r"}, {"no_slot", G_NO_SLOT, "rL"}, {"field", G_FIELD, "drtf"},
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

/* -- operands ------------------------------------------------------------------------------------------------------------ */

/* what the operands of one instruction may be */
typedef struct {
    const char *name; /* of the instruction */
    int n_registers, n_inputs, n_symbols;
} limits;

static int wrong(const limits *of, const char *takes, PyObject *given)
{
    PyErr_Format(PyExc_TypeError, "guard program: %s takes %s, got %R", of->name, takes, given);
    return -1;
}

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

static int take_register(instruction *g, PyObject *given, const limits *of)
{
    return as_index(given, of->n_registers, "register", &g->src);
}

static int take_other_register(instruction *g, PyObject *given, const limits *of)
{
    return as_index(given, of->n_registers, "register", &g->dst);
}

static int take_symbol(instruction *g, PyObject *given, const limits *of)
{
    return as_index(given, of->n_symbols, "symbol", &g->dst);
}

static int take_input(instruction *g, PyObject *given, const limits *of)
{
    return as_index(given, of->n_inputs, "input slot", &g->slot);
}

static int take_free_variable(instruction *g, PyObject *given, const limits *of)
{
    (void)of;
    if (as_index(given, INT_MAX, "cell", &g->slot) < 0)
        return -1;
    g->number = g->slot;
    return 0;
}

static int take_object(instruction *g, PyObject *given, const limits *of)
{
    (void)of;
    g->object = Py_NewRef(given);
    return 0;
}

static int take_dict(instruction *g, PyObject *given, const limits *of)
{
    return PyDict_Check(given) ? take_object(g, given, of) : wrong(of, "a dict", given);
}

static int take_cell(instruction *g, PyObject *given, const limits *of)
{
    return PyCell_Check(given) ? take_object(g, given, of) : wrong(of, "a cell", given);
}

static int take_tuple(instruction *g, PyObject *given, const limits *of)
{
    return PyTuple_Check(given) ? take_object(g, given, of) : wrong(of, "a tuple", given);
}

static int take_type(instruction *g, PyObject *given, const limits *of)
{
    return PyType_Check(given) ? take_object(g, given, of) : wrong(of, "a type", given);
}

static int take_type_and_version(instruction *g, PyObject *given, const limits *of)
{
    return take_type(g, given, of) < 0 ? -1 : take_version(g);
}

static int take_key(instruction *g, PyObject *given, const limits *of)
{
    (void)of;
    if ((g->hash = PyObject_Hash(given)) == -1)
        return -1;
    g->key = Py_NewRef(given);
    return 0;
}

static int take_name(instruction *g, PyObject *given, const limits *of)
{
    return PyUnicode_CheckExact(given) ? take_key(g, given, of) : wrong(of, "a str", given);
}

static int take_name_in_dict(instruction *g, PyObject *given, const limits *of)
{
    g->version = (uint64_t)NEVER_READ;
    return take_name(g, given, of);
}

static int take_number(instruction *g, PyObject *given, const limits *of)
{
    (void)of;
    g->number = PyLong_AsSsize_t(given);
    return PyErr_Occurred() ? -1 : 0;
}

/* an index or length of a list, tuple or deque */
static int take_count(instruction *g, PyObject *given, const limits *of)
{
    return take_number(g, given, of) < 0 || !find_deque() ? -1 : 0;
}

static int take_maxlen(instruction *g, PyObject *given, const limits *of)
{
    if (!(g->key = PyUnicode_InternFromString("maxlen")))
        return -1;
    g->number = -1;
    return (given != Py_None && take_number(g, given, of) < 0) || !find_deque() ? -1 : 0;
}

/* where in an object of the type that was taken before */
static int take_offset(instruction *g, PyObject *given, const limits *of)
{
    if (take_number(g, given, of) < 0)
        return -1;
    if (g->number < (Py_ssize_t)sizeof(PyObject) || g->number % sizeof(PyObject *) ||
        g->number > ((PyTypeObject *)g->object)->tp_basicsize - (Py_ssize_t)sizeof(PyObject *)) {
        PyErr_Format(PyExc_ValueError, "guard program: %R has no field at %zd", g->object, g->number);
        return -1;
    }
    return 0;
}

#if PY_VERSION_HEX < 0x030C0000
#define SLOT_KIND T_OBJECT_EX
#else
#define SLOT_KIND Py_T_OBJECT_EX
#endif

static int take_slot_descriptor(instruction *g, PyObject *given, const limits *of)
{
    int is_slot = Py_IS_TYPE(given, &PyMemberDescr_Type) && ((PyMemberDescrObject *)given)->d_member->type == SLOT_KIND;
    return is_slot ? take_object(g, given, of) : wrong(of, "the descriptor of a slot", given);
}

static int take_method_descriptor(instruction *g, PyObject *given, const limits *of)
{
    if (!Py_IS_TYPE(given, &PyMethodDescr_Type))
        return wrong(of, "a method descriptor", given);
    g->key = Py_NewRef(given);
    return 0;
}

static int take_builtin(instruction *g, PyObject *given, const limits *of)
{
    if (!PyCFunction_CheckExact(given) || !(PyCFunction_GET_FLAGS(given) & METH_NOARGS))
        return wrong(of, "a builtin without arguments", given);
    g->key = Py_NewRef(given);
    return 0;
}

static int take_value(instruction *g, PyObject *given, const limits *of)
{
    PyTypeObject *type = Py_TYPE(given);
    if (type != &PyLong_Type && type != &PyFloat_Type && type != &PyComplex_Type && type != &PyUnicode_Type &&
        type != &PyBytes_Type)
        return wrong(of, "an int, float, complex, str or bytes", given);
    g->object = Py_NewRef(given);
    if (type == &PyLong_Type) {
        int overflow;
        g->integer = PyLong_AsLongLongAndOverflow(given, &overflow);
        g->fits64 = !overflow;
    } else if (type == &PyFloat_Type) {
        double number = PyFloat_AS_DOUBLE(given);
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
static int take_elements(instruction *g, PyObject *given, const limits *of)
{
    if (!PyFrozenSet_CheckExact(given))
        return wrong(of, "a frozenset", given);
    PyObject *elements = PyDict_New(), *iterator = elements ? PyObject_GetIter(given) : NULL, *element;
    while (iterator && (element = PyIter_Next(iterator))) {
        if (!is_plain_element(element))
            wrong(of, "str, int, float, bool, bytes, None and classes", element);
        else
            PyDict_SetItem(elements, element, element);
        Py_DECREF(element);
        if (PyErr_Occurred())
            break;
    }
    Py_XDECREF(iterator);
    if (PyErr_Occurred())
        Py_CLEAR(elements);
    g->object = elements;
    return elements ? 0 : -1;
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

static int take_scalar_type(instruction *g, PyObject *given, const limits *of)
{
    int is = PyType_Check(given) && is_scalar_type((PyTypeObject *)given);
    return is ? take_object(g, given, of) : wrong(of, "a type of scalar inputs", given);
}

static int take_dtype(instruction *g, PyObject *given, const limits *of)
{
    (void)of;
    PyArray_Descr *descr = NULL;
    if (!PyArray_DescrConverter(given, &descr))
        return -1;
    g->object = (PyObject *)descr;
    return dg_plain_dtype(descr) ? 0 : -1;
}

static int take_device_dtype(instruction *g, PyObject *given, const limits *of)
{
    (void)of;
    PyArray_Descr *descr = NULL;
    if (!PyArray_DescrConverter(given, &descr))
        return -1;
    g->key = (PyObject *)descr;
    return !dg_plain_dtype(descr) || name_attributes() < 0 ? -1 : 0;
}

static int take_rank(instruction *g, PyObject *given, const limits *of)
{
    (void)of;
    return as_index(given, DG_MAX_DIMS + 1, "rank", &g->ndim);
}

static int has_rank(const instruction *g, PyObject *given, const limits *of, const char *what)
{
    if (PyTuple_Check(given) && PyTuple_GET_SIZE(given) == g->ndim)
        return 1;
    PyErr_Format(PyExc_ValueError, "guard program: %s of rank %d with %s %R", of->name, g->ndim, what, given);
    return 0;
}

/* None: any size */
static int take_dims(instruction *g, PyObject *given, const limits *of)
{
    if (!has_rank(g, given, of, "dims"))
        return -1;
    for (int k = 0; k < g->ndim; ++k) {
        PyObject *dim = PyTuple_GET_ITEM(given, k);
        g->dims[k] = dim == Py_None ? -1 : PyLong_AsSsize_t(dim);
        if (PyErr_Occurred())
            return -1;
        if (dim != Py_None && g->dims[k] < 0) {
            PyErr_Format(PyExc_ValueError, "guard program: negative size in %R", given);
            return -1;
        }
    }
    return 0;
}

/* in elements; None: C order */
static int take_strides(instruction *g, PyObject *given, const limits *of)
{
    g->exact = given != Py_None;
    g->flags = g->flags_mask = NPY_ARRAY_ALIGNED | (g->exact ? 0 : NPY_ARRAY_C_CONTIGUOUS);
    if (!g->exact)
        return 0;
    if (!has_rank(g, given, of, "strides"))
        return -1;
    npy_intp itemsize = PyDataType_ELSIZE((PyArray_Descr *)(g->op == G_ARRAY ? g->object : g->key));
    for (int k = 0; k < g->ndim; ++k) {
        npy_intp stride = PyLong_AsSsize_t(PyTuple_GET_ITEM(given, k));
        if (PyErr_Occurred())
            return -1;
        if (__builtin_mul_overflow(stride, itemsize, &g->strides[k])) {
            PyErr_Format(PyExc_ValueError, "guard program: strides %R are beyond what there is", given);
            return -1;
        }
    }
    return 0;
}

/* True, False, or None: either */
static int take_writeable(instruction *g, PyObject *given, const limits *of)
{
    (void)of;
    int needed = given == Py_None ? 0 : PyObject_IsTrue(given);
    if (needed < 0)
        return -1;
    g->flags |= needed ? NPY_ARRAY_WRITEABLE : 0;
    g->flags_mask |= given != Py_None ? NPY_ARRAY_WRITEABLE : 0;
    return 0;
}

enum { NEW_ARRAY = 2 }; /* made when the guards hold: it shares memory with no other */

/* the slots of the inputs that are written to, as a byte for each input */
static int take_written_inputs(instruction *g, PyObject *given, const limits *of)
{
    if (!PyTuple_Check(given))
        return wrong(of, "a tuple of input slots", given);
    if (!(g->object = PyBytes_FromStringAndSize(NULL, of->n_inputs)))
        return -1;
    g->number = of->n_inputs;
    char *written = PyBytes_AS_STRING(g->object);
    memset(written, 0, (size_t)of->n_inputs);
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(given); ++k) {
        int slot;
        if (as_index(PyTuple_GET_ITEM(given, k), of->n_inputs, "input slot", &slot) < 0)
            return -1;
        written[slot] = 1;
    }
    return 0;
}

static int take_comparison(instruction *g, PyObject *given, const limits *of)
{
    static const char *const symbols[] = {"==", "<", "<="};
    for (g->comparison = 0; PyUnicode_Check(given) && g->comparison < 3; ++g->comparison)
        if (PyUnicode_CompareWithASCIIString(given, symbols[g->comparison]) == 0)
            return 0;
    return wrong(of, "==, < or <=", given);
}

static int take_left(instruction *g, PyObject *given, const limits *of) { return dg_size_parse(given, of->n_symbols, &g->left); }

static int take_right(instruction *g, PyObject *given, const limits *of) { return dg_size_parse(given, of->n_symbols, &g->right); }

static int take_truth(instruction *g, PyObject *given, const limits *of)
{
    (void)of;
    return (g->holds = PyObject_IsTrue(given)) < 0 ? -1 : 0;
}

static const struct { char letter; int (*take)(instruction *g, PyObject *given, const limits *of); } OPERANDS[] = {
    {'d', take_other_register}, {'r', take_register}, {'R', take_other_register}, {'y', take_symbol}, {'S', take_input},
    {'i', take_free_variable}, {'o', take_object}, {'D', take_dict}, {'c', take_cell}, {'p', take_tuple}, {'t', take_type},
    {'T', take_type_and_version}, {'k', take_key}, {'s', take_name}, {'K', take_name_in_dict}, {'n', take_number},
    {'l', take_count}, {'M', take_maxlen}, {'f', take_offset}, {'L', take_slot_descriptor}, {'m', take_method_descriptor},
    {'b', take_builtin}, {'v', take_value}, {'e', take_elements}, {'x', take_scalar_type}, {'a', take_dtype},
    {'A', take_device_dtype}, {'N', take_rank}, {'[', take_dims}, {']', take_strides}, {'w', take_writeable},
    {'W', take_written_inputs}, {'=', take_comparison}, {'z', take_left}, {'Z', take_right}, {'h', take_truth},
};

static int parse(instruction *g, PyObject *row, limits of)
{
    if (!PyTuple_Check(row) || PyTuple_GET_SIZE(row) == 0 || !PyUnicode_Check(PyTuple_GET_ITEM(row, 0))) {
        PyErr_Format(PyExc_TypeError, "guard program: expected a tuple that starts with a name, got %R", row);
        return -1;
    }
    if (!(of.name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(row, 0))))
        return -1;
    size_t found = 0, n = sizeof INSTRUCTIONS / sizeof *INSTRUCTIONS;
    while (found < n && strcmp(of.name, INSTRUCTIONS[found].name) != 0)
        ++found;
    if (found == n) {
        PyErr_Format(PyExc_ValueError, "guard program: unknown instruction %R", PyTuple_GET_ITEM(row, 0));
        return -1;
    }
    g->op = INSTRUCTIONS[found].op;
    g->operands = INSTRUCTIONS[found].operands;
    Py_ssize_t given = PyTuple_GET_SIZE(row) - 1, wanted = (Py_ssize_t)strlen(g->operands);
    if (given != wanted) {
        PyErr_Format(PyExc_ValueError, "guard program: %s takes %zd arguments, got %zd", of.name, wanted, given);
        return -1;
    }
    for (Py_ssize_t k = 0; k < given; ++k) {
        int kind = 0;
        while (OPERANDS[kind].letter != g->operands[k])
            ++kind;
        if (OPERANDS[kind].take(g, PyTuple_GET_ITEM(row, k + 1), &of) < 0)
            return -1;
    }
    return 0;
}

/* -- building ------------------------------------------------------------------------------------------------------------ */

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
        if (parse(g, PyTuple_GET_ITEM(program, k), (limits){NULL, n_registers, n_inputs, n_symbols}) < 0)
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
        if (strchr(g->operands, 'r') && !written[g->src] && g->src >= needed)
            needed = g->src + 1;
        if (strchr(g->operands, 'R') && !written[g->dst] && g->dst >= needed)
            needed = g->dst + 1;
        if (strchr(g->operands, 'd'))
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
