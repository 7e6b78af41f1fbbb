/* Shared by the files of native loops. */
#ifndef DG_LOOPS_H
#define DG_LOOPS_H
#include "code.h"

/* -- native_loop.c: what rows of parameters, exits and boxes have in common -- */

typedef struct {
    const char *name, *usage;
    const char *operands; /* a letter each, of those that follow the name */
} dg_row_kind;

enum { DG_MAX_SLOTS = 1 << 20 };

/* which of n kinds a row is, whose operands are as many as its kind has; -1: an exception is set. what: "a box", say */
int dg_row_parse(PyObject *row, const char *what, const dg_row_kind *kinds, int n);
/* an int of 0 to most; -1: an exception is set */
int dg_row_number(PyObject *row, PyObject *value, const char *what, int most);
int dg_row_dtype(PyObject *value, PyArray_Descr **to); /* a plain dtype; -1: an exception is set */
int dg_row_slots(PyObject *row, int slot, int width, int n_slots); /* -1, an exception is set: there are not so many */
int dg_slots_of(const PyArray_Descr *descr);               /* how many a scalar takes */

/* -- loop_parameters.c: from Python values to slots -- */

typedef struct dg_box dg_box;

typedef struct dg_parameter dg_parameter;
struct dg_parameter {
    int kind, slot, width;
    PyArray_Descr *descr;
    int ndim, contiguous;
    int n_parts, item_width; /* of a list: one part, which is the kind of its items, and their slots */
    dg_parameter *parts;
    PyObject *row; /* of a list's items, and how they are built */
    dg_box *box;
};

/* what stands for the Python lists that a native loop was given: no list is there twice */
typedef struct {
    dg_stop *stop;
    dg_list **table;
    size_t size, used;
    int closed; /* those that are not there do not fit */
    dg_made *made; /* arrays of Python's that variables hold, or have held since the last call of a Python function */
} dg_loop_lists;

int dg_parameter_parse(dg_parameter *parameter, PyObject *row, int n_slots); /* -1: an exception is set */
void dg_parameter_clear(dg_parameter *parameter);
int dg_parameter_traverse(const dg_parameter *parameter, visitproc visit, void *arg);
/* 0: the object does not fit */
int dg_parameter_read(const dg_parameter *parameter, PyObject *object, dg_slot *state, dg_loop_lists *lists);
const char *dg_parameter_name(const dg_parameter *parameter);
int dg_parameter_is_float(const dg_parameter *parameter);
int dg_parameter_is_deque(const dg_parameter *parameter);
int dg_parameter_is_generator(const dg_parameter *parameter);

/* -- loop_boxes.c: from slots to Python values -- */

struct dg_box {
    int kind, number, n_parts, ndim, width; /* number: the slot, or the parameter; width: slots of a list's item */
    PyArray_Descr *descr;
    PyObject *object; /* the constant, the callable */
    dg_box *parts;
};

typedef struct {
    dg_slot *state;
    PyObject *const *args;
    dg_raised late; /* what signals' handlers raised in Python code of ours: the state must not be lost for it */
    dg_loop_lists *goes_on; /* of a run that goes on with the state; null: it is left */
} dg_loop_values;

int dg_box_parse(dg_box *box, PyObject *row, int n_parameters, int n_slots); /* -1: an exception is set */
int dg_box_parse_parts(dg_box *box, PyObject *rows, int n_parameters, int n_slots);
void dg_box_clear(dg_box *box);
int dg_box_traverse(const dg_box *box, visitproc visit, void *arg);
int dg_box_is_int(const dg_box *box);
int dg_box_is_float(const dg_box *box);
/* Both take the references of all owned slots of the boxes, whether they succeed or not. */
PyObject *dg_box_build(const dg_box *box, dg_loop_values *values);
int dg_box_build_parts(const dg_box *box, dg_loop_values *values, PyObject **to); /* -1: an exception is set, all of `to` is null */
void dg_box_drop(const dg_box *box, dg_slot *state); /* drops the references of its owned slots */

/* -- loop_lists.c: lists and text -- */

int dg_list_read(const dg_parameter *parameter, PyObject *object, dg_slot *slot, dg_loop_lists *lists); /* 0: it does not fit */
int dg_text_read(PyObject *object, dg_slot *slot, dg_loop_lists *lists);
PyObject *dg_list_build(const dg_box *box, int as_deque, dg_loop_values *values);
int dg_lists_write_back(dg_loop_lists *lists, dg_loop_values *values); /* into the Python lists that were given; -1: an exception is set */
void dg_lists_free(dg_loop_lists *lists);

/* -- loop_calls.c: calls of Python functions from native loops -- */

typedef struct {
    PyObject *function;
    dg_box box; /* its arguments are the parts */
    dg_parameter result;
    int n_slots;
    int64_t made; /* how often */
} dg_loop_call;

int dg_call_parse(dg_loop_call *call, PyObject *row, int n_parameters); /* -1: an exception is set */
void dg_call_clear(dg_loop_call *call);
int dg_call_traverse(const dg_loop_call *call, visitproc visit, void *arg);
/* With the GIL: 0, the result's parts lie in the slots; else DG_OTHER_TYPE, the result is in the first one, or DG_RAISES, what raises
   it does.  Takes the references of owned slots.  leaves: the result is given as one of another type. */
int32_t dg_call_make(dg_loop_call *call, dg_slot *slots, PyObject *const *args, dg_loop_lists *lists, int leaves);

void dg_made_list(dg_made *made, dg_loop_lists *lists);
int dg_made_read(PyObject *array, dg_slot *slot, dg_loop_lists *lists); /* one that nobody holds yet; 0: no memory */
void dg_made_sweep(dg_loop_lists *lists);                               /* frees those that nobody holds any more */

#endif
