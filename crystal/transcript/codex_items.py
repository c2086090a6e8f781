"""Parse the items in Codex's rollouts: messages, thoughts, calls of tools and their results."""

from __future__ import annotations

import re
from collections.abc import Iterator

from crystal.transcript.line import Fields, fields_of, parse_line, word
from crystal.transcript.parts import Part, call, call_and_result, call_text
from crystal.transcript.tables import object_of

ITEM = "response_item"
SUMMARY = "compacted"
"""Also holds the history that remains; it is in the lines before."""

_BARE_ITEMS = frozenset(("message", "reasoning", "function_call", "function_call_output", "local_shell_call"))
"""Items that the first versions wrote without anything around them."""

_WRITTEN_BY_PROGRAM = re.compile(
    r"\s*(?:# AGENTS\.md instructions|<user_instructions>|<environment_context>|<image\b[^>]*>\s*$|</image>\s*$"
    r"|Warning: (?:The maximum number of unified exec processes|apply_patch was requested)"
    # Elements whose name has an underscore, and some others: nobody writes a message in one.
    r"|<(?P<tag>[a-z]+(?:_[a-z]+)+|skill|plugin|hook_prompt)\b[^>]*>.*</(?P=tag)>\s*$)",
    re.DOTALL,
)
_SHELL = re.compile(
    r"\s*<user_shell_command>\s*<command>\n?(.*?)\n?</command>\s*<result>\n?(.*?)\n?</result>\s*</user_shell_command>\s*",
    re.DOTALL,
)
_REQUEST = "## My request for Codex:"
_SUMMARY_FOLLOWS = "Another language model started to solve this problem"


def record_of(fields: Fields) -> tuple[str, Fields]:
    """Return the kind of a line and what it holds."""
    kind, told = str(fields.get("type")), fields.get("payload")
    if isinstance(told, dict):
        return kind, told
    if kind in _BARE_ITEMS:
        return ITEM, fields
    return ("session_meta" if "instructions" in fields else ""), fields


def parts_of_record(kind: str, told: Fields, fields: Fields) -> Iterator[Part]:
    """Yield what a line says."""
    if kind == SUMMARY:
        text = word(told.get("message")) or ""
        yield Part("summary", text.partition("\n")[2] if text.startswith(_SUMMARY_FOLLOWS) else text)
    elif kind == ITEM and not _is_summary_again(fields):
        yield from _parts_of_item(told)


def texts_of(content: object) -> list[str]:
    """Return the texts of a message's content, one for each block, empty for an image."""
    blocks = content if isinstance(content, list) else [content]
    texts = [block.get("text") if isinstance(block, dict) else block for block in blocks]
    return [text if isinstance(text, str) else "" for text in texts]


def _is_summary_again(fields: Fields) -> bool:
    return fields_of(fields.get("metadata")).get("compaction_output") is True


def _parts_of_item(item: Fields) -> Iterator[Part]:
    kind = str(item.get("type") or "message")
    # Agents write to each other in items of a kind of their own.
    if kind == "agent_message" or (kind == "message" and item.get("role") == "assistant"):
        yield from (Part("assistant", text) for text in texts_of(item.get("content")))
    elif kind == "message" and item.get("role") == "user":
        yield from _parts_of_user(item)
    elif kind == "reasoning":
        yield from (Part("thinking", text) for text in texts_of(item.get("summary")) + texts_of(item.get("content")))
    elif kind.endswith("_output"):
        yield Part("tool_result", _result(item))
    elif kind.endswith("_call"):
        yield call(_tool(item, kind), _arguments(item))


def _parts_of_user(item: Fields) -> Iterator[Part]:
    """Yield what a person typed, and the commands that a person ran in the program's prompt."""
    kinds = fields_of(item.get("internal_chat_message_metadata_passthrough")).get("content_item_kinds")
    for number, text in enumerate(texts_of(item.get("content"))):
        kind = kinds[number] if isinstance(kinds, list) and number < len(kinds) else None
        shell = _SHELL.fullmatch(text)
        if shell:
            yield from call_and_result("shell", {"command": shell[1]}, shell[2])
        elif isinstance(kind, str) and kind != "unknown" and not kind.startswith("user."):
            yield Part("user", "")
        else:
            yield Part("user", "" if _WRITTEN_BY_PROGRAM.match(text) else _request(text))


def _request(text: str) -> str:
    """Return what was typed after the context that an editor's extension adds."""
    _, found, request = text.rpartition(_REQUEST)
    return request.strip() if found else text


def _tool(item: Fields, kind: str) -> str:
    name, namespace = word(item.get("name")), word(item.get("namespace"))
    if name and namespace and not name.startswith(namespace):
        return f"{namespace}__{name.lstrip('_')}"
    return name or kind.removesuffix("_call")


def _arguments(item: Fields) -> object:
    """Return the arguments of a call. A command is one text, whichever way it is written."""
    given = next((item[name] for name in ("arguments", "input", "action") if item.get(name)), None)
    if given is None:
        return {name: item.get(name) for name in ("query", "revised_prompt")}
    arguments = parse_line(given.encode("utf-8", "replace")) if isinstance(given, str) else given
    if not isinstance(arguments, dict):
        return given
    arguments = {"command" if name == "cmd" else name: value for name, value in arguments.items()}
    command = arguments.get("command")
    if isinstance(command, list):
        words = [str(one) for one in command]
        is_script = len(words) == 3 and words[1] in ("-c", "-lc")
        arguments["command"] = words[2] if is_script else " ".join(words)
    return arguments


def _result(item: Fields) -> str:
    """Return the text of a result: a text, blocks, an object around one of them, or a list of found tools."""
    output = item.get("output")
    if isinstance(output, str) and output.startswith('{"output"'):
        output = object_of(output) or output
    if isinstance(output, dict):
        inner = output.get("output") or output.get("content")
        output = inner if isinstance(inner, str | list) else output
    if output is None:
        output = item.get("tools")
    return "\n".join(filter(None, texts_of(output))) or call_text(None, output)
