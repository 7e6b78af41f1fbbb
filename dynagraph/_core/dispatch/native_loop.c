/* Native loops: calls of generated code that leaves by one of several exits. */
#include "loops.h"

typedef struct {
    int is_tail;
    dg_box box; /* of a tail: its arguments are the parts */
    dg_box before; /* its parts are built before, for what they do */
    int64_t taken;
    PyObject *target; /* of a tail: made when it is first taken */
} loop_exit;

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    dg_code code;
    PyObject *make_target, *otherwise; /* or None */
    int n_parameters, n_exits, n_slots, release_gil;
    dg_parameter *parameters;
    loop_exit *exits;
    dg_loop_call *calls_out;
    int n_calls_out, n_generators;
    int64_t calls;
    int64_t copying, running; /* of lists, in nanoseconds */
} loop;

/* -- rows ---------------------------------------------------------------------------------------------------------------- */

int dg_row_parse(PyObject *row, const char *what, const dg_row_kind *kinds, int n)
{
    if (!PyTuple_Check(row)) {
        PyErr_Format(PyExc_TypeError, "NativeLoop: %s is a tuple like %s, not %R", what, kinds[0].usage, row);
        return -1;
    }
    PyObject *first = PyTuple_GET_SIZE(row) > 0 ? PyTuple_GET_ITEM(row, 0) : Py_None;
    for (int k = 0; k < n && PyUnicode_Check(first); ++k) {
        if (PyUnicode_CompareWithASCIIString(first, kinds[k].name) != 0)
            continue;
        if (PyTuple_GET_SIZE(row) == 1 + (Py_ssize_t)strlen(kinds[k].operands))
            return k;
        PyErr_Format(PyExc_ValueError, "NativeLoop: %s of this kind is %s, not %R", what, kinds[k].usage, row);
        return -1;
    }
    PyErr_Format(PyExc_ValueError, "NativeLoop: %s begins with the name of its kind, as %s does, which %R does not", what, kinds[0].usage,
                 row);
    return -1;
}

int dg_row_number(PyObject *row, PyObject *value, const char *what, int most)
{
    if (!PyLong_Check(value)) {
        PyErr_Format(PyExc_TypeError, "NativeLoop: in %R %s is not an int", row, what);
        return -1;
    }
    int overflow;
    long number = PyLong_AsLongAndOverflow(value, &overflow);
    if (!overflow && number >= 0 && number <= most)
        return (int)number;
    PyErr_Format(PyExc_ValueError, "NativeLoop: in %R %s is not within 0..%d", row, what, most);
    return -1;
}

int dg_row_dtype(PyObject *value, PyArray_Descr **to)
{
    if (value == Py_None) { /* NumPy's converter takes it for float64 */
        PyErr_SetString(PyExc_TypeError, "NativeLoop: None is no dtype");
        return -1;
    }
    return PyArray_DescrConverter(value, to) && dg_plain_dtype(*to) ? 0 : -1;
}

int dg_row_slots(PyObject *row, int slot, int width, int n_slots)
{
    if (slot <= n_slots && width <= n_slots - slot)
        return 0;
    PyErr_Format(PyExc_ValueError, "NativeLoop: %R needs %d slots from slot %d on, but n_slots is %d", row, width, slot, n_slots);
    return -1;
}

int dg_slots_of(const PyArray_Descr *descr) { return (int)((PyDataType_ELSIZE(descr) + 7) / 8); }

/* -- making ---------------------------------------------------------------------------------------------------------------- */

static int parse_parameters(loop *self, PyObject *rows)
{
    unsigned char *used = PyMem_Calloc((size_t)self->n_slots + 1, 1);
    int ok = used != NULL;
    if (!used)
        PyErr_NoMemory();
    for (int k = 0; ok && k < self->n_parameters; ++k) {
        dg_parameter *p = &self->parameters[k];
        PyObject *row = PyTuple_GET_ITEM(rows, k);
        ok = dg_parameter_parse(p, row, self->n_slots) == 0;
        self->n_generators += ok && dg_parameter_is_generator(p);
        for (int slot = p->slot; ok && slot < p->slot + p->width; ++slot) {
            if ((ok = !used[slot]))
                used[slot] = 1;
            else
                PyErr_Format(PyExc_ValueError, "NativeLoop: parameter %d, %R, takes slot %d, which an earlier one has", k, row, slot);
        }
    }
    PyMem_Free(used);
    return ok ? 0 : -1;
}

enum { E_RETURN, E_TAIL, E_RETURN_AFTER, E_TAIL_AFTER, N_KINDS };

static const dg_row_kind KINDS[N_KINDS] = {
    [E_RETURN] = {"return", "('return', box)", "b"},
    [E_TAIL] = {"tail", "('tail', boxes)", "b"},
    [E_RETURN_AFTER] = {"return after", "('return after', box, boxes)", "bb"},
    [E_TAIL_AFTER] = {"tail after", "('tail after', boxes, boxes)", "bb"},
};

static int parse_exits(loop *self, PyObject *rows)
{
    for (int k = 0; k < self->n_exits; ++k) {
        loop_exit *out = &self->exits[k];
        PyObject *row = PyTuple_GET_ITEM(rows, k);
        int kind = dg_row_parse(row, "an exit", KINDS, N_KINDS);
        if (kind < 0)
            return -1;
        PyObject *what = PyTuple_GET_ITEM(row, 1);
        out->is_tail = kind == E_TAIL || kind == E_TAIL_AFTER;
        if ((out->is_tail ? dg_box_parse_parts(&out->box, what, self->n_parameters, self->n_slots)
                          : dg_box_parse(&out->box, what, self->n_parameters, self->n_slots)) < 0)
            return -1;
        if (PyTuple_GET_SIZE(row) > 2 &&
            dg_box_parse_parts(&out->before, PyTuple_GET_ITEM(row, 2), self->n_parameters, self->n_slots) < 0)
            return -1;
        if (out->is_tail && self->make_target == Py_None) {
            PyErr_Format(PyExc_TypeError, "NativeLoop: exit %d is a tail, but make_target is None", k);
            return -1;
        }
    }
    return 0;
}

static int parse_calls(loop *self, PyObject *rows)
{
    for (int k = 0; k < self->n_calls_out; ++k)
        if (dg_call_parse(&self->calls_out[k], PyTuple_GET_ITEM(rows, k), self->n_parameters) < 0)
            return -1;
    return 0;
}

static int is_callable_or_none(PyObject *object, const char *name)
{
    if (object == Py_None || PyCallable_Check(object))
        return 1;
    PyErr_Format(PyExc_TypeError, "NativeLoop: %s=%R is neither callable nor None", name, object);
    return 0;
}

static PyObject *call_loop(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames);

static PyObject *loop_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"address", "keepalive", "parameters", "n_slots", "exits", "make_target", "otherwise", "release_gil",
                            "calls_out", "better", NULL};
    PyObject *address, *keepalive, *parameters, *exits, *make_target, *otherwise, *calls_out = NULL, *better = NULL;
    int n_slots, release_gil = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO!iO!OO|pO!O:NativeLoop", names, &PyLong_Type, &address, &keepalive, &PyTuple_Type,
                                     &parameters, &n_slots, &PyTuple_Type, &exits, &make_target, &otherwise, &release_gil, &PyTuple_Type,
                                     &calls_out, &better))
        return NULL;
    if (n_slots < 0 || n_slots > DG_MAX_SLOTS)
        return PyErr_Format(PyExc_ValueError, "NativeLoop: n_slots=%d is not within 0..%d", n_slots, DG_MAX_SLOTS);
    if (!is_callable_or_none(make_target, "make_target") || !is_callable_or_none(otherwise, "otherwise"))
        return NULL;
    loop *self = (loop *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->vectorcall = call_loop;
    self->make_target = Py_NewRef(make_target);
    self->otherwise = Py_NewRef(otherwise);
    self->n_slots = n_slots;
    self->release_gil = release_gil;
    size_t n_parameters = (size_t)PyTuple_GET_SIZE(parameters), n_exits = (size_t)PyTuple_GET_SIZE(exits);
    size_t n_calls = calls_out ? (size_t)PyTuple_GET_SIZE(calls_out) : 0;
    self->parameters = PyMem_Calloc(n_parameters + 1, sizeof *self->parameters);
    self->exits = PyMem_Calloc(n_exits + 1, sizeof *self->exits);
    self->calls_out = PyMem_Calloc(n_calls + 1, sizeof *self->calls_out);
    self->n_calls_out = self->calls_out ? (int)n_calls : 0;
    self->n_parameters = self->parameters ? (int)n_parameters : 0;
    self->n_exits = self->exits ? (int)n_exits : 0;
    if (!self->parameters || !self->exits || !self->calls_out)
        PyErr_NoMemory();
    else if (dg_code_parse(&self->code, "NativeLoop", address, keepalive, better) == 0 && parse_parameters(self, parameters) == 0 && parse_exits(self, exits) == 0 && parse_calls(self, calls_out) == 0)
        return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

static int loop_traverse(loop *self, visitproc visit, void *arg)
{
    Py_VISIT(self->make_target);
    Py_VISIT(self->otherwise);
    int result = dg_code_traverse(&self->code, visit, arg);
    if (result)
        return result;
    for (int k = 0; k < self->n_parameters; ++k) {
        result = dg_parameter_traverse(&self->parameters[k], visit, arg);
        if (result)
            return result;
    }
    for (int k = 0; k < self->n_exits; ++k) {
        Py_VISIT(self->exits[k].target);
        result = dg_box_traverse(&self->exits[k].box, visit, arg);
        if (!result)
            result = dg_box_traverse(&self->exits[k].before, visit, arg);
        if (result)
            return result;
    }
    for (int k = 0; k < self->n_calls_out; ++k) {
        result = dg_call_traverse(&self->calls_out[k], visit, arg);
        if (result)
            return result;
    }
    return 0;
}

/* What it was made with stays, so that other garbage may still call it: a cycle through that has another member that can be cleared. */
static int loop_clear(loop *self)
{
    for (int k = 0; k < self->n_exits; ++k)
        Py_CLEAR(self->exits[k].target);
    return 0;
}

static void loop_dealloc(loop *self)
{
    PyObject_GC_UnTrack(self);
    loop_clear(self);
    for (int k = 0; k < self->n_parameters; ++k)
        dg_parameter_clear(&self->parameters[k]);
    for (int k = 0; k < self->n_exits; ++k) {
        dg_box_clear(&self->exits[k].box);
        dg_box_clear(&self->exits[k].before);
    }
    for (int k = 0; k < self->n_calls_out; ++k)
        dg_call_clear(&self->calls_out[k]);
    PyMem_Free(self->calls_out);
    PyMem_Free(self->parameters);
    PyMem_Free(self->exits);
    dg_code_clear(&self->code);
    Py_XDECREF(self->make_target);
    Py_XDECREF(self->otherwise);
    Py_TYPE(self)->tp_free(self);
}

/* -- running ------------------------------------------------------------------------------------------------------------- */

static PyObject *call_otherwise(const loop *self, PyObject *const *args, Py_ssize_t n, int position)
{
    if (self->otherwise != Py_None)
        return dg_tail_of(self->otherwise, args, n);
    if (n != self->n_parameters)
        return PyErr_Format(PyExc_TypeError, "NativeLoop: expected %d arguments, got %zd", self->n_parameters, n);
    return PyErr_Format(PyExc_TypeError, "NativeLoop: argument %d, of type %s, does not fit a parameter of kind '%s'", position,
                        Py_TYPE(args[position])->tp_name, dg_parameter_name(&self->parameters[position]));
}

/* what the exit's tail calls: a new reference. Another thread may make it meanwhile: the first one stays. */
static PyObject *target_of(loop *self, int number, dg_raised *late)
{
    loop_exit *out = &self->exits[number];
    if (out->target)
        return Py_NewRef(out->target);
    PyObject *args = Py_BuildValue("(i)", number), *made = args ? dg_call_whole(self->make_target, args, late) : NULL;
    Py_XDECREF(args);
    if (made && !PyCallable_Check(made)) {
        PyErr_Format(PyExc_TypeError, "NativeLoop: make_target(%d) gave %R, which is not callable", number, made);
        Py_CLEAR(made);
    }
    if (made && !out->target)
        out->target = Py_NewRef(made);
    return made;
}

static PyObject *build_tail(loop *self, int number, dg_loop_values *values)
{
    const dg_box *box = &self->exits[number].box;
    PyObject *target = target_of(self, number, &values->late);
    dg_tail *tail = target ? dg_tail_new(target, box->n_parts) : NULL;
    Py_XDECREF(target);
    if (!tail)
        dg_box_drop(box, values->state);
    else if (dg_box_build_parts(box, values, tail->args) < 0)
        Py_CLEAR(tail);
    else
        PyObject_GC_Track(tail);
    return (PyObject *)tail;
}

static void drop_parts(const dg_box *box, dg_slot *state)
{
    for (int k = 0; k < box->n_parts; ++k)
        dg_box_drop(&box->parts[k], state);
}

/* -1: an exception is set; what was not done is dropped */
static int do_before(const dg_box *before, dg_loop_values *values)
{
    for (int k = 0; k < before->n_parts; ++k) {
        PyObject *done = dg_box_build(&before->parts[k], values);
        if (!done) {
            while (++k < before->n_parts)
                dg_box_drop(&before->parts[k], values->state);
            return -1;
        }
        Py_DECREF(done);
    }
    return 0;
}

enum { TURNS = 1 << 20 }; /* while other threads wait */

enum { C_STACK = 1 << 19, FRAMES = 8 }; /* bytes that it may use; Python's frames that are not entered, or are dynagraph's */

static int64_t calls_left(void)
{
    PyThreadState *thread = PyThreadState_Get();
#if PY_VERSION_HEX >= 0x030C0000
    return thread->py_recursion_remaining - FRAMES;
#else
    return thread->recursion_remaining - FRAMES;
#endif
}

typedef struct {
    dg_stop stop; /* first: the code knows no more of it */
    loop *self;
    PyObject *const *args;
    dg_loop_lists *lists;
    PyThreadState *thread; /* null: it holds the GIL */
    int64_t until;         /* when a call out looks whether others may have changed what the loop reads; 0: none was made */
} running;

enum { LONGEST = 50000000, MOST_SIGNALS = 65 }; /* nanoseconds between these looks */

/* whether a signal has a handler of the user's, which may have run within a call */
static int have_handlers(void)
{
    PyObject *module = PyImport_ImportModule("_signal");
    PyObject *get = module ? PyObject_GetAttrString(module, "getsignal") : NULL;
    PyObject *plain = module ? PyObject_GetAttrString(module, "default_int_handler") : NULL;
    int found = !get || !plain;
    for (int k = 1; !found && k < MOST_SIGNALS; ++k) {
        PyObject *handler = PyObject_CallFunction(get, "i", k);
        found = handler && handler != plain && PyCallable_Check(handler);
        Py_XDECREF(handler);
        PyErr_Clear();
    }
    PyErr_Clear();
    Py_XDECREF(plain);
    Py_XDECREF(get);
    Py_XDECREF(module);
    return found;
}

static int32_t call_out(dg_stop *stop, int32_t number, dg_slot *slots)
{
    running *run = (running *)stop;
    int gives_back = run->thread != NULL;
    if (gives_back)
        PyEval_RestoreThread(run->thread);
    /* another thread may be drawing by the time that the call ends: when the loop is entered again that is found out */
    int64_t at = dg_clock_now();
    if (!run->until)
        run->until = at + LONGEST;
    int others = dg_have_others(), leaves = run->self->n_generators && others;
    if (at >= run->until) {
        run->until = at + LONGEST;
        if (others || have_handlers())
            stop->turns_left = 0; /* the loop is left where its next turn begins */
    }
    int32_t outcome = dg_call_make(&run->self->calls_out[number], slots, run->args, run->lists, leaves);
    if (gives_back)
        run->thread = PyEval_SaveThread();
    return outcome;
}

static int32_t run_code(const loop *self, dg_slot *state, running *run)
{
    dg_stop *stop = &run->stop;
    stop->calls_left = calls_left();
    stop->stack_end = (const char *)__builtin_frame_address(0) - C_STACK;
    stop->turns_left = INT64_MAX;
    dg_native_loop code = (dg_native_loop)self->code.run;
    PyObject *keepalive = Py_NewRef(self->code.keepalive); /* better code may take its place while it runs */
    const int others = dg_have_others();
    stop->alone = !others;
    if (self->release_gil)
        run->thread = PyEval_SaveThread();
    else if (others)
        stop->turns_left = TURNS + stop->list_bytes; /* reading them again must not take longer than the turns */
    int32_t number = code(state, &dg_the_runtime, stop);
    if (self->release_gil)
        PyEval_RestoreThread(run->thread);
    Py_DECREF(keepalive);
    return number;
}

enum { MOST_LIST_BYTES = 1 << 26 }; /* besides four times those that were given: what is dead by then is then freed */

/* what copying lists costs may be more than all that native code saves: where it does little, or is left again and again */
enum { SHORT_COPYING = 1000000, SPEEDUP = 20, FORGETTING = 64 };

static int is_worth_copying(loop *self)
{
    if (self->copying < SHORT_COPYING || self->copying < SPEEDUP * self->running)
        return 1;
    self->copying -= self->copying / FORGETTING; /* later lists may be shorter */
    return 0;
}

static int64_t now(const loop *self)
{
    return self->release_gil ? 0 : dg_clock_now();
}

static PyObject *run_with(loop *self, dg_slot *state, PyObject *const *args, Py_ssize_t n, running *run)
{
    dg_loop_lists *lists = run->lists;
    memset(state, 0, (size_t)self->n_slots * sizeof *state);
    if (n != self->n_parameters)
        return call_otherwise(self, args, n, 0);
    if (self->otherwise != Py_None && !is_worth_copying(self))
        return dg_tail_of(self->otherwise, args, n);
    int64_t start = now(self);
    for (int k = 0; k < self->n_parameters; ++k)
        if (!dg_parameter_read(&self->parameters[k], args[k], state, lists))
            return call_otherwise(self, args, n, k);
    lists->stop->most_list_bytes = MOST_LIST_BYTES + 4 * lists->stop->list_bytes;
    int64_t copied = now(self);
    int32_t number = run_code(self, state, run);
    int64_t left = now(self);
    if (number < 0)
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    if (number >= self->n_exits)
        return PyErr_Format(PyExc_SystemError, "NativeLoop: the code took exit %d of %d", (int)number, self->n_exits);
    dg_loop_values values = {state, args};
    loop_exit *out = &self->exits[number];
    ++out->taken;
    PyObject *result = NULL;
    int written = dg_lists_write_back(lists, &values);
    self->running += left - copied;
    self->copying += copied - start + now(self) - left;
    if (written == 0)
        written = do_before(&out->before, &values);
    else
        drop_parts(&out->before, state);
    if (written == 0)
        result = out->is_tail ? build_tail(self, number, &values) : dg_box_build(&out->box, &values);
    else if (out->is_tail)
        drop_parts(&out->box, state);
    else
        dg_box_drop(&out->box, state);
    if (lists->stop->turns_left < 0) {
        Py_BEGIN_ALLOW_THREADS;
        Py_END_ALLOW_THREADS;
    }
    if (dg_pass_on(&values.late) < 0)
        Py_CLEAR(result);
    return result;
}

static PyObject *run(loop *self, dg_slot *state, PyObject *const *args, Py_ssize_t n)
{
    static const int32_t no_signals = 0;
    const int32_t *signals = dg_pending_signals();
    running run = {{signals ? signals : &no_signals, .call_out = call_out}, self, args};
    dg_loop_lists lists = {&run.stop};
    run.lists = &lists;
    PyObject *result = run_with(self, state, args, n, &run);
    dg_lists_free(&lists);
    return result;
}

enum { FEW_SLOTS = 256 };

static PyObject *call_loop(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    loop *self = (loop *)callable;
    if (kwnames && PyTuple_GET_SIZE(kwnames))
        return PyErr_Format(PyExc_TypeError, "NativeLoop: takes no keyword arguments, got %R", kwnames);
    ++self->calls;
    dg_raised late = {0};
    int looked = dg_code_look(&self->code, &late);
    if (dg_pass_on(&late) < 0 || looked < 0)
        return NULL;
    _Alignas(16) dg_slot few[FEW_SLOTS];
    dg_slot *state = self->n_slots <= FEW_SLOTS ? few : PyMem_Malloc((size_t)self->n_slots * sizeof *state);
    if (!state)
        return PyErr_NoMemory();
    PyObject *result = run(self, state, args, PyVectorcall_NARGS(nargsf));
    if (state != few)
        PyMem_Free(state);
    return result;
}

static PyObject *get_calls(loop *self, void *ignored) { return PyLong_FromLongLong(self->calls); }

static PyObject *get_exits_taken(loop *self, void *ignored)
{
    PyObject *counts = PyTuple_New(self->n_exits);
    for (int k = 0; counts && k < self->n_exits; ++k) {
        PyObject *count = PyLong_FromLongLong(self->exits[k].taken);
        if (count)
            PyTuple_SET_ITEM(counts, k, count);
        else
            Py_CLEAR(counts);
    }
    return counts;
}

static PyObject *get_calls_made(loop *self, void *ignored)
{
    PyObject *counts = PyTuple_New(self->n_calls_out);
    for (int k = 0; counts && k < self->n_calls_out; ++k) {
        PyObject *count = PyLong_FromLongLong(self->calls_out[k].made);
        if (count)
            PyTuple_SET_ITEM(counts, k, count);
        else
            Py_CLEAR(counts);
    }
    return counts;
}

static PyObject *get_targets(loop *self, void *ignored)
{
    PyObject *targets = PyTuple_New(self->n_exits);
    for (int k = 0; targets && k < self->n_exits; ++k)
        PyTuple_SET_ITEM(targets, k, Py_NewRef(self->exits[k].target ? self->exits[k].target : Py_None));
    return targets;
}

static PyGetSetDef loop_getset[] = {
    {"calls", (getter)get_calls, NULL, NULL, NULL},
    {"exits_taken", (getter)get_exits_taken, NULL, NULL, NULL},
    {"calls_made", (getter)get_calls_made, NULL, NULL, NULL},
    {"targets", (getter)get_targets, NULL, NULL, NULL},
    {0},
};

PyTypeObject dg_NativeLoopType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dynagraph._core._dispatch.NativeLoop",
    .tp_basicsize = sizeof(loop),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_doc = "Calls generated code that leaves by one of several exits.",
    .tp_new = loop_new,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(loop, vectorcall),
    .tp_dealloc = (destructor)loop_dealloc,
    .tp_traverse = (traverseproc)loop_traverse,
    .tp_clear = (inquiry)loop_clear,
    .tp_free = PyObject_GC_Del,
    .tp_getset = loop_getset,
};
