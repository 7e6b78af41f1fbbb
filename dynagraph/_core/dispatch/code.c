/* The machine code of a plan or of a native loop, and better code for the same that a compiler may still be making. */
#include "code.h"
#include <time.h>

enum { LOOK = 2000000 }; /* nanoseconds between looks whether there is better code */

int64_t dg_clock_now(void)
{
    struct timespec time = {0};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static int set(dg_code *code, PyObject *address, PyObject *keepalive)
{
    void *run = PyLong_Check(address) ? PyLong_AsVoidPtr(address) : NULL;
    if (PyErr_Occurred())
        return -1;
    if (!run) {
        PyErr_Format(PyExc_ValueError, "%s: the address of the code is null, or %R, which is no int", code->of, address);
        return -1;
    }
    code->run = (uintptr_t)run;
    Py_XSETREF(code->keepalive, Py_NewRef(keepalive));
    return 0;
}

int dg_code_parse(dg_code *code, const char *of, PyObject *address, PyObject *keepalive, PyObject *better)
{
    code->of = of;
    if (better && better != Py_None && !PyCallable_Check(better)) {
        PyErr_Format(PyExc_TypeError, "%s: better=%R is neither callable nor None", of, better);
        return -1;
    }
    if (better && better != Py_None)
        code->better = Py_NewRef(better);
    return set(code, address, keepalive);
}

int dg_code_ask(dg_code *code, dg_raised *late)
{
    int64_t at = dg_clock_now();
    if (at < code->next_look)
        return 0;
    code->next_look = at + LOOK; /* first: another thread may come here meanwhile */
    PyObject *better = Py_NewRef(code->better), *found = dg_call_whole(better, NULL, late);
    Py_DECREF(better);
    int ok = found != NULL;
    PyObject *address, *keepalive;
    if (found && PyTuple_Check(found)) {
        ok = PyArg_ParseTuple(found, "OO:better", &address, &keepalive) && set(code, address, keepalive) == 0;
        Py_CLEAR(code->better);
    } else if (found == Py_False) {
        Py_CLEAR(code->better);
    } else if (found && found != Py_None) {
        PyErr_Format(PyExc_TypeError, "%s: better() gave %R, which is neither None, False, nor (address, keepalive)", code->of, found);
        ok = 0;
    }
    Py_XDECREF(found);
    return ok ? 1 : -1;
}

int dg_code_traverse(const dg_code *code, visitproc visit, void *arg)
{
    Py_VISIT(code->keepalive);
    Py_VISIT(code->better);
    return 0;
}

void dg_code_clear(dg_code *code)
{
    Py_CLEAR(code->keepalive);
    Py_CLEAR(code->better);
}
