/* Arrays and nodes of dynagraph.torch as gradients see them: what `ArrayTerm` (dynagraph/torch/core/terms.py) and the operands of
   a `Node` are, with less between an operator and NumPy's ufunc.

   `Term` derives from `ArrayTerm` and has its slot; what is not redefined here is inherited.  Arrays of other libraries and of
   examples, and whatever else is not plain, go to the methods in Python. */
#include "tensors.h"
#include <structmember.h>

enum { MAX_TERMS = 8, MAX_ATTRS = 16 };

dg_ufuncs dg_ufunc;

static struct {
    PyTypeObject *base, *unsaved, *term; /* ArrayTerm, Unsaved, and the class made here */
    Py_ssize_t array, shape, dtype;      /* slots of ArrayTerm and of Unsaved */
    PyObject *call, *forward, *ir_dtype, *is_unbatchable, *unbatchable;
    PyObject *operand, *result, *array_name, *shape_name, *ndim_name, *dtype_name, *conjugate, *real;
} of;

int dg_is_term(PyObject *object) { return PyObject_TypeCheck(object, of.base); }

PyObject *dg_new_term(PyObject *array)
{
    PyObject *term = of.term->tp_alloc(of.term, 0);
    if (term)
        *dg_slot_of(term, of.array) = array;
    else
        Py_DECREF(array);
    return term;
}

static PyObject *new_unsaved(PyObject *meta)
{
    PyObject *dtype = PyTuple_GET_ITEM(meta, 1), *term = of.unsaved->tp_alloc(of.unsaved, 0);
    if (!term)
        return NULL;
    *dg_slot_of(term, of.shape) = Py_NewRef(PyTuple_GET_ITEM(meta, 0));
    int is_half = dg_is_half((PyArray_Descr *)dtype); /* which is computed as float32 */
    *dg_slot_of(term, of.dtype) = is_half ? (PyObject *)PyArray_DescrFromType(NPY_FLOAT) : Py_NewRef(dtype);
    return term;
}

PyObject *dg_array_of_term(PyObject *term)
{
    PyObject *array = dg_is_term(term) ? *dg_slot_of(term, of.array) : NULL;
    return array ? Py_NewRef(array) : PyObject_GetAttr(term, of.array_name);
}

/* -- attributes ---------------------------------------------------------------------------------------------------------- */

static PyObject *get_shape(PyObject *self, void *unused)
{
    PyObject *array = *dg_slot_of(self, of.array);
    if (PyArray_CheckExact(array))
        return PyArray_IntTupleFromIntp(PyArray_NDIM((PyArrayObject *)array), PyArray_DIMS((PyArrayObject *)array));
    return PyObject_GetAttr(array, of.shape_name);
}

static PyObject *get_ndim(PyObject *self, void *unused)
{
    PyObject *array = *dg_slot_of(self, of.array);
    if (PyArray_CheckExact(array))
        return PyLong_FromLong(PyArray_NDIM((PyArrayObject *)array));
    return PyObject_GetAttr(array, of.ndim_name);
}

/* a new reference: NumPy's dtype */
static PyObject *dtype_of(PyObject *self)
{
    PyObject *array = *dg_slot_of(self, of.array);
    if (PyArray_CheckExact(array))
        return Py_NewRef((PyObject *)PyArray_DESCR((PyArrayObject *)array));
    return PyObject_GetAttr(array, of.dtype_name);
}

static PyObject *get_dtype(PyObject *self, void *unused)
{
    PyObject *dtype = dtype_of(self), *found = dtype ? PyObject_CallOneArg(of.ir_dtype, dtype) : NULL;
    Py_XDECREF(dtype);
    return found;
}

/* of a complex term what an op gives, of others the term */
static PyObject *get_part(PyObject *self, void *op)
{
    PyObject *dtype = dtype_of(self);
    if (!dtype)
        return NULL;
    char kind = PyArray_DescrCheck(dtype) ? ((PyArray_Descr *)dtype)->kind : 'c';
    Py_DECREF(dtype);
    return kind == 'c' ? PyObject_CallFunctionObjArgs(of.call, self, *(PyObject **)op, NULL) : Py_NewRef(self);
}

static PyGetSetDef attributes[] = {
    {"shape", get_shape, NULL, NULL, NULL},
    {"ndim", get_ndim, NULL, NULL, NULL},
    {"dtype", get_dtype, NULL, NULL, NULL},
    {"conj", get_part, NULL, NULL, &of.conjugate},
    {"real", get_part, NULL, NULL, &of.real},
    {0},
};

/* -- operators ----------------------------------------------------------------------------------------------------------- */

static PyObject *call_ufunc(PyObject *ufunc, PyObject *left, PyObject *right)
{
    PyObject *given[] = {NULL, left, right};
    PyObject *result = PyObject_Vectorcall(ufunc, given + 1, (right ? 2 : 1) | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    return result ? dg_new_term(result) : NULL;
}

static PyObject *operated(PyObject *ufunc, PyObject *left, PyObject *right)
{
    PyObject *a = dg_is_term(left) ? dg_array_of_term(left) : Py_NewRef(left);
    PyObject *b = !a ? NULL : dg_is_term(right) ? dg_array_of_term(right) : Py_NewRef(right);
    PyObject *result = b ? call_ufunc(ufunc, a, b) : NULL;
    Py_XDECREF(a);
    Py_XDECREF(b);
    return result;
}

static PyObject *of_left(PyObject *ufunc, PyObject *left, PyObject *right)
{
    if (!dg_is_term(left))
        Py_RETURN_NOTIMPLEMENTED;
    return operated(ufunc, left, right);
}

static PyObject *add(PyObject *left, PyObject *right) { return of_left(dg_ufunc.add, left, right); }
static PyObject *multiply(PyObject *left, PyObject *right) { return of_left(dg_ufunc.multiply, left, right); }
static PyObject *divide(PyObject *left, PyObject *right) { return of_left(dg_ufunc.divide, left, right); }
static PyObject *subtract(PyObject *left, PyObject *right) { return operated(dg_ufunc.subtract, left, right); }

static PyObject *negative(PyObject *self)
{
    return call_ufunc(dg_ufunc.negative, *dg_slot_of(self, of.array), NULL);
}

/* whether the error that is set is one of arrays of examples, which are computed in a loop then; -1: another error */
static int is_of_examples(void)
{
    if (!PyErr_ExceptionMatches(PyExc_ValueError) && !PyErr_ExceptionMatches(of.unbatchable))
        return 0;
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    PyObject *answer = PyObject_CallOneArg(of.is_unbatchable, error);
    int is = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    if (is) {
        Py_XDECREF(type);
        Py_XDECREF(error);
        Py_XDECREF(traceback);
    } else {
        PyErr_Restore(type, error, traceback);
    }
    return is;
}

/* call(op, *others, **attrs) */
static PyObject *term_call(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *names)
{
    Py_ssize_t n_names = names ? PyTuple_GET_SIZE(names) : 0;
    PyObject *array = *dg_slot_of(self, of.array), *given[1 + MAX_TERMS + MAX_ATTRS], *forward = NULL;
    if (n > 0 && n <= MAX_TERMS && n_names <= MAX_ATTRS && !(forward = PyDict_GetItemWithError(of.forward, args[0])) &&
        PyErr_Occurred())
        return NULL;
    for (Py_ssize_t k = 1; forward && k < n; ++k) {
        given[1 + k] = dg_is_term(args[k]) ? *dg_slot_of(args[k], of.array) : NULL;
        if (!given[1 + k])
            forward = NULL;
    }
    given[1] = array;
    if (forward && !dg_are_large(given + 1, n, dg_of.large_size)) { /* the method in Python takes kernels for large arrays */
        for (Py_ssize_t k = 0; k < n_names; ++k)
            given[1 + n + k] = args[n + k];
        Py_INCREF(forward);
        PyObject *result = PyObject_Vectorcall(forward, given + 1, (size_t)n | PY_VECTORCALL_ARGUMENTS_OFFSET, names);
        Py_DECREF(forward);
        if (result)
            return dg_new_term(result);
        if (is_of_examples() <= 0)
            return NULL;
    }
    if (n + n_names > MAX_TERMS + MAX_ATTRS)
        return PyErr_Format(PyExc_TypeError, "call: %zd operands and attributes", n + n_names);
    given[0] = self;
    for (Py_ssize_t k = 0; k < n + n_names; ++k)
        given[1 + k] = args[k];
    return PyObject_Vectorcall(of.call, given, (size_t)n + 1, names);
}

static PyMethodDef methods[] = {
    {"call", (PyCFunction)(void (*)(void))term_call, METH_FASTCALL | METH_KEYWORDS, NULL},
    {0},
};

static int term_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(*dg_slot_of(self, of.array));
    return 0;
}

static void term_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_CLEAR(*dg_slot_of(self, of.array));
    type->tp_free(self);
    Py_DECREF(type);
}

/* -- nodes --------------------------------------------------------------------------------------------------------------- */

/* `d` of gradients: a node, with its operands and results as terms */
typedef struct {
    PyObject_HEAD
    PyObject *node;
} differentiated;

static inline PyObject *node_of(PyObject *self) { return ((differentiated *)self)->node; }

PyObject *dg_new_differentiated(PyObject *node)
{
    differentiated *made = PyObject_New(differentiated, &dg_DifferentiatedType);
    if (made)
        made->node = Py_NewRef(node);
    return (PyObject *)made;
}

static void differentiated_dealloc(PyObject *self)
{
    Py_DECREF(node_of(self));
    PyObject_Free(self);
}

/* what was saved, as a term; NULL without an exception: Python has to look */
static PyObject *term_of_saved(PyObject *array, PyObject *storage, PyObject *version)
{
    if (!array || !dg_is_plain(array) || !Py_IS_TYPE(storage, dg_of.storage))
        return NULL;
    PyObject *now = *dg_slot_of(storage, dg_of.version);
    int same = now == version ? 1 : now ? PyObject_RichCompareBool(now, version, Py_EQ) : 0;
    return same > 0 ? dg_new_term(Py_NewRef(array)) : NULL;
}

static PyObject *operand(PyObject *node, Py_ssize_t k)
{
    PyObject *metas = *dg_slot_of(node, dg_of.metas), *saved = *dg_slot_of(node, dg_of.saved);
    PyObject *meta = metas ? dg_item(metas, k) : NULL, *entry = saved ? dg_item(saved, k) : NULL;
    if (meta && dg_is_meta(meta) && saved && (entry ? entry == Py_None : PyTuple_CheckExact(saved) && !PyTuple_GET_SIZE(saved)))
        return new_unsaved(meta);
    if (entry && PyTuple_CheckExact(entry) && PyTuple_GET_SIZE(entry) == 2 && dg_is_tensor(PyTuple_GET_ITEM(entry, 0))) {
        PyObject *tensor = PyTuple_GET_ITEM(entry, 0), *array = *dg_slot_of(tensor, dg_of.array);
        PyObject *term = term_of_saved(array, *dg_slot_of(tensor, dg_of.own_storage), PyTuple_GET_ITEM(entry, 1));
        if (term || PyErr_Occurred())
            return term;
    }
    PyObject *number = PyLong_FromSsize_t(k), *found = number ? PyObject_CallMethodOneArg(node, of.operand, number) : NULL;
    Py_XDECREF(number);
    return found;
}

static PyObject *result(PyObject *node, PyObject *number)
{
    PyObject *saved = *dg_slot_of(node, dg_of.saved_out);
    PyObject *entry = saved && PyDict_CheckExact(saved) ? PyDict_GetItemWithError(saved, number) : NULL;
    if (entry && PyTuple_CheckExact(entry) && PyTuple_GET_SIZE(entry) == 3) {
        PyObject *array = PyTuple_GET_ITEM(entry, 0);
        PyObject *term = term_of_saved(array, PyTuple_GET_ITEM(entry, 1), PyTuple_GET_ITEM(entry, 2));
        if (term)
            return term;
    }
    return PyErr_Occurred() ? NULL : PyObject_CallMethodOneArg(node, of.result, number);
}

static PyObject *get_operand(PyObject *self, void *k) { return operand(node_of(self), (Py_ssize_t)(intptr_t)k); }
static PyObject *get_out(PyObject *self, void *unused) { return result(node_of(self), dg_of.zero); }

static PyObject *get_operands(PyObject *self, void *unused)
{
    PyObject *metas = *dg_slot_of(node_of(self), dg_of.metas);
    Py_ssize_t n = metas ? PyObject_Size(metas) : -1;
    if (!metas)
        PyErr_SetString(PyExc_AttributeError, "metas");
    PyObject *all = n < 0 ? NULL : PyTuple_New(n);
    for (Py_ssize_t k = 0; all && k < n; ++k) {
        PyObject *term = operand(node_of(self), k);
        if (term)
            PyTuple_SET_ITEM(all, k, term);
        else
            Py_CLEAR(all);
    }
    return all;
}

/* whatever else is asked for is the node's */
static PyObject *differentiated_getattro(PyObject *self, PyObject *name)
{
    PyObject *descriptor = PyDict_GetItemWithError(Py_TYPE(self)->tp_dict, name);
    if (descriptor && Py_TYPE(descriptor)->tp_descr_get)
        return Py_TYPE(descriptor)->tp_descr_get(descriptor, self, (PyObject *)Py_TYPE(self));
    return PyErr_Occurred() ? NULL : PyObject_GetAttr(node_of(self), name);
}

static PyGetSetDef of_nodes[] = {
    {"x", get_operand, NULL, "The first operand.", (void *)0},
    {"y", get_operand, NULL, "The second operand.", (void *)1},
    {"operands", get_operands, NULL, "All operands.", NULL},
    {"out", get_out, NULL, "The first result.", NULL},
    {0},
};

PyTypeObject dg_DifferentiatedType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "dynagraph._core._dispatch.Differentiated",
    .tp_doc = "A node of dynagraph.torch as gradients see it.",
    .tp_basicsize = sizeof(differentiated),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_dealloc = differentiated_dealloc,
    .tp_getattro = differentiated_getattro,
    .tp_getset = of_nodes,
};

/* -- what they are told -------------------------------------------------------------------------------------------------- */

static PyTypeObject *term_class(void)
{
    PyType_Slot slots[] = {
        {Py_nb_add, add}, {Py_nb_subtract, subtract}, {Py_nb_multiply, multiply}, {Py_nb_true_divide, divide},
        {Py_nb_negative, negative}, {Py_tp_getset, attributes}, {Py_tp_methods, methods}, {Py_tp_traverse, term_traverse},
        {Py_tp_dealloc, term_dealloc}, {Py_tp_doc, "An `ArrayTerm`."}, {0, NULL},
    };
    PyType_Spec spec = {
        .name = "dynagraph._core._dispatch.Term",
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    return (PyTypeObject *)PyType_FromSpecWithBases(&spec, (PyObject *)of.base);
}

int dg_terms_start(PyObject *functions)
{
    const struct { const char *text; PyObject **name; } names[] = {
        {"operand", &of.operand}, {"result", &of.result}, {"array", &of.array_name}, {"shape", &of.shape_name},
        {"ndim", &of.ndim_name}, {"dtype", &of.dtype_name}, {"conjugate", &of.conjugate}, {"real", &of.real},
    };
    for (size_t k = 0; k < sizeof names / sizeof *names; ++k)
        if (!*names[k].name && !(*names[k].name = PyUnicode_InternFromString(names[k].text)))
            return -1;
    const dg_given given[] = {
        {"ArrayTerm", (PyObject **)&of.base}, {"Unsaved", (PyObject **)&of.unsaved}, {"forward", &of.forward},
        {"ir_dtype", &of.ir_dtype}, {"is_unbatchable", &of.is_unbatchable}, {"Unbatchable", &of.unbatchable},
        {"add", &dg_ufunc.add}, {"subtract", &dg_ufunc.subtract}, {"multiply", &dg_ufunc.multiply}, {"divide", &dg_ufunc.divide},
        {"negative", &dg_ufunc.negative},
    };
    if (dg_take_given("set_tensor_backward", functions, given, sizeof given / sizeof *given) < 0)
        return -1;
    PyObject *base = (PyObject *)of.base, *unsaved = (PyObject *)of.unsaved;
    if (!PyType_Check(base) || !PyType_Check(unsaved) || !PyType_IsSubtype(of.unsaved, of.base) || !PyDict_Check(of.forward)) {
        PyErr_SetString(PyExc_TypeError, "set_tensor_backward: ArrayTerm and Unsaved are classes, and forward a dict");
        return -1;
    }
    Py_XSETREF(of.call, PyObject_GetAttrString(base, "call"));
    if (!of.call || dg_offset_of(base, "array", &of.array) < 0 || dg_offset_of(unsaved, "_shape", &of.shape) < 0 ||
        dg_offset_of(unsaved, "_dtype", &of.dtype) < 0 || PyType_Ready(&dg_DifferentiatedType) < 0)
        return -1;
    of.term = term_class();
    return of.term ? 0 : -1;
}
