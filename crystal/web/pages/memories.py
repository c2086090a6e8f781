"""List memories; show and change one memory, with its origin and former versions."""

from __future__ import annotations

from crystal.app import memory_changes
from crystal.app.background import embed_soon
from crystal.app.context import Machine
from crystal.app.memories import remember
from crystal.app.memory_queries import history, list_memories, memory_of
from crystal.app.reflect import learned_facts, origin_of, state_of
from crystal.app.validity import memory_validity
from crystal.errors import UsageError
from crystal.memories.rules import CATEGORIES
from crystal.model.recall import Remembered
from crystal.web.responses import Page, Redirect, RequestValues

LIMIT = 200
EDITABLE = ("text", "category", "key", "project")
STATUSES = {"active": "active", "proposed": "proposed", "deprecated": "archived", "all": "all"}


def show(machine: Machine, params: RequestValues) -> Page:
    """List memories, the latest first."""
    status, limit = params.text("status") or "active", params.number("limit") or LIMIT
    project = params.text("project")
    found = list_memories(
        machine, category=params.text("category"), project=project,
        status=None if status == "all" else status, limit=limit + 1,
    )  # fmt: skip
    values = {
        "memories": found[:limit], "more": limit + LIMIT if len(found) > limit else None, "status": status,
        "states": {one.id: STATUSES[state_of(one)] for one in found},
        "statuses": STATUSES, "categories": CATEGORIES, "category": params.text("category"),
        "project": project, "projects": sorted({one.project for one in found if one.project} | {project or ""} - {""}),
    }  # fmt: skip
    return Page("memories.html", "Memories", values)


def show_one(machine: Machine, params: RequestValues) -> Page:
    """Show a memory, where it came from, and its former versions."""
    one = memory_of(machine, params.path["id"])
    values = {
        "memory": one, "history": history(machine, one.id), "categories": CATEGORIES,
        "learned": learned_facts(machine, one), "origin": origin_of(one), "state": STATUSES[state_of(one)],
        "validity": memory_validity(machine, one, None),
    }  # fmt: skip
    return Page("memory.html", one.text[:60], values)


def add(machine: Machine, params: RequestValues) -> Redirect:
    """Remember something; words that are known are the same memory."""
    text = params.values.get("text", "").replace("\r\n", "\n").strip()
    category, project = params.text("category"), params.text("project")
    one = remember(machine, text, category=category, project=project, key=params.text("key"))
    embed_soon(machine)
    return Redirect(f"/memory/{one.id}")


def edit(machine: Machine, params: RequestValues) -> Redirect:
    """Change a memory; its former version is kept."""
    one = memory_of(machine, params.path["id"])
    given = {name: value.replace("\r\n", "\n").strip() for name, value in params.values.items() if name in EDITABLE}
    changed = {name: value for name, value in given.items() if value != (getattr(one, name) or "")}
    if changed:
        check_shown(one, params)
        memory_changes.edit(machine, one.id, **changed)
        embed_soon(machine)
    return Redirect(f"/memory/{one.id}")


def check_shown(one: Remembered, params: RequestValues) -> None:
    """Raise UsageError if a memory changed since the page showed it."""
    if params.values.get("seen") != str(one.updated_at):
        hint = f"go back to copy what you wrote, then open /memory/{one.id}"
        raise UsageError(f"{one.id} changed meanwhile, so nothing was saved", hint=hint)


def deprecate(machine: Machine, params: RequestValues) -> Redirect:
    """Archive a memory: it is kept, but neither listed nor found."""
    return Redirect(f"/memory/{memory_changes.deprecate(machine, params.path['id']).id}")


def restore(machine: Machine, params: RequestValues) -> Redirect:
    """Bring an archived memory back."""
    one = memory_changes.revive(machine, params.path["id"])
    embed_soon(machine)
    return Redirect(f"/memory/{one.id}")
