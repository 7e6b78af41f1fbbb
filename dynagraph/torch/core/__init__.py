"""What a Tensor is: dtypes, storage, primitives with their gradients, the autograd engine."""
