"""Accounts and tokens: all SQL statements on them. Writing functions run inside a transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import apsw

from relay_worker.errors import RequestRefusedError
from relay_worker.model import Token
from relay_worker.store.database import one

MAX_TOKENS = 1000
"""Maximum valid tokens of an account."""

_SELECT = (
    "SELECT t.id, a.name, t.label, t.scopes, t.secret_hash, t.created_at, t.last_used_at, t.revoked_at"
    " FROM tokens t JOIN accounts a ON a.id = t.account"
)


def _token(row: Sequence[Any]) -> Token:
    token_id, account, label, scopes, *rest = row
    return Token(token_id, account, label, tuple(scopes.split()), *rest)


def find(db: apsw.Connection, token_id: str) -> Token | None:
    """Return a token of any account."""
    row = one(db, f"{_SELECT} WHERE t.id = ?", token_id)
    return None if row is None else _token(row)


def list_all(db: apsw.Connection, account: str | None) -> list[Token]:
    """Return the tokens of an account (None: of all), oldest first."""
    rows = db.execute(f"{_SELECT} WHERE ? IS NULL OR a.name = ? ORDER BY t.created_at, t.id", (account, account))
    return [_token(row) for row in rows]


def add(db: apsw.Connection, token: Token) -> None:
    """Store a token; the first one creates its account."""
    db.execute("INSERT INTO accounts (name) VALUES (?) ON CONFLICT DO NOTHING", (token.account,))
    (account,) = one(db, "SELECT id FROM accounts WHERE name = ?", token.account) or (0,)
    valid = db.execute("SELECT count(*) FROM tokens WHERE account = ? AND revoked_at IS NULL", (account,)).get
    if valid >= MAX_TOKENS:
        raise RequestRefusedError("too-many-tokens", f"the account may have {MAX_TOKENS} valid tokens; revoke some")
    db.execute(
        "INSERT INTO tokens (id, account, label, scopes, secret_hash, created_at) VALUES (?, ?, ?, ?, ?, ?)",
        (token.id, account, token.label, " ".join(token.scopes), token.secret_hash, token.created_at),
    )


def revoke(db: apsw.Connection, account: str | None, token_id: str, now: int) -> None:
    """Revoke a token of an account (None: of any). An earlier revocation keeps its time."""
    found = find(db, token_id)
    if found is None or (account is not None and found.account != account):
        raise RequestRefusedError("no-token", "the account has no such token")
    db.execute("UPDATE tokens SET revoked_at = coalesce(revoked_at, ?) WHERE id = ?", (now, token_id))


def touch(db: apsw.Connection, used: Mapping[str, int]) -> None:
    """Record when tokens were last used."""
    db.executemany(
        "UPDATE tokens SET last_used_at = max(coalesce(last_used_at, 0), ?) WHERE id = ?",
        [(at, token_id) for token_id, at in used.items()],
    )


def raise_floors(db: apsw.Connection, now: int) -> None:
    """Make clients with an older change counter list everything once. Called at the server's start."""
    db.execute("UPDATE accounts SET change = max(change + 1, ?)", (now * 1000,))
    db.execute("UPDATE accounts SET floor = change")
