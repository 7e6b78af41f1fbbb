/* The thread pool: workers spin a little, then sleep.  Fork-safe: a child starts workers of its own when it needs them.

   One region runs at a time.  A caller that finds the pool busy (another Python thread, or a nested call) runs its range
   serially rather than wait.

   Where more threads want to run than there are processors, a worker may hold a part while the system runs something else.  The caller
   does all other parts meanwhile; then it has that worker moved to its own processor, and sleeps.  A worker that was left on the
   caller's processor is moved off it before the next region, where it would only take turns with the caller. */
#define _GNU_SOURCE
#include "core.h"
#include "../products/conv.h"
#include "../products/pool.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

enum {
    MAX_THREADS = 64,
    PARTS = 4,           /* of a share */
    PAUSES = 32,         /* of one that waits, between looks at the clock */
    WORKER_NS = 50000,   /* a worker waits so long before it sleeps: the next region is often near */
    CALLER_NS = 20000,   /* the caller waits so long, and as long as a part takes, for the parts of others before it sleeps */
    CALLER_MOST = 500000,
};

#if defined(__x86_64__) || defined(__i386__)
#define PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define PAUSE() __asm__ volatile("yield")
#else
#define PAUSE() ((void)0)
#endif

/* A region of n iterations is dealt out in shares, one for each thread, and a share is a few parts, which are claimed one by one:
   whoever is through with its own share goes on with those of others, so that no region waits for a thread that the machine does
   not run just now. */
typedef struct {
    dg_range kernel;
    void *const *buffers;
    const int64_t *sizes;
    int64_t n, share, part; /* iterations */
    int threads;
    dg_stop *stop;
} region;

typedef struct {
    _Atomic uint64_t left; /* the region's generation << 32 | how many parts nobody has claimed */
    char padding[56];      /* a cache line of its own */
} share;

enum { OWN, MOVED, CHANGES };
typedef struct {
    _Atomic int tid;
    _Atomic int cpu;   /* where it ran last; -1: unknown */
    _Atomic int moved; /* whose its affinity is: OWN... */
#ifdef __linux__
    cpu_set_t affinity; /* its own one, if it was moved */
#endif
    uint32_t started_at; /* the generation when it was made: it takes part from the next one on */
    char padding[64];
    _Atomic int works; /* on a part: on a cache line that nobody else reads before all parts are claimed */
    char more_padding[64];
} worker_state;

static struct {
    pthread_mutex_t busy; /* held by the caller whose region runs */
    _Atomic uint32_t generation;
    _Atomic int sleeping; /* workers */
    char padding[64];
    _Atomic uint32_t pending; /* parts that are not done yet */
    _Atomic int caller_sleeps;
    int workers; /* started in this process */
    region region;
    worker_state states[MAX_THREADS + 1]; /* 0: the caller */
    share shares[MAX_THREADS];
} pool = {.busy = PTHREAD_MUTEX_INITIALIZER};

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* -- sleep ------------------------------------------------------------------------------------------------------------------- */

#ifdef __linux__
/* returns after wake_all, at once where the word has another value, and sometimes for no reason */
static void sleep_while(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}
#else
static pthread_mutex_t sleep_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t sleep_ends = PTHREAD_COND_INITIALIZER;

static void sleep_while(_Atomic uint32_t *word, uint32_t value)
{
    pthread_mutex_lock(&sleep_lock);
    if (atomic_load(word) == value)
        pthread_cond_wait(&sleep_ends, &sleep_lock);
    pthread_mutex_unlock(&sleep_lock);
}

static void wake_all(_Atomic uint32_t *word)
{
    pthread_mutex_lock(&sleep_lock);
    pthread_cond_broadcast(&sleep_ends);
    pthread_mutex_unlock(&sleep_lock);
}
#endif

/* until the word has another value, for some nanoseconds at most; gives the value */
static uint32_t spin_while(_Atomic uint32_t *word, uint32_t value, int64_t nanoseconds)
{
    const int64_t end = now() + nanoseconds;
    uint32_t seen;
    do
        for (int k = 0; k < PAUSES; ++k) {
            if ((seen = atomic_load_explicit(word, memory_order_acquire)) != value)
                return seen;
            PAUSE();
        }
    while (now() < end);
    return seen;
}

/* -- processors of workers --------------------------------------------------------------------------------------------------- */

#ifdef __linux__
static int this_cpu(void) { return sched_getcpu(); }

/* A worker goes to the processor `cpu`, or off it, until it is back from its region.  Not the caller: its affinity is not ours. */
static void move(worker_state *w, int cpu, int off)
{
    int was = atomic_load(&w->moved);
    if (was == CHANGES || !atomic_compare_exchange_strong(&w->moved, &was, CHANGES))
        return;
    cpu_set_t set;
    if (was == OWN && sched_getaffinity(atomic_load(&w->tid), sizeof w->affinity, &w->affinity) != 0)
        CPU_ZERO(&w->affinity);
    set = w->affinity;
    if (cpu < CPU_SETSIZE && CPU_ISSET(cpu, &set) && CPU_COUNT(&set) > 1) {
        was = MOVED;
        if (off)
            CPU_CLR(cpu, &set);
        else {
            CPU_ZERO(&set);
            CPU_SET(cpu, &set);
        }
        sched_setaffinity(atomic_load(&w->tid), sizeof set, &set);
    }
    atomic_store(&w->moved, was);
}

static void back(worker_state *w)
{
    int was = MOVED;
    if (atomic_load_explicit(&w->moved, memory_order_relaxed) == MOVED &&
        atomic_compare_exchange_strong(&w->moved, &was, CHANGES)) {
        sched_setaffinity(0, sizeof w->affinity, &w->affinity);
        atomic_store(&w->moved, OWN);
    }
}
#else
static int this_cpu(void) { return -1; }
static void move(worker_state *w, int cpu, int off) {}
static void back(worker_state *w) {}
#endif

/* -- regions ----------------------------------------------------------------------------------------------------------------- */

/* How many parts were left of the share, the first of which is the caller's now; 0: none, or the region has ended.  One who gets a
   part has read the right region if it saw the generation before: no region ends, and none is written, while parts are left. */
static int64_t claim(uint32_t generation, int share)
{
    _Atomic uint64_t *left = &pool.shares[share].left;
    uint64_t seen = atomic_load_explicit(left, memory_order_relaxed);
    while ((uint32_t)(seen >> 32) == generation && (uint32_t)seen > 0)
        if (atomic_compare_exchange_weak(left, &seen, seen - 1))
            return (int64_t)(uint32_t)seen;
    return 0;
}

/* gives how many parts it did */
static int64_t take_part(const region *what, uint32_t generation, int thread)
{
    const int64_t n_parts = (what->share + what->part - 1) / what->part;
    int64_t left, done = 0;
    worker_state *me = &pool.states[thread];
    for (int k = 0; k < what->threads; ++k) {
        int share = (thread + k) % what->threads;
        while ((left = claim(generation, share)) > 0) {
            atomic_store_explicit(&me->works, 1, memory_order_relaxed);
            int64_t end = what->share * (share + 1) < what->n ? what->share * (share + 1) : what->n;
            int64_t lo = what->share * share + what->part * (n_parts - left), hi = lo + what->part < end ? lo + what->part : end;
            if (lo < hi && !dg_stops(what->stop))
                what->kernel(what->buffers, what->sizes, lo, hi, thread, what->stop);
            ++done;
            atomic_store_explicit(&me->works, 0, memory_order_relaxed);
            if (atomic_fetch_sub(&pool.pending, 1) == 1 && thread && atomic_load(&pool.caller_sleeps))
                wake_all(&pool.pending);
        }
    }
    return done;
}

/* gives the generation that came after `seen` */
static uint32_t wait_for_region(uint32_t seen)
{
    uint32_t generation = spin_while(&pool.generation, seen, WORKER_NS);
    if (generation != seen)
        return generation;
    atomic_fetch_add(&pool.sleeping, 1);
    while ((generation = atomic_load(&pool.generation)) == seen)
        sleep_while(&pool.generation, seen);
    atomic_fetch_sub(&pool.sleeping, 1);
    return generation;
}

static void *worker(void *argument)
{
    int thread = (int)(intptr_t)argument;
    worker_state *me = &pool.states[thread];
    uint32_t generation = me->started_at;
#ifdef __linux__
    atomic_store(&me->tid, (int)syscall(SYS_gettid));
#endif
    for (;;) {
        generation = wait_for_region(generation);
        /* It may be over by now and the next one in the making: nothing can be claimed then, and what was read goes unused. */
        region what = pool.region;
        back(me);
        if (thread < what.threads)
            take_part(&what, generation, thread);
        back(me);
        const int cpu = this_cpu();
        if (atomic_load_explicit(&me->cpu, memory_order_relaxed) != cpu)
            atomic_store_explicit(&me->cpu, cpu, memory_order_relaxed);
    }
    return NULL;
}

/* Before a region: workers leave the caller's processor. */
static void spread(int threads)
{
    const int here = this_cpu();
    for (int k = 1; k < threads && here >= 0; ++k)
        if (atomic_load_explicit(&pool.states[k].cpu, memory_order_relaxed) == here) {
            atomic_store_explicit(&pool.states[k].cpu, -1, memory_order_relaxed);
            move(&pool.states[k], here, 1);
        }
}

/* The caller has done what it could, parts of which took so long. */
static void wait_for_others(int threads, int64_t part_ns)
{
    int64_t most = CALLER_NS + part_ns;
    uint32_t left = atomic_load_explicit(&pool.pending, memory_order_acquire), before = left;
    while (left) {
        left = spin_while(&pool.pending, before, most < CALLER_MOST ? most : CALLER_MOST);
        if (left == before)
            break;
        before = left;
    }
    if (!left)
        return;
    atomic_store(&pool.caller_sleeps, 1);
    const int here = this_cpu();
    for (int k = 1; k < threads && here >= 0; ++k)
        if (atomic_load_explicit(&pool.states[k].works, memory_order_relaxed)) {
            move(&pool.states[k], here, 0);
            break; /* one after the other */
        }
    while ((left = atomic_load(&pool.pending)) != 0)
        sleep_while(&pool.pending, left);
    atomic_store(&pool.caller_sleeps, 0);
}

/* starts the workers that are missing; gives how many there are */
static int start_workers(int wanted)
{
    pthread_attr_t attributes;
    if (pool.workers >= wanted || pthread_attr_init(&attributes) != 0)
        return pool.workers;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    while (pool.workers < wanted) {
        pthread_t thread;
        worker_state *state = &pool.states[pool.workers + 1];
        state->started_at = atomic_load(&pool.generation);
        atomic_store(&state->cpu, -1);
        if (pthread_create(&thread, &attributes, worker, (void *)(intptr_t)(pool.workers + 1)) != 0)
            break;
        ++pool.workers;
    }
    pthread_attr_destroy(&attributes);
    return pool.workers;
}

static int64_t round_up(int64_t n, int64_t grain)
{
    return (n + grain - 1) / grain * grain;
}

static void serially(dg_range kernel, void *const *buffers, const int64_t *sizes, int64_t n, int64_t part, dg_stop *stop)
{
    for (int64_t lo = 0; lo < n && !dg_stops(stop); lo += part)
        kernel(buffers, sizes, lo, part < n - lo ? lo + part : n, 0, stop);
}

static void parallel(dg_range kernel, void *const *buffers, const int64_t *sizes, int64_t n, int64_t grain, int64_t most, dg_stop *stop)
{
    if (n < 1)
        return;
    if (grain < 1)
        grain = 1;
    most = most < grain ? grain : most < n ? round_up(most, grain) : n;
    const int there_are = __atomic_load_n(&dg_the_runtime.n_threads, __ATOMIC_RELAXED);
    int threads = stop->threads && stop->threads < there_are ? stop->threads : there_are;
    if ((n + grain - 1) / grain < threads)
        threads = (int)((n + grain - 1) / grain);
    if (threads < 2 || pthread_mutex_trylock(&pool.busy) != 0) {
        serially(kernel, buffers, sizes, n, most, stop);
        return;
    }
    int workers = start_workers(there_are - 1);
    if (workers < 1) {
        pthread_mutex_unlock(&pool.busy);
        serially(kernel, buffers, sizes, n, most, stop);
        return;
    }
    threads = workers + 1 < threads ? workers + 1 : threads;
    int64_t share = round_up((n + threads - 1) / threads, grain), part = round_up((share + PARTS - 1) / PARTS, grain);
    part = part < most ? part : most;
    pool.region = (region){kernel, buffers, sizes, n, share, part, threads, stop};
    uint32_t generation = atomic_load(&pool.generation) + 1;
    const uint32_t n_parts = (uint32_t)((share + part - 1) / part);
    atomic_store(&pool.pending, n_parts * (uint32_t)threads);
    for (int k = 0; k < threads; ++k)
        atomic_store(&pool.shares[k].left, (uint64_t)generation << 32 | n_parts);
    spread(threads);
    atomic_store(&pool.generation, generation);
    if (atomic_load(&pool.sleeping))
        wake_all(&pool.generation);
    const int64_t start = now(), done = take_part(&pool.region, generation, 0);
    if (atomic_load_explicit(&pool.pending, memory_order_acquire))
        wait_for_others(threads, done ? (now() - start) / done : 0);
    pthread_mutex_unlock(&pool.busy);
}

dg_runtime dg_the_runtime = {.version = DG_RUNTIME_VERSION, .n_threads = 1, .parallel = parallel, .external_call = dg_external_call,
                             .run_turns = dg_run_turns,
                             .take = dg_pool_take, .give = dg_pool_give, .multiply = dg_multiply_matrices, .convolve = dg_convolve,
                             .pool = dg_pool};

/* -- how many threads ------------------------------------------------------------------------------------------------------ */

/* the processors that a cgroup (v2) may use at a time; a quota of "max" is none */
static int quota_of(const char *folder)
{
    char path[4200];
    long long quota = 0, period = 0;
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", folder);
    FILE *file = fopen(path, "r");
    int found = file && fscanf(file, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0;
    if (file)
        fclose(file);
    return found && quota / period < MAX_THREADS ? (int)((quota + period - 1) / period) : MAX_THREADS;
}

/* the least quota of this process's cgroup and those around it */
static int from_cgroup(void)
{
    char line[4096], folder[4096] = "";
    FILE *file = fopen("/proc/self/cgroup", "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, "0::/", 4) == 0)
            strcpy(folder, line + 3);
    if (file)
        fclose(file);
    folder[strcspn(folder, "\n")] = 0;
    int least = quota_of("");
    for (char *end; (end = strrchr(folder, '/')) != NULL; *end = 0) {
        int quota = quota_of(folder);
        least = quota < least ? quota : least;
    }
    return least;
}

static int processors(void)
{
    int n = 1;
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        n = CPU_COUNT(&set);
    else /* more processors than the set has room for */
#endif
    {
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        n = online > 0 ? (int)online : 1;
    }
    int quota = from_cgroup();
    n = quota < n ? quota : n;
    return n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : n;
}

void dg_threads_set(int n)
{
    if (n <= 0)
        n = processors();
    __atomic_store_n(&dg_the_runtime.n_threads, n > MAX_THREADS ? MAX_THREADS : n, __ATOMIC_RELAXED);
}

/* -- fork ------------------------------------------------------------------------------------------------------------------ */

static void in_child(void)
{
    /* the workers did not come along, and whoever held the locks is not here */
    pthread_mutex_init(&pool.busy, NULL);
#ifndef __linux__
    pthread_mutex_init(&sleep_lock, NULL);
    pthread_cond_init(&sleep_ends, NULL);
#endif
    atomic_store(&pool.sleeping, 0);
    atomic_store(&pool.pending, 0);
    atomic_store(&pool.caller_sleeps, 0);
    memset(pool.states, 0, sizeof pool.states);
    pool.workers = 0;
}

int dg_threads_start(void)
{
    dg_threads_set(0);
    return pthread_atfork(NULL, NULL, in_child);
}
