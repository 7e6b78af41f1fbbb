/* Shared by the files of launchers: the kernels and products of a program, with everything about their launches that does not change
   packed beforehand. */
#ifndef DG_LAUNCHERS_H
#define DG_LAUNCHERS_H
#include "plans.h"

enum { DG_VALUE_BYTES = 16, DG_MAX_PARAMETERS = 4096, DG_KNOWN_PLANS = 8 };

typedef int (*dg_launch_function)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                               unsigned shared, void *stream, void **parameters, void **extra);

/* what a kernel is given: an address, a number of the host's, or a size */
typedef struct {
    enum { DG_INPUT, DG_OUTPUT, DG_TEMP, DG_CONSTANT, DG_VALUE, DG_SIZE } kind;
    int position;   /* of an input, output or value; the symbol of a size */
    dg_size offset; /* of a temporary in the workspace; of a constant the address itself */
} dg_parameter;

/* a matrix of a product: in the memory of a parameter, `begin` bytes from its beginning */
typedef struct {
    int is_there;
    dg_parameter memory;
    dg_size begin;
} dg_matrix;

/* products of the sizes that came last; `find` knows, or makes, the others */
typedef struct {
    PyObject *find; /* (sizes) -> a Product, or None: it is a call of Python */
    dg_matrix operands[DG_OPERANDS];
    int n_read, next;
    unsigned char read[DG_MAX_SYMBOLS]; /* the symbols that it depends on */
    PyObject *plans[DG_KNOWN_PLANS];       /* or null */
    int64_t *sizes;                     /* of each plan: n_read values */
} dg_product_step;

/* a launch; where `product` is set a product of matrices; where only `call` is set a call of Python with the arrays */
typedef struct {
    PyObject *call;
    dg_product_step *product;
    void *function;
    dg_size n; /* units of work */
    int64_t per_block;
    unsigned threads;
    int n_parameters;
    dg_parameter *parameters;
} dg_launch;

struct dg_launcher {
    PyObject_HEAD
    int ready;
    dg_launch_function function;
    int64_t most_blocks, reach, device;
    PyObject *array_type, *byte_type, *current_device, *current_stream, *on_error, *keepalive;
    PyObject *replay, *replay_failed; /* or null */
    int n_inputs, n_symbols, n_results, n_launches, n_products, n_read;
    unsigned char *value_bytes;         /* of inputs that are numbers of the host's; 0: an array */
    unsigned char read[DG_MAX_SYMBOLS]; /* the symbols that launches depend on */
    dg_output *results;
    dg_launch *launches;
    dg_sizes sizes; /* none of which may be above `reach` */
    dg_size workspace;
    int64_t safe; /* where no symbol is above it no size exceeds 64 bits: other calls are left to the callable */
};

/* launches.c: 1: `outputs` are filled; -1: an exception is set */
int dg_launch_all(const dg_launcher *l, const dg_frame *frame, int64_t stream, PyObject **outputs);
/* replays.c: 1: `outputs` are filled; 0: nothing of the caller's was written; -1: neither, and an exception is set */
int dg_launch_replay(const dg_launcher *l, const dg_frame *frame, int64_t stream, PyObject **outputs);

#endif
