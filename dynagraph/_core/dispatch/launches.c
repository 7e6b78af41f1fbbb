/* Launches, one after the other, into new arrays. */
#include "launchers.h"
#include "sessions.h"

enum { WORKSPACE_ALIGNMENT = 256, FEW_PARAMETERS = 64 };

/* a new tuple of numbers */
static PyObject *tuple_of(const int64_t *numbers, int n)
{
    PyObject *all = PyTuple_New(n);
    for (int k = 0; all && k < n; ++k) {
        PyObject *number = PyLong_FromLongLong(numbers[k]);
        if (number)
            PyTuple_SET_ITEM(all, k, number);
        else
            Py_CLEAR(all);
    }
    return all;
}

/* an array in C order, and *address, where it begins */
static PyObject *new_array(const dg_launcher *l, dg_session *session, PyObject *dtype, const int64_t *shape, int ndim, char **address)
{
    PyObject *made = session ? dg_session_take(session, dtype, shape, ndim, address) : NULL;
    if (made)
        return made;
    PyObject *dims = tuple_of(shape, ndim);
    made = dims ? PyObject_Vectorcall(l->array_type, (PyObject *[]){dims, dtype}, 2, NULL) : NULL;
    Py_XDECREF(dims);
    if (made && !(*address = dg_device_address(made)) && PyErr_Occurred())
        Py_CLEAR(made);
    if (made && session)
        dg_session_made(session, made, dtype, shape, ndim, l->device, *address);
    return made;
}

/* the inputs, the results, the workspace (or None) and the sizes, for a step that is Python's */
static int call_step(const dg_launch *step, const dg_launcher *l, const dg_frame *frame, PyObject **outputs, PyObject *workspace)
{
    PyObject *inputs = PyTuple_New(l->n_inputs), *results = PyTuple_New(l->n_results), *sizes = tuple_of(frame->sizes, l->n_symbols);
    for (int k = 0; inputs && k < l->n_inputs; ++k)
        PyTuple_SET_ITEM(inputs, k, Py_NewRef(frame->input_objects[k]));
    for (int k = 0; results && k < l->n_results; ++k)
        PyTuple_SET_ITEM(results, k, Py_NewRef(outputs[k]));
    PyObject *done = NULL;
    if (inputs && results && sizes)
        done = PyObject_Vectorcall(step->call, (PyObject *[]){inputs, results, workspace ? workspace : Py_None, sizes}, 4, NULL);
    Py_XDECREF(inputs);
    Py_XDECREF(results);
    Py_XDECREF(sizes);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

/* -1, with the exception that `on_error` raises */
static int refused(const dg_launcher *l, int which, int error)
{
    PyObject *raised = PyObject_CallFunction(l->on_error, "ii", which, error);
    if (raised)
        PyErr_Format(PyExc_SystemError, "launch %d failed with %d, and on_error raised nothing", which, error);
    Py_XDECREF(raised);
    return -1;
}

/* where the memory of an input, output, temporary or constant begins */
static uint64_t place_of(const dg_parameter *p, const dg_frame *frame, char *const *addresses, const char *workspace)
{
    switch (p->kind) {
    case DG_INPUT: return (uintptr_t)frame->inputs[p->position];
    case DG_OUTPUT: return (uintptr_t)addresses[p->position];
    case DG_TEMP: return (uintptr_t)workspace + (uint64_t)dg_size_now(&p->offset, frame->sizes);
    default: return (uint64_t)p->offset.constant;
    }
}

static int start(const dg_launcher *l, int which, const dg_frame *frame, char *const *addresses, char *workspace, void *stream)
{
    const dg_launch *step = &l->launches[which];
    int64_t n = dg_size_now(&step->n, frame->sizes);
    if (n <= 0)
        return 0;
    uint64_t few[2 * FEW_PARAMETERS], *words;
    size_t n_parameters = (size_t)step->n_parameters;
    if (!(words = dg_room(few, sizeof few, n_parameters * (sizeof *words + sizeof(void *))))) {
        PyErr_NoMemory();
        return -1;
    }
    void **parameters = (void **)(words + n_parameters);
    for (int k = 0; k < step->n_parameters; ++k) {
        const dg_parameter *p = &step->parameters[k];
        parameters[k] = &words[k];
        switch (p->kind) {
        case DG_VALUE: parameters[k] = frame->inputs[p->position]; break;
        case DG_SIZE: words[k] = (uint64_t)frame->sizes[p->position]; break;
        default: words[k] = place_of(p, frame, addresses, workspace);
        }
    }
    int64_t blocks = (n + step->per_block - 1) / step->per_block;
    if (blocks > l->most_blocks)
        blocks = l->most_blocks;
    int error = l->function(step->function, (unsigned)blocks, 1, 1, step->threads, 1, 1, 0, stream, parameters, NULL);
    dg_leave(words, few);
    return error ? refused(l, which, error) : 0;
}

/* -- products --------------------------------------------------------------------------------------------------------------- */

/* the Product of these sizes, or None, as a new reference: while Python looks for one, another thread may forget this one */
static PyObject *plan_of(dg_product_step *p, const dg_launcher *l, const dg_frame *frame)
{
    int64_t wanted[DG_MAX_SYMBOLS];
    size_t nbytes = sizeof *wanted * (size_t)p->n_read;
    for (int k = 0; k < p->n_read; ++k)
        wanted[k] = frame->sizes[p->read[k]];
    for (int k = 0; k < DG_KNOWN_PLANS && p->plans[k]; ++k)
        if (memcmp(p->sizes + k * p->n_read, wanted, nbytes) == 0)
            return Py_NewRef(p->plans[k]);
    if (frame->session)
        frame->session->quiet = 0;
    PyObject *sizes = tuple_of(frame->sizes, l->n_symbols);
    PyObject *found = sizes ? PyObject_CallOneArg(p->find, sizes) : NULL;
    Py_XDECREF(sizes);
    if (!found)
        return NULL;
    if (found != Py_None && !Py_IS_TYPE(found, &dg_ProductType)) {
        PyErr_Format(PyExc_TypeError, "Launcher: find gave %R, not a Product or None", found);
        Py_DECREF(found);
        return NULL;
    }
    memcpy(p->sizes + p->next * p->n_read, wanted, nbytes);
    PyObject *forgotten = p->plans[p->next];
    p->plans[p->next] = Py_NewRef(found);
    p->next = (p->next + 1) % DG_KNOWN_PLANS;
    Py_XDECREF(forgotten);
    return found;
}

static void drop_plans(const dg_launcher *l, PyObject **plans)
{
    for (int k = 0; plans && k < l->n_launches; ++k)
        Py_XDECREF(plans[k]);
    PyMem_Free(plans);
}

/* by step, the Product (or None) of those that are products; *workspace: the bytes that the largest one needs besides */
static PyObject **plans_of(const dg_launcher *l, const dg_frame *frame, int64_t *workspace)
{
    PyObject **plans = PyMem_Calloc((size_t)l->n_launches + 1, sizeof *plans);
    if (!plans)
        return (PyObject **)PyErr_NoMemory();
    for (int k = 0; k < l->n_launches; ++k) {
        if (!l->launches[k].product)
            continue;
        if (!(plans[k] = plan_of(l->launches[k].product, l, frame))) {
            drop_plans(l, plans);
            return NULL;
        }
        int64_t needed = plans[k] == Py_None ? 0 : dg_product_workspace((dg_product *)plans[k]);
        *workspace = needed > *workspace ? needed : *workspace;
    }
    return plans;
}

static int multiply(const dg_launcher *l, int which, PyObject *plan, const dg_frame *frame, char *const *addresses, char *workspace,
                    char *own, void *stream)
{
    const dg_product_step *p = l->launches[which].product;
    char *operands[DG_OPERANDS];
    for (int k = 0; k < DG_OPERANDS; ++k) {
        const dg_matrix *m = &p->operands[k];
        operands[k] = NULL;
        if (m->is_there)
            operands[k] = (char *)(uintptr_t)place_of(&m->memory, frame, addresses, workspace) + dg_size_now(&m->begin, frame->sizes);
    }
    int error = dg_product_run((dg_product *)plan, operands, own, stream);
    return error ? refused(l, which, error) : 0;
}

/* -- all of a call ---------------------------------------------------------------------------------------------------------- */

/* result `k`: a new array, or the input that it is written to; *address: of its memory; null: an exception is set */
static PyObject *place_result(const dg_launcher *l, const dg_frame *frame, int k, char **address)
{
    const dg_output *out = &l->results[k];
    if (out->into >= 0) {
        *address = frame->inputs[out->into];
        return Py_NewRef(frame->input_objects[out->into]);
    }
    int64_t shape[DG_MAX_DIMS];
    for (int axis = 0; axis < out->ndim; ++axis)
        shape[axis] = dg_size_now(&out->shape[axis], frame->sizes);
    return new_array(l, frame->session, (PyObject *)out->descr, shape, out->ndim, address);
}

int dg_launch_all(const dg_launcher *l, const dg_frame *frame, int64_t stream, PyObject **outputs)
{
    char *few[DG_FEW_ARRAYS], **addresses = dg_room(few, sizeof few, sizeof *addresses * (size_t)l->n_results), *memory = NULL;
    PyObject *workspace = NULL, **plans = NULL;
    int64_t own = 0; /* after the workspace: memory of the products */
    int made = 0, ok = 0;
    if (!addresses) {
        PyErr_NoMemory();
        return -1;
    }
    if (l->n_products && !(plans = plans_of(l, frame, &own)))
        goto done;
    for (; made < l->n_results; ++made)
        if (!(outputs[made] = place_result(l, frame, made, &addresses[made])))
            goto done;
    int64_t nbytes = dg_size_now(&l->workspace, frame->sizes), whole = nbytes + (own ? own + WORKSPACE_ALIGNMENT - 1 : 0);
    if (whole > 0 && (!(workspace = new_array(l, frame->session, l->byte_type, &whole, 1, &memory)) || !memory))
        goto done;
    char *behind = (char *)(((uintptr_t)memory + (uint64_t)nbytes + WORKSPACE_ALIGNMENT - 1) & ~(uintptr_t)(WORKSPACE_ALIGNMENT - 1));
    for (int k = 0; k < l->n_launches; ++k) {
        const dg_launch *step = &l->launches[k];
        int started;
        if (step->product && plans[k] != Py_None)
            started = multiply(l, k, plans[k], frame, addresses, memory, behind, (void *)(intptr_t)stream);
        else if (step->call) {
            if (frame->session)
                frame->session->quiet = 0;
            started = call_step(step, l, frame, outputs, workspace);
        }
        else
            started = start(l, k, frame, addresses, memory, (void *)(intptr_t)stream);
        if (started < 0)
            goto done;
    }
    ok = 1;
done:
    drop_plans(l, plans);
    dg_leave(addresses, few);
    Py_XDECREF(workspace); /* the pool hands it out again to work that comes later on this stream */
    while (!ok && made > 0)
        Py_CLEAR(outputs[--made]);
    return ok ? 1 : -1;
}
