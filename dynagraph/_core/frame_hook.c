/* The frame hook: lets Python look at frames as they start, and swap the code that they run.

   PEP 523's evaluator is set only for the extent of call_watched, without those parts where nothing is watched, so that other
   code pays nothing. This file leans on CPython's internals, hence the list of versions. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030E0000
#error "the frame hook knows the frames of CPython 3.11, 3.12 and 3.13 only"
#endif
#ifdef Py_GIL_DISABLED
#error "the frame hook counts on the GIL"
#endif

#define Py_BUILD_CORE 1
#undef _PyGC_FINALIZED /* 3.12's internal header defines it again (gh-105268) */
#include <internal/pycore_frame.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_runtime.h>
#undef Py_BUILD_CORE

#include "stack.h"

/* -- what differs between versions ----------------------------------------------------------------------------------------- */

#if PY_VERSION_HEX >= 0x030D0000
static inline PyCodeObject *frame_code(_PyInterpreterFrame *frame) { return (PyCodeObject *)frame->f_executable; }
static inline int frame_has_code(_PyInterpreterFrame *frame) { return PyCode_Check(frame->f_executable); }
static inline PyObject *frame_function(_PyInterpreterFrame *frame) { return frame->f_funcobj; }
static inline int at_first_instruction(_PyInterpreterFrame *frame)
{
    return frame->instr_ptr == _PyCode_CODE(frame_code(frame));
}
static inline void set_code(_PyInterpreterFrame *frame, PyCodeObject *code)
{
    frame->f_executable = (PyObject *)code;
    frame->instr_ptr = _PyCode_CODE(code);
}
#else
static inline PyCodeObject *frame_code(_PyInterpreterFrame *frame) { return frame->f_code; }
static inline int frame_has_code(_PyInterpreterFrame *frame) { return 1; }
#if PY_VERSION_HEX >= 0x030C0000
static inline PyObject *frame_function(_PyInterpreterFrame *frame) { return frame->f_funcobj; }
#else
static inline PyObject *frame_function(_PyInterpreterFrame *frame) { return (PyObject *)frame->f_func; }
#endif
/* prev_instr is the one before the next instruction */
static inline int at_first_instruction(_PyInterpreterFrame *frame)
{
    return frame->prev_instr == _PyCode_CODE(frame_code(frame)) - 1;
}
static inline void set_code(_PyInterpreterFrame *frame, PyCodeObject *code)
{
    frame->f_code = code;
    frame->prev_instr = _PyCode_CODE(code) - 1;
}
#endif

static inline Py_ssize_t frame_size(PyCodeObject *code) /* in words */
{
#if PY_VERSION_HEX >= 0x030C0000
    return code->co_framesize;
#else
    return code->co_nlocalsplus + code->co_stacksize + (Py_ssize_t)FRAME_SPECIALS_SIZE;
#endif
}

/* -- setting the evaluator ------------------------------------------------------------------------------------------------- */

/* All under the GIL, and only for the main interpreter (NumPy knows no other). */
static int n_extents;                  /* what is watched, in all threads: where there is something, ours is set */
static _PyFrameEvalFunction previous;  /* the evaluator under ours; NULL: ours is nowhere in the chain */
static unsigned long long n_offered, n_swapped, n_without_room;

static PyObject *evaluate(PyThreadState *ts, _PyInterpreterFrame *frame, int throwflag);

static void enter_extent(void)
{
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    _PyFrameEvalFunction set = _PyInterpreterState_GetEvalFrameFunc(interpreter);
    ++n_extents;
    /* An evaluator that somebody set over ours may call ours: to set ours over it too would make a circle. */
    if (set == evaluate || (previous && set != _PyEval_EvalFrameDefault))
        return;
    previous = set;
    _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluate);
}

static void leave_extent(void)
{
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    if (--n_extents || _PyInterpreterState_GetEvalFrameFunc(interpreter) != evaluate)
        return; /* covered by somebody else's: ours stays in the chain and passes everything on */
    _PyInterpreterState_SetEvalFrameFunc(interpreter, previous);
    previous = NULL;
}

/* -- asking, and swapping the code ----------------------------------------------------------------------------------------- */

static Py_ssize_t n_parameters(PyCodeObject *code)
{
    return code->co_argcount + code->co_kwonlyargcount + !!(code->co_flags & CO_VARARGS) + !!(code->co_flags & CO_VARKEYWORDS);
}

static PyObject *ask(PyObject *callback, _PyInterpreterFrame *frame)
{
    PyCodeObject *code = frame_code(frame);
    Py_ssize_t n = n_parameters(code);
    PyObject *values = PyTuple_New(n);
    if (!values)
        return NULL;
    for (Py_ssize_t k = 0; k < n; ++k) /* raw: cells are made by the frame's first instructions */
        PyTuple_SET_ITEM(values, k, Py_NewRef(frame->localsplus[k]));
    PyObject *answer = PyObject_CallFunctionObjArgs(callback, frame_function(frame), (PyObject *)code, values, NULL);
    Py_DECREF(values);
    return answer;
}

static int fits(PyCodeObject *code, PyObject *answer)
{
    const int signature = CO_VARARGS | CO_VARKEYWORDS | CO_OPTIMIZED | CO_NEWLOCALS;
    const int kinds = signature | CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE;
    if (!PyCode_Check(answer)) {
        PyErr_Format(PyExc_TypeError, "call_watched: the watcher must return a code object, (code, value), SKIP, seconds or None, not %s",
                     Py_TYPE(answer)->tp_name);
        return 0;
    }
    PyCodeObject *other = (PyCodeObject *)answer;
    if (code->co_argcount != other->co_argcount || code->co_posonlyargcount != other->co_posonlyargcount ||
        code->co_kwonlyargcount != other->co_kwonlyargcount || code->co_nfreevars != other->co_nfreevars ||
        (code->co_flags & signature) != (other->co_flags & kinds)) {
        PyErr_Format(PyExc_TypeError, "call_watched: %R has other parameters or free variables than %R", answer, code);
        return 0;
    }
    return 1;
}

/* The frame runs `code` from its start; 0: there is no room for it. The interpreter does all the cleaning up. */
static int swap(PyThreadState *ts, _PyInterpreterFrame *frame, PyCodeObject *code)
{
    PyCodeObject *old = frame_code(frame);
    Py_ssize_t more = frame_size(code) - frame_size(old);
    if (more > 0) { /* popping the frame resets the stack's top to the frame's base, so growing it is harmless */
        PyObject **end = (PyObject **)frame + frame_size(old);
        if (end != ts->datastack_top || more >= ts->datastack_limit - ts->datastack_top)
            return 0;
        ts->datastack_top += more;
    }
    for (int k = old->co_nlocalsplus; k < code->co_nlocalsplus; ++k)
        frame->localsplus[k] = NULL;
    Py_INCREF(code);
    set_code(frame, code);
    frame->stacktop = code->co_nlocalsplus; /* beyond the parameters, which both have, the old locals are still NULL */
    Py_DECREF(old);
    return 1;
}

/* whether there is a local variable after the parameters */
static int has_room_for_value(PyObject *code)
{
    if (!PyCode_Check(code) || ((PyCodeObject *)code)->co_nlocals > n_parameters((PyCodeObject *)code))
        return 1;
    PyErr_Format(PyExc_TypeError, "call_watched: %R has no local variable for the value", code);
    return 0;
}

/* does what the watcher answered, taking the reference; 1: the frame is to raise the exception that is set */
static int follow(PyThreadState *ts, _PyInterpreterFrame *frame, PyObject *answer)
{
    int failed = !answer;
    PyObject *code = answer, *value = NULL;
    if (answer && PyTuple_CheckExact(answer) && PyTuple_GET_SIZE(answer) == 2) {
        code = PyTuple_GET_ITEM(answer, 0);
        value = PyTuple_GET_ITEM(answer, 1);
    }
    if (answer && answer != Py_None) {
        if (!fits(frame_code(frame), code) || (value && !has_room_for_value(code))) {
            failed = 1;
        } else if (swap(ts, frame, (PyCodeObject *)code)) {
            ++n_swapped;
            if (value)
                frame->localsplus[n_parameters((PyCodeObject *)code)] = Py_NewRef(value);
        } else {
            ++n_without_room;
        }
    }
    Py_XDECREF(answer);
    return failed;
}

/* -- watching -------------------------------------------------------------------------------------------------------------- */

/* What a code object is marked with, kept in its co_extra: these bits, and above them the time, in microseconds, until which its frames
   are not offered. */
enum { MARK_SKIP = 1, MARK_DEEP = 2, TIME_SHIFT = 2 };
static const double MOST_REST = 3600; /* seconds */

#if PY_VERSION_HEX >= 0x030C0000
#define get_extra PyUnstable_Code_GetExtra
#define set_extra PyUnstable_Code_SetExtra
#define new_extra PyUnstable_Eval_RequestCodeExtraIndex
#else
#define get_extra _PyCode_GetExtra
#define set_extra _PyCode_SetExtra
#define new_extra _PyEval_RequestCodeExtraIndex
#endif

static Py_ssize_t extra_index = -1;
static PyObject *watcher;               /* the callback, or NULL */
static PyObject *skip_answer;           /* what _frame_hook.SKIP is */

/* What this thread watches: frames that `caller` calls, for the sake of `function` (owned; null: nothing). Greenlets switch the C stack
   of a thread anywhere: so this says nothing of frames that another frame calls, and whoever returns to a frame puts back what he knows
   of it, from his own C stack, not what he found. */
typedef struct {
    PyObject *function; /* its own frames are not offered */
    _PyInterpreterFrame *caller;
    int depth; /* of watched frames, which nest on the C stack */
} extent;

static _Thread_local extent now;
static _Thread_local PyObject *asked_for; /* what was watched, while the watcher is asked; owned */
enum { MOST_NESTED = 200 }; /* 3.12 grants far less C stack than the recursion limit: in deeper frames nothing is watched */

static _PyInterpreterFrame *current_frame(PyThreadState *ts)
{
#if PY_VERSION_HEX >= 0x030D0000
    return ts->current_frame;
#else
    return ts->cframe->current_frame;
#endif
}

static const extent nothing;

/* what is watched of the calls that the current frame makes; the function is borrowed */
static extent watched_here(PyThreadState *ts)
{
    if (!now.function)
        return nothing;
    _PyInterpreterFrame *frame = current_frame(ts);
    /* the interpreter pushes the frames of an __init__, and of what calls it, without the evaluator */
    for (int hops = 0; frame && frame != now.caller && hops < 2; ++hops)
        frame = frame->previous;
    return frame == now.caller ? now : nothing;
}

static void set_now(extent to)
{
    PyObject *before = now.function;
    Py_XINCREF(to.function);
    now = to;
    Py_XDECREF(before);
}

static int64_t microseconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return 1000000 * (int64_t)time.tv_sec + time.tv_nsec / 1000;
}

static int64_t word_of(PyCodeObject *code)
{
    void *word = NULL;
    return get_extra((PyObject *)code, extra_index, &word) < 0 ? 0 : (int64_t)(intptr_t)word;
}

static int mark_of(PyCodeObject *code) { return (int)word_of(code) & (MARK_SKIP | MARK_DEEP); }

static int add_mark(PyCodeObject *code, int mark)
{
    return set_extra((PyObject *)code, extra_index, (void *)(intptr_t)(word_of(code) | mark));
}

/* frames of this code are left alone for some time */
static int rest(PyCodeObject *code, double seconds)
{
    int64_t until = microseconds() + (int64_t)(1e6 * (seconds < MOST_REST ? seconds : MOST_REST));
    return set_extra((PyObject *)code, extra_index, (void *)(intptr_t)(until << TIME_SHIFT | mark_of(code)));
}

static int rests(PyCodeObject *code)
{
    int64_t until = word_of(code) >> TIME_SHIFT;
    return until && microseconds() < until;
}

/* Where nothing is watched the evaluator is not set either: without it calls are faster, and do not nest on the C stack.
   What was watched is kept alive for resume(). */
static extent suspend(PyThreadState *ts)
{
    extent outer = watched_here(ts);
    if (outer.function) {
        Py_INCREF(outer.function);
        set_now(nothing);
        leave_extent();
    }
    return outer;
}

static void resume(extent outer)
{
    if (outer.function) {
        enter_extent();
        set_now(outer);
        Py_DECREF(outer.function);
    }
}

/* whether a debugger or a coverage tool looks at what this thread runs: it shall see the user's own code */
static int is_traced(void)
{
    PyThreadState *ts = PyThreadState_Get();
#if PY_VERSION_HEX >= 0x030C0000
    if (ts->interp->monitoring_tool_names[0] || ts->interp->monitoring_tool_names[1])
        return 1;
#endif
    return ts->c_tracefunc != NULL;
}

static int is_offered(_PyInterpreterFrame *frame, int throwflag, PyObject *watched)
{
    const int suspends = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
    PyObject *function = frame_function(frame);
    PyCodeObject *code = frame_code(frame);
    return !throwflag && watcher && frame->owner == FRAME_OWNED_BY_THREAD && function != watched && PyFunction_Check(function) &&
           (PyObject *)code == PyFunction_GET_CODE(function) && (code->co_flags & CO_OPTIMIZED) && !(code->co_flags & suspends) &&
           at_first_instruction(frame) && !is_traced();
}

/* asks the watcher about a frame; 1: it is to raise the exception that is set */
static int offer(PyThreadState *ts, _PyInterpreterFrame *frame)
{
    PyCodeObject *code = frame_code(frame);
    extent outer = suspend(ts);
    PyObject *callback = Py_NewRef(watcher), *asked_before = asked_for;
    ++n_offered;
    asked_for = Py_NewRef(outer.function);
    PyObject *answer = ask(callback, frame);
    Py_XSETREF(asked_for, asked_before);
    Py_DECREF(callback);
    if (answer && answer == skip_answer) {
        Py_DECREF(answer);
        answer = add_mark(code, MARK_SKIP) < 0 ? NULL : Py_NewRef(Py_None);
    } else if (answer && PyFloat_CheckExact(answer)) {
        double seconds = PyFloat_AS_DOUBLE(answer);
        Py_DECREF(answer);
        answer = seconds > 0 && rest(code, seconds) < 0 ? NULL : Py_NewRef(Py_None);
    }
    int failed = follow(ts, frame, answer);
    resume(outer);
    return failed;
}

static PyObject *evaluate(PyThreadState *ts, _PyInterpreterFrame *frame, int throwflag)
{
    _PyFrameEvalFunction next = previous ? previous : _PyEval_EvalFrameDefault;
    if (!now.function || !frame_has_code(frame))
        return next(ts, frame, throwflag);
    extent outer = watched_here(ts);
    if (!outer.function)
        return next(ts, frame, throwflag);
    Py_INCREF(outer.function);
    PyCodeObject *code = frame_code(frame);
    int mark = mark_of(code);
    if (!mark && !rests(code) && dg_has_room(DG_ROOM_TO_CAPTURE) && is_offered(frame, throwflag, outer.function)) {
        Py_INCREF(code); /* to be swapped for another one */
        throwflag = offer(ts, frame); /* 1: as if the frame's first instruction had raised it */
        mark = frame_code(frame) == code ? mark_of(code) : 0; /* the watcher may have marked it */
        Py_DECREF(code);
    }
    int goes_on = !(mark & MARK_DEEP) && outer.depth < MOST_NESTED && dg_has_room(DG_ROOM_TO_CAPTURE);
    PyObject *result;
    if (goes_on) {
        set_now((extent){outer.function, frame, outer.depth + 1});
        result = next(ts, frame, throwflag);
        set_now(outer);
    } else {
        set_now(nothing);
        leave_extent();
        result = next(ts, frame, throwflag);
        enter_extent();
        set_now(outer);
    }
    Py_DECREF(outer.function);
    return result;
}

/* -- the module ------------------------------------------------------------------------------------------------------------ */

static PyObject *call_watched(PyObject *module, PyObject *const *args, Py_ssize_t n_args, PyObject *kwnames)
{
    if (n_args < 1)
        return PyErr_Format(PyExc_TypeError, "call_watched: expected a callable");
    if (PyInterpreterState_Get() != PyInterpreterState_Main())
        return PyObject_Vectorcall(args[0], args + 1, (size_t)n_args - 1, kwnames);
    PyThreadState *ts = PyThreadState_Get();
    extent outer = watched_here(ts);
    Py_XINCREF(outer.function);
    if (!outer.function)
        enter_extent();
    set_now((extent){args[0], current_frame(ts), outer.depth});
    PyObject *result = PyObject_Vectorcall(args[0], args + 1, (size_t)n_args - 1, kwnames);
    set_now(outer);
    if (!outer.function)
        leave_extent();
    Py_XDECREF(outer.function);
    return result;
}

static PyObject *call_unwatched(PyObject *module, PyObject *const *args, Py_ssize_t n_args, PyObject *kwnames)
{
    if (n_args < 1)
        return PyErr_Format(PyExc_TypeError, "call_unwatched: expected a callable");
    extent outer = suspend(PyThreadState_Get());
    PyObject *result = PyObject_Vectorcall(args[0], args + 1, (size_t)n_args - 1, kwnames);
    resume(outer);
    return result;
}

static PyObject *set_watcher(PyObject *module, PyObject *callback)
{
    if (callback != Py_None && !PyCallable_Check(callback))
        return PyErr_Format(PyExc_TypeError, "set_watcher: expected a callable or None, got %R", callback);
    PyObject *before = watcher;
    watcher = callback == Py_None ? NULL : Py_NewRef(callback);
    return before ? before : Py_NewRef(Py_None);
}

static PyObject *skip(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"code", "deep", NULL};
    PyObject *code;
    int deep = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|p:skip", names, &PyCode_Type, &code, &deep))
        return NULL;
    if (add_mark((PyCodeObject *)code, MARK_SKIP | (deep ? MARK_DEEP : 0)) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *skipped(PyObject *module, PyObject *code)
{
    if (!PyCode_Check(code))
        return PyErr_Format(PyExc_TypeError, "skipped: expected a code object, got %R", code);
    return PyBool_FromLong(mark_of((PyCodeObject *)code));
}

static PyObject *get_watched(PyObject *module, PyObject *ignored)
{
    extent here = watched_here(PyThreadState_Get());
    PyObject *function = here.function ? here.function : asked_for;
    return Py_NewRef(function ? function : Py_None);
}

static PyObject *monitoring_tools(PyObject *module, PyObject *ignored)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyLong_FromVoidPtr(PyInterpreterState_Main()->monitoring_tool_names);
#else
    return PyLong_FromLong(0);
#endif
}

static PyObject *pending_signals(PyObject *module, PyObject *ignored)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyLong_FromVoidPtr(&_PyRuntime.signals.is_tripped);
#else
    return PyLong_FromVoidPtr(&_PyRuntime.ceval.signals_pending);
#endif
}

static PyObject *is_active(PyObject *module, PyObject *ignored) { return PyBool_FromLong(n_extents > 0); }

static PyObject *counters(PyObject *module, PyObject *ignored)
{
    return Py_BuildValue("{s:K,s:K,s:K}", "offered", n_offered, "swapped", n_swapped, "without_room", n_without_room);
}

static PyMethodDef methods[] = {
    {"call_watched", (PyCFunction)(void (*)(void))call_watched, METH_FASTCALL | METH_KEYWORDS,
     "call_watched(function, *args, **kwargs) -> function(*args, **kwargs)\n\n"
     "In the extent of this call, in this thread, frames that start are offered to the watcher."},
    {"call_unwatched", (PyCFunction)(void (*)(void))call_unwatched, METH_FASTCALL | METH_KEYWORDS,
     "call_unwatched(function, *args, **kwargs) -> function(*args, **kwargs), with no frame in its extent offered"},
    {"set_watcher", set_watcher, METH_O,
     "set_watcher(callback) -> the one before\n\n"
     "callback(function, code, values) -> None, the code that the frame runs instead, SKIP, or the seconds for which frames of\n"
     "this code are left alone; or (code, value): the value is put into the first local variable after the parameters"},
    {"skip", (PyCFunction)(void (*)(void))skip, METH_VARARGS | METH_KEYWORDS,
     "skip(code, deep=False): its frames are never offered; deep: nor is any frame in their extent"},
    {"skipped", skipped, METH_O, "skipped(code) -> whether it is marked"},
    {"watched", get_watched, METH_NOARGS,
     "watched() -> the function whose call this thread watches, or watches but for the watcher's call; or None"},
    {"monitoring_tools", monitoring_tools, METH_NOARGS,
     "monitoring_tools() -> the address of the names of sys.monitoring's tools, by number; 0: this version has none"},
    {"pending_signals", pending_signals, METH_NOARGS,
     "pending_signals() -> the address of an int32 that is not 0 while signals wait for their Python handlers"},
    {"is_active", is_active, METH_NOARGS, "is_active() -> whether a thread watches"},
    {"counters", counters, METH_NOARGS, "counters() -> {'offered': ..., 'swapped': ..., 'without_room': ...}"},
    {0},
};

static int start(PyObject *module)
{
    if (extra_index < 0 && (extra_index = new_extra(NULL)) < 0) {
        PyErr_SetString(PyExc_ImportError, "no room for marks on code objects");
        return -1;
    }
    if (!skip_answer && !(skip_answer = PyUnicode_FromString("SKIP"))) /* known by its identity */
        return -1;
    return PyModule_AddObjectRef(module, "SKIP", skip_answer);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, start},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_frame_hook", .m_doc = "Looks at frames as they start (PEP 523).",
    .m_methods = methods, .m_slots = slots,
};

PyMODINIT_FUNC PyInit__frame_hook(void) { return PyModuleDef_Init(&definition); }
