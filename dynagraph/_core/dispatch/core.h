/* Shared by the files of the dispatcher.  See dynagraph/_core/README.md for what guards, plans and recipes mean. */
#ifndef DG_CORE_H
#define DG_CORE_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL dynagraph_dispatch_array_api
#ifndef DG_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>

#include "../runtime.h"
#include "../stack.h"

/* -- thread_pool.c: the pool that generated code runs on -- */
extern dg_runtime dg_the_runtime;
void dg_threads_set(int n); /* 0: as many as this process has processors */
int dg_threads_start(void);

/* -- ../products/matrices.c: what generated code calls -- */
int dg_multiply_matrices(const dg_runtime *rt, const dg_matrices *what, dg_stop *stop);

/* -- dtypes.c -- */
/* dtypes that plans, guards and loops take: numbers, bools and times, in native byte order; else a ValueError */
int dg_plain_dtype(PyArray_Descr *descr);
int dg_same_dtype(PyArray_Descr *a, PyArray_Descr *b); /* of NumPy's own; no user code runs */
int dg_is_bfloat16(PyTypeObject *type); /* the scalars of ml_dtypes' dtype */
int dg_scalar_value(PyObject *scalar, void *to); /* the value of a NumPy scalar; 0: it has none that is plain */
int dg_scalar_read(PyObject *object, PyArray_Descr *descr, void *to); /* ... of a plain dtype; 0: the object is no scalar of it */
PyObject *dg_scalar_object(PyArray_Descr *descr, const void *value); /* a new scalar of a plain dtype */

/* -- memory_pool.c: recycled blocks for results and workspaces -- */
void *dg_pool_take(size_t size);
void dg_pool_give(void *block);
void dg_pool_trim(size_t limit);
void dg_pool_set_limit(size_t limit);
PyObject *dg_pool_stats(void);
PyObject *dg_py_new_array(PyObject *module, PyObject *args);
PyObject *dg_py_new_zeros(PyObject *module, PyObject *args);
int dg_pool_start(void);
/* a new C-order array; `descr` is borrowed */
PyObject *dg_new_array(PyArray_Descr *descr, int ndim, const npy_intp *shape, size_t nbytes);

/* -- what a call needs while it runs: on its stack, or on the heap where a program is large.  Threads and calls within one another share
   nothing of it. -- */
enum { DG_FEW_ARRAYS = 128, DG_FEW_REGISTERS = 256 }; /* the stack has room for so many */
/* `size` bytes: those at `few`, if they are enough; null without an exception: there is no memory.  The GIL is held. */
static inline void *dg_room(void *few, size_t room, size_t size) { return size <= room ? few : PyMem_Malloc(size); }
static inline void dg_leave(void *taken, void *few)
{
    if (taken != few)
        PyMem_Free(taken);
}

/* -- device_arrays.c: arrays of another library, as CuPy's -- */
enum { DG_MAX_ARRAYS = 65535, DG_MAX_SYMBOLS = 64, DG_MAX_REGISTERS = 1 << 18, DG_MAX_DIMS = 8 };
typedef struct {
    int ndim;
    npy_intp dims[DG_MAX_DIMS], strides[DG_MAX_DIMS]; /* in bytes */
    npy_intp device, itemsize;
    char *data;
} dg_device_layout;
int dg_device_arrays_start(void);
int dg_device_layout_of(PyObject *object, dg_device_layout *layout); /* 0: it is no such array; no exception is left behind */
PyObject *dg_device_dtype(PyObject *array);                /* null with an exception: it says none */
int dg_device_shape(PyObject *array, npy_intp *dims);      /* the rank; -1, perhaps with an exception: it says none */
char *dg_device_address(PyObject *array);                  /* null with an exception: it says none */

/* -- sizes.c: programs over symbolic sizes -- */
typedef struct {
    int length; /* 0: the constant */
    int64_t constant;
    int64_t *code; /* pairs (operator, operand) */
} dg_size;
int dg_size_parse(PyObject *program, int n_symbols, dg_size *out);
void dg_size_clear(dg_size *size);
int dg_size_run_program(const dg_size *size, const int64_t *symbols, int64_t *out);
/* 0: something in it does not fit into 64 bits */
static inline int dg_size_run(const dg_size *size, const int64_t *symbols, int64_t *out)
{
    if (size->length)
        return dg_size_run_program(size, symbols, out);
    *out = size->constant;
    return 1;
}
/* *out: what it cannot exceed where no symbol is above `bound`, nor anything in it; 0: that does not fit into 64 bits */
int dg_size_most(const dg_size *size, int64_t bound, int64_t *out);
/* whether it fits into 64 bits: by the symbols of a call, or where these are null, wherever no symbol is above `bound` */
int dg_size_fits(const dg_size *size, const int64_t *symbols, int64_t bound);
int64_t dg_safe_bound(int (*fits)(const void *of, int64_t bound), const void *of); /* the greatest power of two that fits, or 0 */
/* of one that fits */
static inline int64_t dg_size_now(const dg_size *size, const int64_t *symbols)
{
    int64_t value = 0;
    dg_size_run(size, symbols, &value);
    return value;
}
typedef struct {
    int n;
    dg_size *all;
} dg_sizes;
int dg_sizes_parse(PyObject *programs, int n_symbols, dg_sizes *out); /* programs: a tuple, or null */
void dg_sizes_clear(dg_sizes *sizes);
int dg_sizes_fit(const dg_sizes *sizes, const int64_t *symbols, int64_t bound); /* as dg_size_fits */
int dg_size_is_bound(const dg_size *size, const unsigned char *bound); /* whether all symbols that it reads are marked */

/* -- signals.c: exceptions of signals' handlers wait until code of the user's runs -- */
typedef struct {
    PyObject *type, *value, *traceback;
} dg_raised;
int dg_take_raised(dg_raised *raised); /* the exception that is set; 0: it is none of a handler's, this is not the main thread */
void dg_drop_raised(dg_raised *raised); /* leaves none */
int dg_set_of_signal(PyObject *function); /* what tells of an exception whether a signal's handler raised it */
int dg_is_of_signal(void); /* whether the exception that is set is one of a handler's */
/* whether the exception that is set is a handler's, or a KeyboardInterrupt: it becomes *late, in place of what was there */
int dg_put_off(dg_raised *late);
/* calls a function until it is not cut off by a signal: args: a tuple, or NULL */
PyObject *dg_call_whole(PyObject *function, PyObject *args, dg_raised *late);
void dg_set_pending_signals(const int32_t *flag);
int dg_have_others(void); /* whether there are other threads */
const int32_t *dg_pending_signals(void); /* the flag that this thread looks at; null: it handles no signals */
/* Calls the handlers of signals that wait: 0: they raised nothing; -1: what they raise is put off, or set if it cannot be. */
int dg_handle_signals(void);
int dg_raise_later(dg_raised *raised); /* when the main thread next looks for signals; -1: it could not be, and is set now */
int dg_pass_on(dg_raised *late); /* likewise what was put off, if anything was and no exception is set now */

/* -- guards.c: what must hold for an entry to serve a call -- */
unsigned int dg_type_version(PyTypeObject *type); /* another one when it or a base has been modified; 0: it can have none */
typedef struct dg_guards dg_guards;
typedef struct dg_session dg_session; /* see sessions.h */

/* what a guard program finds; everything in it is borrowed */
typedef struct {
    PyObject **registers;
    void **inputs;            /* addresses of the inputs' elements, by slot */
    int64_t *sizes;           /* values of the symbols */
    char (*scalars)[16];      /* where the values of scalar inputs stand, by slot */
    PyObject **input_objects; /* by slot */
    PyObject **memo;          /* of the plan's recipes, while it runs */
    PyObject *closure;        /* of the function, or null */
    dg_raised late;           /* owned: what a signal's handler raised while the plan ran */
    dg_session *session;      /* of the loop that the call is a turn of, or null */
    char undisturbed;         /* signals do not stop it */
    char stopped;             /* whether they did */
} dg_frame;

/* drawn: a byte for each input, true where the plan gives it itself: no guard binds it */
dg_guards *dg_guards_new(PyObject *program, int n_registers, int n_inputs, int n_symbols, const unsigned char *drawn);
void dg_guards_free(dg_guards *guards);
int dg_guards_traverse(dg_guards *guards, visitproc visit, void *arg);
/* -1: all hold; else the number of the instruction that does not */
int dg_guards_run(dg_guards *guards, dg_frame *frame, PyObject *closure);

typedef struct {
    const char *low, *high; /* the first byte, and the one after the last */
    int written;
} dg_extent;

/* whether those that are written share no memory with any other; puts their numbers, `order`, in order of addresses */
int dg_extents_are_disjoint(const dg_extent *extents, uint32_t *order, uint32_t *spare, uint32_t n);
void dg_set_errstate(PyObject *variable, PyObject *harmless); /* see module.c */
/* how many parameters the program reads, given that what follows it reads the registers of `read`; written: a 0 for each register */
int dg_guards_parameters(const dg_guards *guards, int n_registers, const unsigned char *read, unsigned char *written);

/* -- plan.c: what an entry does -- */
typedef struct dg_plan dg_plan;
extern PyTypeObject dg_LibraryType, dg_MappingType;
extern PyTypeObject dg_NativePlanType, dg_PythonPlanType;
int dg_plan_inputs(PyObject *plan);
int dg_plan_symbols(PyObject *plan);
const unsigned char *dg_plan_drawn(PyObject *plan); /* as dg_guards_new's */
int dg_plan_improves(PyObject *plan); /* whether better code may yet take the place of what runs */
int dg_plan_reads(PyObject *plan, unsigned char *read); /* as dg_recipe_reads */
/* Where the result is that of a call, gives its arguments as a tuple and the callable in *callee (a new reference) for the
   caller to call: by then nothing but the tuple keeps the values alive, and the stack is short again.  Else *callee is null.
   `owner` (or null): a reference to what keeps the parameters alive, which is cleared once the plan holds what it reads, unless it
   may bail out.  NULL without an exception: the plan bails out, or has been stopped, and nothing has happened yet. */
PyObject *dg_plan_run(PyObject *plan, dg_frame *frame, PyObject **owner, PyObject **callee);

/* -- product.c: products of matrices by cuBLASLt -- */
typedef struct dg_product dg_product;
extern PyTypeObject dg_ProductType;
enum { DG_BIAS = 4, DG_OPERANDS }; /* A, B, C, D, then the bias, whose address is null where there is none */
int64_t dg_product_workspace(const dg_product *product);
/* starts it and gives cuBLASLt's status; the GIL is held */
int dg_product_run(const dg_product *product, char *const *operands, void *workspace, void *stream);

/* -- launcher.c: kernels of a device -- */
typedef struct dg_launcher dg_launcher;
extern PyTypeObject dg_LauncherType;
int dg_launcher_results(PyObject *launcher);
int dg_launcher_fits(PyObject *launcher, int n_inputs, int n_symbols, int n_outputs); /* whether it is of a plan with these */
/* 1: `outputs` are filled; 0: this call is not for the launcher, and nothing has happened; -1: an exception is set */
int dg_launcher_run(PyObject *launcher, dg_frame *frame, PyObject **outputs);

/* -- recipe.c: building what a call returns -- */
typedef struct dg_recipe dg_recipe;
typedef struct {
    dg_frame *frame;
    PyObject **outputs; /* owned by the plan */
} dg_results;
dg_recipe *dg_recipe_new(PyObject *description, int n_outputs, int n_symbols, int *n_memo);
void dg_recipe_free(dg_recipe *recipe);
int dg_recipe_traverse(dg_recipe *recipe, visitproc visit, void *arg);
PyObject *dg_recipe_build(const dg_recipe *recipe, dg_results *results);
PyObject *dg_recipe_build_last(const dg_recipe *recipe, dg_results *results, PyObject **callee); /* callee: as dg_plan_run's */
int dg_recipe_is_quiet(const dg_recipe *recipe); /* whether building it runs no Python code */
/* marks the registers that the recipe reads, if there is an array of marks; gives the highest one, or -1 */
int dg_recipe_reads(const dg_recipe *recipe, unsigned char *read);
/* whether all sizes in it fit into 64 bits, in bytes where they are of views */
int dg_recipe_fits(const dg_recipe *recipe, const int64_t *sizes);
int dg_recipe_fits_below(const dg_recipe *recipe, int64_t bound); /* ... where no symbol is above `bound` */

/* -- tail.c: calls to be made by the trampoline -- */
typedef struct {
    PyObject_VAR_HEAD
    PyObject *function;
    PyObject *args[1];
} dg_tail;
extern PyObject *dg_plainly; /* what on_miss gives for a plain call of the function */
void dg_note_compiling(double nanoseconds);
int dg_set_clock(PyObject *clock);
/* what pickles compiled functions: reducer(compiled) -> as __reduce__ gives it; carrier(compiled) -> its attribute _carrier */
void dg_set_reducer(PyObject *reducer, PyObject *carrier);
extern PyTypeObject dg_TailType;
dg_tail *dg_tail_new(PyObject *function, Py_ssize_t n); /* arguments null and not tracked: for the caller to fill and track */
PyObject *dg_tail_of(PyObject *function, PyObject *const *args, Py_ssize_t n);
PyObject *dg_tails_new(void); /* what makes a tail by being subscripted */

/* -- native_loop.c -- */
extern PyTypeObject dg_NativeLoopType;

/* -- host_loop.c -- */
extern PyTypeObject dg_HostLoopType;

/* -- grad_modes.c -- */
enum {
    DG_GRAD = 1,
    DG_INFERENCE = 2,
    DG_ANOMALY = 4,
    DG_CHECK_NAN = 8,
    DG_HOOKED = 16,
    DG_AUTOCAST = 32,
    DG_AUTOCAST_CPU = 64,
    DG_AUTOCAST_CUDA = 128,
    DG_AUTOCAST_CACHE = 256,
    DG_AUTOCAST_CPU_DTYPE = 31 << 9,
    DG_AUTOCAST_CUDA_DTYPE = 31 << 14,
    DG_UNHOOKABLE = 1 << 19,
};
extern PyTypeObject dg_GradModesType;
int dg_grad_modes(void); /* of this thread */

/* -- crc32.c -- */
int dg_crc32_ready(void);
PyObject *dg_crc32(PyObject *module, PyObject *args);
PyObject *dg_read_crc32(PyObject *module, PyObject *args);
PyObject *dg_write_crc32(PyObject *module, PyObject *args);

/* -- by_size.c -- */
PyObject *dg_by_size(PyObject *module, PyObject *args);
PyObject *dg_any_large(PyObject *module, PyObject *args);
int dg_are_large(PyObject *const *arrays, Py_ssize_t n, npy_intp size); /* NumPy's, or numbers, and one has as many elements */

/* -- where.c -- */
PyObject *dg_own_where(PyObject *module, PyObject *args);

/* -- run_each.c: calls of one function as one region -- */
PyObject *dg_run_each(PyObject *module, PyObject *args);

/* -- step_rows.c: the arrays of optimizers' steps -- */
PyObject *dg_step_rows(PyObject *module, PyObject *args);
PyObject *dg_fill_numbers(PyObject *module, PyObject *args);
/* -- recurrent.c -- */
PyObject *dg_recurrent_forward(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *dg_recurrent_backward(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *dg_recurrent_before(PyObject *module, PyObject *args);
PyObject *dg_recurrent_cell(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject *dg_recurrent_cell_backward(PyObject *module, PyObject *args, PyObject *kwargs);

/* -- tensor_calls.c -- */
PyObject *dg_set_tensor_calls(PyObject *module, PyObject *args);

/* -- tensor_backward.c -- */
PyObject *dg_set_tensor_backward(PyObject *module, PyObject *functions);
PyObject *dg_observe_tensor_calls(PyObject *module, PyObject *function);

/* -- loop_rests.c -- */
extern PyTypeObject dg_RestType;
int dg_rests_ready(void); /* -1: an exception is set */

/* -- loop_calls.c -- */
int dg_calls_ready(void); /* -1: an exception is set */
int dg_lists_ready(void); /* -1: an exception is set */
int dg_boxes_ready(void); /* -1: an exception is set */

/* -- loop_turns.c: turns of loops on threads -- */
void dg_run_turns(const dg_runtime *rt, dg_stop *stop, dg_worth *worth, const dg_loop_turns *loop);

/* -- external_call.c: Python functions that generated code calls -- */
typedef struct {
    PyObject *function; /* (number, sizes, operands, results) -> None */
    int n_sizes;
} dg_callee;
int dg_external_call(void *program, int32_t number, const int64_t *sizes, int32_t n_operands, const dg_array *operands,
                int32_t n_results, const dg_array *results);

/* -- python_plan.c -- */
/* Whether the exception that is set came after arguments had been written to, or after an effect that others see, as the program says:
   the plain run would do it again. */
int dg_is_final(void);

/* -- tracebacks.c -- */
extern int dg_full_tracebacks;
void dg_hide_our_frames(void); /* from the exception that is set */

/* -- entry.c, compiled_function.c, binding.c: see entries.h as well -- */
extern PyTypeObject dg_EntryType, dg_CompiledFunctionType;
/* the bound parameters in order of co_varnames as a new tuple; NULL without an exception: the call does not fit */
PyObject *dg_bind(PyObject *function, PyObject *const *args, Py_ssize_t n_args, PyObject *kwnames);
extern PyObject *dg_GuardError;
extern PyObject *const *dg_monitoring_tools; /* or null: names of sys.monitoring's tools, by number; null where there is none */

#endif
