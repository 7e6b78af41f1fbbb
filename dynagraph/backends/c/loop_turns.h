/* Whether turns of a loop are handed to `run_turns` of the runtime: where there are threads, and earlier runs have not shown that so
   few are not worth it. */
DG_INLINE int dg_may_run_turns(const dg_runtime *rt, dg_worth *worth, int64_t n)
{
    if (rt->n_threads < 2)
        return 0;
    if (__builtin_expect(n >= __atomic_load_n(&worth->least, __ATOMIC_RELAXED), 1))
        return 1;
    int64_t skipped = __atomic_load_n(&worth->skipped, __ATOMIC_RELAXED) + 1;
    int again = skipped > __atomic_load_n(&worth->most_skipped, __ATOMIC_RELAXED);
    __atomic_store_n(&worth->skipped, again ? 0 : skipped, __ATOMIC_RELAXED);
    return again;
}
