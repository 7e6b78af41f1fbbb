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

/* b is not 0 */
static int floor_div(int64_t a, int64_t b, int64_t *out)
{
    if (b == -1)
        return !__builtin_sub_overflow((int64_t)0, a, out);
    *out = a / b - ((a % b != 0) & ((a < 0) != (b < 0)));
    return 1;
}

/* *a = *a op b; 0: it does not fit into 64 bits */
static int apply(int64_t op, int64_t *a, int64_t b)
{
    switch (op) {
    case ADD: return !__builtin_add_overflow(*a, b, a);
    case SUB: return !__builtin_sub_overflow(*a, b, a);
    case MUL: return !__builtin_mul_overflow(*a, b, a);
    case FLOORDIV:
        if (b == 0)
            *a = 0;
        return b == 0 || floor_div(*a, b, a);
    case MOD: {
        int64_t rest = b == 0 || b == -1 ? 0 : *a % b;
        *a = rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
        return 1;
    }
    case MIN: *a = *a < b ? *a : b; return 1;
    default: *a = *a > b ? *a : b; return 1;
    }
}

int dg_size_run_program(const dg_size *size, const int64_t *symbols, int64_t *out)
{
    int64_t stack[STACK + 1];
    int top = -1;
    for (int k = 0; k < size->length; ++k) {
        int64_t operand = size->code[2 * k + 1];
        switch (size->code[2 * k]) {
        case PUSH: stack[++top] = operand; continue;
        case SYMBOL: stack[++top] = symbols[operand]; continue;
        default: break;
        }
        --top;
        if (!apply(size->code[2 * k], &stack[top], stack[top + 1]))
            return 0;
    }
    *out = stack[0];
    return 1;
}

/* |x| as 64 bits hold it */
static int64_t magnitude(int64_t x) { return x == INT64_MIN ? INT64_MAX : x < 0 ? -x : x; }

int dg_size_most(const dg_size *size, int64_t bound, int64_t *out)
{
    int64_t stack[STACK + 1] = {magnitude(size->constant)};
    int top = size->length ? -1 : 0;
    for (int k = 0; k < size->length; ++k) {
        int64_t op = size->code[2 * k];
        if (op == PUSH || op == SYMBOL) {
            stack[++top] = op == PUSH ? magnitude(size->code[2 * k + 1]) : bound;
            continue;
        }
        --top;
        /* no quotient is above its dividend, no remainder above either operand, no other result above the sum or product of both */
        if (op != FLOORDIV && op != MOD && !apply(op == MUL ? MUL : ADD, &stack[top], stack[top + 1]))
            return 0;
    }
    *out = stack[0];
    return 1;
}

int dg_sizes_parse(PyObject *programs, int n_symbols, dg_sizes *out)
{
    Py_ssize_t n = programs ? PyTuple_GET_SIZE(programs) : 0;
    if (!(out->all = PyMem_Calloc((size_t)n + 1, sizeof *out->all))) {
        PyErr_NoMemory();
        return -1;
    }
    for (; out->n < n; ++out->n)
        if (dg_size_parse(PyTuple_GET_ITEM(programs, out->n), n_symbols, &out->all[out->n]) < 0)
            return -1;
    return 0;
}

void dg_sizes_clear(dg_sizes *sizes)
{
    for (int k = 0; k < sizes->n; ++k)
        dg_size_clear(&sizes->all[k]);
    PyMem_Free(sizes->all);
    *sizes = (dg_sizes){0};
}

int dg_size_fits(const dg_size *size, const int64_t *symbols, int64_t bound)
{
    int64_t value;
    return symbols ? dg_size_run(size, symbols, &value) : dg_size_most(size, bound, &value);
}

int dg_sizes_fit(const dg_sizes *sizes, const int64_t *symbols, int64_t bound)
{
    int fit = 1;
    for (int k = 0; fit && k < sizes->n; ++k)
        fit = dg_size_fits(&sizes->all[k], symbols, bound);
    return fit;
}

int64_t dg_safe_bound(int (*fits)(const void *of, int64_t bound), const void *of)
{
    int64_t bound = (int64_t)1 << 62;
    while (bound && !fits(of, bound))
        bound >>= 1;
    return bound;
}
