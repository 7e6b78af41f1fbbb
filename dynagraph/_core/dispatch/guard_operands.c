/* The operands of guards: each is of a kind, which a letter in a guard's row names, and is checked before the program runs. */
#include "guards.h"
#include <structmember.h>

static int wrong(dg_guard_program *of, const char *takes, PyObject *given)
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

static int take_number(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    (void)of;
    g->number = PyLong_AsSsize_t(given);
    return PyErr_Occurred() ? -1 : 0;
}

static int take_register(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    return as_index(given, of->n_registers, "register", &g->src);
}

static int take_other_register(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    return as_index(given, of->n_registers, "register", &g->dst);
}

/* several registers, as numbers of 32 bits */
static int take_registers(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    if (!PyBytes_Check(given) || PyBytes_GET_SIZE(given) % sizeof(uint32_t) || PyBytes_GET_SIZE(given) / 4 > DG_MAX_REGISTERS)
        return wrong(of, "the numbers of registers as bytes", given);
    const uint32_t *listed = (const uint32_t *)PyBytes_AS_STRING(given);
    for (Py_ssize_t k = 0; k < PyBytes_GET_SIZE(given) / (Py_ssize_t)sizeof *listed; ++k)
        if (listed[k] >= (uint32_t)of->n_registers)
            return wrong(of, "registers that guards before it have loaded", given);
    g->object = Py_NewRef(given);
    return 0;
}

static int take_symbol(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    if (as_index(given, of->n_symbols, "symbol", &g->dst) < 0)
        return -1;
    of->known[g->dst] = 1;
    return 0;
}

/* of which the guard gives the program its elements */
static int take_input(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    if (as_index(given, of->n_inputs, "input slot", &g->slot) < 0)
        return -1;
    if (of->drawn[g->slot]) {
        PyErr_Format(PyExc_ValueError, "guard program: input %d is given by the plan", g->slot);
        return -1;
    }
    of->bound[g->slot] = 1;
    return 0;
}

static int take_bound_input(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    return as_index(given, of->n_inputs, "input slot", &g->slot);
}

/* of the input that was taken before */
static int take_axis(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    if (take_number(g, given, of) < 0)
        return -1;
    if (g->number >= 0 && g->number < of->bound[g->slot] - 1)
        return 0;
    PyErr_Format(PyExc_ValueError, "guard program: dim of input %d, axis %zd, which no guard before it has", g->slot, g->number);
    return -1;
}

/* what is read from the elements of an input */
static int take_how(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    static const char *const names[DG_N_HELD] = {[DG_FIRST] = "first", [DG_SUM] = "sum", [DG_GREATEST] = "greatest"};
    for (g->how = 0; PyUnicode_Check(given) && g->how < DG_N_HELD; ++g->how)
        if (PyUnicode_CompareWithASCIIString(given, names[g->how]) == 0)
            return of->bound[g->slot] ? 0 : wrong(of, "an input that a guard before it has", given);
    return wrong(of, "first, sum or greatest", given);
}

static int take_free_variable(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    (void)of;
    return as_index(given, INT_MAX, "cell", &g->slot);
}

static int take_object(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    (void)of;
    g->object = Py_NewRef(given);
    return 0;
}

static int take_dict(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    return PyDict_Check(given) ? take_object(g, given, of) : wrong(of, "a dict", given);
}

static int take_cell(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    return PyCell_Check(given) ? take_object(g, given, of) : wrong(of, "a cell", given);
}

static int take_tuple(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    return PyTuple_Check(given) ? take_object(g, given, of) : wrong(of, "a tuple", given);
}

static int take_type(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    return PyType_Check(given) ? take_object(g, given, of) : wrong(of, "a type", given);
}

static int take_type_and_version(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    if (take_type(g, given, of) < 0)
        return -1;
    PyTypeObject *type = (PyTypeObject *)given;
    if ((g->type_version = dg_type_version(type)))
        return 0;
    PyErr_Format(PyExc_ValueError, "guard program: type %s has no version: changes to it would go unseen", type->tp_name);
    return -1;
}

static int take_key(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    (void)of;
    if ((g->hash = PyObject_Hash(given)) == -1)
        return -1;
    g->key = Py_NewRef(given);
    return 0;
}

static int take_name(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    return PyUnicode_CheckExact(given) ? take_key(g, given, of) : wrong(of, "a str", given);
}

static int take_name_in_dict(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    g->version = (uint64_t)DG_NEVER_READ;
    return take_name(g, given, of);
}

/* an index or length of a list, tuple or deque */
static int take_count(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    return take_number(g, given, of) < 0 || dg_know_deques() < 0 ? -1 : 0;
}

static int take_maxlen(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    if (!(g->key = PyUnicode_InternFromString("maxlen")))
        return -1;
    g->number = -1;
    return (given != Py_None && take_number(g, given, of) < 0) || dg_know_deques() < 0 ? -1 : 0;
}

/* where in an object of the type that was taken before */
static int take_offset(dg_guard *g, PyObject *given, dg_guard_program *of)
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

static int take_slot_descriptor(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    int is_slot = Py_IS_TYPE(given, &PyMemberDescr_Type) && ((PyMemberDescrObject *)given)->d_member->type == SLOT_KIND;
    return is_slot ? take_object(g, given, of) : wrong(of, "the descriptor of a slot", given);
}

static int take_method_descriptor(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    if (!Py_IS_TYPE(given, &PyMethodDescr_Type))
        return wrong(of, "a method descriptor", given);
    g->key = Py_NewRef(given);
    return 0;
}

static int take_builtin(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    if (!PyCFunction_CheckExact(given) || !(PyCFunction_GET_FLAGS(given) & METH_NOARGS))
        return wrong(of, "a builtin without arguments", given);
    g->key = Py_NewRef(given);
    return 0;
}

static int take_value(dg_guard *g, PyObject *given, dg_guard_program *of)
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

/* as a dict from elements to themselves: finds the element that equals another one */
static int take_elements(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    if (!PyFrozenSet_CheckExact(given))
        return wrong(of, "a frozenset", given);
    PyObject *elements = PyDict_New(), *iterator = elements ? PyObject_GetIter(given) : NULL, *element;
    while (iterator && (element = PyIter_Next(iterator))) {
        if (!dg_is_plain(element))
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

static int take_scalar_type(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    int is = PyType_Check(given) && is_scalar_type((PyTypeObject *)given);
    return is ? take_object(g, given, of) : wrong(of, "a type of scalar inputs", given);
}

static PyObject *as_dtype(dg_guard *g, PyObject *given)
{
    PyArray_Descr *descr = NULL;
    if (!PyArray_DescrConverter(given, &descr))
        return NULL;
    g->itemsize = PyDataType_ELSIZE(descr);
    if (!dg_plain_dtype(descr))
        Py_CLEAR(descr);
    return (PyObject *)descr;
}

static int take_dtype(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    (void)of;
    return (g->object = as_dtype(g, given)) ? 0 : -1;
}

/* beside the type of the array */
static int take_device_dtype(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    (void)of;
    return (g->key = as_dtype(g, given)) ? 0 : -1;
}

static int take_rank(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    if (as_index(given, DG_MAX_DIMS + 1, "rank", &g->ndim) < 0)
        return -1;
    of->bound[g->slot] = (unsigned char)(1 + g->ndim);
    return 0;
}

static int has_rank(const dg_guard *g, PyObject *given, dg_guard_program *of, const char *what)
{
    if (PyTuple_Check(given) && PyTuple_GET_SIZE(given) == g->ndim)
        return 1;
    PyErr_Format(PyExc_ValueError, "guard program: %s of rank %d with %s %R", of->name, g->ndim, what, given);
    return 0;
}

/* None: any size */
static int take_dims(dg_guard *g, PyObject *given, dg_guard_program *of)
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
static int take_strides(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    g->exact = given != Py_None;
    g->flags = g->flags_mask = NPY_ARRAY_ALIGNED | (g->exact ? 0 : NPY_ARRAY_C_CONTIGUOUS);
    if (!g->exact)
        return 0;
    if (!has_rank(g, given, of, "strides"))
        return -1;
    for (int k = 0; k < g->ndim; ++k) {
        npy_intp stride = PyLong_AsSsize_t(PyTuple_GET_ITEM(given, k));
        if (PyErr_Occurred())
            return -1;
        if (__builtin_mul_overflow(stride, g->itemsize, &g->strides[k])) {
            PyErr_Format(PyExc_ValueError, "guard program: strides %R are beyond what there is", given);
            return -1;
        }
    }
    return 0;
}

/* True, False, or None: either */
static int take_writeable(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    (void)of;
    int needed = given == Py_None ? 0 : PyObject_IsTrue(given);
    if (needed < 0)
        return -1;
    g->flags |= needed ? NPY_ARRAY_WRITEABLE : 0;
    g->flags_mask |= given != Py_None ? NPY_ARRAY_WRITEABLE : 0;
    return 0;
}

/* the slots of the inputs that are written to, as a byte for each input */
static int take_written_inputs(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    if (!PyTuple_Check(given))
        return wrong(of, "a tuple of input slots", given);
    g->number = of->n_inputs;
    if (!(g->object = PyBytes_FromStringAndSize(NULL, g->number)))
        return -1;
    if (!(g->order = PyMem_Calloc((size_t)g->number + 1, sizeof *g->order))) {
        PyErr_NoMemory();
        return -1;
    }
    for (int slot = 0; slot < of->n_inputs; ++slot)
        g->order[slot] = (uint32_t)slot;
    char *written = PyBytes_AS_STRING(g->object);
    memset(written, 0, (size_t)of->n_inputs);
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(given); ++k) {
        int slot;
        if (as_index(PyTuple_GET_ITEM(given, k), of->n_inputs, "input slot", &slot) < 0)
            return -1;
        written[slot] = 1;
    }
    for (int slot = 0; slot < of->n_inputs; ++slot) {
        if (of->drawn[slot]) {
            written[slot] = DG_NEW_ARRAY;
        } else if (!of->bound[slot]) {
            PyErr_Format(PyExc_ValueError, "guard program: disjoint reads input %d, which no guard before it binds", slot);
            return -1;
        }
    }
    return 0;
}

static int take_comparison(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    static const char *const symbols[] = {"==", "<", "<="};
    for (g->comparison = 0; PyUnicode_Check(given) && g->comparison < 3; ++g->comparison)
        if (PyUnicode_CompareWithASCIIString(given, symbols[g->comparison]) == 0)
            return 0;
    return wrong(of, "==, < or <=", given);
}

/* of Python's numbers */
static int take_operator(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    static const char *const symbols[] = {[Py_LT] = "<", [Py_LE] = "<=", [Py_EQ] = "==", [Py_NE] = "!=", [Py_GT] = ">", [Py_GE] = ">="};
    for (g->comparison = Py_LT; PyUnicode_Check(given) && g->comparison <= Py_GE; ++g->comparison)
        if (PyUnicode_CompareWithASCIIString(given, symbols[g->comparison]) == 0)
            return 0;
    return wrong(of, "<, <=, ==, !=, > or >=", given);
}

/* whether it is the number of a register among n, (constant,), or (function in C, arguments...) */
static int is_formula(PyObject *given, Py_ssize_t n, int depth)
{
    if (PyLong_CheckExact(given)) {
        int overflow;
        long k = PyLong_AsLongAndOverflow(given, &overflow);
        return !overflow && k >= 0 && k < n;
    }
    if (!PyTuple_CheckExact(given) || !PyTuple_GET_SIZE(given) || PyTuple_GET_SIZE(given) > 1 + DG_FORMULA_ARGUMENTS || !depth)
        return 0;
    PyObject *first = PyTuple_GET_ITEM(given, 0);
    if (PyTuple_GET_SIZE(given) == 1)
        return PyLong_CheckExact(first) || PyFloat_CheckExact(first);
    int is = PyCFunction_Check(first);
    for (Py_ssize_t k = 1; is && k < PyTuple_GET_SIZE(given); ++k)
        is = is_formula(PyTuple_GET_ITEM(given, k), n, depth - 1);
    return is;
}

static int take_formula(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    if (!is_formula(given, PyBytes_GET_SIZE(g->object) / (Py_ssize_t)sizeof(uint32_t), DG_FORMULA_DEPTH))
        return wrong(of, "a formula of the listed registers", given);
    g->key = Py_NewRef(given);
    return 0;
}

static int take_size(dg_size *size, PyObject *given, dg_guard_program *of)
{
    if (dg_size_parse(given, of->n_symbols, size) < 0)
        return -1;
    if (dg_size_is_bound(size, of->known))
        return 0;
    PyErr_Format(PyExc_ValueError, "guard program: %R reads sizes that nothing before it gave", of->instruction);
    return -1;
}

static int take_left(dg_guard *g, PyObject *given, dg_guard_program *of) { return take_size(&g->left, given, of); }

static int take_right(dg_guard *g, PyObject *given, dg_guard_program *of) { return take_size(&g->right, given, of); }

static int take_truth(dg_guard *g, PyObject *given, dg_guard_program *of)
{
    (void)of;
    return (g->truth = PyObject_IsTrue(given)) < 0 ? -1 : 0;
}

/* a kind of operand for each letter: d is a register that the guard loads, r and R are registers that it reads */
static int (*const TAKE[128])(dg_guard *g, PyObject *given, dg_guard_program *of) = {
    ['d'] = take_other_register, ['r'] = take_register, ['R'] = take_other_register, ['y'] = take_symbol, ['S'] = take_input,
    ['I'] = take_bound_input, ['X'] = take_axis, ['H'] = take_how, ['i'] = take_free_variable, ['o'] = take_object, ['D'] = take_dict, ['c'] = take_cell,
    ['p'] = take_tuple, ['t'] = take_type, ['T'] = take_type_and_version, ['k'] = take_key, ['s'] = take_name, ['K'] = take_name_in_dict,
    ['n'] = take_number, ['l'] = take_count, ['M'] = take_maxlen, ['f'] = take_offset, ['L'] = take_slot_descriptor,
    ['m'] = take_method_descriptor, ['b'] = take_builtin, ['v'] = take_value, ['e'] = take_elements, ['x'] = take_scalar_type,
    ['a'] = take_dtype, ['A'] = take_device_dtype, ['N'] = take_rank, ['['] = take_dims, [']'] = take_strides, ['w'] = take_writeable,
    ['W'] = take_written_inputs, ['='] = take_comparison, ['z'] = take_left, ['Z'] = take_right, ['h'] = take_truth,
    ['U'] = take_registers, ['q'] = take_operator, ['E'] = take_formula,
};

int dg_guard_take(dg_guard *g, char letter, PyObject *given, dg_guard_program *of) { return TAKE[(int)letter](g, given, of); }
