/* Sessions: device arrays are looked at once, and memory that turns before have given up is written again.

   An array that a launcher makes in a session is seen by nobody else until Python code runs, and then the session forgets it.  So it
   is unused as soon as the session has the only reference to it, and to its memory.  What the stream has to do with it comes first. */
#include "sessions.h"

static void drop(dg_session *session, int k)
{
    dg_session_array dropped = session->arrays[k];
    session->arrays[k] = session->arrays[--session->n];
    Py_DECREF(dropped.array);
    Py_DECREF(dropped.dtype);
}

void dg_session_forget(dg_session *session)
{
    session->launcher = NULL;
    while (session->n)
        drop(session, session->n - 1);
}

static int is_unused(const dg_session_array *known) { return known->made && Py_REFCNT(known->array) == 1; }

static void drop_unused(dg_session *session)
{
    for (int k = session->n; k-- > 0;)
        if (is_unused(&session->arrays[k]))
            drop(session, k);
}

static dg_session_array *room(dg_session *session)
{
    if (session->n == DG_SESSION_ARRAYS)
        drop_unused(session);
    return session->n < DG_SESSION_ARRAYS ? &session->arrays[session->n++] : NULL;
}

const dg_session_array *dg_session_find(const dg_session *session, PyObject *array)
{
    for (int k = 0; session && k < session->n; ++k)
        if (session->arrays[k].array == array)
            return &session->arrays[k];
    return NULL;
}

const dg_device_layout *dg_session_layout(dg_session *session, PyObject *array, dg_device_layout *own, PyObject **dtype)
{
    const dg_session_array *found = dg_session_find(session, array);
    if (found) {
        *dtype = Py_NewRef(found->dtype);
        return &found->layout;
    }
    *dtype = dg_device_dtype(array);
    PyErr_Clear();
    if (!*dtype || !dg_device_layout_of(array, own)) {
        Py_CLEAR(*dtype);
        return NULL;
    }
    dg_session_array *known = session ? room(session) : NULL;
    if (known)
        *known = (dg_session_array){Py_NewRef(array), Py_NewRef(*dtype), *own, 0};
    return own;
}

PyObject *dg_session_take(dg_session *session, PyObject *dtype, const int64_t *shape, int ndim, char **address)
{
    for (int k = 0; k < session->n; ++k) {
        const dg_session_array *known = &session->arrays[k];
        if (!is_unused(known) || known->dtype != dtype || known->layout.ndim != ndim)
            continue;
        int axis = 0;
        while (axis < ndim && known->layout.dims[axis] == shape[axis])
            ++axis;
        if (axis == ndim) {
            *address = known->layout.data;
            return Py_NewRef(known->array);
        }
    }
    drop_unused(session); /* sizes change: the pool shall have the memory */
    return NULL;
}

void dg_session_made(dg_session *session, PyObject *array, PyObject *dtype, const int64_t *shape, int ndim, int64_t device, char *address)
{
    dg_session_array *known = room(session);
    if (!known)
        return;
    *known = (dg_session_array){Py_NewRef(array), Py_NewRef(dtype), {.ndim = ndim, .device = device, .data = address}, 1};
    npy_intp stride = known->layout.itemsize = PyDataType_ELSIZE((PyArray_Descr *)dtype);
    for (int axis = ndim - 1; axis >= 0; --axis) {
        known->layout.dims[axis] = shape[axis];
        known->layout.strides[axis] = stride;
        stride *= shape[axis];
    }
}
