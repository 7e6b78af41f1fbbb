/* The thread pool: spin a little, then sleep.  Fork-safe: a child starts workers of its own when it needs them.

   One region runs at a time.  A caller that finds the pool busy (another Python thread, or a nested call) runs its range
   serially rather than wait. */
#define _GNU_SOURCE
#include "core.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

enum {
    MAX_THREADS = 64,
    PARTS = 4,    /* of a share */
    PAUSES = 500, /* of one that waits, before it lets other threads run */
    YIELDS = 100, /* of a worker, before it sleeps: the threads of BLAS wait for their work in the same way */
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
    _Atomic uint64_t claims; /* the region's generation << 32 | how many parts are claimed */
    char padding[56];        /* a cache line of its own */
} share;

static struct {
    pthread_mutex_t busy; /* held by the caller whose region runs */
    pthread_mutex_t sleep;
    pthread_cond_t wake;
    _Atomic uint32_t generation;
    _Atomic int64_t pending; /* parts that are not done yet */
    _Atomic int sleeping;
    int workers; /* started in this process */
    uint32_t started_at[MAX_THREADS + 1]; /* the generation when a worker was made: it takes part from the next one on */
    region region;
    share shares[MAX_THREADS];
} pool = {.busy = PTHREAD_MUTEX_INITIALIZER, .sleep = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

/* -1 where all parts of the share are claimed, or the region has ended */
static int64_t claim(uint32_t generation, int share, int64_t n_parts)
{
    _Atomic uint64_t *claims = &pool.shares[share].claims;
    uint64_t seen = atomic_load_explicit(claims, memory_order_relaxed);
    while ((uint32_t)(seen >> 32) == generation && (int64_t)(uint32_t)seen < n_parts)
        if (atomic_compare_exchange_weak(claims, &seen, seen + 1))
            return (int64_t)(uint32_t)seen;
    return -1;
}

static void take_part(const region *what, uint32_t generation, int thread)
{
    int64_t n_parts = (what->share + what->part - 1) / what->part, part;
    for (int k = 0; k < what->threads; ++k) {
        int share = (thread + k) % what->threads;
        while ((part = claim(generation, share, n_parts)) >= 0) {
            int64_t end = what->share * (share + 1) < what->n ? what->share * (share + 1) : what->n;
            int64_t lo = what->share * share + what->part * part, hi = lo + what->part < end ? lo + what->part : end;
            if (lo < hi && !dg_stops(what->stop))
                what->kernel(what->buffers, what->sizes, lo, hi, thread, what->stop);
            atomic_fetch_sub_explicit(&pool.pending, 1, memory_order_release);
        }
    }
}

/* gives the generation that came after `seen` */
static uint32_t wait_for_region(uint32_t seen)
{
    uint32_t generation;
    for (int k = 0; k < PAUSES + YIELDS; ++k) {
        if ((generation = atomic_load_explicit(&pool.generation, memory_order_acquire)) != seen)
            return generation;
        if (k < PAUSES)
            PAUSE();
        else
            sched_yield();
    }
    pthread_mutex_lock(&pool.sleep);
    atomic_fetch_add(&pool.sleeping, 1);
    while ((generation = atomic_load(&pool.generation)) == seen)
        pthread_cond_wait(&pool.wake, &pool.sleep);
    atomic_fetch_sub(&pool.sleeping, 1);
    pthread_mutex_unlock(&pool.sleep);
    return generation;
}

static void *worker(void *argument)
{
    int thread = (int)(intptr_t)argument;
    uint32_t generation = pool.started_at[thread];
    for (;;) {
        generation = wait_for_region(generation);
        /* It may be over by now and the next one in the making: nothing of it can be claimed then, and what was read goes unused. */
        region what = pool.region;
        if (thread < what.threads)
            take_part(&what, generation, thread);
    }
    return NULL;
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
        pool.started_at[pool.workers + 1] = atomic_load(&pool.generation);
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
    int threads = dg_the_runtime.n_threads;
    if ((n + grain - 1) / grain < threads)
        threads = (int)((n + grain - 1) / grain);
    if (threads < 2 || pthread_mutex_trylock(&pool.busy) != 0) {
        serially(kernel, buffers, sizes, n, most, stop);
        return;
    }
    int workers = start_workers(dg_the_runtime.n_threads - 1);
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
    atomic_store(&pool.pending, threads * ((share + part - 1) / part));
    for (int k = 0; k < threads; ++k)
        atomic_store(&pool.shares[k].claims, (uint64_t)generation << 32);
    atomic_store(&pool.generation, generation);
    if (atomic_load(&pool.sleeping)) {
        pthread_mutex_lock(&pool.sleep);
        pthread_cond_broadcast(&pool.wake);
        pthread_mutex_unlock(&pool.sleep);
    }
    take_part(&pool.region, generation, 0);
    for (int k = 0; atomic_load_explicit(&pool.pending, memory_order_acquire) != 0; ++k) {
        if (k < PAUSES)
            PAUSE();
        else
            sched_yield();
    }
    pthread_mutex_unlock(&pool.busy);
}

dg_runtime dg_the_runtime = {.version = DG_RUNTIME_VERSION, .n_threads = 1, .parallel = parallel, .external_call = dg_external_call,
                             .run_turns = dg_run_turns,
                             .take = dg_pool_take, .give = dg_pool_give, .multiply = dg_multiply_matrices};

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
    dg_the_runtime.n_threads = n > MAX_THREADS ? MAX_THREADS : n;
}

/* -- fork ------------------------------------------------------------------------------------------------------------------ */

static void in_child(void)
{
    /* the workers did not come along, and whoever held the locks is not here */
    pthread_mutex_init(&pool.busy, NULL);
    pthread_mutex_init(&pool.sleep, NULL);
    pthread_cond_init(&pool.wake, NULL);
    atomic_store(&pool.sleeping, 0);
    atomic_store(&pool.pending, 0);
    pool.workers = 0;
}

int dg_threads_start(void)
{
    dg_threads_set(0);
    return pthread_atfork(NULL, NULL, in_child);
}
