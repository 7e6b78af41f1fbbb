"""``torch.utils.model_zoo``: the older name of `torch.hub`."""

from dynagraph.torch.hub import load_state_dict_from_url as load_url
from dynagraph.torch.hub import tqdm
from dynagraph.torch.missing import getattr_of

__getattr__ = getattr_of(__name__)
__all__ = ["load_url", "tqdm"]
