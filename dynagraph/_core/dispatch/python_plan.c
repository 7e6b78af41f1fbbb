/* Python plans: calls of a callable, or of a launcher of the kernels that it would launch. */
#include "plans.h"
#include "sessions.h"

/* an item of a tuple; null: there is no tuple, or it is shorter */
static PyObject *at(PyObject *row, int k) { return row && k < PyTuple_GET_SIZE(row) ? PyTuple_GET_ITEM(row, k) : NULL; }

/* scalar, into, axes: or null */
static int parse_output(dg_output *out, PyObject *scalar, PyObject *into, PyObject *axes, int n_inputs)
{
    long slot = into ? PyLong_AsLong(into) : -1;
    if (PyErr_Occurred() || slot >= n_inputs) {
        PyErr_Format(PyExc_ValueError, "PythonPlan: an output into %R of %d inputs", into, n_inputs);
        return -1;
    }
    out->into = slot < 0 ? -1 : (int)slot;
    if (axes && !PyTuple_Check(axes)) {
        PyErr_Format(PyExc_TypeError, "PythonPlan: the axes of an output are a tuple, not %R", axes);
        return -1;
    }
    out->scalar = scalar ? PyObject_IsTrue(scalar) : 0;
    return out->scalar < 0 ? -1 : axes ? dg_output_parse_axes(out, axes) : 0;
}

PyObject *dg_python_plan_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"callable", "n_inputs", "result", "n_symbols", "n_outputs", "scalars", "repeatable",
                            "into", "n_checks", "may_bail_out", "prologue", "axes", "launcher", NULL};
    PyObject *callable, *result, *scalars = NULL, *into = NULL, *prologue = NULL, *axes = NULL, *launcher = Py_None;
    int n_inputs, n_symbols = 0, n_outputs = 256, repeatable = 0, n_checks = 0, may_bail_out = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OiO|iiO!pO!ipO!O!O:PythonPlan", names, &callable, &n_inputs, &result, &n_symbols,
                                     &n_outputs, &PyTuple_Type, &scalars, &repeatable, &PyTuple_Type, &into, &n_checks, &may_bail_out,
                                     &PyTuple_Type, &prologue, &PyTuple_Type, &axes, &launcher))
        return NULL;
    if (!PyCallable_Check(callable))
        return PyErr_Format(PyExc_TypeError, "PythonPlan: %R is not callable", callable);
    if (launcher != Py_None && !Py_IS_TYPE(launcher, &dg_LauncherType))
        return PyErr_Format(PyExc_TypeError, "PythonPlan: launcher=%R is no Launcher", launcher);
    dg_plan *plan = dg_plan_new(type, n_inputs, n_outputs, n_symbols, n_checks);
    if (!plan)
        return NULL;
    plan->callable = Py_NewRef(callable);
    plan->repeatable = repeatable;
    plan->may_bail_out = n_checks > 0 || may_bail_out;
    plan->launcher = launcher == Py_None ? NULL : Py_NewRef(launcher);
    int ok = 1;
    for (int k = 0; k < n_outputs && ok; ++k)
        ok = parse_output(&plan->outputs[k], at(scalars, k), at(into, k), at(axes, k), n_inputs) == 0;
    return dg_plan_finish(plan, ok, result, prologue);
}

/* -- running ------------------------------------------------------------------------------------------------------------- */

/* an input as Python code takes it: arrays and NumPy scalars as they are, Python numbers as 0-d arrays of the graph's dtype */
static PyObject *python_input(PyObject *object)
{
    int number = PyFloat_CheckExact(object) || PyLong_CheckExact(object) || PyComplex_CheckExact(object) || PyBool_Check(object);
    if (!number)
        return Py_NewRef(object);
    int type = PyBool_Check(object) ? NPY_BOOL : PyLong_Check(object) ? NPY_INT64 : PyComplex_Check(object) ? NPY_CDOUBLE : NPY_DOUBLE;
    return PyArray_FromAny(object, PyArray_DescrFromType(type), 0, 0, 0, NULL);
}

/* 1: the program bails out; -1: an exception is set */
static int checks_fail(const dg_plan *plan, PyObject *const *outputs, Py_ssize_t n)
{
    for (Py_ssize_t k = n - plan->n_checks; k < n; ++k) {
        int failed = k < 0 ? 0 : PyObject_IsTrue(outputs[k]);
        if (failed)
            return failed;
    }
    return 0;
}

/* Outputs that are meant for the memory of inputs are copied there. */
static int write_back(const dg_plan *plan, const dg_frame *frame, PyObject **outputs, Py_ssize_t n)
{
    for (Py_ssize_t k = 0; k < n && k < plan->n_outputs; ++k) {
        int into = plan->outputs[k].into;
        if (into < 0)
            continue;
        PyObject *target = frame->input_objects[into];
        if (target == outputs[k]) /* it was written there */
            continue;
        if (!PyArray_Check(target)) { /* of another library: target[...] = output */
            if (PyObject_SetItem(target, Py_Ellipsis, outputs[k]) < 0)
                return -1;
            Py_SETREF(outputs[k], Py_NewRef(target));
            continue;
        }
        if (!PyArray_Check(outputs[k])) {
            PyErr_Format(PyExc_TypeError, "a backend's output %zd is no array", k);
            return -1;
        }
        if (PyArray_CopyInto((PyArrayObject *)target, (PyArrayObject *)outputs[k]) < 0)
            return -1;
        Py_SETREF(outputs[k], Py_NewRef(target));
    }
    return 0;
}

/* Outputs that lie in another order than C order; what the backend gave may be in use elsewhere. */
static int lay_out(const dg_plan *plan, PyObject **outputs, Py_ssize_t n)
{
    for (Py_ssize_t k = 0; k < n && k < plan->n_outputs; ++k) {
        if (!plan->outputs[k].transposed)
            continue;
        PyObject *copy = PyArray_FromAny(outputs[k], NULL, 0, 0, NPY_ARRAY_CARRAY | NPY_ARRAY_ENSURECOPY | NPY_ARRAY_ENSUREARRAY, NULL);
        if (!copy)
            return -1;
        if (PyArray_NDIM((PyArrayObject *)copy) != plan->outputs[k].transposed) {
            PyErr_Format(PyExc_ValueError, "a backend's output %zd has %d dimensions, not %d", k,
                         PyArray_NDIM((PyArrayObject *)copy), plan->outputs[k].transposed);
            Py_DECREF(copy);
            return -1;
        }
        dg_transpose((PyArrayObject *)copy, plan->outputs[k].axes);
        Py_SETREF(outputs[k], copy);
    }
    return 0;
}

int dg_is_final(void)
{
    PyObject *type, *error, *traceback;
    PyErr_Fetch(&type, &error, &traceback);
    PyErr_NormalizeException(&type, &error, &traceback);
    int final = error && PyObject_HasAttrString(error, "dynagraph_is_final");
    PyErr_Restore(type, error, traceback);
    return final;
}

/* Leaves the call to the plain function where the program may bail out of it: the user's code raises the error at its own place, and what
   a signal's handler has raised as well. */
static void bail_out_if_may(const dg_plan *plan)
{
    dg_raised late = {0};
    if (!plan->may_bail_out || dg_is_final())
        return;
    if (dg_put_off(&late))
        dg_raise_later(&late);
    else if (PyErr_ExceptionMatches(PyExc_Exception))
        PyErr_Clear();
}

/* What a signal's handler raises while the program runs is not the program's: it waits until code of the user's runs, which may be
   within a try block. That is the plain function, to which the call is left; where the program cannot leave it, it runs again. What is
   final goes to the caller. */
static PyObject *call_program(dg_plan *plan, PyObject *args, dg_raised *late)
{
    PyObject *given = PyObject_CallObject(plan->callable, args);
    dg_raised raised = {0};
    if (!given && dg_is_final())
        return NULL;
    if (!given && dg_plan_may_be_left(plan) && dg_put_off(&raised)) {
        dg_raise_later(&raised);
        return NULL;
    }
    if (!given && plan->repeatable && dg_take_raised(&raised)) {
        given = PyObject_CallObject(plan->callable, args);
        dg_drop_raised(given ? late : &raised);
        if (given)
            *late = raised;
    }
    if (!given)
        bail_out_if_may(plan);
    return given;
}

/* By the launcher: 0: it does not serve this call, nothing has happened; else *result is what the plan gives. */
static int launched(dg_plan *plan, dg_frame *frame, PyObject **owner, PyObject **callee, PyObject **result)
{
    *result = NULL;
    if (!dg_launcher_fits(plan->launcher, plan->n_inputs, plan->n_symbols, plan->n_outputs)) {
        PyErr_SetString(PyExc_ValueError, "PythonPlan: its launcher has other inputs, symbols or outputs");
        return -1;
    }
    int n = dg_launcher_results(plan->launcher);
    PyObject *few[DG_FEW_ARRAYS], **outputs = dg_room(few, sizeof few, sizeof *outputs * (size_t)n);
    if (!outputs) {
        PyErr_NoMemory();
        return -1;
    }
    int served = dg_launcher_run(plan->launcher, frame, outputs);
    if (frame->session && !plan->is_quiet)
        frame->session->quiet = 0;
    if (served > 0) {
        dg_plan_release(plan, owner);
        *result = dg_plan_build_result(plan, frame, outputs, callee);
        for (int k = 0; k < n; ++k)
            Py_DECREF(outputs[k]);
    } else if (served < 0) {
        bail_out_if_may(plan);
    }
    dg_leave(outputs, few);
    return served;
}

/* what a program gave, as outputs of the plan; 0: the program bails out, or an exception is set */
static int take_outputs(const dg_plan *plan, const dg_frame *frame, PyObject *items, PyObject **outputs)
{
    Py_ssize_t n = PySequence_Fast_GET_SIZE(items);
    if (n > DG_MAX_ARRAYS) {
        PyErr_Format(PyExc_ValueError, "a backend's program gave %zd outputs; at most %d are possible", n, DG_MAX_ARRAYS);
        return 0;
    }
    for (Py_ssize_t k = 0; k < n; ++k) {
        PyObject *item = PySequence_Fast_GET_ITEM(items, k);
        outputs[k] = Py_NewRef(item);
        if (k < plan->n_outputs && plan->outputs[k].scalar && PyArray_Check(item) &&
            !(outputs[k] = PyArray_Return((PyArrayObject *)item))) /* takes the reference */
            return 0;
    }
    return checks_fail(plan, outputs, n) == 0 && write_back(plan, frame, outputs, n) == 0 && lay_out(plan, outputs, n) == 0;
}

static PyObject *take_inputs(const dg_plan *plan, const dg_frame *frame)
{
    PyObject *args = PyTuple_New(plan->n_inputs);
    for (int k = 0; args && k < plan->n_inputs; ++k) {
        PyObject *input = python_input(frame->input_objects[k]);
        if (input)
            PyTuple_SET_ITEM(args, k, input);
        else
            Py_CLEAR(args);
    }
    return args;
}

/* from what a program gave, which is a tuple or list */
static PyObject *build_from(dg_plan *plan, dg_frame *frame, PyObject *items, PyObject **callee)
{
    PyObject *result = NULL, *few[DG_FEW_ARRAYS];
    Py_ssize_t n = PySequence_Fast_GET_SIZE(items), most = n < plan->n_outputs ? plan->n_outputs : n;
    PyObject **outputs = dg_room(few, sizeof few, sizeof *outputs * (size_t)most);
    if (!outputs)
        return PyErr_NoMemory();
    memset(outputs, 0, sizeof *outputs * (size_t)most);
    if (take_outputs(plan, frame, items, outputs))
        result = dg_plan_build_result(plan, frame, outputs, callee);
    for (Py_ssize_t k = 0; k < n; ++k)
        Py_XDECREF(outputs[k]);
    dg_leave(outputs, few);
    return result;
}

/* owner is cleared once the program has ended */
PyObject *dg_python_plan_run(dg_plan *plan, dg_frame *frame, PyObject **owner, PyObject **callee)
{
    PyObject *result = NULL;
    if (plan->launcher && launched(plan, frame, owner, callee, &result))
        return result;
    PyObject *args = take_inputs(plan, frame), *given = args ? call_program(plan, args, &frame->late) : NULL;
    if (given)
        dg_plan_release(plan, owner);
    PyObject *items = given ? PySequence_Fast(given, "a backend's program must return a tuple or list of arrays") : NULL;
    if (items)
        result = build_from(plan, frame, items, callee);
    Py_XDECREF(items);
    Py_XDECREF(given);
    Py_XDECREF(args);
    return result;
}
