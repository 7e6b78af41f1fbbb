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

enum { MAX_THREADS = 64, SPINS = 4000 };

#if defined(__x86_64__) || defined(__i386__)
#define PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define PAUSE() __asm__ volatile("yield")
#else
#define PAUSE() ((void)0)
#endif

static struct {
    pthread_mutex_t busy;      /* held by the caller whose region runs */
    pthread_mutex_t sleep;
    pthread_cond_t wake;
    _Atomic uint32_t generation, pending;
    _Atomic int sleeping;
    int workers; /* started in this process */
    uint32_t started_at[MAX_THREADS + 1]; /* the generation when a worker was made: it takes part from the next one on */
    dg_range kernel;
    void *const *buffers;
    const int64_t *sizes;
    int64_t n, chunk;
} pool = {.busy = PTHREAD_MUTEX_INITIALIZER, .sleep = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static void run_part(int thread)
{
    int64_t lo = pool.chunk * thread, hi = lo + pool.chunk;
    if (hi > pool.n)
        hi = pool.n;
    if (lo < hi)
        pool.kernel(pool.buffers, pool.sizes, lo, hi, thread);
}

static void *worker(void *argument)
{
    int thread = (int)(intptr_t)argument;
    uint32_t seen = pool.started_at[thread];
    for (;;) {
        int spins = SPINS;
        while (atomic_load_explicit(&pool.generation, memory_order_acquire) == seen) {
            if (spins-- > 0) {
                PAUSE();
                continue;
            }
            pthread_mutex_lock(&pool.sleep);
            atomic_fetch_add(&pool.sleeping, 1);
            while (atomic_load(&pool.generation) == seen)
                pthread_cond_wait(&pool.wake, &pool.sleep);
            atomic_fetch_sub(&pool.sleeping, 1);
            pthread_mutex_unlock(&pool.sleep);
        }
        ++seen;
        run_part(thread);
        atomic_fetch_sub_explicit(&pool.pending, 1, memory_order_release);
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

static void parallel(dg_range kernel, void *const *buffers, const int64_t *sizes, int64_t n, int64_t grain)
{
    if (grain < 1)
        grain = 1;
    int threads = dg_the_runtime.n_threads;
    if ((n + grain - 1) / grain < threads)
        threads = (int)((n + grain - 1) / grain);
    if (threads < 2 || pthread_mutex_trylock(&pool.busy) != 0) {
        kernel(buffers, sizes, 0, n, 0);
        return;
    }
    int workers = start_workers(dg_the_runtime.n_threads - 1);
    if (workers < 1) {
        pthread_mutex_unlock(&pool.busy);
        kernel(buffers, sizes, 0, n, 0);
        return;
    }
    int parts = workers + 1 < threads ? workers + 1 : threads;
    int64_t chunk = (n + parts - 1) / parts;
    pool.chunk = (chunk + grain - 1) / grain * grain;
    pool.kernel = kernel;
    pool.buffers = buffers;
    pool.sizes = sizes;
    pool.n = n;
    atomic_store(&pool.pending, (uint32_t)workers);
    atomic_fetch_add(&pool.generation, 1);
    if (atomic_load(&pool.sleeping)) {
        pthread_mutex_lock(&pool.sleep);
        pthread_cond_broadcast(&pool.wake);
        pthread_mutex_unlock(&pool.sleep);
    }
    run_part(0);
    for (int spins = 0; atomic_load_explicit(&pool.pending, memory_order_acquire) != 0; ++spins) {
        if (spins < SPINS)
            PAUSE();
        else
            sched_yield();
    }
    pthread_mutex_unlock(&pool.busy);
}

dg_runtime dg_the_runtime = {.version = DG_RUNTIME_VERSION, .n_threads = 1, .parallel = parallel, .call_out = dg_call_out};

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
