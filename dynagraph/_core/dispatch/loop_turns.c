/* Turns of loops on the thread pool.  Turns touch places of their own in what they write, which is kept before they run: where one
   of them gives up, all of its block are undone, and the loop itself goes on from there. */
#include "core.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    RANGES = 1024,       /* that threads take of a block */
    MOST_KEPT = 1 << 21, /* bytes of a block, where it has several turns for each thread */
    ATTEMPTS = 256,      /* entries after which it is tried once more whether threads are worth it */
    GROWTH = 16,         /* of a block over the one before */
    ELEMENTS = 64,       /* threads do not share cache lines */
};
static const double BLOCK_NANOSECONDS = 5e6; /* of each thread */

typedef struct {
    const dg_loop_turns *loop;
    const dg_runtime *rt;
    int64_t start, end; /* the block */
    char *kept;
    dg_slot *last; /* results after its last turn */
    int64_t n_ranges, ranges[RANGES][2];
    int64_t done, failed;
} turns_block;

static int64_t nanoseconds(void)
{
    struct timespec time = {0};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* -- where arrays lie ------------------------------------------------------------------------------------------------------ */

/* the bytes from *low to *high; none where it is empty */
static int extent_of(const dg_touched *t, intptr_t *low, intptr_t *high)
{
    *low = (intptr_t)t->data;
    *high = *low + t->itemsize;
    for (int64_t k = 0; k < t->ndim; ++k) {
        if (t->sizes[k] == 0)
            return 0;
        const int64_t span = (t->sizes[k] - 1) * t->strides[k];
        *(span < 0 ? low : high) += span;
    }
    return 1;
}

/* whether no two elements of an array share memory, as its strides show */
static int has_own_elements(const dg_touched *t)
{
    int64_t used = 0, below = 0, span = t->itemsize;
    for (int64_t n = 0; n < t->ndim; ++n) {
        int64_t next = -1;
        for (int64_t k = 0; k < t->ndim; ++k)
            if (!(used >> k & 1) && (next < 0 || llabs(t->strides[k]) < llabs(t->strides[next])))
                next = k;
        used |= INT64_C(1) << next;
        below = llabs(t->strides[next]);
        if (t->sizes[next] > 1 && below < span)
            return 0;
        if (t->sizes[next] > 1)
            span += (t->sizes[next] - 1) * below;
    }
    return 1;
}

/* the indices on its axis that turns lo..hi of a loop write to */
static void part_of(const dg_touched *t, int64_t lo, int64_t hi, int64_t *from, int64_t *to)
{
    const int64_t a = t->first + t->step * lo, b = t->first + t->step * (hi - 1);
    *from = (a < b ? a : b) + t->low;
    *to = (a < b ? b : a) + t->high + 1;
}

/* each array that is written has elements of its own, and all turns stay within it */
static int are_apart(const dg_loop_turns *loop)
{
    for (int64_t k = 0; k < loop->n_written; ++k) {
        const dg_touched *w = &loop->touched[k];
        intptr_t low, high, its_low, its_high;
        int64_t from, to, last;
        if (__builtin_mul_overflow(w->step, loop->n, &last) || __builtin_add_overflow(last, w->first, &last) ||
            llabs(last) > INT64_C(1) << 61 || llabs(w->first) > INT64_C(1) << 61)
            return 0;
        part_of(w, 0, loop->n, &from, &to);
        if (from < 0 || to > w->sizes[w->axis] || !extent_of(w, &low, &high) || !has_own_elements(w))
            return 0;
        for (int64_t j = 0; j < loop->n_touched; ++j)
            if (j != k && extent_of(&loop->touched[j], &its_low, &its_high) && low < its_high && its_low < high)
                return 0;
    }
    return 1;
}

/* -- keeping what is overwritten --------------------------------------------------------------------------------------------- */

/* of one index on the axis */
static int64_t bytes_each(const dg_touched *t)
{
    int64_t bytes = t->itemsize;
    for (int64_t k = 0; k < t->ndim; ++k)
        bytes *= k == t->axis ? 1 : t->sizes[k];
    return bytes;
}

static int64_t bytes_a_turn(const dg_loop_turns *loop)
{
    int64_t bytes = 0;
    for (int64_t k = 0; k < loop->n_written; ++k)
        bytes += bytes_each(&loop->touched[k]) * llabs(loop->touched[k].step);
    return bytes;
}

/* copies the part from..to of the axis from or to `kept`, which moves on behind it */
static char *copy_part(const dg_touched *t, char *data, int64_t axis, int64_t from, int64_t to, char *kept, int back)
{
    const int64_t first = axis == t->axis ? from : 0, n = axis == t->axis ? to - from : t->sizes[axis];
    char *at = data + first * t->strides[axis];
    if (axis < t->ndim - 1) {
        for (int64_t k = 0; k < n; ++k)
            kept = copy_part(t, at + k * t->strides[axis], axis + 1, from, to, kept, back);
        return kept;
    }
    if (t->strides[axis] == t->itemsize)
        memcpy(back ? at : kept, back ? kept : at, (size_t)(n * t->itemsize));
    else
        for (int64_t k = 0; k < n; ++k)
            memcpy(back ? at + k * t->strides[axis] : kept + k * t->itemsize, back ? kept + k * t->itemsize : at + k * t->strides[axis],
                   (size_t)t->itemsize);
    return kept + n * t->itemsize;
}

/* of what turns lo..hi write to, where it has its place among what the block keeps */
static void copy_turns(const turns_block *block, int64_t lo, int64_t hi, int back)
{
    char *kept = block->kept;
    for (int64_t k = 0; k < block->loop->n_written; ++k) {
        const dg_touched *w = &block->loop->touched[k];
        const int64_t each = bytes_each(w) * llabs(w->step), at_once = w->high - w->low + 1 == llabs(w->step) ? hi - lo : 1;
        for (int64_t turn = lo; turn < hi; turn += at_once) {
            int64_t from, to;
            part_of(w, turn, turn + at_once, &from, &to);
            copy_part(w, w->data, 0, from, to, kept + (turn - block->start) * each, back);
        }
        kept += (block->end - block->start) * each;
    }
}

/* -- running ------------------------------------------------------------------------------------------------------------------ */

static void turns_of_range(void *const *buffers, const int64_t *sizes, int64_t lo, int64_t hi, int thread, dg_stop *stop)
{
    turns_block *block = (turns_block *)buffers[0];
    const dg_loop_turns *loop = block->loop;
    (void)sizes, (void)thread;
    if (__atomic_load_n(&block->failed, __ATOMIC_RELAXED))
        return;
    lo += block->start;
    hi += block->start;
    if (loop->keeps) {
        const int64_t number = __atomic_fetch_add(&block->n_ranges, 1, __ATOMIC_RELAXED);
        if (number >= RANGES) {
            __atomic_store_n(&block->failed, 1, __ATOMIC_RELAXED);
            return;
        }
        block->ranges[number][0] = lo;
        block->ranges[number][1] = hi;
        copy_turns(block, lo, hi, 0);
    }
    dg_slot state[loop->n_slots];
    memcpy(state, loop->given, (size_t)loop->n_given * sizeof *state);
    state[0].i = lo;
    state[1].i = hi;
    state[2].i = hi == block->end;
    const int32_t left = loop->code(state, block->rt, stop);
    if (left == 0) {
        __atomic_store_n(&block->failed, 1, __ATOMIC_RELAXED);
        return;
    }
    if (left == 1)
        memcpy(block->last, state + 1, (size_t)(loop->n_results - 1) * sizeof *state);
    __atomic_fetch_add(&block->done, hi - lo, __ATOMIC_RELAXED);
}

/* whether all turns of the block are done: else none is.  Where nothing is kept a signal waits until it ends. */
static int run_block(turns_block *block, int on_threads, const dg_stop *stop)
{
    static const int32_t no_signals = 0;
    dg_stop own = {.signals = block->loop->keeps ? stop->signals : &no_signals};
    void *buffers[] = {block};
    const int64_t n = block->end - block->start;
    block->n_ranges = block->done = block->failed = 0;
    if (on_threads)
        block->rt->parallel(turns_of_range, buffers, 0, n, n >= GROWTH * ELEMENTS * block->rt->n_threads ? ELEMENTS : 1, n, &own);
    else
        turns_of_range(buffers, 0, 0, n, 0, &own);
    if (block->done == n) {
        memcpy(block->loop->results + 1, block->last, (size_t)(block->loop->n_results - 1) * sizeof *block->last);
        return 1;
    }
    for (int64_t k = 0; k < block->n_ranges && k < RANGES; ++k)
        copy_turns(block, block->ranges[k][0], block->ranges[k][1], 1);
    return 0;
}

static void not_worth(dg_worth *worth, int64_t least, int64_t most_skipped)
{
    __atomic_store_n(&worth->least, least, __ATOMIC_RELAXED);
    __atomic_store_n(&worth->most_skipped, most_skipped, __ATOMIC_RELAXED);
    __atomic_store_n(&worth->skipped, 0, __ATOMIC_RELAXED);
}

static int64_t at_most(int64_t a, double b) { return b < (double)a ? (b < 1 ? 1 : (int64_t)b) : a; }

/* Blocks grow while they are short.  How many turns are done, and what variables are then, lies in the loop's results. */
void dg_run_turns(const dg_runtime *rt, dg_stop *stop, dg_worth *worth, const dg_loop_turns *loop)
{
    dg_slot last[loop->n_results];
    turns_block block = {.loop = loop, .rt = rt, .last = last};
    const int64_t each = loop->keeps ? bytes_a_turn(loop) : 0, n = loop->n;
    int64_t done = 0, turns = 1, room = 0, on_threads = 0, used_threads = 0, stopped = 0;
    /* to undo a block is to write to all of some indices of an axis: others may write there, too */
    if ((loop->keeps && !stop->alone) || !are_apart(loop)) {
        loop->results[0].i = 0;
        return;
    }
    while (done < n && !stopped) {
        block.start = done;
        block.end = turns < n - done ? done + turns : n;
        if ((block.end - block.start) * each > room) {
            free(block.kept);
            room = (block.end - block.start) * each;
            if (!(block.kept = malloc((size_t)room)))
                break;
        }
        int64_t began = nanoseconds();
        stopped = !run_block(&block, on_threads, stop);
        if (stopped) {
            if (!__atomic_load_n(stop->signals, __ATOMIC_RELAXED))
                not_worth(worth, INT64_MAX, worth->least == INT64_MAX ? 2 * worth->most_skipped + 1 : 1);
            break;
        }
        const int64_t took = nanoseconds() - began;
        done = block.end;
        const double a_turn = (double)took * (on_threads ? rt->n_threads : 1) / (double)(block.end - block.start);
        turns = block.end - block.start;
        on_threads = took >= loop->look_ns && a_turn * (double)(n - done) >= loop->parallel_ns;
        used_threads |= on_threads;
        const int64_t fitting = MOST_KEPT / (each + 1), least = GROWTH * rt->n_threads;
        turns = at_most(GROWTH * turns, (on_threads ? rt->n_threads : 1) * BLOCK_NANOSECONDS / (a_turn + 1));
        turns = turns > fitting ? (fitting > least ? fitting : (turns < least ? turns : least)) : turns;
        /* where it holds the GIL, others have their turn now and then */
        stopped = (stop->turns_left -= took) < 0 || __atomic_load_n(stop->signals, __ATOMIC_RELAXED);
    }
    if (done == n && !used_threads)
        not_worth(worth, 2 * n, ATTEMPTS);
    free(block.kept);
    loop->results[0].i = done;
}
