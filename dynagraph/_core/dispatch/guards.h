/* Shared by the files of guards.  One guard is one row: a name, what its operands are, and a function that checks it. */
#ifndef DG_GUARDS_H
#define DG_GUARDS_H
#include "core.h"

typedef struct dg_guard dg_guard;

/* what its operands are: a letter each, see guard_operands.c */
#define DG_GUARDS(ROW) \
    ROW("global", "dDK", dg_load_global) \
    ROW("absent", "DK", dg_is_absent) \
    ROW("cell", "dc", dg_load_cell) \
    ROW("closure", "di", dg_load_free_variable) \
    ROW("contents", "dr", dg_load_contents) \
    ROW("attr", "drs", dg_load_attribute) \
    ROW("field", "drtf", dg_load_field) \
    ROW("self_of", "drm", dg_load_owner) \
    ROW("deref", "dr", dg_load_referent) \
    ROW("dead", "r", dg_is_dead) \
    ROW("is", "ro", dg_is_object) \
    ROW("is_not", "ro", dg_is_not_object) \
    ROW("same", "rR", dg_is_same) \
    ROW("not_same", "rR", dg_is_not_same) \
    ROW("distinct", "Un", dg_are_distinct) \
    ROW("equal", "rv", dg_is_equal) \
    ROW("value", "rv", dg_is_of_value) \
    ROW("compares", "rqvh", dg_compares) \
    ROW("decides", "UEh", dg_decides) \
    ROW("type", "rt", dg_is_of_type) \
    ROW("type_version", "rT", dg_is_of_unchanged_type) \
    ROW("unmodified", "T", dg_is_unmodified) \
    ROW("no_attr", "rs", dg_lacks_attribute) \
    ROW("no_slot", "rL", dg_is_empty_slot) \
    ROW("item", "drl", dg_load_item) \
    ROW("dict_item", "drk", dg_load_dict_item) \
    ROW("no_item", "rk", dg_lacks_item) \
    ROW("len", "rl", dg_is_of_length) \
    ROW("maxlen", "rM", dg_has_maxlen) \
    ROW("dict_keys", "rp", dg_has_keys) \
    ROW("set_is", "re", dg_has_elements) \
    ROW("set_order", "rp", dg_has_order) \
    ROW("array", "rSaN[]w", dg_is_array) \
    ROW("device_array", "rSTAN[]n", dg_is_device_array) \
    ROW("scalar", "rSx", dg_is_scalar) \
    ROW("int", "ry", dg_is_symbolic_int) \
    ROW("dim", "yIX", dg_load_size) \
    ROW("held", "yIH", dg_load_held) \
    ROW("holds", "IHn", dg_holds_number) \
    ROW("relation", "=zZh", dg_is_related) \
    ROW("disjoint", "W", dg_is_disjoint) \
    ROW("token", "bv", dg_returns_the_same) \
    ROW("errstate", "", dg_warns_at_most)

#define DG_DECLARE(name, operands, holds) int holds(dg_guard *g, dg_frame *frame); /* runs no code of the user's, leaves no exception */
DG_GUARDS(DG_DECLARE)

/* an instruction of a guard program */
struct dg_guard {
    int op; /* the number of its row */
    int dst, src, slot;       /* registers and input slots; also second register, symbol */
    unsigned int type_version;
    PyObject *object, *key;   /* owned */
    /* loads of dict entries: what was found when the dict had this version (the dict keeps it alive) */
    uint64_t version;
    PyObject *cached;
    Py_hash_t hash;
    Py_ssize_t number;        /* lengths, indices, axes */
    int64_t integer;          /* small ints; bits of floats */
    /* arrays: the flags that must be set, of those that matter; whether strides are exact */
    int flags, flags_mask, ndim, exact;
    npy_intp itemsize, dims[DG_MAX_DIMS], strides[DG_MAX_DIMS];
    dg_size left, right;
    int fits64, comparison, truth, how;
    uint32_t *order; /* owned: inputs in order of their addresses, as the last call had them */
};

enum { DG_FORMULA_ARGUMENTS = 4, DG_FORMULA_DEPTH = 32 }; /* what formulas of numbers may have */
enum { DG_FIRST, DG_SUM, DG_GREATEST, DG_N_HELD }; /* what a guard reads from an input: of its elements */
enum { DG_NEVER_READ = -1 }; /* as a version: no dict comes to have it */
enum { DG_NEW_ARRAY = 2 };   /* an input that is made when the guards hold: it shares memory with no other */

/* what the operands of a guard may be, by the guards before it */
typedef struct {
    PyObject *instruction;
    const char *name;
    int n_registers, n_inputs, n_symbols;
    const unsigned char *drawn;          /* inputs that the plan gives */
    unsigned char *bound;                /* inputs that a guard gives: 1 + rank */
    unsigned char known[DG_MAX_SYMBOLS]; /* symbols that a guard gives */
} dg_guard_program;

int dg_guard_take(dg_guard *g, char letter, PyObject *given, dg_guard_program *of); /* -1: an exception is set */

static inline PyObject *dg_guarded(const dg_guard *g, const dg_frame *frame) { return frame->registers[g->src]; }
/* puts a borrowed reference into the guard's register; 0: there is none */
static inline int dg_load(const dg_guard *g, dg_frame *frame, PyObject *value)
{
    frame->registers[g->dst] = value;
    return value != NULL;
}

static inline int dg_is_unchanged(const dg_guard *g, PyTypeObject *type)
{
#if PY_VERSION_HEX < 0x030D0000
    if (!PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG))
        return 0;
#endif
    return type->tp_version_tag == g->type_version;
}

/* whether it is a class that is compared as classes are: a metaclass may define its own comparison and hash */
static inline int dg_is_plain_class(PyObject *object)
{
    return PyType_Check(object) && Py_TYPE(object)->tp_richcompare == PyType_Type.tp_richcompare &&
           Py_TYPE(object)->tp_hash == PyType_Type.tp_hash;
}

/* whether comparing two objects of this type runs no code of the user's */
static inline int dg_is_plain(PyObject *object)
{
    return object == Py_None || PyBool_Check(object) || PyLong_CheckExact(object) || PyFloat_CheckExact(object) ||
           PyUnicode_CheckExact(object) || PyBytes_CheckExact(object) || dg_is_plain_class(object);
}

int dg_equals(const dg_guard *g, PyObject *object); /* to the guard's number or text, of the same type */
int dg_know_deques(void);                             /* before guards look at one; -1: an exception is set */

#endif
