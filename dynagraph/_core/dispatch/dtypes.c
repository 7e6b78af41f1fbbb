/* dtypes that are taken, and the scalars of NumPy's that are of them. */
#include "core.h"

int dg_is_bfloat16(PyTypeObject *type) { return strcmp(type->tp_name, "ml_dtypes.bfloat16") == 0; }

int dg_scalar_value(PyObject *scalar, void *to)
{
    if (!dg_is_bfloat16(Py_TYPE(scalar))) {
        PyArray_ScalarAsCtype(scalar, to);
        return 1;
    }
    PyObject *array = PyArray_FromAny(scalar, NULL, 0, 0, 0, NULL); /* where in the object its value stands is its own affair */
    int plain = array && PyArray_NBYTES((PyArrayObject *)array) == 2;
    if (plain)
        memcpy(to, PyArray_DATA((PyArrayObject *)array), 2);
    Py_XDECREF(array);
    PyErr_Clear();
    return plain;
}

static int is_bfloat16(PyArray_Descr *descr)
{
    return PyTypeNum_ISUSERDEF(descr->type_num) && PyDataType_ELSIZE(descr) == 2 && !PyDataType_REFCHK(descr) &&
           dg_is_bfloat16(descr->typeobj);
}

int dg_plain_dtype(PyArray_Descr *descr)
{
    int type = descr->type_num;
    int plain = (type >= 0 && type < NPY_OBJECT) || type == NPY_HALF || type == NPY_DATETIME || type == NPY_TIMEDELTA;
    if ((plain || is_bfloat16(descr)) && PyArray_ISNBO(descr->byteorder))
        return 1;
    PyErr_Format(PyExc_ValueError, "%R: only numbers, bools and times in native byte order are taken", descr);
    return 0;
}

int dg_same_dtype(PyArray_Descr *a, PyArray_Descr *b)
{
    int plain = (a->type_num >= 0 && a->type_num < NPY_OBJECT) || a->type_num == NPY_HALF || a->type_num == NPY_DATETIME ||
                a->type_num == NPY_TIMEDELTA; /* a user's dtype could run code of theirs */
    /* np.longlong and np.int64 are equal dtypes whose scalars have types of their own */
    return plain && a->type_num == b->type_num && PyArray_EquivTypes(a, b);
}

/* Bools and numbers of NumPy's own begin where the head of the object ends. */
#define BEGINS_THERE(name) _Static_assert(offsetof(Py##name##ScalarObject, obval) == sizeof(PyObject), #name)
BEGINS_THERE(Bool);
BEGINS_THERE(Byte);
BEGINS_THERE(UByte);
BEGINS_THERE(Short);
BEGINS_THERE(UShort);
BEGINS_THERE(Int);
BEGINS_THERE(UInt);
BEGINS_THERE(Long);
BEGINS_THERE(ULong);
BEGINS_THERE(LongLong);
BEGINS_THERE(ULongLong);
BEGINS_THERE(Half);
BEGINS_THERE(Float);
BEGINS_THERE(Double);
BEGINS_THERE(LongDouble);
BEGINS_THERE(CFloat);
BEGINS_THERE(CDouble);
BEGINS_THERE(CLongDouble);

static int is_number(const PyArray_Descr *descr)
{
    return (descr->type_num >= 0 && descr->type_num < NPY_OBJECT) || descr->type_num == NPY_HALF;
}

int dg_scalar_read(PyObject *object, PyArray_Descr *descr, void *to)
{
    if (Py_TYPE(object) != descr->typeobj)
        return 0;
    if (is_number(descr)) {
        memcpy(to, (char *)object + sizeof(PyObject), (size_t)PyDataType_ELSIZE(descr));
        return 1;
    }
    PyArray_Descr *own = PyArray_DescrFromScalar(object); /* times have units */
    int same = own && (PyTypeNum_ISUSERDEF(descr->type_num) ? own->type_num == descr->type_num : dg_same_dtype(own, descr));
    Py_XDECREF(own);
    PyErr_Clear();
    return same && dg_scalar_value(object, to);
}

PyObject *dg_scalar_object(PyArray_Descr *descr, const void *value)
{
    if (!is_number(descr))
        return PyArray_Scalar((void *)value, descr, NULL);
    if (descr->type_num == NPY_BOOL)
        return Py_NewRef(*(const char *)value ? PyArrayScalar_True : PyArrayScalar_False);
    PyObject *number = descr->typeobj->tp_alloc(descr->typeobj, 0);
    if (number)
        memcpy((char *)number + sizeof(PyObject), value, (size_t)PyDataType_ELSIZE(descr));
    return number;
}
