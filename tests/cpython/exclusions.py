"""Tests of CPython that no compiler could pass which runs a function in parts: what they look at is how the interpreter runs it."""

from __future__ import annotations

import doctest
from typing import Any

DEPTH = "counts the frames of the stack, or how deep it may become"
LIFETIME = "expects that an object is gone as soon as a local lets go of it: the parts behind a break hold their arguments"
EARLIER = "expects that an object lives as long as a local that is never read again: such locals are not handed on at a break"
KEPT = "expects that a class or function is gone which the code has looked at: the guards of the programs made for it hold it"
INLINED = "looks at the locals of a frame in a traceback: that of a callee which was inlined has none"
BUILTINS = "puts a function of its own in the place of a builtin that the compiler calls while it runs"
QUIRK = "is expected to fail, for a flaw of CPython that shows in the plain run only"
SLOTS = "wants a class to be looked up while a key of its namespace changes that class"
LAYOUT = "looks at how much memory a dict of an instance takes, which depends on how it came about"
VECTORCALL = "replaces how C calls a function, by means of C that leave no trace in Python"
TYPE = "expects that what stands for the compiled function is of the type function, or has its __code__"

EXCLUDED: dict[str, str] = {
    "test_call.TestPEP590.test_setvectorcall": VECTORCALL,
    "test_call.TestPEP590.test_setvectorcall_load_attr_specialization_deopt": VECTORCALL,
    "test_call.TestPEP590.test_setvectorcall_load_attr_specialization_skip": VECTORCALL,
    "test_descr.ClassPropertiesAndMethods.test_cycle_through_dict": LIFETIME,
    "test_descr.ClassPropertiesAndMethods.test_recursive_call": DEPTH,
    "test_descr.ClassPropertiesAndMethods.test_remove_subclass": LIFETIME,
    "test_descr.ClassPropertiesAndMethods.test_restored_object_new": QUIRK,
    "test_descr.ClassPropertiesAndMethods.test_slots": LIFETIME,
    "test_descr.ClassPropertiesAndMethods.test_subtype_resurrection": LIFETIME,
    "test_descr.ClassPropertiesAndMethods.test_weakrefs": LIFETIME,
    "test_descr.ClassPropertiesAndMethods.test_vicious_descriptor_nonsense": SLOTS,
    "test_descr.MiscTests.test_type_lookup_mro_reference": SLOTS,
    "test_descr.SharedKeyTests.test_subclasses": LAYOUT,
    "test_descr.ClassPropertiesAndMethods.test_mutable_bases_with_failing_mro": LIFETIME,
    "test_dict.DictTest.test_container_iterator": LIFETIME,
    "test_dict.DictTest.test_repr_deep": DEPTH,
    "test_dict.DictTest.test_splittable_popitem": LAYOUT,
    "test_exceptions.ExceptionTests.testExceptionCleanupState": LIFETIME,
    "test_exceptions.ExceptionTests.test_3114": LIFETIME,
    "test_exceptions.ExceptionTests.test_recursion_in_except_handler": DEPTH,
    "test_exceptions.ExceptionTests.test_recursion_normalizing_exception": DEPTH,
    "test_exceptions.NameErrorTests.test_name_error_suggestions": INLINED,
    "test_functools.TestPartialC.test_weakref": EARLIER,
    "test_functools.TestPartialCSubclass.test_weakref": EARLIER,
    "test_functools.TestLRUC.test_lru_cache_weakrefable": KEPT,
    "test_functools.TestLRUC.test_lru_reentrancy_with_len": BUILTINS,
    "test_functools.TestLRUPy.test_lru_cache_weakrefable": KEPT,
    "test_functools.TestLRUPy.test_lru_reentrancy_with_len": BUILTINS,
    "test_generators.FinalizationTest.test_frame_resurrect": LIFETIME,
    "test_generators.FinalizationTest.test_refcycle": LIFETIME,
    "test_itertools.TestBasicOps.test_islice": LIFETIME,
    "test_list.ListTest.test_repr_deep": DEPTH,
    "test_scope.ScopeTests.testCellLeak": LIFETIME,
    "test_set.TestFrozenSet.test_container_iterator": LIFETIME,
    "test_set.TestFrozenSetSubclass.test_container_iterator": LIFETIME,
    "test_set.TestSet.test_container_iterator": LIFETIME,
    "test_set.TestSetSubclass.test_container_iterator": LIFETIME,
}


EXAMPLES: dict[str, tuple[str, ...]] = {  # of doctests, by their source
    "test_extcall": ("dir(**h)", "nothing(**h)", "h(**h)", "h(*h)", "dir(*h)", "nothing(*h)", "None(*h)", "None(**h)",
                     "h(1, *h)", "h(*[1], *h)", "h(a=1, **h)", "h(**{'a': 1}, **h)"),
    "test_generators.__test__.email": ("type(g)",),
    "test_generators.__test__.syntax": ("g.gi_code is f.__code__",),
}


def excluded(test: Any) -> bool:
    """Whether a test is left out; single examples of a doctest are marked to be skipped."""
    name = test.id().removeprefix("test.")
    if name in EXAMPLES:
        for example in test._dt_test.examples:
            if example.source.strip() in EXAMPLES[name]:
                example.options[doctest.SKIP] = True
    return name in EXCLUDED
