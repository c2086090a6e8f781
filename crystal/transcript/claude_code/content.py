"""Convert content blocks to text: tool calls and tool results, with every word searchable.

Source: docs/reference/transcript-format.md, section 6.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from crystal.text.grapheme import boundary_before

RESULT_HEAD = 6000
RESULT_TAIL = 2000
"""Characters of a long tool result that are indexed. The archive keeps the whole."""

_LINE_REACH = 400
_WHOLE: ContextVar[bool] = ContextVar("whole results", default=False)
_MAIN_ARGUMENTS = (
    "command",
    "file_path",
    "notebook_path",
    "pattern",
    "query",
    "url",
    "skill",
    "prompt",
    "path",
    "description",
)


def call_text(name: str | None, arguments: object) -> str:
    """Render a tool call: ``Bash: echo hi``, then the other arguments, one ``key: value`` per line.

    Every string of the input is included without escaping, so that its words can be found. Nested values are labelled
    with the nearest key.
    """
    lines = []
    head = name or ""
    main = _main_argument(arguments)
    if main is not None and isinstance(arguments, dict):
        head = f"{head}: {arguments[main]}" if head else str(arguments[main])
        arguments = {key: value for key, value in arguments.items() if key != main}
    if head:
        lines.append(head)
    lines.extend(f"{key}: {value}" if key else value for key, value in _leaves(arguments))
    return "\n".join(lines)


def result_text(content: object) -> str:
    """Render a tool result: its texts, one below the other. Images and other non-text are omitted."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else [content]
    return "\n".join(text for block in blocks if (text := block_text(block)))


def block_text(block: object) -> str:
    """Return the text of a text block (text, document, search result), else an empty text."""
    if isinstance(block, str):
        return block
    if not isinstance(block, dict):
        return ""
    kind = block.get("type")
    if kind == "text":
        return _text(block.get("text"))
    if kind == "document":
        source = block.get("source")
        data = source.get("data") if isinstance(source, dict) and source.get("type") == "text" else None
        return "\n".join(filter(None, (_text(block.get("title")), _text(data))))
    if kind in ("web_search_result", "search_result"):
        parts = [_text(block.get("title")), _text(block.get("url")) or _text(block.get("source"))]
        inner = block.get("content")
        parts += [_text(b.get("text")) for b in inner if isinstance(b, dict)] if isinstance(inner, list) else []
        return "\n".join(filter(None, parts))
    return ""


@contextlib.contextmanager
def whole_results() -> Iterator[None]:
    """Let every reader give long results whole. Read all turns within the block: readers are generators."""
    token = _WHOLE.set(True)
    try:
        yield
    finally:
        _WHOLE.reset(token)


def head_and_tail(text: str) -> str:
    """Shorten a long text to its first and last part, with a line between them about the omission."""
    if len(text) <= RESULT_HEAD + RESULT_TAIL or _WHOLE.get():
        return text
    head_end = _line_end(text, RESULT_HEAD)
    tail_start = boundary_before(text, len(text) - RESULT_TAIL, head_end)
    return f"{text[:head_end]}\n[... {tail_start - head_end} characters left out ...]\n{text[tail_start:]}"


def _line_end(text: str, at: int) -> int:
    newline = text.rfind("\n", at - _LINE_REACH, at)
    return newline if newline > 0 else boundary_before(text, at, 0)


def _main_argument(arguments: object) -> str | None:
    if not isinstance(arguments, dict):
        return None
    for key in _MAIN_ARGUMENTS:
        value = arguments.get(key)
        if isinstance(value, str) and value.strip():
            return key
    return None


def _leaves(value: object) -> Iterator[tuple[str, str]]:
    """Yield (nearest key, text) for every value in a JSON tree, in order, whatever its depth (no recursion)."""
    waiting: list[tuple[str, object]] = [("", value)]
    while waiting:
        key, node = waiting.pop()
        if isinstance(node, dict):
            waiting.extend((str(inner), child) for inner, child in reversed(node.items()))
        elif isinstance(node, list):
            if node and all(isinstance(child, int | float) for child in node):
                yield key, ", ".join(map(_scalar, node))
            else:
                waiting.extend((key, child) for child in reversed(node))
        elif node is not None and node != "":
            yield key, _scalar(node)


def _scalar(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
