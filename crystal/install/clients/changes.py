"""Plan a change to a client's file, show it, and apply it as a whole or not at all."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crystal.errors import CrystalError, DamagedError, UsageError
from crystal.install.clients.entry_text import document_of, entry_in, with_server, without_server
from crystal.install.clients.known import SERVER, Client, ServerCommand, is_ours, updated
from crystal.install.file_change import FileChange, decoded, encoded, json_errors, read_whole
from crystal.install.undo import Undo, made_of_nothing, read_record, remove_empty, write_record

CLI_SECONDS = 60
NAMED = re.compile(rb"""(?:^|[\s"'.{,])crystal[\s"'\].=]""")
"""Text in every file with a server of our name; a path through a folder of that name does not contain it."""


@dataclass(frozen=True, slots=True)
class ClientPlan(FileChange):
    """A planned change to one client's file.

    Attributes:
        client: The client.
        made: The record to write once the change is applied, or None.
        entry: The new entry, None to remove it.
        program: The client's own command for the change, if installed; if it fails, the file is edited.
        had_entry: True if the file has an entry of ours.
    """

    client: Client
    made: Undo | None
    entry: Mapping[str, Any] | None
    program: str | None = None
    had_entry: bool = False

    @property
    def commands(self) -> list[list[str]]:
        """Return the arguments for the client's own command."""
        if self.program is None or not self.changed:
            return []
        remove = [self.program, "mcp", "remove", "--scope", "user", SERVER]
        if self.entry is None:
            return [remove]
        add = [self.program, "mcp", "add-json", "--scope", "user", SERVER, json.dumps(self.entry, ensure_ascii=False)]
        return [remove, add] if self.had_entry else [add]

    def diff(self) -> str:
        """Return a preview: the commands, or the changed lines."""
        commands = "".join(f"would run {shlex.join(command)}\n" for command in self.commands)
        return commands or FileChange.diff(self)


@dataclass(frozen=True, slots=True)
class ClientFacts:
    """The state of a client with regard to this memory.

    Attributes:
        present: True if it seems to be installed.
        entry: Our entry in its file, or None.
        problem: Why its file cannot be parsed, or None.
    """

    present: bool
    entry: Mapping[str, Any] | None = None
    problem: CrystalError | None = None


def plan_add(
    client: Client, entry: ServerCommand, record: Mapping[str, Undo], program: str | None = None
) -> ClientPlan:
    """Plan to have exactly one entry of ours in a client's file. If it is correct already, the plan changes nothing.

    Args:
        client: The client.
        entry: The entry to add.
        record: The record of earlier changes.
        program: The client's own command, if it must be used.

    Raises:
        UsageError: The file cannot be parsed, or another server has our name.
        UnavailableError: The system refuses to read it.
    """
    target, before = read_whole(client.file)
    mark, text = decoded(client.file, before or b"", _mend(client))
    with _naming(client, client.file, text):
        document = document_of(client, text)
    old = entry_in(client, document)
    if old is not None and not is_ours(old):
        problem = f"{client.file} has another server named {SERVER}"
        raise UsageError(problem, hint=f"rename it there, or {_paste(client)}")
    with _naming(client, client.file, text):
        after = with_server(client, text, entry)
        shall = entry.as_document(typed=client.typed) if old is None else updated(old, entry)
        _check_rest(client, document, document_of(client, after), shall)
    data = mark + encoded(client.file, after)
    made = record.get(client.name)
    if old is None or made is None or made.path != str(client.file):
        made = _made(client, target, None if before is None else text, document, had_entry=old is not None)
    after_bytes = before if before is not None and data == before else data
    return ClientPlan(client.file, target, before, after_bytes, client, made, shall, program, old is not None)


def plan_remove(client: Client, record: Mapping[str, Undo], program: str | None = None) -> list[ClientPlan]:
    """Plan to remove our entry, also from an earlier file if the client's folder has moved since.

    Raises:
        UsageError: A file names our server and cannot be parsed.
        UnavailableError: The system refuses to read it.
    """
    made = record.get(client.name)
    paths = [client.file, *([Path(made.path)] if made and made.path != str(client.file) else [])]
    return [
        _plan_remove(client, path, made if made and made.path == str(path) else None, None if number else program)
        for number, path in enumerate(paths)
    ]


def apply(plan: ClientPlan, ldm_home: Path, env: Mapping[str, str]) -> None:
    """Apply a planned change, and update the record.

    Raises:
        UnavailableError: The file was changed since the plan was made, or the system refuses. It is left unchanged.
    """
    record = read_record(ldm_home)
    known = dict(record)
    if plan.entry is not None and plan.made is not None:
        record[plan.client.name] = plan.made
        if record != known:
            write_record(ldm_home, record)  # before the change: a record without a change is harmless
    if plan.changed and not _done_by_client(plan, env):
        _apply_to_file(plan)
    if plan.entry is None and known.get(plan.client.name) is not None:
        record.pop(plan.client.name)
        write_record(ldm_home, record)


def read_facts(client: Client) -> ClientFacts:
    """Return the state of a client. Never raises a ``CrystalError``: a broken file is reported as a fact."""
    try:
        _, data = read_whole(client.file)
        _, text = decoded(client.file, data or b"", _mend(client))
        with _naming(client, client.file, text):
            entry = entry_in(client, document_of(client, text))
    except CrystalError as error:
        return ClientFacts(present=True, problem=error)
    return ClientFacts(data is not None or client.folder.is_dir(), entry if is_ours(entry) else None)


def _plan_remove(client: Client, path: Path, made: Undo | None, program: str | None) -> ClientPlan:
    target, before = read_whole(path)
    unchanged = ClientPlan(path, target, before, before, client, made, None)
    if before is None or not NAMED.search(before):
        return unchanged
    mark, text = decoded(path, before, _mend(client))
    with _naming(client, path, text):
        document = document_of(client, text)
        if not is_ours(entry_in(client, document)):
            return unchanged
        left = without_server(client, text, group_too=made is None or made.what != "entry")
        _check_rest(client, document, document_of(client, left), None)
    after: bytes | None = mark + left.encode()
    if made and made.what == "file" and left.strip() in ("", "{}"):
        after = made.content(mark)
    return replace(unchanged, after=after, program=program, had_entry=True)


def _done_by_client(plan: ClientPlan, env: Mapping[str, str]) -> bool:
    """Let the client change its own file, which it may be rewriting now. Return False if the file is not as planned."""
    for command in plan.commands:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                command, env=dict(env), stdin=subprocess.DEVNULL, capture_output=True, timeout=CLI_SECONDS, check=False
            )
    return bool(plan.commands) and read_facts(plan.client).entry == plan.entry


def _apply_to_file(plan: ClientPlan) -> None:
    if plan.program is not None:  # it may have made a part of the change
        plan = _again(plan)
    plan.apply()
    remove_empty(plan.made.folders if plan.made and plan.after is None else ())


def _again(plan: ClientPlan) -> ClientPlan:
    if plan.entry is None:
        return _plan_remove(plan.client, plan.path, plan.made, None)
    entry = ServerCommand(plan.entry["command"], tuple(plan.entry["args"]), plan.entry.get("env", {}))
    return replace(plan_add(plan.client, entry, {}), made=plan.made)


def _check_rest(client: Client, old: Any, new: Any, entry: Mapping[str, Any] | None) -> None:
    """Check that only our entry differs and is as intended, independently of how the change was made."""

    def split(document: Any) -> tuple[str, Any]:
        servers = document.get(client.servers, {})
        left = {name: value for name, value in servers.items() if name != SERVER}
        rest = {name: left if name == client.servers else value for name, value in document.items()}
        if not left:
            rest.pop(client.servers, None)
        return json.dumps(rest, default=repr), servers.get(SERVER)

    if split(new) != (split(old)[0], entry):
        raise DamagedError("the entry cannot be changed without changing others")


def _made(client: Client, target: Path, text: str | None, document: Any, *, had_entry: bool) -> Undo:
    """Return the record with which this change can be undone."""
    made = made_of_nothing(client.file, target, text)
    return made or Undo(str(client.file), "entry" if had_entry or client.servers in document else "servers")


def _mend(client: Client) -> str:
    return f"nothing was changed; correct that place and run the command again, or {_paste(client)}"


def _paste(client: Client) -> str:
    return f"paste the entry yourself: crystal init --client {client.name} --print"


@contextlib.contextmanager
def _naming(client: Client, path: Path, text: str) -> Iterator[None]:
    """Add the file's name and a next step to errors of editing its text."""
    hint = _mend(client)
    try:
        with json_errors(path, text, hint):
            yield
    except (UsageError, DamagedError) as error:
        if error.hint == hint:
            raise
        raise type(error)(f"{path}: {error.message}", hint=hint) from error
