"""Implement the operator's commands: tokens, check, health, move, backup. Results go to stdout, messages to stderr."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import secrets
import ssl
import sys
from datetime import datetime, timezone
from pathlib import Path

from relay_worker.errors import CannotServeError
from relay_worker.serving import refuse_bad_certificate, refuse_plain_http
from relay_worker.settings import NAMES, Settings, host_and_port, without_password
from relay_worker.store import accounts, choice, moving, operator
from relay_worker.tokens import new_token

ACCOUNT_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789._-")


def make_token(settings: Settings, asked: argparse.Namespace, now: int) -> None:
    """Make a token and print it. It is shown only once.

    Args:
        settings: The configuration.
        asked: ``account``, ``label``, ``scopes``, ``create``, ``as_json``.
        now: The time, ms.

    Raises:
        CannotServeError: The folder has no relay, and ``create`` is not set.
    """
    _as_owner(settings)
    account = asked.account
    if not 1 <= len(account) <= 64 or not set(account) <= ACCOUNT_CHARACTERS:
        raise CannotServeError(f"account {account!r} has other characters than a-z 0-9 . _ -", exit_code=2)
    token, text = new_token(account, asked.label, asked.scopes, now, secrets.token_bytes)
    with choice.transaction(settings, create=asked.create) as rows:
        accounts.add(rows, token)
    if asked.as_json:
        _print({"id": token.id, "token": text, "account": account, "label": token.label, "scopes": token.scopes})
    else:
        sys.stdout.write(text + "\n")
        sys.stderr.write("this is shown once; the relay keeps only its hash\n")


def list_tokens(settings: Settings, account: str | None, *, as_json: bool) -> None:
    """List tokens, including revoked ones."""
    _as_owner(settings)
    with choice.transaction(settings) as rows:
        found = accounts.list_all(rows, account)
    for one in found:
        if as_json:
            _print({**one.public, "account": one.account})
        else:
            state = f"revoked {_day(one.revoked_at)}" if one.revoked_at else f"used {_day(one.last_used_at)}"
            sys.stdout.write(f"{one.id}  {one.account}  {one.label}  {','.join(one.scopes)}  {state}\n")


def revoke_token(settings: Settings, token_id: str, now: int) -> None:
    """Revoke a token, effective from its next request on."""
    _as_owner(settings)
    with choice.transaction(settings) as rows:
        accounts.revoke(rows, None, token_id, now)
    sys.stderr.write(f"revoked {token_id}\n")


def check(settings: Settings, *, as_json: bool) -> None:
    """Print the effective configuration and the source of each value; refuse one that cannot serve."""
    values = {name: getattr(settings, name) for name in NAMES} | {"store": without_password(settings.store)}
    if as_json:
        _print({name: str(value) if isinstance(value, Path) else value for name, value in values.items()})
    else:
        for name, value in values.items():
            shown = " ".join(value) if isinstance(value, tuple) else "" if value is None else value
            sys.stdout.write(f"{name} = {shown}  ({settings.sources.get(name, 'default')})\n")
    for name in settings.unknown:
        sys.stderr.write(f"crystal-relay: warning: {name} is not a setting\n")
    refuse_plain_http(settings)
    refuse_bad_certificate(settings)
    choice.check(settings)


def health(settings: Settings, *, ready: bool) -> None:
    """Check that the relay with this configuration is serving, for a container or a monitor.

    Raises:
        CannotServeError: It is not serving.
    """
    host, port = host_and_port(settings.listen, "listen")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - the other way round
    connection = http.client.HTTPConnection(host, port, timeout=5)
    if settings.tls_cert:
        context = ssl.create_default_context()
        # The check connects to its own host, for which the certificate is not issued; nothing secret is sent.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection = http.client.HTTPSConnection(host, port, timeout=5, context=context)
    try:
        connection.request("GET", "/readyz" if ready else "/healthz")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        raise CannotServeError(
            f"{settings.listen} does not answer: {error}", hint="crystal-relay serve", exit_code=4
        ) from error
    finally:
        connection.close()
    if status != 200:
        raise CannotServeError(f"{settings.listen} answers {status}", hint="look at the relay's log", exit_code=4)


def move(origin: str, target: str, origin_bodies: str = "", target_bodies: str = "") -> None:
    """Copy a relay to another store; complete the copy if no server serves the original.

    Args:
        origin: A data directory, or the address of a database.
        target: A new folder, or the address of an empty database.
        origin_bodies: Address of the bucket with the original's large bodies, if there is one.
        target_bodies: Address of the bucket for those of the copy.

    Raises:
        CannotServeError: A server still serves the original (exit code 4), or one of the stores cannot be used.
    """

    def report(done: moving.TableReport) -> None:
        changed = f"{done.written} written, {done.deleted} deleted" if done.written or done.deleted else "nothing to do"
        lost = f", {done.lost} bodies were lost before" if done.lost else ""
        sys.stderr.write(f"{done.table}: {done.rows} rows, {changed}{lost}\n")

    with choice.source_of(origin, origin_bodies) as source, choice.target_of(target, target_bodies) as end:
        moving.move(source, end, report)
    origin, target = without_password(origin), without_password(target)
    if source.is_serving:
        raise CannotServeError(
            f"{origin} still serves: all that it had is copied, but {target} is not complete",
            hint="stop it, and run the same command again: it copies the rest",
            exit_code=4,
        )
    sys.stderr.write(
        f"moved to {target}: every row was compared, every body was checked when copied; do not start {origin} again\n"
    )


def back_up(settings: Settings, target: Path) -> None:
    """Copy everything, whether the relay is serving or not."""
    if settings.store:
        raise CannotServeError(
            "a store in PostgreSQL is backed up with PostgreSQL's own tools",
            hint="pg_dump --schema=crystal_relay --format=custom --file=relay.dump DATABASE",
            exit_code=2,
        )
    _as_owner(settings)
    bodies, lost = operator.back_up(settings.data_dir, target)
    more = f", {lost} were fetched and deleted meanwhile" if lost else ""
    sys.stderr.write(f"backed up to {target}: the database and {bodies} large bodies{more}\n")


def _as_owner(settings: Settings) -> None:
    """Give created files to the relay's user: files owned by root would lock the relay out."""
    folder = settings.data_dir
    if settings.store or not folder.exists():
        return
    owner = folder.stat().st_uid
    if owner != os.geteuid():
        raise CannotServeError(f"{folder} belongs to user {owner}", hint=f"run it as its owner: sudo -u '#{owner}' ...")


def _day(time: int | None) -> str:
    if time is None:
        return "never"
    return datetime.fromtimestamp(time / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M")


def _print(value: object) -> None:
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
