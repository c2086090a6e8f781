"""Make turns of the parts of a record, with the text of messages, tool calls and results.

Every word of a tool call or a result can be found. Source: docs/reference/transcript-format.md, section 6.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from contextvars import ContextVar

from crystal.model.capture import Role, Turn
from crystal.model.named_tuple import NamedTuple
from crystal.text.grapheme import boundary_before
from crystal.transcript.copies import copied_turns
from crystal.transcript.line import Fields, clean_text, dicts_of, fields_of, word

RESULT_HEAD = 6000
RESULT_TAIL = 2000
"""Characters of a long tool result that are indexed. The archive keeps the whole."""
TEXT_HEAD = 6_000_000
TEXT_TAIL = 2_000_000
"""The same of any other text. Nobody writes so much; to index all of it would take ten times as much memory."""

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
_MEDIA_TYPES = frozenset(("media_type", "mediaType", "mime_type", "mimeType"))
_DATA = re.compile(r"data:[\w.+/-]{0,80};base64,")
_FILES_FOLLOW = "--- Content from referenced files ---"
MIN_UNIQUE_ID = 32
"""A shorter id may come again in another session."""


class Part(NamedTuple):
    """One part of a record: who said it, the text, and the tool of a call or a result."""

    role: Role
    text: str
    tool: str | None = None


def unique_id(ident: str, session: str) -> str:
    """Return the id of a message that no other session has: itself if it is long, else after its session's."""
    return ident if len(ident) >= MIN_UNIQUE_ID else f"{session}-{ident}"


def turns_of_parts(parts: Iterable[Part], turn: Turn, record: Fields, *, subagent: bool) -> Iterator[Turn]:
    """Yield a turn for each part that has text.

    Args:
        parts: In their order. Their numbers are the parts of the turns, so a part without text keeps its number.
        turn: What all turns share: ``uuid``, ``offset``, times and places.
        record: The record: crystal itself may have written it, see ``crystal.handoff``.
        subagent: Whether a subagent said it: words have the role ``subagent`` then.
    """
    copies = copied_turns(record, turn)
    if copies is not None:
        yield from copies
        return
    for number, part in enumerate(parts):
        if not part.text.replace("\0", " ").strip():
            continue
        text = clean_text(part.text)
        shown = head_and_tail(text) if part.role == "tool_result" else head_and_tail(text, TEXT_HEAD, TEXT_TAIL)
        role = "subagent" if subagent and part.role in ("user", "assistant") else part.role
        yield turn._replace(part=number, role=role, text=shown, tool=part.tool, full_length=len(text))


def without_files(text: str) -> str:
    """Return what a person typed: without the files that Gemini CLI and its forks add after it."""
    typed, are_added, _ = text.partition(_FILES_FOLLOW)
    return typed.rstrip() if are_added else text


def parts_of_blocks(content: object, role: Role, tools: dict[str, str | None] | None = None) -> Iterator[Part]:
    """Yield the parts of a message whose content is a text, or blocks in the form of Anthropic's API.

    ``tools`` names the tools called so far by the id of the call, and is updated.
    """
    tools = {} if tools is None else tools
    for block in content if isinstance(content, list) else [content]:
        fields = fields_of(block)
        kind = fields.get("type")
        if kind == "thinking":
            yield Part("thinking", word(fields.get("thinking")) or word(fields.get("text")) or "")
        elif kind == "reasoning":
            summary = [word(one.get("text")) for one in dicts_of(fields.get("summary"))]
            yield Part("thinking", word(fields.get("text")) or "\n".join(filter(None, summary)))
        elif kind == "tool_use":
            tools[str(fields.get("id"))] = word(fields.get("name"))
            yield call(fields.get("name"), fields.get("input"))
        elif kind == "tool_result":
            texts = fields.get("content")
            tool = word(fields.get("name")) or tools.get(str(fields.get("tool_use_id")))
            yield Part("tool_result", result_text(texts) or call_text(None, texts), tool)
        else:
            yield Part(role, block_text(block))


def call(name: object, arguments: object) -> Part:
    """Return the part of a tool's call."""
    tool = word(name)
    return Part("tool_call", call_text(tool, arguments), tool)


def call_and_result(name: object, arguments: object, result: str) -> Iterator[Part]:
    """Yield the parts of a tool's call and of what it gave."""
    yield call(name, arguments)
    yield Part("tool_result", result, word(name))


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
    """Return the text of a block (document, resource, search result, or a text), else an empty one."""
    if isinstance(block, str):
        return block
    if not isinstance(block, dict):
        return ""
    kind = block.get("type")
    if kind == "resource":
        return _text(fields_of(block.get("resource")).get("text"))
    if kind == "document":
        source = block.get("source")
        data = source.get("data") if isinstance(source, dict) and source.get("type") == "text" else None
        return "\n".join(filter(None, (_text(block.get("title")), _text(data))))
    if kind in ("web_search_result", "search_result", "knowledge"):
        parts = [_text(block.get("title")), _text(block.get("url")) or _text(block.get("source"))]
        parts.append(_text(block.get("text")))
        inner = block.get("content")
        parts += [_text(b.get("text")) for b in inner if isinstance(b, dict)] if isinstance(inner, list) else []
        return "\n".join(filter(None, parts))
    has_lost_kind = (not isinstance(kind, str) or not kind) and block.keys() <= {"type", "text"}
    return _text(block.get("text")) if kind in ("text", "voice_note") or has_lost_kind else ""


@contextlib.contextmanager
def whole_results() -> Iterator[None]:
    """Let every reader give long results whole. Read all turns within the block: readers are generators."""
    token = _WHOLE.set(True)
    try:
        yield
    finally:
        _WHOLE.reset(token)


def head_and_tail(text: str, head: int = RESULT_HEAD, tail: int = RESULT_TAIL) -> str:
    """Shorten a long text to its first and last part, with a line between them about the omission."""
    if len(text) <= head + tail or _WHOLE.get():
        return text
    head_end = _line_end(text, head)
    tail_start = boundary_before(text, len(text) - tail, head_end)
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
    """Yield (nearest key, text) for every value in a JSON tree, in order, whatever its depth (no recursion).

    Pictures and sounds in base64 are left out: they have no words.
    """
    waiting: list[tuple[str, object]] = [("", value)]
    while waiting:
        key, node = waiting.pop()
        if isinstance(node, dict):
            left_out = "data" if not _MEDIA_TYPES.isdisjoint(node) else None
            waiting.extend((str(inner), child) for inner, child in reversed(node.items()) if inner != left_out)
        elif isinstance(node, list):
            if node and all(isinstance(child, int | float) for child in node):
                yield key, ", ".join(map(_scalar, node))
            else:
                waiting.extend((key, child) for child in reversed(node))
        elif node is not None and node != "" and not (isinstance(node, str) and _DATA.match(node)):
            yield key, _scalar(node)


def _scalar(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
