"""Forgetting on this machine: its files, its outbox, the copy of home's memory, and the machines that are to hear."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from crystal.app.capture import LOCK_SECONDS, run_capture
from crystal.app.context import Machine
from crystal.app.session_context import refresh
from crystal.capture.lock import CAPTURE_LOCK

if TYPE_CHECKING:
    from crystal.forgetting import ForgetPlan, Forgotten, Grounds, Wish
    from crystal.forgetting.match.needles import Needles
    from crystal.forgetting.prove.prove import ForgetProof
    from crystal.forgetting.request import Progress
    from crystal.model.recall import Hit
    from crystal.store import Store

SUGGESTIONS = 5


def grounds_of(machine: Machine, progress: Progress = lambda *_: None) -> Grounds:
    """What forgetting works on, on this machine; ``progress`` is told how far it is."""
    from crystal.app.sync.forget import machines_to_tell, outbox_of, tell_home
    from crystal.forgetting import Grounds

    places = machine.places
    return Grounds(
        store=machine.store,
        ldm_home=places.ldm_home,
        data_dir=places.data_dir,
        agent_folder=places.agent_folder,
        device=machine.config.device,
        roots=places.transcript_roots,
        open_mirror=lambda: _mirror(machine),
        capture_lock=lambda: _captured(machine),
        outbox=outbox_of(machine),
        on_tombstones=tell_home(machine),
        suggest=lambda query: _suggestions(machine, query),
        machines=machines_to_tell,
        progress=progress,
    )


def plan_forget(machine: Machine, wish: Wish) -> ForgetPlan:
    """List what a wish comes to; captures first what was said until now. See ``crystal.forgetting.plan``.

    Raises:
        UsageProblem: A target is unknown, or the wish is empty.
    """
    from crystal.forgetting import plan

    run_capture(machine, lambda capture: capture.sweep())
    return plan(grounds_of(machine), wish)


def carry_out(machine: Machine, plan: ForgetPlan, progress: Progress = lambda *_: None) -> Forgotten:
    """Forget what a plan lists, on this machine now and on the others when they hear of it."""
    from crystal.forgetting import carry_out as forget

    done = forget(grounds_of(machine, progress), plan, machine.now())
    refresh(machine)
    return done


def carry_out_and_prove(
    machine: Machine, plan: ForgetPlan, progress: Progress = lambda *_: None
) -> tuple[Forgotten, ForgetProof]:
    """Forget what a plan lists, then look at every byte of crystal's for what is left of it."""
    from crystal.forgetting import complete
    from crystal.forgetting.match.plan_needles import needles_for

    grounds = grounds_of(machine, progress)
    plan = complete(grounds, plan)
    needles = needles_for(grounds, plan, for_proof=True)
    done = carry_out(machine, plan, progress)
    return done, prove_forgotten(machine, needles, progress)


def finish_forgetting(machine: Machine) -> int:
    """Do what is left to do of forgetting; gives how many tombstones are still open. Cheap when there are none."""
    from crystal.store.forget.forgetting import NAMES_FILE, is_work_left, names_agree

    if not is_work_left(machine.store) and names_agree(machine.store, machine.places.ldm_home / NAMES_FILE):
        return 0
    from crystal.forgetting import finish

    left = finish(grounds_of(machine), machine.now())
    refresh(machine)
    return left


def prove_forgotten(machine: Machine, needles: Needles, progress: Progress = lambda *_: None) -> ForgetProof:
    """Look for what was forgotten in every file of crystal's on this machine."""
    from crystal.forgetting.prove.prove import prove

    return prove(grounds_of(machine, progress), needles)


@contextlib.contextmanager
def _mirror(machine: Machine) -> Iterator[Store | None]:
    """The copy of home's memory, open for writing; None where there is none."""
    from crystal.app.sync.device import device_mirror
    from crystal.store.sync.mirror_apply import open_mirror

    path = machine.places.data_dir / "mirror.db"
    device_mirror(machine).stop_building()
    if not path.exists():
        yield None
        return
    with open_mirror(path) as store:
        yield store


@contextlib.contextmanager
def _captured(machine: Machine) -> Iterator[None]:
    """Hold the lock of capture, with every waiting note acted on: the hook keeps transcripts beside its notes."""
    from crystal.capture.drain import drain
    from crystal.capture.lock import try_lock, wait_lock
    from crystal.capture.spool import read_notes

    lock, spool = machine.places.data_dir / CAPTURE_LOCK, machine.places.spool
    with wait_lock(lock, seconds=LOCK_SECONDS):
        drain(machine.capture(), spool, flush_ms=0)
        failed = len(read_notes(spool))
        yield
    while len(read_notes(spool)) > failed:  # of hooks that found the lock taken
        with try_lock(lock) as held:
            if not held:
                break
            drain(machine.capture(), spool, flush_ms=1000 * machine.config.hook_flush_seconds)
            failed = len(read_notes(spool))


def _suggestions(machine: Machine, query: str) -> Sequence[Hit]:
    """The best hits of a search."""
    from crystal.app.mirror import open_mirror
    from crystal.app.search import asking
    from crystal.model.recall import Filters
    from crystal.search.engine import search

    with open_mirror(machine.places, machine.config.role) as mirrored:
        asked = asking(machine, mirrored, Filters())
        return search(machine.store, query=query, limit=SUGGESTIONS, **asked).hits
