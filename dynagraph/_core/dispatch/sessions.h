/* Sessions: what is known of device arrays while the turns of a loop follow one another in C, and no Python code runs between them. */
#ifndef DG_SESSIONS_H
#define DG_SESSIONS_H
#include "core.h"

enum { DG_SESSION_ARRAYS = 16 };

typedef struct {
    PyObject *array, *dtype; /* owned */
    dg_device_layout layout;
    int made; /* by a launcher in this session: only the session and the state of the turns have it */
} dg_session_array;

struct dg_session {
    int quiet; /* whether the turn that has ended ran no Python code */
    const dg_launcher *launcher; /* of the last turn, whose stream and device are current still; or null */
    int64_t stream;
    int n;
    dg_session_array arrays[DG_SESSION_ARRAYS];
};

/* everything is looked at anew from here on: other code may have run */
void dg_session_forget(dg_session *session);
const dg_session_array *dg_session_find(const dg_session *session, PyObject *array); /* null: it is not known; session: or null */
/* where the frame is of no session, or it has no room: read from the array, into *own; null: it is no device array */
const dg_device_layout *dg_session_layout(dg_session *session, PyObject *array, dg_device_layout *own, PyObject **dtype);
/* an array in C order that was made in this session and is no longer used, as a new reference; null: there is none */
PyObject *dg_session_take(dg_session *session, PyObject *dtype, const int64_t *shape, int ndim, char **address);
/* remembers an array that a launcher has made */
void dg_session_made(dg_session *session, PyObject *array, PyObject *dtype, const int64_t *shape, int ndim, int64_t device, char *address);

/* -- compiled_function.c -- */

/* a call of a CompiledFunction as a turn of a loop; of another callable, a plain call */
PyObject *dg_call_turn(PyObject *callable, PyObject *const *args, Py_ssize_t n_args, dg_session *session);

#endif
