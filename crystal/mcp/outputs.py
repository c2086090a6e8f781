"""What each tool's structured answer looks like, as JSON Schema. What was said once stands in a fence. Data only."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def maybe(schema: Schema) -> Schema:
    """A thing or null."""
    return {"anyOf": [schema, {"type": "null"}]}


STRING: Schema = {"type": "string"}
NAME = maybe(STRING)
COUNT: Schema = {"type": "integer", "minimum": 0}
MAYBE_COUNT = maybe(COUNT)
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
TIME: Schema = {**NAME, "description": "ISO 8601, UTC"}
NOTES: Schema = {"type": "array", "items": STRING}
KIND: Schema = {"type": "string", "enum": ["user", "assistant", "tool", "web", "subagent", "summary", "file", "memory"]}


def record(**properties: Schema) -> Schema:
    """An object with exactly these."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def many(item: Schema) -> Schema:
    """A list."""
    return {"type": "array", "items": item}


MORE = {"next_offset": MAYBE_COUNT, "more": NAME}

HIT = record(
    id=STRING, score=NUMBER, text=STRING, origin=KIND, by=STRING, when=TIME, project=NAME, branch=NAME, device=NAME,
    session_id=NAME, freshness=STRING, source=STRING, copies=COUNT, similar=COUNT, characters_left=COUNT, before=NAME,
    after=NAME,
)  # fmt: skip
SESSION = record(
    id=STRING, title=STRING, project=NAME, branch=NAME, device=NAME, started_at=TIME, last_at=TIME, turns=COUNT
)
MESSAGE = record(
    id=STRING, text=STRING, origin=KIND, by=STRING, when=TIME, project=NAME, device=NAME, session_id=NAME,
    characters_left=COUNT,
)  # fmt: skip
TURN = record(
    id=STRING, number=MAYBE_COUNT, text=STRING, origin=KIND, by=STRING, when=TIME, focus=FLAG, characters_left=COUNT,
    characters_archived=COUNT,
)  # fmt: skip
_KEPT = {
    "id": STRING, "category": STRING, "key": NAME, "project": NAME, "status": STRING, "source": NAME, "device": NAME,
    "created_at": TIME, "updated_at": TIME,
}  # fmt: skip
MEMORY = record(**_KEPT, text=STRING, characters_left=COUNT)

SEARCH = record(mode=STRING, offset=COUNT, notes=NOTES, hits=many(HIT), **MORE)
GET = record(
    kind={"type": "string", "enum": ["hit", "session", "memory"]}, session=maybe(SESSION), memory=maybe(MEMORY),
    turns=many(TURN), **MORE,
)  # fmt: skip
RECENT = record(
    what={"type": "string", "enum": ["messages", "sessions"]}, scope=NAME, offset=COUNT, notes=NOTES,
    items=many({"anyOf": [MESSAGE, SESSION]}), **MORE,
)  # fmt: skip
TIMELINE = record(
    since=TIME, before=TIME, offset=COUNT, notes=NOTES,
    entries=many(record(
        date=STRING, kind={"type": "string", "enum": ["session", "memory"]}, first_at=TIME, last_at=TIME, turns=COUNT,
        session=maybe(SESSION), memory=maybe(MEMORY),
    )), **MORE,
)  # fmt: skip
STATUS = record(
    version=STRING, capture=record(on=FLAG, off_since=TIME, last=TIME, stalled=NAME),
    counts={"type": "object", "additionalProperties": COUNT}, span=record(first=TIME, last=TIME),
    queues={"type": "object", "additionalProperties": COUNT}, embedding={"type": "object"},
    summaries={"type": "object"}, role=STRING, device=NAME, project=NAME, session_id=NAME,
    problems=many(record(room=STRING, message=STRING, since=TIME)), notes=NOTES,
)  # fmt: skip
REMEMBER = record(**_KEPT, is_as_given=FLAG)
FORGET = record(
    is_done=FLAG, token=NAME, items_in_all=COUNT, sessions=COUNT, first_at=TIME, last_at=TIME, devices=many(NAME),
    notes=NOTES, tombstones=COUNT, pending=NOTES, machines=many(NAME),
    items=many(record(kind=STRING, id=STRING, because=STRING, text=STRING, when=TIME)), more=NAME,
)  # fmt: skip
TEXTS = record(
    results=many(
        record(id=STRING, text=STRING, score=NUMBER, origin=KIND, by=STRING, when=TIME, characters_left=COUNT)
    ),
    notes=NOTES,
    more=NAME,
)
