"""Store pairing mailboxes: all SQL statements on them. Writing functions run inside the writer's transaction."""

from __future__ import annotations

from collections.abc import Sequence

from relay_worker.errors import RequestRefusedError
from relay_worker.model import Mailbox
from relay_worker.store.rows import Rows

LOCK = ":mailboxes"
"""Lock of the jobs that change a mailbox."""
MAX_MAILBOXES = 8
"""Maximum open mailboxes of an account."""
MAX_MAIL = 16
"""Maximum messages of one side."""
MAILBOX_MS = 600_000


def gone(nameplate: int) -> RequestRefusedError:
    """Return the refusal for a mailbox that is closed, expired, or was never opened."""
    return RequestRefusedError("no-mailbox", f"there is no mailbox {nameplate}; a mailbox is open for ten minutes")


def open_one(db: Rows, account: str, candidates: Sequence[int], now: int) -> Mailbox:
    """Open a mailbox under the first candidate that is free."""
    (account_id,) = db.one("SELECT id FROM accounts WHERE name = ?", account) or (0,)
    sql = "SELECT count(*), min(expires_at) FROM mailboxes WHERE account = ? AND expires_at > ?"
    count, first = db.one(sql, account_id, now) or (0, None)
    if count >= MAX_MAILBOXES:
        wait = max(1, -(-(first - now) // 1000))
        raise RequestRefusedError("too-many-mailboxes", f"the account has {count} mailboxes open", retry_after=wait)
    for nameplate in candidates:
        taken = db.one("SELECT expires_at FROM mailboxes WHERE nameplate = ?", nameplate)
        if taken is None or taken[0] <= now:
            close(db, nameplate)
            expires_at = now + MAILBOX_MS
            sql = "INSERT INTO mailboxes (nameplate, account, expires_at) VALUES (?, ?, ?)"
            db.run(sql, nameplate, account_id, expires_at)
            return Mailbox(nameplate, account, expires_at)
    raise RequestRefusedError("unavailable", "no nameplate is free", retry_after=60)


def find(db: Rows, nameplate: int, now: int) -> Mailbox | None:
    """Return the mailbox, unless it is closed or expired."""
    sql = (
        "SELECT m.nameplate, a.name, m.expires_at, m.claim_hash FROM mailboxes m JOIN accounts a ON a.id = m.account"
        " WHERE m.nameplate = ? AND m.expires_at > ?"
    )
    row = db.one(sql, nameplate, now)
    return None if row is None else Mailbox(*row)


def claim(db: Rows, nameplate: int, claim_hash: bytes, now: int) -> tuple[Mailbox, bool]:
    """Bind the mailbox to a claim; the same claim again is a duplicate."""
    box = find(db, nameplate, now)
    if box is None:
        raise gone(nameplate)
    if box.claim_hash == claim_hash:
        return box, False
    if box.claim_hash is not None:
        raise RequestRefusedError("mailbox-claimed", "somebody else has claimed this mailbox; close it and pair again")
    db.run("UPDATE mailboxes SET claim_hash = ? WHERE nameplate = ?", claim_hash, nameplate)
    return box, True


def put_mail(db: Rows, nameplate: int, side: str, phase: str, body: bytes, now: int) -> bool:
    """Write a message. It cannot be replaced."""
    if find(db, nameplate, now) is None:
        raise gone(nameplate)
    known = db.one("SELECT body FROM mail WHERE nameplate = ? AND side = ? AND phase = ?", nameplate, side, phase)
    if known is not None:
        if known[0] != body:
            raise RequestRefusedError("mail-conflict", "another message is there already")
        return False
    (count,) = db.one("SELECT count(*) FROM mail WHERE nameplate = ? AND side = ?", nameplate, side) or (0,)
    if count >= MAX_MAIL:
        raise RequestRefusedError("mailbox-full", f"a side writes at most {MAX_MAIL} messages")
    db.run("INSERT INTO mail (nameplate, side, phase, body) VALUES (?, ?, ?, ?)", nameplate, side, phase, body)
    return True


def get_mail(db: Rows, nameplate: int, side: str, phase: str, now: int) -> bytes | None:
    """Return a message, or None if it has not arrived."""
    if find(db, nameplate, now) is None:
        raise gone(nameplate)
    row = db.one("SELECT body FROM mail WHERE nameplate = ? AND side = ? AND phase = ?", nameplate, side, phase)
    return None if row is None else row[0]


def close(db: Rows, nameplate: int) -> None:
    """Delete a mailbox and its messages."""
    db.run("DELETE FROM mailboxes WHERE nameplate = ?", nameplate)


def expire(db: Rows, now: int) -> None:
    """Delete expired mailboxes."""
    db.run("DELETE FROM mailboxes WHERE expires_at <= ?", now)
