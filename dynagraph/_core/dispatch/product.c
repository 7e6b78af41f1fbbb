/* Products of matrices by cuBLASLt: all of a product of known sizes that does not change between calls, packed beforehand.

   Its descriptors are made by Python (backends/cuda/cublas.py); here is what each call does.  The GIL is held from the moment the
   address of the bias is written into the descriptor until the library has read it: threads share products. */
#include "core.h"

enum { ALGORITHM_BYTES = 64, SCALAR_BYTES = 16, BIAS_POINTER = 8 /* CUBLASLT_MATMUL_DESC_BIAS_POINTER */ };

/* cublasLtMatmul */
typedef int (*matmul_function)(void *handle, void *operation, const void *alpha, const void *a, void *layout_a, const void *b,
                               void *layout_b, const void *beta, const void *c, void *layout_c, void *d, void *layout_d,
                               const void *algorithm, void *workspace, size_t workspace_bytes, void *stream);
/* cublasLtMatmulDescSetAttribute */
typedef int (*set_function)(void *operation, int attribute, const void *value, size_t bytes);

struct dg_product {
    PyObject_HEAD
    matmul_function matmul;
    set_function set;
    void *handle, *operation, *layouts[DG_BIAS]; /* of A, B, C, D */
    uint64_t algorithm[ALGORITHM_BYTES / sizeof(uint64_t)], alpha[SCALAR_BYTES / sizeof(uint64_t)], beta[SCALAR_BYTES / sizeof(uint64_t)];
    Py_ssize_t workspace; /* bytes */
    int n_turns;
    int64_t (*turns)[DG_BIAS]; /* the product is done in so many calls: where each one's matrices begin, in bytes */
    PyObject *keepalive;
};

static void product_dealloc(dg_product *p)
{
    PyMem_Free(p->turns);
    Py_XDECREF(p->keepalive);
    Py_TYPE(p)->tp_free(p);
}

static int address_from(PyObject *number, void *out)
{
    void *address = PyLong_AsVoidPtr(number);
    memcpy(out, &address, sizeof address);
    return PyErr_Occurred() ? -1 : 0;
}

static int parse_layouts(dg_product *p, PyObject *layouts)
{
    if (PyTuple_GET_SIZE(layouts) != DG_BIAS) {
        PyErr_Format(PyExc_ValueError, "Product: %zd layouts, not %d", PyTuple_GET_SIZE(layouts), DG_BIAS);
        return -1;
    }
    for (int k = 0; k < DG_BIAS; ++k)
        if (address_from(PyTuple_GET_ITEM(layouts, k), &p->layouts[k]) < 0)
            return -1;
    return 0;
}

static int parse_turns(dg_product *p, PyObject *turns)
{
    p->n_turns = (int)PyTuple_GET_SIZE(turns);
    if (!(p->turns = PyMem_Calloc((size_t)p->n_turns + 1, sizeof *p->turns))) {
        PyErr_NoMemory();
        return -1;
    }
    for (int k = 0; k < p->n_turns; ++k) {
        long long begins[DG_BIAS];
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(turns, k), "LLLL;a turn is (a, b, c, d)", &begins[0], &begins[1], &begins[2], &begins[3]))
            return -1;
        for (int j = 0; j < DG_BIAS; ++j)
            p->turns[k][j] = begins[j];
    }
    return 0;
}

static PyObject *product_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"matmul", "set_attribute", "handle", "operation", "layouts", "algorithm", "alpha", "beta", "workspace",
                            "turns", "keepalive", NULL};
    PyObject *matmul, *set, *handle, *operation, *layouts, *turns, *keepalive;
    Py_buffer algorithm, alpha, beta;
    Py_ssize_t workspace;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOOO!y*y*y*nO!O:Product", names, &matmul, &set, &handle, &operation, &PyTuple_Type,
                                     &layouts, &algorithm, &alpha, &beta, &workspace, &PyTuple_Type, &turns, &keepalive))
        return NULL;
    dg_product *p = NULL;
    if (algorithm.len != ALGORITHM_BYTES || alpha.len > SCALAR_BYTES || beta.len > SCALAR_BYTES || workspace < 0) {
        PyErr_Format(PyExc_ValueError, "Product: an algorithm of %zd bytes, factors of %zd and %zd, a workspace of %zd", algorithm.len,
                     alpha.len, beta.len, workspace);
        goto done;
    }
    if (!(p = (dg_product *)type->tp_alloc(type, 0)))
        goto done;
    p->keepalive = Py_NewRef(keepalive);
    p->workspace = workspace;
    memcpy(p->algorithm, algorithm.buf, ALGORITHM_BYTES);
    memcpy(p->alpha, alpha.buf, (size_t)alpha.len);
    memcpy(p->beta, beta.buf, (size_t)beta.len);
    if (address_from(matmul, &p->matmul) < 0 || address_from(set, &p->set) < 0 || address_from(handle, &p->handle) < 0 ||
        address_from(operation, &p->operation) < 0 || parse_layouts(p, layouts) < 0 || parse_turns(p, turns) < 0)
        Py_CLEAR(p);
done:
    PyBuffer_Release(&algorithm);
    PyBuffer_Release(&alpha);
    PyBuffer_Release(&beta);
    return (PyObject *)p;
}

int64_t dg_product_workspace(const dg_product *p) { return p->workspace; }

int dg_product_run(const dg_product *p, char *const *operands, void *workspace, void *stream)
{
    int status = operands[DG_BIAS] ? p->set(p->operation, BIAS_POINTER, &operands[DG_BIAS], sizeof operands[DG_BIAS]) : 0;
    for (int k = 0; k < p->n_turns && status == 0; ++k) {
        const int64_t *begin = p->turns[k];
        status = p->matmul(p->handle, p->operation, p->alpha, operands[0] + begin[0], p->layouts[0], operands[1] + begin[1],
                           p->layouts[1], p->beta, operands[2] + begin[2], p->layouts[2], operands[3] + begin[3], p->layouts[3],
                           p->algorithm, p->workspace ? workspace : NULL, (size_t)p->workspace, stream);
    }
    return status;
}

static PyObject *product_run(dg_product *p, PyObject *args)
{
    PyObject *given[DG_OPERANDS + 2];
    if (!PyArg_ParseTuple(args, "(OOOOO)OO:run", &given[0], &given[1], &given[2], &given[3], &given[4], &given[5], &given[6]))
        return NULL;
    char *addresses[DG_OPERANDS + 2];
    for (int k = 0; k < DG_OPERANDS + 2; ++k)
        if (address_from(given[k], &addresses[k]) < 0)
            return NULL;
    return PyLong_FromLong(dg_product_run(p, addresses, addresses[DG_OPERANDS], addresses[DG_OPERANDS + 1]));
}

static PyObject *get_workspace(dg_product *p, void *ignored) { return PyLong_FromSsize_t(p->workspace); }

static PyMethodDef methods[] = {
    {"run", (PyCFunction)product_run, METH_VARARGS,
     "run((a, b, c, d, bias), workspace, stream): start it; all are addresses, 0 where there is none.  Gives cuBLASLt's status."},
    {0},
};

static PyGetSetDef properties[] = {
    {"workspace", (getter)get_workspace, NULL, "The bytes of memory that it needs besides.", NULL},
    {0},
};

PyTypeObject dg_ProductType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "dynagraph._core._dispatch.Product",
    .tp_basicsize = sizeof(dg_product),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "A product of matrices of known sizes by cuBLASLt.",
    .tp_new = product_new,
    .tp_dealloc = (destructor)product_dealloc,
    .tp_methods = methods,
    .tp_getset = properties,
};
