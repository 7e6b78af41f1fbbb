"""Gradients of functions as functions: ``grad``, ``vjp``, ``jvp``, Jacobians.

Forward mode is reverse mode twice: the gradient by the inputs is a linear function of the cotangents, and the gradient of this
function by the cotangents, weighted by tangents, is what forward mode computes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dynagraph.torch.autograd.function import transposing
from dynagraph.torch.core.arrays import library_of_array
from dynagraph.torch.core.grad_mode import enable_grad, mode
from dynagraph.torch.core.tensor import Tensor, wrap
from dynagraph.torch.func.batch import vmap
from dynagraph.torch.func.tracing import Run, gradients, zeros_for
from dynagraph.torch.functions.joining import cat
from dynagraph.torch.utils._pytree import tree_flatten, tree_unflatten

Argnums = int | tuple[int, ...]


def _checked_argnums(argnums: Any, count: int) -> Any:
    def one(k: Any) -> int:
        if not isinstance(k, int):
            raise RuntimeError(f"argnum must be int, got: {type(k)}")
        if not -count <= k < count:
            raise RuntimeError(f"Got argnum={k}, but only {count} positional inputs")
        return k % count

    if isinstance(argnums, int):
        return one(argnums)
    if not isinstance(argnums, tuple):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    if not argnums:
        raise RuntimeError("argnums must be a non-empty tuple")
    if len(set(argnums)) != len(argnums):
        raise RuntimeError(f"argnums elements must be unique, got {argnums}")
    return tuple(map(one, argnums))


def _run_of(func: Any, argnums: Any, args: tuple[Any, ...], kwargs: dict[str, Any], has_aux: bool, who: str) -> Run:
    """Run a function on stand-ins for some of its arguments."""
    which = _checked_argnums(argnums, len(args))
    inputs = args[which] if isinstance(which, int) else tuple(args[k] for k in which)

    def call(given: Any) -> Any:
        full = list(args)
        for k, value in ((which, given),) if isinstance(which, int) else zip(which, given):
            full[k] = value
        return func(*full, **kwargs)

    return Run(func, inputs, call, has_aux, who)


def _only_tensors(outputs: Sequence[Any], who: str, of: str) -> None:
    if not outputs:
        raise RuntimeError(f"{who}: expected {of} to return at least one tensor, got no tensors")
    for x in outputs:
        if not isinstance(x, Tensor):
            raise RuntimeError(f"{who}: expected {of} to return only tensors, got unsupported type {type(x)}")


def grad_and_value(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that gives the gradient of a scalar function, and its value; with `has_aux`, of (value, anything)."""

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        who = "grad_and_value(f)(*args)"
        run = _run_of(func, argnums, args, kwargs, has_aux, who)
        value = run.result
        if not isinstance(value, Tensor):
            raise RuntimeError(f"{who}: Expected f(*args) to return a Tensor, got {type(value)}")
        if value._array.ndim:
            raise RuntimeError(
                f"{who}: Expected f(*args) to return a scalar Tensor, got tensor with {value._array.ndim} dims. Maybe you wanted "
                "to use the vjp or jacrev APIs instead?"
            )
        run.settle()
        found = run.pull([wrap(np.ones_like(value._array))])
        grads = tree_unflatten(found, run.input_spec)
        value = run.public(value)
        return grads, (value, run.public(run.aux)) if has_aux else value

    return wrapped


def grad(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function that gives the gradient of a scalar function by some of its arguments.

    >>> from dynagraph import torch
    >>> torch.func.grad(torch.sin)(torch.tensor(0.0))
    tensor(1.)
    """

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        grads, value = grad_and_value(func, argnums, has_aux)(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return wrapped


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """The results of a function, and the function that gives gradients by its inputs from cotangents of these."""
    who = "vjp(f, *primals)"
    run = Run(func, primals, None, has_aux, who)
    _only_tensors(run.outputs, who, "f(*primals)")
    run.settle()

    def vjp_fn(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        leaves, spec = tree_flatten(cotangents)
        if spec != run.output_spec:
            raise RuntimeError(
                "Expected pytree structure of cotangents to be the same as pytree structure of outputs to the function. "
                f"cotangents: {spec}, primal output: {run.output_spec}"
            )
        for k, (g, x) in enumerate(zip(leaves, run.outputs)):
            if g._array.shape != x._array.shape:
                raise RuntimeError(
                    f"Mismatch in shape: grad_output[{k}] has a shape of {g.shape} and output[{k}] has a shape of {x.shape}."
                )
        return tree_unflatten(run.pull(leaves, create_graph), run.input_spec)

    result = run.public(run.result)
    return (result, vjp_fn, run.public(run.aux)) if has_aux else (result, vjp_fn)


class _Pushed:
    """The linear function from tangents of a run's inputs to those of its results."""

    def __init__(self, run: Run):
        self.run = run
        self.outputs = [x for x in run.outputs if x.requires_grad]
        self.cotangents = [zeros_for(x) for x in self.outputs]
        for v in self.cotangents:
            v._requires_grad = True
        before, transposing.on = transposing.on, True
        try:
            with enable_grad():
                self.pulled = gradients(self.outputs, run.inputs, self.cotangents, True)
        finally:
            transposing.on = before

    def __call__(self, tangents: Sequence[Tensor]) -> list[Tensor]:
        pairs = [(g, t) for g, t in zip(self.pulled, tangents) if g.requires_grad]
        record = self.run.recorded or (mode.grad and any(t.requires_grad for t in tangents))
        found = iter(gradients([g for g, _ in pairs], self.cotangents, [t for _, t in pairs], record))
        results = [next(found) if x.requires_grad else zeros_for(x) for x in self.run.outputs]
        return results if record else [x.detach() if x.requires_grad else x for x in results]


def _check_tangents(primals: Any, tangents: Any, who: str) -> tuple[list[Any], list[Any]]:
    for name, value in (("primals", primals), ("tangents", tangents)):
        if not isinstance(value, tuple):
            raise RuntimeError(f"{who}: Expected {name} to be a tuple. E.g. it should be valid to call f(*{name}).")
    leaves, spec = tree_flatten(primals)
    pushed, tangent_spec = tree_flatten(tangents)
    if spec != tangent_spec:
        raise RuntimeError(
            f"{who}: Expected primals and tangents to have the same python structure. For example, if primals is a tuple of 3 "
            f"tensors, tangents also must be. Got primals with structure {spec} and tangents with structure {tangent_spec}"
        )
    for name, values in (("primals", leaves), ("tangents", pushed)):
        if not values:
            raise RuntimeError(f"{who}: Expected {name} to have at least one tensor")
        for value in values:
            if not isinstance(value, Tensor):
                raise RuntimeError(f"{who}: Expected {name} to be a tuple of Tensors, got unsupported type {type(value)}")
    _check_shapes(leaves, pushed)
    return leaves, pushed


def _check_shapes(primals: Sequence[Tensor], tangents: Sequence[Tensor]) -> None:
    for x, t in zip(primals, tangents):
        if x._array.shape != t._array.shape:
            raise RuntimeError(
                "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not "
                f"supported. Tensor is of size {list(x._array.shape)} while the given forward gradient is of size "
                f"{list(t._array.shape)}."
            )


def jvp(func: Callable[..., Any], primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """The results of a function, and their change along tangents of its inputs."""
    who = "jvp(f, primals, tangents)"
    _, pushed = _check_tangents(primals, tangents, who)
    run = Run(func, primals, None, has_aux, who)
    _only_tensors(run.outputs, who, "f(*primals)")
    if strict and not all(x.requires_grad for x in run.outputs):
        raise RuntimeError(
            "jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs. This is not allowed with "
            "strict=True."
        )
    run.settle()
    results = tree_unflatten(_Pushed(run)(pushed), run.output_spec)
    value = run.public(run.result)
    return (value, results, run.public(run.aux)) if has_aux else (value, results)


def linearize(func: Callable[..., Any], *primals: Any) -> Any:
    """The results of a function, and the function that gives their change along tangents of its inputs."""
    run = Run(func, primals, None, False, "linearize(f, *primals)")
    _only_tensors(run.outputs, "linearize(f, *primals)", "f(*primals)")
    run.settle()
    push = _Pushed(run)

    def jvp_fn(*tangents: Any) -> Any:
        leaves, spec = tree_flatten(tangents)
        if spec != run.input_spec:
            raise RuntimeError(
                "Expected the tangents of the linearized function to have the same python structure as the primals: "
                f"got {spec}, expected {run.input_spec}"
            )
        _check_shapes(run.inputs, leaves)
        return tree_unflatten(push(leaves), run.output_spec)

    return run.public(run.result), jvp_fn


# -- Jacobians --------------------------------------------------------------------------------------------------------


def _basis(tensors: Sequence[Tensor]) -> list[Tensor]:
    """For each tensor what it is in each of all unit vectors: (number of all elements, *shape)."""
    sizes = [math.prod(x._array.shape) for x in tensors]
    total = sum(sizes)
    found = []
    start = 0
    for x, n in zip(tensors, sizes):
        library = library_of_array(x._array)
        array = library.zeros((total, n), x._array.dtype)
        array[library.arange(start, start + n), library.arange(n)] = 1
        found.append(wrap(array.reshape(total, *x._array.shape)))
        start += n
    return found


def _rows(run: Callable[..., Any], basis: list[Tensor], chunk_size: int | None, randomness: str = "error") -> list[Tensor]:
    """``run(*vectors)`` for each row of a basis: a list of (rows, *shape)."""
    total = basis[0]._array.shape[0]
    if not total:
        one = run(*(wrap(library_of_array(b._array).zeros(b._array.shape[1:], b._array.dtype)) for b in basis))
        return [wrap(library_of_array(x._array).zeros((0, *x._array.shape), x._array.dtype)) for x in one]
    if chunk_size == 1:
        rows = [run(*(b.select(0, k) for b in basis)) for k in range(total)]
        return [cat([row[k].unsqueeze(0) for row in rows]) for k in range(len(rows[0]))]
    return list(vmap(lambda *vectors: tuple(run(*vectors)), randomness=randomness, chunk_size=chunk_size)(*basis))


def jacrev(
    func: Callable[..., Any], argnums: Argnums = 0, *, has_aux: bool = False, chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable[..., Any]:  # fmt: skip
    """A function that gives the Jacobian by reverse mode: one gradient for each element of the results, `chunk_size` at once.

    >>> from dynagraph import torch
    >>> torch.func.jacrev(torch.sin)(torch.zeros(2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    if chunk_size is not None and not chunk_size > 0:
        raise ValueError(f"jacrev: `chunk_size` should be greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        who = "jacrev(f, argnums)(*args)"
        run = _run_of(func, argnums, args, kwargs, has_aux, who)
        _only_tensors(run.outputs, who, "f(*args)")
        run.settle()
        found = _rows(lambda *g: run.pull(list(g)), _basis(run.outputs), chunk_size)
        start, parts = 0, []
        for x in run.outputs:
            n = math.prod(x._array.shape)
            blocks = [
                rows.narrow(0, start, n).reshape(*x._array.shape, *i._array.shape) for rows, i in zip(found, run.inputs)
            ]  # fmt: skip
            parts.append(tree_unflatten(blocks, run.input_spec))
            start += n
        jacobian = tree_unflatten(parts, run.output_spec)
        return (jacobian, run.public(run.aux)) if has_aux else jacobian

    return wrapped


def jacfwd(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, *, randomness: str = "error"
) -> Callable[..., Any]:
    """A function that gives the Jacobian by forward mode: one tangent for each element of the inputs."""

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        who = "jacfwd(f, argnums)(*args)"
        run = _run_of(func, argnums, args, kwargs, has_aux, who)
        _only_tensors(run.outputs, who, "f(*args)")
        run.settle()
        push = _Pushed(run)
        found = _rows(lambda *t: push(list(t)), _basis(run.inputs), None, randomness)
        parts = []
        for x, rows in zip(run.outputs, found):
            blocks, start = [], 0
            for i in run.inputs:
                n = math.prod(i._array.shape)
                block = rows.narrow(0, start, n).movedim(0, -1)
                blocks.append(block.reshape(*x._array.shape, *i._array.shape))
                start += n
            parts.append(tree_unflatten(blocks, run.input_spec))
        jacobian = tree_unflatten(parts, run.output_spec)
        return (jacobian, run.public(run.aux)) if has_aux else jacobian

    return wrapped


def hessian(func: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """A function that gives second derivatives: forward mode over reverse mode."""
    return jacfwd(jacrev(func, argnums), argnums)


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """The function, whose results are those of one without writes to tensors: what calls it cannot tell."""
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(
            f"functionalize(f, remove='mutations'): received invalid argument for remove={remove}. Valid options are:\n"
            "     remove='mutations': all inplace and out= operators will be removed from the program, and replaced with "
            "their out-of-place equivalents.\n"
            "     remove='mutations_and_views': In addition to the above, all aliasing operators {view} will be replaced with "
            "their non-aliasing counterparts, {view}_copy.\n"
        )

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return wrapped


__all__ = ["functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize", "vjp"]
