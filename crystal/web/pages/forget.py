"""Forget in three steps: select, preview, confirm; then search every file for leftovers."""

from __future__ import annotations

from collections import Counter

from crystal.app.context import Machine
from crystal.app.forget import complete_plan, execute_and_prove, plan_forget
from crystal.errors import UsageError
from crystal.forgetting.request import ForgetPlan, ForgetRequest
from crystal.timewords.parse import parse_when
from crystal.web.responses import Answer, Page, RequestValues

SHOWN = 200
FIELDS = ("query", "target", "session", "project", "before")


def show(machine: Machine, asked: RequestValues) -> Page:  # noqa: ARG001 - the interface's
    """Ask what to forget."""
    return Page("forget.html", "Forget", _form(asked))


def preview(machine: Machine, asked: RequestValues) -> Page:
    """Show what would be forgotten. Changes nothing."""
    return _previewed(plan_forget(machine, _request(machine, asked)), asked)


def confirm(machine: Machine, asked: RequestValues) -> Answer:
    """Forget what was shown, and prove it; if something else would go by now, show that first."""
    plan = plan_forget(machine, _request(machine, asked))
    whole, token = complete_plan(machine, plan), asked.values.get("token")
    is_seen = token == whole.token or (token == plan.token and not whole.lines_beyond(plan))
    if whole.is_empty or not is_seen:
        return _previewed(whole, asked, has_changed=True)
    done, proof = execute_and_prove(machine, whole)
    return Page("forgotten.html", "Forgotten", {"done": done, "proof": proof})


def _request(machine: Machine, asked: RequestValues) -> ForgetRequest:
    target, before = asked.text("target"), asked.text("before")
    request = ForgetRequest(
        tuple(target.split()) if target else (), asked.text("query"), asked.text("session"), asked.text("project"),
        None if before is None else parse_when(before, now=machine.now(), name="before"),
        keep_memories="keep_memories" in asked.values,
    )  # fmt: skip
    if request.is_empty:
        raise UsageError("nothing is named to forget", hint="go back, and fill in at least one field")
    return request


def _previewed(plan: ForgetPlan, asked: RequestValues, *, has_changed: bool = False) -> Page:
    counts = Counter("message" if item.kind == "line" else item.kind for item in plan.items)
    values = _form(asked) | {
        "plan": plan, "items": plan.items[:SHOWN], "counts": counts, "has_changed": has_changed,
    }  # fmt: skip
    return Page("forget_preview.html", "Forget: preview", values)


def _form(asked: RequestValues) -> dict[str, object]:
    fields = {name: asked.text(name) or "" for name in FIELDS}
    return {"fields": fields, "keeps_memories": "keep_memories" in asked.values}
