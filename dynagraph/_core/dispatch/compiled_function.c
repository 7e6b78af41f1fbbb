/* The callable that tries entries in turn: the hot path of every compiled function. */
#include "entries.h"
#include "sessions.h"
#include <structmember.h>

PyObject *dg_plainly;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *function, *on_miss, *dict, *weakrefs;
    PyObject *code; /* the one that the entries were made for */
    dg_entry **entries;
    int n_entries, capacity, recent;
    char enabled, measures; /* measures: some entry is being measured */
    int unasked; /* so many of the next calls run eagerly, whatever they are given: the one entry stays eager */
    int rest;    /* so many the next time; 0: as many as the entry says */
    unsigned long long hits, misses, refusals, stayed_eager;
    double plain; /* nanoseconds of plain calls that were timed */
    double put_off; /* plain calls have to take so many before on_miss is asked again */
} compiled_function;

/* -- tails ------------------------------------------------------------------------------------------------------------- */

PyObject *dg_finish(PyObject *result, PyObject *callee)
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

/* whether dg_finish calls a Python function, or what calls the one that it is given first, as call_watched does */
static int starts_function(PyObject *args, PyObject *callee)
{
    return callee && (PyFunction_Check(callee) || (PyTuple_GET_SIZE(args) > 0 && PyFunction_Check(PyTuple_GET_ITEM(args, 0))));
}

static PyObject *dispatch(PyObject *function, PyObject *const *args, Py_ssize_t n_args, PyObject *kwnames, PyObject **owner,
                          int *quiet, dg_trial *measured);

PyObject *dg_follow_tails(PyObject *result)
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

/* -- entries ----------------------------------------------------------------------------------------------------------- */

static void clear_entries(compiled_function *self)
{
    dg_entry **entries = self->entries;
    int n = self->n_entries;
    self->entries = NULL;
    self->n_entries = self->capacity = self->recent = 0;
    self->measures = 0;
    self->unasked = self->rest = 0;
    for (int k = 0; k < n; ++k)
        Py_DECREF(entries[k]);
    PyMem_Free(entries);
}

static void count_plain(compiled_function *self, dg_stopwatch watch)
{
    double took = dg_stopwatch_stop(watch);
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
        dg_stopwatch watch = dg_stopwatch_start();
        PyObject *result = PyObject_Vectorcall(self->function, args, (size_t)n_args, kwnames);
        count_plain(self, watch);
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
    if (!result && (!PyErr_ExceptionMatches(PyExc_Exception) || dg_is_of_signal()) && !dg_is_final() && dg_take_raised(&raised) &&
        dg_raise_later(&raised) == 0)
        result = PyObject_Call(self->function, positional, keywords); /* a signal's: raised there at once */
    if (result == dg_plainly) {
        Py_DECREF(result);
        dg_stopwatch watch = dg_stopwatch_start();
        result = PyObject_Call(self->function, positional, keywords);
        count_plain(self, watch);
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

enum { BAILED_OUT = 2 };

enum { MORE_UNASKED = 8 };

/* Guards that have held so far are asked ever more rarely, down to a call in MORE_UNASKED times as many. */
static inline void rest_from_asking(compiled_function *self, const dg_entry *entry, const dg_choice *of)
{
    int n = self->rest ? self->rest : entry->unasked;
    if (of->left <= (unsigned)n)
        return;
    self->unasked = n;
    self->rest = n < MORE_UNASKED * entry->unasked ? 2 * n : n;
}

/* whether the plain function shall take a call that the entry could serve */
static inline int runs_plainly(compiled_function *self, dg_entry *entry, const int64_t *sizes, dg_trial *measured)
{
    dg_choice *of = dg_choice_of(entry, sizes);
    ++of->taken;
    if (of->way == DG_SERVES || of->way == DG_STAYS_EAGER) {
        int plain = of->way == DG_STAYS_EAGER;
        if (--of->left == 0)
            of->way = self->measures = DG_MEASURED; /* from the next call on */
        else if (plain && self->n_entries == 1 && entry->n_choices == 1 && entry->unasked)
            rest_from_asking(self, entry, of);
        return plain;
    }
    if (of->way == DG_NEW) { /* the first call of these sizes: it warms up, and is not timed */
        of->way = self->measures = DG_MEASURED;
        return 0;
    }
    if (!measured || measured->start == 0) /* after a break: it is the function as a whole that is measured */
        return 0;
    measured->entry = (dg_entry *)Py_NewRef(entry);
    measured->of = of;
    measured->sizes = dg_number_of_sizes(entry, sizes);
    measured->plain = of->plain;
    return measured->plain;
}

/* Tries the entries, the one that served last first; NULL with *served == 0: none holds; with BAILED_OUT: a program would not do it, or
   the plain way is faster.  owner, callee: as dg_plan_run's. */
static inline PyObject *serve_on(dg_frame_memory *memory, dg_frame *frame, compiled_function *self, PyObject *const *values, Py_ssize_t n,
                                 int *served, PyObject **owner, PyObject **callee, dg_trial *measured)
{
    *served = 0;
    PyObject *closure = PyFunction_GET_CLOSURE(self->function);
    int count = self->n_entries, first = self->recent;
    for (int step = 0; step < count && step < self->n_entries; ++step) {
        int position = step == 0 ? first : step <= first ? step - 1 : step;
        if (position >= self->n_entries) /* a guard that asked Python let it change the entries */
            continue;
        dg_entry *entry = self->entries[position];
        if (n > entry->n_registers || n < entry->n_parameters || !entry->guards)
            continue;
        if (!dg_frame_fit(memory, frame, entry)) { /* as a program without memory for its results */
            *served = BAILED_OUT;
            ++self->refusals;
            return NULL;
        }
        for (Py_ssize_t k = 0; k < n; ++k)
            frame->registers[k] = values[k];
        Py_INCREF(entry); /* it must outlive a clear() from another thread or from within the call */
        if (dg_guards_run(entry->guards, frame, closure) == -1) {
            *served = 1;
            self->recent = position < self->n_entries ? position : 0;
            if (entry->choices && !dg_plan_improves(entry->plan) && runs_plainly(self, entry, frame->sizes, measured)) {
                *served = BAILED_OUT;
                ++self->stayed_eager;
                ++entry->plain;
                Py_DECREF(entry);
                return NULL;
            }
            ++self->hits;
            ++entry->hits;
            PyObject *result = dg_entry_run_guarded(entry, frame, closure, owner, callee);
            if (!result && !PyErr_Occurred()) {
                *served = BAILED_OUT;
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

/* in a function of its own, as run_plan is */
static __attribute__((noinline)) PyObject *serve(compiled_function *self, PyObject *const *values, Py_ssize_t n, int *served,
                                                 PyObject **owner, PyObject **callee, dg_trial *measured, dg_session *session)
{
    dg_frame_memory memory;
    dg_frame frame = dg_frame_over(&memory);
    frame.session = session;
    PyObject *result = serve_on(&memory, &frame, self, values, n, served, owner, callee, measured);
    dg_frame_leave(&memory);
    return result;
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
                          int *quiet, dg_trial *measured)
{
    compiled_function *self = (compiled_function *)callable;
    *quiet = 0;
    PyCodeObject *code = (PyCodeObject *)PyFunction_GET_CODE(self->function);
    if (!self->enabled)
        return PyObject_Vectorcall(self->function, args, (size_t)n_args, kwnames);
    if (self->unasked) { /* guards cost a noticeable part of short calls; plain calls are right without them */
        dg_choice *of = self->entries[0]->choices;
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
            result = serve(self, args, n_args, &served, owner, &callee, measured, NULL);
        } else {
            bound = dg_bind(self->function, args, n_args, kwnames);
            if (!bound) /* the call does not fit: the plain function raises the right error */
                return PyObject_Vectorcall(self->function, args, (size_t)n_args, kwnames);
            result = serve(self, &PyTuple_GET_ITEM(bound, 0), PyTuple_GET_SIZE(bound), &served, &bound, &callee, measured,
                           NULL);
            Py_XDECREF(bound);
        }
        if (served == BAILED_OUT) /* what the program cannot do, or raises, the plain function does */
            return PyObject_Vectorcall(self->function, args, (size_t)n_args, kwnames);
        if (served) {
            *quiet = !starts_function(result, callee);
            return dg_finish(result, callee);
        }
    }
    return miss(self, args, n_args, kwnames, owner);
}

/* the clock is read only while an entry is measured */
static void note_measuring(compiled_function *self)
{
    self->measures = 0;
    for (int k = 0; k < self->n_entries; ++k)
        self->measures |= dg_entry_is_any(self->entries[k], DG_MEASURED);
}

static PyObject *call(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    int quiet;
    if (!dg_has_room(DG_ROOM_TO_CALL))
        return PyErr_Format(PyExc_RecursionError, "maximum recursion depth exceeded: the C stack of this thread is nearly full");
    dg_trial measured = {0};
    if (((compiled_function *)callable)->measures)
        dg_trial_start(&measured);
    PyObject *result = dg_follow_tails(dispatch(callable, args, PyVectorcall_NARGS(nargsf), kwnames, NULL, &quiet, &measured));
    if (measured.entry) {
        dg_trial_end(&measured, result != NULL);
        note_measuring((compiled_function *)callable);
    }
    if (!result)
        dg_hide_our_frames();
    return result;
}

PyObject *dg_call_turn(PyObject *callable, PyObject *const *args, Py_ssize_t n_args, dg_session *session)
{
    compiled_function *self = (compiled_function *)callable;
    if (Py_IS_TYPE(callable, &dg_CompiledFunctionType) && self->enabled && !self->unasked && !self->measures && self->n_entries &&
        !is_traced() && dg_has_room(DG_ROOM_TO_RUN)) {
        PyCodeObject *code = (PyCodeObject *)PyFunction_GET_CODE(self->function);
        int simple = (PyObject *)code == self->code && n_args == code->co_argcount && code->co_kwonlyargcount == 0 &&
                     !(code->co_flags & (CO_VARARGS | CO_VARKEYWORDS));
        int served = 0;
        PyObject *callee = NULL, *result = simple ? serve(self, args, n_args, &served, NULL, &callee, NULL, session) : NULL;
        if (served && served != BAILED_OUT && !callee && !(result && Py_IS_TYPE(result, &dg_TailType)))
            return result;
        if (served)
            session->quiet = 0;
        if (served == BAILED_OUT)
            return PyObject_Vectorcall(self->function, args, (size_t)n_args, NULL);
        if (served) {
            result = dg_follow_tails(dg_finish(result, callee));
            if (!result)
                dg_hide_our_frames();
            return result;
        }
    }
    session->quiet = 0;
    return PyObject_Vectorcall(callable, args, (size_t)n_args, NULL);
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
        dg_entry **entries = PyMem_Realloc(self->entries, sizeof *entries * (size_t)capacity);
        if (!entries)
            return PyErr_NoMemory();
        self->entries = entries;
        self->capacity = capacity;
    }
    Py_XSETREF(((dg_entry *)entry)->closure, Py_XNewRef(PyFunction_GET_CLOSURE(self->function)));
    self->entries[self->n_entries] = (dg_entry *)Py_NewRef(entry);
    self->recent = self->n_entries++;
    self->unasked = self->rest = 0;
    self->measures |= dg_entry_is_any((dg_entry *)entry, DG_MEASURED);
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
        total += (double)(self->entries[k]->hits + self->entries[k]->plain) * dg_entry_least_plain(self->entries[k]);
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
     "put_off(seconds): calls that no entry serves run eagerly until they have taken so long; then on_miss is asked again"},
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
