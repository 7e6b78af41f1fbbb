"""Newton's method with autograd.grad and create_graph; Hessians, Jacobians and a gradient penalty."""

import torch
from torch.autograd import grad


def rosenbrock(x):
    return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2


x = torch.tensor([-1.2, 1.0], dtype=torch.double, requires_grad=True)
for step in range(8):
    value = rosenbrock(x)
    (g,) = grad(value, x, create_graph=True)
    hessian = torch.stack([grad(g[i], x, retain_graph=True)[0] for i in range(2)])
    with torch.no_grad():
        x -= torch.linalg.solve(hessian, g)
    print(step, f"{value.item():.6e}" if value > 1e-12 else "converged")
print(x)

y = torch.tensor(2.0, requires_grad=True)
f = y**4
derivatives = []
while f.requires_grad and len(derivatives) < 4:
    (f,) = grad(f, y, create_graph=True)
    derivatives.append(f.item())
print(derivatives)

W = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
z = torch.tensor([0.5, -0.5], requires_grad=True)
score = torch.tanh(W @ z).sum()
(gz,) = grad(score, z, create_graph=True)
penalty = (gz.norm(2) - 1) ** 2
penalty.backward()
print(penalty.item().__round__(5), W.grad)
print(torch.autograd.functional.jacobian(lambda v: v.pow(2).cumsum(0), torch.tensor([1.0, 2.0, 3.0])))
print(torch.autograd.functional.hessian(lambda v: (v**3).sum(), torch.tensor([1.0, 2.0])))
try:
    penalty.backward()
except RuntimeError as error:
    print(str(error)[:56])
