"""The reader of Qwen Code's chats: a tree of lines, in the form of Gemini's API; before 0.5 Gemini CLI's documents.

Source: files of versions 0.1 and 0.24; tests/data/agents/qwen-code/README.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from crystal.model.capture import Turn
from crystal.transcript.claude_code.turns import strip_injected
from crystal.transcript.gemini_cli import GeminiReader
from crystal.transcript.line import Fields, fields_of, identifier, list_of, parse_line, word
from crystal.transcript.line_context import Context
from crystal.transcript.parts import Part, call, call_text, result_text, without_files
from crystal.transcript.reader import Identity

_SUBAGENTS = "subagents"
_TYPED = (None, "mid_turn_user_message", "realtime_message")
"""Kinds of user lines that a person wrote; the others are notifications and prompts of the program."""

_COMPRESSION = "chat_compression"
_GO_ON = "\n\nResume the prior task using the summary above."


class QwenReader(GeminiReader):
    """See ``GeminiReader``: that is for documents. Newer chats are read line by line."""

    silent_kinds = (*GeminiReader.silent_kinds, "assistant", "tool_result", "system")
    context_marks = (b'"custom_title"',)

    def identify(self, path: PurePath) -> Identity:
        """Return what a file belongs to: ``<session>.jsonl``, or ``subagents/<session>/agent-<id>.jsonl``."""
        if path.parent.parent.name == _SUBAGENTS:
            session, name = path.parent.name, path.stem
            return Identity(f"{session}/{name}", session, name.removeprefix("agent-"))
        return Identity(path.stem, path.stem)

    def path_of(self, session: str, name: str) -> PurePath:
        """Return the path of a transcript in the folder of its session's own."""
        return PurePath(_SUBAGENTS, session, f"{name}.jsonl") if name else PurePath(f"{session}.jsonl")

    def advance(self, context: Context, line: bytes) -> Context:
        """Return the context after a line that gives the session a title."""
        fields = parse_line(line) or {}
        return context.with_texts(title=_payload(fields).get("customTitle"))

    def uuid_of(self, fields: Fields, context: Context) -> str | None:
        """Return the id of a line; a document's messages have one in their contexts."""
        ident = None if _is_of_document(fields) else identifier(fields.get("uuid"))
        return f"qwen-code:{ident}" if ident else context.id

    def session_of(self, fields: Fields) -> str | None:
        """Return the session that a line names."""
        return None if _is_of_document(fields) else identifier(fields.get("sessionId"))

    def turn_of(self, fields: Fields, context: Context) -> Turn:
        """Return what the turns of a line share."""
        shared = super().turn_of(fields, context)
        if _is_of_document(fields):
            return shared
        cwd, branch, model = (word(fields.get(name)) for name in ("cwd", "gitBranch", "model"))
        return shared._replace(cwd=cwd, branch=branch, model=model)

    def parts(self, fields: Fields) -> Iterator[Part]:
        """Yield the parts of a line, or of a document's message."""
        return super().parts(fields) if _is_of_document(fields) else _parts(fields)


READER = QwenReader()


def _is_of_document(fields: Fields) -> bool:
    return "content" in fields and "message" not in fields


def _payload(fields: Fields) -> Fields:
    return fields_of(fields.get("systemPayload"))


def _parts(fields: Fields) -> Iterator[Part]:
    """Yield what a line says."""
    kind, subtype = fields.get("type"), fields.get("subtype")
    if kind == "system" and subtype == _COMPRESSION:
        history = _payload(fields).get("compressedHistory")
        first = history[0] if isinstance(history, list) and history else None
        text = "\n".join(_text(one) for one in _contents(first))
        yield Part("summary", text.partition(_GO_ON)[0])
    elif kind == "user" and subtype in _TYPED and fields.get("provenance") in (None, "real_user"):
        yield from _typed(fields)
    elif kind in ("assistant", "tool_result"):
        yield from (_part(one) for one in _contents(fields.get("message")))


def _typed(fields: Fields) -> Iterator[Part]:
    """Yield what a person typed, without the files that the program adds."""
    display = word(_payload(fields).get("displayText"))
    texts = [display] if display else [_text(one) for one in _contents(fields.get("message"))]
    for text in texts:
        typed = without_files(text)
        yield Part("user", strip_injected(typed))
        if typed != text:
            return


def _contents(message: object) -> list[Fields]:
    return [fields_of(one) for one in list_of(fields_of(message).get("parts"))]


def _text(part: Fields) -> str:
    return word(part.get("text")) or ""


def _part(part: Fields) -> Part:
    asked, response = part.get("functionCall"), part.get("functionResponse")
    if isinstance(asked, dict):
        return call(asked.get("name"), asked.get("args"))
    if isinstance(response, dict):
        answer = response.get("response")
        told = answer.get("output") or answer.get("error") if isinstance(answer, dict) else None
        return Part("tool_result", result_text(told) or call_text(None, answer), word(response.get("name")))
    return Part("thinking" if part.get("thought") is True else "assistant", _text(part))
