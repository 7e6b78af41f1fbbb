/* Entries, and the callable that tries them in turn: the hot path of every compiled function. */
#include "core.h"

#include <structmember.h>
#include <sys/resource.h>
#include <time.h>

PyObject *dg_GuardError, *dg_plainly;

/* the result of a plan, calling what is left to be called; takes both references */
static PyObject *finish(PyObject *result, PyObject *callee)
{
    if (!callee)
        return result;
    /* Python functions count for themselves: on 3.11 there is one count for all calls, and theirs should go as deep as ever */
    int counted = !PyFunction_Check(callee);
    PyObject *args = result;
    if (counted && Py_EnterRecursiveCall(" in a plan") != 0) {
        result = NULL;
    } else {
        result = PyObject_Vectorcall(callee, &PyTuple_GET_ITEM(args, 0), (size_t)PyTuple_GET_SIZE(args), NULL);
        if (counted)
            Py_LeaveRecursiveCall();
    }
    Py_DECREF(args);
    Py_DECREF(callee);
    return result;
}

/* whether finish() calls a Python function, or what calls the one that it is given first, as call_watched does */
static int starts_function(PyObject *args, PyObject *callee)
{
    return callee && (PyFunction_Check(callee) || (PyTuple_GET_SIZE(args) > 0 && PyFunction_Check(PyTuple_GET_ITEM(args, 0))));
}

typedef struct trial trial;
static PyObject *dispatch(PyObject *function, PyObject *const *args, Py_ssize_t n_args, PyObject *kwnames, PyObject **owner,
                          int *quiet, trial *measured);

/* makes the calls that tails ask for, until there is a result; takes the reference */
static PyObject *follow_tails(PyObject *result)
{
    unsigned n_quiet = 0; /* calls in a row in which no Python function started */
    while (result && Py_IS_TYPE(result, &dg_TailType)) {
        /* What the interpreter does in its loops: plans alone may go on for ever. Where continuations run between them it is left
           to those, always: their code is within the try blocks of the user's, and an exception from here is not. */
        int interrupted = 0, quiet;
        if (n_quiet == 1024) {
            n_quiet = 0;
            Py_BEGIN_ALLOW_THREADS
            Py_END_ALLOW_THREADS
            interrupted = PyErr_CheckSignals() < 0;
        }
        PyObject *tail = result, *function = Py_NewRef(((dg_tail *)tail)->function);
        PyObject *const *args = ((dg_tail *)tail)->args;
        quiet = !PyFunction_Check(function);
        if (interrupted)
            result = NULL;
        else if (Py_IS_TYPE(function, &dg_CompiledFunctionType))
            result = dispatch(function, args, Py_SIZE(tail), NULL, &tail, &quiet, NULL);
        else
            result = PyObject_Vectorcall(function, args, (size_t)Py_SIZE(tail), NULL);
        n_quiet = quiet ? n_quiet + 1 : 0;
        Py_XDECREF(tail);
        Py_DECREF(function);
    }
    return result;
}

/* -- entries --------------------------------------------------------------------------------------------------------------- */

/* which way calls go, for an entry, or for a class of the sizes that it serves */
typedef struct {
    char way, plain;                  /* plain: where it is measured, the way that calls go now */
    int n_calls, n_bursts;            /* samples of this burst, and bursts that have ended, since `way` became MEASURED */
    int n_plain, n_compiled;          /* samples since the entry was made */
    int n_decisions;
    double best_plain, best_compiled; /* nanoseconds, 0: none yet */
    unsigned long long left, taken;   /* calls until it is measured again; calls so far */
} choice;

typedef struct {
    PyObject_HEAD
    dg_guards *guards;
    PyObject *plan;
    PyObject *closure; /* of the function, for "closure" guards; set when the entry is added */
    int n_registers, n_parameters; /* how many values the guards and the plan read, at least */
    unsigned long long hits, plain;
    int n_symbols, n_choices; /* one choice for each class of sizes; none: the program serves always */
    int unasked;              /* calls in a row that run plainly without asking the guards, where it stays eager */
    choice *choices;
} entry_object;

/* -- the faster way -----------------------------------------------------------------------------------------------------------

   Of the first calls that an entry could serve some run plainly, and the faster way takes the rest. Both are right; what they cost
   only the machine knows. It is asked again, ever more rarely.

   Calls go one way, then the other, in bursts: a short call is slower where it comes after one that went the other way. What counts is
   the least time of a way: disturbances only add. */

enum { NEW, MEASURED, SERVES, STAYS_EAGER };
enum {
    SIZE_CLASSES = 40,
    LONGEST_BURST = 16,   /* calls, */
    BURST_TIME = 100000,  /* or nanoseconds, whichever is reached first */
    MAX_BURSTS = 10,      /* of both ways together, until the faster one is chosen, however close they are */
    UNDISTURBED = 10000000 /* nanoseconds: another process's turn is not half as long */
};

/* what the system knows of this thread */
typedef struct {
    double running;   /* nanoseconds on a processor */
    long waits, lost; /* how often it waited, and had to leave the processor to others */
} thread_times;

/* one call of a function that has measured entries */
struct trial {
    entry_object *entry; /* a reference; null: no measured entry serves it */
    choice *of;
    int plain;
    double start, compiling;
    thread_times before;
};

static PyObject *clock_of_tests; /* gives seconds */

int dg_set_clock(PyObject *clock)
{
    if (clock != Py_None && !PyCallable_Check(clock)) {
        PyErr_Format(PyExc_TypeError, "set_clock: expected a callable or None, got %R", clock);
        return -1;
    }
    Py_XSETREF(clock_of_tests, clock == Py_None ? NULL : Py_NewRef(clock));
    return 0;
}

static double nanoseconds(void)
{
    if (clock_of_tests) {
        PyObject *type, *value, *traceback, *seconds; /* a call may just have failed */
        PyErr_Fetch(&type, &value, &traceback);
        seconds = PyObject_CallNoArgs(clock_of_tests);
        double now = seconds ? 1e9 * PyFloat_AsDouble(seconds) : 0;
        Py_XDECREF(seconds);
        PyErr_Restore(type, value, traceback);
        return now;
    }
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e9 * (double)now.tv_sec + (double)now.tv_nsec;
}

static thread_times times_of_thread(void)
{
    thread_times now = {0};
#ifdef RUSAGE_THREAD
    struct timespec running;
    struct rusage usage;
    if (clock_of_tests || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &running) != 0 || getrusage(RUSAGE_THREAD, &usage) != 0)
        return now;
    now = (thread_times){1e9 * (double)running.tv_sec + (double)running.tv_nsec, usage.ru_nvcsw, usage.ru_nivcsw};
#endif
    return now;
}

/* Sizes of one class differ by less than a factor of two, so times of one class can be compared as far as that. */
static inline choice *choice_of(const entry_object *entry, const int64_t *sizes)
{
    int bits = 0;
    if (entry->n_choices > 1) {
        for (int k = 0; k < entry->n_symbols; ++k)
            bits += sizes[k] > 0 ? 64 - __builtin_clzll((unsigned long long)sizes[k]) : 0;
        bits = bits < SIZE_CLASSES ? bits : SIZE_CLASSES - 1;
    }
    return &entry->choices[bits];
}

/* how much slower the program has to be for calls to run plainly */
static double handicap(const entry_object *entry) { return entry->n_choices > 1 ? 2.0 : 1.0; }

/* Decides which way to take, and for how many calls: what the other way costs is to be a hundredth of what these calls do. */
static void decide(const entry_object *entry, choice *of)
{
    if (of->best_plain == 0 || of->best_compiled == 0)
        return;
    double plain = of->best_plain * handicap(entry), compiled = of->best_compiled;
    double ratio = plain < compiled ? compiled / plain : plain / compiled, slower = plain < compiled ? of->best_compiled : of->best_plain;
    int n_slower = plain < compiled ? of->n_compiled : of->n_plain;
    /* two samples are not both disturbed so much; of short calls a burst may be, where the processor runs slowly meanwhile */
    int is_short = slower * LONGEST_BURST < BURST_TIME;
    int is_clear = ratio > 1.5 && (n_slower > 1 || slower > UNDISTURBED) && (!is_short || of->n_bursts > 3 || of->n_decisions);
    if (of->n_decisions == 0 && !is_clear && of->n_bursts < MAX_BURSTS)
        return;
    of->way = plain < compiled ? STAYS_EAGER : SERVES;
    double n_again = is_short ? LONGEST_BURST : 1 + BURST_TIME / slower; /* calls of the slower way */
    of->left = of->taken + 8 + (unsigned long long)(100 * ratio * n_again);
    if (of->way == SERVES && ratio > 8 && is_clear && of->n_plain > 1)
        of->left = 0;
    of->n_bursts = 0;
    of->n_decisions = 1;
}

/* A sample: the way that calls go changes where it ends a burst. */
static void note_sample(const entry_object *entry, choice *of, int plain, double took)
{
    double *best = plain ? &of->best_plain : &of->best_compiled;
    *best = *best == 0 || took < *best ? took : *best;
    of->n_plain += plain;
    of->n_compiled += !plain;
    if (plain != of->plain) /* of another thread, or of a call around this one */
        return;
    if (++of->n_calls < LONGEST_BURST && of->n_calls * *best < BURST_TIME)
        return;
    of->n_calls = 0;
    of->plain = !plain;
    if (++of->n_bursts > 1)
        decide(entry, of);
}

/* Nanoseconds of this thread that no call may count as its own: compiling, and those that calls within it have counted. */
static _Thread_local double compiling, counted;

void dg_note_compiling(double took)
{
    compiling += took;
    counted += took;
}

/* Nanoseconds of the call. Where others took the processor, and it waited for nothing, their time is not its own. */
static double duration(const trial *measured)
{
    double took = nanoseconds() - measured->start;
    thread_times now = times_of_thread();
    if (now.lost != measured->before.lost && now.waits == measured->before.waits)
        took = now.running - measured->before.running;
    took -= compiling - measured->compiling;
    return took > 1 ? took : 1;
}

static void end_trial(trial *measured, int succeeded)
{
    choice *of = measured->of;
    if (succeeded && of->way == MEASURED)
        note_sample(measured->entry, of, measured->plain, duration(measured));
    Py_DECREF(measured->entry);
}

typedef struct {
    PyObject *registers[DG_MAX_REGISTERS];
    void *inputs[DG_MAX_ARRAYS];
    PyObject *input_objects[DG_MAX_ARRAYS];
    char scalars[DG_MAX_ARRAYS][16];
    int64_t sizes[DG_MAX_SYMBOLS];
} frame_memory;

static inline dg_frame frame_over(frame_memory *memory)
{
    return (dg_frame){memory->registers, memory->inputs, memory->sizes, memory->scalars, memory->input_objects, NULL, {0}, 0, 0};
}

static PyObject *entry_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"guards", "n_registers", "plan", "closure", "measured", "unasked", NULL};
    PyObject *program, *plan, *closure = Py_None;
    int n_registers, measured = 0, unasked = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OiO|Opi:Entry", names, &program, &n_registers, &plan, &closure, &measured, &unasked))
        return NULL;
    if (unasked < 0 || (unasked && !measured))
        return PyErr_Format(PyExc_ValueError, "Entry: unasked=%d; at least 0, and 0 where it is not measured", unasked);
    if (!Py_IS_TYPE(plan, &dg_NativePlanType) && !Py_IS_TYPE(plan, &dg_PythonPlanType))
        return PyErr_Format(PyExc_TypeError, "Entry: expected a NativePlan or PythonPlan, got %s", Py_TYPE(plan)->tp_name);
    if (n_registers < 0 || n_registers > DG_MAX_REGISTERS)
        return PyErr_Format(PyExc_ValueError, "Entry: %d registers; at most %d are possible", n_registers, DG_MAX_REGISTERS);
    int cells = closure == Py_None || PyTuple_Check(closure);
    for (Py_ssize_t k = 0; closure != Py_None && cells && k < PyTuple_GET_SIZE(closure); ++k)
        cells = PyCell_Check(PyTuple_GET_ITEM(closure, k));
    if (!cells)
        return PyErr_Format(PyExc_TypeError, "Entry: closure must be a tuple of cells, got %R", closure);
    unsigned char read[DG_MAX_REGISTERS] = {0};
    if (dg_plan_reads(plan, read) >= n_registers)
        return PyErr_Format(PyExc_ValueError, "Entry: the plan's result reads a register beyond the %d of the entry", n_registers);
    entry_object *entry = (entry_object *)type->tp_alloc(type, 0);
    if (!entry)
        return NULL;
    entry->n_registers = n_registers;
    entry->plan = Py_NewRef(plan);
    entry->unasked = unasked;
    entry->n_symbols = dg_plan_symbols(plan);
    entry->n_choices = !measured ? 0 : entry->n_symbols ? SIZE_CLASSES : 1;
    entry->choices = measured ? PyMem_Calloc((size_t)entry->n_choices, sizeof(choice)) : NULL;
    if (measured && !entry->choices) {
        Py_DECREF(entry);
        return PyErr_NoMemory();
    }
    for (int k = 0; k < entry->n_choices; ++k)
        entry->choices[k].plain = 1;
    if (entry->n_choices == 1)
        entry->choices->way = MEASURED;
    entry->closure = closure == Py_None ? NULL : Py_NewRef(closure);
    entry->guards = dg_guards_new(program, n_registers, dg_plan_inputs(plan), dg_plan_symbols(plan), dg_plan_drawn(plan));
    if (!entry->guards) {
        Py_DECREF(entry);
        return NULL;
    }
    entry->n_parameters = dg_guards_parameters(entry->guards, n_registers, read);
    return (PyObject *)entry;
}

static int entry_clear(entry_object *entry)
{
    dg_guards *guards = entry->guards;
    entry->guards = NULL;
    dg_guards_free(guards);
    Py_CLEAR(entry->plan);
    Py_CLEAR(entry->closure);
    return 0;
}

static void entry_dealloc(entry_object *entry)
{
    PyObject_GC_UnTrack(entry);
    entry_clear(entry);
    PyMem_Free(entry->choices);
    Py_TYPE(entry)->tp_free(entry);
}

static int entry_traverse(entry_object *entry, visitproc visit, void *arg)
{
    Py_VISIT(entry->plan);
    Py_VISIT(entry->closure);
    return dg_guards_traverse(entry->guards, visit, arg);
}

/* -2: an exception; -1: the guards hold */
static int check_values(entry_object *entry, PyObject *values, frame_memory *memory, dg_frame *frame)
{
    if (!PyTuple_Check(values) || PyTuple_GET_SIZE(values) > entry->n_registers) {
        PyErr_Format(PyExc_TypeError, "Entry: expected a tuple of at most %d bound parameters, got %R", entry->n_registers, values);
        return -2;
    }
    if (PyTuple_GET_SIZE(values) < entry->n_parameters || !entry->guards) {
        PyErr_Format(PyExc_TypeError, "Entry: the guards read %d parameters, got %zd", entry->n_parameters, PyTuple_GET_SIZE(values));
        return -2;
    }
    *frame = frame_over(memory);
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(values); ++k)
        memory->registers[k] = PyTuple_GET_ITEM(values, k);
    return dg_guards_run(entry->guards, frame, entry->closure);
}

static PyObject *entry_check(entry_object *entry, PyObject *values)
{
    frame_memory memory;
    dg_frame frame;
    int failed = check_values(entry, values, &memory, &frame);
    if (failed == -2)
        return NULL;
    if (failed == -1)
        Py_RETURN_NONE;
    return PyLong_FromLong(failed);
}

enum { MOST_STOPS = 2 }; /* of one call: behind them it runs to its end, whatever signals come */

/* What the plan of an entry gives whose guards hold; `entry` is a reference of the caller's.

   Signals stop native code before it has done anything that anybody sees, and are handled then. Where a handler raises, the call is
   refused: the plain function raises it, within the user's try blocks. Else the plan runs again, if the guards still hold. */
static PyObject *run_guarded(entry_object *entry, dg_frame *frame, PyObject *closure, PyObject **owner, PyObject **callee)
{
    for (int stops = 0;; ++stops) {
        frame->undisturbed = stops == MOST_STOPS;
        frame->stopped = 0;
        frame->late = (dg_raised){0};
        PyObject *result = dg_plan_run(entry->plan, frame, owner, callee);
        if (!frame->stopped || dg_handle_signals() < 0)
            return result;
        if (!entry->guards || dg_guards_run(entry->guards, frame, closure) != -1)
            return NULL;
    }
}

/* in a function of its own: this much memory should not stay on the stack while the result's callee runs */
static __attribute__((noinline)) PyObject *run_plan(entry_object *entry, PyObject *values, PyObject *other, PyObject **callee)
{
    frame_memory memory;
    dg_frame frame;
    int failed = check_values(entry, values, &memory, &frame);
    if (failed == -2)
        return NULL;
    if (failed >= 0)
        return other ? Py_NewRef(other) : PyErr_Format(dg_GuardError, "guard %d does not hold", failed);
    Py_INCREF(entry);
    Py_INCREF(values);
    PyObject *result = run_guarded(entry, &frame, entry->closure, NULL, callee);
    if (!result && !PyErr_Occurred())
        result = other ? Py_NewRef(other) : PyErr_Format(dg_GuardError, "the program refuses the call");
    Py_DECREF(values);
    Py_DECREF(entry);
    return result;
}

static PyObject *entry_run(entry_object *entry, PyObject *values)
{
    PyObject *callee = NULL, *result = run_plan(entry, values, NULL, &callee);
    return finish(result, callee);
}

static PyObject *entry_run_or(entry_object *entry, PyObject *const *args, Py_ssize_t n_args)
{
    if (n_args != 2)
        return PyErr_Format(PyExc_TypeError, "run_or: expected values and another result, got %zd arguments", n_args);
    PyObject *callee = NULL, *result = run_plan(entry, args[0], args[1], &callee);
    return finish(result, callee);
}

static PyObject *entry_call(entry_object *entry, PyObject *values) { return follow_tails(entry_run(entry, values)); }

static PyObject *entry_call_or(entry_object *entry, PyObject *const *args, Py_ssize_t n_args)
{
    return follow_tails(entry_run_or(entry, args, n_args));
}

static PyMethodDef entry_methods[] = {
    {"check", (PyCFunction)entry_check, METH_O,
     "check(values) -> None where all guards hold, else the number of the first instruction that does not"},
    {"run", (PyCFunction)entry_run, METH_O,
     "run(values) -> what the plan gives, a Tail perhaps; GuardError where a guard does not hold"},
    {"run_or", (PyCFunction)(void (*)(void))entry_run_or, METH_FASTCALL,
     "run_or(values, other) -> run(values), or `other` where a guard does not hold"},
    {"call_or", (PyCFunction)(void (*)(void))entry_call_or, METH_FASTCALL,
     "call_or(values, other): run_or(values, other), and the calls that tails ask for"},
    {"call", (PyCFunction)entry_call, METH_O, "call(values): run(values), and the calls that tails ask for"},
    {0},
};

static PyMemberDef entry_members[] = {
    {"hits", T_ULONGLONG, offsetof(entry_object, hits), READONLY, "calls that this entry served"},
    {"plan", T_OBJECT, offsetof(entry_object, plan), READONLY, NULL},
    {0},
};

static int is_any(const entry_object *entry, int way)
{
    int found = 0;
    for (int k = 0; k < entry->n_choices; ++k)
        found |= entry->choices[k].way == way;
    return found;
}

/* the least that a plain call took, of all sizes; 0: none was measured */
static double least_plain(const entry_object *entry)
{
    double least = 0;
    for (int k = 0; k < entry->n_choices; ++k) {
        double best = entry->choices[k].best_plain;
        least = best != 0 && (least == 0 || best < least) ? best : least;
    }
    return least;
}

static PyObject *stays_eager(entry_object *entry, void *ignored) { return PyBool_FromLong(is_any(entry, STAYS_EAGER)); }

static PyGetSetDef entry_getset[] = {
    {"stays_eager", (getter)stays_eager, NULL, "whether calls that it could serve run plainly, as that was measured to be faster", NULL},
    {0},
};

PyTypeObject dg_EntryType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dynagraph._core._dispatch.Entry",
    .tp_basicsize = sizeof(entry_object),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Entry(guards, n_registers, plan, closure=None, measured=False, unasked=0): a plan, and what must hold for it to serve a "
              "call.",
    .tp_new = entry_new,
    .tp_dealloc = (destructor)entry_dealloc,
    .tp_traverse = (traverseproc)entry_traverse,
    .tp_clear = (inquiry)entry_clear,
    .tp_free = PyObject_GC_Del,
    .tp_methods = entry_methods,
    .tp_members = entry_members,
    .tp_getset = entry_getset,
};

/* -- binding --------------------------------------------------------------------------------------------------------------- */

static int same_name(PyObject *a, PyObject *b)
{
    return a == b || PyUnicode_Compare(a, b) == 0;
}

PyObject *dg_bind(PyObject *function, PyObject *const *args, Py_ssize_t n_args, PyObject *kwnames)
{
    PyCodeObject *code = (PyCodeObject *)PyFunction_GET_CODE(function);
    PyObject *defaults = PyFunction_GET_DEFAULTS(function), *kw_defaults = PyFunction_GET_KW_DEFAULTS(function);
    Py_ssize_t n_positional = code->co_argcount, n_named = n_positional + code->co_kwonlyargcount;
    int has_args = !!(code->co_flags & CO_VARARGS), has_kwargs = !!(code->co_flags & CO_VARKEYWORDS);
    if (n_args > n_positional && !has_args)
        return NULL;
    PyObject *names = PyCode_GetVarnames(code);
    PyObject *values = names ? PyTuple_New(n_named + has_args + has_kwargs) : NULL;
    PyObject *extra = NULL;
    if (!values)
        goto fail;
    Py_ssize_t direct = n_args < n_positional ? n_args : n_positional;
    for (Py_ssize_t k = 0; k < direct; ++k)
        PyTuple_SET_ITEM(values, k, Py_NewRef(args[k]));
    if (has_args) {
        PyObject *rest = PyTuple_New(n_args - direct);
        if (!rest)
            goto fail;
        for (Py_ssize_t k = direct; k < n_args; ++k)
            PyTuple_SET_ITEM(rest, k - direct, Py_NewRef(args[k]));
        PyTuple_SET_ITEM(values, n_named, rest);
    }
    if (has_kwargs) {
        if (!(extra = PyDict_New()))
            goto fail;
        PyTuple_SET_ITEM(values, n_named + has_args, extra);
    }
    for (Py_ssize_t j = 0; kwnames && j < PyTuple_GET_SIZE(kwnames); ++j) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, j), *value = args[n_args + j];
        Py_ssize_t k = code->co_posonlyargcount;
        while (k < n_named && !same_name(PyTuple_GET_ITEM(names, k), name))
            ++k;
        if (k < n_named) {
            if (PyTuple_GET_ITEM(values, k))
                goto fail; /* given twice */
            PyTuple_SET_ITEM(values, k, Py_NewRef(value));
        } else if (!has_kwargs || PyDict_SetItem(extra, name, value) < 0) {
            goto fail;
        }
    }
    Py_ssize_t n_defaults = defaults ? PyTuple_GET_SIZE(defaults) : 0;
    for (Py_ssize_t k = direct; k < n_positional; ++k)
        if (!PyTuple_GET_ITEM(values, k)) {
            if (k < n_positional - n_defaults)
                goto fail;
            PyTuple_SET_ITEM(values, k, Py_NewRef(PyTuple_GET_ITEM(defaults, k - (n_positional - n_defaults))));
        }
    for (Py_ssize_t k = n_positional; k < n_named; ++k)
        if (!PyTuple_GET_ITEM(values, k)) {
            PyObject *value = kw_defaults ? PyDict_GetItemWithError(kw_defaults, PyTuple_GET_ITEM(names, k)) : NULL;
            if (!value)
                goto fail;
            PyTuple_SET_ITEM(values, k, Py_NewRef(value));
        }
    Py_DECREF(names);
    return values;
fail:
    Py_XDECREF(names);
    Py_XDECREF(values);
    PyErr_Clear();
    return NULL;
}

/* -- the callable ---------------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *function, *on_miss, *dict, *weakrefs;
    PyObject *code; /* the one that the entries were made for */
    entry_object **entries;
    int n_entries, capacity, recent;
    char enabled, measures; /* measures: some entry is being measured */
    int unasked; /* so many of the next calls run plainly, whatever they are given: the one entry stays eager */
    int rest;    /* so many the next time; 0: as many as the entry says */
    unsigned long long hits, misses, refusals, stayed_eager;
    double plain; /* nanoseconds of plain calls that were timed */
    double put_off; /* plain calls have to take so many before on_miss is asked again */
} compiled_function;

static void clear_entries(compiled_function *self)
{
    entry_object **entries = self->entries;
    int n = self->n_entries;
    self->entries = NULL;
    self->n_entries = self->capacity = self->recent = 0;
    self->measures = 0;
    self->unasked = self->rest = 0;
    for (int k = 0; k < n; ++k)
        Py_DECREF(entries[k]);
    PyMem_Free(entries);
}

/* Times a plain call: `start` and `before` are the clock and `counted` when it began. */
static void count_plain(compiled_function *self, double start, double before)
{
    double took = nanoseconds() - start - (counted - before);
    took = took > 0 ? took : 0;
    counted += took;
    self->plain += took;
    self->put_off = self->put_off > took ? self->put_off - took : 0;
}

static PyObject *miss(compiled_function *self, PyObject *const *args, Py_ssize_t n_args, PyObject *kwnames, PyObject **owner)
{
    ++self->misses;
    self->rest = 0;
    if (!self->on_miss || !dg_has_room(DG_ROOM_TO_CAPTURE)) /* the garbage collector has cleared it; a capture calls much */
        return PyObject_Vectorcall(self->function, args, (size_t)n_args, kwnames);
    if (self->put_off > 0) {
        double start = nanoseconds(), before = counted;
        PyObject *result = PyObject_Vectorcall(self->function, args, (size_t)n_args, kwnames);
        count_plain(self, start, before);
        return result;
    }
    PyObject *positional = PyTuple_New(n_args), *keywords = NULL, *result = NULL;
    if (!positional)
        return NULL;
    for (Py_ssize_t k = 0; k < n_args; ++k)
        PyTuple_SET_ITEM(positional, k, Py_NewRef(args[k]));
    Py_ssize_t n_keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    if (n_keywords && !(keywords = PyDict_New()))
        goto done;
    for (Py_ssize_t k = 0; k < n_keywords; ++k)
        if (PyDict_SetItem(keywords, PyTuple_GET_ITEM(kwnames, k), args[n_args + k]) < 0)
            goto done;
    if (owner)
        Py_CLEAR(*owner);
    result = PyObject_CallFunctionObjArgs(self->on_miss, (PyObject *)self, positional, keywords ? keywords : Py_None, NULL);
    dg_raised raised;
    if (!result && (!PyErr_ExceptionMatches(PyExc_Exception) || dg_is_of_signal()) && dg_take_raised(&raised) &&
        dg_raise_later(&raised) == 0)
        result = PyObject_Call(self->function, positional, keywords); /* a signal's: raised there at once */
    if (result == dg_plainly) {
        Py_DECREF(result);
        double start = nanoseconds(), before = counted;
        result = PyObject_Call(self->function, positional, keywords);
        count_plain(self, start, before);
    }
done:
    Py_XDECREF(keywords);
    Py_DECREF(positional);
    return result;
}

static inline int position_of(compiled_function *self, int step)
{
    return step == 0 ? self->recent : step <= self->recent ? step - 1 : step;
}

enum { REFUSED = 2 };

enum { MORE_UNASKED = 8 };

/* Guards that have held so far are asked ever more rarely, down to a call in MORE_UNASKED times as many. */
static inline void rest_from_asking(compiled_function *self, const entry_object *entry, const choice *of)
{
    int n = self->rest ? self->rest : entry->unasked;
    if (of->left <= (unsigned)n)
        return;
    self->unasked = n;
    self->rest = n < MORE_UNASKED * entry->unasked ? 2 * n : n;
}

/* whether the plain function shall take a call that the entry could serve */
static inline int runs_plainly(compiled_function *self, entry_object *entry, choice *of, trial *measured)
{
    ++of->taken;
    if (of->way == SERVES || of->way == STAYS_EAGER) {
        int plain = of->way == STAYS_EAGER;
        if (--of->left == 0)
            of->way = self->measures = MEASURED; /* from the next call on */
        else if (plain && self->n_entries == 1 && entry->n_choices == 1 && entry->unasked)
            rest_from_asking(self, entry, of);
        return plain;
    }
    if (of->way == NEW) { /* the first call of these sizes: it warms up, and is not timed */
        of->way = self->measures = MEASURED;
        return 0;
    }
    if (!measured || measured->start == 0) /* behind a break: it is the function as a whole that is measured */
        return 0;
    measured->entry = (entry_object *)Py_NewRef(entry);
    measured->of = of;
    measured->plain = of->plain;
    return measured->plain;
}

/* Tries the entries, the one that served last first; NULL with *served == 0: none holds; with REFUSED: a program would not do it, or
   the plain way is faster.  owner, callee: as dg_plan_run's.  Not inlined, as run_plan is not. */
static __attribute__((noinline)) PyObject *serve(compiled_function *self, PyObject *const *values, Py_ssize_t n, int *served,
                                                 PyObject **owner, PyObject **callee, trial *measured)
{
    frame_memory memory;
    dg_frame frame = frame_over(&memory);
    *served = 0;
    PyObject *closure = PyFunction_GET_CLOSURE(self->function);
    int count = self->n_entries, first = self->recent;
    for (int step = 0; step < count && step < self->n_entries; ++step) {
        int position = step == 0 ? first : step <= first ? step - 1 : step;
        if (position >= self->n_entries) /* a guard that asked Python let it change the entries */
            continue;
        entry_object *entry = self->entries[position];
        if (n > entry->n_registers || n < entry->n_parameters || !entry->guards)
            continue;
        for (Py_ssize_t k = 0; k < n; ++k)
            memory.registers[k] = values[k];
        Py_INCREF(entry); /* it must outlive a clear() from another thread or from within the call */
        if (dg_guards_run(entry->guards, &frame, closure) == -1) {
            *served = 1;
            self->recent = position < self->n_entries ? position : 0;
            if (entry->choices && runs_plainly(self, entry, choice_of(entry, frame.sizes), measured)) {
                *served = REFUSED;
                ++self->stayed_eager;
                ++entry->plain;
                Py_DECREF(entry);
                return NULL;
            }
            ++self->hits;
            ++entry->hits;
            PyObject *result = run_guarded(entry, &frame, closure, owner, callee);
            if (!result && !PyErr_Occurred()) {
                *served = REFUSED;
                --self->hits;
                --entry->hits;
                ++self->refusals;
            }
            Py_DECREF(entry);
            return result;
        }
        Py_DECREF(entry);
    }
    return NULL;
}

/* Whether a debugger or a coverage tool looks at what this thread runs: then the user's own code runs, every line of it. */
static inline int is_traced(void)
{
    return PyThreadState_Get()->c_tracefunc || (dg_monitoring_tools && (dg_monitoring_tools[0] || dg_monitoring_tools[1]));
}

PyObject *const *dg_monitoring_tools;

/* One call as far as it goes without following tails.  `owner` (or null): a reference to what keeps the arguments alive,
   which is cleared as soon as they are held where they are needed.  *quiet: whether it was left to C code alone. */
static PyObject *dispatch(PyObject *callable, PyObject *const *args, Py_ssize_t n_args, PyObject *kwnames, PyObject **owner,
                          int *quiet, trial *measured)
{
    compiled_function *self = (compiled_function *)callable;
    *quiet = 0;
    PyCodeObject *code = (PyCodeObject *)PyFunction_GET_CODE(self->function);
    if (!self->enabled)
        return PyObject_Vectorcall(self->function, args, (size_t)n_args, kwnames);
    if (self->unasked) { /* guards cost a noticeable part of short calls; plain calls are right without them */
        choice *of = self->entries[0]->choices;
        --self->unasked;
        --of->left;
        ++of->taken;
        ++self->entries[0]->plain;
        ++self->stayed_eager;
        return PyObject_Vectorcall(self->function, args, (size_t)n_args, kwnames);
    }
    if (is_traced() || !dg_has_room(DG_ROOM_TO_RUN))
        return PyObject_Vectorcall(self->function, args, (size_t)n_args, kwnames);
    if ((PyObject *)code != self->code) { /* function.__code__ was replaced */
        Py_XSETREF(self->code, Py_NewRef((PyObject *)code));
        clear_entries(self);
        code = (PyCodeObject *)PyFunction_GET_CODE(self->function); /* the entries' destructors run any code */
    }
    if (self->n_entries) {
        int served;
        PyObject *result, *callee = NULL, *bound = NULL;
        int simple = !kwnames && n_args == code->co_argcount && code->co_kwonlyargcount == 0 &&
                     !(code->co_flags & (CO_VARARGS | CO_VARKEYWORDS));
        if (simple) {
            result = serve(self, args, n_args, &served, owner, &callee, measured);
        } else {
            bound = dg_bind(self->function, args, n_args, kwnames);
            if (!bound) /* the call does not fit: the plain function raises the right error */
                return PyObject_Vectorcall(self->function, args, (size_t)n_args, kwnames);
            result = serve(self, &PyTuple_GET_ITEM(bound, 0), PyTuple_GET_SIZE(bound), &served, &bound, &callee, measured);
            Py_XDECREF(bound);
        }
        if (served == REFUSED) /* what the program cannot do, or raises, the plain function does */
            return PyObject_Vectorcall(self->function, args, (size_t)n_args, kwnames);
        if (served) {
            *quiet = !starts_function(result, callee);
            return finish(result, callee);
        }
    }
    return miss(self, args, n_args, kwnames, owner);
}

/* the clock is read only while an entry is measured */
static void note_measuring(compiled_function *self)
{
    self->measures = 0;
    for (int k = 0; k < self->n_entries; ++k)
        self->measures |= is_any(self->entries[k], MEASURED);
}

static PyObject *call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    int quiet;
    if (!dg_has_room(DG_ROOM_TO_CALL))
        return PyErr_Format(PyExc_RecursionError, "maximum recursion depth exceeded: the C stack of this thread is nearly full");
    trial measured = {0};
    if (((compiled_function *)callable)->measures) {
        measured.compiling = compiling;
        measured.before = times_of_thread();
        measured.start = nanoseconds();
    }
    PyObject *result = follow_tails(dispatch(callable, args, PyVectorcall_NARGS(nargsf), kwnames, NULL, &quiet, &measured));
    if (measured.entry) {
        end_trial(&measured, result != NULL);
        note_measuring((compiled_function *)callable);
    }
    if (!result)
        dg_hide_our_frames();
    return result;
}

static PyObject *function_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"function", "on_miss", NULL};
    PyObject *function, *on_miss;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O:CompiledFunction", names, &PyFunction_Type, &function, &on_miss))
        return NULL;
    if (!PyCallable_Check(on_miss))
        return PyErr_Format(PyExc_TypeError, "CompiledFunction: on_miss must be callable, got %R", on_miss);
    compiled_function *self = (compiled_function *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->vectorcall = call;
    self->function = Py_NewRef(function);
    self->on_miss = Py_NewRef(on_miss);
    self->code = Py_NewRef(PyFunction_GET_CODE(function));
    self->enabled = 1;
    return (PyObject *)self;
}

static int function_traverse(compiled_function *self, visitproc visit, void *arg)
{
    Py_VISIT(self->function);
    Py_VISIT(self->on_miss);
    Py_VISIT(self->dict);
    Py_VISIT(self->code);
    for (int k = 0; k < self->n_entries; ++k)
        Py_VISIT(self->entries[k]);
    return 0;
}

static int function_clear(compiled_function *self)
{
    clear_entries(self);
    Py_CLEAR(self->on_miss);
    Py_CLEAR(self->dict);
    return 0;
}

static void function_dealloc(compiled_function *self)
{
    PyObject_GC_UnTrack(self);
    if (self->weakrefs)
        PyObject_ClearWeakRefs((PyObject *)self);
    function_clear(self);
    Py_CLEAR(self->function);
    Py_CLEAR(self->code);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *function_get(PyObject *self, PyObject *object, PyObject *type)
{
    return !object || object == Py_None ? Py_NewRef(self) : PyMethod_New(self, object);
}

static PyObject *function_repr(compiled_function *self)
{
    return PyUnicode_FromFormat("<compiled %R>", self->function);
}

static PyObject *add_entry(compiled_function *self, PyObject *entry)
{
    if (!Py_IS_TYPE(entry, &dg_EntryType))
        return PyErr_Format(PyExc_TypeError, "add_entry: expected an Entry, got %s", Py_TYPE(entry)->tp_name);
    if (self->n_entries == self->capacity) {
        int capacity = self->capacity ? 2 * self->capacity : 4;
        entry_object **entries = PyMem_Realloc(self->entries, sizeof *entries * (size_t)capacity);
        if (!entries)
            return PyErr_NoMemory();
        self->entries = entries;
        self->capacity = capacity;
    }
    Py_XSETREF(((entry_object *)entry)->closure, Py_XNewRef(PyFunction_GET_CLOSURE(self->function)));
    self->entries[self->n_entries] = (entry_object *)Py_NewRef(entry);
    self->recent = self->n_entries++;
    self->unasked = self->rest = 0;
    self->measures |= is_any((entry_object *)entry, MEASURED);
    Py_RETURN_NONE;
}

static PyObject *clear_method(compiled_function *self, PyObject *ignored)
{
    clear_entries(self);
    Py_RETURN_NONE;
}

static PyObject *counters(compiled_function *self, PyObject *ignored)
{
    return Py_BuildValue("{s:K,s:K,s:K,s:K}", "hits", self->hits, "misses", self->misses, "refusals", self->refusals,
                         "stayed_eager", self->stayed_eager);
}

static PyObject *put_off(compiled_function *self, PyObject *value)
{
    double seconds = PyFloat_AsDouble(value);
    if (PyErr_Occurred())
        return NULL;
    self->put_off = 1e9 * seconds;
    Py_RETURN_NONE;
}

/* what the calls so far would have taken plainly, as far as that was measured, by the least of each entry */
static PyObject *earned(compiled_function *self, void *ignored)
{
    double total = self->plain;
    for (int k = 0; k < self->n_entries; ++k)
        total += (double)(self->entries[k]->hits + self->entries[k]->plain) * least_plain(self->entries[k]);
    return PyFloat_FromDouble(1e-9 * total);
}

static PyObject *reducer, *carrier;

void dg_set_reducer(PyObject *function, PyObject *carrier_of)
{
    Py_XSETREF(reducer, Py_NewRef(function));
    Py_XSETREF(carrier, Py_NewRef(carrier_of));
}

static PyObject *get_carrier(compiled_function *self, void *ignored)
{
    return carrier ? PyObject_CallOneArg(carrier, (PyObject *)self) : Py_NewRef(Py_None);
}

static PyObject *reduce(compiled_function *self, PyObject *ignored)
{
    if (reducer)
        return PyObject_CallOneArg(reducer, (PyObject *)self);
    return PyObject_GetAttrString((PyObject *)self, "__qualname__"); /* by reference, as functions are */
}

/* attributes that are the plain function's own, for inspect and its like: the closure is the attribute's name */
static PyObject *get_of_function(compiled_function *self, void *name) { return PyObject_GetAttrString(self->function, name); }

static int set_of_function(compiled_function *self, PyObject *value, void *name)
{
    return PyObject_SetAttrString(self->function, name, value);
}

#define OF_FUNCTION(name) {name, (getter)get_of_function, (setter)set_of_function, NULL, name}

static PyObject *copy_method(PyObject *self, PyObject *ignored) { return Py_NewRef(self); }

static PyObject *get_entries(compiled_function *self, void *ignored)
{
    PyObject *list = PyList_New(0);
    for (int step = 0; list && step < self->n_entries; ++step)
        if (PyList_Append(list, (PyObject *)self->entries[position_of(self, step)]) < 0)
            Py_CLEAR(list);
    return list;
}

static PyMethodDef function_methods[] = {
    {"add_entry", (PyCFunction)add_entry, METH_O, "add_entry(entry): it is tried first by the next call"},
    {"clear", (PyCFunction)clear_method, METH_NOARGS, "clear(): forget all entries"},
    {"counters", (PyCFunction)counters, METH_NOARGS, "counters() -> {'hits': ..., 'misses': ..., 'refusals': ..., 'stayed_eager': ...}"},
    {"put_off", (PyCFunction)put_off, METH_O,
     "put_off(seconds): calls that no entry serves run plainly until they have taken so long; then on_miss is asked again"},
    {"__reduce__", (PyCFunction)reduce, METH_NOARGS, NULL},
    {"__copy__", copy_method, METH_NOARGS, NULL},
    {"__deepcopy__", copy_method, METH_O, NULL},
    {0},
};

static PyMemberDef function_members[] = {
    {"__wrapped__", T_OBJECT, offsetof(compiled_function, function), READONLY, "the plain function"},
    {"enabled", T_BOOL, offsetof(compiled_function, enabled), 0, "False: calls go straight to the plain function"},
    {0},
};

static PyGetSetDef function_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {"earned", (getter)earned, NULL, "seconds that the calls so far would have taken plainly, as far as that is known", NULL},
    {"entries", (getter)get_entries, NULL, "the entries in the order in which they are tried", NULL},
    {"_carrier", (getter)get_carrier, NULL, "the function that stands for this one in pickles", NULL},
    OF_FUNCTION("__code__"),
    OF_FUNCTION("__defaults__"),
    OF_FUNCTION("__kwdefaults__"),
    OF_FUNCTION("__annotations__"),
    {"__globals__", (getter)get_of_function, NULL, NULL, "__globals__"},
    {"__closure__", (getter)get_of_function, NULL, NULL, "__closure__"},
    {0},
};

PyTypeObject dg_CompiledFunctionType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dynagraph.CompiledFunction",
    .tp_basicsize = sizeof(compiled_function),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_new = function_new,
    .tp_dealloc = (destructor)function_dealloc,
    .tp_traverse = (traverseproc)function_traverse,
    .tp_clear = (inquiry)function_clear,
    .tp_free = PyObject_GC_Del,
    .tp_repr = (reprfunc)function_repr,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(compiled_function, vectorcall),
    .tp_descr_get = function_get,
    .tp_methods = function_methods,
    .tp_members = function_members,
    .tp_getset = function_getset,
    .tp_dictoffset = offsetof(compiled_function, dict),
    .tp_weaklistoffset = offsetof(compiled_function, weakrefs),
};
