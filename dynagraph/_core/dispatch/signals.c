/* Python calls signals' handlers in the main thread, anywhere in Python code: in the compiler and in the program of a graph too, where
   the user's frame is within a try block and ours is not. What they raise is put off until code of the user's runs. */
#include "core.h"

#if PY_VERSION_HEX >= 0x030D0000
PyAPI_FUNC(int) _PyOS_IsMainThread(void); /* exported as ever, but declared in an internal header */
#endif

int dg_take_raised(dg_raised *raised)
{
    if (!_PyOS_IsMainThread())
        return 0;
    dg_hide_our_frames();
    PyErr_Fetch(&raised->type, &raised->value, &raised->traceback);
    return 1;
}

void dg_drop_raised(dg_raised *raised)
{
    Py_CLEAR(raised->type);
    Py_CLEAR(raised->value);
    Py_CLEAR(raised->traceback);
}

static PyObject *of_signal;

int dg_set_of_signal(PyObject *function)
{
    if (!PyCallable_Check(function)) {
        PyErr_Format(PyExc_TypeError, "set_of_signal: expected a function of an exception, got %R", function);
        return -1;
    }
    Py_XSETREF(of_signal, Py_NewRef(function));
    return 0;
}

int dg_is_of_signal(void)
{
    if (!of_signal || !_PyOS_IsMainThread())
        return 0;
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback)
        PyException_SetTraceback(error, traceback);
    PyObject *answer = PyObject_CallOneArg(of_signal, error);
    if (answer) {
        PyErr_Restore(type, error, traceback);
    } else { /* another signal came: its exception is set, in place of the first as in any other code */
        Py_XDECREF(type);
        Py_XDECREF(error);
        Py_XDECREF(traceback);
    }
    int is = answer != Py_False;
    Py_XDECREF(answer);
    return is;
}

int dg_put_off(dg_raised *late)
{
    dg_raised raised;
    if (!(PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) || dg_is_of_signal()) || !dg_take_raised(&raised))
        return 0;
    dg_drop_raised(late); /* as in any other code the last one counts */
    *late = raised;
    return 1;
}

enum { MOST_REPEATED = 100 }; /* a bound for functions that raise KeyboardInterrupt of their own */

PyObject *dg_call_whole(PyObject *function, PyObject *args, dg_raised *late)
{
    PyObject *result;
    for (int n = 0; !(result = PyObject_CallObject(function, args)) && n < MOST_REPEATED && dg_put_off(late); ++n)
        ;
    return result;
}

/* CPython's flag, which no handler needs to run for, nor the GIL to be held, to look at. */
static const int32_t *pending;

void dg_set_pending_signals(const int32_t *flag) { pending = flag; }

const int32_t *dg_pending_signals(void) { return pending && _PyOS_IsMainThread() ? pending : NULL; }

int dg_have_others(void)
{
    PyThreadState *first = PyInterpreterState_ThreadHead(PyInterpreterState_Get());
    return first && PyThreadState_Next(first);
}

/* On 3.11 the flag stays until the interpreter looks at it. */
static int have_interpreter_look(void)
{
    static PyObject *nothing;
    PyObject *globals = nothing || (nothing = Py_CompileString("None", "<signals>", Py_eval_input)) ? PyDict_New() : NULL;
    PyObject *given = globals ? PyEval_EvalCode(nothing, globals, globals) : NULL;
    Py_XDECREF(globals);
    Py_XDECREF(given);
    return given ? 0 : -1;
}

int dg_handle_signals(void)
{
    dg_raised raised;
    if (PyErr_CheckSignals() == 0 && (!pending || !*pending || have_interpreter_look() == 0))
        return 0;
    if (dg_take_raised(&raised))
        dg_raise_later(&raised);
    return -1;
}

static int raise_now(void *argument)
{
    dg_raised *raised = argument;
    PyErr_Restore(raised->type, raised->value, raised->traceback);
    PyMem_RawFree(raised);
    return -1;
}

int dg_pass_on(dg_raised *late)
{
    if (!late->type)
        return 0;
    if (!PyErr_Occurred())
        return dg_raise_later(late);
    dg_drop_raised(late);
    return 0;
}

int dg_raise_later(dg_raised *raised)
{
    dg_raised *kept = PyMem_RawMalloc(sizeof *kept);
    if (kept) {
        *kept = *raised;
        if (Py_AddPendingCall(raise_now, kept) == 0)
            return 0;
        PyMem_RawFree(kept);
    }
    PyErr_Restore(raised->type, raised->value, raised->traceback);
    return -1;
}
