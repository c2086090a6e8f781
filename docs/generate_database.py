"""Write docs/reference/database.md from the comments of the migrations, so that the page cannot drift from the schema.

Run it after a change of the schema; a test compares the page with what this makes.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MIGRATIONS = ROOT / "crystal" / "store" / "migrations"
PAGE = Path(__file__).with_name("reference") / "database.md"

HEAD = """<!-- Made by docs/generate_database.py from crystal/store/migrations/. Change those, not this page. -->

# The database

`crystal.db` is one SQLite file in WAL mode, see [decision 1](../adr/0001-one-sqlite-file.md).
Times are milliseconds since the Unix epoch in UTC, offsets are bytes.
`PRAGMA application_id` is `0x43525953` (`CRYS`) and `PRAGMA user_version` the number of the newest migration in it.
A file with another application id, or with a newer version than the installed crystal knows, is refused and left untouched.
Before a migration the file is copied to `crystal.db.v<old>.backup` beside it.

Reading it with other tools is welcome; the tables `chunks_vec_<n>` need the extension sqlite-vec, and `chunks.text` the function `text_of` of `crystal/store/texts.py`, because texts are compressed.
Write to it with crystal only: tables depend on each other in ways that SQLite does not check, and [`crystal verify`](cli.md#crystal-verify) will tell.
The schema may change with every version; [the JSON](json.md) and [the Python API](python.md) are what stays.

Two kinds of tables are not made by a migration.
`chunks_vec_<n>` holds the vectors of embedding generation `n`: a `vec0` table with `embedding int8[dimension]` (see `crystal/store/vector_bytes.py`), whose rowid is the chunk's id.
SQLite keeps its own beside the declared ones (`sqlite_sequence`).
"""  # noqa: E501 - one sentence per line in Markdown

WORDS = {
    "work_calls": "What tools did, derived from the turns: see [decision 47](../adr/0047-work-index.md).",
    "archive_words": "Which words archived lines may have, in blocks of about a megabyte, so that a search for some words skips what lacks them.",  # noqa: E501
    "work_errors": "The lines of failed commands' outputs that report an error, to recognise it again ([decision 47](../adr/0047-work-index.md)).",  # noqa: E501
    "work_lines": "Which edit added which line.",
    "meta": "Facts about the database itself, such as `hash_key`, the key of its keyed hashes.",
    "projects": "The folders in which conversations took place.",
    "sessions": "One row for each session, with what its summary and its line in the daily log know.",
    "capture_roots": "The folders in which crystal has found transcripts.",
    "snapshot_records": "The records seen in files that are rewritten and in other programs' databases.",
    "record_counts": "The number of records of each transcript, by what the readers recognised in them.",
    "snapshot_stamps": "A stamp of those files and conversations from the last reading.",
    "capture_state": "One row for each transcript ever seen: its watermark.",
    "segments": "The byte ledger: every byte before a watermark is in exactly one row.",
    "private_marks": "The times when capture was off.",
    "private_lines": "The ids of private lines, which were left out.",
    "redactions": "The number of secrets of each kind that were removed.",
    "turns": "What was said and done: one row for each block of a transcript line.",
    "turn_copies": "Sessions that contain a turn which is stored with another session.",
    "chunks": "The text, in pieces that are indexed and embedded.",
    "text_blocks": "The texts of older chunks.",
    "embedding_generations": "The models whose vectors are here.",
    "problems": "The problems that exist now.",
    "costs": "Every paid call.",
    "hook_runs": "The durations of the hook.",
    "memories": "What somebody asked to remember.",
    "memory_history": "Former versions of memories.",
    "tombstones": "What was forgotten, so that no import stores it again.",
    "forgotten_sessions": "Sessions of which something was forgotten.",
    "forget_work": "What is still to be removed from files.",
    "learned_from": "The lines from which a memory was learned, see [learning](../how-to/learn-from-sessions.md).",
    "reflector_runs": "The runs of the reflector.",
    "injection_logs": "What was told to the agent at the start of sessions.",
    "source_collections": "Folders of files, see [searching your files](../how-to/search-your-files.md).",
    "source_files": "The files in them.",
    "sources": "The file and the place in it from which a chunk comes.",
    "relay_peers": "The other ends of the relay: a home machine's devices, a device's home.",
    "relay_agents": "Which device an agent id belongs to.",
    "relay_out": "The streams that this machine writes.",
    "outbox": "What a device has sealed: each blob stays until home's receipt covers it.",
    "relay_in": "The streams that this machine reads, how far each is committed, and why one has stopped.",
    "relay_claims": "How far devices say that they have sealed.",
    "relay_fragments": "Parts of messages whose last part has not come.",
    "refusals": "How many blobs and streams were refused, by device and reason.",
    "relay_skips": "Gaps that the user decided to skip.",
    "relay_files": "Files that two copies of one device continued differently.",
    "mirror_home": "What the home machine has published of its memory, see [the mirror](../spec/mirror.md).",
    "mirror_keys": "The keys that seal the mirror's objects.",
    "mirror_objects": "The mirror's list: objects at the relay that together hold everything that was published.",
    "mirror_rows": "Which object has which row, and what waits to be published.",
    "mirror_trash": "Objects to be deleted at the relay.",
    "mirror_applied": "In a device's `mirror.db`: how far it is.",
    "index_state": "How far the derived index beside this file is, see [decision 17](../adr/0017-derived-index.md).",
    "index_parts": "The files of the derived index.",
    "index_log": "Chunks that are not in these files yet, or no longer as they are there.",
}
"""Purpose of each table; the generator names a table that is not here."""

MEANINGS = {
    ("sessions", "session_id"): "the agent's id of the session",
    ("chunks", "id"): "never used twice, because vectors refer to it",
    ("problems", "room"): "the part that failed: embedding, summary, capture ...",
    ("costs", "purpose"): "embedding, summary, search, learning",
    ("memories", "source"): "how it came: cli, mcp, prompt, python, or a caller's own name",
    ("memories", "session"): "the agent's id of the session in which it was asked for",
    ("source_collections", "read_as"): "how its files were cleaned and split; if that changes, they are read again",
    ("outbox", "again"): "1: the relay had it once, and is asked to store it again",
    ("relay_in", "code"): "why it has stopped: the code of the envelope's error",
    ("index_state", "format"): "of the files; with another format they are built again",
    ("forgotten_sessions", "session_id"): "the agent's id of the session",
}
"""Meanings of columns whose comments are out of date: a released migration is not edited."""

CREATE = re.compile(r"^CREATE (?:VIRTUAL )?TABLE (?P<name>\w+)", re.MULTILINE)
DROPPED = re.compile(r"^DROP TABLE (?P<name>\w+)", re.MULTILINE)
ADDED = re.compile(r"^ALTER TABLE (?P<name>\w+) ADD COLUMN (?P<column>[^;]+); -- (?P<comment>.*)$", re.MULTILINE)
REMOVED = re.compile(r"^ALTER TABLE (?P<name>\w+) DROP COLUMN (?P<column>\w+);", re.MULTILINE)
RENAMED = re.compile(
    r"^ALTER TABLE (?P<name>\w+) RENAME COLUMN (?P<old>\w+) TO (?P<new>\w+); -- (?P<comment>.*)$", re.MULTILINE
)
COLUMN = re.compile(
    r"^    (?P<column>[a-z]\w*)\s+(?P<type>(?:[^,'-]|'[^']*')*?(?:\([^)]*\)[^,-]*?)*),?\s*(?:-- (?P<comment>.*))?$"
)


def render() -> str:
    """The whole page."""
    bodies: dict[str, str] = {}
    for file in sorted(MIGRATIONS.glob("*.sql")):
        sql = file.read_text("utf-8")
        for match in DROPPED.finditer(sql):
            if f"CREATE TABLE {match['name']} " not in sql:  # else it is made anew, in its old place
                bodies.pop(match["name"])
        for match in CREATE.finditer(sql):
            bodies[match["name"]] = sql[match.end() : sql.index("\n)", match.end())]
        for match in RENAMED.finditer(sql):
            line = re.compile(rf"^    {match['old']}(?P<type> [^-]*)--.*$", re.MULTILINE)
            bodies[match["name"]] = line.sub(
                lambda found, to=match: f"    {to['new']}{found['type']}-- {to['comment']}", bodies[match["name"]]
            )
        for match in REMOVED.finditer(sql):
            bodies[match["name"]] = re.sub(rf"\n    {match['column']} .*", "", bodies[match["name"]])
        for match in ADDED.finditer(sql):
            bodies[match["name"]] += f"\n    {match['column']}, -- {match['comment']}"
    return "\n".join([HEAD, *(_table(name, body) for name, body in bodies.items())])


def _table(name: str, body: str) -> str:
    if name not in WORDS:
        raise SystemExit(f"say in WORDS of docs/generate_database.py what the table {name} is for")
    words = [f"## {name}\n", WORDS[name], ""]
    rows: list[list[str]] = []
    constraints: list[str] = []
    for line in body.splitlines()[1:]:
        found = COLUMN.match(line)
        if found:
            rows.append([found["column"], " ".join(found["type"].split()), (found["comment"] or "").strip()])
        elif line.strip().startswith("--") and rows:
            rows[-1][2] += " " + line.strip().removeprefix("--").strip()
        elif line.strip().startswith(("UNIQUE", "CHECK", "PRIMARY KEY")):
            constraints.append(line.strip().rstrip(","))
    words += ["| column | type | meaning |", "|---|---|---|"]
    meant = [(column, kind, MEANINGS.get((name, column), comment)) for column, kind, comment in rows]
    words += [f"| `{column}` | {kind} | {comment.replace('|', chr(92) + '|')} |" for column, kind, comment in meant]
    words += [""] + [f"- {one}" for one in constraints] + [""] * bool(constraints)
    return "\n".join(words)


if __name__ == "__main__":
    PAGE.write_text(render().rstrip("\n") + "\n", encoding="utf-8")
