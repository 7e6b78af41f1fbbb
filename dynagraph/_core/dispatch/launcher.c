/* Launchers: the kernels and products of a program, with everything about their launches that does not change packed beforehand.

   A launcher serves the calls that its program most often gets: memory that begins at multiples of 16 bytes, sizes that fit into 32
   bits, one device, which is the current one.  It leaves all others to the callable of its plan.  Of a call that it serves it first
   asks `replay`, where there is one, for a single launch that does the same. */
#include "core.h"

enum { PACK_BYTES = 16, VALUE_BYTES = 16, MAX_PARAMETERS = 4 * DG_MAX_ARRAYS, KNOWN_PLANS = 8, WORKSPACE_ALIGNMENT = 256 };

typedef int (*launch_function)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                               unsigned shared, void *stream, void **parameters, void **extra);

/* what a kernel is given: an address, a number of the host's, or a size */
typedef struct {
    enum { INPUT, OUTPUT, TEMP, CONSTANT, VALUE, SIZE } kind;
    int position;   /* INPUT, OUTPUT, VALUE; SIZE: the symbol */
    dg_size offset; /* TEMP: in the workspace; CONSTANT: the address itself */
} parameter;

/* a matrix of a product: in the memory of a parameter, `begin` bytes behind its beginning */
typedef struct {
    int is_there;
    parameter memory;
    dg_size begin;
} matrix;

/* products of the sizes that came last; `find` knows, or makes, the others */
typedef struct {
    PyObject *find; /* (sizes) -> a Product, or None: it is a call of Python */
    matrix operands[DG_OPERANDS];
    int n_read, next;
    unsigned char read[DG_MAX_SYMBOLS]; /* the symbols that it depends on */
    PyObject *plans[KNOWN_PLANS];       /* or null */
    int64_t *sizes;                     /* of each plan: n_read values */
} product;

/* a launch; where `product` is set a product of matrices; where only `call` is set a call of Python with the arrays */
typedef struct {
    PyObject *call;
    product *product;
    void *function;
    dg_size n; /* units of work */
    int64_t per_block;
    unsigned threads;
    int n_parameters;
    parameter *parameters;
} launch;

typedef struct {
    PyObject *descr;
    int ndim, into;
    dg_size shape[DG_MAX_DIMS];
} result;

struct dg_launcher {
    PyObject_HEAD
    int ready;
    launch_function function;
    int64_t most_blocks, reach, device;
    PyObject *array_type, *byte_type, *current_device, *current_stream, *on_error, *keepalive;
    PyObject *replay, *replay_failed; /* or null */
    int n_inputs, n_symbols, n_results, n_launches, n_products, n_sizes, n_read;
    unsigned char value_bytes[DG_MAX_ARRAYS]; /* of inputs that are numbers of the host's; 0: an array */
    unsigned char read[DG_MAX_SYMBOLS];       /* the symbols that launches depend on */
    result *results;
    launch *launches;
    dg_size *sizes; /* none of which may be above `reach` */
    dg_size workspace;
    int64_t safe; /* where no symbol is above it no size exceeds 64 bits: other calls are left to the callable */
};

static PyObject *a_data, *a_ptr;

static void clear_product(product *p)
{
    Py_CLEAR(p->find);
    for (int k = 0; k < DG_OPERANDS; ++k) {
        dg_size_clear(&p->operands[k].memory.offset);
        dg_size_clear(&p->operands[k].begin);
    }
    for (int k = 0; k < KNOWN_PLANS; ++k)
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
    for (int k = 0; k < l->n_results && l->results; ++k) {
        Py_CLEAR(l->results[k].descr);
        for (int axis = 0; axis < DG_MAX_DIMS; ++axis)
            dg_size_clear(&l->results[k].shape[axis]);
    }
    for (int k = 0; k < l->n_launches && l->launches; ++k) {
        launch *step = &l->launches[k];
        Py_CLEAR(step->call);
        if (step->product)
            clear_product(step->product);
        dg_size_clear(&step->n);
        for (int j = 0; j < step->n_parameters && step->parameters; ++j)
            dg_size_clear(&step->parameters[j].offset);
        PyMem_Free(step->parameters);
    }
    for (int k = 0; k < l->n_sizes && l->sizes; ++k)
        dg_size_clear(&l->sizes[k]);
    dg_size_clear(&l->workspace);
    PyMem_Free(l->results);
    PyMem_Free(l->launches);
    PyMem_Free(l->sizes);
    l->results = NULL;
    l->launches = NULL;
    l->sizes = NULL;
    l->n_results = l->n_launches = l->n_products = l->n_sizes = 0;
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
static int parse_result(dg_launcher *l, result *out, PyObject *row)
{
    PyObject *shape;
    if (!is_row(row) || !PyArg_ParseTuple(row, "OO!i;a result is (dtype, shape, into)", &out->descr, &PyTuple_Type, &shape, &out->into)) {
        out->descr = NULL;
        return -1;
    }
    Py_INCREF(out->descr);
    out->ndim = (int)PyTuple_GET_SIZE(shape);
    if (out->ndim > DG_MAX_DIMS || out->into >= l->n_inputs) {
        PyErr_Format(PyExc_ValueError, "Launcher: a result of %d dimensions into input %d", out->ndim, out->into);
        return -1;
    }
    for (int k = 0; k < out->ndim; ++k)
        if (dg_size_parse(PyTuple_GET_ITEM(shape, k), l->n_symbols, &out->shape[k]) < 0)
            return -1;
    return 0;
}

/* (kind, position or size program) */
static int parse_parameter(dg_launcher *l, parameter *p, PyObject *row)
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
    if (number == TEMP || number == CONSTANT)
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
static int parse_matrix(dg_launcher *l, matrix *m, PyObject *row)
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
    if (m->memory.kind == VALUE || m->memory.kind == SIZE) {
        PyErr_Format(PyExc_ValueError, "Launcher: a matrix that is a %U", kind);
        return -1;
    }
    m->is_there = 1;
    return 0;
}

/* (call, find, symbols, matrices) */
static int parse_product(dg_launcher *l, launch *step, PyObject *row)
{
    product *p = step->product = PyMem_Calloc(1, sizeof *p);
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
    if (!(p->sizes = PyMem_Calloc((size_t)KNOWN_PLANS * (size_t)p->n_read + 1, sizeof *p->sizes))) {
        PyErr_NoMemory();
        return -1;
    }
    ++l->n_products;
    return 0;
}

/* a callable, (call, find, symbols, matrices), or (function, n, per_block, threads, parameters) */
static int parse_launch(dg_launcher *l, launch *step, PyObject *row)
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
    if (per_block < 1 || PyTuple_GET_SIZE(parameters) > MAX_PARAMETERS) {
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

/* rows (position, bytes) */
static int parse_values(dg_launcher *l, PyObject *values)
{
    memset(l->value_bytes, 0, sizeof l->value_bytes);
    for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(values); ++k) {
        int position, bytes;
        if (!is_row(PyTuple_GET_ITEM(values, k)) ||
            !PyArg_ParseTuple(PyTuple_GET_ITEM(values, k), "ii;a value is (position, bytes)", &position, &bytes))
            return -1;
        if (position < 0 || position >= l->n_inputs || bytes < 1 || bytes > VALUE_BYTES) {
            PyErr_Format(PyExc_ValueError, "Launcher: value %d of %d inputs, of %d bytes", position, l->n_inputs, bytes);
            return -1;
        }
        l->value_bytes[position] = (unsigned char)bytes;
    }
    return 0;
}

/* whether no size exceeds 64 bits where no symbol is above `bound` */
static int fits_below(const dg_launcher *l, int64_t bound)
{
    int64_t most, elements;
    int fits = dg_size_most(&l->workspace, bound, &most);
    for (int k = 0; fits && k < l->n_results; ++k) {
        elements = VALUE_BYTES;
        for (int axis = 0; fits && axis < l->results[k].ndim; ++axis)
            fits = dg_size_most(&l->results[k].shape[axis], bound, &most) && !__builtin_mul_overflow(elements, most, &elements);
    }
    for (int k = 0; fits && k < l->n_sizes; ++k)
        fits = dg_size_most(&l->sizes[k], bound, &most);
    for (int k = 0; fits && k < l->n_launches; ++k) {
        const launch *step = &l->launches[k];
        fits = dg_size_most(&step->n, bound, &most) && !__builtin_add_overflow(most, step->per_block, &most);
        for (int j = 0; fits && j < step->n_parameters; ++j)
            fits = step->parameters[j].kind != TEMP || dg_size_most(&step->parameters[j].offset, bound, &most);
        for (int j = 0; fits && step->product && j < DG_OPERANDS; ++j)
            fits = dg_size_most(&step->product->operands[j].begin, bound, &most) &&
                   (step->product->operands[j].memory.kind != TEMP ||
                    dg_size_most(&step->product->operands[j].memory.offset, bound, &most));
    }
    return fits;
}

/* a size of a call that is served: it fits */
static int64_t size_now(const dg_size *size, const int64_t *sizes)
{
    int64_t value = 0;
    dg_size_run(size, sizes, &value);
    return value;
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
    l->function = (launch_function)(uintptr_t)address;
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
    if (parse_values(l, values) < 0 || parse_symbols(l, symbols, l->read, &l->n_read) < 0 || !(l->results = rows_of(results, sizeof *l->results, &l->n_results)))
        goto fail;
    for (int k = 0; k < l->n_results; ++k)
        if (parse_result(l, &l->results[k], PyTuple_GET_ITEM(results, k)) < 0)
            goto fail;
    if (!(l->launches = rows_of(launches, sizeof *l->launches, &l->n_launches)))
        goto fail;
    for (int k = 0; k < l->n_launches; ++k)
        if (parse_launch(l, &l->launches[k], PyTuple_GET_ITEM(launches, k)) < 0)
            goto fail;
    if (!(l->sizes = rows_of(sizes, sizeof *l->sizes, &l->n_sizes)))
        goto fail;
    for (int k = 0; k < l->n_sizes; ++k)
        if (dg_size_parse(PyTuple_GET_ITEM(sizes, k), n_symbols, &l->sizes[k]) < 0)
            goto fail;
    if (dg_size_parse(workspace, n_symbols, &l->workspace) < 0)
        goto fail;
    for (l->safe = (int64_t)1 << 62; l->safe && !fits_below(l, l->safe);)
        l->safe >>= 1;
    l->ready = 1;
    Py_RETURN_NONE;
fail:
    clear(l);
    return NULL;
}

/* -- running ---------------------------------------------------------------------------------------------------------------- */

/* the address of an array's memory; null with an exception: it says none */
static char *address_of(PyObject *array)
{
    PyObject *data = PyObject_GetAttr(array, a_data);
    PyObject *pointer = data ? PyObject_GetAttr(data, a_ptr) : NULL;
    char *address = pointer ? PyLong_AsVoidPtr(pointer) : NULL;
    Py_XDECREF(pointer);
    Py_XDECREF(data);
    return address;
}

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
    for (int k = 0; k < l->n_sizes; ++k)
        if (size_now(&l->sizes[k], frame->sizes) > l->reach)
            return 0;
    int64_t current = number_from(l->current_device);
    return current == -1 && PyErr_Occurred() ? -1 : current == l->device;
}

static PyObject *new_array(const dg_launcher *l, PyObject *descr, int ndim, const dg_size *shape, const int64_t *sizes)
{
    PyObject *dims = PyTuple_New(ndim);
    for (int k = 0; dims && k < ndim; ++k) {
        PyObject *size = PyLong_FromLongLong(size_now(&shape[k], sizes));
        if (!size)
            Py_CLEAR(dims);
        else
            PyTuple_SET_ITEM(dims, k, size);
    }
    PyObject *made = dims ? PyObject_Vectorcall(l->array_type, (PyObject *[]){dims, descr}, 2, NULL) : NULL;
    Py_XDECREF(dims);
    return made;
}

static PyObject *sizes_of(const dg_launcher *l, const dg_frame *frame)
{
    PyObject *sizes = PyTuple_New(l->n_symbols);
    for (int k = 0; sizes && k < l->n_symbols; ++k) {
        PyObject *size = PyLong_FromLongLong(frame->sizes[k]);
        if (!size)
            Py_CLEAR(sizes);
        else
            PyTuple_SET_ITEM(sizes, k, size);
    }
    return sizes;
}

/* the inputs, the results, the workspace (or None) and the sizes, for a step that is Python's */
static int call_step(const launch *step, const dg_launcher *l, const dg_frame *frame, PyObject **outputs, PyObject *workspace)
{
    PyObject *inputs = PyTuple_New(l->n_inputs), *results = PyTuple_New(l->n_results), *sizes = sizes_of(l, frame);
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

/* the memory of INPUT, OUTPUT, TEMP, CONSTANT */
static uint64_t place_of(const parameter *p, const dg_frame *frame, char *const *addresses, const char *workspace)
{
    switch (p->kind) {
    case INPUT: return (uintptr_t)frame->inputs[p->position];
    case OUTPUT: return (uintptr_t)addresses[p->position];
    case TEMP: return (uintptr_t)workspace + (uint64_t)size_now(&p->offset, frame->sizes);
    default: return (uint64_t)p->offset.constant;
    }
}

static int start(const dg_launcher *l, int which, const dg_frame *frame, char *const *addresses, char *workspace, void *stream)
{
    const launch *step = &l->launches[which];
    int64_t n = size_now(&step->n, frame->sizes);
    if (n <= 0)
        return 0;
    uint64_t words[MAX_PARAMETERS];
    void *parameters[MAX_PARAMETERS + 1];
    for (int k = 0; k < step->n_parameters; ++k) {
        const parameter *p = &step->parameters[k];
        parameters[k] = &words[k];
        switch (p->kind) {
        case VALUE: parameters[k] = frame->inputs[p->position]; break;
        case SIZE: words[k] = (uint64_t)frame->sizes[p->position]; break;
        default: words[k] = place_of(p, frame, addresses, workspace);
        }
    }
    int64_t blocks = (n + step->per_block - 1) / step->per_block;
    if (blocks > l->most_blocks)
        blocks = l->most_blocks;
    int error = l->function(step->function, (unsigned)blocks, 1, 1, step->threads, 1, 1, 0, stream, parameters, NULL);
    return error ? refused(l, which, error) : 0;
}

/* -- products --------------------------------------------------------------------------------------------------------------- */

/* the Product of these sizes, or None, as a new reference: while Python looks for one, another thread may forget this one */
static PyObject *plan_of(product *p, const dg_launcher *l, const dg_frame *frame)
{
    int64_t wanted[DG_MAX_SYMBOLS];
    size_t nbytes = sizeof *wanted * (size_t)p->n_read;
    for (int k = 0; k < p->n_read; ++k)
        wanted[k] = frame->sizes[p->read[k]];
    for (int k = 0; k < KNOWN_PLANS && p->plans[k]; ++k)
        if (memcmp(p->sizes + k * p->n_read, wanted, nbytes) == 0)
            return Py_NewRef(p->plans[k]);
    PyObject *sizes = sizes_of(l, frame);
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
    p->next = (p->next + 1) % KNOWN_PLANS;
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
    const product *p = l->launches[which].product;
    char *operands[DG_OPERANDS];
    for (int k = 0; k < DG_OPERANDS; ++k) {
        const matrix *m = &p->operands[k];
        uint64_t begin = m->is_there ? place_of(&m->memory, frame, addresses, workspace) + (uint64_t)size_now(&m->begin, frame->sizes) : 0;
        operands[k] = (char *)(uintptr_t)begin;
    }
    int error = dg_product_run((dg_product *)plan, operands, own, stream);
    return error ? refused(l, which, error) : 0;
}

/* -- replays ---------------------------------------------------------------------------------------------------------------- */

/* all that the launches of a call depend on: the stream, sizes, addresses, numbers */
static PyObject *key_of(const dg_launcher *l, const dg_frame *frame, int64_t stream)
{
    enum { VALUE_WORDS = VALUE_BYTES / sizeof(uint64_t) };
    uint64_t words[1 + DG_MAX_SYMBOLS + VALUE_WORDS * DG_MAX_ARRAYS];
    int n = 0;
    words[n++] = (uint64_t)stream;
    for (int k = 0; k < l->n_read; ++k)
        words[n++] = (uint64_t)frame->sizes[l->read[k]];
    for (int k = 0; k < l->n_inputs; ++k) {
        if (!l->value_bytes[k]) {
            words[n++] = (uintptr_t)frame->inputs[k];
            continue;
        }
        memset(&words[n], 0, VALUE_BYTES);
        memcpy(&words[n], frame->inputs[k], l->value_bytes[k]);
        n += VALUE_WORDS;
    }
    return PyBytes_FromStringAndSize((const char *)words, (Py_ssize_t)sizeof *words * n);
}

/* [launch, result...] -> 1: it was launched, `outputs` are filled; -1: an exception is set, and nothing was launched */
static int launch_replay(const dg_launcher *l, PyObject *given, PyObject **outputs)
{
    if (!PyList_Check(given) || PyList_GET_SIZE(given) != l->n_results + 1) {
        PyErr_Format(PyExc_TypeError, "Launcher: replay gave %R, not [launch, result...] or None", given);
        return -1;
    }
    PyObject *launched = PyObject_CallNoArgs(PyList_GET_ITEM(given, 0));
    if (!launched)
        return -1;
    Py_DECREF(launched);
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

/* 1: `outputs` are filled; 0: nothing was launched; -1: nothing was launched, and an exception is set */
static int replayed(const dg_launcher *l, const dg_frame *frame, int64_t stream, PyObject **outputs)
{
    PyObject *key = key_of(l, frame, stream), *inputs = PyTuple_New(l->n_inputs);
    for (int k = 0; inputs && k < l->n_inputs; ++k)
        PyTuple_SET_ITEM(inputs, k, Py_NewRef(frame->input_objects[k]));
    PyObject *given = key && inputs ? PyObject_Vectorcall(l->replay, (PyObject *[]){key, inputs}, 2, NULL) : NULL;
    int done = given == Py_None ? 0 : given ? launch_replay(l, given, outputs) : -1;
    Py_XDECREF(given);
    Py_XDECREF(inputs);
    Py_XDECREF(key);
    return done < 0 ? put_up_with(l) : done;
}

/* Launch after launch, into new arrays. */
static int launch_all(const dg_launcher *l, const dg_frame *frame, int64_t stream, PyObject **outputs)
{
    char *addresses[DG_MAX_ARRAYS], *memory = NULL;
    PyObject *workspace = NULL, **plans = NULL;
    int64_t own = 0; /* behind the workspace: memory of the products */
    int made = 0, ok = 0;
    if (l->n_products && !(plans = plans_of(l, frame, &own)))
        return -1;
    for (; made < l->n_results; ++made) {
        const result *out = &l->results[made];
        outputs[made] = out->into >= 0 ? Py_NewRef(frame->input_objects[out->into])
                                       : new_array(l, out->descr, out->ndim, out->shape, frame->sizes);
        if (!outputs[made])
            goto done;
        addresses[made] = out->into >= 0 ? frame->inputs[out->into] : address_of(outputs[made]);
        if (!addresses[made] && PyErr_Occurred()) {
            ++made;
            goto done;
        }
    }
    int64_t nbytes = size_now(&l->workspace, frame->sizes);
    dg_size whole = {.constant = nbytes + (own ? own + WORKSPACE_ALIGNMENT - 1 : 0)};
    if (whole.constant > 0) {
        if (!(workspace = new_array(l, l->byte_type, 1, &whole, frame->sizes)) || !(memory = address_of(workspace)))
            goto done;
    }
    char *behind = (char *)(((uintptr_t)memory + (uint64_t)nbytes + WORKSPACE_ALIGNMENT - 1) & ~(uintptr_t)(WORKSPACE_ALIGNMENT - 1));
    for (int k = 0; k < l->n_launches; ++k) {
        const launch *step = &l->launches[k];
        int started;
        if (step->product && plans[k] != Py_None)
            started = multiply(l, k, plans[k], frame, addresses, memory, behind, (void *)(intptr_t)stream);
        else if (step->call)
            started = call_step(step, l, frame, outputs, workspace);
        else
            started = start(l, k, frame, addresses, memory, (void *)(intptr_t)stream);
        if (started < 0)
            goto done;
    }
    ok = 1;
done:
    drop_plans(l, plans);
    Py_XDECREF(workspace); /* the pool hands it out again to work that comes later on this stream */
    while (!ok && made > 0)
        Py_CLEAR(outputs[--made]);
    return ok ? 1 : -1;
}

int dg_launcher_run(PyObject *launcher, dg_frame *frame, PyObject **outputs)
{
    const dg_launcher *l = (const dg_launcher *)launcher;
    if (!l->ready)
        return 0;
    int may = serves(l, frame);
    if (may <= 0)
        return may;
    int64_t stream = number_from(l->current_stream);
    if (stream == -1 && PyErr_Occurred())
        return -1;
    dg_raised raised;
    int done = l->replay ? replayed(l, frame, stream, outputs) : 0, late = 0;
    if (done < 0) {
        if (!(late = dg_take_raised(&raised)))
            return -1;
        done = 0; /* of a signal's handler: it waits for the end of the call, as in call_program */
    }
    if (!done)
        done = launch_all(l, frame, stream, outputs);
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

int dg_launcher_start(void)
{
    if (!a_data && !(a_data = PyUnicode_InternFromString("data")))
        return -1;
    if (!a_ptr && !(a_ptr = PyUnicode_InternFromString("ptr")))
        return -1;
    return 0;
}
