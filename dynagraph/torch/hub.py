"""``torch.hub``: where downloaded files lie, and downloading them."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import urllib.request
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlparse

from dynagraph.torch.missing import getattr_of, refused

try:
    from tqdm.auto import tqdm
except ImportError:  # an optional package, which shows how much of something is done

    class tqdm:  # type: ignore[no-redef]
        """As the package of this name, and shows nothing."""

        def __init__(self, iterable: Iterable[Any] = (), **options: Any):
            self.iterable = iterable

        def __iter__(self) -> Iterator[Any]:
            return iter(self.iterable)

        def update(self, n: float = 1) -> None:
            pass

        def set_postfix(self, *args: Any, **values: Any) -> None:
            pass

        def close(self) -> None:
            pass

        def __enter__(self) -> tqdm:
            return self

        def __exit__(self, *_: Any) -> None:
            pass


HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")  # in a file's name: the beginning of its SHA-256
_CHUNK = 1 << 17
__dynagraph_mutable__ = ("_directory",)
_directory: str | None = None


def _get_torch_home() -> str:
    home = os.environ.get("TORCH_HOME") or os.path.join(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "torch")
    return os.path.expanduser(home)


def get_dir() -> str:
    """Where downloaded models lie: as `set_dir` or $TORCH_HOME say, or ``~/.cache/torch/hub``."""
    return _directory or os.path.join(_get_torch_home(), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Set where downloaded models lie."""
    global _directory
    _directory = os.path.expanduser(d)


def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Download a file.  RuntimeError where its SHA-256 does not begin with `hash_prefix`."""
    destination = os.path.expanduser(dst)
    request = urllib.request.Request(url, headers={"User-Agent": "torch.hub"})
    digest = hashlib.sha256()
    directory = os.path.dirname(destination) or "."
    with urllib.request.urlopen(request) as source, tempfile.NamedTemporaryFile(dir=directory, delete=False) as part:
        size = source.headers.get("Content-Length")
        bar = tqdm(total=size and int(size), disable=not progress, unit="B", unit_scale=True, unit_divisor=1024)
        try:
            while chunk := source.read(_CHUNK):
                part.write(chunk)
                digest.update(chunk)
                bar.update(len(chunk))
            part.close()
            if hash_prefix is not None and not digest.hexdigest().startswith(hash_prefix):
                raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{digest.hexdigest()}")')
            os.replace(part.name, destination)
        except BaseException:
            part.close()
            os.remove(part.name)
            raise
        finally:
            bar.close()


load_state_dict_from_url = refused(
    "torch.hub.load_state_dict_from_url",
    "dynagraph.torch does not read PyTorch's checkpoints (torch.load) yet; download_url_to_file works",
)
load = refused("torch.hub.load", "dynagraph.torch does not run code from model repositories; import the model's own package")
list = refused("torch.hub.list", "dynagraph.torch does not run code from model repositories")
help = refused("torch.hub.help", "dynagraph.torch does not run code from model repositories")
__getattr__ = getattr_of(__name__)
__all__ = [
    "HASH_REGEX", "download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir", "tqdm",
    "urlparse",
]  # fmt: skip
