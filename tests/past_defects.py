"""Defects of the past, and the tests that prove each mended: these run in every `make test`, whatever is sampled.

One row a line: the defect, then the ids of its tests; without parameters an id stands for all cases of a test.
"""

from __future__ import annotations

DEFECTS: dict[str, tuple[str, ...]] = {
    "gcc 12 takes 512-bit vectors of constant arrays for others": ("tests/backends/test_c_backend.py::test_constant_arrays_of_repeating_patterns",),
    "gcc 12 makes wrong code of short loops with conditional loads": ("tests/backends/test_c_backend.py::test_conditions_within_conditions",),
    "gcc 12 makes wrong code of masked loads under conditions in strides": ("tests/backends/test_c_backend.py::test_conditions_in_strides",),
    "gcc 12 loses rows where it sinks loads into conditions": ("tests/backends/test_c_backend.py::test_sums_of_few_columns_under_conditions",),
    "gcc 12 vectorises straight-line code wrongly": ("tests/backends/test_c_backend.py::test_short_loops_that_read_from_other_places_in_each_turn",),
    "gcc 12 loses a lane of sums of known lengths": ("tests/backends/test_c_backend.py::test_sums_of_known_lengths_lose_no_lane",),
    "gcc 12 drops calls of functions that store": ("tests/backends/test_cache_and_compiler.py::test_calls_of_kernels_are_not_dropped",),
    "gradients of external calls, complex numbers and extremes": ("tests/backends/test_c_backend.py::test_gradients_of_calls_and_of_complex_numbers",),
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
    "products of a matrix with its transpose had other bits": ("tests/doors/test_linalg.py::test_products_of_a_matrix_with_its_transpose_are_numpys_bit_for_bit",),
    "vectors multiplied by another routine than NumPy's": ("tests/doors/test_linalg.py::test_products_take_the_routines_that_numpys_take[Haswell]",),
    "descriptors of loaded kernels stayed open": ("tests/backends/test_loading.py::test_few_descriptors_do_for_many_programs",),
    "a compiler's probe that failed was kept": ("tests/backends/test_cache_and_compiler.py::test_a_probe_that_failed_is_not_kept",),
    "FIFOs among cache entries hung": ("tests/backends/test_cache_faults.py::test_what_is_no_file_is_no_entry",),
    "an image was kept before it was known to load": ("tests/backends/test_cache_faults.py::test_an_image_that_does_not_load_is_not_kept",),
    "locks were taken for ever in forked children": ("tests/backends/test_cache_faults.py::test_locks_are_free_in_a_forked_child",),
    "files of killed processes were never swept": (
        "tests/backends/test_cache_faults.py::test_temporary_files_of_killed_processes_are_taken_out",
        "tests/backends/test_cache_and_compiler.py::test_only_old_files_of_ours_are_swept",
    ),
    "recipes with malformed views overflowed the heap": (
        "tests/core/test_malformed.py::test_views_of_eight_sizes_and_no_strides",
        "tests/core/test_malformed.py::test_fields_lie_within_their_object",
        "tests/core/test_malformed.py::test_numbers_that_wrap_to_good_ones",
    ),
    "sizes wrapped at 64 bits": (
        "tests/core/test_sizes.py::test_size_programs_are_exact_or_refused",
        "tests/core/test_sizes.py::test_a_product_of_sizes_beyond_64_bits",
        "tests/core/test_guards.py::test_sizes_that_overflow_do_not_crash",
    ),
    "greenlets that switched in broken parts crashed": ("tests/frame_hook/test_greenlets.py::test_what_another_greenlet_calls_is_not_watched",),
    "recursion on a small stack crashed": ("tests/test_small_stacks.py::test_recursion_on_a_small_stack",),
    "a failure held its arguments": ("tests/test_changes_meanwhile.py::test_a_failure_holds_no_arguments",),
    "what changed while it was captured went unseen": ("tests/test_changes_meanwhile.py::test_a_global_that_changes_while_a_call_is_captured",),
    "changes of classes' bases went unseen": ("tests/core/test_guards.py::test_versions_of_types_tell_of_changes_of_bases",),
    "chains of expressions overflowed the stack": ("tests/frontend/test_large_programs.py::test_a_chain_needs_no_stack",),
    "tests that interrupt hung where SIGINT is ignored": ("tests/core/test_ignored_sigint.py::test_tests_that_interrupt_end",),
    "complex met np.float64 with the wrong type": ("tests/behaviours/test_scalar_operators.py::test_complex_and_a_computed_float_are_one_graph",),
    "ints beyond 64 bits went through ufuncs": ("tests/doors/test_result_layouts.py::test_integers_beyond_64_bits_are_objects_to_ufuncs_of_one_operand",),
    "extremes over empty axes did not raise": ("tests/doors/test_result_layouts.py::test_reductions_over_empty_axes",),
    "sums began with -0.0": ("tests/doors/test_reductions.py::test_sums_start_at_positive_zero",),
    "einsum's diagonals were copies": ("tests/numpy_calls/test_followed.py::test_einsum_of_a_diagonal_is_a_view",),
    "signals were handled outside of the user's try": ("tests/behaviours/test_coexistence.py::test_signals_at_any_moment_are_handled_within_the_try_block",),
    "a traceback of captured code was changed afterwards": ("tests/core/test_tracebacks.py::test_a_traceback_that_somebody_keeps_is_not_changed",),
    "indexing with many parts": ("tests/behaviours/test_indices.py::test_an_index_of_very_many_parts_is_numpys",),
    "closures made anew paid for compiling again": ("tests/test_compile_budget.py::test_closures_of_one_code_have_one_allowance",),
    "scans by remainder and fmod told np.errstate nothing of integers divided by zero": (
        "tests/test_end_to_end.py::test_floating_point_errors_of_integers_are_raised_where_numpy_raises",
    ),
    "the NumPy backend wrote over the imaginary parts of arguments": ("tests/backends/test_numpy_backend.py::test_parts_of_complex_arrays_are_not_written_over",),
    "libraries read views of what was written over": ("tests/backends/test_inplace.py::test_libraries_read_views_of_what_is_written_later",),
    "searches of LBFGS divided by zero along straight lines": (
        "tests/torch/optim/test_optimizers.py::test_searches_along_straight_lines_and_into_what_is_no_number",
    ),
    "scenarios of LBFGS made 1e13 of a rounding": (
        "tests/torch/optim/test_optimizers.py::test_scenarios_do_not_make_much_of_a_rounding[LBFGS-max_iter=3: hooks]",
        "tests/torch/optim/test_optimizers.py::test_scenarios_do_not_make_much_of_a_rounding"
        "[LBFGS-lr=0.12-max_iter=4-line_search_fn=strong_wolfe-history_size=3: some without gradients]",
    ),
    "values were cast before they were expanded, which hid that they were refused": (
        "tests/torch/test_programs.py::test_programs_that_differed_once_agree",
        "tests/torch/test_edges.py::test_pieces_that_were_written_to_are_refused",
    ),
    "vander of a tensor on the GPU": ("tests/torch/test_on_device.py::test_agrees_with_the_cpu[creation-vander(T(3))]",),
    "texts of compiled calls were compared with the names of nodes": (
        "tests/torch/test_compiled.py::test_compiled_calls_do_what_plain_ones_do[printing-grad_fn(T(2, 3, kind=positive))]",
    ),
    "a program of SGD was not counted": (
        "tests/torch/optim/test_compiled.py::test_scenarios[SGD-lr=0.1-momentum=0.9-dampening=0.3-weight_decay=0.1: some without gradients]",
    ),
}
PROOFS = frozenset(proof for proofs in DEFECTS.values() for proof in proofs)
