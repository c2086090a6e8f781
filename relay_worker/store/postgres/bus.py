"""Send messages between the servers of one PostgreSQL store, by LISTEN and NOTIFY.

A message is a list: the sender, its kind, and more. NOTIFY makes commits wait for each other, so it is sent in a
separate transaction after the one that it reports. If a server dies between the two, a waiting client waits at most
``LATEST_SECONDS`` longer. A trigger sends revocations of tokens, inside their transaction.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import secrets
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
import psycopg

from relay_worker.errors import CannotServeError
from relay_worker.store import accounts
from relay_worker.store.postgres.connecting import SERVING_LOCK, PostgresRows, connect

CHANNEL = "crystal_relay"
GATHER_SECONDS = 0.005
RETRY_SECONDS = 0.3
ATTEMPTS = (0.0, 0.0, RETRY_SECONDS)
"""Pauses before each attempt to send: the first attempt only detects a closed idle connection."""
LOG = logging.getLogger("relay_worker")
Message: TypeAlias = "list[Any]"


class Bus:
    """One server's connection to the others.

    Args:
        url: The address of the store.
        now: The time, ms, for the change counters.
        hear: Called with every message of another server, in a thread; with ``["", "all"]`` if some may be missing.

    Attributes:
        is_hearing: No message can be missing now.
    """

    def __init__(self, url: str, now: int, hear: Callable[[Message], None]) -> None:
        self._url, self._now, self._hear = url, now, hear
        self._name = secrets.token_hex(4)
        self.is_hearing = False
        self._ends = threading.Event()
        self._started = threading.Event()
        self._outgoing: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._listen, self._send)]
        for one in self._threads:
            one.start()
        self._started.wait(10)

    def say(self, *message: Any) -> None:
        """Send a message to the other servers, some milliseconds later."""
        self._outgoing.put([self._name, *message])

    def close(self) -> None:
        """Stop."""
        self._ends.set()
        self.say()  # wakes the listening thread; other servers ignore it
        self._outgoing.put(None)
        for one in self._threads:
            one.join(5)

    def _listen(self) -> None:
        while not self._ends.is_set():
            try:
                with contextlib.closing(connect(self._url)) as db:
                    self._register(db)
                    self._hear(["", "all"])  # first: cached data may be wrong now
                    self.is_hearing = True
                    self._started.set()
                    while not self._ends.is_set():
                        for notice in db.notifies(timeout=0.5):
                            self._take(notice.payload)
                            if self._ends.is_set():
                                break
            except (psycopg.Error, CannotServeError):
                self.is_hearing = False
                self._ends.wait(RETRY_SECONDS)

    def _register(self, db: psycopg.Connection[Any]) -> None:
        """Register this server. The first server makes every client list everything once."""
        db.execute(f"LISTEN {CHANNEL}")
        (is_first,) = db.execute("SELECT pg_try_advisory_lock(%s)", [SERVING_LOCK]).fetchone() or (False,)
        if is_first:
            with db.transaction():
                accounts.raise_floors(PostgresRows(db), self._now)
        db.execute("SELECT pg_advisory_lock_shared(%s)", [SERVING_LOCK])
        if is_first:
            db.execute("SELECT pg_advisory_unlock(%s)", [SERVING_LOCK])

    def _take(self, payload: str) -> None:
        # Any role may notify: no payload may end the listening thread.
        with contextlib.suppress(msgspec.DecodeError, RecursionError, TypeError, ValueError):
            message = msgspec.json.decode(payload, type=list)
            if [type(one) for one in message[:2]] == [str, str] and message[0] != self._name:
                self._hear(message)

    def _send(self) -> None:
        """Send the queued messages, as many as one transaction can."""
        db: psycopg.Connection[Any] | None = None
        while (message := self._outgoing.get()) is not None:
            said = {msgspec.json.encode(message).decode(): None}
            self._ends.wait(GATHER_SECONDS)
            with contextlib.suppress(queue.Empty):
                while len(said) < 1000 and (message := self._outgoing.get_nowait()) is not None:
                    said[msgspec.json.encode(message).decode()] = None
            for pause in ATTEMPTS:
                self._ends.wait(pause)
                db = self._notify(db, list(said))
                if db is not None:
                    break
            else:
                LOG.warning("other servers were not told")  # the others notice the change within two minutes
            if message is None:
                break
        if db is not None:
            db.close()

    def _notify(self, db: psycopg.Connection[Any] | None, said: list[str]) -> psycopg.Connection[Any] | None:
        """Send messages; return the connection, new if there was none, or None if they were not sent."""
        try:
            if db is None:
                db = connect(self._url)
                db.execute("SET synchronous_commit = off")  # a message need not survive a crash of the server
            sql = "SELECT pg_notify(%s, message) FROM unnest(%s::text[]) message"
            db.execute(sql, [CHANNEL, said], prepare=True)
        except (psycopg.Error, CannotServeError):
            if db is not None:
                db.close()
            return None
        return db
