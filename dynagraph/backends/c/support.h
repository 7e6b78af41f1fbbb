/* What every generated file needs besides the prelude: launching kernels. */

/* A large file is compiled in several processes, each of which defines some of its functions: function n where DG_HAS_n is 1
   (backends/toolchain.py). */
#ifdef DG_IN_PARTS
#define DG_KERNEL __attribute__((noinline, visibility("hidden")))
#define DG_IS_OTHERS(n) !DG_HAS_##n
#else
#define DG_KERNEL static __attribute__((noinline))
#define DG_IS_OTHERS(n) 0
#endif

/* What does a step of the entry.  An entry of many steps runs each once: copies of these are not worth gcc's time. */
#ifdef DG_LARGE
#define DG_STEP static __attribute__((noinline))
#define DG_ENTRY __attribute__((cold))
#else
#define DG_STEP static inline
#define DG_ENTRY
#endif

/* for what must run to its end: after the first write to an input, or so short that nobody waits for it */
static const int32_t dg_no_signals = 0;
static dg_stop dg_never __attribute__((unused)) = {&dg_no_signals, 0};

/* Ranges take about DG_PART_NANOSECONDS at most: between them the run may stop. */
DG_STEP void dg_launch(const dg_runtime *rt, dg_range kernel, void *const *buffers, const int64_t *sizes, int64_t n,
                       int64_t grain, double nanoseconds, dg_stop *stop)
{
    const double whole = (double)n * nanoseconds;
    if (n <= 0 || dg_stops(stop))
        return;
    if (n > grain && whole > (rt->n_threads > 1 ? DG_PARALLEL_NANOSECONDS : DG_PART_NANOSECONDS))
        rt->parallel(kernel, buffers, sizes, n, grain,
                     whole > DG_PART_NANOSECONDS ? (int64_t)(DG_PART_NANOSECONDS / nanoseconds) : n, stop);
    else
        kernel(buffers, sizes, 0, n, 0, stop);
}
