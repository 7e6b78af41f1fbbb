/* How much of the C stack is left. Calls through C nest on it without CPython's noticing, and threads may have little of it. */
#ifndef DG_STACK_H
#define DG_STACK_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdint.h>

/* bytes that are left for: */
enum {
    DG_ROOM_TO_CAPTURE = 128 << 10, /* a capture, and all that it calls; else the call runs eagerly */
    DG_ROOM_TO_RUN = 80 << 10,      /* a program; else the call runs eagerly */
    DG_ROOM_TO_CALL = 40 << 10,     /* any call; else it raises RecursionError */
};

static _Thread_local uintptr_t dg_stack_end; /* the lowest address of this thread's stack; 0: not asked yet */

static __attribute__((noinline)) void dg_find_stack_end(void)
{
    dg_stack_end = 1; /* unknown: there is room */
#ifdef __linux__
    pthread_attr_t attributes;
    void *lowest;
    size_t size;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0)
        return;
    if (pthread_attr_getstack(&attributes, &lowest, &size) == 0)
        dg_stack_end = (uintptr_t)lowest;
    pthread_attr_destroy(&attributes);
#endif
}

/* whether so many bytes are left; on a stack that is not the thread's own nothing is known, and they are */
static inline int dg_has_room(uintptr_t bytes)
{
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    if (!dg_stack_end)
        dg_find_stack_end();
    return here < dg_stack_end || here - dg_stack_end > bytes;
}

#endif
