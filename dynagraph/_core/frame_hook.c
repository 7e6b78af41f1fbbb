/* The frame hook: lets Python look at one frame as it starts, and swap the code that it runs.

   PEP 523's evaluator is set only from a call of call_captured until the frame that it waits for has started, so
   that other code pays nothing. This file leans on CPython's internals, hence the list of versions. */
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
#undef Py_BUILD_CORE

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
static int waiting;                    /* calls, in all threads, whose frame has not started */
static _PyFrameEvalFunction previous;  /* the evaluator under ours; NULL: ours is nowhere in the chain */
static unsigned long long n_captured, n_swapped, n_without_room;

static PyObject *evaluate(PyThreadState *ts, _PyInterpreterFrame *frame, int throwflag);

static void start_waiting(void)
{
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    _PyFrameEvalFunction set = _PyInterpreterState_GetEvalFrameFunc(interpreter);
    ++waiting;
    /* An evaluator that somebody set over ours may call ours: to set ours over it too would make a circle. */
    if (set == evaluate || (previous && set != _PyEval_EvalFrameDefault))
        return;
    previous = set;
    _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluate);
}

static void stop_waiting(void)
{
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    if (--waiting || _PyInterpreterState_GetEvalFrameFunc(interpreter) != evaluate)
        return; /* covered by somebody else's: ours stays in the chain and passes everything on */
    _PyInterpreterState_SetEvalFrameFunc(interpreter, previous);
    previous = NULL;
}

/* -- the evaluator --------------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject *function, *callback; /* borrowed from the arguments of call_captured */
    int started;
} target_call;

static _Thread_local target_call *target; /* what this thread waits for */

static int is_target(_PyInterpreterFrame *frame, int throwflag)
{
    const int suspends = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
    if (!target || throwflag || frame->owner != FRAME_OWNED_BY_THREAD || frame_function(frame) != target->function ||
        !frame_has_code(frame))
        return 0;
    PyCodeObject *code = frame_code(frame);
    return (PyObject *)code == PyFunction_GET_CODE(target->function) && at_first_instruction(frame) &&
           (code->co_flags & CO_OPTIMIZED) && !(code->co_flags & suspends);
}

static Py_ssize_t n_parameters(PyCodeObject *code)
{
    return code->co_argcount + code->co_kwonlyargcount + !!(code->co_flags & CO_VARARGS) + !!(code->co_flags & CO_VARKEYWORDS);
}

static PyObject *ask(target_call *call, _PyInterpreterFrame *frame)
{
    PyCodeObject *code = frame_code(frame);
    Py_ssize_t n = n_parameters(code);
    PyObject *values = PyTuple_New(n);
    if (!values)
        return NULL;
    for (Py_ssize_t k = 0; k < n; ++k) /* raw: cells are made by the frame's first instructions */
        PyTuple_SET_ITEM(values, k, Py_NewRef(frame->localsplus[k]));
    PyObject *answer = PyObject_CallFunctionObjArgs(call->callback, call->function, (PyObject *)code, values, NULL);
    Py_DECREF(values);
    return answer;
}

static int fits(PyCodeObject *code, PyObject *answer)
{
    const int signature = CO_VARARGS | CO_VARKEYWORDS | CO_OPTIMIZED | CO_NEWLOCALS;
    const int kinds = signature | CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE;
    if (!PyCode_Check(answer)) {
        PyErr_Format(PyExc_TypeError, "call_captured: the callback must return a code object or None, not %s",
                     Py_TYPE(answer)->tp_name);
        return 0;
    }
    PyCodeObject *other = (PyCodeObject *)answer;
    if (code->co_argcount != other->co_argcount || code->co_posonlyargcount != other->co_posonlyargcount ||
        code->co_kwonlyargcount != other->co_kwonlyargcount || code->co_nfreevars != other->co_nfreevars ||
        (code->co_flags & signature) != (other->co_flags & kinds)) {
        PyErr_Format(PyExc_TypeError, "call_captured: %R has other parameters or free variables than %R", answer, code);
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

static PyObject *evaluate(PyThreadState *ts, _PyInterpreterFrame *frame, int throwflag)
{
    _PyFrameEvalFunction next = previous ? previous : _PyEval_EvalFrameDefault;
    if (!is_target(frame, throwflag))
        return next(ts, frame, throwflag);
    target_call *call = target;
    target = NULL;
    call->started = 1;
    stop_waiting();
    ++n_captured;
    PyObject *answer = ask(call, frame);
    int failed = !answer;
    if (answer && answer != Py_None) {
        if (!fits(frame_code(frame), answer))
            failed = 1;
        else if (swap(ts, frame, (PyCodeObject *)answer))
            ++n_swapped;
        else
            ++n_without_room;
    }
    Py_XDECREF(answer);
    return next(ts, frame, failed); /* failed: as if the frame's first instruction had raised it */
}

/* -- the module ------------------------------------------------------------------------------------------------------------ */

static PyObject *call_captured(PyObject *module, PyObject *const *args, Py_ssize_t n_args)
{
    if (n_args != 4)
        return PyErr_Format(PyExc_TypeError, "call_captured: expected function, callback, args and kwargs, got %zd arguments",
                            n_args);
    PyObject *function = args[0], *callback = args[1], *positional = args[2], *keywords = args[3] == Py_None ? NULL : args[3];
    if (!PyFunction_Check(function) || !PyCallable_Check(callback) || !PyTuple_Check(positional) ||
        (keywords && !PyDict_Check(keywords)))
        return PyErr_Format(PyExc_TypeError, "call_captured: expected a function, a callable, a tuple and a dict or None, "
                            "got %s, %s, %s and %s", Py_TYPE(function)->tp_name, Py_TYPE(callback)->tp_name,
                            Py_TYPE(positional)->tp_name, Py_TYPE(args[3])->tp_name);
    if (PyInterpreterState_Get() != PyInterpreterState_Main())
        return PyObject_Call(function, positional, keywords);
    target_call call = {function, callback, 0}, *outer = target;
    target = &call;
    start_waiting();
    PyObject *result = PyObject_Call(function, positional, keywords);
    target = outer;
    if (!call.started) /* the frame never started: a wrong call, a generator */
        stop_waiting();
    return result;
}

static PyObject *is_active(PyObject *module, PyObject *ignored) { return PyBool_FromLong(waiting > 0); }

static PyObject *counters(PyObject *module, PyObject *ignored)
{
    return Py_BuildValue("{s:K,s:K,s:K}", "captured", n_captured, "swapped", n_swapped, "without_room", n_without_room);
}

static PyMethodDef methods[] = {
    {"call_captured", (PyCFunction)(void (*)(void))call_captured, METH_FASTCALL,
     "call_captured(function, callback, args, kwargs) -> function(*args, **kwargs)\n\n"
     "As the function's frame starts, callback(function, code, values) is called once, with the bound parameters in the order\n"
     "of co_varnames. It returns None, or the code object that the frame runs instead (same parameters and free variables)."},
    {"is_active", is_active, METH_NOARGS, "is_active() -> whether a thread waits for its frame to start"},
    {"counters", counters, METH_NOARGS, "counters() -> {'captured': ..., 'swapped': ..., 'without_room': ...}"},
    {0},
};

static PyModuleDef_Slot slots[] = {
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_frame_hook", .m_doc = "Looks at one frame as it starts (PEP 523).",
    .m_methods = methods, .m_slots = slots,
};

PyMODINIT_FUNC PyInit__frame_hook(void) { return PyModuleDef_Init(&definition); }
