"""What a generated C file uses of the headers, and nothing else: the compiler's time goes with the amount of text.

A header is divided into items: declarations, functions, macros, and what stands between `#if` and `#endif` as a whole.  A macro
DG_DEFINE_... that stands by itself is expanded here, so that each function that it defines is an item.  An item is needed where
what it declares is named by the program, or by another item that is needed: names of items are pasted by such macros only.

Headers are written so that lines tell: an item begins in the first column, and what else does is a brace of its.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from importlib import resources

GROUND = ("types.h", "_core/runtime.h")  # what all files may use

_COMMENT = re.compile(r" */\*.*?\*/", re.DOTALL)
_GUARD = re.compile(r"\s*#ifndef (\w+)\n#define \1\n(.*)#endif\s*", re.DOTALL)
_BLOCK = r"\{\n(?:(?: [^\n]*)?\n)*\}[^\n]*"  # to its end in the first column
_ITEM = re.compile(
    r"^(?:(?P<group>#if[\s\S]*?\n#endif)"
    r"|#define (?P<macro>\w+)(?:\((?P<parameters>[^)]*)\))?(?P<body>(?:\\\n|[^\n])*)"
    r"|(?P<calls>DG_DEFINE_\w+\([^\n]*\))"
    rf"|(?P<function>\w[^\n]*(?:\n [^\n]*)*\n{_BLOCK}|\w[^\n;]*\) \{{ [^\n]* \}})"
    rf"|(?P<declared>\w[^\n]*{_BLOCK}|\w[^\n]*(?:\n [^\n]*)*;)"
    r"|(?P<other>[^\n]+))",
    re.MULTILINE,
)
_LINE_END = re.compile(r" *\\\n(?:    )?")
_CALL = re.compile(r"(DG_DEFINE_\w+)\(((?:[^()]|\([^()]*\))*)\)")
_COMMA = re.compile(r",(?![^()]*\))")
_NAME = re.compile(r"[A-Za-z_]\w+")
_WORD = re.compile(r"[A-Za-z_]\w*")
_DEFINED = re.compile(r"^#define (\w+)", re.MULTILINE)
_ATTRIBUTE = re.compile(r"__attribute__\(\([^;{]*?\)\)(?=\s|;)")
_TAG = re.compile(r"\b(?:struct|union)\s+([\w#]+)\s*[{;]")
_CONSTANT = re.compile(r"[{,]\s*([\w#]+)")
_TYPE_OF_FUNCTION = re.compile(r"typedef[^({;]*\(\*([\w#]+)\)\(")
_CALLED = re.compile(r"([\w#]+)\(")
_LAST = re.compile(r"([\w#]+)\s*(?:\[[^\n]*\])?(?: = [^\n]*)?;\Z")


class Item:
    """`names`: what it declares.  `given`: arguments of the macro of which it is a part."""

    def __init__(self, text: str, names: tuple[str, ...], given: Mapping[str, str] | None = None):
        self._text, self._given = text, given
        self.names = names if given is None else tuple(_put(name, given) for name in names)

    @functools.cached_property
    def text(self) -> str:
        return self._text if self._given is None else _put(self._text, self._given)

    @functools.cached_property
    def uses(self) -> frozenset[str]:
        """The names in its text."""
        return frozenset(_NAME.findall(self.text))


def with_headers(support: tuple[str, ...], defined: str, *texts: str, definitions: str = "") -> str:
    """The C file of texts: `defined`, then what they use of the ground and support headers and of more `definitions`."""
    items, places, macros = _library(support)
    if definitions:
        items, places = list(items), dict(places)
        _enter(_items_of(definitions, dict(macros)), items, places)
    needed: set[int] = set()
    pending = places.keys() & set().union(*map(_NAME.findall, texts))
    while pending:
        found = {k for name in pending for k in places[name]} - needed
        needed |= found
        pending = {name for k in found for name in items[k].uses & places.keys()}
    return "\n".join([f"#define DG_TYPES\n{defined}", *(items[k].text for k in sorted(needed)), *texts])


Places = dict[str, tuple[int, ...]]  # of items, by the names that they declare
Macros = dict[str, tuple[tuple[str, ...], str]]  # parameters and body


@functools.cache
def _library(support: tuple[str, ...]) -> tuple[list[Item], Places, Macros]:
    items: list[Item] = []
    places: Places = {}
    macros: Macros = {}
    for name in (*GROUND, *support):
        _enter(_items_of(_text_of(name), macros), items, places)
    return items, places, macros


def _enter(more: Iterator[Item], items: list[Item], places: Places) -> None:
    for item in more:
        for name in dict.fromkeys(item.names):
            places[name] = (*places.get(name, ()), len(items))
        items.append(item)


def _text_of(name: str) -> str:
    root = resources.files("dynagraph")
    text = (root.joinpath(name) if "/" in name else root.joinpath("backends", "c", name)).read_text()
    text = _COMMENT.sub("", text)
    guarded = _GUARD.fullmatch(text)
    return guarded[2] if guarded else text


def _items_of(text: str, macros: Macros, given: Mapping[str, str] | None = None) -> Iterator[Item]:
    """`macros`: those of the definitions so far."""
    for kind, part, names in _divided(text):
        if kind == "calls":
            for name, arguments in _CALL.findall(part if given is None else _put(part, given)):
                parameters, body = macros[name]
                yield from _items_of(body, macros, dict(zip(parameters, map(str.strip, _COMMA.split(arguments)), strict=True)))
            continue
        if kind == "macro":
            defined = _ITEM.match(part)
            if defined is not None and defined["parameters"] is not None:
                parameters = tuple(p.strip() for p in defined["parameters"].split(","))
                macros[names[0]] = parameters, _LINE_END.sub("\n", defined["body"]).strip()
        yield Item(part, names, given)


@functools.cache
def _divided(text: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """Kind, text and names of the items; of a macro's body with its parameters."""
    made = []
    for match in _ITEM.finditer(text):
        kind, part = match.lastgroup or "", match[0]
        if match["macro"]:
            kind, names = "macro", [match["macro"]]
        elif kind == "group":
            names = _DEFINED.findall(part)
        elif kind == "calls":
            names = []
        elif kind == "function":
            names = _CALLED.findall(_ATTRIBUTE.sub("", part.partition("{")[0]))[:1]
        elif kind == "declared":
            names = _declared(_ATTRIBUTE.sub("", part))
        else:
            raise ValueError(f"no item of a header: {part}")
        made.append((kind, part, tuple(names)))
    return made


def _declared(text: str) -> list[str]:
    of_function = _TYPE_OF_FUNCTION.match(text)
    if of_function is not None:
        return [of_function[1]]
    if text.startswith("enum"):
        return _CONSTANT.findall(text)
    last = _LAST.search(text)
    if last is None and "{" not in text:
        return _CALLED.findall(text)  # prototypes
    return [*_TAG.findall(text), *([last[1]] if last else [])]


def _put(text: str, given: Mapping[str, str]) -> str:
    return _WORD.sub(lambda word: given.get(word[0], word[0]), text).replace("##", "")


__all__ = ["with_headers"]
