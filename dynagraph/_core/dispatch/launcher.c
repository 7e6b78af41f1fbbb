/* Launchers: the kernels and products of a program, with everything about their launches that does not change packed beforehand.

   A launcher serves the calls that its program most often gets: memory that begins at multiples of 16 bytes, sizes that fit into 32
   bits, one device, which is the current one.  It leaves all others to the callable of its plan.  Of a call that it serves it first
   asks `replay`, where there is one, for a few launches that do the same. */
#include "launchers.h"
#include "sessions.h"

enum { PACK_BYTES = 16 };

static void clear_product(dg_product_step *p)
{
    Py_CLEAR(p->find);
    for (int k = 0; k < DG_OPERANDS; ++k) {
        dg_size_clear(&p->operands[k].memory.offset);
        dg_size_clear(&p->operands[k].begin);
    }
    for (int k = 0; k < DG_KNOWN_PLANS; ++k)
        Py_CLEAR(p->plans[k]);
    PyMem_Free(p->sizes);
    PyMem_Free(p);
}

static void clear(dg_launcher *l)
{
    l->ready = 0;
    Py_CLEAR(l->array_type);
    Py_CLEAR(l->byte_type);
    Py_CLEAR(l->current_device);
    Py_CLEAR(l->current_stream);
    Py_CLEAR(l->on_error);
    Py_CLEAR(l->keepalive);
    Py_CLEAR(l->replay);
    Py_CLEAR(l->replay_failed);
    for (int k = 0; k < l->n_results && l->results; ++k)
        dg_output_clear(&l->results[k]);
    for (int k = 0; k < l->n_launches && l->launches; ++k) {
        dg_launch *step = &l->launches[k];
        Py_CLEAR(step->call);
        if (step->product)
            clear_product(step->product);
        dg_size_clear(&step->n);
        for (int j = 0; j < step->n_parameters && step->parameters; ++j)
            dg_size_clear(&step->parameters[j].offset);
        PyMem_Free(step->parameters);
    }
    dg_sizes_clear(&l->sizes);
    dg_size_clear(&l->workspace);
    PyMem_Free(l->results);
    PyMem_Free(l->launches);
    PyMem_Free(l->value_bytes);
    l->value_bytes = NULL;
    l->results = NULL;
    l->launches = NULL;
    l->n_results = l->n_launches = l->n_products = 0;
}

static PyObject *launcher_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    if (PyTuple_GET_SIZE(args) || (kwargs && PyDict_GET_SIZE(kwargs)))
        return PyErr_Format(PyExc_TypeError, "Launcher takes no arguments; prepare() makes it ready");
    return type->tp_alloc(type, 0);
}

static int launcher_traverse(dg_launcher *l, visitproc visit, void *arg)
{
    Py_VISIT(l->array_type);
    Py_VISIT(l->current_device);
    Py_VISIT(l->current_stream);
    Py_VISIT(l->on_error);
    Py_VISIT(l->keepalive);
    Py_VISIT(l->replay);
    Py_VISIT(l->replay_failed);
    for (int k = 0; k < l->n_launches; ++k) {
        Py_VISIT(l->launches[k].call);
        if (l->launches[k].product)
            Py_VISIT(l->launches[k].product->find);
    }
    return 0;
}

static int launcher_clear(dg_launcher *l)
{
    clear(l);
    return 0;
}

static void launcher_dealloc(dg_launcher *l)
{
    PyObject_GC_UnTrack(l);
    clear(l);
    Py_TYPE(l)->tp_free(l);
}

/* -- making ready ----------------------------------------------------------------------------------------------------------- */

static void *rows_of(PyObject *rows, size_t size, int *n)
{
    *n = (int)PyTuple_GET_SIZE(rows);
    void *made = PyMem_Calloc((size_t)*n + 1, size);
    if (!made)
        PyErr_NoMemory();
    return made;
}

/* PyArg_ParseTuple takes others for a mistake of C code */
static int is_row(PyObject *row)
{
    if (!PyTuple_Check(row))
        PyErr_Format(PyExc_TypeError, "Launcher: expected a tuple, got %R", row);
    return PyTuple_Check(row);
}

/* (dtype, shape, into) */
static int parse_result(dg_launcher *l, dg_output *out, PyObject *row)
{
    PyObject *dtype, *shape;
    if (!is_row(row) || !PyArg_ParseTuple(row, "OO!i;a result is (dtype, shape, into)", &dtype, &PyTuple_Type, &shape, &out->into))
        return -1;
    return dg_output_parse(out, dtype, shape, l->n_inputs, l->n_symbols);
}

/* (kind, position or size program) */
static int parse_parameter(dg_launcher *l, dg_parameter *p, PyObject *row)
{
    static const char *const kinds[] = {"input", "output", "temp", "constant", "value", "size"};
    const char *kind;
    PyObject *what;
    if (!is_row(row) || !PyArg_ParseTuple(row, "sO;a parameter is (kind, what)", &kind, &what))
        return -1;
    int number = -1;
    for (int k = 0; k < 6; ++k)
        if (strcmp(kind, kinds[k]) == 0)
            number = k;
    if (number < 0) {
        PyErr_Format(PyExc_ValueError, "Launcher: a parameter of the unknown kind %s", kind);
        return -1;
    }
    p->kind = number;
    if (number == DG_TEMP || number == DG_CONSTANT)
        return dg_size_parse(what, l->n_symbols, &p->offset);
    long position = PyLong_AsLong(what);
    const int limits[] = {l->n_inputs, l->n_results, 0, 0, l->n_inputs, l->n_symbols};
    if (!PyErr_Occurred() && (position < 0 || position >= limits[number]))
        PyErr_Format(PyExc_ValueError, "Launcher: %s %ld of %d", kind, position, limits[number]);
    p->position = (int)position;
    return PyErr_Occurred() ? -1 : 0;
}

static int parse_symbols(dg_launcher *l, PyObject *symbols, unsigned char *read, int *n_read)
{
    *n_read = 0;
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(symbols); ++k) {
        long symbol = PyLong_AsLong(PyTuple_GET_ITEM(symbols, k));
        if (symbol < 0 || symbol >= l->n_symbols || k >= DG_MAX_SYMBOLS) {
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_ValueError, "Launcher: symbol %ld of %d", symbol, l->n_symbols);
            return -1;
        }
        read[(*n_read)++] = (unsigned char)symbol;
    }
    return 0;
}

/* (kind, position or size program, begin), or None */
static int parse_matrix(dg_launcher *l, dg_matrix *m, PyObject *row)
{
    if (row == Py_None)
        return 0;
    PyObject *kind, *what, *begin;
    if (!is_row(row) || !PyArg_ParseTuple(row, "OOO;a matrix is (kind, what, begin)", &kind, &what, &begin))
        return -1;
    PyObject *memory = PyTuple_Pack(2, kind, what);
    int parsed = memory ? parse_parameter(l, &m->memory, memory) : -1;
    Py_XDECREF(memory);
    if (parsed < 0 || dg_size_parse(begin, l->n_symbols, &m->begin) < 0)
        return -1;
    if (m->memory.kind == DG_VALUE || m->memory.kind == DG_SIZE) {
        PyErr_Format(PyExc_ValueError, "Launcher: a matrix that is a %U", kind);
        return -1;
    }
    m->is_there = 1;
    return 0;
}

/* (call, find, symbols, matrices) */
static int parse_product(dg_launcher *l, dg_launch *step, PyObject *row)
{
    dg_product_step *p = step->product = PyMem_Calloc(1, sizeof *p);
    if (!p) {
        PyErr_NoMemory();
        return -1;
    }
    PyObject *call, *find, *symbols, *matrices;
    if (!PyArg_ParseTuple(row, "OOO!O!;a product is (call, find, symbols, matrices)", &call, &find, &PyTuple_Type, &symbols,
                          &PyTuple_Type, &matrices))
        return -1;
    step->call = Py_NewRef(call);
    p->find = Py_NewRef(find);
    if (PyTuple_GET_SIZE(matrices) != DG_OPERANDS) {
        PyErr_Format(PyExc_ValueError, "Launcher: a product of %zd matrices, not %d", PyTuple_GET_SIZE(matrices), DG_OPERANDS);
        return -1;
    }
    for (int k = 0; k < DG_OPERANDS; ++k)
        if (parse_matrix(l, &p->operands[k], PyTuple_GET_ITEM(matrices, k)) < 0)
            return -1;
    if (parse_symbols(l, symbols, p->read, &p->n_read) < 0)
        return -1;
    if (!(p->sizes = PyMem_Calloc((size_t)DG_KNOWN_PLANS * (size_t)p->n_read + 1, sizeof *p->sizes))) {
        PyErr_NoMemory();
        return -1;
    }
    ++l->n_products;
    return 0;
}

/* a callable, (call, find, symbols, matrices), or (function, n, per_block, threads, parameters) */
static int parse_launch(dg_launcher *l, dg_launch *step, PyObject *row)
{
    if (!PyTuple_Check(row)) {
        step->call = Py_NewRef(row);
        return 0;
    }
    if (PyTuple_GET_SIZE(row) == 4)
        return parse_product(l, step, row);
    PyObject *function, *n, *parameters;
    long long per_block;
    if (!PyArg_ParseTuple(row, "OOLIO!;a launch is (function, n, per_block, threads, parameters)", &function, &n, &per_block,
                          &step->threads, &PyTuple_Type, &parameters))
        return -1;
    step->function = PyLong_AsVoidPtr(function);
    if (PyErr_Occurred() || dg_size_parse(n, l->n_symbols, &step->n) < 0)
        return -1;
    step->per_block = per_block;
    if (per_block < 1 || PyTuple_GET_SIZE(parameters) > DG_MAX_PARAMETERS) {
        PyErr_Format(PyExc_ValueError, "Launcher: %lld units for a block, %zd parameters", per_block, PyTuple_GET_SIZE(parameters));
        return -1;
    }
    if (!(step->parameters = rows_of(parameters, sizeof *step->parameters, &step->n_parameters)))
        return -1;
    for (int k = 0; k < step->n_parameters; ++k)
        if (parse_parameter(l, &step->parameters[k], PyTuple_GET_ITEM(parameters, k)) < 0)
            return -1;
    return 0;
}

static int parse_results(dg_launcher *l, PyObject *rows)
{
    if (!(l->results = rows_of(rows, sizeof *l->results, &l->n_results)))
        return -1;
    for (int k = 0; k < l->n_results; ++k)
        if (parse_result(l, &l->results[k], PyTuple_GET_ITEM(rows, k)) < 0)
            return -1;
    return 0;
}

static int parse_launches(dg_launcher *l, PyObject *rows)
{
    if (!(l->launches = rows_of(rows, sizeof *l->launches, &l->n_launches)))
        return -1;
    for (int k = 0; k < l->n_launches; ++k)
        if (parse_launch(l, &l->launches[k], PyTuple_GET_ITEM(rows, k)) < 0)
            return -1;
    return 0;
}

/* rows (position, bytes) */
static int parse_values(dg_launcher *l, PyObject *values)
{
    if (!(l->value_bytes = PyMem_Calloc((size_t)l->n_inputs + 1, sizeof *l->value_bytes))) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(values); ++k) {
        int position, bytes;
        if (!is_row(PyTuple_GET_ITEM(values, k)) ||
            !PyArg_ParseTuple(PyTuple_GET_ITEM(values, k), "ii;a value is (position, bytes)", &position, &bytes))
            return -1;
        if (position < 0 || position >= l->n_inputs || bytes < 1 || bytes > DG_VALUE_BYTES) {
            PyErr_Format(PyExc_ValueError, "Launcher: value %d of %d inputs, of %d bytes", position, l->n_inputs, bytes);
            return -1;
        }
        l->value_bytes[position] = (unsigned char)bytes;
    }
    return 0;
}

static int place_fits(const dg_parameter *p, int64_t bound) { return p->kind != DG_TEMP || dg_size_fits(&p->offset, NULL, bound); }

/* whether no size exceeds 64 bits where no symbol is above `bound` */
static int fits_below(const void *launcher, int64_t bound)
{
    const dg_launcher *l = launcher;
    int fits = dg_size_fits(&l->workspace, NULL, bound) && dg_sizes_fit(&l->sizes, NULL, bound);
    for (int k = 0; fits && k < l->n_results; ++k)
        fits = dg_output_fits(&l->results[k], NULL, bound);
    for (int k = 0; fits && k < l->n_launches; ++k) {
        const dg_launch *step = &l->launches[k];
        int64_t most;
        fits = dg_size_most(&step->n, bound, &most) && !__builtin_add_overflow(most, step->per_block, &most);
        for (int j = 0; fits && j < step->n_parameters; ++j)
            fits = place_fits(&step->parameters[j], bound);
        for (int j = 0; fits && step->product && j < DG_OPERANDS; ++j)
            fits = dg_size_fits(&step->product->operands[j].begin, NULL, bound) && place_fits(&step->product->operands[j].memory, bound);
    }
    return fits;
}

static PyObject *launcher_prepare(dg_launcher *l, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"launch_address", "n_inputs", "n_symbols", "values", "results", "workspace", "launches", "sizes", "reach",
                            "most_blocks", "device", "array_type", "byte_type", "current_device", "current_stream", "on_error",
                            "keepalive", "symbols", "replay", "replay_failed", NULL};
    unsigned long long address;
    long long reach, most_blocks, device;
    int n_inputs, n_symbols;
    PyObject *values, *results, *workspace, *launches, *sizes, *array_type, *byte_type, *current_device, *current_stream, *on_error;
    PyObject *keepalive, *symbols, *replay = Py_None, *replay_failed = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "KiiO!O!OO!O!LLLOOOOOOO!|OO:prepare", names, &address, &n_inputs, &n_symbols,
                                     &PyTuple_Type, &values, &PyTuple_Type, &results, &workspace, &PyTuple_Type, &launches,
                                     &PyTuple_Type, &sizes, &reach, &most_blocks, &device, &array_type, &byte_type, &current_device,
                                     &current_stream, &on_error, &keepalive, &PyTuple_Type, &symbols, &replay, &replay_failed))
        return NULL;
    if (l->ready)
        return PyErr_Format(PyExc_RuntimeError, "Launcher: it is ready, and may be running");
    if (!address || n_inputs < 0 || n_inputs > DG_MAX_ARRAYS || n_symbols < 0 || n_symbols > DG_MAX_SYMBOLS ||
        PyTuple_GET_SIZE(results) > DG_MAX_ARRAYS || most_blocks < 1)
        return PyErr_Format(PyExc_ValueError, "Launcher: address %llu, %d inputs, %d symbols, %zd results, %lld blocks", address,
                            n_inputs, n_symbols, PyTuple_GET_SIZE(results), most_blocks);
    clear(l);
    l->function = (dg_launch_function)(uintptr_t)address;
    l->n_inputs = n_inputs;
    l->n_symbols = n_symbols;
    l->reach = reach;
    l->most_blocks = most_blocks;
    l->device = device;
    l->array_type = Py_NewRef(array_type);
    l->byte_type = Py_NewRef(byte_type);
    l->current_device = Py_NewRef(current_device);
    l->current_stream = Py_NewRef(current_stream);
    l->on_error = Py_NewRef(on_error);
    l->keepalive = Py_NewRef(keepalive);
    l->replay = replay == Py_None ? NULL : Py_NewRef(replay);
    l->replay_failed = replay == Py_None ? NULL : Py_NewRef(replay_failed);
    if (parse_values(l, values) < 0 || parse_symbols(l, symbols, l->read, &l->n_read) < 0 || parse_results(l, results) < 0 ||
        parse_launches(l, launches) < 0 || dg_sizes_parse(sizes, n_symbols, &l->sizes) < 0 ||
        dg_size_parse(workspace, n_symbols, &l->workspace) < 0) {
        clear(l);
        return NULL;
    }
    l->safe = dg_safe_bound(fits_below, l);
    l->ready = 1;
    Py_RETURN_NONE;
}

/* -- running ------------------------------------------------------------------------------------------------------------- */

static int64_t number_from(PyObject *callable)
{
    PyObject *given = PyObject_CallNoArgs(callable);
    int64_t number = given ? PyLong_AsLongLong(given) : -1;
    Py_XDECREF(given);
    return number;
}

/* 1: this call is one that the launcher serves; -1: an exception is set */
static int serves(const dg_launcher *l, const dg_frame *frame)
{
    for (int k = 0; k < l->n_inputs; ++k) {
        int is_array = Py_IS_TYPE(frame->input_objects[k], (PyTypeObject *)l->array_type);
        if (is_array == (l->value_bytes[k] > 0) || (is_array && ((uintptr_t)frame->inputs[k] & (PACK_BYTES - 1))))
            return 0;
    }
    for (int k = 0; k < l->n_symbols; ++k)
        if (frame->sizes[k] > l->safe)
            return 0;
    for (int k = 0; k < l->sizes.n; ++k)
        if (dg_size_now(&l->sizes.all[k], frame->sizes) > l->reach)
            return 0;
    if (frame->session && frame->session->launcher == l)
        return 1;
    int64_t current = number_from(l->current_device);
    return current == -1 && PyErr_Occurred() ? -1 : current == l->device;
}

int dg_launcher_run(PyObject *launcher, dg_frame *frame, PyObject **outputs)
{
    const dg_launcher *l = (const dg_launcher *)launcher;
    if (!l->ready)
        return 0;
    int may = serves(l, frame);
    if (may <= 0)
        return may;
    dg_session *session = frame->session;
    int64_t stream = session && session->launcher == l ? session->stream : number_from(l->current_stream);
    if (stream == -1 && PyErr_Occurred())
        return -1;
    if (session) {
        session->launcher = l;
        session->stream = stream;
        session->quiet = !l->replay;
    }
    dg_raised raised = {0};
    int done = l->replay ? dg_launch_replay(l, frame, stream, outputs) : 0, late = 0;
    if (done < 0) {
        if (!(late = dg_put_off(&raised)))
            return -1; /* the call is left, or has found out what an earlier one did */
        done = 0; /* of a signal's handler: it waits for the end of the call, as in call_program */
    }
    if (!done)
        done = dg_launch_all(l, frame, stream, outputs);
    if (late) {
        PyObject *type, *error, *traceback;
        PyErr_Fetch(&type, &error, &traceback);
        if (dg_raise_later(&raised) < 0)
            PyErr_WriteUnraisable(launcher);
        PyErr_Restore(type, error, traceback);
    }
    return done;
}

int dg_launcher_fits(PyObject *launcher, int n_inputs, int n_symbols, int n_outputs)
{
    const dg_launcher *l = (const dg_launcher *)launcher;
    return !l->ready || (l->n_inputs == n_inputs && l->n_symbols <= n_symbols && l->n_results >= n_outputs);
}

int dg_launcher_results(PyObject *launcher) { return ((dg_launcher *)launcher)->n_results; }

static PyObject *get_ready(dg_launcher *l, void *ignored) { return PyBool_FromLong(l->ready); }

static PyMethodDef methods[] = {
    {"prepare", (PyCFunction)(void (*)(void))launcher_prepare, METH_VARARGS | METH_KEYWORDS, "Say what is launched, once."},
    {0},
};

static PyGetSetDef properties[] = {
    {"ready", (getter)get_ready, NULL, "Whether it has been prepared.", NULL},
    {0},
};

PyTypeObject dg_LauncherType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dynagraph._core._dispatch.Launcher",
    .tp_basicsize = sizeof(dg_launcher),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Launches the kernels of a program.",
    .tp_new = launcher_new,
    .tp_dealloc = (destructor)launcher_dealloc,
    .tp_traverse = (traverseproc)launcher_traverse,
    .tp_clear = (inquiry)launcher_clear,
    .tp_methods = methods,
    .tp_getset = properties,
    .tp_free = PyObject_GC_Del,
};
