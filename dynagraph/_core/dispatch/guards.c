/* Guard programs: compiled once into a flat array of guards, run on every call; and the guards on identity, types, values and
   attributes, which are the most: here they can be inlined. */
#include "guards.h"
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

/* -- loads ------------------------------------------------------------------------------------------------------------------ */

/* the value of a dict entry, borrowed, or null; fast while the dict does not change */
static inline PyObject *dict_entry(dg_guard *g)
{
#if HAS_DICT_VERSION
    uint64_t version = DICT_VERSION(g->object);
    if (version == g->version)
        return g->cached;
    g->cached = _PyDict_GetItem_KnownHash(g->object, g->key, g->hash);
    /* The dict of an instance may share its values with it: 3.13 does not count a store through the instance. */
    g->version = ((PyDictObject *)g->object)->ma_values || PyErr_Occurred() ? (uint64_t)DG_NEVER_READ : version;
#else
    g->cached = _PyDict_GetItem_KnownHash(g->object, g->key, g->hash);
#endif
    if (!g->cached)
        PyErr_Clear();
    return g->cached;
}

int dg_load_global(dg_guard *g, dg_frame *frame) { return dg_load(g, frame, dict_entry(g)); }

int dg_is_absent(dg_guard *g, dg_frame *frame)
{
    (void)frame;
    return !dict_entry(g);
}

int dg_load_cell(dg_guard *g, dg_frame *frame) { return dg_load(g, frame, PyCell_GET(g->object)); }

int dg_load_free_variable(dg_guard *g, dg_frame *frame)
{
    if (!frame->closure || g->slot >= PyTuple_GET_SIZE(frame->closure))
        return 0;
    return dg_load(g, frame, PyCell_GET(PyTuple_GET_ITEM(frame->closure, g->slot)));
}

int dg_load_contents(dg_guard *g, dg_frame *frame)
{
    PyObject *cell = dg_guarded(g, frame);
    return PyCell_Check(cell) && dg_load(g, frame, PyCell_GET(cell));
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

int dg_load_attribute(dg_guard *g, dg_frame *frame)
{
    PyObject *value = attribute(dg_guarded(g, frame), g->key);
    if (!value)
        return 0;
    /* from here on the object keeps it alive; not so what a descriptor made anew */
    int kept = Py_REFCNT(value) > 1;
    Py_DECREF(value);
    return kept && dg_load(g, frame, value);
}

/* an object that the C structure of another holds */
int dg_load_field(dg_guard *g, dg_frame *frame)
{
    PyObject *object = dg_guarded(g, frame);
    return (PyObject *)Py_TYPE(object) == g->object && dg_load(g, frame, *(PyObject **)((char *)object + g->number));
}

/* the owner of a builtin method that this descriptor gave */
int dg_load_owner(dg_guard *g, dg_frame *frame)
{
    PyObject *method = dg_guarded(g, frame);
    if (!PyCFunction_Check(method) || ((PyCFunctionObject *)method)->m_ml != ((PyMethodDescrObject *)g->key)->d_method)
        return 0;
    return dg_load(g, frame, PyCFunction_GET_SELF(method));
}

/* borrowed, or null where the object is no reference, or a dead one */
static PyObject *referent(PyObject *reference)
{
    PyObject *object = PyWeakref_CheckRef(reference) ? PyWeakref_GET_OBJECT(reference) : NULL;
    return object == Py_None ? NULL : object;
}

int dg_load_referent(dg_guard *g, dg_frame *frame) { return dg_load(g, frame, referent(dg_guarded(g, frame))); }

int dg_is_dead(dg_guard *g, dg_frame *frame)
{
    PyObject *reference = dg_guarded(g, frame);
    return PyWeakref_CheckRef(reference) && !referent(reference);
}

/* -- identity and values ---------------------------------------------------------------------------------------------------- */

int dg_is_object(dg_guard *g, dg_frame *frame) { return dg_guarded(g, frame) == g->object; }

int dg_is_not_object(dg_guard *g, dg_frame *frame) { return dg_guarded(g, frame) != g->object; }

int dg_is_same(dg_guard *g, dg_frame *frame) { return dg_guarded(g, frame) == frame->registers[g->dst]; }

int dg_is_not_same(dg_guard *g, dg_frame *frame) { return dg_guarded(g, frame) != frame->registers[g->dst]; }

/* Of the registers that the guard lists the first `number` hold objects that stand in no other of them. */
int dg_are_distinct(dg_guard *g, dg_frame *frame)
{
    const uint32_t *listed = (const uint32_t *)PyBytes_AS_STRING(g->object);
    size_t n = (size_t)PyBytes_GET_SIZE(g->object) / sizeof *listed, places = 8;
    while (places < 2 * n)
        places *= 2;
    PyObject *few[2 * DG_FEW_REGISTERS], **seen = dg_room(few, sizeof few, places * sizeof *seen);
    if (!seen)
        return 0;
    memset(seen, 0, places * sizeof *seen);
    int distinct = 1;
    for (size_t k = 0; k < n && distinct; ++k) {
        PyObject *object = frame->registers[listed[k]];
        size_t place = ((uintptr_t)object >> 4) * 0x9E3779B97F4A7C15u >> 32 & (places - 1);
        while (seen[place] && seen[place] != object)
            place = (place + 1) & (places - 1);
        distinct = !seen[place];
        if (k < (size_t)g->number)
            seen[place] = object;
    }
    dg_leave(seen, few);
    return distinct;
}

/* whether an object of this type, or of a subclass, has the value; what the subclass redefines is not asked */
static int has_value(const dg_guard *g, PyObject *object, PyTypeObject *type)
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

int dg_equals(const dg_guard *g, PyObject *object)
{
    PyTypeObject *type = Py_TYPE(g->object);
    return object == g->object || (Py_TYPE(object) == type && has_value(g, object, type));
}

int dg_is_equal(dg_guard *g, dg_frame *frame) { return dg_equals(g, dg_guarded(g, frame)); }

int dg_is_of_value(dg_guard *g, dg_frame *frame)
{
    PyTypeObject *type = Py_TYPE(g->object);
    PyObject *object = dg_guarded(g, frame);
    return PyType_IsSubtype(Py_TYPE(object), type) && has_value(g, object, type);
}

/* a float and the guard's number: what comparing them gives */
int dg_compares(dg_guard *g, dg_frame *frame)
{
    PyObject *object = dg_guarded(g, frame);
    if (!PyFloat_CheckExact(object))
        return 0;
    PyObject *is = PyObject_RichCompare(object, g->object, g->comparison);
    if (!is)
        PyErr_Clear(); /* the guard's value is no number */
    int holds = is && (is == Py_True) == g->truth;
    Py_XDECREF(is);
    return holds;
}

/* a new reference to what a formula gives for numbers in registers; null, perhaps with an exception */
static PyObject *computed(PyObject *formula, const uint32_t *registers, dg_frame *frame)
{
    if (PyLong_CheckExact(formula)) {
        PyObject *number = frame->registers[registers[PyLong_AsLong(formula)]];
        return PyFloat_CheckExact(number) || PyLong_CheckExact(number) ? Py_NewRef(number) : NULL;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(formula) - 1, k = 0;
    PyObject *first = PyTuple_GET_ITEM(formula, 0), *args[DG_FORMULA_ARGUMENTS], *found = NULL;
    if (!n)
        return Py_NewRef(first);
    while (k < n && (args[k] = computed(PyTuple_GET_ITEM(formula, k + 1), registers, frame)))
        ++k;
    if (k == n)
        found = PyObject_Vectorcall(first, args, (size_t)n, NULL);
    while (k)
        Py_DECREF(args[--k]);
    return found;
}

/* what a formula decides, of functions in C and of Python's own numbers */
int dg_decides(dg_guard *g, dg_frame *frame)
{
    PyObject *is = computed(g->key, (const uint32_t *)PyBytes_AS_STRING(g->object), frame);
    if (!is)
        PyErr_Clear(); /* of divisions by zero, and their like */
    int holds = is == (g->truth ? Py_True : Py_False);
    Py_XDECREF(is);
    return holds;
}

/* -- types and attributes --------------------------------------------------------------------------------------------------- */

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

int dg_is_of_type(dg_guard *g, dg_frame *frame) { return (PyObject *)Py_TYPE(dg_guarded(g, frame)) == g->object; }

int dg_is_of_unchanged_type(dg_guard *g, dg_frame *frame)
{
    return dg_is_of_type(g, frame) && dg_is_unchanged(g, (PyTypeObject *)g->object);
}

int dg_is_unmodified(dg_guard *g, dg_frame *frame)
{
    (void)frame;
    return dg_is_unchanged(g, (PyTypeObject *)g->object);
}

int dg_lacks_attribute(dg_guard *g, dg_frame *frame)
{
    PyObject *object = dg_guarded(g, frame);
    if (Py_TYPE(object)->tp_dictoffset == 0)
        return 1; /* no __dict__ at all */
    PyObject *dict = PyObject_GenericGetDict(object, NULL);
    int has = dict ? PyDict_Contains(dict, g->key) : -1;
    Py_XDECREF(dict);
    if (has < 0)
        PyErr_Clear();
    return has == 0;
}

int dg_is_empty_slot(dg_guard *g, dg_frame *frame)
{
    PyObject *object = dg_guarded(g, frame);
    PyMemberDescrObject *slot = (PyMemberDescrObject *)g->object;
    return PyObject_TypeCheck(object, PyDescr_TYPE(slot)) && !*(PyObject **)((char *)object + slot->d_member->offset);
}

/* -- programs ------------------------------------------------------------------------------------------------------------ */

struct dg_guards {
    int length;
    dg_guard *code;
};

#define ROW(name, operands, holds) {name, operands},
static const struct {
    const char *name, *operands;
} ROWS[] = {DG_GUARDS(ROW)};

#define OP(name, operands, holds) OP_##holds,
enum { DG_GUARDS(OP) N_ROWS };

/* N_ROWS: there is none */
static int row_named(const char *name)
{
    int op = 0;
    while (op < N_ROWS && strcmp(ROWS[op].name, name) != 0)
        ++op;
    return op;
}

static int parse(dg_guard *g, PyObject *instruction, dg_guard_program *of)
{
    if (!PyTuple_Check(instruction) || PyTuple_GET_SIZE(instruction) == 0 || !PyUnicode_Check(PyTuple_GET_ITEM(instruction, 0))) {
        PyErr_Format(PyExc_TypeError, "guard program: expected a tuple that starts with a name, got %R", instruction);
        return -1;
    }
    of->instruction = instruction;
    if (!(of->name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(instruction, 0))))
        return -1;
    if ((g->op = row_named(of->name)) == N_ROWS) {
        PyErr_Format(PyExc_ValueError, "guard program: unknown instruction %R", PyTuple_GET_ITEM(instruction, 0));
        return -1;
    }
    const char *operands = ROWS[g->op].operands;
    Py_ssize_t given = PyTuple_GET_SIZE(instruction) - 1, wanted = (Py_ssize_t)strlen(operands);
    if (given != wanted) {
        PyErr_Format(PyExc_ValueError, "guard program: %s takes %zd arguments, got %zd", of->name, wanted, given);
        return -1;
    }
    for (Py_ssize_t k = 0; k < given; ++k)
        if (dg_guard_take(g, operands[k], PyTuple_GET_ITEM(instruction, k + 1), of) < 0)
            return -1;
    return 0;
}

/* whether the guards give all inputs and symbols that the plan does not */
static int is_whole(const dg_guard_program *of)
{
    for (int k = 0; k < of->n_symbols; ++k)
        if (!of->known[k]) {
            PyErr_Format(PyExc_ValueError, "guard program: nothing gives symbol %d", k);
            return 0;
        }
    for (int k = 0; k < of->n_inputs; ++k)
        if (!of->bound[k] && !of->drawn[k]) {
            PyErr_Format(PyExc_ValueError, "guard program: nothing binds input %d", k);
            return 0;
        }
    return 1;
}

dg_guards *dg_guards_new(PyObject *program, int n_registers, int n_inputs, int n_symbols, const unsigned char *drawn)
{
    if (!PyTuple_Check(program)) {
        PyErr_Format(PyExc_TypeError, "guard program: expected a tuple of instructions, got %s", Py_TYPE(program)->tp_name);
        return NULL;
    }
    Py_ssize_t length = PyTuple_GET_SIZE(program);
    dg_guards *guards = PyMem_Calloc(1, sizeof *guards);
    if (!guards || !(guards->code = PyMem_Calloc((size_t)length + 1, sizeof(dg_guard)))) {
        PyMem_Free(guards);
        PyErr_NoMemory();
        return NULL;
    }
    guards->length = (int)length;
    dg_guard_program of = {.n_registers = n_registers, .n_inputs = n_inputs, .n_symbols = n_symbols, .drawn = drawn};
    int ok = (of.bound = PyMem_Calloc((size_t)n_inputs + 1, sizeof *of.bound)) != NULL;
    if (!ok)
        PyErr_NoMemory();
    for (Py_ssize_t k = 0; k < length && ok; ++k)
        ok = parse(&guards->code[k], PyTuple_GET_ITEM(program, k), &of) == 0;
    ok = ok && is_whole(&of);
    PyMem_Free(of.bound);
    if (ok)
        return guards;
    dg_guards_free(guards);
    return NULL;
}

void dg_guards_free(dg_guards *guards)
{
    if (!guards)
        return;
    for (int k = 0; k < guards->length; ++k) {
        dg_guard *g = &guards->code[k];
        Py_CLEAR(g->object);
        Py_CLEAR(g->key);
        dg_size_clear(&g->left);
        dg_size_clear(&g->right);
        PyMem_Free(g->order);
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

int dg_guards_parameters(const dg_guards *guards, int n_registers, const unsigned char *read, unsigned char *written)
{
    int needed = 0;
    for (int k = 0; k < guards->length; ++k) {
        const dg_guard *g = &guards->code[k];
        const char *operands = ROWS[g->op].operands;
        if (strchr(operands, 'r') && !written[g->src] && g->src >= needed)
            needed = g->src + 1;
        if (strchr(operands, 'R') && !written[g->dst] && g->dst >= needed)
            needed = g->dst + 1;
        if (strchr(operands, 'd'))
            written[g->dst] = 1;
    }
    for (int k = 0; k < n_registers; ++k)
        if (read[k] && !written[k] && k >= needed)
            needed = k + 1;
    return needed;
}

#define CASE(name, operands, holds) case OP_##holds: if (!holds(g, frame)) return k; break;

int dg_guards_run(dg_guards *guards, dg_frame *frame, PyObject *closure)
{
    frame->closure = closure;
    for (int k = 0; k < guards->length; ++k) {
        dg_guard *g = &guards->code[k];
        switch (g->op) {
            DG_GUARDS(CASE)
        }
    }
    return -1;
}
