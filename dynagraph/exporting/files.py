"""Files of exported programs: a zip, nothing compressed, with the graph as JSON and the arrays in the format of safetensors.

    program.json           see schema.py
    weights.safetensors    at a multiple of 64 bytes: it is mapped into memory, not read
    metadata.json          who wrote it, and what the user gave
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import tempfile
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from dynagraph import safetensors
from dynagraph.errors import ExportError
from dynagraph.exporting.program import ExportedProgram
from dynagraph.exporting.schema import Reader, as_dict

PROGRAM, WEIGHTS, METADATA = "program.json", "weights.safetensors", "metadata.json"
ALIGNMENT = 64
MOST_JSON = 1 << 28  # bytes
WIDE = "wide complex numbers: "  # begins the metadata of arrays that the format has not: pairs of float64


def save(program: ExportedProgram, path: Any, *, extra: Mapping[str, str] | None = None) -> None:
    """Write a program to a file, which replaces one of that name when it is complete.

    extra: texts of the user's, which `load_exported` gives as `program.extra`.
    """
    if not isinstance(program, ExportedProgram):
        raise ExportError(f"save: expected an exported program, got {type(program).__name__}")
    described, arrays = as_dict(program)
    wide = [name for name, array in arrays.items() if array.dtype == np.complex128]
    arrays |= {name: arrays[name].reshape(*arrays[name].shape, 1).view(np.float64) for name in wide}
    described["wide"] = wide
    texts = dict(program.extra if extra is None else extra)
    if not all(isinstance(k, str) and isinstance(v, str) for k, v in texts.items()):
        raise ExportError("save: extra must be a dict of texts by text")
    path = os.fspath(path)
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(os.path.abspath(path)), prefix=".dynagraph-")
    try:
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            archive.writestr(zipfile.ZipInfo(METADATA), json.dumps({"format": "dynagraph program", "extra": texts}))
            archive.writestr(zipfile.ZipInfo(PROGRAM), json.dumps(described, separators=(",", ":"), allow_nan=False))
            _write_aligned(archive, file, arrays)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _write_aligned(archive: zipfile.ZipFile, file: Any, arrays: dict[str, np.ndarray]) -> None:
    """The weights, behind as much padding in the entry's header as they need to begin at a multiple of ALIGNMENT."""
    info = zipfile.ZipInfo(WEIGHTS)
    info.file_size = safetensors.size(arrays)
    wide = 20 if info.file_size >= zipfile.ZIP64_LIMIT else 0  # what zipfile adds for the sizes
    begin = file.tell() + 30 + len(WEIGHTS) + wide + 4
    info.extra = struct.pack("<HH", 0xD647, -begin % ALIGNMENT) + b"\0" * (-begin % ALIGNMENT)
    with archive.open(info, "w", force_zip64=bool(wide)) as entry:
        for chunk in safetensors.chunks(arrays):
            entry.write(chunk)


def load(path: Any) -> ExportedProgram:
    """The program of a file.  Its weights are mapped into memory, so that those that calls do not use are not read.

    Nothing in the file is run: it names ops of dynagraph's.  Raises ExportError where it is no such file, or is damaged.
    """
    where = os.fspath(path)
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            described = _json(archive, PROGRAM, where)
            metadata = _json(archive, METADATA, where)
            begin, length = _place(archive, file, where)
    except (zipfile.BadZipFile, struct.error, EOFError, NotImplementedError, UnicodeDecodeError) as error:
        raise ExportError(f"{where}: not a program that dynagraph saved: {error}") from None
    data = np.memmap(path, np.uint8, "r", begin, (length,)) if length else np.zeros(0, np.uint8)
    arrays, _ = safetensors.parsed(data.view(np.ndarray), f"{where}, {WEIGHTS}")
    for name in described.get("wide", []) if isinstance(described, dict) else []:
        pairs = arrays.get(name)
        if pairs is None or pairs.dtype != np.float64 or pairs.ndim < 1 or pairs.shape[-1] != 2:
            raise ExportError(f"{where}: not a program that can be loaded: {str(name)[:80]} is no array of pairs")
        arrays[name] = pairs.view(np.complex128)[..., 0]
    program = Reader(described, arrays, where).program()
    extra = metadata.get("extra", {}) if isinstance(metadata, dict) else {}
    program.extra = {str(k): str(v) for k, v in extra.items()} if isinstance(extra, dict) else {}
    return program


def _json(archive: zipfile.ZipFile, name: str, where: str) -> Any:
    try:
        info = archive.getinfo(name)
    except KeyError:
        raise ExportError(f"{where}: not a program that dynagraph saved: it has no {name}") from None
    if info.compress_type != zipfile.ZIP_STORED or info.file_size > MOST_JSON or info.file_size != info.compress_size:
        raise ExportError(f"{where}: not a program that dynagraph saved: {name} is compressed or too large")
    try:
        return json.loads(archive.read(info))
    except (ValueError, RecursionError) as error:
        raise ExportError(f"{where}: {name} cannot be read: {error}") from None


def _place(archive: zipfile.ZipFile, file: Any, where: str) -> tuple[int, int]:
    """Where the bytes of the weights lie in the file."""
    try:
        info = archive.getinfo(WEIGHTS)
    except KeyError:
        raise ExportError(f"{where}: not a program that dynagraph saved: it has no {WEIGHTS}") from None
    if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
        raise ExportError(f"{where}: not a program that dynagraph saved: {WEIGHTS} is compressed")
    file.seek(info.header_offset)
    header = file.read(30)
    if len(header) < 30 or header[:4] != b"PK\3\4":
        raise ExportError(f"{where}: not a program that dynagraph saved: {WEIGHTS} has no header")
    name_length, extra_length = struct.unpack("<HH", header[26:30])
    begin = info.header_offset + 30 + name_length + extra_length
    file.seek(0, os.SEEK_END)
    if begin + info.file_size > file.tell():
        raise ExportError(f"{where}: is cut off: {WEIGHTS} should end at byte {begin + info.file_size} of {file.tell()}")
    return begin, info.file_size


__all__ = ["load", "save"]
