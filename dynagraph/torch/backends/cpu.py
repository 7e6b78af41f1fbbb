"""``torch.backends.cpu``"""

import numpy as np

from dynagraph.torch.missing import getattr_of


def get_cpu_capability() -> str:
    """The widest instructions that NumPy uses of "AVX512" and "AVX2"; "DEFAULT" where it uses neither."""
    extensions = np.show_config(mode="dicts")["SIMD Extensions"]  # type: ignore[index]
    used = {*extensions.get("baseline", []), *extensions.get("found", [])}
    return "AVX512" if used & {"X86_V4", "AVX512F"} else "AVX2" if used & {"X86_V3", "AVX2"} else "DEFAULT"


__getattr__ = getattr_of(__name__)
__all__ = ["get_cpu_capability"]
