"""Find functions and classes in source code with the tree-sitter grammars that are installed (extra ``code``).

Each grammar is a separate package with a compiled parser: nothing is downloaded at run time. Files of a language
without a grammar are split at paragraphs.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING

from crystal.model.named_tuple import NamedTuple

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MIN_SPLIT = 1_600
"""Size in bytes up to which a class stays in one piece with its methods."""
MAX_DEPTH = 6
MAX_NAME = 80


class Grammar(NamedTuple):
    """A package, and its function that returns the language."""

    package: str
    function: str = "language"


_GRAMMARS: dict[str, Grammar] = {
    "py pyi": Grammar("tree_sitter_python"),
    "js jsx mjs cjs": Grammar("tree_sitter_javascript"),
    "ts mts cts": Grammar("tree_sitter_typescript", "language_typescript"),
    "tsx": Grammar("tree_sitter_typescript", "language_tsx"),
    "go": Grammar("tree_sitter_go"),
    "rs": Grammar("tree_sitter_rust"),
    "java": Grammar("tree_sitter_java"),
    "c h": Grammar("tree_sitter_c"),
    "cc cpp cxx hh hpp hxx": Grammar("tree_sitter_cpp"),
    "cs": Grammar("tree_sitter_c_sharp"),
    "rb": Grammar("tree_sitter_ruby"),
    "php": Grammar("tree_sitter_php", "language_php"),
    "sh bash": Grammar("tree_sitter_bash"),
}
GRAMMARS = {suffix: grammar for suffixes, grammar in _GRAMMARS.items() for suffix in suffixes.split()}
"""The grammar of a file, by its suffix."""

_DEFINES = re.compile(
    r"(?:.*_)?(?:function|method|class|interface|struct|enum|trait|impl|mod|namespace|constructor|record|type|macro)"
    r"(?:_alias)?_(?:definition|declaration|item|specifier)|decorated_definition|template_declaration|export_statement"
    r"|(?:lexical|variable)_declaration|(?:singleton_)?method|class|module"
)
_HOLDS_OTHERS = re.compile(r".*(?:class|interface|struct|trait|impl|mod|namespace|module|record).*")
_VARIABLES = ("lexical_declaration", "variable_declaration")
_WRAPPERS = ("decorated_definition", "template_declaration", "export_statement")

Definition = tuple[str, int, int]
"""Title, start and end offset in characters."""


def installed_grammars() -> list[str]:
    """Return the packages of grammars that are installed."""
    if importlib.util.find_spec("tree_sitter") is None:
        return []
    packages = sorted({grammar.package for grammar in GRAMMARS.values()})
    return [name for name in packages if importlib.util.find_spec(name) is not None]


def definitions(path: str, text: str) -> list[Definition]:
    """Divide code into its functions and classes, and the text between them; empty without a grammar."""
    suffix = path.rpartition(".")[2].lower()
    parser = _parser(GRAMMARS[suffix]) if suffix in GRAMMARS else None
    if parser is None:
        return []
    data = text.encode("utf-8", "surrogatepass")
    spans = list(_spans(parser.parse(data).root_node, "", 0, len(data), 0))
    return spans if text.isascii() else _in_characters(spans, data)


@cache
def _parser(grammar: Grammar) -> Parser | None:
    try:
        tree_sitter = importlib.import_module("tree_sitter")
        language = getattr(importlib.import_module(grammar.package), grammar.function)
        parser: Parser = tree_sitter.Parser(tree_sitter.Language(language()))
    except (ImportError, AttributeError, ValueError):  # ValueError: the versions of grammar and parser differ
        return None
    return parser


def _spans(node: Node, title: str, start: int, end: int, depth: int) -> Iterator[Definition]:
    """Yield the definitions in ``node``, and the text between them, so that they cover ``[start, end)``, in bytes."""
    at = start
    for child in _members(node):
        name = _name_of(child)
        if name is None:
            continue
        begin = _with_comments(child, at)
        if begin > at:
            yield title, at, begin
        inner = f"{title}.{name}" if title else name
        stop = min(end, max(begin, child.end_byte))
        core = _core(child)
        if depth < MAX_DEPTH and _HOLDS_OTHERS.fullmatch(core.type) and stop - begin > MIN_SPLIT:
            yield from _spans(core, inner, begin, stop, depth + 1)
        else:
            yield inner, begin, stop
        at = stop
    if at < end:
        yield title, at, end


def _members(node: Node) -> list[Node]:
    """Return the children of a node; of a class, those of its body."""
    body = node.child_by_field_name("body")
    return (node if body is None else body).named_children


def _with_comments(node: Node, low: int) -> int:
    """Return the start of a definition with the comments directly above it, at least ``low``."""
    begin, row, above = node.start_byte, node.start_point[0], node.prev_named_sibling
    while above is not None and "comment" in above.type and above.start_byte >= low and above.end_point[0] >= row - 1:
        begin, row, above = above.start_byte, above.start_point[0], above.prev_named_sibling
    return max(begin, low)


def _core(node: Node) -> Node:
    """Return the definition inside of decorators, templates and exports."""
    for _ in range(MAX_DEPTH):
        inner = [child for child in node.named_children if _DEFINES.fullmatch(child.type)]
        if node.type not in _WRAPPERS or not inner:
            break
        node = inner[-1]
    return node


def _name_of(node: Node) -> str | None:
    """Return the name of a definition; None if the node is not a definition."""
    if not _DEFINES.fullmatch(node.type):
        return None
    core = _core(node)
    if core.type in _WRAPPERS or (core.type.endswith(_VARIABLES) and not _is_function(core)):
        return None
    named = core
    for _ in range(MAX_DEPTH):  # in C the name is inside of declarators, in Go a type's inside of its specification
        inner = _inner_name(named)
        if inner is None:
            break
        named = inner
    words = (named.text or b"").decode("utf-8", "replace").split()
    return " ".join(words)[:MAX_NAME] or core.type.partition("_")[0]


def _is_function(node: Node) -> bool:
    """Return True if a declared variable is a function or a class."""
    value = node.named_children[0].child_by_field_name("value") if node.named_children else None
    return value is not None and value.type in ("arrow_function", "function_expression", "class")


def _inner_name(node: Node) -> Node | None:
    fields = ("name", "declarator", "type" if node.type.startswith("impl") else "name")
    found = next((child for field in fields if (child := node.child_by_field_name(field)) is not None), None)
    return found if found is not None or not node.type.endswith("_declaration") else node.named_children[0]


def _in_characters(spans: list[Definition], data: bytes) -> list[Definition]:
    """Convert offsets in bytes to offsets in characters; the spans follow each other without a gap."""
    texts = (data[start:end].decode("utf-8", "surrogatepass") for _, start, end in spans)
    ends = list(accumulate(map(len, texts)))
    return [(title, end_before, end) for (title, *_), end_before, end in zip(spans, [0, *ends], ends, strict=False)]
