/* The prologue of a plan: calls that are made before the program runs, which may give it inputs. */
#include "plans.h"

/* a recipe that keeps what it gives while the plan runs */
static int is_memo(PyObject *recipe)
{
    PyObject *name = PyTuple_Check(recipe) && PyTuple_GET_SIZE(recipe) ? PyTuple_GET_ITEM(recipe, 0) : NULL;
    return name && PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, "memo") == 0;
}

/* what a step gives the program */
static int parse_input(dg_output *input, PyObject *row, const dg_plan *plan)
{
    PyObject *dtype = PyTuple_GET_ITEM(row, 2), *shape = PyTuple_GET_ITEM(row, 3);
    input->into = -1;
    input->scalar = PyObject_IsTrue(PyTuple_GET_ITEM(row, 4));
    if (PyTuple_Check(shape))
        return input->scalar < 0 ? -1 : dg_output_parse(input, dtype, shape, plan->n_inputs, plan->n_symbols);
    PyErr_Format(PyExc_TypeError, "plan: the shape of an input is a tuple, not %R", shape);
    return -1;
}

/* rows (memo,) or (memo, slot, dtype, shape, scalar) */
int dg_prologue_parse(dg_plan *plan, PyObject *rows)
{
    Py_ssize_t n = rows ? PyTuple_GET_SIZE(rows) : 0;
    if (n && !(plan->prologue = PyMem_Calloc((size_t)n, sizeof *plan->prologue)))
        return -1;
    for (Py_ssize_t k = 0; k < n; ++k) {
        dg_step *s = &plan->prologue[k];
        PyObject *row = PyTuple_GET_ITEM(rows, k);
        Py_ssize_t length = PyTuple_Check(row) ? PyTuple_GET_SIZE(row) : 0;
        s->slot = -1;
        plan->n_steps = (int)k + 1;
        if ((length != 1 && length != 5) || !is_memo(PyTuple_GET_ITEM(row, 0))) {
            PyErr_Format(PyExc_TypeError, "plan: a step is (memo,) or (memo, slot, dtype, shape, scalar), got %R", row);
            return -1;
        }
        if (!(s->recipe = dg_recipe_new(PyTuple_GET_ITEM(row, 0), 0, plan->n_symbols, &plan->n_memo)))
            return -1;
        if (length == 1)
            continue;
        long slot = PyLong_AsLong(PyTuple_GET_ITEM(row, 1));
        if (slot < 0 || slot >= plan->n_inputs || plan->drawn[slot]) {
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_ValueError, "plan: a step gives input %ld of %d", slot, plan->n_inputs);
            return -1;
        }
        if (parse_input(&s->input, row, plan) < 0)
            return -1;
        s->slot = (int)slot;
        plan->drawn[slot] = 1;
    }
    return 0;
}

/* what a step gave becomes an input of the program; 0: it is not what the program takes */
static int bind_input(const dg_step *s, PyObject *given, dg_frame *frame)
{
    int type = s->input.descr->type_num;
    frame->input_objects[s->slot] = given;
    if (s->input.scalar) {
        frame->inputs[s->slot] = frame->scalars[s->slot];
        if (PyFloat_CheckExact(given)) {
            double number = PyFloat_AS_DOUBLE(given);
            memcpy(frame->scalars[s->slot], &number, sizeof number);
            return type == NPY_DOUBLE;
        }
        if (!PyArray_IsScalar(given, Generic))
            return 0;
        PyArray_Descr *descr = PyArray_DescrFromScalar(given);
        int fits = descr && descr->type_num == type;
        Py_XDECREF(descr);
        return fits && dg_scalar_value(given, frame->scalars[s->slot]);
    }
    PyArrayObject *array = (PyArrayObject *)given;
    if (!PyArray_CheckExact(given) || PyArray_TYPE(array) != type || !PyArray_IS_C_CONTIGUOUS(array) || !PyArray_ISBEHAVED(array))
        return 0;
    frame->inputs[s->slot] = PyArray_DATA(array);
    return dg_output_is_of_shape(&s->input, array, frame->sizes);
}

int dg_prologue_run(dg_plan *plan, dg_frame *frame)
{
    dg_results results = {frame, NULL};
    for (int k = 0; k < plan->n_steps; ++k) {
        const dg_step *s = &plan->prologue[k];
        PyObject *given = dg_recipe_build(s->recipe, &results);
        if (!given)
            return -1;
        int fits = s->slot < 0 || bind_input(s, given, frame);
        if (!fits)
            PyErr_Format(PyExc_TypeError, "a step before the program gave %R, which is not what the program takes", given);
        Py_DECREF(given); /* the memo holds it */
        if (!fits)
            return -1;
    }
    return 0;
}
