/* Arithmetic of graphs and of native loops. */

/* A product that is rounded before anything is subtracted from it.  Where some lanes of a vector subtract and others add, gcc from 12 on
   makes one operation of both and the product, which then is not rounded, although -ffp-contract=off forbids it. */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define DG_ROUNDED(x) __builtin_assoc_barrier(x)
#else
#define DG_ROUNDED(x) (x)
#endif

#define DG_INLINE static inline __attribute__((always_inline, unused))
