"""Record what PyTorch gives."""

from tests.torch.behaviours import record

record()
