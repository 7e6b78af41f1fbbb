/* Recycled memory for results and workspaces.

   The first touch of fresh memory costs more than most kernels: a page fault for every 4 KiB.  Blocks that come back are kept,
   up to a limit, and given out again.  Size classes are four per power of two; a block of one class serves requests of it. */
#define _GNU_SOURCE
#include "core.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HEADER = 64, SMALL = 65536, N_CLASSES = 256, HUGE_PAGE = 2 << 20 };

typedef struct block {
    size_t size; /* usable bytes: that of the class */
    int class_number;
    struct block *next, *previous; /* of the same class */
    struct block *older, *newer;   /* by time of return */
    void *start;                        /* what free() takes, or munmap() */
    size_t mapped;                      /* bytes of a mapping of its own; 0: of malloc */
} block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static block *free_blocks[N_CLASSES], *oldest, *newest;
static size_t kept, limit, in_use;
static uint64_t taken, recycled;

static size_t class_size(int number)
{
    size_t base = (size_t)SMALL << (number / 4);
    return base + base / 4 * (size_t)(number % 4);
}

static int class_of(size_t size)
{
    if (size <= SMALL)
        return 0;
    int number = 4 * (63 - __builtin_clzll((unsigned long long)size) - 16); /* SMALL is 1 << 16 */
    while (class_size(number) < size)
        ++number;
    return number;
}

/* A block whose data begin at a huge page; a last part of one is a huge page where most of it is used.  The header is in a page before
   them: those who fill the data touch them first, in all threads. */
static block *map_block(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGE_SIZE), rest = size % HUGE_PAGE;
    size_t length = rest > HUGE_PAGE / 2 ? size - rest + HUGE_PAGE : (size + page - 1) / page * page;
    char *room = mmap(NULL, page + length + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        return NULL;
    size_t before = (HUGE_PAGE - (uintptr_t)(room + page) % HUGE_PAGE) % HUGE_PAGE;
    if (before)
        munmap(room, before);
    char *data = room + before + page;
    munmap(data + length, HUGE_PAGE - before);
#ifdef MADV_HUGEPAGE
    madvise(data, length, MADV_HUGEPAGE);
#endif
    block *b = (block *)(data - HEADER);
    b->start = data - page;
    b->mapped = page + length;
    return b;
}

static block *make(int number)
{
    size_t size = class_size(number);
    void *start = NULL;
    block *b;
    if (size >= HUGE_PAGE) {
        b = map_block(size);
    } else if (posix_memalign(&start, HEADER, size + HEADER) == 0) {
        b = start;
        *b = (block){.start = start};
    } else {
        b = NULL;
    }
    _Static_assert(sizeof *b <= HEADER, "the data after a block's header is 64-byte aligned");
    if (b) {
        b->size = size;
        b->class_number = number;
    }
    return b;
}

static void unlink_block(block *b)
{
    *(b->previous ? &b->previous->next : &free_blocks[b->class_number]) = b->next;
    if (b->next)
        b->next->previous = b->previous;
    *(b->older ? &b->older->newer : &oldest) = b->newer;
    *(b->newer ? &b->newer->older : &newest) = b->older;
    b->next = b->previous = b->older = b->newer = NULL;
    kept -= b->size;
}

/* *is_zero: whether all of it is known to be zeros */
static void *take(size_t size, int *is_zero)
{
    if (size > ((size_t)1 << 60))
        return NULL;
    int number = class_of(size);
    pthread_mutex_lock(&lock);
    block *b = free_blocks[number];
    ++taken;
    if (b) {
        unlink_block(b);
        ++recycled;
        in_use += b->size;
    }
    pthread_mutex_unlock(&lock);
    *is_zero = 0;
    if (!b) {
        b = make(number);
        if (!b) {
            dg_pool_trim(0);
            b = make(number);
        }
        if (!b)
            return NULL;
        *is_zero = b->mapped != 0; /* no one has written to it, as the system gave it */
        pthread_mutex_lock(&lock);
        in_use += b->size;
        pthread_mutex_unlock(&lock);
    }
    return (char *)b + HEADER;
}

void *dg_pool_take(size_t size)
{
    int is_zero;
    return take(size, &is_zero);
}

static void *take_zeros(size_t size)
{
    int is_zero;
    void *memory = take(size, &is_zero);
    return memory && !is_zero ? memset(memory, 0, size) : memory;
}

/* takes out the oldest blocks until `target` bytes are kept; gives the list of them, to be freed without the lock */
static block *drop_to(size_t target)
{
    block *list = NULL;
    while (kept > target && oldest) {
        block *b = oldest;
        unlink_block(b);
        b->next = list;
        list = b;
    }
    return list;
}

static void free_list(block *list)
{
    while (list) {
        block *b = list;
        list = b->next;
        if (b->mapped)
            munmap(b->start, b->mapped);
        else
            free(b->start);
    }
}

void dg_pool_give(void *memory)
{
    if (!memory)
        return;
    block *b = (block *)((char *)memory - HEADER);
    pthread_mutex_lock(&lock);
    in_use -= b->size;
    b->next = free_blocks[b->class_number];
    b->previous = NULL;
    if (b->next)
        b->next->previous = b;
    free_blocks[b->class_number] = b;
    b->older = newest;
    b->newer = NULL;
    *(newest ? &newest->newer : &oldest) = b;
    newest = b;
    kept += b->size;
    block *list = drop_to(limit);
    pthread_mutex_unlock(&lock);
    free_list(list);
}

void dg_pool_trim(size_t target)
{
    pthread_mutex_lock(&lock);
    block *list = drop_to(target);
    pthread_mutex_unlock(&lock);
    free_list(list);
}

void dg_pool_set_limit(size_t new_limit)
{
    pthread_mutex_lock(&lock);
    limit = new_limit;
    pthread_mutex_unlock(&lock);
    dg_pool_trim(new_limit);
}

PyObject *dg_pool_stats(void)
{
    pthread_mutex_lock(&lock);
    size_t bytes[3] = {kept, in_use, limit};
    uint64_t counts[2] = {taken, recycled};
    pthread_mutex_unlock(&lock);
    return Py_BuildValue("{s:n,s:n,s:n,s:K,s:K}", "kept", (Py_ssize_t)bytes[0], "in_use", (Py_ssize_t)bytes[1], "limit",
                         (Py_ssize_t)bytes[2], "taken", (unsigned long long)counts[0], "recycled", (unsigned long long)counts[1]);
}

/* -- the handler through which NumPy gives blocks back -------------------------------------------------------------------- */

static void *handler_malloc(void *ctx, size_t size) { return dg_pool_take(size); }

static void *handler_calloc(void *ctx, size_t n, size_t size)
{
    return n && size > SIZE_MAX / n ? NULL : take_zeros(n * size);
}

static void handler_free(void *ctx, void *memory, size_t size) { dg_pool_give(memory); }

static void *handler_realloc(void *ctx, void *memory, size_t size)
{
    if (!memory)
        return dg_pool_take(size);
    block *b = (block *)((char *)memory - HEADER);
    if (size <= b->size)
        return memory;
    void *moved = dg_pool_take(size);
    if (moved) {
        memcpy(moved, memory, b->size);
        dg_pool_give(memory);
    }
    return moved;
}

static PyDataMem_Handler handler = {"dynagraph_pool", 1, {NULL, handler_malloc, handler_calloc, handler_realloc, handler_free}};
static PyObject *handler_capsule;

static PyObject *new_array(PyArray_Descr *descr, int ndim, const npy_intp *shape, size_t nbytes, int zeros)
{
    Py_INCREF(descr);
    size_t least = zeros ? HUGE_PAGE : SMALL; /* smaller zeros of NumPy's are pages that nobody has touched, too */
    void *data = nbytes < least || PyDataType_REFCHK(descr) ? NULL : zeros ? take_zeros(nbytes) : dg_pool_take(nbytes);
    if (!data) /* NumPy's own memory, or its own error */
        return zeros ? PyArray_Zeros(ndim, shape, descr, 0)
                     : PyArray_NewFromDescr(&PyArray_Type, descr, ndim, shape, NULL, NULL, 0, NULL);
    PyObject *array = PyArray_NewFromDescr(&PyArray_Type, descr, ndim, shape, NULL, data, NPY_ARRAY_CARRAY, NULL);
    if (!array) {
        dg_pool_give(data);
        return NULL;
    }
    /* as NumPy does for memory of its own: the array owns the data and knows by which handler to free it */
    ((PyArrayObject_fields *)array)->mem_handler = Py_NewRef(handler_capsule);
    PyArray_ENABLEFLAGS((PyArrayObject *)array, NPY_ARRAY_OWNDATA);
    return array;
}

PyObject *dg_new_array(PyArray_Descr *descr, int ndim, const npy_intp *shape, size_t nbytes)
{
    return new_array(descr, ndim, shape, nbytes, 0);
}

static PyObject *new_array_of(PyObject *args, const char *format, int zeros)
{
    PyArray_Dims shape = {NULL, 0};
    PyArray_Descr *descr = NULL;
    if (!PyArg_ParseTuple(args, format, PyArray_IntpConverter, &shape, PyArray_DescrConverter, &descr)) {
        PyDimMem_FREE(shape.ptr);
        return NULL;
    }
    npy_intp count = PyArray_OverflowMultiplyList(shape.ptr, shape.len), size = PyDataType_ELSIZE(descr);
    PyObject *made = NULL;
    if (count < 0 || (size && count > NPY_MAX_INTP / size))
        PyErr_NoMemory();
    else
        made = new_array(descr, shape.len, shape.ptr, (size_t)(count * size), zeros);
    Py_DECREF(descr);
    PyDimMem_FREE(shape.ptr);
    return made;
}

/* new_array(shape, dtype) */
PyObject *dg_py_new_array(PyObject *module, PyObject *args) { return new_array_of(args, "O&O&:new_array", 0); }

/* new_zeros(shape, dtype) */
PyObject *dg_py_new_zeros(PyObject *module, PyObject *args) { return new_array_of(args, "O&O&:new_zeros", 1); }

/* -- fork ------------------------------------------------------------------------------------------------------------------ */

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork(void) { pthread_mutex_unlock(&lock); }

int dg_pool_start(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
    size_t eighth = pages > 0 && page > 0 ? (size_t)pages * (size_t)page / 8 : (size_t)128 << 20;
    limit = eighth < ((size_t)512 << 20) ? eighth : (size_t)512 << 20;
    pthread_atfork(before_fork, after_fork, after_fork);
    handler_capsule = PyCapsule_New(&handler, "mem_handler", NULL);
    return handler_capsule ? 0 : -1;
}
