"""Keep ready what each running session has done, for when the client compacts it or begins a subagent in it."""

from __future__ import annotations

import re
import time
from itertools import chain

from crystal.app.assist import write_facts
from crystal.app.context import Machine
from crystal.assist.facts import SO_FAR, Fact, encode_facts
from crystal.assist.packet import packet_facts
from crystal.capture.privacy import policy_of
from crystal.config.paths import delete_file
from crystal.hook.assist import PACKET, PACKET_AGENTS, PACKETS
from crystal.reflect.own_words import own_sentences
from crystal.reflect.statement_patterns import find_statement
from crystal.store import Store
from crystal.store.capture.privacy import store_key
from crystal.store.sessions.contexts import state_of_memory
from crystal.store.sessions.conversations import list_sessions, requests_of
from crystal.store.work.index import bring_up_to_date
from crystal.store.work.queries import steps_of_session

RUNNING_MS = 3_600_000
MAX_SESSIONS = 8
SESSION_ID = r"[\w.:-]{1,128}"
"""Pattern of the session ids that get a packet: the id becomes a file name, and a transcript may contain any id."""
INDEX_SECONDS = 1.0
"""Time for the work index; a session that it does not know yet has only requests."""


def packet_of(store: Store, session: int, folder: str, before: int | None = None) -> list[Fact]:
    """Return what a session may be reminded of, now or as of ``before`` (ms)."""
    asked = requests_of(store, session, before)
    found = map(find_statement, chain.from_iterable(map(own_sentences, asked)))
    stated = [one.text for one in found if one is not None]
    return packet_facts(asked, stated, steps_of_session(store, session, before), folder)


def refresh_packets(machine: Machine) -> None:
    """Write the packet of each session that runs, and delete those of the others."""
    folder, known = machine.places.data_dir / "context", set[str]()
    if not folder.exists() or not PACKETS & {*machine.config.assist_moments}:
        return
    store, policy, end = machine.store, policy_of(machine.store, machine.config), time.monotonic() + INDEX_SECONDS
    bring_up_to_date(store, lambda: time.monotonic() > end)
    before, since = state_of_memory(store), machine.now() - RUNNING_MS
    for one in list_sessions(store, projects=None, since=since, before=None, limit=MAX_SESSIONS):
        is_name = re.fullmatch(SESSION_ID, one.session_id, re.ASCII) is not None
        if is_name and one.harness in PACKET_AGENTS and one.cwd is not None and not policy.is_private_folder(one.cwd):
            facts = packet_of(store, one.id, one.cwd)
            content = encode_facts(one.cwd, SO_FAR, facts, bytes(16), store_key(store))
            write_facts(machine, folder / f"{one.session_id}{PACKET}", content, before)
            known.add(f"{one.session_id}{PACKET}")
    for path in folder.glob(f"*{PACKET}"):
        if path.name not in known:
            delete_file(path)
