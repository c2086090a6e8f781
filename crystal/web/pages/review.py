"""Review what was learned: keep it, change it, call it wrong, or never learn it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

from crystal.app.background import embed_soon
from crystal.app.context import Machine
from crystal.app.memory_queries import memory_of
from crystal.app.reflect import call_wrong, keep_learned, never_learn, unreviewed
from crystal.errors import NotFoundError, UsageError
from crystal.web.pages.memories import check_shown
from crystal.web.responses import Page, Redirect, RequestValues

VERDICTS: Mapping[str, Callable[..., object]] = {"wrong": call_wrong, "never": never_learn}
SHOWN = 50


def show(machine: Machine, params: RequestValues) -> Page:
    """Show what was learned since the last review, surest first, and the memory that was judged last."""
    found, ident, judged = unreviewed(machine), params.text("judged"), None
    with suppress(NotFoundError):
        judged = memory_of(machine, ident) if ident else None
    values = {"learned": found[:SHOWN], "total": len(found), "mode": machine.config.reflect_mode, "judged": judged}
    return Page("review.html", "Review", values)


def judge(machine: Machine, params: RequestValues) -> Redirect:
    """Keep a memory, with another text if the form has one, or hide it.

    Raises:
        NotFoundError: There is no such memory.
        UsageError: It changed since the page showed it, or the verdict is unknown.
    """
    one, verdict = memory_of(machine, params.path["id"]), params.values.get("verdict", "")
    check_shown(one, params)
    if verdict == "keep":
        words = params.values.get("text", "").replace("\r\n", "\n").strip()
        keep_learned(machine, one.id, None if words == one.text else words, seen=one.updated_at)
        embed_soon(machine)
    elif verdict in VERDICTS:
        VERDICTS[verdict](machine, one.id, seen=one.updated_at)
    else:
        raise UsageError(f"the verdict is {verdict!r}", hint="use keep, wrong or never")
    return Redirect(f"/review?judged={one.id}")
