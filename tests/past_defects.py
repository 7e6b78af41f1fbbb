"""Defects of the past, and the tests that prove each mended: these run in every `make test`, whatever is sampled.

One row a line: the defect, then the ids of its tests; without parameters an id stands for all cases of a test.
"""

from __future__ import annotations

DEFECTS: dict[str, tuple[str, ...]] = {
    "gcc 12 takes 512-bit vectors of constant arrays for others": ("tests/backends/test_c_backend.py::test_constant_arrays_of_repeating_patterns",),
    "gcc 12 makes wrong code of short loops with conditional loads": ("tests/backends/test_c_backend.py::test_conditions_within_conditions",),
    "gcc 12 makes wrong code of masked loads under conditions in strides": ("tests/backends/test_c_backend.py::test_conditions_in_strides",),
    "gcc 12 vectorises straight-line code wrongly": ("tests/backends/test_c_backend.py::test_short_loops_that_read_from_other_places_in_each_turn",),
    "gcc 12 loses a lane of sums of known lengths": ("tests/backends/test_c_backend.py::test_sums_of_known_lengths_lose_no_lane",),
    "gcc 12 drops calls of functions that store": ("tests/backends/test_cache_and_compiler.py::test_calls_of_kernels_are_not_dropped",),
    "gradients of call-outs, complex numbers and extremes": ("tests/backends/test_c_backend.py::test_gradients_of_calls_and_of_complex_numbers",),
    "zero less what is never -0.0 was -0.0": ("tests/backends/test_constant_operands.py::test_zero_less_what_is_never_negative_zero",),
    "kernels opened as /proc/self/fd/N ran others' code": ("tests/backends/test_loading.py::test_closing_all_descriptors_harms_nothing",),
    "a compiler that hangs hung the process": ("tests/backends/test_cache_and_compiler.py::test_a_compiler_that_hangs_is_stopped_with_its_helpers",),
    "a compiler's probe was read unverified": ("tests/backends/test_cache_and_compiler.py::test_what_is_kept_of_a_compiler_cannot_be_forged_or_damaged",),
    "a region waited for a thread that the machine did not run": ("tests/core/test_thread_pool.py::test_nobody_waits_for_what_a_slow_thread_has_not_begun",),
    "a finalizer changed what was guarded during capture": ("tests/behaviours/test_coexistence.py::test_a_finalizer_that_changes_what_is_guarded_while_it_is_captured",),
    "methods in C that outlive a break crashed CPython": ("tests/frontend/test_methods_across_breaks.py::test_a_method_outlives_a_break",),
    "powers that overflow in a try": ("tests/frontend/test_changing_numbers.py::test_what_the_code_catches_is_not_raised",),
    "quotients of ints that no float is": ("tests/frontend/test_changing_numbers.py::test_quotients_of_integers_that_no_float_is",),
    "results of gradients that could not be written": ("tests/gradients/test_transformations.py::test_what_is_returned_of_an_argument_may_be_written_to",),
    "bounds of expressions of sizes were too small": ("tests/ir/test_intexpr.py::test_no_value_is_above_the_magnitude",),
    "tracebacks of equal code named another file": ("tests/behaviours/test_exceptions.py::test_tracebacks_of_equal_functions_of_two_files",),
    "operators on ints that change": ("tests/behaviours/test_guards.py::test_operators_on_ints_that_change",),
    "a forked child called kernels of CuPy's arrays": ("tests/cuda/test_launch.py::test_a_forked_child_is_told_so",),
    "an endless chain of tails could not be interrupted": ("tests/core/test_tails.py::test_an_endless_chain_can_be_interrupted",),
    "products of a matrix with its transpose had other bits": ("tests/door/test_linalg.py::test_products_of_a_matrix_with_its_transpose_are_numpys_bit_for_bit",),
    "vectors multiplied by another routine than NumPy's": ("tests/door/test_linalg.py::test_products_take_the_routines_that_numpys_take",),
}
PROOFS = frozenset(proof for proofs in DEFECTS.values() for proof in proofs)
