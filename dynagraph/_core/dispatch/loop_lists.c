/* Lists and text in native loops: read when the loop is entered, written back and built when it is left. */
#include "loops.h"
#include <stdlib.h>

static PyObject *deque_type;

int dg_lists_ready(void)
{
    PyObject *collections = PyImport_ImportModule("collections");
    deque_type = collections ? PyObject_GetAttrString(collections, "deque") : NULL;
    Py_XDECREF(collections);
    return deque_type ? 0 : -1;
}

/* -- which native list stands for a Python one --------------------------------------------------------------------------- */

static dg_list **place_of(const dg_loop_lists *lists, const void *object)
{
    size_t mask = lists->size - 1, k = ((uintptr_t)object >> 4) * 0x9e3779b97f4a7c15u >> 20;
    while (lists->table[k & mask] && lists->table[k & mask]->object != object)
        ++k;
    return &lists->table[k & mask];
}

static int grow(dg_loop_lists *lists)
{
    dg_loop_lists larger = {lists->stop, NULL, lists->size ? 4 * lists->size : 16};
    if (!(larger.table = calloc(larger.size, sizeof *larger.table)))
        return -1;
    for (size_t k = 0; k < lists->size; ++k)
        if (lists->table[k])
            *place_of(&larger, lists->table[k]->object) = lists->table[k];
    free(lists->table);
    lists->table = larger.table;
    lists->size = larger.size;
    return 0;
}

/* a list of n items of the run; null: no memory */
static dg_list *new_list(dg_loop_lists *lists, int64_t n, size_t itemsize)
{
    dg_list *list = calloc(1, sizeof *list);
    if (!list || !(list->items = malloc((size_t)(n + !n) * (itemsize + !itemsize)))) {
        free(list);
        return NULL;
    }
    list->length = list->capacity = n;
    list->next = lists->stop->lists;
    lists->stop->lists = list;
    lists->stop->list_bytes += n * (int64_t)itemsize + (int64_t)sizeof *list;
    return list;
}

void dg_lists_free(dg_loop_lists *lists)
{
    for (dg_list *list = lists->stop->lists, *next; list; list = next) {
        next = list->next;
        Py_XDECREF((PyObject *)list->object);
        free(list->items - list->before * list->width);
        free(list);
    }
    lists->stop->lists = NULL;
    free(lists->table);
    for (dg_made *made = lists->made; made; made = made->next)
        made->references = 0;
    dg_made_sweep(lists);
}

/* -- reading --------------------------------------------------------------------------------------------------------------- */

static int same_items(const dg_parameter *p, const dg_parameter *other)
{
    return p == other || PyObject_RichCompareBool(p->row, other->row, Py_EQ) == 1;
}

static int read_floats(PyObject *items, dg_list *list)
{
    for (int64_t k = 0; k < list->length; ++k) {
        PyObject *item = PyList_GET_ITEM(items, k);
        if (!PyFloat_CheckExact(item))
            return 0;
        list->items[k].d = PyFloat_AS_DOUBLE(item);
    }
    return 1;
}

static int read_items(const dg_parameter *p, PyObject *items, dg_list *list, dg_loop_lists *lists)
{
    if (dg_parameter_is_float(&p->parts[0]))
        return read_floats(items, list);
    for (int64_t k = 0; k < list->length; ++k)
        if (!dg_parameter_read(&p->parts[0], PyList_GET_ITEM(items, k), list->items + k * p->item_width, lists))
            return 0;
    return 1;
}

/* a new reference to the items of a list, or of a deque without bounds; null: it is none */
static PyObject *items_of(const dg_parameter *p, PyObject *object)
{
    if (!dg_parameter_is_deque(p))
        return PyList_CheckExact(object) ? Py_NewRef(object) : NULL;
    if (Py_TYPE(object) != (PyTypeObject *)deque_type)
        return NULL;
    PyObject *most = PyObject_GetAttrString(object, "maxlen"), *items = most == Py_None ? PySequence_List(object) : NULL;
    Py_XDECREF(most);
    PyErr_Clear();
    return items;
}

static int read_list(const dg_parameter *p, PyObject *object, PyObject *items, dg_slot *slot, dg_loop_lists *lists)
{
    if ((2 * lists->used >= lists->size && grow(lists) < 0))
        return 0;
    dg_list **place = place_of(lists, object), *list = *place;
    slot->p = list;
    if (list || lists->closed)
        return list && same_items(p, list->kind);
    int64_t n = PyList_GET_SIZE(items);
    if (!(list = new_list(lists, n, (size_t)p->item_width * sizeof(dg_slot))))
        return 0;
    slot->p = *place = list;
    ++lists->used;
    list->object = Py_NewRef(object);
    list->kind = p;
    list->width = p->item_width;
    memset(list->items, 0, (size_t)n * (size_t)p->item_width * sizeof(dg_slot));
    return read_items(p, items, list, lists);
}

int dg_list_read(const dg_parameter *p, PyObject *object, dg_slot *slot, dg_loop_lists *lists)
{
    PyObject *items = items_of(p, object);
    int fits = items && read_list(p, object, items, slot, lists);
    Py_XDECREF(items);
    return fits;
}

int dg_text_read(PyObject *object, dg_slot *slot, dg_loop_lists *lists)
{
    if (!PyUnicode_CheckExact(object))
        return 0;
    int64_t n = PyUnicode_GET_LENGTH(object);
    dg_list *list = new_list(lists, n, sizeof(Py_UCS4));
    if (!list || (n && !PyUnicode_AsUCS4(object, (Py_UCS4 *)list->items, n, 0))) {
        PyErr_Clear();
        return 0;
    }
    slot[0].p = list->items;
    slot[1].i = n;
    return 1;
}

/* -- building -------------------------------------------------------------------------------------------------------------- */

static PyObject *build_item(const dg_box *box, const dg_list *list, int64_t k, dg_loop_values *values)
{
    dg_slot *held = values->state;
    values->state = list->items + k * list->width;
    PyObject *item = dg_box_build(box, values);
    values->state = held;
    return item;
}

/* whether all of them could be made, of numbers that have a slot each: most lists are of these */
static int build_floats(const dg_slot *slots, int64_t n, PyObject **to)
{
    for (int64_t k = 0; k < n; ++k)
        if (!(to[k] = PyFloat_FromDouble(slots[k].d)))
            return 0;
    return 1;
}

static int build_ints(const dg_slot *slots, int64_t n, PyObject **to)
{
    for (int64_t k = 0; k < n; ++k)
        if (!(to[k] = PyLong_FromLongLong(slots[k].i)))
            return 0;
    return 1;
}

static int build_others(const dg_box *box, const dg_list *list, int64_t first, PyObject **to, dg_loop_values *values)
{
    for (int64_t k = first; k < list->length; ++k)
        if (!(to[k - first] = build_item(box, list, k, values)))
            return 0;
    return 1;
}

/* a Python list of the items from first on */
static PyObject *items_from(const dg_box *box, const dg_list *list, int64_t first, dg_loop_values *values)
{
    const int64_t n = list->length - first;
    PyObject *made = PyList_New(n);
    if (!made)
        return NULL;
    PyObject **to = ((PyListObject *)made)->ob_item;
    const dg_slot *slots = list->items + first * list->width;
    int done = dg_box_is_float(box) ? build_floats(slots, n, to)
               : dg_box_is_int(box) ? build_ints(slots, n, to)
                                    : build_others(box, list, first, to, values);
    if (!done)
        Py_CLEAR(made);
    return made;
}

PyObject *dg_list_build(const dg_box *box, int as_deque, dg_loop_values *values)
{
    dg_list *list = values->state[box->number].p;
    if (list->object && !values->goes_on)
        return Py_NewRef((PyObject *)list->object);
    PyObject *made = items_from(&box->parts[0], list, 0, values);
    if (made && as_deque)
        Py_SETREF(made, PyObject_CallOneArg(deque_type, made));
    if (values->goes_on) /* a copy: the Python object would fall behind */
        return made;
    list->object = Py_XNewRef(made);
    return made;
}

/* whether an item is the one that was read */
static int is_still(const dg_parameter *p, PyObject *item, const dg_slot *now, dg_slot *before, dg_loop_lists *lists)
{
    size_t size = (size_t)p->item_width * sizeof *now;
    memset(before, 0, size);
    return dg_parameter_read(&p->parts[0], item, before, lists) && memcmp(before, now, size) == 0;
}

/* puts a list's items behind those of another; an empty one takes its memory, as list.sort() does */
static int put_behind(PyObject *object, PyObject *rest)
{
    PyListObject *to = (PyListObject *)object, *from = (PyListObject *)rest;
    Py_ssize_t n = Py_SIZE(to);
    if (n)
        return PyList_SetSlice(object, n, n, rest);
    PyObject **items = to->ob_item;
    Py_ssize_t allocated = to->allocated;
    Py_SET_SIZE(to, Py_SIZE(from));
    to->ob_item = from->ob_item;
    to->allocated = from->allocated;
    Py_SET_SIZE(from, 0);
    from->ob_item = items;
    from->allocated = allocated;
    return 0;
}

static int write_back(const dg_list *list, dg_loop_lists *lists, dg_loop_values *values, dg_slot *before)
{
    const dg_parameter *p = list->kind;
    PyObject *object = list->object;
    Py_ssize_t there = PyList_GET_SIZE(object);
    for (int64_t k = 0; k < list->length && k < there && k < PyList_GET_SIZE(object); ++k) {
        if (is_still(p, PyList_GET_ITEM(object, k), list->items + k * list->width, before, lists))
            continue;
        PyObject *item = build_item(p->box, list, k, values);
        if (!item || PyList_SetItem(object, k, item) < 0)
            return -1;
    }
    if (list->length < there)
        return PyList_SetSlice(object, list->length, there, NULL);
    if (list->length == there)
        return 0;
    PyObject *rest = items_from(p->box, list, there, values);
    int set = rest ? put_behind(object, rest) : -1;
    Py_XDECREF(rest);
    return set;
}

/* the items that a deque has now; those that it had before are the same objects */
static PyObject *items_now(const dg_list *list, PyObject *held, dg_loop_lists *lists, dg_loop_values *values, dg_slot *before)
{
    const dg_parameter *p = list->kind;
    PyObject *made = PyList_New(list->length);
    for (int64_t k = 0; made && k < list->length; ++k) {
        int64_t was = k + list->taken;
        PyObject *item = was >= 0 && was < PyList_GET_SIZE(held) ? Py_NewRef(PyList_GET_ITEM(held, was)) : NULL;
        if (!item || !is_still(p, item, list->items + k * list->width, before, lists))
            Py_XSETREF(item, build_item(p->box, list, k, values));
        if (item)
            PyList_SET_ITEM(made, k, item);
        else
            Py_CLEAR(made);
    }
    return made;
}

static int write_deque_back(const dg_list *list, dg_loop_lists *lists, dg_loop_values *values, dg_slot *before)
{
    PyObject *object = list->object, *held = PySequence_List(object);
    PyObject *now = held ? items_now(list, held, lists, values, before) : NULL;
    PyObject *cleared = now ? PyObject_CallMethod(object, "clear", NULL) : NULL;
    PyObject *extended = cleared ? PyObject_CallMethod(object, "extend", "O", now) : NULL;
    int written = extended ? 0 : -1;
    Py_XDECREF(extended);
    Py_XDECREF(cleared);
    Py_XDECREF(now);
    Py_XDECREF(held);
    return written;
}

int dg_lists_write_back(dg_loop_lists *lists, dg_loop_values *values)
{
    int written = 0;
    lists->closed = 1;
    for (dg_list *list = lists->stop->lists; list && written == 0; list = list->next) {
        if (!list->changed || !list->kind)
            continue;
        dg_slot *before = malloc((size_t)(list->width + 1) * sizeof *before);
        if (before)
            written = (dg_parameter_is_deque(list->kind) ? write_deque_back : write_back)(list, lists, values, before);
        else {
            PyErr_NoMemory();
            written = -1;
        }
        free(before);
    }
    return written;
}
