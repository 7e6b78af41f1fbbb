/* The tape of a loop's gradient: what the way forward keeps for the way back, last in, first out; and memory that lives as long. */

typedef struct dg_tape_part {
    struct dg_tape_part *before;
    dg_slot *filled; /* up to where it is, while a later one is written to */
    dg_slot *end;
    dg_slot slots[];
} dg_tape_part;

typedef struct dg_tape_memory {
    struct dg_tape_memory *before;
    char *at, *end;
    _Alignas(64) char bytes[];
} dg_tape_memory;

typedef struct dg_tape {
    const dg_runtime *rt;
    dg_slot *at, *begin, *end;
    dg_tape_part *part;
    dg_tape_memory *memory;
    int64_t left; /* bytes that it may still take; what has been freed does not count again */
} dg_tape;

DG_INLINE int dg_tape_begin(dg_tape *tape, int64_t most)
{
    tape->left = most;
    return 1;
}

DG_INLINE int64_t dg_tape_taken(const dg_tape *tape, int64_t most) { return most - tape->left; }

enum { DG_TAPE_LARGE = 1 << 16 }; /* bytes, that are worth recycling */

/* null: there is no memory, or it may not take more */
static DG_UNUSED void *dg_tape_new(dg_tape *tape, size_t head, int64_t bytes)
{
    if (bytes > tape->left)
        return 0;
    tape->left -= bytes;
    return bytes < DG_TAPE_LARGE ? malloc(head + (size_t)bytes) : tape->rt->take(head + (size_t)bytes);
}

static DG_UNUSED void dg_tape_drop(dg_tape *tape, void *memory, int64_t bytes)
{
    if (bytes < DG_TAPE_LARGE)
        free(memory);
    else
        tape->rt->give(memory);
}

DG_INLINE int64_t dg_tape_part_size(const dg_tape_part *part) { return (part->end - part->slots) * (int64_t)sizeof(dg_slot); }

/* not cold: a tape begins with it, and the whole region would be */
static DG_UNUSED __attribute__((noinline)) int dg_tape_next(dg_tape *tape, int64_t slots)
{
    int64_t n = tape->part ? 2 * (tape->part->end - tape->part->slots) : 128;
    if (n > (INT64_C(1) << 22))
        n = INT64_C(1) << 22;
    if (n < slots)
        n = slots;
    dg_tape_part *made = dg_tape_new(tape, sizeof(dg_tape_part), n * (int64_t)sizeof(dg_slot));
    if (!made)
        return 1;
    if (tape->part)
        tape->part->filled = tape->at;
    made->before = tape->part;
    made->end = made->slots + n;
    tape->part = made;
    tape->at = tape->begin = made->slots;
    tape->end = made->end;
    return 0;
}

DG_INLINE int dg_tape_reserve(dg_tape *tape, int64_t slots)
{
    return tape->end - tape->at < slots && dg_tape_next(tape, slots);
}

static DG_UNUSED __attribute__((noinline, cold)) void dg_tape_back(dg_tape *tape)
{
    dg_tape_part *done = tape->part;
    tape->part = done->before;
    tape->at = tape->part->filled;
    tape->begin = tape->part->slots;
    tape->end = tape->part->end;
    dg_tape_drop(tape, done, dg_tape_part_size(done));
}

DG_INLINE void dg_tape_release(dg_tape *tape)
{
    if (tape->at == tape->begin && tape->part->before)
        dg_tape_back(tape);
}

static DG_UNUSED void dg_tape_free(dg_tape *tape)
{
    while (tape->part) {
        dg_tape_part *before = tape->part->before;
        dg_tape_drop(tape, tape->part, dg_tape_part_size(tape->part));
        tape->part = before;
    }
    while (tape->memory) {
        dg_tape_memory *before = tape->memory->before;
        dg_tape_drop(tape, tape->memory, tape->memory->end - tape->memory->bytes);
        tape->memory = before;
    }
}

static DG_UNUSED char *dg_tape_take(dg_tape *tape, int64_t size)
{
    dg_tape_memory *m = tape->memory;
    size = (size + 63) & ~INT64_C(63);
    if (!m || m->end - m->at < size) {
        int64_t room = m ? 2 * (m->end - m->bytes) : 1024;
        if (room > (INT64_C(1) << 20))
            room = INT64_C(1) << 20;
        if (room < size)
            room = size;
        m = dg_tape_new(tape, sizeof(dg_tape_memory), room);
        if (!m)
            return 0;
        m->before = tape->memory;
        m->at = m->bytes;
        m->end = m->bytes + room;
        tape->memory = m;
    }
    char *taken = m->at;
    m->at += size;
    return taken;
}

static DG_UNUSED char *dg_tape_zeros(dg_tape *tape, int64_t size)
{
    char *taken = dg_tape_take(tape, size);
    return taken ? memset(taken, 0, (size_t)size) : 0;
}

/* the way back of what whole arrays go through; `x_d` is where the gradient by x lies */
#define DG_DEFINE_TAPE(suffix, T)                                                                                            \
    /* a copy of a matrix, in C order */                                                                                     \
    static DG_UNUSED char *dg_tape_copy_##suffix(dg_tape *tape, const char *p, int64_t m, int64_t n, int64_t s0, int64_t s1) \
    {                                                                                                                        \
        T *made = (T *)dg_tape_take(tape, m * n * (int64_t)sizeof(T));                                                       \
        if (made)                                                                                                            \
            for (int64_t i = 0; i < m; ++i)                                                                                  \
                for (int64_t j = 0; j < n; ++j)                                                                              \
                    made[i * n + j] = *(const T *)(p + i * s0 + j * s1);                                                     \
        return (char *)made;                                                                                                 \
    }                                                                                                                        \
    /* x_d += factor * y */                                                                                                  \
    static DG_UNUSED int dg_tape_axpy_##suffix(dg_tape *tape, int64_t n, T factor, char *x_d, int64_t xs, const char *y, int64_t ys) \
    {                                                                                                                        \
        (void)tape;                                                                                                          \
        if (xs == sizeof(T) && ys == sizeof(T)) {                                                                            \
            for (int64_t i = 0; i < n; ++i)                                                                                  \
                ((T *)x_d)[i] += factor * ((const T *)y)[i];                                                                 \
        } else {                                                                                                             \
            for (int64_t i = 0; i < n; ++i)                                                                                  \
                *(T *)(x_d + i * xs) += factor * *(const T *)(y + i * ys);                                                   \
        }                                                                                                                    \
        return 1;                                                                                                            \
    }                                                                                                                        \
    /* x_d += what */                                                                                                        \
    static DG_UNUSED int dg_tape_spread_##suffix(dg_tape *tape, T what, char *x_d, int64_t n, int64_t step)                  \
    {                                                                                                                        \
        (void)tape;                                                                                                          \
        for (int64_t i = 0; i < n; ++i)                                                                                      \
            *(T *)(x_d + i * step) += what;                                                                                  \
        return 1;                                                                                                            \
    }                                                                                                                        \
    /* of an extreme: `what` in equal shares to where x, a copy, has it */                                                   \
    static DG_UNUSED int dg_tape_share_##suffix(dg_tape *tape, T what, T extreme, char *x_d, int64_t n, int64_t step, const char *x) \
    {                                                                                                                        \
        int64_t count = 0;                                                                                                   \
        (void)tape;                                                                                                          \
        for (int64_t i = 0; i < n; ++i)                                                                                      \
            count += ((const T *)x)[i] == extreme;                                                                           \
        for (int64_t i = 0; i < n; ++i)                                                                                      \
            if (((const T *)x)[i] == extreme)                                                                                \
                *(T *)(x_d + i * step) += what / (T)count;                                                                   \
        return 1;                                                                                                            \
    }                                                                                                                        \
    /* c_d += g, both in C order */                                                                                          \
    static DG_UNUSED int dg_tape_add_##suffix(dg_tape *tape, char *c_d, const char *g, int64_t n)                            \
    {                                                                                                                        \
        (void)tape;                                                                                                          \
        for (int64_t i = 0; i < n; ++i)                                                                                      \
            ((T *)c_d)[i] += ((const T *)g)[i];                                                                              \
        return 1;                                                                                                            \
    }                                                                                                                        \
    /* of c = a @ b, an m x k and a k x n matrix: a_d += c_d @ b.T, b_d += a.T @ c_d, where they are asked for; c_d is then zero */ \
    static DG_UNUSED int dg_tape_product_##suffix(dg_tape *tape, char *c_d, int64_t m, int64_t n, int64_t k, char *a_d, int64_t ad0, \
                                                  int64_t ad1, char *b_d, int64_t bd0, int64_t bd1, const char *a, int64_t a0, \
                                                  int64_t a1, const char *b, int64_t b0, int64_t b1)                         \
    {                                                                                                                        \
        const T *c = (const T *)c_d;                                                                                         \
        if (a_d)                                                                                                             \
            for (int64_t i = 0; i < m; ++i)                                                                                  \
                for (int64_t p = 0; p < k; ++p) {                                                                            \
                    if (n == 1) {                                                                                            \
                        *(T *)(a_d + i * ad0 + p * ad1) += c[i] * *(const T *)(b + p * b0);                                  \
                        continue;                                                                                            \
                    }                                                                                                        \
                    T sum = 0;                                                                                               \
                    for (int64_t j = 0; j < n; ++j)                                                                          \
                        sum += c[i * n + j] * *(const T *)(b + p * b0 + j * b1);                                             \
                    *(T *)(a_d + i * ad0 + p * ad1) += sum;                                                                  \
                }                                                                                                            \
        if (b_d && n == 1)                                                                                                   \
            for (int64_t i = 0; i < m; ++i)                                                                                  \
                dg_tape_axpy_##suffix(tape, k, c[i], b_d, bd0, a + i * a0, a1);                                              \
        else if (b_d)                                                                                                        \
            for (int64_t i = 0; i < m; ++i)                                                                                  \
                for (int64_t p = 0; p < k; ++p)                                                                              \
                    dg_tape_axpy_##suffix(tape, n, *(const T *)(a + i * a0 + p * a1), b_d + p * bd0, bd1, c_d + i * n * (int64_t)sizeof(T), sizeof(T)); \
        memset(c_d, 0, (size_t)(m * n) * sizeof(T));                                                                         \
        return 1;                                                                                                            \
    }
DG_DEFINE_TAPE(f64, double)
DG_DEFINE_TAPE(f32, float)
