"""The reader of Claude Code's transcripts: paths, facts, titles, and what its client needs to resume a session.

Source: docs/reference/transcript-format.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath
from typing import Any

from crystal.model.capture import Turn
from crystal.transcript.claude_code.turns import parse_turns
from crystal.transcript.line import fields_of, identifier, list_of, parse_line, parse_time, word
from crystal.transcript.line_context import id_apart
from crystal.transcript.reader import FORGOTTEN, Identity, LineFacts, TranscriptReader

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_AGENT = "agent-"
_SIDE_FOLDER = "subagents"
_TITLE_MARKS = (b'"custom-title"', b'"ai-title"', b'"summary"')
_FORGOTTEN_WORDS = "[forgotten]"
_KEPT = (
    "type uuid parentUuid logicalParentUuid sessionId timestamp isSidechain isMeta userType entrypoint version"
    " requestId agentId cwd"
).split()
_KEPT_OF_MESSAGE = ("id", "type", "role", "model", "stop_reason", "stop_sequence", "usage")


class ClaudeCodeReader(TranscriptReader):
    """See ``TranscriptReader``."""

    lines_are_complete = True
    kinds_are_named = False
    silent_kinds = tuple(
        "user assistant attachment system api-request* queue-operation last-prompt file-history-* mode permission-mode"
        " atis-latch tools-used cost-state relocated worktree-state custom-title agent-name summary ai-title tag"
        " pr-link progress content-replacement derived-from continued-in history-suppression fork-context-ref"
        " attribution-snapshot bridge-session session-owner ended-by-model data-flow-*".split()
    )
    envelope = frozenset(
        "cwd gitBranch sessionId session_id uuid parentUuid logicalParentUuid timestamp version userType slug requestId"
        " entrypoint leafUuid promptId sourceToolAssistantUUID".split()
    )

    def identify(self, path: PurePath) -> Identity:
        """Return what a file belongs to.

        ``<session>/subagents/**/agent-x.jsonl`` gives ``("<session>/agent-x", "<session>", "x")``. The old place of a
        subagent's transcript, next to the sessions', does not contain the session.

        Source: docs/reference/transcript-format.md, section 1.
        """
        stem = _storable(path.name.removesuffix(".jsonl"))
        subagent = stem.removeprefix(_AGENT) if stem.startswith(_AGENT) and stem != _AGENT else None
        session = _session_of_side_folder(tuple(_storable(part) for part in path.parts[:-1]))
        if session is not None:
            return Identity(f"{session}/{stem}", session, subagent or stem)
        return Identity(stem, stem if subagent is None else None, subagent)

    def facts(self, line: bytes) -> LineFacts:
        """Return the facts of a line."""
        fields = parse_line(line)
        if fields is None:
            return LineFacts()
        return LineFacts(
            uuid=id_apart(fields) or identifier(fields.get("uuid")),
            timestamp_ms=parse_time(fields.get("timestamp")),
            cwd=word(fields.get("cwd")),
            session_id=identifier(fields.get("sessionId")) or identifier(fields.get("session_id")),
            is_conversation=fields.get("type") in ("user", "assistant"),
            is_summary=bool(fields.get("isCompactSummary")),
        )

    def turns(self, lines: Iterable[tuple[int, bytes]], key: str, *, subagent: bool) -> Iterator[Turn]:
        """Yield the turns of the lines, in their order."""
        return parse_turns(lines, key, subagent=subagent)

    def title(self, lines: Iterable[tuple[int, bytes]]) -> str | None:
        """Return the session's title from the lines: the user's latest, else the client's latest, or None.

        A ``summary`` line of older clients counts only if the message that it names is among the lines, because such
        lines were also written to other sessions' files.

        Source: docs/reference/transcript-format.md, section 8.
        """
        given: dict[str, str] = {}
        summaries: list[tuple[str | None, object]] = []
        every = [line for _, line in lines]
        for line in every:
            if not any(mark in line for mark in _TITLE_MARKS):
                continue
            fields = parse_line(line) or {}
            kind = fields.get("type")
            if kind in ("custom-title", "ai-title"):
                _remember(given, kind, fields.get("customTitle" if kind == "custom-title" else "aiTitle"))
            elif kind == "summary":
                summaries.append((identifier(fields.get("leafUuid")), fields.get("summary")))
        there = {None, *_named(every, {leaf for leaf, _ in summaries if leaf is not None})}
        for leaf, summary in summaries:
            if leaf in there:
                _remember(given, "summary", summary)
        return given.get("custom-title") or given.get("ai-title") or given.get("summary")

    def answers(self, line: bytes) -> list[str]:
        """Return the texts of an assistant line, unchanged, as the client reports them to its hooks."""
        fields = (parse_line(line) if b'"assistant"' in line else None) or {}
        content = fields_of(fields.get("message")).get("content")
        if fields.get("type") != "assistant":
            return []
        if isinstance(content, str):
            return [content]
        texts = [fields_of(block).get("text") for block in list_of(content)]
        return [text for text in texts if isinstance(text, str)]

    def is_session_id(self, name: str) -> bool:
        """Return whether a name has the form of Claude Code's session ids."""
        return _UUID.fullmatch(name) is not None

    def shell_of(self, line: bytes) -> bytes:
        """Return what remains of a forgotten line, as long as the line: its place in the conversation.

        The client follows ``parentUuid`` from line to line and wants a result for every call, so lines of the
        conversation keep their ids, times and kinds. Every other line becomes blank.
        """
        fields = parse_line(line) or {}
        if fields.get("type") not in ("user", "assistant") or identifier(fields.get("uuid")) is None:
            return b" " * len(line)
        apart = id_apart(fields)
        shell: dict[str, Any] = {} if apart is None else {"crystal": {"apart": apart}}
        shell.update((name, fields[name]) for name in _KEPT if _is_short(fields.get(name, {})))
        shell[FORGOTTEN] = True
        shell["message"] = _message_shell(fields_of(fields.get("message")), str(fields["type"]))
        import orjson  # noqa: PLC0415 - as in line.py

        try:
            return orjson.dumps(shell).ljust(len(line))
        except (TypeError, ValueError, orjson.JSONEncodeError):
            return b" " * len(line)

    def path_of(self, session: str, name: str) -> PurePath:
        """Return the path of a transcript in the folder of its session's own."""
        return PurePath(session, _SIDE_FOLDER, f"{name}.jsonl") if name else PurePath(f"{session}.jsonl")

    def resume_folder(self, root: Path, cwd: str | None) -> Path:
        """Return the client's folder for a project: every other character becomes a dash."""
        return root / ("-" if cwd is None else re.sub(r"[^A-Za-z0-9]", "-", cwd))

    def relinked(self, lines: list[bytes]) -> list[bytes]:
        """Relink the conversation where lines were left out: the client follows ``parentUuid`` and would stop."""
        parsed = [(line, parse_line(line) or {}) for line in lines]
        known = {uuid for _, fields in parsed if (uuid := identifier(fields.get("uuid")))}
        last: str | None = None
        joined = []
        for line, fields in parsed:
            uuid, parent = identifier(fields.get("uuid")), fields.get("parentUuid")
            if uuid is not None and isinstance(parent, str) and parent not in known and last is not None:
                fields["parentUuid"] = last
                text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
                joined.append(text.encode("utf-8", "surrogatepass"))
            else:
                joined.append(line)
            last = uuid or last
        return joined


READER = ClaudeCodeReader()


def _storable(name: str) -> str:
    """Return a name with non-UTF-8 bytes in ASCII (``backslashreplace``), because keys and ids are stored as text."""
    return name.encode("utf-8", "backslashreplace").decode()


def _session_of_side_folder(folders: tuple[str, ...]) -> str | None:
    """Return the folder before ``subagents``: one that looks like a session id, else the last one."""
    owners = [folders[i - 1] for i in range(len(folders) - 1, 0, -1) if folders[i] == _SIDE_FOLDER]
    named = [owner for owner in owners if _UUID.fullmatch(owner)]
    return next(iter(named or owners), None)


def _remember(given: dict[str, str], giver: str, title: object) -> None:
    words = word(title)
    if words is not None:
        given[giver] = " ".join(words.split())


def _named(every: list[bytes], leaves: set[str]) -> set[str]:
    """Return the leaves that a line names. Searching its bytes is enough, once for all of them."""
    marks = {leaf.encode(): leaf for leaf in leaves}
    found: set[bytes] = set()
    for line in every if marks else ():
        if b'"leafUuid"' not in line:
            found |= marks.keys() & line.split(b'"')[1:-1]
    return {marks[mark] for mark in found}


def _is_short(value: object) -> bool:
    """Return True if a field can hold only a name, a number or nothing."""
    return value is None or isinstance(value, bool | int) or (isinstance(value, str) and len(value) <= 200)


def _message_shell(message: dict[str, Any], role: str) -> dict[str, Any]:
    kept = {name: message[name] for name in _KEPT_OF_MESSAGE if _is_short(message.get(name, {}))}
    kept["role"] = role
    usage = message.get("usage")
    if isinstance(usage, dict):
        kept["usage"] = {name: count for name, count in usage.items() if isinstance(count, int)}
    content = message.get("content")
    kept["content"] = (
        [_block_shell(block) for block in content] if isinstance(content, list) and content else _FORGOTTEN_WORDS
    )
    return kept


def _block_shell(block: object) -> dict[str, Any]:
    kind = block.get("type") if isinstance(block, dict) else None
    if isinstance(block, dict) and kind == "tool_use" and _are_names(block, "id", "name"):
        return {"type": kind, "id": block["id"], "name": block["name"], "input": {}}
    if isinstance(block, dict) and kind == "tool_result" and _are_names(block, "tool_use_id"):
        return {"type": kind, "tool_use_id": block["tool_use_id"], "content": _FORGOTTEN_WORDS}
    return {"type": "text", "text": _FORGOTTEN_WORDS}


def _are_names(block: dict[str, Any], *names: str) -> bool:
    return all(isinstance(block.get(name), str) and len(block[name]) <= 200 for name in names)
