"""Stores of other memory programs, with the tables that these programs make."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

import apsw

from crystal.store.driver import sqlite_vec_library

SESSION = "5b1f0c1e-1111-4222-8333-444455556666"
DIMENSION = 1536

MEMORY_CRYSTAL = """
CREATE TABLE chunks (id INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT NOT NULL, text_hash TEXT NOT NULL, role TEXT,
    source_type TEXT, source_id TEXT, agent_id TEXT, token_count INTEGER, created_at TEXT NOT NULL);
CREATE TABLE memories (id INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT NOT NULL, category TEXT NOT NULL DEFAULT 'fact',
    confidence REAL NOT NULL DEFAULT 1.0, source_ids TEXT DEFAULT '[]', status TEXT NOT NULL DEFAULT 'active',
    created_at TEXT NOT NULL, updated_at TEXT NOT NULL);
CREATE TABLE entities (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,
    type TEXT NOT NULL DEFAULT 'concept', created_at TEXT NOT NULL, updated_at TEXT NOT NULL);
"""
CONTEXT_EMBEDDINGS = """
CREATE TABLE conversation_chunks (id INTEGER PRIMARY KEY, agent_id TEXT, session_key TEXT, chunk_text TEXT, role TEXT,
    timestamp INTEGER, compaction_number INTEGER, embedding BLOB);
"""
CLAUDE_MEM = """
CREATE TABLE sdk_sessions (id INTEGER PRIMARY KEY AUTOINCREMENT, content_session_id TEXT NOT NULL,
    memory_session_id TEXT UNIQUE, project TEXT NOT NULL, platform_source TEXT NOT NULL DEFAULT 'claude',
    user_prompt TEXT, started_at TEXT NOT NULL, started_at_epoch INTEGER NOT NULL, custom_title TEXT);
CREATE TABLE user_prompts (id INTEGER PRIMARY KEY AUTOINCREMENT, session_db_id INTEGER,
    content_session_id TEXT NOT NULL, prompt_number INTEGER NOT NULL, prompt_text TEXT NOT NULL,
    created_at TEXT NOT NULL, created_at_epoch INTEGER NOT NULL);
CREATE TABLE observations (id INTEGER PRIMARY KEY AUTOINCREMENT, memory_session_id TEXT NOT NULL,
    project TEXT NOT NULL, text TEXT, type TEXT NOT NULL, title TEXT, subtitle TEXT, facts TEXT, narrative TEXT,
    concepts TEXT, files_read TEXT, files_modified TEXT, prompt_number INTEGER, created_at TEXT NOT NULL,
    created_at_epoch INTEGER NOT NULL);
CREATE TABLE session_summaries (id INTEGER PRIMARY KEY AUTOINCREMENT, memory_session_id TEXT NOT NULL,
    project TEXT NOT NULL, request TEXT, investigated TEXT, learned TEXT, completed TEXT, next_steps TEXT,
    files_read TEXT, files_edited TEXT, notes TEXT, created_at TEXT NOT NULL, created_at_epoch INTEGER NOT NULL);
"""
EPISODIC_MEMORY = """
CREATE TABLE exchanges (id TEXT PRIMARY KEY, project TEXT NOT NULL, timestamp TEXT NOT NULL,
    user_message TEXT NOT NULL, assistant_message TEXT NOT NULL, archive_path TEXT NOT NULL,
    line_start INTEGER NOT NULL, line_end INTEGER NOT NULL, embedding BLOB, session_id TEXT, cwd TEXT,
    git_branch TEXT, model TEXT, harness TEXT NOT NULL DEFAULT 'claude');
CREATE TABLE tool_calls (id TEXT PRIMARY KEY, exchange_id TEXT NOT NULL, tool_name TEXT NOT NULL, tool_input TEXT,
    tool_result TEXT, is_error BOOLEAN DEFAULT 0, timestamp TEXT NOT NULL);
"""


def vector(number: int, dimension: int = DIMENSION) -> bytes:
    """Return a vector of length 1 that no other number has."""
    values = [math.sin((number + 1) * (at + 1)) for at in range(dimension)]
    length = math.sqrt(sum(value * value for value in values))
    return struct.pack(f"<{dimension}f", *(value / length for value in values))


def database(path: Path, schema: str) -> apsw.Connection:
    """Make a database in its program's way: with a write-ahead log."""
    path.parent.mkdir(parents=True, exist_ok=True)
    db = apsw.Connection(str(path))
    db.enable_load_extension(True)
    db.load_extension(sqlite_vec_library())
    db.pragma("journal_mode", "wal")
    db.execute(schema)
    return db


def memory_crystal(
    path: Path,
    texts: Iterable[str],
    *,
    session: str = f"cc:{SESSION}",
    memories: Sequence[tuple[str, str, str]] = (),
    dimension: int = DIMENSION,
) -> None:
    """Make memory-crystal's database: chunks of a conversation, each with a vector, and (text, category, status)."""
    db = database(path, MEMORY_CRYSTAL)
    db.execute(
        "CREATE VIRTUAL TABLE chunks_vec USING vec0(chunk_id INTEGER PRIMARY KEY,"
        f" embedding float[{dimension}] distance_metric=cosine)"
    )
    for number, text in enumerate(texts):
        at = f"2026-03-0{1 + number % 9}T10:00:{number % 60:02d}.000Z"
        db.execute(
            "INSERT INTO chunks (text, text_hash, role, source_type, source_id, agent_id, token_count, created_at)"
            " VALUES (?, ?, ?, 'conversation', ?, 'cc-mini', 7, ?)",
            (text, hashlib.sha256(text.encode()).hexdigest(), ("user", "assistant")[number % 2], session, at),
        )
        db.execute(
            "INSERT INTO chunks_vec (chunk_id, embedding) VALUES (?, ?)",
            (db.last_insert_rowid(), vector(number, dimension)),
        )
    for text, category, status in memories:
        at = "2026-02-01T00:00:00.000Z"
        db.execute(
            "INSERT INTO memories (text, category, status, created_at, updated_at) VALUES (?, ?, ?, ?, ?)",
            (text, category, status, at, at),
        )
    db.close()


def context_embeddings(path: Path, texts: Iterable[str], session: str = "agent:main") -> None:
    """Make OpenClaw's context-embeddings."""
    db = database(path, CONTEXT_EMBEDDINGS)
    for number, text in enumerate(texts):
        db.execute(
            "INSERT INTO conversation_chunks (agent_id, session_key, chunk_text, role, timestamp, embedding)"
            " VALUES ('main', ?, ?, ?, ?, ?)",
            (session, text, ("user", "assistant")[number % 2], 1_770_000_000_000 + number, vector(number)),
        )
    db.close()


def claude_mem(path: Path, prompts: Iterable[str], observed: str, summary: str, session: str = SESSION) -> None:
    """Make claude-mem's database: prompts of one session, an observation, a summary."""
    db = database(path, CLAUDE_MEM)
    at, epoch = "2026-04-01T00:00:00Z", 1_775_000_000_000
    db.execute(
        "INSERT INTO sdk_sessions (content_session_id, memory_session_id, project, user_prompt, started_at,"
        " started_at_epoch) VALUES (?, 'ms-1', 'shop', ?, ?, ?)",
        (session, "first", at, epoch),
    )
    for number, text in enumerate(prompts):
        db.execute(
            "INSERT INTO user_prompts (session_db_id, content_session_id, prompt_number, prompt_text, created_at,"
            " created_at_epoch) VALUES (1, ?, ?, ?, ?, ?)",
            (session, number, text, at, epoch + number),
        )
    db.execute(
        "INSERT INTO observations (memory_session_id, project, type, title, facts, narrative, created_at,"
        " created_at_epoch) VALUES ('ms-1', 'shop', 'discovery', ?, ?, 'a longer story', ?, ?)",
        (observed, json.dumps(["one fact", "another fact"]), at, epoch + 50),
    )
    db.execute(
        "INSERT INTO session_summaries (memory_session_id, project, learned, created_at, created_at_epoch)"
        " VALUES ('ms-1', 'shop', ?, ?, ?)",
        (summary, at, epoch + 60),
    )
    db.close()


def episodic_memory(path: Path, exchanges: Iterable[tuple[str, str]], session: str = SESSION) -> None:
    """Make episodic-memory's index: exchanges of one session, the first with a call of a tool."""
    db = database(path, EPISODIC_MEMORY)
    for number, (prompt, answer) in enumerate(exchanges):
        db.execute(
            "INSERT INTO exchanges (id, project, timestamp, user_message, assistant_message, archive_path, line_start,"
            " line_end, session_id, cwd, git_branch) VALUES (?, 'shop', ?, ?, ?, ?, ?, ?, ?, '/home/me/shop', 'main')",
            (
                f"ex-{number}",
                f"2026-05-01T00:00:{number:02d}Z",
                prompt,
                answer,
                f"/a/{session}.jsonl",
                number,
                number,
                session,
            ),
        )
    db.execute(
        "INSERT INTO tool_calls (id, exchange_id, tool_name, tool_input, tool_result, timestamp)"
        " VALUES ('call-1', 'ex-0', 'Bash', '{\"command\":\"make zeppelin\"}', 'built it', '2026-05-01T00:00:00Z')"
    )
    db.close()


def deja_vu(path: Path, notes: Iterable[str]) -> None:
    """Make deja-vu's notes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"ts": "2026-06-01T10:00:00Z", "project": "shop", "text": text}) for text in notes]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
