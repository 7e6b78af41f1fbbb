/* Loaded machine code.

   It is unloaded by this type's dealloc and nothing else: a plan holds its library until no call runs it, whereas a finalizer or a
   weak reference's callback may run before those of other objects of the same garbage, which may still call the code. */
#include "core.h"

#include <dlfcn.h>
#include <structmember.h>

typedef struct {
    PyObject_HEAD
    void *handle;
    PyObject *weak_references;
} library;

static PyObject *library_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"path", NULL};
    PyObject *path;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&:Library", names, PyUnicode_FSConverter, &path))
        return NULL;
    library *self = (library *)type->tp_alloc(type, 0);
    /* the GIL is held: no other Python thread forks while the loader's own lock is taken */
    if (self && !(self->handle = dlopen(PyBytes_AS_STRING(path), RTLD_NOW | RTLD_LOCAL))) {
        const char *words = dlerror();
        PyErr_SetString(PyExc_OSError, words ? words : "dlopen failed, and said nothing");
        Py_CLEAR(self);
    }
    Py_DECREF(path);
    return (PyObject *)self;
}

static void library_dealloc(library *self)
{
    PyObject_ClearWeakRefs((PyObject *)self);
    if (self->handle)
        dlclose(self->handle);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *library_address(library *self, PyObject *symbol)
{
    const char *name = PyUnicode_AsUTF8(symbol);
    void *address = name ? dlsym(self->handle, name) : NULL;
    if (name && !address)
        PyErr_Format(PyExc_LookupError, "Library: it has no %U", symbol);
    return address ? PyLong_FromVoidPtr(address) : NULL;
}

static PyMethodDef library_methods[] = {
    {"address", (PyCFunction)library_address, METH_O, "address(symbol) -> int: of a function; LookupError where there is none"},
    {0},
};

PyTypeObject dg_LibraryType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dynagraph._core._dispatch.Library",
    .tp_basicsize = sizeof(library),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "Library(path): loads a shared object, which is unloaded when this object goes.  Raises OSError.",
    .tp_new = library_new,
    .tp_dealloc = (destructor)library_dealloc,
    .tp_methods = library_methods,
    .tp_weaklistoffset = offsetof(library, weak_references),
};
