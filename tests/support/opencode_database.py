"""OpenCode's database, as far as its import writes it. Imports nothing of crystal: the program that plays it starts often."""

from __future__ import annotations

import json
import sqlite3

SCHEMA = """
CREATE TABLE IF NOT EXISTS session (id TEXT PRIMARY KEY, directory TEXT, title TEXT, time_created INTEGER, time_updated INTEGER);
CREATE TABLE IF NOT EXISTS message (id TEXT PRIMARY KEY, session_id TEXT, time_created INTEGER, time_updated INTEGER, data TEXT);
CREATE TABLE IF NOT EXISTS part (id TEXT PRIMARY KEY, message_id TEXT, session_id TEXT, time_created INTEGER, time_updated INTEGER,
    data TEXT);
"""


def import_document(database: sqlite3.Connection, data: bytes) -> str:
    """Do what ``opencode import`` does with a document; return the session's id."""
    document = json.loads(data)
    info = document["info"]
    database.executescript(SCHEMA)
    times = (info["time"]["created"], info["time"]["updated"])
    database.execute(
        "INSERT INTO session VALUES (?, ?, ?, ?, ?)", (info["id"], info["directory"], info["title"], *times)
    )
    for message in document["messages"]:
        told, parts = dict(message["info"]), message["parts"]
        ident, at = told.pop("id"), told["time"]["created"]
        told.pop("sessionID")
        database.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", (ident, info["id"], at, at, json.dumps(told)))
        for part in parts:
            kept = {name: value for name, value in part.items() if name not in ("id", "sessionID", "messageID")}
            row = (part["id"], ident, info["id"], at, at, json.dumps(kept))
            database.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", row)
    database.commit()
    return str(info["id"])
