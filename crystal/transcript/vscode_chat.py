"""The reader of the chats of Visual Studio Code (Copilot and others) and of editors made from it.

A chat is one JSON document, since version 1.109 as a log of changes to it. Each request is a prompt and an answer that
grows: two records. What a tool was asked and what it answered is in the result that the chat's extension keeps; of a
tool without that, the editor's own words about it are all there is.

Source: chatSessionOperationLog.ts, objectMutationLog.ts (microsoft/vscode); tests/data/agents/vscode-chat/README.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from crystal.transcript.damaged import MessageList
from crystal.transcript.editor import WORKSPACE_FILE, folder_of_workspace, name_of_uri, path_of_uri
from crystal.transcript.line import Fields, fields_of, format_line, identifier, list_of, milliseconds, word
from crystal.transcript.line_context import Context
from crystal.transcript.messages import Record, SessionStamp, SnapshotReader, unnamed_record
from crystal.transcript.parts import Part, call, call_and_result, unique_id
from crystal.transcript.snapshot import Snapshot
from crystal.transcript.tables import object_of

_ANSWER_FIELDS = ("response", "result")
_REPEATED_FIELDS = ("requestId", "timestamp", "modelId", "modelState")
_LISTED = MessageList("requests", ("requestId", "message"))
_FENCE = re.compile(r"\s*`{3,}\s*")
"""A piece with nothing else surrounds an edit, whose text is not in it."""
_SET, _PUSH, _DELETE = 1, 2, 3


class VSCodeChatReader(SnapshotReader):
    """See ``SnapshotReader``."""

    silent_kinds = ("message", "response")

    def kind(self, fields: Mapping[str, Any]) -> str | None:
        """Return the kind of a record: what it has of a request."""
        return next((name for name in self.silent_kinds if name in fields), None) or super().kind(fields)

    def side_files(self, path: PurePath) -> tuple[PurePath, ...]:
        """Return the file that names the workspace's folder: beside ``chatSessions``."""
        return (path.parent.parent / WORKSPACE_FILE,)

    def conversations(self, source: Snapshot) -> Iterable[SessionStamp]:
        """Return the chat of a file."""
        session, _, _ = _document(source)
        return [SessionStamp(session, source.stamp)]

    def messages(self, source: Snapshot, conversation: SessionStamp) -> Iterator[Record]:
        """Yield two records for each request, the prompt and the answer."""
        _, chat, others = _document(source)
        repository = fields_of(chat.get("repoData"))
        folder = folder_of_workspace(source.sides) or path_of_uri(chat.get("workingDirectory"))
        context = Context().with_texts(
            cwd=folder or repository.get("workspacePath"),
            branch=repository.get("localBranch"),
            title=chat.get("customTitle") or chat.get("computedTitle"),
        )
        for number, request in enumerate(chat["requests"]):
            if isinstance(request, dict):
                ident = unique_id(identifier(request.get("requestId")) or f"{number}", conversation.session)
                own = context.with_texts(model=request.get("modelId"))
                prompt = {name: value for name, value in request.items() if name not in _ANSWER_FIELDS}
                yield Record(ident, format_line(prompt), own)
                if request.get("response"):
                    answer = {name: request[name] for name in (*_REPEATED_FIELDS, *_ANSWER_FIELDS) if name in request}
                    yield Record(f"{ident}-answer", format_line(answer), own)
        for change in others:
            yield unnamed_record(conversation.session, format_line(change), context)

    def parts(self, fields: Fields) -> Iterator[Part]:
        """Return the parts of a record."""
        if "response" in fields:
            yield from _answer(list_of(fields["response"]), fields_of(fields_of(fields.get("result")).get("metadata")))
        else:
            message = fields.get("message")
            pieces = list_of(fields_of(message).get("parts"))
            typed = "".join(_text(fields_of(piece).get("text")) for piece in pieces)
            yield Part("user", word(message) or word(fields_of(message).get("text")) or typed)

    def time_of(self, fields: Fields, context: Context) -> int | None:  # noqa: ARG002 - the interface's
        """Return when a prompt was sent, or an answer was complete."""
        at = milliseconds(fields.get("timestamp"))
        if "response" not in fields:
            return at
        elapsed = fields_of(fields_of(fields.get("result")).get("timings")).get("totalElapsed")
        done = milliseconds(fields_of(fields.get("modelState")).get("completedAt"))
        return done or (at + (milliseconds(elapsed) or 0) if at else None)


READER = VSCodeChatReader()


def _document(source: Snapshot) -> tuple[str, Fields, list[Fields]]:
    """Return the session, the chat, which has a list of requests, and the changes that are not understood."""
    chat, others = fields_of(source.document(_LISTED)), list[Fields]()
    if not chat or "kind" in chat:
        chat, others = _replay(source.objects())
    is_chat = "responderUsername" in chat or source.damaged
    session = identifier(chat.get("sessionId")) or (is_chat and identifier(source.path.stem))
    if not session or not isinstance(chat.get("requests"), list):
        raise source.other_form("requests")
    return session, chat, others


def _replay(log: list[Fields]) -> tuple[Fields, list[Fields]]:
    """Return the chat after all changes that are understood; and the others.

    Without a whole chat before them, which the first line has, the requests are those that were added since.
    """
    is_whole = any(str(change.get("kind")) == "0" for change in log)
    chat: Fields = {} if is_whole else {"requests": [], "responderUsername": None}
    others: list[Fields] = []
    for change in log:
        kind, path, value = str(change.get("kind")), change.get("k"), change.get("v")
        if kind == "0" and isinstance(value, dict):
            chat = value
        elif not (kind in ("1", "2", "3") and _apply(chat, int(kind), list_of(path), value, change.get("i"))):
            others.append(change)
    return chat if is_whole or chat["requests"] else {}, others


def _apply(chat: Fields, kind: int, path: list[Any], value: object, start: object) -> bool:
    """Apply one change: set or delete what is at a path, or cut the list there at ``start`` and add to it.

    Returns:
        Whether there is such a place.
    """
    try:
        place: Any = chat
        for step in path[:-1]:
            place = place[step]
        last = path[-1]
        if kind == _SET:
            place[last] = value
        elif kind == _DELETE and isinstance(place, dict):
            place.pop(last, None)
        elif kind == _PUSH:
            known = place.get(last) if isinstance(place, dict) else place[last]
            kept = list_of(known)
            added = list_of(value)
            place[last] = [*kept[: start if isinstance(start, int) else None], *added]
    except (LookupError, TypeError, ValueError):
        return False
    return True


def _text(value: object) -> str:
    """Return a text that is a string, in pieces, or as the value of a Markdown string."""
    if isinstance(value, list):
        return "".join(one for one in value if isinstance(one, str))
    return value if isinstance(value, str) else word(fields_of(value).get("value")) or ""


def _answer(response: list[Any], metadata: Fields) -> Iterator[Part]:
    """Yield what was answered: texts with the references between them, thoughts, tools."""
    response = _newest_invocations(response)
    tools = _Tools(response, metadata)
    text = ""
    for piece in response:
        kind = fields_of(piece).get("kind")
        shown = _shown_text(piece, kind)
        text += shown
        others = [] if shown else list(_other_parts(piece, kind, tools))
        if others:
            yield Part("assistant", text)
            yield from others
            text = ""
    yield Part("assistant", text)
    yield from tools.rest()


def _newest_invocations(response: list[Any]) -> list[Any]:
    """Return the pieces, of the states of each invocation the last one alone: the log may have added it again."""
    names = [str(piece.get("toolCallId") or at) if _is_invocation(piece) else None for at, piece in enumerate(response)]
    newest = dict(zip(names, response, strict=True))
    return [piece if name is None else newest.pop(name, None) for name, piece in zip(names, response, strict=True)]


def _shown_text(piece: object, kind: object) -> str:
    """Return what a piece adds to the text of an answer."""
    if kind is None:
        text = _text(piece)
        return "" if _FENCE.fullmatch(text) else text
    fields = fields_of(piece)
    if kind in ("markdownContent", "markdownVuln"):
        return _text(fields.get("content")) or _text(fields.get("value"))
    if kind != "inlineReference":
        return ""
    target = fields.get("inlineReference")
    place = fields_of(target)
    return word(fields.get("name")) or word(place.get("name")) or name_of_uri(place.get("uri") or target)


def _other_parts(piece: Fields, kind: object, tools: _Tools) -> Iterator[Part]:
    if kind == "thinking" and (thought := _text(piece.get("value"))).strip():
        yield Part("thinking", thought)
    elif kind in ("toolInvocationSerialized", "toolInvocation"):
        yield from tools.of(piece)
    elif kind == "textEditGroup" and not tools.calls:
        edits = [
            edit for group in list_of(piece.get("edits")) for edit in (group if isinstance(group, list) else [group])
        ]
        texts = [_text(fields_of(edit).get("text")) for edit in edits]
        yield call("edit", {"path": path_of_uri(piece.get("uri")), "text": texts})


class _Tools:
    """The tools of one answer: their calls as the model wrote them, and the editor's invocations that show them.

    The two have ids of their own in some versions; then their order tells which belong together.
    """

    def __init__(self, response: list[Any], metadata: Fields) -> None:
        rounds = map(fields_of, list_of(metadata.get("toolCallRounds")))
        calls = [call for one in rounds for call in map(fields_of, list_of(one.get("toolCalls"))) if call]
        self.calls = {str(call.get("id", number)): call for number, call in enumerate(calls)}
        self._results = fields_of(metadata.get("toolCallResults"))
        own = [piece for piece in response if _is_invocation(piece) and not piece.get("subAgentInvocationId")]
        ids = [str(piece.get("toolCallId")) for piece in own]
        is_named, is_even = not self.calls.keys().isdisjoint(ids), len(own) == len(self.calls)
        names = self.calls if is_even and not is_named else ids
        self._names = {id(piece): name for piece, name in zip(own, names, strict=True)}
        self._is_known = not self.calls or is_named or is_even

    def of(self, piece: Fields) -> Iterator[Part]:
        """Yield the call and the result that an invocation shows."""
        asked = self.calls.pop(self._names.get(id(piece), ""), None)
        if asked is not None:
            yield from self._parts(asked)
        elif self._is_known or piece.get("subAgentInvocationId"):
            yield from _invocation(piece)

    def rest(self) -> Iterator[Part]:
        """Yield the calls that no invocation showed."""
        for one in self.calls.values():
            yield from self._parts(one)

    def _parts(self, asked: Fields) -> Iterator[Part]:
        given, result = asked.get("arguments"), fields_of(self._results.get(str(asked.get("id"))))
        shown = "\n".join(_texts_in(result.get("content")))
        yield from call_and_result(asked.get("name"), object_of(given) or given, shown)


def _is_invocation(piece: object) -> bool:
    return fields_of(piece).get("kind") in ("toolInvocationSerialized", "toolInvocation")


def _invocation(piece: Fields) -> Iterator[Part]:
    """Yield what the editor itself tells of a tool: its message, a command with its output, input and output."""
    data, details = fields_of(piece.get("toolSpecificData")), fields_of(piece.get("resultDetails"))
    command = data.get("commandLine")
    lines = fields_of(command)
    said = {
        "command": lines.get("userEdited") or lines.get("toolEdited") or lines.get("original") or command,
        "input": data.get("rawInput") or details.get("input"),
        "description": data.get("description"),
        "prompt": data.get("prompt"),
    }
    given = {key: value for key, value in said.items() if value}
    message = _text(piece.get("pastTenseMessage")) or _text(piece.get("invocationMessage"))
    output = fields_of(data.get("terminalCommandOutput")).get("text") or data.get("result")
    result = _text(output) or "\n".join(_texts_in(details.get("output")))
    yield from call_and_result(piece.get("toolId"), given or {"description": message}, result)


def _texts_in(value: object) -> Iterator[str]:
    """Yield the texts of a tool's result: a list of texts, or of trees whose leaves have the text."""
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting.extend(reversed(node))
        elif isinstance(node, dict):
            is_data = node.get("isText") is False or "base64Data" in node
            waiting.extend([] if is_data else [node.get(name) for name in ("children", "node", "text", "value")])
        elif isinstance(node, str) and node:
            yield node
