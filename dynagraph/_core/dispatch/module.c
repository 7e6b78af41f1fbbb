/* The extension module dynagraph._core._dispatch. */
#define DG_IMPORTS_NUMPY
#include "core.h"
#include "../norms/call.h"
#include "../products/attention_call.h"
#include "../products/convolve.h"
#include "../products/multiply.h"
#include "../products/pool.h"
#include "../products/rows.h"

static PyObject *py_bind(PyObject *module, PyObject *args)
{
    PyObject *function, *positional, *keywords = Py_None;
    if (!PyArg_ParseTuple(args, "O!O!|O:bind", &PyFunction_Type, &function, &PyTuple_Type, &positional, &keywords))
        return NULL;
    if (keywords != Py_None && !PyDict_Check(keywords))
        return PyErr_Format(PyExc_TypeError, "bind: keywords must be a dict or None, got %s", Py_TYPE(keywords)->tp_name);
    Py_ssize_t n_args = PyTuple_GET_SIZE(positional), n_keywords = keywords == Py_None ? 0 : PyDict_GET_SIZE(keywords);
    PyObject **values = PyMem_Calloc((size_t)(n_args + n_keywords) + 1, sizeof *values);
    PyObject *names = PyTuple_New(n_keywords), *bound = NULL;
    if (values && names) {
        Py_ssize_t position = 0, k = 0;
        PyObject *key, *value;
        for (Py_ssize_t j = 0; j < n_args; ++j)
            values[j] = PyTuple_GET_ITEM(positional, j);
        while (n_keywords && PyDict_Next(keywords, &position, &key, &value)) {
            if (!PyUnicode_Check(key)) {
                PyErr_Format(PyExc_TypeError, "bind: keywords must be strings, got %R", key);
                goto done;
            }
            values[n_args + k] = value;
            PyTuple_SET_ITEM(names, k++, Py_NewRef(key));
        }
        bound = dg_bind(function, values, n_args, n_keywords ? names : NULL);
        if (!bound && !PyErr_Occurred())
            PyErr_Format(PyExc_TypeError, "%U() does not take these arguments", ((PyFunctionObject *)function)->func_qualname);
    } else {
        PyErr_NoMemory();
    }
done:
    PyMem_Free(values);
    Py_XDECREF(names);
    return bound;
}

static PyObject *py_set_threads(PyObject *module, PyObject *value)
{
    long n = PyLong_AsLong(value);
    if (n == -1 && PyErr_Occurred())
        return NULL;
    if (n < 0)
        return PyErr_Format(PyExc_ValueError, "set_threads: expected at least 1, or 0 for all processors, got %ld", n);
    dg_threads_set((int)(n > 1000 ? 1000 : n));
    Py_RETURN_NONE;
}

static PyObject *py_get_threads(PyObject *module, PyObject *ignored) { return PyLong_FromLong(dg_the_runtime.n_threads); }

static PyObject *py_set_blas(PyObject *module, PyObject *args)
{
    PyObject *functions;
    int ilp64;
    if (!PyArg_ParseTuple(args, "O!p:set_blas", &PyDict_Type, &functions, &ilp64))
        return NULL;
    const struct { const char *name; void **slot; } routines[] = {
        {"sgemm", &dg_the_runtime.sgemm}, {"dgemm", &dg_the_runtime.dgemm}, {"cgemm", &dg_the_runtime.cgemm},
        {"zgemm", &dg_the_runtime.zgemm}, {"sgemv", &dg_the_runtime.sgemv}, {"dgemv", &dg_the_runtime.dgemv},
        {"cgemv", &dg_the_runtime.cgemv}, {"zgemv", &dg_the_runtime.zgemv}, {"sdot", &dg_the_runtime.sdot},
        {"ddot", &dg_the_runtime.ddot}, {"cdotu_sub", &dg_the_runtime.cdotu_sub}, {"zdotu_sub", &dg_the_runtime.zdotu_sub},
        {"ssyrk", &dg_the_runtime.ssyrk}, {"dsyrk", &dg_the_runtime.dsyrk}, {"csyrk", &dg_the_runtime.csyrk},
        {"zsyrk", &dg_the_runtime.zsyrk},
    };
    for (size_t k = 0; k < sizeof routines / sizeof *routines; ++k) {
        PyObject *address = PyDict_GetItemString(functions, routines[k].name);
        *routines[k].slot = address ? PyLong_AsVoidPtr(address) : NULL;
        if (PyErr_Occurred())
            return NULL;
    }
    dg_the_runtime.ilp64 = ilp64;
    Py_RETURN_NONE;
}

static PyObject *py_pool_stats(PyObject *module, PyObject *ignored) { return dg_pool_stats(); }

static PyObject *size_argument(PyObject *value, void (*apply)(size_t))
{
    size_t size = PyLong_AsSize_t(value);
    if (PyErr_Occurred())
        return NULL;
    apply(size);
    Py_RETURN_NONE;
}

static PyObject *py_pool_trim(PyObject *module, PyObject *value) { return size_argument(value, dg_pool_trim); }
static PyObject *py_pool_set_limit(PyObject *module, PyObject *value) { return size_argument(value, dg_pool_set_limit); }

static PyObject *py_set_errstate(PyObject *module, PyObject *args)
{
    PyObject *variable, *harmless;
    if (!PyArg_ParseTuple(args, "OO:set_errstate", &variable, &harmless))
        return NULL;
    if ((variable != Py_None && !PyContextVar_CheckExact(variable)) || !PyCallable_Check(harmless))
        return PyErr_Format(PyExc_TypeError, "set_errstate: expected a ContextVar or None, and a callable, got %R and %R",
                            variable, harmless);
    dg_set_errstate(variable, harmless);
    Py_RETURN_NONE;
}

static PyObject *py_set_full_tracebacks(PyObject *module, PyObject *value)
{
    int full = PyObject_IsTrue(value);
    if (full < 0)
        return NULL;
    dg_full_tracebacks = full;
    Py_RETURN_NONE;
}

static PyObject *py_type_version(PyObject *module, PyObject *type)
{
    if (!PyType_Check(type))
        return PyErr_Format(PyExc_TypeError, "type_version: expected a class, got %R", type);
    return PyLong_FromUnsignedLong(dg_type_version((PyTypeObject *)type));
}

static PyObject *py_set_of_signal(PyObject *module, PyObject *function)
{
    if (dg_set_of_signal(function) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *py_set_reducer(PyObject *module, PyObject *args)
{
    PyObject *function, *carrier;
    if (!PyArg_ParseTuple(args, "OO:set_reducer", &function, &carrier))
        return NULL;
    dg_set_reducer(function, carrier);
    Py_RETURN_NONE;
}

static PyObject *py_set_monitoring_tools(PyObject *module, PyObject *address)
{
    void *tools = PyLong_AsVoidPtr(address);
    if (PyErr_Occurred())
        return NULL;
    dg_monitoring_tools = tools;
    Py_RETURN_NONE;
}

static PyObject *py_set_pending_signals(PyObject *module, PyObject *address)
{
    void *flag = PyLong_AsVoidPtr(address);
    if (PyErr_Occurred())
        return NULL;
    dg_set_pending_signals(flag);
    Py_RETURN_NONE;
}

static PyObject *py_note_compiling(PyObject *module, PyObject *value)
{
    double seconds = PyFloat_AsDouble(value);
    if (PyErr_Occurred())
        return NULL;
    dg_note_compiling(1e9 * seconds);
    Py_RETURN_NONE;
}

static PyObject *py_set_clock(PyObject *module, PyObject *clock)
{
    if (dg_set_clock(clock) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"bind", py_bind, METH_VARARGS, "bind(function, args, kwargs=None) -> bound parameters in order of co_varnames"},
    {"set_threads", py_set_threads, METH_O, "set_threads(n): 0 for as many as this process has processors"},
    {"get_threads", py_get_threads, METH_NOARGS, "get_threads() -> n"},
    {"set_blas", py_set_blas, METH_VARARGS, "set_blas({'sgemm': address, ...}, ilp64)"},
    {"pool_stats", py_pool_stats, METH_NOARGS, "pool_stats() -> bytes kept, in use and allowed; blocks taken and recycled"},
    {"new_array", dg_py_new_array, METH_VARARGS, "new_array(shape, dtype): an array without values, in recycled memory where it is large"},
    {"new_zeros", dg_py_new_zeros, METH_VARARGS, "new_zeros(shape, dtype): an array of zeros, of which memory that the system gives is not touched"},
    {"pool_trim", py_pool_trim, METH_O, "pool_trim(n_bytes): give memory back to the system until at most n_bytes are kept"},
    {"pool_set_limit", py_pool_set_limit, METH_O, "pool_set_limit(n_bytes)"},
    {"set_errstate", py_set_errstate, METH_VARARGS,
     "set_errstate(variable, harmless): NumPy's ContextVar of its error state or None, and what tells whether it only warns;\n"
     "before the first call no \"errstate\" guard holds"},
    {"set_monitoring_tools", py_set_monitoring_tools, METH_O,
     "set_monitoring_tools(address): where the names of sys.monitoring's tools stand (_frame_hook.monitoring_tools())"},
    {"set_pending_signals", py_set_pending_signals, METH_O,
     "set_pending_signals(address): the flag by which native code sees that signals wait (_frame_hook.pending_signals()); 0: none"},
    {"type_version", py_type_version, METH_O,
     "type_version(type): a number that is another one when the type or a base has been modified; 0: it can have none"},
    {"set_reducer", py_set_reducer, METH_VARARGS,
     "set_reducer(reducer, carrier): what gives, for a CompiledFunction, what its __reduce__ shall give (before, its name), and\n"
     "its attribute _carrier"},
    {"set_of_signal", py_set_of_signal, METH_O,
     "set_of_signal(function): what tells of an exception whether a signal's handler raised it; before, none did"},
    {"set_clock", py_set_clock, METH_O, "set_clock(function or None): what gives the seconds by which calls are timed, for tests"},
    {"note_compiling", py_note_compiling, METH_O,
     "note_compiling(seconds): so much of the time of the calls under way in this thread went into compiling"},
    {"by_size", dg_by_size, METH_VARARGS,
     "by_size(small, large, size, module): a function that calls `large` where one of its arguments is an array of so many elements\n"
     "and the others are NumPy's arrays or numbers, else `small`"},
    {"any_large", dg_any_large, METH_VARARGS,
     "any_large(arrays, size): whether one of these has so many elements, and all are NumPy's arrays or numbers"},
    {"run_each", dg_run_each, METH_VARARGS,
     "run_each(entries, rows, shared) -> the rows, tuples of arrays, that are left: those that none of the entries serves, or all"},
    {"step_rows", dg_step_rows, METH_VARARGS,
     "step_rows(params, states, names, counters) -> groups of plain parameters (dtype, counters' values, their arrays, rows), the others"},
    {"fill_numbers", dg_fill_numbers, METH_VARARGS,
     "fill_numbers(rows, values): value k becomes the number in array k of each row"},
    {"recurrent_forward", (PyCFunction)(void (*)(void))dg_recurrent_forward, METH_VARARGS | METH_KEYWORDS,
     "recurrent_forward(kind, reverse, x, h0, c0, weights, bias, bias_of_state, projection, counts, out=None) -> arrays: a recurrent\n"
     "layer over all steps"},
    {"recurrent_backward", (PyCFunction)(void (*)(void))dg_recurrent_backward, METH_VARARGS | METH_KEYWORDS,
     "recurrent_backward(kind, reverse, grad_outputs, grad_cells, outputs, cells, gates, h0, c0, weights, projection, counts, out=None)\n"
     "-> arrays: its gradients"},
    {"recurrent_before", dg_recurrent_before, METH_VARARGS,
     "recurrent_before(reverse, outputs, h0, counts) -> (array,): the states before each step"},
    {"recurrent_cell", (PyCFunction)(void (*)(void))dg_recurrent_cell, METH_VARARGS | METH_KEYWORDS,
     "recurrent_cell(kind, x, of_state, before, out=None) -> arrays: one step, of both parts in the gates"},
    {"recurrent_cell_backward", (PyCFunction)(void (*)(void))dg_recurrent_cell_backward, METH_VARARGS | METH_KEYWORDS,
     "recurrent_cell_backward(kind, grad_h, grad_c, cells, gates, before, out=None) -> arrays: its gradients"},
    {"set_tensor_calls", dg_set_tensor_calls, METH_VARARGS,
     "set_tensor_calls(Tensor, Storage, Node, Primitive, numbers, functions) -> apply, made, wrap of dynagraph.torch"},
    {"observe_tensor_calls", dg_observe_tensor_calls, METH_O,
     "observe_tensor_calls(function or None) -> the one before: called with each operation on tensors after it has run"},
    {"set_tensor_backward", dg_set_tensor_backward, METH_O,
     "set_tensor_backward(functions) -> what runs backward of dynagraph.torch, after set_tensor_calls"},
    {"multiply", dg_multiply, METH_VARARGS,
     "multiply(a, b, out, isa=None): the products of matrices of one float dtype, on the thread pool; `out` is contiguous; isa: one of\n"
     "product_kernels()"},
    {"attention", dg_py_attention, METH_VARARGS,
     "attention(q, k, v, mask, other_mask, seed, offset, out, sums, scale, causal, dropout): scaled dot products, into `out` and `sums`"},
    {"attention_gradient", dg_py_attention_gradient, METH_VARARGS,
     "attention_gradient(q, k, v, mask, other_mask, seed, offset, out, sums, g, dq, dk, dv, by_mask, by_other_mask, scale, causal,\n"
     "dropout), into those of the last five arrays that are not None"},
    {"own_matmul", dg_own_matmul, METH_VARARGS,
     "own_matmul(otherwise, module): a function that multiplies NumPy's float matrices as multiply does, and calls `otherwise` with\n"
     "all other operands"},
    {"own_where", dg_own_where, METH_VARARGS,
     "own_where(otherwise, module): a function that chooses as np.where does, from NumPy's contiguous arrays and numbers, and calls\n"
     "`otherwise` with all other operands"},
    {"use_own_products", dg_use_own_products, METH_O, "use_own_products(flag): whether what own_matmul made does so"},
    {"product_kernels", dg_product_kernels, METH_NOARGS,
     "product_kernels() -> (instruction set, rows, columns of a float32 tile) of each that this processor has, the best one first"},
    {"convolve", dg_convolve_arrays, METH_VARARGS,
     "convolve(which, a, b, bias, groups, stride, dilation, padding, sizes, isa=None): a convolution (0), or its gradient by the images\n"
     "(1) or the filters (2), of float32 or float64; sizes: the last ones of the result"},
    {"max_pool", dg_max_pool, METH_VARARGS,
     "max_pool(x, kernel, stride, padding, dilation, places) -> the greatest elements of windows of the last dimensions, and where they\n"
     "stood; of float32 or float64"},
    {"avg_pool", dg_avg_pool, METH_VARARGS,
     "avg_pool(x, kernel, stride, padding, last, whole, divisor, back) -> the means of windows of the last dimensions, or the way back;\n"
     "last: the last sizes of the result; divisor: 0, or what sums are divided by"},
    {"crc32", dg_crc32, METH_VARARGS, "crc32(data, value=0): the checksum of zip files, as zlib.crc32 gives it"},
    {"read_crc32", dg_read_crc32, METH_VARARGS,
     "read_crc32(descriptor, offset, buffer) -> (bytes read, their checksum): fills the buffer from a place in a file"},
    {"write_crc32", dg_write_crc32, METH_VARARGS, "write_crc32(descriptor, data): write all of it; its checksum"},
    {"put_places", dg_put_places, METH_VARARGS,
     "put_places(g, places, sizes): g's elements added up at places among the last dimensions, which are of these sizes"},
    {"put_rows", dg_put_rows, METH_VARARGS,
     "put_rows(g, places, rows): rows of g added up at places of a table of so many rows"},
    {"adaptive_means", dg_adaptive_means, METH_VARARGS,
     "adaptive_means(x, size, inner, count): means of `count` windows along the middle axis of (planes, size, inner)"},
    {"adaptive_means_back", dg_adaptive_means_back, METH_VARARGS,
     "adaptive_means_back(g, size, inner, count): the gradient of adaptive_means"},
    {"adaptive_maxima", dg_adaptive_maxima, METH_VARARGS,
     "adaptive_maxima(x, sizes, counts): the greatest of `counts` windows in boxes of three sizes, and where in its box each stood"},
    {"normalize", dg_normalize, METH_VARARGS,
     "normalize(x, weight, bias, mean, variance, sizes, how, eps, baseline=False) -> x normalized, its means and its variances"},
    {"normalize_back", dg_normalize_back, METH_VARARGS,
     "normalize_back(g, x, weight, mean, variance, sizes, how, eps, needs, baseline=False) -> the gradients by x, weight and bias"},
    {"set_full_tracebacks", py_set_full_tracebacks, METH_O,
     "set_full_tracebacks(flag): whether exceptions that leave a CompiledFunction keep the frames of dynagraph's own modules"},
    {0},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "dynagraph._core._dispatch",
    "The hot path: guard programs, plans, the memory and thread pools.  See dynagraph/_core/README.md.", -1, methods,
};

PyMODINIT_FUNC PyInit__dispatch(void)
{
    import_array();
    PyTypeObject *types[] = {&dg_EntryType, &dg_CompiledFunctionType, &dg_NativePlanType, &dg_PythonPlanType,
                             &dg_LauncherType, &dg_ProductType, &dg_TailType, &dg_LibraryType, &dg_NativeLoopType,
                             &dg_MappingType, &dg_RestType, &dg_HostLoopType, &dg_GradModesType};
    PyObject *module = PyModule_Create(&definition);
    if (!module)
        return NULL;
    for (size_t k = 0; k < sizeof types / sizeof *types; ++k)
        if (PyModule_AddType(module, types[k]) < 0)
            goto fail;
    dg_GuardError = PyErr_NewExceptionWithDoc("dynagraph._core._dispatch.GuardError",
                                              "An entry was run on values that its guards refuse.", PyExc_RuntimeError, NULL);
    if (dg_rests_ready() < 0 || dg_calls_ready() < 0 || dg_boxes_ready() < 0 || dg_lists_ready() < 0)
        goto fail;
    dg_plainly = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type);
    if (!dg_plainly || PyModule_AddObjectRef(module, "PLAINLY", dg_plainly) < 0)
        goto fail;
    PyObject *tails = dg_tails_new();
    int added = tails ? PyModule_AddObjectRef(module, "tails", tails) : -1;
    Py_XDECREF(tails);
    if (added < 0 || !dg_GuardError || PyModule_AddObjectRef(module, "GuardError", dg_GuardError) < 0 || dg_pool_start() < 0 ||
        dg_threads_start() != 0 || dg_device_arrays_start() < 0 || dg_crc32_ready() < 0)
        goto fail;
    if (PyModule_AddIntConstant(module, "MAX_ARRAYS", DG_MAX_ARRAYS) < 0 ||
        PyModule_AddIntConstant(module, "MAX_REGISTERS", DG_MAX_REGISTERS) < 0 ||
        PyModule_AddIntConstant(module, "MAX_SYMBOLS", DG_MAX_SYMBOLS) < 0)
        goto fail;
    return module;
fail:
    Py_DECREF(module);
    return NULL;
}
