"""The reader of Claude.ai's export: ``conversations.json``, with the messages of each conversation.

Newer exports name each message's parent, so that they are trees; in older ones each follows the one before.

Source: public descriptions of the export; no real export was read. tests/data/agents/claude-ai/README.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from crystal.transcript.line import Fields, dicts_of, fields_of, identifier, list_of, parse_time, word
from crystal.transcript.line_context import Context
from crystal.transcript.parts import Part, parts_of_blocks, unique_id
from crystal.transcript.trees import ExportReader, Known, Tree, session_of


class ClaudeAiReader(ExportReader):
    """See ``ExportReader``."""

    file_marks = (b'"chat_messages"', b'"sender"')

    def tree_of(self, talk: Fields, known: Known) -> Tree | None:
        """Return the tree of one conversation."""
        given = talk.get("chat_messages")
        named = (ident for one in dicts_of(given) if (ident := identifier(one.get("uuid"))))
        session = session_of((talk.get("uuid"),), named, known)
        if session is None or not isinstance(given, list):
            return None
        messages: dict[str, Fields | None] = {}
        parents: dict[str, str | None] = {}
        before = None
        for number, message in enumerate(given):
            if isinstance(message, dict):
                ident = identifier(message.get("uuid")) or f"{number}"
                unique = unique_id(ident, session)
                parent = identifier(message.get("parent_message_uuid"))
                messages[unique], parents[unique] = message, before if parent is None else unique_id(parent, session)
                before = unique
        context = Context().with_texts(title=talk.get("name"), model=talk.get("model"))
        shown = identifier(talk.get("current_leaf_message_uuid"))
        return Tree(session, context, messages, parents, shown and unique_id(shown, session))

    silent_kinds = ("human", "assistant")

    def kind(self, fields: Mapping[str, Any]) -> str | None:
        """Return who sent a message."""
        return word(fields.get("sender"))

    def time_of(self, fields: Fields, context: Context) -> int | None:
        """Return when a message was written."""
        return parse_time(fields.get("created_at")) or context.at

    def parts(self, fields: Fields) -> Iterator[Part]:
        """Yield the parts of a message, and the texts of attached files."""
        sender = fields.get("sender")
        if sender not in ("human", "assistant"):
            return
        blocks = fields.get("content") or fields.get("text")
        yield from parts_of_blocks(blocks, "user" if sender == "human" else "assistant")
        for one in map(fields_of, list_of(fields.get("attachments"))):
            text = word(one.get("extracted_content"))
            if text is not None:
                yield Part("tool_result", f"{word(one.get('file_name')) or 'file'}\n{text}", "attachment")


READER = ClaudeAiReader()
