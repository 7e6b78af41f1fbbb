"""``torch.utils.serialization``: options of saving and loading."""

from dynagraph.torch.missing import getattr_of
from dynagraph.torch.utils.serialization import config as config

__getattr__ = getattr_of(__name__)
