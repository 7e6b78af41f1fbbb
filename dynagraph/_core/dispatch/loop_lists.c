/* Lists and text in native loops: read when the loop is entered, written back and built when it is left. */
#include "loops.h"
#include <stdlib.h>

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
        free(list->items);
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

int dg_list_read(const dg_parameter *p, PyObject *object, dg_slot *slot, dg_loop_lists *lists)
{
    if (!PyList_CheckExact(object) || (2 * lists->used >= lists->size && grow(lists) < 0))
        return 0;
    dg_list **place = place_of(lists, object), *list = *place;
    slot->p = list;
    if (list || lists->closed)
        return list && same_items(p, list->kind);
    int64_t n = PyList_GET_SIZE(object);
    if (!(list = new_list(lists, n, (size_t)p->item_width * sizeof(dg_slot))))
        return 0;
    slot->p = *place = list;
    ++lists->used;
    list->object = Py_NewRef(object);
    list->kind = p;
    list->width = p->item_width;
    memset(list->items, 0, (size_t)n * (size_t)p->item_width * sizeof(dg_slot));
    for (int64_t k = 0; k < n; ++k)
        if (!dg_parameter_read(&p->parts[0], PyList_GET_ITEM(object, k), list->items + k * p->item_width, lists))
            return 0;
    return 1;
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

/* a Python list of the items from first on */
static PyObject *items_from(const dg_box *box, const dg_list *list, int64_t first, dg_loop_values *values)
{
    PyObject *made = PyList_New(list->length - first);
    for (int64_t k = first; made && k < list->length; ++k) {
        PyObject *item = build_item(box, list, k, values);
        if (item)
            PyList_SET_ITEM(made, k - first, item);
        else
            Py_CLEAR(made);
    }
    return made;
}

PyObject *dg_list_build(const dg_box *box, dg_loop_values *values)
{
    dg_list *list = values->state[box->number].p;
    if (values->goes_on) /* a copy: the Python list would fall behind */
        return items_from(&box->parts[0], list, 0, values);
    if (list->object)
        return Py_NewRef((PyObject *)list->object);
    PyObject *made = items_from(&box->parts[0], list, 0, values);
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
    int set = rest ? PyList_SetSlice(object, there, there, rest) : -1;
    Py_XDECREF(rest);
    return set;
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
            written = write_back(list, lists, values, before);
        else {
            PyErr_NoMemory();
            written = -1;
        }
        free(before);
    }
    return written;
}
