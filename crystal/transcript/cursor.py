"""The reader of Cursor's conversations: the editor's databases, the command line's, and their copies as JSON lines.

The editor keeps a conversation ("composer") as rows of one large database, a message ("bubble") each; until 2024 it was
in the database of its workspace. The command line keeps one database for each, see ``crystal.transcript.cursor_store``.
Both also write a JSON lines file without times, thoughts and results, which is read only where no database has it.

Source: docs of txcript and codeburn, samples of others; tests/data/agents/cursor/README.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePath
from typing import Any

from crystal.model.capture import Turn
from crystal.transcript import cursor_store
from crystal.transcript.cursor_store import parse_value
from crystal.transcript.editor import WORKSPACE_FILE, folder_of_workspace, path_of_uri
from crystal.transcript.line import (
    Fields,
    dicts_of,
    digest,
    fields_of,
    format_line,
    identifier,
    list_of,
    milliseconds,
    parse_time,
    word,
)
from crystal.transcript.line_context import Context
from crystal.transcript.messages import Record, SessionStamp, SnapshotReader, unnamed_record
from crystal.transcript.parts import Part, call_and_result, call_text, unique_id
from crystal.transcript.snapshot import Snapshot, SourceError
from crystal.transcript.tables import object_of, read_before, tables_of

_OLD_CHATS = "workbench.panel.aichat.view.aichat.chatdata"
_USER, _ASSISTANT = (1, "user"), (2, "ai")
_ID_LENGTH = 36
# A message's row id changes when the editor replaces it; SQLite knows the row id and the length without the value.
_STAMPS = (
    "SELECT substr(key, 10, ?), count(*), sum(rowid), sum(octet_length(value)) FROM cursorDiskKV"
    " WHERE key >= 'bubbleId:' AND key < 'bubbleId;' GROUP BY 1"
)
_COMPOSERS = "SELECT key, value FROM cursorDiskKV WHERE key >= 'composerData:' AND key < 'composerData;'"
_BUBBLES = "SELECT key, value FROM cursorDiskKV WHERE key >= ? AND key < ? ORDER BY rowid"
_TABLES = frozenset(("ItemTable", "cursorDiskKV", "composerHeaders"))
"""Older versions have only the first one or two."""
_CHAT_TABLE, _VALUE = "cursorDiskKV", "SELECT value FROM {} WHERE key = ?"


class CursorReader(SnapshotReader):
    """See ``SnapshotReader``."""

    silent_kinds = ("1", "2", "user", "ai", "assistant", "tool", "system", "turn_ended")

    def side_files(self, path: PurePath) -> tuple[PurePath, ...]:
        """Return the files that name the folder and the title."""
        if path.name.endswith(".vscdb"):
            return (path.with_name(WORKSPACE_FILE),)
        return cursor_store.side_files(path)

    def conversations(self, source: Snapshot) -> Iterable[SessionStamp]:
        """Return the conversations in a database, or the one of a file."""
        return _composers(source) if source.path.name.endswith(".vscdb") else [cursor_store.conversation(source)]

    def messages(self, source: Snapshot, conversation: SessionStamp) -> Iterator[Record]:
        """Yield the messages of a conversation."""
        told = _records if source.path.name.endswith(".vscdb") else cursor_store.records
        return told(source, conversation)

    def parts(self, fields: Fields) -> Iterator[Part]:
        """Return the parts of a record."""
        return cursor_store.parts(fields) if "role" in fields else _parts(fields)

    def time_of(self, fields: Fields, context: Context) -> int | None:
        """Return when a record was written."""
        said = fields.get("createdAt") or fields_of(fields.get("timingInfo")).get("clientStartTime")
        return milliseconds(said) or parse_time(said) or context.at

    def turn_of(self, fields: Fields, context: Context) -> Turn:
        """Return what the turns of a message share."""
        model = word(fields_of(fields.get("modelInfo")).get("modelName")) or context.model
        return super().turn_of(fields, context)._replace(model=None if model == "default" else model)


READER = CursorReader()


# -- the editor's databases ------------------------------------------------------------------------------------------


def _composers(source: Snapshot) -> Iterator[SessionStamp]:
    """Yield the editor's conversations that have messages."""
    tables = tables_of(source)
    if not tables & {_CHAT_TABLE, "ItemTable"} or tables & {_CHAT_TABLE, "composerHeaders"} == {"composerHeaders"}:
        raise source.other_form(_CHAT_TABLE)
    missing = _TABLES - tables if tables - _TABLES else {"ItemTable"} - tables
    source.missing += sorted(missing)
    workspace = digest(b"".join(source.sides.values()))[:16]
    for tab, bubbles in _tabs(source, tables):
        yield SessionStamp(tab, f"{digest(bubbles)} {workspace}")
    if _CHAT_TABLE in tables:
        yield from _stored_composers(source)


def _stored_composers(source: Snapshot) -> Iterator[SessionStamp]:
    """Yield the conversations of ``cursorDiskKV``; a subagent's names the conversation that started it."""
    stamps = {cid: repr(numbers) for cid, *numbers in source.rows(_STAMPS, (_ID_LENGTH,))}
    parents: dict[str, str] = {}
    found: dict[str, str] = {}
    seen = set[str]()
    for key, value in source.rows(_COMPOSERS):
        cid, composer = str(key)[len("composerData:") :], parse_value(value)
        seen.add(cid[:_ID_LENGTH])
        parent = identifier(fields_of(composer.get("subagentInfo")).get("parentComposerId"))
        if parent is not None:
            parents[cid] = parent
        is_broken = not composer and value != ""
        if identifier(cid) and (is_broken or cid[:_ID_LENGTH] in stamps or list_of(composer.get("conversation"))):
            found[cid] = f"{digest(value)} {stamps.get(cid[:_ID_LENGTH])}"
    before = read_before(source)
    for cid in stamps.keys() - seen:
        if not source.known("/".join(filter(None, before.get(cid, ())))):  # what was read is kept as it is
            found[cid] = repr(stamps[cid])
    for cid, stamp in found.items():
        root = cid
        for _ in range(len(parents)):
            root = parents.get(root, root)
        yield SessionStamp(root, stamp, None if root == cid else cid)


def _records(source: Snapshot, conversation: SessionStamp) -> Iterator[Record]:
    tables = tables_of(source)
    cid = conversation.subagent or conversation.session
    for tab, chat in _tabs(source, tables):
        if tab == cid:
            yield from _old_records(source, tab, chat)
            return
    composer = _value(source, _CHAT_TABLE, f"composerData:{cid}", source.object_of)
    context = _context_of(source, tables, cid, composer)
    for ident, bubble in _bubbles(source, cid, composer):
        context = context._replace(at=READER.time_of(bubble, context))  # not each has a time of its own
        yield Record(unique_id(ident, cid), format_line({"bubbleId": ident, **bubble}), _placed(context, bubble))
    summary = fields_of(fields_of(composer.get("latestConversationSummary")).get("summary")).get("summary")
    if word(summary):
        yield unnamed_record(cid, format_line({"conversationSummary": summary}), context)


def _bubbles(source: Snapshot, cid: str, composer: Fields) -> Iterator[tuple[str, Fields]]:
    """Yield the messages that the composer lists, in its order; if it lists none, all that are stored.

    The user has undone a message that is stored but not listed.
    """
    prefix = f"bubbleId:{cid}:"
    rows = source.rows(_BUBBLES, (prefix, f"bubbleId:{cid};"))
    stored = {str(key)[len(prefix) :]: value for key, value in rows}
    inline = dicts_of(composer.get("conversation"))
    headers = [fields_of(one) for one in list_of(composer.get("fullConversationHeadersOnly"))]
    listed = [identifier(one.get("bubbleId")) for one in headers or inline]
    given = {identifier(one.get("bubbleId")): one for one in inline}
    for number, ident in enumerate(listed or list(stored)):
        bubble = parse_value(stored[ident], source.object_of) if ident in stored else given.get(ident)
        if bubble is None and number < len(inline):
            bubble = inline[number]
        if bubble:
            yield ident or f"{number}", bubble


def _context_of(source: Snapshot, tables: set[str], cid: str, composer: Fields) -> Context:
    """Return a composer's folder (by its workspace first), branch, model, title and time, as far as they are stored."""
    head = _head_of(source, tables, cid)
    places = [fields_of(one.get("workspaceIdentifier")).get("uri") for one in (composer, head)]
    repositories = dicts_of(composer.get("trackedGitRepos") or head.get("trackedGitRepos"))
    places += [one.get("repoPath") for one in repositories]
    branches = (one.get("branchName") for repo in repositories for one in dicts_of(repo.get("branches")))
    return Context(at=milliseconds(composer.get("createdAt"))).with_texts(
        cwd=folder_of_workspace(source.sides) or next(filter(None, map(path_of_uri, places)), None),
        branch=next(branches, None),
        model=fields_of(composer.get("modelConfig")).get("modelName"),
        title=composer.get("name") or head.get("name"),
    )


def _head_of(source: Snapshot, tables: set[str], cid: str) -> Fields:
    """Return the composer's row in ``composerHeaders``, or its entry in the older list; empty if there is neither."""
    if "composerHeaders" in tables:
        rows = source.rows("SELECT value FROM composerHeaders WHERE composerId = ?", (cid,))
        return next((parse_value(value) for (value,) in rows), {})
    if "ItemTable" not in tables:
        return {}
    every = dicts_of(_value(source, "ItemTable", "composer.composerHeaders").get("allComposers"))
    return next((one for one in every if one.get("composerId") == cid), {})


def _placed(context: Context, bubble: Fields) -> Context:
    """Return the context with the folder that the message names, if the composer names none."""
    if context.cwd is not None:
        return context
    folders = [path_of_uri(one) for one in list_of(bubble.get("workspaceUris"))]
    return context.with_texts(cwd=next(filter(None, folders), None) or path_of_uri(bubble.get("workspaceProjectDir")))


def _tabs(source: Snapshot, tables: set[str]) -> Iterator[tuple[str, Fields]]:
    """Yield (id, chat) for each chat of the first versions, which are in the database of a workspace."""
    stored = list(source.rows(_VALUE.format("ItemTable"), (_OLD_CHATS,))) if "ItemTable" in tables else []
    chats = next((parse_value(value) for (value,) in stored), {})
    if stored and not chats:
        hint = "open the chats in the editor; it may write them again"
        source.damaged.append(SourceError(f"{_OLD_CHATS} is not complete JSON", hint=hint))
    for tab in list_of(chats.get("tabs")):
        ident = identifier(fields_of(tab).get("tabId"))
        if ident is not None and list_of(tab.get("bubbles")):
            yield ident, tab


def _old_records(source: Snapshot, tab: str, chat: Fields) -> Iterator[Record]:
    context = Context(at=milliseconds(chat.get("lastSendTime")))
    context = context.with_texts(cwd=folder_of_workspace(source.sides), title=chat.get("chatTitle"))
    for number, bubble in enumerate(list_of(chat.get("bubbles"))):
        if isinstance(bubble, dict):
            ident = identifier(bubble.get("id")) or f"{number}"
            model = bubble.get("modelType")
            line = format_line({"bubbleId": ident, **bubble})
            yield Record(unique_id(ident, tab), line, context.with_texts(model=model))


def _value(source: Snapshot, table: str, key: str, parse: Callable[[object], Fields] = object_of) -> Fields:
    rows = source.rows(_VALUE.format(table), (key,))
    return next((parse_value(value, parse) for (value,) in rows), {})


def _parts(bubble: Fields) -> Iterator[Part]:
    """Yield the parts of a message: a thought, a text, a tool's call with its result."""
    kind, summary = bubble.get("type"), word(bubble.get("conversationSummary"))
    if summary:
        yield Part("summary", summary)
    text = word(bubble.get("text")) or word(bubble.get("rawText")) or _rich_text(bubble)
    if kind in _USER and bubble.get("isSimulatedMsg") is not True:
        yield Part("user", text)
    elif kind in _ASSISTANT:
        thinking = bubble.get("thinking")
        yield Part("thinking", word(thinking) or word(fields_of(thinking).get("text")) or "")
        blocks = [word(fields_of(one).get("content")) for one in list_of(bubble.get("codeBlocks"))]
        yield Part("assistant", "\n".join(filter(None, [text, *(one for one in blocks if one and one not in text)])))
        yield from _tool(fields_of(bubble.get("toolFormerData")))


def _rich_text(bubble: Fields) -> str:
    """Return the text of a message that is stored only as the document tree of the input field."""
    texts, waiting = list[str](), [object_of(bubble.get("richText")).get("root")]
    while waiting:
        node = fields_of(waiting.pop())
        texts += filter(None, [word(node.get("text"))])
        waiting += reversed(list_of(node.get("children")))
    return "".join(texts)


def _tool(tool: Fields) -> Iterator[Part]:
    name = word(tool.get("name"))
    given = parse_value(tool.get("rawArgs")) or parse_value(tool.get("params"))
    if name or given:
        result: Any = tool.get("result") or tool.get("error")
        told = fields_of(result) or (parse_value(result) if isinstance(result, str) else {})
        texts = (word(told.get(field)) for field in ("output", "contents", "result", "message", "error"))
        shown = next(filter(None, texts), None) or call_text(None, told or result)
        yield from call_and_result(name, given or tool.get("rawArgs") or tool.get("params"), shown)
