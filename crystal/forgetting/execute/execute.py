"""Carry out a plan, and finish interrupted work.

The tombstones are written first: from then on they block what they name, and the next process knows what to do. Each
later step can be killed anywhere and is repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

from crystal.errors import CrystalError
from crystal.forgetting.execute.files import Finisher
from crystal.forgetting.execute.rows import ARCHIVE, delete_here
from crystal.forgetting.plan.plan import complete
from crystal.forgetting.request import ForgetContext, ForgetPlan, Forgotten
from crystal.forgetting.tombstone_file import reconcile_tombstones
from crystal.store.forget import forgotten_work
from crystal.store.forget.forgetting import Tombstone, add_tombstones, is_work_left, make_tombstone, open_tombstones


def tombstones_of(plan: ForgetPlan, device: str, now: int) -> list[Tombstone]:
    """Return the tombstones of a plan at a given time. The same input gives the same tombstones."""
    made = []
    for kind, value, until in plan.kinds:
        if kind in ("session", "project", "before"):
            until = now if until is None else min(until, now)  # noqa: PLW2901 - the moment is now
        made.append(make_tombstone(kind, value, until, now, device, until, now))
    return made


def carry_out(context: ForgetContext, plan: ForgetPlan, now: int) -> Forgotten:
    """Forget what a plan lists: block it first, then delete it. ``finish`` does what cannot be done now.

    Raises:
        StoreBusyError, StoreFullError, Unavailable: Raised before the tombstones are written; nothing has changed.
    """
    plan = complete(context, plan)
    tombstones = tombstones_of(plan, context.device, now)
    with context.capture_lock():
        with context.store.transaction():
            add_tombstones(context.store, tombstones, now)
            for place in plan.places:
                forgotten_work.add_work(context.store, ARCHIVE, str(place.row), list(place.lines), now)
            context.on_tombstones(context.store, tombstones)
        pending = _finish(context, now)
    counts = {kind: sum(item.kind == kind for item in plan.items) for kind in ("line", "memory", "note")}
    return Forgotten(
        counts["line"],
        counts["memory"],
        counts["note"],
        tuple(tombstone.uid for tombstone in tombstones),
        not is_work_left(context.store),
        tuple(pending),
        tuple(context.machines(context.store)),
    )


def finish(context: ForgetContext, now: int) -> int:
    """Execute open tombstones. Return how many are still open. Idempotent, cheap if there are none.

    Raises:
        StoreBusyError, StoreFullError, Unavailable: The rest is done by the next run.
    """
    reconcile_tombstones(context.store, context.ldm_home, now)
    if not is_work_left(context.store):
        return 0
    with context.capture_lock():
        _finish(context, now)
    return len(open_tombstones(context.store))


def _finish(context: ForgetContext, now: int) -> Sequence[str]:
    """Delete rows, then do the resulting work on files. Return why something is left, in words."""
    try:
        reconcile_tombstones(context.store, context.ldm_home, now)
        with context.mirror() as (mirror, problem):
            delete_here(context, mirror, now)
            return Finisher(context, mirror, now).run(problem)
    except CrystalError as error:
        return [error.message]
