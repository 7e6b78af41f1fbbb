/* Programs over symbolic sizes: an int, or a tuple in postfix form. */
#include "core.h"

enum { PUSH, SYMBOL, ADD, SUB, MUL, FLOORDIV, MOD, MIN, MAX, STACK = 32 };

static const struct { const char *name; int op; } OPERATORS[] = {
    {"+", ADD}, {"-", SUB}, {"*", MUL}, {"//", FLOORDIV}, {"%", MOD}, {"min", MIN}, {"max", MAX},
};

static int parse_item(PyObject *item, int n_symbols, int64_t *op, int64_t *operand, int *depth)
{
    if (PyLong_Check(item)) {
        *op = PUSH;
        *operand = PyLong_AsLongLong(item);
        ++*depth;
        return *operand == -1 && PyErr_Occurred() ? -1 : 0;
    }
    if (PyTuple_Check(item) && PyTuple_GET_SIZE(item) == 2 && PyUnicode_Check(PyTuple_GET_ITEM(item, 0)) &&
        PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(item, 0), "s") == 0) {
        *op = SYMBOL;
        *operand = PyLong_AsLongLong(PyTuple_GET_ITEM(item, 1));
        ++*depth;
        if (PyErr_Occurred())
            return -1;
        if (*operand < 0 || *operand >= n_symbols) {
            PyErr_Format(PyExc_ValueError, "size program: symbol %lld is not one of the %d", (long long)*operand, n_symbols);
            return -1;
        }
        return 0;
    }
    if (PyUnicode_Check(item)) {
        for (size_t k = 0; k < sizeof OPERATORS / sizeof *OPERATORS; ++k)
            if (PyUnicode_CompareWithASCIIString(item, OPERATORS[k].name) == 0) {
                *op = OPERATORS[k].op;
                *operand = 0;
                if (--*depth < 1) {
                    PyErr_Format(PyExc_ValueError, "size program: %R has too few operands", item);
                    return -1;
                }
                return 0;
            }
    }
    PyErr_Format(PyExc_ValueError, "size program: %R is neither an int, a symbol nor an operator", item);
    return -1;
}

int dg_size_parse(PyObject *program, int n_symbols, dg_size *out)
{
    *out = (dg_size){0};
    if (PyLong_Check(program)) {
        out->constant = PyLong_AsLongLong(program);
        return out->constant == -1 && PyErr_Occurred() ? -1 : 0;
    }
    if (!PyTuple_Check(program) || PyTuple_GET_SIZE(program) == 0) {
        PyErr_Format(PyExc_ValueError, "size program: expected an int or a tuple in postfix form, got %R", program);
        return -1;
    }
    Py_ssize_t length = PyTuple_GET_SIZE(program);
    out->code = PyMem_Calloc((size_t)length * 2, sizeof(int64_t));
    if (!out->code) {
        PyErr_NoMemory();
        return -1;
    }
    int depth = 0;
    for (Py_ssize_t k = 0; k < length; ++k) {
        if (parse_item(PyTuple_GET_ITEM(program, k), n_symbols, &out->code[2 * k], &out->code[2 * k + 1], &depth) < 0)
            goto fail;
        if (depth > STACK) {
            PyErr_SetString(PyExc_ValueError, "size program: nested too deeply");
            goto fail;
        }
    }
    if (depth != 1) {
        PyErr_Format(PyExc_ValueError, "size program: leaves %d values, not one", depth);
        goto fail;
    }
    out->length = (int)length;
    return 0;
fail:
    dg_size_clear(out);
    return -1;
}

void dg_size_clear(dg_size *size)
{
    PyMem_Free(size->code);
    *size = (dg_size){0};
}

int dg_size_is_bound(const dg_size *size, const unsigned char *bound)
{
    for (int k = 0; k < size->length; ++k)
        if (size->code[2 * k] == SYMBOL && !bound[size->code[2 * k + 1]])
            return 0;
    return 1;
}

/* Sums and products wrap around, as unsigned ones do: no size of an array gets near. */
#define WRAPPING(a, op, b) ((int64_t)((uint64_t)(a)op(uint64_t)(b)))

static int64_t floor_div(int64_t a, int64_t b)
{
    if (b == 0)
        return 0;
    if (b == -1)
        return WRAPPING(0, -, a);
    int64_t q = a / b;
    return q - ((a % b != 0) & ((a < 0) != (b < 0)));
}

int64_t dg_size_run(const dg_size *size, const int64_t *symbols)
{
    if (size->length == 0)
        return size->constant;
    int64_t stack[STACK + 1];
    int top = -1;
    for (int k = 0; k < size->length; ++k) {
        int64_t operand = size->code[2 * k + 1];
        switch (size->code[2 * k]) {
        case PUSH: stack[++top] = operand; continue;
        case SYMBOL: stack[++top] = symbols[operand]; continue;
        default: break;
        }
        int64_t b = stack[top--], a = stack[top];
        switch (size->code[2 * k]) {
        case ADD: stack[top] = WRAPPING(a, +, b); break;
        case SUB: stack[top] = WRAPPING(a, -, b); break;
        case MUL: stack[top] = WRAPPING(a, *, b); break;
        case FLOORDIV: stack[top] = floor_div(a, b); break;
        case MOD: stack[top] = b == 0 || b == -1 ? 0 : a - floor_div(a, b) * b; break;
        case MIN: stack[top] = a < b ? a : b; break;
        default: stack[top] = a > b ? a : b; break;
        }
    }
    return stack[0];
}
