/* Memory that processes share: a file's bytes, mapped.

   Python's own mmap keeps a descriptor for each mapping; what comes out of queues by thousands must not. */
#include "core.h"

#include <structmember.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct {
    PyObject_HEAD
    void *address;
    Py_ssize_t nbytes;
    int file;        /* -1: closed */
    PyObject *owner; /* of a lease: the mapping whose memory it is; else NULL */
    PyObject *weak_references;
} mapping;

#ifdef MAP_POPULATE
enum { AT_ONCE = MAP_POPULATE };
#else
enum { AT_ONCE = 0 };
#endif

static PyObject *mapping_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"file", "nbytes", "keep", NULL};
    Py_ssize_t nbytes;
    int file, keep = 1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "in|p:FileMapping", names, &file, &nbytes, &keep))
        return NULL;
    if (nbytes <= 0)
        return PyErr_Format(PyExc_ValueError, "FileMapping: expected at least one byte, got %zd", nbytes);
    mapping *self = (mapping *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->file = -1;
    Py_BEGIN_ALLOW_THREADS
    self->address = mmap(NULL, (size_t)nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | AT_ONCE, file, 0);
    Py_END_ALLOW_THREADS
    if (self->address == MAP_FAILED) {
        self->address = NULL;
        PyErr_SetFromErrno(PyExc_OSError);
        Py_DECREF(self);
        return NULL;
    }
    self->nbytes = nbytes;
    if (keep)
        self->file = file;
    else
        close(file);
    return (PyObject *)self;
}

static void mapping_dealloc(mapping *self)
{
    PyObject_ClearWeakRefs((PyObject *)self);
    if (self->owner)
        Py_DECREF(self->owner);
    else if (self->address)
        munmap(self->address, (size_t)self->nbytes);
    if (self->file >= 0)
        close(self->file);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *mapping_lease(mapping *self, PyObject *ignored)
{
    mapping *made = (mapping *)Py_TYPE(self)->tp_alloc(Py_TYPE(self), 0);
    if (!made)
        return NULL;
    made->address = self->address;
    made->nbytes = self->nbytes;
    made->file = -1;
    made->owner = Py_NewRef(self);
    return (PyObject *)made;
}

static PyMethodDef mapping_methods[] = {
    {"lease", (PyCFunction)mapping_lease, METH_NOARGS,
     "Another object of the same memory: a weak reference to it says when none of its views are left."},
    {0},
};

static int mapping_buffer(mapping *self, Py_buffer *view, int flags)
{
    return PyBuffer_FillInfo(view, (PyObject *)self, self->address, self->nbytes, 0, flags);
}

static PyBufferProcs mapping_as_buffer = {.bf_getbuffer = (getbufferproc)mapping_buffer};

static PyMemberDef mapping_members[] = {
    {"nbytes", T_PYSSIZET, offsetof(mapping, nbytes), READONLY, "how many bytes there are"},
    {"address", T_PYSSIZET, offsetof(mapping, address), READONLY, "of the first byte"},
    {"file", T_INT, offsetof(mapping, file), READONLY, "the descriptor; -1 if it was not kept"},
    {0},
};

PyTypeObject dg_MappingType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dynagraph._core._dispatch.FileMapping",
    .tp_basicsize = sizeof(mapping),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "FileMapping(file, nbytes, keep=True): the first bytes of an open file as shared memory, a writable buffer.  It takes the\n"
              "descriptor, which it closes when it goes, or at once (keep=False).  Raises OSError, and leaves the descriptor then.",
    .tp_new = mapping_new,
    .tp_dealloc = (destructor)mapping_dealloc,
    .tp_as_buffer = &mapping_as_buffer,
    .tp_members = mapping_members,
    .tp_methods = mapping_methods,
    .tp_weaklistoffset = offsetof(mapping, weak_references),
};
