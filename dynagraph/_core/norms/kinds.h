/* What is summed up, and in which parts. */
enum {
    SUM,     /* x */
    SQUARES, /* of x less its mean */
    OWN,     /* what comes to the normalized element, and that times this */
    AFFINE,  /* what comes to the result times the normalized element, and what comes to it */
    ALL,     /* both pairs */
    LEAF = 128, /* elements that are summed up at once */
    BLOCK = 32, /* channels side by side that are one piece of work */
    IN_CACHE = 1 << 17, /* elements that are read twice */
    WIDE = 128, /* of those that are summed up row by row */
};
#define COUNT(kind) ((kind) < OWN ? 1 : (kind) == ALL ? 4 : 2)
