"""Pickles that are no data: each of these must be refused, run nothing, and take no memory."""

from __future__ import annotations

import struct
from collections.abc import Iterator

SYSTEM = b"cos\nsystem\n(X\x04\x00\x00\x00falstR."


def text(value: str) -> bytes:
    """The opcode for a short text."""
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def called(name: str, *args: bytes) -> bytes:
    """A call of a global with arguments."""
    return b"\x80\x02c" + name.replace(" ", "\n").encode() + b"\n(" + b"".join(args) + b"tR."


def number(value: int) -> bytes:
    data = value.to_bytes((value.bit_length() + 8) // 8 or 1, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


HUGE = number(10**12)
STORAGE = b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text("0") + text("cpu") + b"K\x04tQ"
FORBIDDEN = (
    "os system", "posix system", "nt system", "subprocess Popen", "builtins eval", "__builtin__ eval", "builtins exec",
    "builtins compile",
    "builtins getattr", "builtins setattr", "builtins __import__", "builtins open", "builtins type", "builtins object", "sys exit",
    "functools partial", "operator attrgetter", "operator methodcaller", "importlib import_module", "runpy run_path",
    "shutil rmtree",
    "pickle loads", "torch load", "torch.hub load", "torch.serialization load", "torch.storage _load_from_bytes", "numpy load",
    "numpy.core.multiarray frombuffer",
    "numpy._core.multiarray _frombuffer", "codecs decode", "_codecs decode", "copyreg _reconstructor", "types CodeType",
    "types FunctionType",
    "dynagraph.torch.serialization.allowed add_safe_globals", "torch.serialization add_safe_globals", "torch._utils _set_obj_state",
    "socket create_connection", "webbrowser open", "ctypes CDLL",
)  # fmt: skip


def pickles() -> Iterator[tuple[str, bytes]]:
    """Hostile pickles by what they try."""
    for name in FORBIDDEN:
        yield f"calls {name}", called(name, text("1"))
    yield "a reduce by protocol 4", b"\x80\x04\x8c\x02os\x8c\x06system\x93(\x8c\x04falstR."
    yield "an old instance", b"(ios\nsystem\n."
    yield "an old object", b"(cos\nsystem\no."
    yield "an extension", b"\x80\x02\x82\x01."
    yield "gigabytes of a bytearray", called("builtins bytearray", HUGE)
    yield "gigabytes of bytes", called("builtins bytes", HUGE)
    yield "gigabytes of a tensor", called("torch FloatTensor", HUGE)
    yield "gigabytes of a set", called("builtins set", called("builtins range", HUGE)[2:-1])
    yield "gigabytes of an array", called("numpy._core.multiarray _reconstruct", b"cnumpy\nndarray\n", HUGE + b"\x85", text("b"))
    yield "a text of gigabytes", b"\x80\x02X\xff\xff\xff\xff."
    yield "a text of exabytes", b"\x80\x04\x8d" + b"\xff" * 7 + b"\x7f."
    yield "a bytearray of exabytes", b"\x80\x05\x96" + b"\xff" * 7 + b"\x7f."
    yield "a number of gigabytes", b"\x80\x02\x8b\xff\xff\xff\x7f."
    yield "a compressed text", called("_codecs encode", text("x" * 99), text("zlib_codec"))
    yield "a storage that is not there", b"\x80\x02" + STORAGE.replace(text("0"), text("7")) + b"."
    yield "a storage of another size", b"\x80\x02" + STORAGE.replace(b"K\x04", HUGE) + b"."
    yield "a storage of a negative size", b"\x80\x02" + STORAGE.replace(b"K\x04", number(-1)) + b"."
    yield "a storage by a path", b"\x80\x02" + STORAGE.replace(text("0"), text("../../../etc/passwd")) + b"."
    yield "a storage elsewhere", b"\x80\x02" + STORAGE.replace(text("cpu"), text("mars")) + b"."
    yield "no storage", b"\x80\x02(" + text("module") + b"ctorch\nFloatStorage\ntQ."
    for what, place in (
        ("behind its storage", b"K\x00" + HUGE + b"\x85K\x01\x85"), ("before its storage", number(-4) + b"K\x04\x85K\x01\x85"),
        ("backwards", b"K\x03K\x04\x85" + number(-1) + b"\x85"),
        ("of too many dimensions", b"K\x00(" + b"K\x01" * 99 + b"t(" + b"K\x01" * 99 + b"t"),
        ("of two shapes", b"K\x00K\x01K\x01\x86K\x01\x85"), ("of exabytes", b"K\x00" + number(1 << 61) + b"\x85K\x00\x85"),
    ):  # fmt: skip
        yield f"a tensor {what}", b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + STORAGE + place + b"\x89)tR."
    yield (
        "a tensor of no storage",
        called("torch._utils _rebuild_tensor_v2", text("x"), b"K\x00", b"K\x01\x85", b"K\x01\x85", b"\x89", b")"),
    )
    rebuilt = b"ctorch._utils\n_rebuild_tensor_v2\n(" + STORAGE + b"K\x00K\x04\x85K\x01\x85\x89)t"
    for attribute in ("_array", "__class__", "_storage"):
        state = b"}" + text(attribute) + b"K\x01s"
        yield (
            f"an attribute {attribute}",
            b"\x80\x02ctorch._tensor\n_rebuild_from_type_v2\n("
            + rebuilt.replace(b"\n(", b"\nctorch\nTensor\n(", 1)
            + state
            + b"tR.",
        )
    yield "a state of a class", b"\x80\x02ctorch\nTensor\n}" + text("add") + b"K\x01sb."
    yield "a state of a function", b"\x80\x02ctorch._utils\n_rebuild_tensor\n}" + text("__code__") + b"K\x01sb."
    yield "a state of a list", b"\x80\x02]}b."
    yield "an append to a tensor", b"\x80\x02ctorch\nTensor\nK\x01a."
    yield "items of a class", b"\x80\x02ctorch\nTensor\nK\x01K\x02s."
    yield "a tower of tuples as a key", b"\x80\x02}" + b")" + b"\x85" * 20_000 + b"K\x01s."
    yield "copies of a copy", b"\x80\x02cbuiltins\nset\nq\x00]q\x01(" + b"K\x01" * 2000 + b"e" + b"h\x00h\x01\x85R" * 5000 + b"."
    yield "a dtype of objects", called("numpy dtype", text("O"), b"\x89", b"\x88")
    yield (
        "a dtype with fields",
        b"\x80\x02cnumpy\ndtype\n(" + text("V8") + b"\x89\x88tR(K\x03" + text("|") + b"N" + text("x") + b"}K\x08K\x01K\x10tb.",
    )
    yield "no values", b"\x80\x02."
    yield "a mark", b"\x80\x02(."
    yield "a value that was not made", b"\x80\x02h\x05."
    yield "protocol 9", b"\x80\x09N."
    yield "no end", b"\x80\x02]"
    yield "noise", bytes(range(256))
