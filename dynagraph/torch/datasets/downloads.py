"""Downloads: into a cache folder, checked, and resumed where they were interrupted."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import tarfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import platformdirs

try:
    import fcntl
except ImportError:  # not on Windows: processes that download the same file at once do it one beside the other
    fcntl = None  # type: ignore[assignment]

CHUNK = 1 << 17
TIMEOUT = 30.0  # seconds without a byte
TRIES = 4  # connections for one file: each goes on where the last one ended


def cache_folder() -> Path:
    """Where datasets lie for which no folder is given: the user's cache folder, in ``dynagraph-datasets``."""
    return Path(platformdirs.user_cache_dir("dynagraph-datasets", appauthor=False))


def download(
    url: str, folder: str | os.PathLike[str] | None = None, filename: str | None = None, checksum: str | None = None
) -> Path:
    """The path of a file, which is downloaded unless it is there already.

    `folder` is `cache_folder()` by default, `filename` the last part of the URL.  `checksum` is ``"sha256:..."`` or ``"md5:..."``;
    a file that is there is checked, too, and replaced where it is another one.  What was downloaded before an interruption stays
    beside the file (``.part``), and the next call asks the server for the rest alone; a file with that name has all its bytes.

    Raises ValueError for a checksum that differs or an URL that is neither http nor https, OSError where the server cannot be
    reached (`urllib.error.URLError`) or ends early.
    """
    parsed = urlparse(url)
    if parsed.scheme not in ("http", "https"):
        raise ValueError(f"download: expected an URL of http or https, but got {url!r}")
    name = filename or os.path.basename(parsed.path)
    if not name or name in (".", "..") or os.path.basename(name) != name:
        raise ValueError(f"download: expected a file's name, but got {name!r}")
    folder = Path(folder) if folder is not None else cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    target, part = folder / name, folder / f"{name}.part"
    with _locked(folder / f"{name}.lock"):
        if target.exists() and (checksum is None or digest_of(target, checksum) == checksum):
            return target
        _fetch(url, part, checksum)
        if checksum is not None and (found := digest_of(part, checksum)) != checksum:
            _forget(part)
            raise ValueError(f"download: {url} has the checksum {found}, but {checksum} was expected")
        os.replace(part, target)
        _forget(part)
    return target


def digest_of(path: Path, like: str) -> str:
    """The checksum of a file, of the kind of another one: ``"md5:..."``."""
    kind = like.partition(":")[0]
    if kind not in ("md5", "sha256"):
        raise ValueError(f"checksum: expected 'md5:...' or 'sha256:...', but got {like!r}")
    with open(path, "rb") as file:
        return f"{kind}:{hashlib.file_digest(file, kind).hexdigest()}"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time."""
    with open(path, "w") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _forget(part: Path) -> None:
    for path in (part, _tag_of(part)):
        path.unlink(missing_ok=True)


def _tag_of(part: Path) -> Path:
    """What says which version of the file the bytes are of: the server's ETag or date."""
    return part.with_name(f"{part.name}.version")


def _fetch(url: str, part: Path, checksum: str | None) -> None:
    """Have all bytes in `part`."""
    for attempt in range(TRIES):
        before = part.stat().st_size if part.exists() else 0
        try:
            _fetch_rest(url, part, checksum is not None)
            return
        except urllib.error.HTTPError as error:
            if error.code != 416 or before == 0:
                raise
            if checksum is not None and digest_of(part, checksum) == checksum:  # it was all there
                return
            _forget(part)
        except (http.client.IncompleteRead, ConnectionError, TimeoutError) as error:
            if attempt == TRIES - 1:
                raise OSError(f"download: {url} ended early, {TRIES} times") from error
    raise OSError(f"download: {url} was never given whole")


def _fetch_rest(url: str, part: Path, checked: bool) -> None:
    """Go on where `part` ends.  Without a checksum only if the server says that the file is still the same."""
    have, tag = part.stat().st_size if part.exists() else 0, _tag_of(part)
    version = tag.read_text() if tag.exists() else ""
    headers = {"User-Agent": "dynagraph"}
    if have and (version or checked):
        headers["Range"] = f"bytes={have}-"
        if version:
            headers["If-Range"] = version
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=TIMEOUT) as source:
        goes_on = source.status == 206 and _start_of(source) == have
        if source.status == 206 and not goes_on:
            raise OSError(f"download: {url} was asked for bytes from {have}, and gave {source.headers.get('Content-Range')!r}")
        tag.write_text(_version_of(source))
        with open(part, "ab" if goes_on else "wb") as file:
            while chunk := source.read(CHUNK):
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
            if source.length:  # http.client tells of a short body only where all of it is read at once
                raise http.client.IncompleteRead(b"", source.length)


def _start_of(source: Any) -> int:
    """Of ``bytes 100-199/200``: 100."""
    start = str(source.headers.get("Content-Range", "")).removeprefix("bytes ").partition("-")[0]
    return int(start) if start.isdigit() else -1


def _version_of(source: Any) -> str:
    tag = source.headers.get("ETag", "")
    return source.headers.get("Last-Modified", "") if not tag or tag.startswith("W/") else tag


def extract(archive: str | os.PathLike[str], folder: str | os.PathLike[str]) -> Path:
    """Unpack a tar (also compressed) or zip file, and give the folder.

    Of what an archive may hold, only files and folders below `folder` come out: ValueError for paths that lead elsewhere, and for
    links and devices.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if tarfile.is_tarfile(archive):
        with tarfile.open(archive) as tar:
            members = tar.getmembers()
            for member in members:
                if not (member.isfile() or member.isdir()):
                    raise ValueError(f"extract: {archive} holds {member.name!r}, which is neither a file nor a folder")
                _check_below(folder, member.name, archive)
            tar.extractall(folder, members, filter="data")
    elif zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            for name in packed.namelist():
                _check_below(folder, name, archive)
            packed.extractall(folder)
    else:
        raise ValueError(f"extract: {archive} is neither a tar nor a zip file")
    return folder


def _check_below(folder: Path, name: str, archive: Any) -> None:
    root = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(root, name))
    if path != root and not path.startswith(root + os.sep):
        raise ValueError(f"extract: {archive} holds {name!r}, which leads out of {folder}")


__all__ = ["cache_folder", "digest_of", "download", "extract"]
