/* Exceptions that leave a compiled function show the user's frames, as those of a plain function do, and none of dynagraph's. */
#include "core.h"

int dg_full_tracebacks; /* to see dynagraph's own frames */

/* Code that stands in for a user's frame and only runs an entry (frontend/bytecode/assemble.py, call_instead) has a local variable with
   a name that no other code has. The frames after it tell the user's line. */
static int stands_in(PyTracebackObject *tb)
{
    PyCodeObject *code = PyFrame_GetCode(tb->tb_frame);
    PyObject *names = PyCode_GetVarnames(code);
    Py_ssize_t n = names ? PyTuple_GET_SIZE(names) : 0;
    int found = n > 0 && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, n - 1), "stands in") == 0;
    Py_XDECREF(names);
    Py_DECREF(code);
    return found;
}

static int is_ours(PyTracebackObject *tb)
{
    if (stands_in(tb))
        return 1;
    static PyObject *key;
    if (!key && !(key = PyUnicode_InternFromString("__name__")))
        return 0;
    PyObject *globals = PyFrame_GetGlobals(tb->tb_frame);
    PyObject *name = globals && PyDict_Check(globals) ? PyDict_GetItemWithError(globals, key) : NULL;
    const char *text = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
    int ours = text && strncmp(text, "dynagraph", 9) == 0 && (text[9] == 0 || text[9] == '.');
    Py_XDECREF(globals);
    return ours;
}

/* a copy in front of `next`, which it takes: the old one may be in somebody else's hands */
static PyObject *copy_before(PyTracebackObject *tb, PyObject *next)
{
    PyObject *line = PyObject_GetAttrString((PyObject *)tb, "tb_lineno"); /* computed when it is asked for */
    PyObject *copy = line ? PyObject_CallFunction((PyObject *)&PyTraceBack_Type, "OOiO", next ? next : Py_None, tb->tb_frame,
                                                  tb->tb_lasti, line) : NULL;
    Py_XDECREF(line);
    Py_XDECREF(next);
    return copy;
}

/* The chain without our frames, a new reference or null (nothing is left); null with an exception where that failed. */
static PyObject *without_ours(PyTracebackObject *tb)
{
    Py_ssize_t n_kept = 0, n = 0;
    PyTracebackObject *rest = tb; /* after the last of ours: it stays as it is */
    for (PyTracebackObject *t = tb; t; t = t->tb_next, ++n)
        if (is_ours(t))
            rest = t->tb_next;
    PyTracebackObject **kept = PyMem_Calloc((size_t)n + 1, sizeof *kept);
    if (!kept)
        return PyErr_NoMemory();
    for (PyTracebackObject *t = tb; t != rest; t = t->tb_next)
        if (!is_ours(t))
            kept[n_kept++] = t;
    PyObject *chain = Py_XNewRef((PyObject *)rest);
    while (n_kept > 0 && !PyErr_Occurred())
        chain = copy_before(kept[--n_kept], chain);
    PyMem_Free(kept);
    return chain;
}

void dg_hide_our_frames(void)
{
    if (dg_full_tracebacks)
        return;
#if PY_VERSION_HEX >= 0x030C0000
    PyObject *exception = PyErr_GetRaisedException();
    PyObject *old = exception ? PyException_GetTraceback(exception) : NULL;
    PyObject *chain = old ? without_ours((PyTracebackObject *)old) : NULL;
    if (PyErr_Occurred())
        PyErr_Clear();
    else if (chain != old)
        PyException_SetTraceback(exception, chain ? chain : Py_None);
    Py_XDECREF(old);
    Py_XDECREF(chain);
    PyErr_SetRaisedException(exception);
#else
    PyObject *type, *value, *old;
    PyErr_Fetch(&type, &value, &old);
    PyObject *chain = old ? without_ours((PyTracebackObject *)old) : NULL;
    if (PyErr_Occurred()) {
        PyErr_Clear();
        Py_XSETREF(chain, Py_XNewRef(old));
    }
    Py_XDECREF(old);
    PyErr_Restore(type, value, chain);
#endif
}
