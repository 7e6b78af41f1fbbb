"""``torch.hub``: where downloaded files lie, and downloading them."""

from __future__ import annotations

import hashlib
import io
import os
import re
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlparse
from urllib.request import Request
from urllib.request import urlopen as urlopen

from dynagraph.torch import serialization
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
_MOST_EXPANDED = 20  # times the size of a zip file
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
    request = Request(url, headers={"User-Agent": "torch.hub"})
    digest = hashlib.sha256()
    directory = os.path.dirname(destination) or "."
    with urlopen(request) as source, tempfile.NamedTemporaryFile(dir=directory, delete=False) as part:
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


def load_state_dict_from_url(
    url: str, model_dir: str | None = None, map_location: Any = None, progress: bool = True, check_hash: bool = False,
    file_name: str | None = None, weights_only: bool = False,
) -> Any:  # fmt: skip
    """What is in a checkpoint, downloaded where it is not there yet; a zip file of one checkpoint is read without unpacking it.

    It lies in `model_dir`, or the folder ``checkpoints`` of `get_dir`.  With `check_hash` its SHA-256 must begin as the file's name
    says, ``name-0a1b2c3d.pth``.  By default, which is PyTorch's, the file can run code: ask for ``weights_only=True`` where it
    need not.
    """
    if os.getenv("TORCH_MODEL_ZOO"):
        warnings.warn("TORCH_MODEL_ZOO is deprecated, please use env TORCH_HOME instead", stacklevel=2)
    directory = os.path.join(get_dir(), "checkpoints") if model_dir is None else os.path.expanduser(model_dir)
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, file_name or os.path.basename(urlparse(url).path))
    if not os.path.exists(path):
        sys.stderr.write(f'Downloading: "{url}" to {path}\n')
        found = HASH_REGEX.search(os.path.basename(path)) if check_hash else None
        download_url_to_file(url, path, found[1] if found else None, progress=progress)
    return _read(path, map_location, weights_only)


def _read(path: str, map_location: Any, weights_only: bool) -> Any:
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len(members) == 1:  # of before PyTorch 1.6: the checkpoint is within
                if members[0].file_size > _MOST_EXPANDED * os.path.getsize(path):
                    raise RuntimeError(f"{path}: {members[0].filename!r} expands to {members[0].file_size} bytes")
                return serialization.load(io.BytesIO(archive.read(members[0])), map_location, weights_only=weights_only)
    return serialization.load(path, map_location, weights_only=weights_only)


load = refused("torch.hub.load", "dynagraph.torch does not run code from model repositories; import the model's own package")
list = refused("torch.hub.list", "dynagraph.torch does not run code from model repositories")
help = refused("torch.hub.help", "dynagraph.torch does not run code from model repositories")
__getattr__ = getattr_of(__name__)
__all__ = [
    "HASH_REGEX", "download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir", "tqdm",
    "urlparse",
]  # fmt: skip
