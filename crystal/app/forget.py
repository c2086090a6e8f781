"""Forget on this machine: in the store, the files, the outbox and the mirror; and tell other machines."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from crystal.app.capture import LOCK_SECONDS, drain_late, run_capture
from crystal.app.capture_engine import make_capture
from crystal.app.context import Machine, now_ms
from crystal.app.mirror import mirror_to_change, open_mirror
from crystal.app.relay_links import device_link, relay_keys
from crystal.app.search import prepare_search
from crystal.app.session_context import refresh
from crystal.app.vault_files import write_after_forgetting
from crystal.capture.drain import drain
from crystal.capture.lock import CAPTURE_LOCK, wait_lock
from crystal.capture.spool import read_notes
from crystal.errors import NotConfiguredError, UsageError
from crystal.forgetting.execute.execute import carry_out as forget
from crystal.forgetting.execute.execute import finish
from crystal.forgetting.match.forgotten_text import forgotten_text
from crystal.forgetting.plan.planner import complete, plan
from crystal.forgetting.prove.prove import ForgetProof, prove
from crystal.forgetting.request import ForgetContext, ForgetPlan, ForgetRequest, Forgotten, Progress
from crystal.model.recall import Filters, Hit
from crystal.search.engine import search
from crystal.store import Store
from crystal.store.forget.forgetting import Tombstone
from crystal.store.sync.relay_peers import all_peers, devices_in_use, home_peer
from crystal.sync.cleaning import SealedOutbox
from crystal.sync.forgotten import put_forgotten
from crystal.sync.sending import Link
from crystal.vault.folder import read_kept
from crystal.vault.listed_files import files_with, read_files

SUGGESTIONS = 5


def forget_context(machine: Machine, progress: Progress = lambda *_: None) -> ForgetContext:
    """Return the files, folders and functions that forgetting uses on this machine."""
    places = machine.places
    vault, _ = read_kept(places.ldm_home)
    return ForgetContext(
        store=machine.store,
        ldm_home=places.ldm_home,
        data_dir=places.data_dir,
        agent_folder=places.agent_folder,
        device=machine.config.device,
        roots=places.transcript_roots,
        open_mirror=lambda: _mirror(machine),
        capture_lock=lambda: _captured(machine),
        outbox=SealedOutbox(machine.store, lambda: _links(machine), now_ms, machine.config.device),
        on_tombstones=_tell_home(machine),
        suggest=lambda query: _suggestions(machine, query),
        machines=_machines_to_tell,
        vault=None if vault is None else Path(vault),
        files=tuple(read_files(places.ldm_home)),
        progress=progress,
    )


def plan_forget(machine: Machine, request: ForgetRequest, progress: Progress = lambda *_: None) -> ForgetPlan:
    """List what a request would delete; first captures what was said until now. See ``crystal.forgetting.plan``.

    Raises:
        UsageError: A target is unknown, or the request is empty.
    """
    run_capture(machine, lambda capture: capture.sweep())
    found = plan(forget_context(machine, progress), request)
    files = files_with(machine.places.ldm_home, [one.uuid for one in found.items if one.kind == "memory"])
    return replace(found, still_held=(*found.still_held, *files))


def complete_plan(machine: Machine, plan: ForgetPlan, progress: Progress = lambda *_: None) -> ForgetPlan:
    """Read what a preview of a large memory left out: other texts, repetitions, archives."""
    return complete(forget_context(machine, progress), plan)


def plan_forget_for(machine: Machine, seen: Machine, request: ForgetRequest) -> ForgetPlan:
    """List what an agent would delete; what is isolated from it stays.

    Args:
        machine: The memory, open for writing.
        seen: The memory as the agent sees it, see ``open_reader_for``.
        request: What is to be forgotten.

    Raises:
        UsageError: As for ``plan_forget``; or a scope is asked for, which would cover what the agent does not see.
    """
    if not seen.store.hidden:
        return plan_forget(machine, request)
    if request.project is not None or request.before is not None:
        raise UsageError(
            "an agent may not forget a whole project or time while something is isolated from it",
            hint="name hits, memories, a session or words; the user can run: crystal forget",
        )
    run_capture(machine, lambda capture: capture.sweep())
    return complete_plan(seen, plan(forget_context(seen), request))


def execute_plan(machine: Machine, plan: ForgetPlan, progress: Progress = lambda *_: None) -> Forgotten:
    """Forget what a plan lists, on this machine now, in its vault too, and on the others when they hear of it."""
    done = execute_without_vault(machine, plan, progress)
    problem = write_after_forgetting(machine)
    return done if problem is None else replace(done, is_done=False, pending=(*done.pending, problem))


def execute_without_vault(machine: Machine, plan: ForgetPlan, progress: Progress = lambda *_: None) -> Forgotten:
    """Forget what a plan lists everywhere but in the files of the vault."""
    done = forget(forget_context(machine, progress), plan, machine.now())
    refresh(machine)
    return done


def execute_and_prove(
    machine: Machine, plan: ForgetPlan, progress: Progress = lambda *_: None
) -> tuple[Forgotten, ForgetProof]:
    """Forget what a plan lists, then search every file of crystal for remains."""
    context = forget_context(machine, progress)
    plan = complete(context, plan)
    forgotten = forgotten_text(context, plan)
    done = execute_plan(machine, plan, progress)
    elsewhere = (path for path in plan.still_held if path.suffix == ".zst")
    return done, prove(replace(context, files=(*context.files, *elsewhere)), forgotten)


def finish_left(machine: Machine) -> int:
    """Finish pending deletions; return the number of tombstones still open. See ``finish_forgetting``."""
    left = finish(forget_context(machine), machine.now())
    refresh(machine)
    write_after_forgetting(machine)
    return left


def _mirror(machine: Machine) -> contextlib.AbstractContextManager[Store | None]:
    """Return the copy of home's memory, open for writing, or None; as an agent sees it where something is hidden."""
    return contextlib.nullcontext(machine.mirror_store) if machine.store.hidden else mirror_to_change(machine.places)


@contextlib.contextmanager
def _captured(machine: Machine) -> Iterator[None]:
    """Hold the capture lock with every waiting note processed: the hook stores transcript copies beside its notes."""
    spool = machine.places.spool
    with wait_lock(machine.places.data_dir / CAPTURE_LOCK, seconds=LOCK_SECONDS):
        drain(make_capture(machine), spool, flush_ms=0)
        failed = len(read_notes(spool))
        yield
    drain_late(machine, make_capture(machine), failed)


def _suggestions(machine: Machine, query: str) -> Sequence[Hit]:
    """Return the best hits of a search."""
    if machine.store.hidden:
        return search(*prepare_search(machine, query, SUGGESTIONS, Filters())).hits
    with open_mirror(machine.places, machine.config.role) as mirrored:
        return search(*prepare_search(machine.with_mirror(mirrored), query, SUGGESTIONS, Filters())).hits


def _tell_home(machine: Machine) -> Callable[[Store, Sequence[Tombstone]], None]:
    """Return a function that seals new tombstones for home, in the transaction that adds them.

    They wait where there is no home, or its key cannot be read.
    """

    def tell(store: Store, _tombstones: Sequence[Tombstone]) -> None:
        with contextlib.suppress(NotConfiguredError):  # no key just now: the next delivery seals them
            link = device_link(machine) if machine.config.role == "device" else None
            if link is not None and link.keys_of(link.peer.generation) is not None:
                put_forgotten(store, link, now_ms())

    return tell


def _links(machine: Machine) -> dict[int, Link]:
    """Return the links that blobs of the outbox were sealed over, by the peer's row.

    Those to former homes are among them where their keys are still here.
    """
    keys, home = relay_keys(machine), home_peer(machine.store)
    links = {peer.id: keys.link_to_home(peer) for peer in all_peers(machine.store, "home")}
    return {
        ident: link
        for ident, link in links.items()
        if (home is not None and ident == home.id) or link.keys_of(link.peer.generation) is not None
    }


def _machines_to_tell(store: Store) -> list[str]:
    """Return the other machines that are to forget what is forgotten here: home, or home's devices."""
    home = home_peer(store)
    if home is not None:
        return [home.own_name]
    return [peer.name for peer in devices_in_use(store)]
