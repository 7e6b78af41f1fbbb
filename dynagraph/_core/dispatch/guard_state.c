/* Guards that ask functions of the compiler's, or NumPy, for their state. */
#include "guards.h"

/* What a function of the compiler's answers; NULL where it fails, without an exception. What a signal's handler raises meanwhile is raised
   in the next code of the user's. */
static PyObject *answer_of(PyObject *function)
{
    dg_raised late = {0};
    PyObject *answer = dg_call_whole(function, NULL, &late);
    if (!answer)
        PyErr_Clear();
    if (late.type && dg_raise_later(&late) < 0)
        PyErr_WriteUnraisable(function);
    return answer;
}

int dg_returns_the_same(dg_guard *g, dg_frame *frame)
{
    (void)frame;
    PyObject *now = answer_of(g->key);
    int holds = now && dg_equals(g, now);
    Py_XDECREF(now);
    return holds;
}

/* -- NumPy's floating-point error state --------------------------------------------------------------------------------- */

static PyObject *errstate_variable; /* a ContextVar of immutable states, or null where this NumPy has none */
static PyObject *errstate_harmless; /* callable: whether the state in force asks for nothing but warnings */
static PyObject *harmless_state;    /* the last state that was found harmless */

void dg_set_errstate(PyObject *variable, PyObject *harmless)
{
    Py_XSETREF(errstate_variable, variable == Py_None ? NULL : Py_NewRef(variable));
    Py_XSETREF(errstate_harmless, Py_NewRef(harmless));
    Py_CLEAR(harmless_state);
}

int dg_warns_at_most(dg_guard *g, dg_frame *frame)
{
    (void)g, (void)frame;
    PyObject *state = NULL;
    if (errstate_variable) {
        if (PyContextVar_Get(errstate_variable, Py_None, &state) < 0) {
            PyErr_Clear();
            return 0;
        }
        if (state && state == harmless_state) {
            Py_DECREF(state);
            return 1;
        }
    }
    PyObject *answer = errstate_harmless ? answer_of(errstate_harmless) : NULL;
    int holds = answer && PyObject_IsTrue(answer) == 1;
    Py_XDECREF(answer);
    PyErr_Clear();
    if (holds && state)
        Py_XSETREF(harmless_state, Py_NewRef(state));
    Py_XDECREF(state);
    return holds;
}
