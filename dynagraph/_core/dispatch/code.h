/* Machine code that better code may take the place of: of plans and of native loops. */
#ifndef DG_CODE_H
#define DG_CODE_H
#include "core.h"

typedef struct {
    uintptr_t run;                /* the address of a function; 0: there is none */
    PyObject *keepalive, *better; /* better: asked now and then for code that takes this one's place; null: nobody is */
    int64_t next_look;
    const char *of; /* for messages: "NativeLoop" */
} dg_code;

int64_t dg_clock_now(void); /* nanoseconds */
int dg_code_parse(dg_code *code, const char *of, PyObject *address, PyObject *keepalive, PyObject *better); /* -1: an exception is set */
int dg_code_traverse(const dg_code *code, visitproc visit, void *arg);
void dg_code_clear(dg_code *code);
int dg_code_ask(dg_code *code, dg_raised *late);

/* Whoever runs the code holds a reference to its keepalive.  late: what a signal's handler raises meanwhile.  1: Python code ran;
   -1: an exception is set. */
static inline int dg_code_look(dg_code *code, dg_raised *late) { return code->better ? dg_code_ask(code, late) : 0; }

#endif
