/* Replays: a single launch, or one for each stage of a call, that does the same as all launches of the call. */
#include "launchers.h"

/* all that the launches of a call depend on: the stream, sizes, addresses, numbers */
static PyObject *key_of(const dg_launcher *l, const dg_frame *frame, int64_t stream)
{
    enum { VALUE_WORDS = DG_VALUE_BYTES / sizeof(uint64_t) };
    uint64_t few[1 + DG_MAX_SYMBOLS + VALUE_WORDS * DG_FEW_ARRAYS], *words;
    int n = 0;
    if (!(words = dg_room(few, sizeof few, sizeof *words * (size_t)(1 + l->n_read + VALUE_WORDS * l->n_inputs))))
        return PyErr_NoMemory();
    words[n++] = (uint64_t)stream;
    for (int k = 0; k < l->n_read; ++k)
        words[n++] = (uint64_t)frame->sizes[l->read[k]];
    for (int k = 0; k < l->n_inputs; ++k) {
        if (!l->value_bytes[k]) {
            words[n++] = (uintptr_t)frame->inputs[k];
            continue;
        }
        memset(&words[n], 0, DG_VALUE_BYTES);
        memcpy(&words[n], frame->inputs[k], l->value_bytes[k]);
        n += VALUE_WORDS;
    }
    PyObject *key = PyBytes_FromStringAndSize((const char *)words, (Py_ssize_t)sizeof *words * n);
    dg_leave(words, few);
    return key;
}

/* [launches, result...] -> 1: they were launched, `outputs` are filled; -1: an exception is set, and nothing that writes to arguments was
   launched */
static int launch(const dg_launcher *l, PyObject *given, PyObject **outputs)
{
    PyObject *launches = PyList_Check(given) && PyList_GET_SIZE(given) == l->n_results + 1 ? PyList_GET_ITEM(given, 0) : NULL;
    if (!launches || !PyTuple_Check(launches)) {
        PyErr_Format(PyExc_TypeError, "Launcher: replay gave %R, not [launches, result...] or None", given);
        return -1;
    }
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(launches); ++k) {
        PyObject *launched = PyObject_CallNoArgs(PyTuple_GET_ITEM(launches, k));
        if (!launched)
            return -1;
        Py_DECREF(launched);
    }
    for (int k = 0; k < l->n_results; ++k)
        outputs[k] = Py_NewRef(PyList_GET_ITEM(given, k + 1));
    return 1;
}

/* What went wrong before anything was launched: 0: the launches do without the replay; -1: an exception of somebody else's is set. */
static int put_up_with(const dg_launcher *l)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    if (traceback)
        PyException_SetTraceback(error, traceback);
    PyObject *answer = PyObject_CallOneArg(l->replay_failed, error);
    int expected = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    if (expected == 0) {
        PyErr_Restore(type, error, traceback);
        return -1;
    }
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(traceback);
    return expected > 0 ? 0 : -1;
}

int dg_launch_replay(const dg_launcher *l, const dg_frame *frame, int64_t stream, PyObject **outputs)
{
    PyObject *key = key_of(l, frame, stream), *inputs = PyTuple_New(l->n_inputs);
    for (int k = 0; inputs && k < l->n_inputs; ++k)
        PyTuple_SET_ITEM(inputs, k, Py_NewRef(frame->input_objects[k]));
    PyObject *given = key && inputs ? PyObject_Vectorcall(l->replay, (PyObject *[]){key, inputs}, 2, NULL) : NULL;
    int done = given == Py_None ? 0 : given ? launch(l, given, outputs) : -1;
    Py_XDECREF(given);
    Py_XDECREF(inputs);
    Py_XDECREF(key);
    return done < 0 ? put_up_with(l) : done;
}
