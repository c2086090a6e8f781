"""Name what a message has that no reader knows: a block of a new kind, one without its text, or no content at all.

A record says its kind; what was said is in its blocks. A program that writes these in another form would lose words
without notice, because its records are of the kinds that they always were.
"""

from __future__ import annotations

from collections.abc import Iterator

from crystal.transcript.line import Fields, fields_of, list_of
from crystal.transcript.parts import call_text

_INNER = ("message", "data", "payload", "User", "Agent")
_LISTS = ("content", "parts", "response", "segments")
_SPEAKERS = tuple(
    "user assistant human gemini toolResult user.message assistant.message User Agent Prompt AssistantMessage".split()
)
_CONTENT = frozenset((*_INNER, *_LISTS, "text", "info", "attachments"))
_NEEDED = {
    "text": (("text", "data"),),
    "input_text": (("text",),),
    "output_text": (("text",),),
    "thinking": (("thinking", "text", "data", "value"),),
    "tool_use": (("name",), ("input",)),
    "tool_result": (("content",),),
    "toolCall": (("name",), ("arguments",)),
    "tool": (("tool", "name"), ("state",)),
    "tool-call": (("toolName",), ("args", "input")),
}
"""By the kind of a block, the fields that it has, each with its other names."""
_KINDS = frozenset(
    """
    text input_text output_text reasoning_text summary_text refusal thinking redacted_thinking redactedThinking
    thoughtSignature redacted-reasoning reasoning toolCall tool-call toolUse toolRequest frontendToolRequest
    toolConfirmationRequest
    actionRequired tool tool-result toolResult toolResponse tool_reference image image_url input_image input_audio audio
    input_file file document resource resource_link search_result knowledge container_upload fallback
    step-start step-finish snapshot patch agent subtask retry compaction contextLengthExceeded summarizationRequested
    conversationCompacted systemNotification json token_budget flag voice_note
    markdownContent markdownVuln inlineReference reference references usedContext treeData multiDiffData progressMessage
    progressTask progressTaskSerialized progressTaskResult command warning textEdit textEditGroup notebookEdit
    notebookEditGroup workspaceEdit confirmation move elicitation elicitation2 elicitationSerialized undoStop
    prepareToolInvocation toolInvocation toolInvocationSerialized extensions pullRequest codeblockUri codeCitation
    mcpServersStarting mcpServersInteractionRequired clearToPreviousToolInvocation hook questionCarousel
    """.split()
)
_ENDINGS = ("tool_use", "tool_result")
_TAGS = frozenset(
    """
    functionCall functionResponse inlineData fileData executableCode codeExecutionResult thought value
    Text Thinking RedactedThinking ToolUse Mention Image
""".split()
)
"""Fields of blocks that have no kind."""
_TEXT_ALONE = {"type", "text", "thoughtSignature"}


def is_known_block(kind: str) -> bool:
    """Return whether a reader knows blocks of this kind."""
    return kind in _KINDS or kind.endswith(_ENDINGS)


def unknown_block(fields: Fields) -> str | None:
    """Return what no reader knows in the content of a record, None if all of it is known."""
    waiting: list[tuple[object, Fields]] = [(None, fields)]
    while waiting:
        name, message = waiting.pop()
        found = next(filter(None, map(_unknown, _blocks(message))), None)
        if found is not None:
            return found
        speaker = message.get("role") or message.get("type")
        is_speech = name in _SPEAKERS or speaker in _SPEAKERS
        if is_speech and _CONTENT.isdisjoint(message) and " " in call_text(None, [*message.values()]):
            return "without-content"
        inner = ((one, message.get(one)) for one in _INNER)
        kind = message.get("type") or message.get("kind")
        waiting += [(kind or one, told) for one, told in inner if isinstance(told, dict)]
    return None


def _blocks(message: Fields) -> Iterator[Fields]:
    """Yield the blocks of a message, and those in the results among them."""
    for name in _LISTS:
        for block in map(fields_of, list_of(message.get(name))):
            yield block
            if str(block.get("type")).endswith("tool_result"):  # what it gave may have any form
                yield from (one for one in map(fields_of, list_of(block.get("content"))) if "type" in one)


def _unknown(block: Fields) -> str | None:
    kind = block.get("type", block.get("kind"))
    if not isinstance(kind, str) or not kind:
        is_known = block.keys() <= _TEXT_ALONE or not _TAGS.isdisjoint(block)
        return None if is_known else "without-kind"
    if not is_known_block(kind):
        return kind
    missing = (names[0] for names in _NEEDED.get(kind, ()) if block.keys().isdisjoint(names))
    return next((f"{kind}-without-{name}" for name in missing), None)
