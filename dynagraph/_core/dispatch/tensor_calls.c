/* Operations on tensors of dynagraph.torch: what `apply` in dynagraph/torch/core/tensor.py does, for what most calls are.

   Tensors, storages, nodes and primitives are Python classes; their slots are read and written where their descriptors say.
   Whatever is not plain (several results, hooks, arrays of other libraries, views that must be renewed) goes to the functions in
   Python. */
#include "tensors.h"
#include <structmember.h>
#include <time.h>

enum { MAX_OPERANDS = 12, LETTERS = 6 };

dg_tensor_classes dg_of;

/* -- tensors ------------------------------------------------------------------------------------------------------------- */

/* a tensor of an array, whose reference it takes */
PyObject *dg_new_tensor(PyObject *array)
{
    PyObject *storage = dg_of.storage->tp_alloc(dg_of.storage, 0);
    PyObject *tensor = storage ? dg_of.tensor->tp_alloc(dg_of.tensor, 0) : NULL;
    if (!tensor) {
        Py_XDECREF(storage);
        Py_DECREF(array);
        return NULL;
    }
    *dg_slot_of(storage, dg_of.storage_array) = Py_NewRef(array);
    *dg_slot_of(storage, dg_of.version) = Py_NewRef(dg_of.zero);
    *dg_slot_of(tensor, dg_of.array) = array;
    *dg_slot_of(tensor, dg_of.own_storage) = storage;
    *dg_slot_of(tensor, dg_of.base) = Py_NewRef(Py_None);
    *dg_slot_of(tensor, dg_of.grad_fn) = Py_NewRef(Py_None);
    *dg_slot_of(tensor, dg_of.requires_grad) = Py_NewRef(Py_False);
    return tensor;
}

static PyObject *py_wrap(PyObject *module, PyObject *array) { return dg_new_tensor(Py_NewRef(array)); }

PyObject *dg_as_array(PyObject *value)
{
    if (value && !PyArray_CheckExact(value))
        Py_SETREF(value, PyArray_IsScalar(value, Number) ? PyArray_FromScalar(value, NULL)
                                                         : PyObject_CallOneArg(dg_of.as_array, value));
    return value;
}

/* a tensor of what NumPy gave, which may be a scalar; takes the reference */
static PyObject *tensor_made_of(PyObject *value)
{
    value = dg_as_array(value);
    PyObject *tensor = value ? dg_new_tensor(value) : NULL;
    if (tensor && (dg_grad_modes() & DG_INFERENCE) && PyObject_SetAttr(tensor, dg_of.inference, Py_True) < 0)
        Py_CLEAR(tensor);
    return tensor;
}

static PyObject *py_made(PyObject *module, PyObject *value) { return tensor_made_of(Py_NewRef(value)); }

/* -- recording ----------------------------------------------------------------------------------------------------------- */

/* a tuple of what is no part of cycles: the collector need not visit it, as it finds itself, later */
static PyObject *untracked(PyObject *tuple)
{
    if (tuple)
        PyObject_GC_UnTrack(tuple);
    return tuple;
}

/* a shape and a dtype; those of an array that has the same are shared */
static PyObject *meta_of(PyArrayObject *array, PyArrayObject *other, PyObject *meta_of_other)
{
    int ndim = PyArray_NDIM(array);
    if (other && PyArray_DESCR(array) == PyArray_DESCR(other) && ndim == PyArray_NDIM(other) &&
        PyArray_CompareLists(PyArray_DIMS(array), PyArray_DIMS(other), ndim))
        return Py_NewRef(meta_of_other);
    PyObject *shape = untracked(PyArray_IntTupleFromIntp(ndim, PyArray_DIMS(array)));
    PyObject *meta = shape ? PyTuple_Pack(2, shape, (PyObject *)PyArray_DESCR(array)) : NULL;
    Py_XDECREF(shape);
    return PyObject_IS_GC((PyObject *)PyArray_DESCR(array)) ? meta : untracked(meta);
}

static PyObject *edge_from(PyObject *tensor)
{
    if (*dg_slot_of(tensor, dg_of.base) != Py_None)
        return PyObject_CallOneArg(dg_of.edge_of, tensor);
    PyObject *node = *dg_slot_of(tensor, dg_of.grad_fn);
    if (node == Py_None)
        return *dg_slot_of(tensor, dg_of.requires_grad) == Py_True ? PyTuple_Pack(2, tensor, dg_of.zero) : Py_NewRef(Py_None);
    PyObject *number = PyObject_GetAttr(tensor, dg_of.output_nr), *edge = number ? PyTuple_Pack(2, node, number) : NULL;
    Py_XDECREF(number);
    return edge;
}

/* the operands that letters of `saves` name, as bits; the result above them. -1: Python has to look */
static int reads_of(PyObject *letters, Py_ssize_t n)
{
    static const char names[] = "xyzuvw";
    Py_ssize_t length;
    const char *text = PyUnicode_AsUTF8AndSize(letters, &length);
    int bits = 0;
    for (Py_ssize_t k = 0; text && k < length; ++k) {
        const char *at = strchr(names, text[k]);
        if (text[k] == 'o')
            bits |= 1 << MAX_OPERANDS;
        else if (at && at - names < n)
            bits |= 1 << (at - names);
        else
            return -1;
    }
    return text ? bits : -1;
}

static PyObject *entry_of(PyObject *operand, PyObject *out)
{
    if (dg_is_tensor(operand)) {
        PyObject *inference = PyObject_GetAttr(operand, dg_of.inference);
        Py_XDECREF(inference);
        if (!inference)
            return NULL;
        if (inference == Py_False)
            return PyTuple_Pack(2, operand, *dg_slot_of(*dg_slot_of(operand, dg_of.own_storage), dg_of.version));
    }
    PyObject *nothing = PyTuple_New(0);
    PyObject *entry = nothing ? PyObject_CallFunctionObjArgs(dg_of.entry, operand, out, nothing, NULL) : NULL;
    Py_XDECREF(nothing);
    return entry;
}

static int next_number(PyObject **number)
{
    PyObject *before = *dg_slot_of(dg_of.numbers, dg_of.last);
    long long last = before ? PyLong_AsLongLong(before) : 0;
    if (last == -1 && PyErr_Occurred())
        return -1;
    if (!(*number = PyLong_FromLongLong(last - 1)))
        return -1;
    dg_put(dg_of.numbers, dg_of.last, Py_NewRef(*number));
    return 0;
}

/* what a node is made of */
typedef struct {
    PyObject *edges, *metas, *output_metas, *saved, *saved_out, *number; /* owned */
    int reads;                                                           /* see reads_of */
} parts;

static void drop(parts *made)
{
    Py_XDECREF(made->edges);
    Py_XDECREF(made->metas);
    Py_XDECREF(made->output_metas);
    Py_XDECREF(made->saved);
    Py_XDECREF(made->saved_out);
    Py_XDECREF(made->number);
}

static int is_number(PyObject *operand)
{
    return !PyArray_Check(operand) &&
           (PyFloat_Check(operand) || PyLong_Check(operand) || PyComplex_Check(operand) || PyArray_CheckScalar(operand));
}

/* edges and shapes of the operands, and which of them the gradients read; as record */
static int describe(parts *made, PyObject *p, PyObject *const *operands, Py_ssize_t n, PyArrayObject *out)
{
    PyObject *vjps = *dg_slot_of(p, dg_of.vjps), *saves = *dg_slot_of(p, dg_of.saves), *own, *meta, *edge;
    int per_operand = vjps != Py_None, some = 0, more = per_operand ? 0 : PyUnicode_Check(saves) ? reads_of(saves, n) : -1;
    if (more < 0 || (per_operand && (!PyTuple_Check(saves) || PyTuple_GET_SIZE(saves) < n)))
        return PyErr_Occurred() ? -1 : 1;
    if (!(own = meta_of(out, NULL, NULL)))
        return -1;
    made->reads = more;
    made->edges = PyTuple_New(n);
    made->metas = PyTuple_New(n);
    made->output_metas = PyTuple_Pack(1, own);
    Py_DECREF(own); /* output_metas has it */
    if (!made->edges || !made->metas || !made->output_metas)
        return -1;
    for (Py_ssize_t k = 0; k < n; ++k) {
        if (dg_is_tensor(operands[k])) {
            edge = edge_from(operands[k]);
            meta = meta_of((PyArrayObject *)*dg_slot_of(operands[k], dg_of.array), out, own);
        } else {
            if (!is_number(operands[k]))
                return 1;
            PyObject *shape = PyTuple_New(0);
            edge = Py_NewRef(Py_None);
            meta = shape ? PyTuple_Pack(2, shape, (PyObject *)PyArray_DESCR(out)) : NULL;
            Py_XDECREF(shape);
        }
        if (edge)
            PyTuple_SET_ITEM(made->edges, k, edge);
        if (meta)
            PyTuple_SET_ITEM(made->metas, k, meta);
        if (!edge || !meta)
            return -1;
        if (edge == Py_None)
            continue;
        some = 1;
        more = per_operand ? reads_of(PyTuple_GET_ITEM(saves, k), n) : 0;
        if (more < 0)
            return PyErr_Occurred() ? -1 : 1;
        made->reads |= more;
    }
    if (!PyObject_IS_GC((PyObject *)PyArray_DESCR(out))) {
        untracked(made->output_metas);
        untracked(made->metas);
    }
    return some ? 0 : 1; /* a view that was made without recording: Python knows */
}

/* keeps what the gradients read; -1: an error */
static int save(parts *made, PyObject *const *operands, Py_ssize_t n, PyObject *result)
{
    PyObject *out = *dg_slot_of(result, dg_of.array);
    made->saved_out = Py_NewRef(Py_None);
    if (!made->reads)
        return (made->saved = PyTuple_New(0)) ? 0 : -1;
    if (!(made->saved = PyList_New(n)))
        return -1;
    for (Py_ssize_t k = 0; k < n; ++k) {
        PyObject *entry = made->reads >> k & 1 ? entry_of(operands[k], out) : Py_NewRef(Py_None);
        if (!entry)
            return -1;
        PyList_SET_ITEM(made->saved, k, entry);
    }
    if (!(made->reads >> MAX_OPERANDS & 1))
        return 0;
    PyObject *entry = PyTuple_Pack(3, out, *dg_slot_of(result, dg_of.own_storage), dg_of.zero);
    Py_SETREF(made->saved_out, PyDict_New());
    int stored = entry && made->saved_out ? PyDict_SetItem(made->saved_out, dg_of.zero, entry) : -1;
    Py_XDECREF(entry);
    return stored;
}

/* the node of an operation, attached to its result; 0: done, -1: an error, 1: Python has to do it */
static int record(PyObject *p, PyObject *const *operands, Py_ssize_t n, PyObject *attrs, PyObject *result)
{
    PyObject *out = *dg_slot_of(result, dg_of.array);
    if (dg_grad_modes() & (DG_ANOMALY | DG_HOOKED) || !PyArray_CheckExact(out))
        return 1;
    char kind = PyArray_DESCR((PyArrayObject *)out)->kind;
    if (kind != 'f' && kind != 'c' && kind != 'V')
        return 0;
    parts made = {0};
    int done = describe(&made, p, operands, n, (PyArrayObject *)out);
    if (!done)
        done = save(&made, operands, n, result);
    PyObject *class = *dg_slot_of(p, dg_of.node_class), *node = NULL;
    if (!done && (class = class && class != Py_None ? Py_NewRef(class) : PyObject_CallOneArg(dg_of.class_of, p))) {
        node = ((PyTypeObject *)class)->tp_alloc((PyTypeObject *)class, 0);
        Py_DECREF(class);
    }
    if (done || !node || next_number(&made.number) < 0) {
        drop(&made);
        Py_XDECREF(node);
        return done ? done : -1;
    }
    *dg_slot_of(node, dg_of.attrs) = Py_NewRef(attrs);
    *dg_slot_of(node, dg_of.edges) = made.edges;
    *dg_slot_of(node, dg_of.sequence) = made.number;
    *dg_slot_of(node, dg_of.metas) = made.metas;
    *dg_slot_of(node, dg_of.output_metas) = made.output_metas;
    *dg_slot_of(node, dg_of.saved) = made.saved;
    *dg_slot_of(node, dg_of.saved_out) = made.saved_out;
    dg_put(result, dg_of.grad_fn, node);
    dg_put(result, dg_of.requires_grad, Py_NewRef(Py_True));
    return 0;
}

static int record_in_python(PyObject *p, PyObject *const *operands, Py_ssize_t n, PyObject *attrs, PyObject *result)
{
    PyObject *given = PyTuple_New(n), *outs = PyTuple_Pack(1, *dg_slot_of(result, dg_of.array)), *node = NULL, *attached = NULL;
    for (Py_ssize_t k = 0; given && k < n; ++k)
        PyTuple_SET_ITEM(given, k, Py_NewRef(operands[k]));
    if (given && outs)
        node = PyObject_CallFunctionObjArgs(dg_of.record, p, given, attrs, outs, NULL);
    if (node)
        attached = node == Py_None ? Py_NewRef(Py_None) : PyObject_CallFunctionObjArgs(dg_of.attach, node, p, result, NULL);
    Py_XDECREF(given);
    Py_XDECREF(outs);
    Py_XDECREF(node);
    Py_XDECREF(attached);
    return attached ? 0 : -1;
}

PyObject *dg_quiet(void) { return PyContextVar_Set(dg_of.error_state, dg_of.ignored); }

int dg_loud(PyObject *token)
{
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    int reset = PyContextVar_Reset(dg_of.error_state, token);
    Py_DECREF(token);
    if (type)
        PyErr_Restore(type, value, traceback);
    return reset;
}

/* -- apply ----------------------------------------------------------------------------------------------------------------- */

/* whether the operation on a tensor is recorded; -1: an error */
static int requires_grad(PyObject *tensor)
{
    if (*dg_slot_of(tensor, dg_of.requires_grad) == Py_True)
        return 1;
    if (*dg_slot_of(tensor, dg_of.base) == Py_None)
        return 0;
    PyObject *answer = PyObject_GetAttr(tensor, dg_of.requires_name);
    int is_true = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    return is_true;
}

/* a new reference: what computes the operation on arrays, the larger of which has so many elements */
static PyObject *forward_for(PyObject *p, npy_intp size)
{
    if (size < dg_of.large_size)
        return Py_NewRef(*dg_slot_of(p, dg_of.forward));
    PyObject *large = *dg_slot_of(p, dg_of.large);
    if (!large || large == Py_None) {
        PyObject *found = PyObject_CallOneArg(dg_of.large_of, p);
        Py_XDECREF(found);
        if (!found)
            return NULL;
        large = *dg_slot_of(p, dg_of.large);
    }
    return Py_NewRef(large && large != Py_None ? large : *dg_slot_of(p, dg_of.forward));
}

static PyObject *dict_of(PyObject *names, PyObject *const *values)
{
    PyObject *made = PyDict_New();
    for (Py_ssize_t k = 0; made && names && k < PyTuple_GET_SIZE(names); ++k)
        if (PyDict_SetItem(made, PyTuple_GET_ITEM(names, k), values[k]) < 0)
            Py_CLEAR(made);
    return made;
}

/* what a primitive makes of arrays, from arrays[1] on; the larger of them has so many elements */
static PyObject *computed(PyObject *p, PyObject **arrays, Py_ssize_t n, PyObject *names, npy_intp size)
{
    PyObject *held[MAX_OPERANDS], *out = NULL; /* another thread may give a tensor another array meanwhile */
    for (Py_ssize_t k = 0; k < n; ++k)
        held[k] = Py_NewRef(arrays[1 + k]);
    PyObject *forward = forward_for(p, size), *token = forward ? dg_quiet() : NULL;
    if (token) {
        out = PyObject_Vectorcall(forward, arrays + 1, (size_t)n | PY_VECTORCALL_ARGUMENTS_OFFSET, names);
        if (dg_loud(token) < 0)
            Py_CLEAR(out);
    }
    Py_XDECREF(forward);
    for (Py_ssize_t k = 0; k < n; ++k)
        Py_DECREF(held[k]);
    return out;
}

static PyObject *apply(PyObject *const *args, Py_ssize_t n_args, PyObject *names)
{
    Py_ssize_t n = n_args - 1, n_names = names ? PyTuple_GET_SIZE(names) : 0;
    if (n < 1 || n > MAX_OPERANDS || n_names > MAX_OPERANDS || !PyObject_TypeCheck(args[0], dg_of.primitive))
        return PyObject_Vectorcall(dg_of.apply, args, (size_t)n_args, names);
    PyObject *p = args[0], *outputs = *dg_slot_of(p, dg_of.outputs), *arrays[1 + 2 * MAX_OPERANDS];
    if (!outputs || PyLong_AsLong(outputs) != 1) {
        PyErr_Clear();
        return PyObject_Vectorcall(dg_of.apply, args, (size_t)n_args, names);
    }
    int recorded = 0;
    npy_intp size = 0;
    for (Py_ssize_t k = 0; k < n; ++k) {
        PyObject *operand = args[1 + k], *array = operand;
        if (dg_is_tensor(operand)) {
            array = *dg_slot_of(operand, dg_of.array);
            if (!array || !PyArray_CheckExact(array)) /* on another device, or batched */
                return PyObject_Vectorcall(dg_of.apply, args, (size_t)n_args, names);
            size = PyArray_SIZE((PyArrayObject *)array) > size ? PyArray_SIZE((PyArrayObject *)array) : size;
            int requires = dg_grad_modes() & DG_GRAD && !recorded ? requires_grad(operand) : 0;
            if (requires < 0)
                return NULL;
            recorded |= requires;
        }
        arrays[1 + k] = array;
    }
    for (Py_ssize_t k = 0; k < n_names; ++k)
        arrays[1 + n + k] = args[1 + n + k];
    PyObject *out = computed(p, arrays, n, names, size);
    PyObject *result = out ? tensor_made_of(out) : NULL;
    if (!result || !recorded)
        return result;
    PyObject *attrs = dict_of(names, args + 1 + n);
    int done = attrs ? record(p, args + 1, n, attrs, result) : -1;
    if (done > 0)
        done = record_in_python(p, args + 1, n, attrs, result);
    Py_XDECREF(attrs);
    if (done < 0)
        Py_CLEAR(result);
    return result;
}

/* -- who is told of operations (a profiler) ------------------------------------------------------------------------------- */

static PyObject *observer; /* called with an operation, when it began and ended, and its operands; NULL: nobody */

int dg_is_observed(void) { return observer != NULL; }

long long dg_observed_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000000000 + now.tv_nsec;
}

int dg_observe(PyObject *what, long long begin, PyObject *operands)
{
    PyObject *told = Py_XNewRef(observer); /* what ran may have ended the profile */
    PyObject *answer = told ? PyObject_CallFunction(told, "OLLO", what, begin, dg_observed_time(), operands) : Py_NewRef(Py_None);
    Py_XDECREF(told);
    Py_XDECREF(answer);
    return answer ? 0 : -1;
}

static PyObject *py_apply(PyObject *module, PyObject *const *args, Py_ssize_t n_args, PyObject *names)
{
    if (!observer || n_args < 1)
        return apply(args, n_args, names);
    long long begin = dg_observed_time();
    PyObject *result = apply(args, n_args, names), *operands = result ? PyTuple_New(n_args - 1) : NULL;
    for (Py_ssize_t k = 1; operands && k < n_args; ++k)
        PyTuple_SET_ITEM(operands, k - 1, Py_NewRef(args[k]));
    if (result && (!operands || dg_observe(args[0], begin, operands) < 0))
        Py_CLEAR(result);
    Py_XDECREF(operands);
    return result;
}

/* observe_tensor_calls(function or None): the one before */
PyObject *dg_observe_tensor_calls(PyObject *module, PyObject *function)
{
    PyObject *before = observer ? observer : Py_NewRef(Py_None);
    observer = function == Py_None ? NULL : Py_NewRef(function);
    return before;
}

/* -- what they are told -------------------------------------------------------------------------------------------------- */

int dg_offset_of(PyObject *class, const char *name, Py_ssize_t *offset)
{
    PyObject *descriptor = PyObject_GetAttrString(class, name);
    int is_slot = descriptor && Py_IS_TYPE(descriptor, &PyMemberDescr_Type);
    if (is_slot)
        *offset = ((PyMemberDescrObject *)descriptor)->d_member->offset;
    else if (descriptor)
        PyErr_Format(PyExc_TypeError, "set_tensor_calls: %R has no slot %s", class, name);
    Py_XDECREF(descriptor);
    return is_slot ? 0 : -1;
}

int dg_take_given(const char *who, PyObject *dict, const dg_given *given, size_t n)
{
    for (size_t k = 0; k < n; ++k) {
        PyObject *value = PyDict_GetItemString(dict, given[k].name);
        if (!value) {
            PyErr_Format(PyExc_KeyError, "%s: no %s", who, given[k].name);
            return -1;
        }
        Py_XSETREF(*given[k].to, Py_NewRef(value));
    }
    return 0;
}

PyObject *dg_set_tensor_calls(PyObject *module, PyObject *args)
{
    PyObject *tensor, *storage, *node, *primitive, *numbers, *functions;
    if (!PyArg_ParseTuple(args, "O!O!O!O!OO!:set_tensor_calls", &PyType_Type, &tensor, &PyType_Type, &storage, &PyType_Type,
                          &node, &PyType_Type, &primitive, &numbers, &PyDict_Type, &functions))
        return NULL;
    const struct { PyObject *class; const char *name; Py_ssize_t *offset; } slots[] = {
        {tensor, "_array", &dg_of.array}, {tensor, "_storage", &dg_of.own_storage}, {tensor, "_base", &dg_of.base},
        {tensor, "_grad_fn", &dg_of.grad_fn}, {tensor, "_requires_grad", &dg_of.requires_grad},
        {storage, "array", &dg_of.storage_array}, {storage, "version", &dg_of.version},
        {primitive, "forward", &dg_of.forward}, {primitive, "large", &dg_of.large}, {primitive, "outputs", &dg_of.outputs},
        {primitive, "vjp", &dg_of.vjp}, {primitive, "vjps", &dg_of.vjps}, {primitive, "saves", &dg_of.saves},
        {primitive, "node_class", &dg_of.node_class}, {node, "attrs", &dg_of.attrs}, {node, "edges", &dg_of.edges},
        {node, "sequence", &dg_of.sequence}, {node, "metas", &dg_of.metas}, {node, "output_metas", &dg_of.output_metas},
        {node, "saved", &dg_of.saved}, {node, "saved_out", &dg_of.saved_out}, {(PyObject *)Py_TYPE(numbers), "last", &dg_of.last},
    };
    for (size_t k = 0; k < sizeof slots / sizeof *slots; ++k)
        if (dg_offset_of(slots[k].class, slots[k].name, slots[k].offset) < 0)
            return NULL;
    const dg_given given[] = {
        {"apply", &dg_of.apply}, {"record", &dg_of.record}, {"attach", &dg_of.attach}, {"edge_of", &dg_of.edge_of},
        {"entry", &dg_of.entry}, {"node_class", &dg_of.class_of}, {"as_array", &dg_of.as_array}, {"large_of", &dg_of.large_of},
        {"error_state", &dg_of.error_state}, {"ignored", &dg_of.ignored},
    };
    if (dg_take_given("set_tensor_calls", functions, given, sizeof given / sizeof *given) < 0)
        return NULL;
    PyObject *size = PyDict_GetItemString(functions, "large_size");
    dg_of.large_size = size ? PyLong_AsSsize_t(size) : PY_SSIZE_T_MAX;
    if (PyErr_Occurred())
        return NULL;
    dg_of.tensor = (PyTypeObject *)Py_NewRef(tensor), dg_of.storage = (PyTypeObject *)Py_NewRef(storage);
    dg_of.node = (PyTypeObject *)Py_NewRef(node), dg_of.primitive = (PyTypeObject *)Py_NewRef(primitive);
    dg_of.numbers = Py_NewRef(numbers);
    if (!dg_of.zero) {
        dg_of.zero = PyLong_FromLong(0);
        dg_of.output_nr = PyUnicode_InternFromString("_output_nr");
        dg_of.inference = PyUnicode_InternFromString("_inference");
        dg_of.requires_name = PyUnicode_InternFromString("requires_grad");
    }
    if (!dg_of.zero || !dg_of.output_nr || !dg_of.inference || !dg_of.requires_name)
        return NULL;
    static PyMethodDef made_in_c[] = {
        {"apply", (PyCFunction)(void (*)(void))py_apply, METH_FASTCALL | METH_KEYWORDS, NULL},
        {"made", py_made, METH_O, NULL},
        {"wrap", py_wrap, METH_O, NULL},
    };
    PyObject *name = PyObject_GetAttrString(tensor, "__module__"), *found = name ? PyTuple_New(3) : NULL;
    for (int k = 0; found && k < 3; ++k) {
        PyObject *function = PyCFunction_NewEx(&made_in_c[k], NULL, name);
        if (!function)
            Py_CLEAR(found);
        else
            PyTuple_SET_ITEM(found, k, function);
    }
    Py_XDECREF(name);
    return found;
}
