/* Shared by the files of plans and launchers. */
#ifndef DG_PLANS_H
#define DG_PLANS_H
#include "code.h"

/* -- outputs.c: arrays and scalars that a program gives, or is given by a step before it -- */

enum { DG_SCALAR_SIZE = 16 };

typedef struct {
    PyArray_Descr *descr;
    int ndim, scalar;
    int into; /* the input whose memory it is written to; -1: a new array */
    int transposed; /* so many axes (or 0), by which the user gets the transpose of the C-contiguous array that the program writes */
    signed char axes[DG_MAX_DIMS];
    dg_size shape[DG_MAX_DIMS];
    /* where all sizes are constants */
    int fixed;
    npy_intp dims[DG_MAX_DIMS];
    size_t nbytes;
} dg_output;

/* Parses dtype and shape into an output whose other fields are set; -1: an exception is set. */
int dg_output_parse(dg_output *out, PyObject *dtype, PyObject *shape, int n_inputs, int n_symbols);
int dg_output_parse_axes(dg_output *out, PyObject *axes); /* empty, or a permutation of 0 to n - 1 */
void dg_output_clear(dg_output *out);
/* The bytes of an output: by the sizes of a call, or the most where no symbol is above `bound`; 0: that does not fit into 64 bits, or
   a size is negative. */
int dg_output_bytes(const dg_output *out, const int64_t *sizes, int64_t bound, npy_intp *dims, int64_t *nbytes);
int dg_output_fits(const dg_output *out, const int64_t *sizes, int64_t bound); /* whether dg_output_bytes does */
int dg_output_is_of_shape(const dg_output *out, PyArrayObject *array, const int64_t *sizes);
void dg_transpose(PyArrayObject *array, const signed char *axes); /* an array that nobody else has: it goes on owning its memory */

/* -- plan.c -- */

/* a call that is made before the program runs; what it gives may be an input of the program */
typedef struct {
    dg_recipe *recipe; /* a memo: the result's recipe refers to what it gave */
    int slot;          /* of the input; -1: none */
    dg_output input;      /* what the input is */
} dg_step;

struct dg_plan {
    PyObject_HEAD
    dg_code code;              /* native: a dg_entry_point; none: nothing to compute, the recipe only */
    PyObject *callable;        /* else */
    int n_checks; /* the last outputs: bools; if one is true, the program bails out */
    int n_inputs, n_outputs, n_symbols, n_memo, release_gil;
    dg_callee callee; /* native: makes the code's external calls, or null */
    int may_bail_out;
    int repeatable; /* the callable is a function of its inputs: what it raises it raises again */
    PyObject *launcher; /* of the callable's kernels, for the calls that it serves; or null */
    dg_output *outputs;
    int n_steps;
    dg_step *prologue;
    unsigned char *drawn; /* inputs that the prologue gives */
    dg_size workspace;
    dg_sizes limits;
    int64_t safe; /* where no symbol is above it no size of the plan exceeds 64 bits */
    dg_recipe *recipe;
    int is_quiet; /* nothing but the program itself may run Python code */
    /* registers that the recipe reads: while a program runs, other code may change what they were loaded from */
    int n_held;
    int *held;
};

dg_plan *dg_plan_new(PyTypeObject *type, int n_inputs, int n_outputs, int n_symbols, int n_checks);
/* the parts that all plans have, once the outputs are parsed; NULL: an exception is set, and the plan is gone */
PyObject *dg_plan_finish(dg_plan *plan, int ok, PyObject *result, PyObject *prologue);
PyObject *dg_plan_build_result(dg_plan *plan, dg_frame *frame, PyObject **outputs, PyObject **callee);
void dg_plan_release(const dg_plan *plan, PyObject **owner); /* drops a reference of the caller's, unless the plan may bail out */
int dg_plan_fits(const dg_plan *plan, const int64_t *sizes); /* whether all sizes of the plan fit into 64 bits, for those of a call */
int dg_plan_may_be_left(const dg_plan *plan); /* whether a Python program that a signal ends can be left to the plain function */
int dg_plan_can_be_repeated(const dg_plan *plan); /* whether a call that has gone no further than the program can begin anew */

/* -- prologue.c: calls that are made before the program runs -- */

int dg_prologue_parse(dg_plan *plan, PyObject *rows);
int dg_prologue_run(dg_plan *plan, dg_frame *frame);

/* -- native_plan.c, python_plan.c; owner, callee: as dg_plan_run's -- */

PyObject *dg_native_plan_new(PyTypeObject *type, PyObject *args, PyObject *kwargs);
PyObject *dg_native_plan_run(dg_plan *plan, dg_frame *frame, PyObject **owner, PyObject **callee);
PyObject *dg_python_plan_new(PyTypeObject *type, PyObject *args, PyObject *kwargs);
PyObject *dg_python_plan_run(dg_plan *plan, dg_frame *frame, PyObject **owner, PyObject **callee);

#endif
