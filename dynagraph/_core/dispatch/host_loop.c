/* Host loops: a compiled function is called again and again with what it gave before, without Python between the calls.

   While turns only launch kernels, they are of one session (sessions.h): the stream is looked up once, what is known of arrays stays
   known, and memory that was given up is written again.  Guards are checked in each turn. */
#include "entries.h"
#include "sessions.h"
#include <time.h>

typedef struct {
    PyObject_HEAD
    PyObject *body;
    unsigned long long turns, quiet; /* all, and those in which no Python code ran */
} host_loop;

enum { NEXT = 0 }; /* the way on */

static PyObject *loop_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"body", NULL};
    PyObject *body;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:HostLoop", names, &body))
        return NULL;
    if (!PyCallable_Check(body))
        return PyErr_Format(PyExc_TypeError, "HostLoop: body must be callable, got %R", body);
    host_loop *self = (host_loop *)type->tp_alloc(type, 0);
    if (self)
        self->body = Py_NewRef(body);
    return (PyObject *)self;
}

static int loop_traverse(host_loop *self, visitproc visit, void *arg)
{
    Py_VISIT(self->body);
    return 0;
}

static int loop_clear(host_loop *self)
{
    Py_CLEAR(self->body);
    return 0;
}

static void loop_dealloc(host_loop *self)
{
    PyObject_GC_UnTrack(self);
    loop_clear(self);
    Py_TYPE(self)->tp_free(self);
}

/* -- running ------------------------------------------------------------------------------------------------------------- */

enum { SWITCH_INTERVAL = 5000000 }; /* nanoseconds, as Python's own */

typedef struct {
    PyObject *body, *items; /* items: an iterator, or null */
    PyObject **values; /* the item, then the variables, which are owned */
    Py_ssize_t n;      /* of the variables */
    PyObject *pause, *stack; /* pause: called with the variables and the stack */
    const int32_t *signals; /* or null */
    int64_t until;
    dg_session session;
} running;

static int64_t clock_now(void)
{
    struct timespec time = {0};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void let_others_run(running *run)
{
    if (!dg_have_others())
        return;
    int64_t now = clock_now();
    if (now < run->until)
        return;
    run->until = now + SWITCH_INTERVAL;
    dg_session_forget(&run->session);
    Py_BEGIN_ALLOW_THREADS;
    Py_END_ALLOW_THREADS;
}

/* Python calls handlers at the loop's head, in code of the user's; -1: one has raised */
static int handle_signals(running *run)
{
    if (!run->signals)
        return PyErr_CheckSignals();
    if (!*run->signals)
        return 0;
    dg_session_forget(&run->session);
    PyObject *state = PyTuple_New(run->n), *all = NULL, *paused = NULL;
    for (Py_ssize_t k = 0; state && k < run->n; ++k)
        PyTuple_SET_ITEM(state, k, Py_NewRef(run->values[k + 1]));
    if (state && (all = PySequence_Concat(state, run->stack)))
        paused = PyObject_CallObject(run->pause, all);
    Py_XDECREF(paused); /* where it would go on */
    Py_XDECREF(all);
    Py_XDECREF(state);
    return paused ? 0 : -1;
}

/* takes (way, variable...) as the new state; -1: an exception is set */
static long take_state(running *run, PyObject *result)
{
    if (!PyTuple_CheckExact(result) || PyTuple_GET_SIZE(result) != run->n + 1) {
        PyErr_Format(PyExc_TypeError, "HostLoop: its body gave %R, not a way and %zd variables", result, run->n);
        return -1;
    }
    long way = PyLong_AsLong(PyTuple_GET_ITEM(result, 0));
    if (way < 0) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_ValueError, "HostLoop: its body gave the way %ld", way);
        return -1;
    }
    for (Py_ssize_t k = 0; k < run->n; ++k)
        Py_SETREF(run->values[k + 1], Py_NewRef(PyTuple_GET_ITEM(result, k + 1)));
    return way;
}

/* the next item is run->values[0]; 0: there is none, or an exception is set */
static int take_item(running *run)
{
    if (!run->items)
        return 1;
    if (!Py_IS_TYPE(run->items, &PyRangeIter_Type)) /* it may run Python code */
        dg_session_forget(&run->session);
    return (run->values[0] = PyIter_Next(run->items)) != NULL;
}

/* One turn; -1: an exception is set. */
static long turn(running *run, host_loop *self)
{
    int takes_item = run->items != NULL;
    run->session.quiet = 0;
    PyObject *result = dg_call_turn(run->body, run->values + !takes_item, run->n + takes_item, &run->session);
    if (takes_item)
        Py_CLEAR(run->values[0]);
    if (!result)
        return -1;
    long way = take_state(run, result);
    Py_DECREF(result);
    ++self->turns;
    self->quiet += run->session.quiet;
    if (!run->session.quiet)
        dg_session_forget(&run->session);
    return way;
}

/* -> (way, turns, *variables): way: NEXT after all turns that were asked for, None without more items, or the body's */
static PyObject *run_turns(host_loop *self, running *run, Py_ssize_t most)
{
    Py_ssize_t done = 0;
    long way = NEXT;
    int ended = 0;
    while (way == NEXT && (most < 0 || done < most)) {
        let_others_run(run);
        if (handle_signals(run) < 0)
            return NULL;
        if (!take_item(run)) {
            if (PyErr_Occurred())
                return NULL;
            ended = 1;
            break;
        }
        if ((way = turn(run, self)) < 0)
            return NULL;
        ++done;
    }
    PyObject *number = ended ? Py_NewRef(Py_None) : PyLong_FromLong(way), *turns = PyLong_FromSsize_t(done);
    PyObject *state = PyTuple_New(run->n + 2);
    if (!number || !turns || !state) {
        Py_XDECREF(number);
        Py_XDECREF(turns);
        Py_XDECREF(state);
        return NULL;
    }
    PyTuple_SET_ITEM(state, 0, number);
    PyTuple_SET_ITEM(state, 1, turns);
    for (Py_ssize_t k = 0; k < run->n; ++k)
        PyTuple_SET_ITEM(state, k + 2, Py_NewRef(run->values[k + 1]));
    return state;
}

static PyObject *loop_run(host_loop *self, PyObject *args)
{
    PyObject *items, *variables, *pause, *stack;
    Py_ssize_t most;
    if (!PyArg_ParseTuple(args, "OO!nOO!:run", &items, &PyTuple_Type, &variables, &most, &pause, &PyTuple_Type, &stack))
        return NULL;
    if (items != Py_None && !PyIter_Check(items))
        return PyErr_Format(PyExc_TypeError, "HostLoop.run: items must be an iterator or None, got %R", items);
    PyObject *few[DG_FEW_REGISTERS + 1], **values;
    Py_ssize_t n = PyTuple_GET_SIZE(variables);
    if (n > DG_MAX_REGISTERS)
        return PyErr_Format(PyExc_ValueError, "HostLoop.run: %zd variables; at most %d are possible", n, DG_MAX_REGISTERS);
    if (!(values = dg_room(few, sizeof few, sizeof *values * (size_t)(n + 1))))
        return PyErr_NoMemory();
    running run = {self->body, items == Py_None ? NULL : items, values, n, pause, stack, dg_pending_signals(), clock_now() + SWITCH_INTERVAL};
    values[0] = NULL;
    for (Py_ssize_t k = 0; k < n; ++k)
        values[k + 1] = Py_NewRef(PyTuple_GET_ITEM(variables, k));
    Py_INCREF(self);
    PyObject *result = run_turns(self, &run, most);
    dg_session_forget(&run.session);
    for (Py_ssize_t k = 0; k <= n; ++k)
        Py_CLEAR(values[k]);
    dg_leave(values, few);
    Py_DECREF(self);
    return result;
}

static PyObject *get_turns(host_loop *self, void *ignored) { return PyLong_FromUnsignedLongLong(self->turns); }

static PyObject *get_quiet_turns(host_loop *self, void *ignored) { return PyLong_FromUnsignedLongLong(self->quiet); }

static PyMethodDef methods[] = {
    {"run", (PyCFunction)loop_run, METH_VARARGS,
     "run(items, variables, most, pause, stack) -> (way, turns, *variables): see dynagraph/_core/_dispatch.pyi"},
    {0},
};

static PyGetSetDef properties[] = {
    {"turns", (getter)get_turns, NULL, "All turns so far.", NULL},
    {"quiet_turns", (getter)get_quiet_turns, NULL, "Those in which no Python code ran.", NULL},
    {0},
};

PyTypeObject dg_HostLoopType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dynagraph._core._dispatch.HostLoop",
    .tp_basicsize = sizeof(host_loop),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "HostLoop(body): calls a function again and again with what it gave before.",
    .tp_new = loop_new,
    .tp_dealloc = (destructor)loop_dealloc,
    .tp_traverse = (traverseproc)loop_traverse,
    .tp_clear = (inquiry)loop_clear,
    .tp_methods = methods,
    .tp_getset = properties,
    .tp_free = PyObject_GC_Del,
};
