/* Shared by the files of entries: an entry, which way its calls go, and what it is run on. */
#ifndef DG_ENTRIES_H
#define DG_ENTRIES_H
#include "core.h"

/* -- timing.c: the faster way of a call, the program or the plain function -- */

enum { DG_NEW, DG_MEASURED, DG_SERVES, DG_STAYS_EAGER };
enum { DG_SIZE_CLASSES = 40 };

/* the least times of both ways in nanoseconds, 0: none yet */
typedef struct {
    double plain, compiled;
} dg_times;

/* which way calls go, for an entry, or for a class of the sizes that it serves */
typedef struct {
    char way, plain;                  /* plain: where it is measured, the way that calls go now */
    int n_calls, n_bursts;            /* samples of this burst, and bursts that have ended, since `way` became MEASURED */
    int n_plain, n_compiled;          /* samples since the entry was made */
    int n_decisions;
    dg_times best;                    /* of all sizes of the class */
    dg_times same;                    /* of calls with these sizes, which are comparable */
    uint64_t sizes;
    int n_others;                     /* samples of other sizes in a row */
    unsigned long long left, taken;   /* calls until it is measured again; calls so far */
} dg_choice;

typedef struct {
    PyObject_HEAD
    dg_guards *guards;
    PyObject *plan;
    PyObject *closure; /* of the function, for "closure" guards; set when the entry is added */
    int n_inputs;
    int n_registers, n_parameters; /* how many values the guards and the plan read, at least */
    unsigned long long hits, plain;
    int n_symbols, n_choices; /* one choice for each class of sizes; none: the program serves always */
    int unasked;              /* calls in a row that run eagerly without asking the guards, where it stays eager */
    dg_choice *choices;
} dg_entry;

/* what the system knows of this thread */
typedef struct {
    double running;   /* nanoseconds on a processor */
    long waits, lost; /* how often it waited, and had to leave the processor to others */
} dg_thread_times;

/* one call of a function that has measured entries */
typedef struct {
    dg_entry *entry; /* a reference; null: no measured entry serves it */
    dg_choice *of;
    uint64_t sizes; /* a number for the sizes of the call */
    int plain;
    double start, compiling;
    dg_thread_times before;
} dg_trial;

void dg_trial_start(dg_trial *measured);
void dg_trial_end(dg_trial *measured, int succeeded); /* of one that has an entry */

/* a plain call that is timed */
typedef struct {
    double start, counted;
} dg_stopwatch;

dg_stopwatch dg_stopwatch_start(void);
double dg_stopwatch_stop(dg_stopwatch watch); /* nanoseconds that no timed call within it has counted */

/* Sizes of one class differ by less than a factor of two, so times of one class can be compared as far as that; those of the same sizes
   can be compared as they are. */
static inline dg_choice *dg_choice_of(const dg_entry *entry, const int64_t *sizes)
{
    int bits = 0;
    if (entry->n_choices > 1) {
        for (int k = 0; k < entry->n_symbols; ++k)
            bits += sizes[k] > 0 ? 64 - __builtin_clzll((unsigned long long)sizes[k]) : 0;
        bits = bits < DG_SIZE_CLASSES ? bits : DG_SIZE_CLASSES - 1;
    }
    return &entry->choices[bits];
}

static inline uint64_t dg_number_of_sizes(const dg_entry *entry, const int64_t *sizes)
{
    uint64_t number = 0;
    for (int k = 0; k < entry->n_symbols; ++k)
        number = (number ^ (uint64_t)sizes[k]) * 0x9E3779B97F4A7C15u; /* Fibonacci hashing: Knuth, TAOCP 3, 6.4 */
    return number;
}

int dg_entry_is_any(const dg_entry *entry, int way);   /* whether calls of some sizes go this way */
double dg_entry_least_plain(const dg_entry *entry);    /* the least that a plain call took, of all sizes; 0: none was measured */

/* -- entry.c -- */

/* what a frame lies in: large ones, in part, on the heap */
typedef struct {
    int n_registers, n_inputs; /* that there is room for */
    void *heap;                /* or null */
    int64_t sizes[DG_MAX_SYMBOLS];
    PyObject *registers[DG_FEW_REGISTERS];
    void *inputs[DG_FEW_ARRAYS];
    PyObject *input_objects[DG_FEW_ARRAYS];
    char scalars[DG_FEW_ARRAYS][16];
} dg_frame_memory;

static inline dg_frame dg_frame_over(dg_frame_memory *memory)
{
    memory->n_registers = DG_FEW_REGISTERS;
    memory->n_inputs = DG_FEW_ARRAYS;
    memory->heap = NULL;
    return (dg_frame){.registers = memory->registers, .inputs = memory->inputs, .sizes = memory->sizes, .scalars = memory->scalars,
                      .input_objects = memory->input_objects};
}

int dg_frame_grow(dg_frame_memory *memory, dg_frame *frame, const dg_entry *entry); /* 0 without an exception: there is no memory */
/* makes room for an entry; what is in the frame is forgotten */
static inline int dg_frame_fit(dg_frame_memory *memory, dg_frame *frame, const dg_entry *entry)
{
    return (entry->n_registers <= memory->n_registers && entry->n_inputs <= memory->n_inputs) || dg_frame_grow(memory, frame, entry);
}
static inline void dg_frame_leave(dg_frame_memory *memory)
{
    if (memory->heap)
        PyMem_Free(memory->heap);
}

/* What the plan of an entry gives whose guards hold; `entry` is a reference of the caller's.  owner, callee: as dg_plan_run's. */
PyObject *dg_entry_run_guarded(dg_entry *entry, dg_frame *frame, PyObject *closure, PyObject **owner, PyObject **callee);

/* -- compiled_function.c -- */

/* the result of a plan, calling what is left to be called; takes both references */
PyObject *dg_finish(PyObject *result, PyObject *callee);
PyObject *dg_follow_tails(PyObject *result); /* makes the calls that tails ask for, until there is a result; takes the reference */

#endif
