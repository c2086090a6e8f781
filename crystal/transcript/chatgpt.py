"""The reader of ChatGPT's export: ``conversations.json``, a tree of messages for each conversation.

Source: public descriptions of the export; no real export was read. tests/data/agents/chatgpt/README.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from crystal.transcript.line import Fields, fields_of, identifier, list_of, word
from crystal.transcript.line_context import Context
from crystal.transcript.parts import Part, unique_id
from crystal.transcript.tables import moment_of
from crystal.transcript.trees import ExportReader, Known, Tree, session_of, texts_of

_NOT_TYPED = frozenset(("user_editable_context", "model_editable_context"))
_THOUGHTS = frozenset(("thoughts", "reasoning_recap"))
_CONTENTS = frozenset(
    (
        *_NOT_TYPED, *_THOUGHTS, "text", "multimodal_text", "code", "execution_output", "citable_code_output",
        "system_error", "tether_quote", "tether_browsing_display", "sonic_webpage", "computer_output",
    )
)  # fmt: skip
"""Kinds of content that may have no text."""


class ChatGptReader(ExportReader):
    """See ``ExportReader``."""

    file_marks = (b'"mapping"', b'"current_node"')

    def tree_of(self, talk: Fields, known: Known) -> Tree | None:
        """Return the tree of one conversation. A cut one may lack its id and a message its parent, which names it."""
        mapping = talk.get("mapping")
        if not isinstance(mapping, dict):
            return None
        nodes = {name: node for name, node in mapping.items() if identifier(name) and isinstance(node, dict)}
        said = (name for name, node in nodes.items() if fields_of(node.get("message")))
        session = session_of((talk.get("conversation_id"), talk.get("id")), said, known)
        if session is None:
            return None
        names = {name: unique_id(name, session) for name in nodes}
        parents, shown = _parents(nodes), word(talk.get("current_node")) or ""
        return Tree(
            session,
            Context().with_texts(title=talk.get("title")),
            {names[name]: fields_of(node.get("message")) or None for name, node in nodes.items()},
            {names[name]: names.get(parents[name]) for name in nodes},
            names.get(shown),
        )

    def model_of(self, message: Fields) -> object:
        """Return the model that wrote a message."""
        return fields_of(message.get("metadata")).get("model_slug")

    silent_kinds = ("user", "assistant", "tool", "system")

    def kind(self, fields: Mapping[str, Any]) -> str | None:
        """Return who wrote a message, or the kind of its content if no reader knows it."""
        content = word(fields_of(fields.get("content")).get("content_type"))
        return content if content not in (None, *_CONTENTS) else word(fields_of(fields.get("author")).get("role"))

    def time_of(self, fields: Fields, context: Context) -> int | None:
        """Return when a message was written: it has seconds."""
        return moment_of(fields.get("create_time")) or context.at

    def parts(self, fields: Fields) -> Iterator[Part]:
        """Yield the parts of a message. A message to a tool is a call; the program's own instructions are none."""
        author, content = fields_of(fields.get("author")), fields_of(fields.get("content"))
        role, kind, recipient = author.get("role"), word(content.get("content_type")), word(fields.get("recipient"))
        is_hidden = fields_of(fields.get("metadata")).get("is_visually_hidden_from_conversation") is True
        if role == "user" and kind not in _NOT_TYPED and not is_hidden:
            yield Part("user", _text(content))
        elif role == "tool":
            yield Part("tool_result", _text(content), word(author.get("name")))
        elif role == "assistant" and kind in _THOUGHTS:
            yield Part("thinking", _thoughts(content))
        elif role == "assistant" and recipient not in (None, "all"):
            yield Part("tool_call", f"{recipient}\n{_text(content)}", recipient)
        elif role == "assistant":
            yield Part("assistant", _text(content))


READER = ChatGptReader()


def _parents(nodes: Mapping[str, Fields]) -> dict[str, str]:
    """Return the name of each node's parent: as the node says, or else as a parent names it; empty for none."""
    above = {word(child): name for name, node in nodes.items() for child in list_of(node.get("children"))}
    said = {name: word(node["parent"]) or "" for name, node in nodes.items() if "parent" in node}
    return {name: said.get(name, above.get(name, "")) for name in nodes}


def _text(content: Fields) -> str:
    """Return the text of a message: its parts, or its one text. Of a picture or a sound, what it says in words."""
    parts = content.get("parts")
    given = parts if isinstance(parts, list) else [content]
    return texts_of(_part_text(part) if isinstance(part, dict) else part for part in given)


def _part_text(part: Fields) -> object:
    return part.get("text") or part.get("result") or part.get("output_str")


def _thoughts(content: Fields) -> str:
    given = [fields_of(thought) for thought in list_of(content.get("thoughts"))]
    return texts_of([content.get("content"), *(one.get(name) for one in given for name in ("summary", "content"))])
