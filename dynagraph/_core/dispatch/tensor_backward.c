/* Backward of dynagraph.torch: what `_Run.run` in dynagraph/torch/core/engine.py does, for runs without `create_graph`, wanted
   gradients and anomaly detection.

   Nodes with hooks, or with a `pull` of their own, and leaves with hooks go to the methods in Python; so do gradients that are no
   arrays of NumPy's.  The nodes are found, and their gradients counted, before any is run. */
#include "tensors.h"

enum { NO_EDGE = -1, NODES_PER_LOOK = 64 };

static struct {
    PyObject *pull, *release, *fitted; /* Node's methods, and the function */
    PyObject *pull_name, *release_name, *hooked, *posthooks, *primitive, *hooks, *accumulator, *post_hooks, *grad;
    PyObject *buffers, *arrive, *step, *run, *one;
} of;

/* a node or a leaf */
typedef struct {
    PyObject *target, *grad; /* owned; the gradient that has come: a list, one for each output, where there are several */
    Py_ssize_t left;         /* how many gradients are still to come */
    Py_ssize_t first, n;     /* where its edges stand */
    Py_ssize_t outputs;      /* 0: a leaf */
    long long sequence;
} place;

typedef struct { Py_ssize_t to, number; } edge; /* to: a place, or NO_EDGE */

/* a node whose gradients have all come; the lowest sequence runs first, of equal ones the first that was pushed */
typedef struct { long long sequence; Py_ssize_t pushed, at; } ready;

typedef struct {
    PyObject *run; /* the _Run, borrowed */
    int keep;
    place *places;
    edge *edges;
    ready *heap;
    Py_ssize_t *table; /* places by address of their targets, from 1; 0: free */
    Py_ssize_t n_places, room_places, n_edges, room_edges, n_heap, room_heap, room_table, pushed, looked;
    PyTypeObject *plain; /* the class that was last seen to be plain, borrowed */
} backward;

static int room_for(void *array, Py_ssize_t *room, Py_ssize_t n, size_t size)
{
    if (n < *room)
        return 0;
    Py_ssize_t more = *room ? 2 * *room : 16;
    void *grown = PyMem_Realloc(*(void **)array, (size_t)more * size);
    if (!grown) {
        PyErr_NoMemory();
        return -1;
    }
    *(void **)array = grown;
    *room = more;
    return 0;
}

/* signals are looked for now and then: their handlers may raise */
static int look(backward *b) { return ++b->looked % NODES_PER_LOOK ? 0 : PyErr_CheckSignals(); }

/* -- counting: 0: done, -1: an error, 1: Python has to do the run ------------------------------------------------------ */

static Py_ssize_t *cell_of(backward *b, PyObject *target)
{
    size_t mask = (size_t)b->room_table - 1, at = (size_t)target / 16 * 0x9E3779B97F4A7C15u >> 20;
    for (;; ++at) {
        Py_ssize_t *cell = &b->table[at & mask];
        if (!*cell || b->places[*cell - 1].target == target)
            return cell;
    }
}

static int grow_table(backward *b)
{
    Py_ssize_t room = b->room_table ? 4 * b->room_table : 64, *table = PyMem_Calloc((size_t)room, sizeof *table);
    if (!table) {
        PyErr_NoMemory();
        return -1;
    }
    PyMem_Free(b->table);
    b->table = table;
    b->room_table = room;
    for (Py_ssize_t k = 0; k < b->n_places; ++k)
        *cell_of(b, b->places[k].target) = k + 1;
    return 0;
}

/* *at: the place of a node or a leaf, a new one perhaps */
static int find_place(backward *b, PyObject *target, Py_ssize_t *at)
{
    if (2 * (b->n_places + 1) > b->room_table && grow_table(b) < 0)
        return -1;
    Py_ssize_t *cell = cell_of(b, target);
    if (*cell) {
        *at = *cell - 1;
        return 0;
    }
    place made = {.target = target};
    if (PyObject_TypeCheck(target, dg_of.node)) {
        PyObject *number = *dg_slot_of(target, dg_of.sequence), *metas = *dg_slot_of(target, dg_of.output_metas);
        int overflow = 0;
        if (!number || !PyLong_Check(number) || !metas || !(PyList_CheckExact(metas) || PyTuple_CheckExact(metas)))
            return 1;
        made.sequence = PyLong_AsLongLongAndOverflow(number, &overflow);
        made.outputs = Py_SIZE(metas);
        if (overflow || !made.outputs)
            return 1;
    }
    if (room_for(&b->places, &b->room_places, b->n_places, sizeof made) < 0)
        return -1;
    Py_INCREF(target);
    *at = b->n_places++;
    *cell = *at + 1;
    b->places[*at] = made;
    return 0;
}

static int add_edge(backward *b, PyObject *given)
{
    edge made = {NO_EDGE, 0};
    if (given != Py_None) {
        if (!PyTuple_CheckExact(given) || PyTuple_GET_SIZE(given) != 2 || !PyLong_CheckExact(PyTuple_GET_ITEM(given, 1)))
            return 1;
        made.number = PyLong_AsSsize_t(PyTuple_GET_ITEM(given, 1));
        if (made.number == -1 && PyErr_Occurred())
            return -1;
        int found = find_place(b, PyTuple_GET_ITEM(given, 0), &made.to);
        if (found)
            return found;
        ++b->places[made.to].left;
    }
    if (room_for(&b->edges, &b->room_edges, b->n_edges, sizeof made) < 0)
        return -1;
    b->edges[b->n_edges++] = made;
    return 0;
}

/* finds all nodes and leaves that the places so far lead to, and how many gradients come to each */
static int count(backward *b)
{
    for (Py_ssize_t at = 0; at < b->n_places; ++at) {
        if (look(b) < 0)
            return -1;
        if (!b->places[at].outputs)
            continue;
        PyObject *edges = *dg_slot_of(b->places[at].target, dg_of.edges), *given;
        if (!edges || !(PyList_CheckExact(edges) || PyTuple_CheckExact(edges)))
            return 1;
        b->places[at].first = b->n_edges;
        for (Py_ssize_t k = 0; (given = dg_item(edges, k)); ++k) {
            int added = add_edge(b, given);
            if (added)
                return added;
        }
        b->places[at].n = b->n_edges - b->places[at].first;
    }
    return 0;
}

/* -- the nodes that wait ----------------------------------------------------------------------------------------------- */

static inline int comes_first(const ready *a, const ready *b)
{
    return a->sequence != b->sequence ? a->sequence < b->sequence : a->pushed < b->pushed;
}

static int push(backward *b, Py_ssize_t at)
{
    if (room_for(&b->heap, &b->room_heap, b->n_heap, sizeof *b->heap) < 0)
        return -1;
    ready added = {b->places[at].sequence, b->pushed++, at};
    Py_ssize_t k = b->n_heap++;
    for (; k && comes_first(&added, &b->heap[(k - 1) / 2]); k = (k - 1) / 2)
        b->heap[k] = b->heap[(k - 1) / 2];
    b->heap[k] = added;
    return 0;
}

static Py_ssize_t pop(backward *b)
{
    Py_ssize_t at = b->heap[0].at, k = 0, child;
    ready last = b->heap[--b->n_heap];
    for (; (child = 2 * k + 1) < b->n_heap; k = child) {
        if (child + 1 < b->n_heap && comes_first(&b->heap[child + 1], &b->heap[child]))
            ++child;
        if (!comes_first(&b->heap[child], &last))
            break;
        b->heap[k] = b->heap[child];
    }
    b->heap[k] = last;
    return at;
}

/* -- gradients --------------------------------------------------------------------------------------------------------- */

static PyObject *sum_of(PyObject *before, PyObject *grad)
{
    PyObject *given[] = {NULL, before, grad};
    return dg_as_array(PyObject_Vectorcall(dg_ufunc.add, given + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL));
}

/* adds to what has come for a node or a leaf; `grad` is borrowed */
static int add(place *to, Py_ssize_t number, PyObject *grad)
{
    if (to->outputs <= 1) {
        PyObject *sum = to->grad ? sum_of(to->grad, grad) : Py_NewRef(grad);
        if (sum)
            Py_XSETREF(to->grad, sum);
        return sum ? 0 : -1;
    }
    if (!to->grad && (to->grad = PyList_New(to->outputs)))
        for (Py_ssize_t k = 0; k < to->outputs; ++k)
            PyList_SET_ITEM(to->grad, k, Py_NewRef(Py_None));
    PyObject *before = to->grad ? PyList_GetItem(to->grad, number) : NULL;
    PyObject *sum = !before ? NULL : before == Py_None ? Py_NewRef(grad) : sum_of(before, grad);
    return sum ? PyList_SetItem(to->grad, number, sum) : -1;
}

static int has_shape(PyArrayObject *array, PyObject *shape)
{
    if (PyArray_NDIM(array) != PyTuple_GET_SIZE(shape))
        return 0;
    for (int k = 0; k < PyArray_NDIM(array); ++k)
        if (PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, k)) != PyArray_DIM(array, k)) {
            PyErr_Clear(); /* it is no int: Python looks */
            return 0;
        }
    return 1;
}

/* a term as the gradient of an operand of this shape and dtype; takes the reference */
static PyObject *fitted(PyObject *term, PyObject *meta)
{
    PyObject *array = dg_array_of_term(term), *shape = PyTuple_GET_ITEM(meta, 0), *dtype = PyTuple_GET_ITEM(meta, 1);
    Py_DECREF(term);
    if (array && PyArray_IsScalar(array, Number))
        Py_SETREF(array, PyArray_FromScalar(array, NULL));
    if (array && !(PyArray_CheckExact(array) && (PyObject *)PyArray_DESCR((PyArrayObject *)array) == dtype &&
                   has_shape((PyArrayObject *)array, shape)))
        Py_SETREF(array, PyObject_CallFunctionObjArgs(of.fitted, array, shape, dtype, NULL));
    return array;
}

/* the gradients of a node's outputs as its gradients take them; NULL without an exception: Python has to make them */
static PyObject *terms_of(PyObject *grad, Py_ssize_t outputs)
{
    if (outputs == 1)
        return dg_is_plain(grad) ? dg_new_term(Py_NewRef(grad)) : NULL;
    PyObject *terms = PyTuple_New(outputs);
    for (Py_ssize_t k = 0; terms && k < outputs; ++k) {
        PyObject *each = PyList_GET_ITEM(grad, k), *term = NULL;
        if (each == Py_None)
            term = Py_NewRef(Py_None);
        else if (dg_is_plain(each))
            term = dg_new_term(Py_NewRef(each));
        if (term)
            PyTuple_SET_ITEM(terms, k, term);
        else
            Py_CLEAR(terms);
    }
    return terms;
}

static int are_metas(PyObject *metas, Py_ssize_t n)
{
    for (Py_ssize_t k = 0; k < n; ++k) {
        PyObject *meta = dg_item(metas, k);
        if (!meta || !dg_is_meta(meta))
            return 0;
    }
    return 1;
}

/* as Node.pull: a list; NULL without an exception: Python has to do it */
static PyObject *pull(const backward *b, const place *at, PyObject *grad)
{
    PyObject *node = at->target, *metas = *dg_slot_of(node, dg_of.metas), *found = NULL, *terms = NULL, *d = NULL, *g = NULL;
    PyObject *p = PyObject_GetAttr(node, of.primitive);
    if (!p || !PyObject_TypeCheck(p, dg_of.primitive) || !metas || !are_metas(metas, at->n))
        goto end;
    PyObject *vjps = *dg_slot_of(p, dg_of.vjps), *vjp = *dg_slot_of(p, dg_of.vjp), *outputs = *dg_slot_of(p, dg_of.outputs);
    if (!vjps || !outputs || PyLong_AsSsize_t(outputs) != at->outputs || !(g = terms_of(grad, at->outputs)) ||
        !(d = dg_new_differentiated(node)))
        goto end;
    PyObject *given[] = {NULL, d, g};
    if (vjps == Py_None && !(terms = PyObject_Vectorcall(vjp, given + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL)))
        goto end;
    found = PyList_New(at->n);
    for (Py_ssize_t k = 0; found && k < at->n; ++k) {
        PyObject *term;
        if (b->edges[at->first + k].to == NO_EDGE)
            term = Py_NewRef(Py_None);
        else if (terms)
            term = PySequence_GetItem(terms, k);
        else {
            PyObject *function = PySequence_GetItem(vjps, k);
            term = function ? PyObject_Vectorcall(function, given + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL) : NULL;
            Py_XDECREF(function);
        }
        if (term && term != Py_None)
            term = fitted(term, dg_item(metas, k));
        if (term)
            PyList_SET_ITEM(found, k, term);
        else
            Py_CLEAR(found);
    }
end:
    Py_XDECREF(p);
    Py_XDECREF(terms);
    Py_XDECREF(d);
    Py_XDECREF(g);
    return found;
}

/* whether an attribute is None or False; -1: an error */
static int is_nothing(PyObject *object, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(object, name);
    int is = value ? value == Py_None || value == Py_False : -1;
    Py_XDECREF(value);
    return is;
}

/* whether a class has Node's own `pull` and `release`; -1: an error */
static int is_plain(backward *b, PyTypeObject *class)
{
    if (class == b->plain)
        return 1;
    PyObject *pull = PyObject_GetAttr((PyObject *)class, of.pull_name);
    PyObject *release = pull ? PyObject_GetAttr((PyObject *)class, of.release_name) : NULL;
    int is = release ? pull == of.pull && release == of.release : -1;
    Py_XDECREF(pull);
    Py_XDECREF(release);
    if (is > 0)
        b->plain = class;
    return is;
}

/* -- the run ----------------------------------------------------------------------------------------------------------- */

/* the gradients by a node's operands; *plain: whether they were computed here.  Takes the reference to `grad`. */
static PyObject *gradients_of(backward *b, const place *at, PyObject *grad, int *plain)
{
    PyObject *found = NULL, *node = at->target;
    int unhooked = is_nothing(node, of.hooked);
    if (unhooked > 0)
        unhooked = is_nothing(node, of.posthooks);
    *plain = unhooked > 0 ? is_plain(b, Py_TYPE(node)) : unhooked;
    if (*plain > 0)
        found = pull(b, at, grad);
    if (!found && !PyErr_Occurred()) {
        PyObject *grads = at->outputs == 1 ? PyList_New(1) : Py_NewRef(grad);
        if (grads && at->outputs == 1)
            PyList_SET_ITEM(grads, 0, Py_NewRef(grad));
        if (grads)
            found = unhooked ? PyObject_CallMethodOneArg(node, of.pull_name, grads)
                             : PyObject_CallMethodObjArgs(b->run, of.step, node, grads, NULL);
        Py_XDECREF(grads);
    }
    Py_DECREF(grad);
    if (found && !PyList_CheckExact(found))
        Py_SETREF(found, PySequence_List(found));
    return found;
}

static int release(PyObject *node, int plain)
{
    if (!plain) {
        PyObject *done = PyObject_CallMethodNoArgs(node, of.release_name);
        Py_XDECREF(done);
        return done ? 0 : -1;
    }
    const Py_ssize_t slots[] = {dg_of.saved, dg_of.saved_out};
    for (int k = 0; k < 2; ++k) {
        PyObject *saved = *dg_slot_of(node, slots[k]);
        int some = saved ? PyObject_IsTrue(saved) : 0;
        if (some < 0)
            return -1;
        if (some)
            dg_put(node, slots[k], Py_NewRef(Py_None));
    }
    return 0;
}

/* adds a gradient to a leaf's `grad`; 1: Python has to do it */
static int accumulate(PyObject *leaf, PyObject *grad)
{
    PyObject *array = *dg_slot_of(leaf, dg_of.array), *before;
    if (!array || !PyArray_CheckExact(array) || !PyArray_CheckExact(grad) ||
        PyArray_SIZE((PyArrayObject *)grad) >= dg_of.large_size) /* which has kernels */
        return 1;
    if (*dg_slot_of(leaf, dg_of.requires_grad) != Py_True) /* it has been detached since */
        return 0;
    if (!(before = PyObject_GetAttr(leaf, of.grad)))
        return -1;
    int done = -1;
    if (before == Py_None) {
        for (int k = 0; k < PyArray_NDIM((PyArrayObject *)array); ++k)
            if (!PyArray_STRIDE((PyArrayObject *)array, k)) {
                done = 1;
                goto end;
            }
        PyObject *own = PyArray_NewLikeArray((PyArrayObject *)array, NPY_KEEPORDER, NULL, 1);
        if (own && PyArray_CopyInto((PyArrayObject *)own, (PyArrayObject *)grad) < 0)
            Py_CLEAR(own);
        PyObject *tensor = own ? dg_new_tensor(own) : NULL;
        done = tensor ? PyObject_SetAttr(leaf, of.grad, tensor) : -1;
        Py_XDECREF(tensor);
    } else if (!dg_is_tensor(before) || !(array = *dg_slot_of(before, dg_of.array)) || !PyArray_CheckExact(array)) {
        done = 1;
    } else {
        PyObject *storage = Py_NewRef(*dg_slot_of(before, dg_of.own_storage)); /* other threads may give `before` others meanwhile */
        Py_INCREF(array);
        PyObject *given[] = {NULL, array, grad, array};
        PyObject *result = PyObject_Vectorcall(dg_ufunc.add, given + 1, 3 | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
        PyObject *version = result ? PyNumber_Add(*dg_slot_of(storage, dg_of.version), of.one) : NULL;
        if (version)
            dg_put(storage, dg_of.version, version);
        Py_XDECREF(result);
        Py_DECREF(array);
        Py_DECREF(storage);
        done = version ? 0 : -1;
    }
end:
    Py_DECREF(before);
    return done;
}

/* all gradients by a leaf have come */
static int arrive(backward *b, place *at)
{
    PyObject *leaf = at->target, *grad = at->grad;
    if (!grad)
        return 0;
    at->grad = NULL;
    int plain = dg_is_tensor(leaf);
    PyObject *names[] = {of.hooks, of.accumulator, of.post_hooks};
    for (int k = 0; plain > 0 && k < 3; ++k)
        plain = is_nothing(leaf, names[k]);
    int done = plain > 0 ? accumulate(leaf, grad) : plain < 0 ? -1 : 1;
    if (done > 0) {
        PyObject *buffers = PyObject_GetAttr(b->run, of.buffers), *grads = buffers ? PyList_New(1) : NULL, *result = NULL;
        if (grads) {
            PyList_SET_ITEM(grads, 0, Py_NewRef(grad));
            if (PyObject_SetItem(buffers, leaf, grads) == 0)
                result = PyObject_CallMethodOneArg(b->run, of.arrive, leaf);
        }
        done = result ? 0 : -1;
        Py_XDECREF(buffers);
        Py_XDECREF(grads);
        Py_XDECREF(result);
    }
    Py_DECREF(grad);
    return done;
}

/* runs a node: its gradients go where its edges lead */
static int run_node(backward *b, place *at)
{
    PyObject *grad = at->grad, *results = NULL;
    int plain = 0, done = -1;
    at->grad = NULL;
    long long begin = dg_is_observed() ? dg_observed_time() : 0;
    if (grad && !(results = gradients_of(b, at, grad, &plain)))
        return -1;
    if (results && dg_is_observed() && dg_observe(at->target, begin, Py_None) < 0)
        goto end;
    Py_ssize_t n = results ? PyList_GET_SIZE(results) : 0;
    for (Py_ssize_t k = 0; k < at->n; ++k) {
        const edge *to = &b->edges[at->first + k];
        if (to->to == NO_EDGE)
            continue;
        place *target = &b->places[to->to];
        if (n) {
            PyObject *each = PyList_GetItem(results, k); /* with hooks there may be too few */
            if (!each || (each != Py_None && add(target, to->number, each) < 0))
                goto end;
        }
        if (--target->left)
            continue;
        if (target->outputs ? push(b, to->to) < 0 : arrive(b, target) < 0)
            goto end;
    }
    done = n && !b->keep ? release(at->target, plain) : 0;
end:
    Py_XDECREF(results);
    return done;
}

/* 1: Python has to do it */
static int run(backward *b, PyObject *roots)
{
    Py_ssize_t n_roots = PyList_GET_SIZE(roots), at;
    int found = 0;
    for (Py_ssize_t k = 0; !found && k < n_roots; ++k) {
        PyObject *root = PyList_GET_ITEM(roots, k);
        found = PyTuple_CheckExact(root) && PyTuple_GET_SIZE(root) == 3 ? find_place(b, PyTuple_GET_ITEM(root, 0), &at) : 1;
    }
    Py_ssize_t n_targets = b->n_places;
    if (found || (found = count(b)))
        return found;
    for (Py_ssize_t k = 0; k < n_roots; ++k) {
        PyObject *root = PyList_GET_ITEM(roots, k);
        Py_ssize_t number = PyLong_AsSsize_t(PyTuple_GET_ITEM(root, 1));
        if ((number == -1 && PyErr_Occurred()) || find_place(b, PyTuple_GET_ITEM(root, 0), &at) < 0 ||
            add(&b->places[at], number, PyTuple_GET_ITEM(root, 2)) < 0)
            return -1;
    }
    for (at = 0; at < n_targets; ++at)
        if (!b->places[at].left && (b->places[at].outputs ? push(b, at) : arrive(b, &b->places[at])) < 0)
            return -1;
    while (b->n_heap)
        if (look(b) < 0 || run_node(b, &b->places[pop(b)]) < 0)
            return -1;
    return 0;
}

/* run_plain(run, roots, keep) */
static PyObject *py_run(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
    if (n != 3 || !PyList_CheckExact(args[1]))
        return PyErr_Format(PyExc_TypeError, "expected a run, a list of roots, and whether the graph is kept");
    backward b = {.run = args[0], .keep = PyObject_IsTrue(args[2])};
    PyObject *token = b.keep < 0 ? NULL : dg_quiet(), *result = NULL;
    if (!token)
        return NULL;
    int done = run(&b, args[1]);
    for (Py_ssize_t k = 0; k < b.n_places; ++k) {
        Py_DECREF(b.places[k].target);
        Py_XDECREF(b.places[k].grad);
    }
    PyMem_Free(b.places);
    PyMem_Free(b.edges);
    PyMem_Free(b.heap);
    PyMem_Free(b.table);
    if (done >= 0)
        result = done ? PyObject_CallMethodOneArg(args[0], of.run, args[1]) : Py_NewRef(Py_None);
    if (dg_loud(token) < 0)
        Py_CLEAR(result);
    return result;
}

PyObject *dg_set_tensor_backward(PyObject *module, PyObject *functions)
{
    if (!dg_of.tensor || !PyDict_Check(functions))
        return PyErr_Format(PyExc_TypeError, "set_tensor_backward: expected a dict, after set_tensor_calls");
    const dg_given given[] = {{"pull", &of.pull}, {"release", &of.release}, {"fitted", &of.fitted}};
    if (dg_terms_start(functions) < 0 || dg_take_given("set_tensor_backward", functions, given, sizeof given / sizeof *given) < 0)
        return NULL;
    const struct { const char *text; PyObject **name; } names[] = {
        {"pull", &of.pull_name}, {"release", &of.release_name}, {"hooked", &of.hooked}, {"posthooks", &of.posthooks},
        {"primitive", &of.primitive}, {"_hooks", &of.hooks}, {"_accumulator", &of.accumulator}, {"_post_hooks", &of.post_hooks},
        {"_grad", &of.grad}, {"buffers", &of.buffers}, {"arrive", &of.arrive}, {"step", &of.step}, {"run", &of.run},
    };
    for (size_t k = 0; k < sizeof names / sizeof *names; ++k)
        if (!*names[k].name && !(*names[k].name = PyUnicode_InternFromString(names[k].text)))
            return NULL;
    if (!of.one && !(of.one = PyLong_FromLong(1)))
        return NULL;
    static PyMethodDef made_in_c = {"run_plain", (PyCFunction)(void (*)(void))py_run, METH_FASTCALL, NULL};
    PyObject *name = PyUnicode_FromString("dynagraph.torch.core.engine");
    PyObject *function = name ? PyCFunction_NewEx(&made_in_c, NULL, name) : NULL;
    Py_XDECREF(name);
    return function;
}
