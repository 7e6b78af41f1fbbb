"""Running compiled functions: loading the compiler, cache misses, budgets, failures, signals and forks."""
