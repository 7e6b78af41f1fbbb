/* Of dynagraph.torch: where the slots of its Python classes are, and its functions in Python, for what is not plain. */
#ifndef DG_TENSORS_H
#define DG_TENSORS_H
#include "core.h"

typedef struct {
    PyTypeObject *tensor, *storage, *primitive, *node;
    Py_ssize_t array, own_storage, base, grad_fn, requires_grad;         /* of tensors */
    Py_ssize_t storage_array, version;                                   /* of storages */
    Py_ssize_t forward, large, outputs, vjp, vjps, saves, node_class;    /* of primitives */
    Py_ssize_t attrs, edges, sequence, metas, output_metas, saved, saved_out; /* of nodes */
    Py_ssize_t last;                                                     /* of what counts nodes */
    PyObject *numbers, *error_state, *ignored;
    PyObject *apply, *record, *attach, *edge_of, *entry, *class_of, *as_array, *large_of; /* written in Python */
    PyObject *zero, *output_nr, *inference, *requires_name;
    Py_ssize_t large_size;
} dg_tensor_classes;
extern dg_tensor_classes dg_of;

static inline PyObject **dg_slot_of(PyObject *object, Py_ssize_t offset) { return (PyObject **)((char *)object + offset); }
static inline void dg_put(PyObject *object, Py_ssize_t offset, PyObject *value) { Py_XSETREF(*dg_slot_of(object, offset), value); }
static inline int dg_is_tensor(PyObject *object) { return PyObject_TypeCheck(object, dg_of.tensor); }

/* -- tensor_calls.c -- */
int dg_offset_of(PyObject *class, const char *name, Py_ssize_t *offset); /* of a slot; -1: there is none */
PyObject *dg_new_tensor(PyObject *array);                                /* takes the reference */
PyObject *dg_as_array(PyObject *value); /* scalars as arrays, arrays as they are; takes the reference; NULL stays NULL */
/* who is told of each operation: whether there is somebody, the time, and telling of one that has ended; -1: an error */
int dg_is_observed(void);
long long dg_observed_time(void);
int dg_observe(PyObject *what, long long begin, PyObject *operands);

PyObject *dg_quiet(void);         /* has NumPy warn of nothing: what dg_loud takes back; NULL: an error */
int dg_loud(PyObject *token);     /* also where an exception is set, which stays; takes the reference; -1: an error */
/* what functions and classes a dict gives by name: `*to` owns them */
typedef struct { const char *name; PyObject **to; } dg_given;
int dg_take_given(const char *who, PyObject *dict, const dg_given *given, size_t n);

/* -- tensor_terms.c: arrays and nodes as gradients see them -- */
typedef struct {
    PyObject *multiply, *add, *subtract, *divide, *negative; /* NumPy's ufuncs, or kernels for large arrays */
} dg_ufuncs;
extern dg_ufuncs dg_ufunc;
extern PyTypeObject dg_DifferentiatedType;
int dg_terms_start(PyObject *functions); /* -1: an exception is set */
PyObject *dg_new_term(PyObject *array);          /* takes the reference */
int dg_is_term(PyObject *object);
PyObject *dg_array_of_term(PyObject *term);      /* a new reference */
PyObject *dg_new_differentiated(PyObject *node); /* `d` of gradients */
static inline int dg_is_half(PyArray_Descr *dtype) { return dtype->kind == 'V' || dtype->type_num == NPY_HALF; }
/* whether gradients compute with an array as it is: it is NumPy's, and its elements are no halves */
static inline int dg_is_plain(PyObject *array)
{
    return PyArray_CheckExact(array) && PyArray_ITEMSIZE((PyArrayObject *)array) != 2;
}
/* whether it is what nodes know of an operand: a shape and a dtype */
static inline int dg_is_meta(PyObject *meta)
{
    return PyTuple_CheckExact(meta) && PyTuple_GET_SIZE(meta) == 2 && PyTuple_CheckExact(PyTuple_GET_ITEM(meta, 0)) &&
           PyArray_DescrCheck(PyTuple_GET_ITEM(meta, 1));
}
/* item k of a list or a tuple, borrowed; NULL without an exception: there is none, or it is neither */
static inline PyObject *dg_item(PyObject *sequence, Py_ssize_t k)
{
    if (PyList_CheckExact(sequence))
        return k >= 0 && k < PyList_GET_SIZE(sequence) ? PyList_GET_ITEM(sequence, k) : NULL;
    return PyTuple_CheckExact(sequence) && k >= 0 && k < PyTuple_GET_SIZE(sequence) ? PyTuple_GET_ITEM(sequence, k) : NULL;
}

#endif
