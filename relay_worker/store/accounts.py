"""Store accounts and tokens: all SQL statements on them. Writing functions run inside a transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relay_worker.errors import RequestRefusedError
from relay_worker.model import RelayUsage, Token
from relay_worker.store.rows import Rows, all_in

MAX_TOKENS = 1000
"""Maximum valid tokens of an account."""

_SELECT = (
    "SELECT t.id, a.name, t.label, t.scopes, t.secret_hash, t.created_at, t.last_used_at, t.revoked_at"
    " FROM tokens t JOIN accounts a ON a.id = t.account"
)


def _token(row: Sequence[Any]) -> Token:
    token_id, account, label, scopes, *rest = row
    return Token(token_id, account, label, tuple(scopes.split()), *rest)


def find(db: Rows, token_id: str) -> Token | None:
    """Return a token of any account."""
    row = db.one(f"{_SELECT} WHERE t.id = ?", token_id)
    return None if row is None else _token(row)


def find_many(db: Rows, token_ids: Sequence[str]) -> list[Token]:
    """Return tokens of any account."""
    return [_token(row) for row in all_in(db, f"{_SELECT} WHERE t.id IN", token_ids)]


def changes(db: Rows, names: Sequence[str]) -> dict[str, int]:
    """Return the change counters of accounts."""
    return dict(all_in(db, "SELECT name, change FROM accounts WHERE name IN", names))


def list_all(db: Rows, account: str | None) -> list[Token]:
    """Return the tokens of an account (None: of all), oldest first."""
    where, values = ("", ()) if account is None else (" WHERE a.name = ?", (account,))
    return [_token(row) for row in db.all(f"{_SELECT}{where} ORDER BY t.created_at, t.id", *values)]


def add(db: Rows, token: Token) -> None:
    """Store a token; the first one creates its account."""
    db.run("INSERT INTO accounts (name) VALUES (?) ON CONFLICT DO NOTHING", token.account)
    sql = (
        "SELECT a.id, count(t.id) FROM accounts a LEFT JOIN tokens t ON t.account = a.id AND t.revoked_at IS NULL"
        " WHERE a.name = ? GROUP BY a.id"
    )
    account, valid = db.one(sql, token.account) or (0, 0)
    if valid >= MAX_TOKENS:
        raise RequestRefusedError("too-many-tokens", f"the account may have {MAX_TOKENS} valid tokens; revoke some")
    db.run(
        "INSERT INTO tokens (id, account, label, scopes, secret_hash, created_at) VALUES (?, ?, ?, ?, ?, ?)",
        *(token.id, account, token.label, " ".join(token.scopes), token.secret_hash, token.created_at),
    )


def revoke(db: Rows, account: str | None, token_id: str, now: int) -> None:
    """Revoke a token of an account (None: of any). An earlier revocation keeps its time."""
    found = find(db, token_id)
    if found is None or (account is not None and found.account != account):
        raise RequestRefusedError("no-token", "the account has no such token")
    db.run("UPDATE tokens SET revoked_at = coalesce(revoked_at, ?) WHERE id = ?", now, token_id)


def touch(db: Rows, used: Mapping[str, int]) -> None:
    """Record when tokens were last used."""
    db.many(
        "UPDATE tokens SET last_used_at = ? WHERE id = ? AND coalesce(last_used_at, 0) < ?",
        [(at, token_id, at) for token_id, at in sorted(used.items())],
    )


def raise_floors(db: Rows, now: int) -> None:
    """Make clients with an older change counter list everything once. Called at the relay's start."""
    least = now * 1000
    db.run("UPDATE accounts SET change = CASE WHEN change < ? THEN ? ELSE change + 1 END", least, least)
    db.run("UPDATE accounts SET floor = change")


def usage_of(db: Rows) -> RelayUsage:
    """Return the usage of the whole relay."""
    row = db.one(
        "SELECT (SELECT coalesce(sum(count), 0) FROM streams), (SELECT count(*) FROM objects),"
        " (SELECT coalesce(sum(bytes), 0) FROM accounts), (SELECT count(*) FROM streams),"
        " (SELECT count(*) FROM tokens WHERE revoked_at IS NULL), (SELECT min(at) FROM blobs)"
    )
    blobs, objects, size, *rest = row or (0, 0, 0, 0, 0, None)
    return RelayUsage(int(blobs), objects, int(size), *rest)
