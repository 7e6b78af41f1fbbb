"""backward, grad, hooks, versions."""

from __future__ import annotations

import threading
import warnings
from typing import Any

from tests.torch.behaviours import behaviour, fresh, loose, module_of, raised


@behaviour
def gradient_of_an_intermediate_is_taken_before_its_hooks(torch: Any) -> Any:
    x = fresh(torch)
    h = x * 2
    h.register_hook(lambda g: g * 10)
    return torch.autograd.grad((h * h).sum(), [h, x])


@behaviour
def gradient_of_an_intermediate_alone_is_taken_after_its_hooks(torch: Any) -> Any:
    h = fresh(torch) * 2
    h.register_hook(lambda g: g * 10)
    return torch.autograd.grad((h * h).sum(), [h])


@behaviour
def nothing_runs_behind_what_is_asked_for(torch: Any) -> Any:
    x = fresh(torch)
    h = x * x
    (g,) = torch.autograd.grad((h * h).sum(), [h])
    h.backward(g)
    return x.grad


@behaviour
def order_of_hooks(torch: Any) -> Any:
    log: list[Any] = []
    x = fresh(torch)
    h = x * x
    h.retain_grad()
    h.register_hook(lambda g: log.append("tensor") or g * 2)
    h.grad_fn.register_prehook(lambda gs: log.append("prehook"))
    h.grad_fn.register_hook(lambda a, b: log.append(("hook", len(a), len(b))))
    x.register_hook(lambda g: log.append("leaf"))
    x.register_post_accumulate_grad_hook(lambda p: log.append("post accumulate"))
    leaf = h.grad_fn.next_functions[0][0]
    leaf.register_hook(lambda a, b: log.append(("hook of the leaf", len(a), len(b))))
    leaf.register_prehook(lambda a: log.append(("prehook of the leaf", len(a))))
    h.sum().backward()
    return log, h.grad, x.grad


@behaviour
def hooks_set_before_a_write_stay_with_the_old_value(torch: Any) -> Any:
    log: list[str] = []
    x = fresh(torch)
    h = x * 2
    h.register_hook(lambda g: log.append("before"))
    h.add_(1)
    h.register_hook(lambda g: log.append("after"))
    (h * h).sum().backward()
    return log, x.grad


@behaviour
def a_retained_gradient_is_that_by_the_value_after_writes(torch: Any) -> Any:
    found = []
    for write in (lambda h: h.mul_(3), lambda h: h[:2].mul_(5), lambda h: h.__setitem__(0, h[1] * 3), lambda h: h.zero_()):
        x = fresh(torch)
        h = x * 2
        h.retain_grad()
        early = h * 1
        write(h)
        h.retain_grad()
        (early.sum() * 7 + (h * h).sum()).backward()
        found.append((h.grad, x.grad, h.retains_grad))
    return found


@behaviour
def a_retained_gradient_of_a_view_is_that_by_its_value_after_writes(torch: Any) -> Any:
    found = []
    for write in (lambda h, v: v.mul_(3), lambda h, v: h.mul_(5), lambda h, v: h[1:].mul_(5)):
        for of_base in (False, True):
            x = fresh(torch)
            h = x * 2
            v = h[:2]
            v.retain_grad()
            write(h, v)
            part = h if of_base else v
            (part * part).sum().backward()
            found.append((v.grad, x.grad))
    return found


@behaviour
def a_retained_gradient_grows_and_has_memory_of_its_own(torch: Any) -> Any:
    x = fresh(torch)
    h = x + 1
    h.retain_grad()
    y = h.sum()
    y.backward(retain_graph=True)
    first = h.grad
    first.add_(1)
    y.backward()
    return first, h.grad, h.grad.stride(), x.grad


@behaviour
def what_requires_a_gradient_is_not_resized(torch: Any) -> Any:
    return raised(lambda: (fresh(torch) * 2).resize_(1))


@behaviour
def hooks_are_removed(torch: Any) -> Any:
    log: list[str] = []
    y = fresh(torch) * 2
    y.register_hook(lambda g: log.append("a"))
    handle = y.register_hook(lambda g: log.append("b"))
    with y.register_hook(lambda g: log.append("c")):
        pass
    handle.remove()
    handle.remove()
    y.sum().backward()
    return log


@behaviour
def hooks_of_nodes_replace(torch: Any) -> Any:
    x, w = fresh(torch), fresh(torch)
    y = x * w
    y.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] * 0, inputs[1]))
    y.grad_fn.register_prehook(lambda outputs: (outputs[0] * 3,))
    y.sum().backward()
    return x.grad, w.grad


@behaviour
def hook_that_raises(torch: Any) -> Any:
    def hook(g: Any) -> None:
        raise ValueError("of the hook")

    y = fresh(torch) * 2
    y.register_hook(hook)
    y.sum().backward()


@behaviour
def hook_that_changes_the_shape(torch: Any) -> Any:
    y = fresh(torch) * 2
    y.register_hook(lambda g: g[:2])
    y.sum().backward()


@behaviour
def hook_that_gives_no_tensor(torch: Any) -> Any:
    y = fresh(torch) * 2
    y.register_hook(lambda g: 3)
    y.sum().backward()


@behaviour
def backward_twice(torch: Any) -> Any:
    x = fresh(torch)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    return x.grad, raised(y.backward)


@behaviour
def backward_twice_where_nothing_was_saved(torch: Any) -> Any:
    x = fresh(torch)
    y = (x + 1).sum()
    y.backward()
    y.backward()
    return x.grad


@behaviour
def unused(torch: Any) -> Any:
    x = fresh(torch)
    grad = torch.autograd.grad
    return (
        raised(lambda: grad((x * 2).sum(), fresh(torch))),
        grad((x * 2).sum(), fresh(torch), allow_unused=True),
        grad((x * 2).sum(), fresh(torch), materialize_grads=True),
        raised(lambda: grad((x * 2).sum(), x, allow_unused=False, materialize_grads=True)),
    )


@behaviour
def errors(torch: Any) -> Any:
    x = fresh(torch)
    grad, backward = torch.autograd.grad, torch.autograd.backward
    return [
        raised(lambda: grad(x * 2, x)),
        raised(lambda: torch.ones(3).sum().backward()),
        raised(lambda: grad((x * 2).sum(), torch.ones(3))),
        raised(lambda: (x * 2).backward(torch.ones(2))),
        raised(lambda: backward((x * 2).sum(), inputs=[])),
        raised(lambda: torch.ones(2).register_hook(print)),
        raised(lambda: torch.ones(2).retain_grad()),
        raised(lambda: (x * 2).requires_grad_(False)),
        raised(lambda: torch.ones(2, dtype=torch.int64).requires_grad_()),
        raised(lambda: grad((x * 2).sum(), [])),
        raised(lambda: grad((x * 2).sum(), (x, 3))),
        raised(lambda: backward((x * 2).sum(), torch.ones(()), grad_variables=torch.ones(()))),
        raised(lambda: grad(x * 1j, x, torch.ones(3))),
        raised(lambda: grad((x * 2).sum(), x, only_inputs=False)),
    ]


@behaviour
def inputs_of_backward(torch: Any) -> Any:
    x, w = fresh(torch), fresh(torch)
    (x * w).sum().backward(inputs=[x])
    h = x * x
    (h * 3).sum().backward(inputs=[h])
    return x.grad, w.grad, h.grad


@behaviour
def batched_weights(torch: Any) -> Any:
    x = fresh(torch)
    return torch.autograd.grad(x * x, x, torch.eye(3, dtype=torch.float64), is_grads_batched=True)


@behaviour
def third_derivative(torch: Any) -> Any:
    x = fresh(torch)
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
    return first, second, torch.autograd.grad(second.sum(), x)


@behaviour
def saved_results_are_checked(torch: Any) -> Any:
    y = fresh(torch, dtype=torch.float32).exp()
    y.add_(1)
    y.sum().backward()


@behaviour
def saved_operands_are_checked(torch: Any) -> Any:
    w, x = fresh(torch, dtype=torch.float32), torch.ones(3)
    y = (w * x).sum()
    x.add_(1)
    y.backward()


@behaviour
def saved_intermediates_are_checked(torch: Any) -> Any:
    y = fresh(torch, dtype=torch.float32) * 1
    z = y.sin().sum()
    y.mul_(2)
    z.backward()


@behaviour
def writes_through_data_are_not_noticed(torch: Any) -> Any:
    x = fresh(torch)
    y = x.exp()
    y.data.mul_(2)
    y.sum().backward()
    return x.grad


@behaviour
def outputs_of_split_refuse_writes(torch: Any) -> Any:
    a, _ = (torch.ones(4, requires_grad=True) * 1).split(2)
    a.add_(1)


@behaviour
def anomaly(torch: Any) -> Any:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with torch.autograd.detect_anomaly():
            y = (fresh(torch) * 0).sqrt() * 0  # this line
            text = raised(y.sum().backward)
    return text, ["this line" in str(w.message) and "SqrtBackward0" in str(w.message) for w in caught]


@behaviour
def anomaly_without_nan(torch: Any) -> Any:
    x = fresh(torch)
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        ((x * 0).sqrt() * 0).sum().backward()
    return x.grad


@behaviour
def gradient_edges(torch: Any) -> Any:
    x = fresh(torch)
    y = x * x
    edge = torch.autograd.graph.get_gradient_edge(y)
    return (
        edge.node.name(), edge.output_nr, torch.autograd.grad((y * 2).sum(), edge),
        torch.autograd.grad(edge, x, grad_outputs=torch.ones(3, dtype=torch.float64)),
    )  # fmt: skip


@behaviour
def hooks_on_several_gradients(torch: Any) -> Any:
    x, y = fresh(torch), fresh(torch)
    log: list[Any] = []
    register = torch.autograd.graph.register_multi_grad_hook
    register([x, y], lambda gs: log.append([None if g is None else g.tolist() for g in gs]))
    register([x, y], lambda g: log.append(g.tolist()), mode="any")
    (x * y).sum().backward()
    (x * 2).sum().backward()
    return log, raised(lambda: register([x], print, mode="some"))


@behaviour
def the_gradient_is_not_the_callers_and_grows_in_place(torch: Any) -> Any:
    x, g = fresh(torch), torch.ones(3, dtype=torch.float64)
    (x * 1).backward(g)
    before = x.grad
    (x * 1).backward(g)
    return x.grad, g, before is x.grad, before is g


@behaviour
def a_gradient_that_is_recorded_grows(torch: Any) -> Any:
    x = fresh(torch)
    (x * x).sum().backward(create_graph=True)
    g = x.grad
    g.sum().backward()
    return g, x.grad is g


@loose
def hooks_on_saved_tensors(torch: Any) -> Any:
    log: list[str] = []
    x = fresh(torch)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: log.append("pack") or t * 2, lambda t: log.append("unpack") or t / 2):
        z = x.exp() * x
    z.sum().backward()
    return log, x.grad


@behaviour
def hooks_on_saved_tensors_twice_differentiated(torch: Any) -> Any:
    x = fresh(torch)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2):
        z = (x.exp() * x).sin()
    (g,) = torch.autograd.grad(z.sum(), x, create_graph=True)
    return torch.autograd.grad(g.sum(), x)


@behaviour
def hooks_on_saved_tensors_are_disabled(torch: Any) -> Any:
    graph = torch.autograd.graph
    with graph.disable_saved_tensors_hooks("not here"), graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        pass


@behaviour
def saved_on_the_cpu(torch: Any) -> Any:
    x = fresh(torch)
    with torch.autograd.graph.save_on_cpu():
        y = x.sin() * x
    y.sum().backward()
    return x.grad


@behaviour
def saved_tensors_may_change(torch: Any) -> Any:
    x = fresh(torch)
    with torch.autograd.graph.allow_mutation_on_saved_tensors():
        y = x * 1
        z = y.sin()
        y.zero_()
        z.sum().backward()
    return x.grad


@behaviour
def versions_are_raised(torch: Any) -> Any:
    x = torch.ones(3)
    torch.autograd.graph.increment_version(x)
    torch.autograd.graph.increment_version([x, x[:1]])
    return x._version


@behaviour
def modes_are_of_each_thread(torch: Any) -> Any:
    found = []
    with torch.no_grad():
        thread = threading.Thread(target=lambda: found.append(torch.is_grad_enabled()))
        thread.start()
        thread.join()
    return found


@behaviour
def several_outputs(torch: Any) -> Any:
    x = fresh(torch)
    return torch.autograd.grad([(x * 2).sum(), x * 3], [x], [None, torch.ones(3, dtype=torch.float64)])


@behaviour
def backward_within_backward(torch: Any) -> Any:
    x, w = fresh(torch), fresh(torch)
    y = x * 2
    y.register_hook(lambda g: (w * w).sum().backward())
    y.sum().backward()
    return x.grad, w.grad


@behaviour
def functions_called_when_backward_has_ended(torch: Any) -> Any:
    log: list[str] = []
    queue = torch.autograd.Variable._execution_engine.queue_callback
    x = fresh(torch)
    x.register_hook(lambda g: log.append("hook") or queue(lambda: log.append("ended")))
    y = x * 1
    y.register_hook(lambda g: queue(lambda: log.append("first")))
    y.sum().backward()
    return log, raised(lambda: queue(print))


@behaviour
def dual_tensors(torch: Any) -> Any:
    forward = module_of(torch, "autograd.forward_ad")
    x, t = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 0.5])
    with forward.dual_level():
        dual = forward.make_dual(x, t)
        primal, tangent = forward.unpack_dual((dual * dual).sin())
        unrelated = forward.unpack_dual(x * 2).tangent
        wrong = raised(lambda: forward.make_dual(x, t[:1]))
    return primal, tangent, unrelated, wrong, raised(lambda: forward.make_dual(x, t))


@behaviour
def reverse_over_forward(torch: Any) -> Any:
    forward = module_of(torch, "autograd.forward_ad")
    x, t = fresh(torch), torch.ones(3, dtype=torch.float64)
    with forward.dual_level():
        _, tangent = forward.unpack_dual(forward.make_dual(x, t) ** 3)
        return torch.autograd.grad(tangent.sum(), x)
