"""A variational autoencoder (Kingma and Welling 2013, "Auto-encoding variational Bayes"); names as in PyTorch's example."""

from __future__ import annotations

from dynagraph import torch
from dynagraph.torch import Tensor, nn
from dynagraph.torch.nn import functional as F


class VAE(nn.Module):
    """Samples (N, ..) of `features` numbers from 0 to 1, to reconstructions, means and logarithms of variances of the code:
    (N, features), (N, latent), (N, latent).

    >>> from dynagraph import torch
    >>> model = VAE(features=12, hidden=8, latent=2)
    >>> x = torch.rand(5, 12)
    >>> reconstruction, mean, logvar = model(x)
    >>> reconstruction.shape, mean.shape
    (torch.Size([5, 12]), torch.Size([5, 2]))
    >>> vae_loss(reconstruction, x, mean, logvar).shape
    torch.Size([])
    """

    def __init__(self, features: int = 784, hidden: int = 400, latent: int = 20) -> None:
        super().__init__()
        self.fc1 = nn.Linear(features, hidden)
        self.fc21 = nn.Linear(hidden, latent)
        self.fc22 = nn.Linear(hidden, latent)
        self.fc3 = nn.Linear(latent, hidden)
        self.fc4 = nn.Linear(hidden, features)

    def encode(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Means and logarithms of variances of the code."""
        hidden = F.relu(self.fc1(x))
        return self.fc21(hidden), self.fc22(hidden)

    def reparameterize(self, mu: Tensor, logvar: Tensor) -> Tensor:
        """A code drawn, as a function of mean and variance that has gradients."""
        return mu + torch.randn_like(logvar) * (0.5 * logvar).exp()

    def decode(self, z: Tensor) -> Tensor:
        """Samples of codes."""
        return self.fc4(F.relu(self.fc3(z))).sigmoid()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mu, logvar = self.encode(x.flatten(1))
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar


def vae_loss(reconstruction: Tensor, x: Tensor, mu: Tensor, logvar: Tensor) -> Tensor:
    """The negative evidence lower bound of a batch, added up: cross entropy of the pixels, and the code's divergence from N(0, 1)
    (appendix B of the paper)."""
    entropy = F.binary_cross_entropy(reconstruction, x.flatten(1), reduction="sum")
    return entropy - 0.5 * (1 + logvar - mu**2 - logvar.exp()).sum()


__all__ = ["VAE", "vae_loss"]
