"""Conversations of Cursor's command line: a database of blobs for each, and a copy in JSON lines without results.

The blobs have their own hashes as ids: messages in JSON, and records of Protocol Buffers that name others. The record
of the newest state names the messages in their order.
"""

from __future__ import annotations

import bisect
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePath

from crystal.transcript.editor import path_of_uri
from crystal.transcript.line import Fields, digest, fields_of, format_line, identifier, milliseconds, word
from crystal.transcript.line_context import Context
from crystal.transcript.messages import Record, SessionStamp
from crystal.transcript.parts import Part, block_text, call, call_text, result_text
from crystal.transcript.snapshot import Snapshot
from crystal.transcript.tables import object_of

_STORE, _META = "store.db", "meta.json"
_FOLDER_FILES = (".workspace-trusted", "repo.json")
_HASH = re.compile("[0-9a-f]{64}")
_ID_BYTES, _BYTES, _NUMBER_BITS = 32, 2, 70
_TRANSCRIPTS, _SUBAGENTS = "agent-transcripts", "subagents"
_TYPED = re.compile(r"<user_query>\n?(.*?)\n?</user_query>", re.DOTALL)
_TOLD = re.compile(
    r"\s*<(user_info|rules|project_layout|git_status|agent_skills|agent_transcripts|system_reminder|attached_files|"
    r"open_and_recently_viewed_files|timestamp|additional_data|current_file|mcp_[a-z_]+|always_applied_[a-z_]+)\b[^>]*>"
    r".*?</\1>\s*",
    re.DOTALL,
)
_FOLDER = re.compile(r"Workspace Path: (.+)")
_SUMMARY = "[Previous conversation summary]"
_LEFT_OUT = "[REDACTED]"


def parse_value(value: object, parse: Callable[[object], Fields] = object_of) -> Fields:
    """Parse what a column holds: JSON as text, as bytes, or as text of hexadecimal digits; empty for anything else."""
    if isinstance(value, str):
        is_hex = value[:2] == "7b" and re.fullmatch(r"[0-9a-fA-F]+", value) and len(value) % 2 == 0
        value = bytes.fromhex(value) if is_hex else value
    return parse(value)


def side_files(path: PurePath) -> tuple[PurePath, ...]:
    """Return the files that name the folder and the title: beside the database, and in the copy's project."""
    if path.name == _STORE:
        return (path.with_name(_META),)
    projects = (parent.parent for parent in path.parents if parent.name == _TRANSCRIPTS)
    return tuple(project / name for project in projects for name in _FOLDER_FILES)


def conversation(source: Snapshot) -> SessionStamp:
    """Return the conversation of a file.

    Raises:
        SourceError: It has another form.
    """
    sides = digest(b"".join(source.sides.values()))[:16]
    if source.path.name == _STORE:
        meta = _meta(source)
        ident = identifier(source.path.parent.name) or identifier(meta.get("agentId")) or ""
        parent = fields_of(meta.get("subagentInfo"))
        root = identifier(parent.get("rootParentAgentId")) or identifier(parent.get("parentAgentId"))
        stamp = f"{meta.get('latestRootBlobId')} {meta.get('name')} {sides}"
        return SessionStamp(root or ident, stamp, ident if root else None)
    if not any(_is_message(line) for line in source.objects()):
        raise source.other_form("messages")
    above = source.path.parent
    stamp = f"{digest(source.data)} {sides}"
    while above.name == source.path.stem:
        above = above.parent
    is_subagents = above.name == _SUBAGENTS and above.parent.name != _TRANSCRIPTS
    if is_subagents:
        return SessionStamp(above.parent.name, stamp, source.path.stem)
    return SessionStamp(source.path.stem, stamp)


def records(source: Snapshot, told: SessionStamp) -> Iterator[Record]:
    """Yield the messages of a file, each with an id by its content: the same text is the same record, and counted."""
    own = told.subagent or told.session
    is_store = source.path.name == _STORE
    messages = list(_stored(source) if is_store else ((digest(fields), fields) for fields in source.objects()))
    context = _context_of(source.sides, _meta(source) if is_store else {}, [one for _, one in messages])
    times: Counter[str] = Counter()
    for ident, message in messages:
        times[ident] += 1
        yield Record(f"{own}-{ident[:32]}-{times[ident]}", format_line(message), context)


def parts(message: Fields) -> Iterator[Part]:
    """Yield the parts of a message."""
    role = message.get("role")
    inner = fields_of(message.get("message")).get("content")
    content = message.get("content") if inner is None else inner
    blocks = content if isinstance(content, list) else [content]
    for block in blocks:
        if role == "user":
            yield _typed(block_text(block))
        elif role in ("assistant", "tool"):
            yield from _part(block)


def _part(block: object) -> Iterator[Part]:
    fields = fields_of(block)
    kind, name = fields.get("type"), word(fields.get("toolName")) or word(fields.get("name"))
    if kind in ("reasoning", "thinking"):
        yield Part("thinking", word(fields.get("text")) or word(fields.get("thinking")) or "")
    elif kind in ("tool-call", "tool_use"):
        given = next((fields[one] for one in ("args", "input") if one in fields), None)
        yield call(name, given)
    elif kind in ("tool-result", "tool_result"):
        told = next((fields[one] for one in ("result", "output", "content") if one in fields), None)
        inner = fields_of(told).get("value", told)
        shown = result_text(fields.get("experimental_content") or [])
        yield Part("tool_result", shown or result_text(inner) or call_text(None, inner), name)
    else:
        yield Part("assistant", block_text(block).replace(_LEFT_OUT, "").strip())


def _typed(text: str) -> Part:
    """Return what a person typed: what the program tells of the environment is around it."""
    if text.lstrip().startswith(_SUMMARY):
        return Part("summary", text.lstrip().removeprefix(_SUMMARY).lstrip(": \n"))
    found = _TYPED.findall(text)
    return Part("user", "\n".join(found) if found else _TOLD.sub("", text))


def _context_of(sides: Mapping[PurePath, bytes], meta: Fields, messages: list[Fields]) -> Context:
    beside = [object_of(content) for content in sides.values()]
    names = ("cwd", "workspacePath", "workspace")
    folders = [path_of_uri(word(one.get(name))) for one in (*beside, meta) for name in names]
    folder = next(filter(None, folders), None) or next((found for one in messages if (found := _folder_in(one))), None)
    model = meta.get("lastUsedModel")
    times = [one.get(name) for one in (*beside, meta) for name in ("createdAtMs", "createdAt")]
    return Context(at=next((at for one in times if (at := milliseconds(one))), None)).with_texts(
        cwd=folder,
        model=model if isinstance(model, str) else fields_of(model).get("model"),
        title=next((one.get("title") for one in beside if one.get("title")), None) or meta.get("name"),
    )


def _folder_in(message: Fields) -> str | None:
    content = message.get("content") or fields_of(message.get("message")).get("content")
    if message.get("role") != "user":
        return None
    found = _FOLDER.search(result_text(content or []))
    return found[1].strip() if found else None


# -- the copy in JSON lines ------------------------------------------------------------------------------------------


def _is_message(fields: Fields) -> bool:
    inner = fields_of(fields.get("message")).get("content", fields.get("content"))
    return fields.get("role") in ("user", "assistant") and isinstance(inner, str | list)


# -- the database of blobs -------------------------------------------------------------------------------------------


def _meta(source: Snapshot) -> Fields:
    """Return what is kept of the conversation: one object, or one value in each row."""
    rows = [(str(key), value) for key, value in source.rows("SELECT key, value FROM meta")]
    whole = next((fields for _, value in rows if (fields := parse_value(value))), None)
    return whole or dict(rows)


def _stored(source: Snapshot) -> Iterator[tuple[str, Fields]]:
    """Yield the messages with their ids, in the order of the newest state; all there are if it names none.

    What a summary stands for is named by earlier states alone, and comes first.
    """
    rows = source.rows("SELECT id, data FROM blobs ORDER BY rowid")
    blobs = {ident if _HASH.fullmatch(str(ident)) else digest(data): data for ident, data in rows}
    parsed = {ident: fields for ident, data in blobs.items() if (fields := _parsed(source, ident, data))}
    messages = {ident: fields for ident, fields in parsed.items() if "role" in fields}
    named = list(_named_messages(str(_meta(source).get("latestRootBlobId")), blobs, messages))
    if not named or any(part.role == "summary" for _, message in named for part in parts(message)):
        yield from _others(messages, named)
    yield from named
    yield from ((ident, fields) for ident, fields in parsed.items() if ident not in messages)


def _named_messages(
    root: str, blobs: Mapping[str, object], messages: Mapping[str, Fields]
) -> Iterator[tuple[str, Fields]]:
    """Yield the messages that a state names, itself or through others."""
    seen, waiting = set[str](), [root]
    while waiting:
        ident = waiting.pop()
        data = blobs.get(ident)
        if ident in messages:
            yield ident, messages[ident]
        elif ident not in seen and isinstance(data, bytes):
            seen.add(ident)
            waiting.extend(reversed(_named_ids(data)))


def _others(messages: Mapping[str, Fields], named: list[tuple[str, Fields]]) -> Iterator[tuple[str, Fields]]:
    """Yield the messages that are not named, but for those that say no more than the beginning of another one."""
    said = sorted({(part.role, part.text) for message in messages.values() for part in parts(message)})
    known = {part for _, message in named for part in parts(message)}
    for ident, message in messages.items():
        own = [part for part in parts(message) if part.text]
        if not named or not all(part in known or _goes_on(said, part) for part in own):
            yield ident, message
        known.update(own)


def _goes_on(said: Sequence[tuple[str, str]], part: Part) -> bool:
    """Return whether a longer text, of all that are said, begins with that of a part."""
    after = bisect.bisect_right(said, (part.role, part.text))
    return after < len(said) and said[after][0] == part.role and said[after][1].startswith(part.text)


def _parsed(source: Snapshot, ident: str, blob: object) -> Fields:
    """Return the JSON of a blob; empty for a record of Protocol Buffers, whose id is its hash, and for a broken one."""
    if not isinstance(blob, bytes) or blob.startswith(b"{"):
        return parse_value(blob, source.object_of)
    if digest(blob) != ident:
        source.broken.append(blob or b"null")
    return {}


def _named_ids(record: bytes) -> list[str]:
    """Return the ids that a record names: those in its first field if there are any, which are the messages."""
    ids = [(number, value.hex()) for number, value in _fields_of_record(record) if len(value) == _ID_BYTES]
    return [ident for number, ident in ids if number == 1] or [ident for _, ident in ids]


def _fields_of_record(record: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the numbers and contents of the fields with bytes; it ends where the record is none."""
    at = 0
    while at < len(record):
        tag, at = _number(record, at)
        kind = tag & 7
        if kind == _BYTES:
            size, at = _number(record, at)
            if at + size > len(record):
                return
            yield tag >> 3, record[at : at + size]
            at += size
        elif kind == 0:
            _, at = _number(record, at)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            return


def _number(record: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(record) and shift < _NUMBER_BITS:
        number |= (record[at] & 0x7F) << shift
        shift += 7
        at += 1
        if record[at - 1] < 0x80:
            break
    return number, at
