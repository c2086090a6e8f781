"""Forget in three steps: select, preview, confirm; then search every file for leftovers."""

from __future__ import annotations

from collections import Counter

from crystal.app.context import Machine
from crystal.app.forget import complete_plan, execute_and_prove, plan_forget
from crystal.errors import UsageError
from crystal.forgetting.match.query_terms import Terms, folded
from crystal.forgetting.request import ForgetPlan, ForgetRequest
from crystal.timewords.parse import parse_when
from crystal.web.responses import Answer, Page, RequestValues

SHOWN, CHARACTERS = 200, 240
"""Limits: things of a preview that are shown, and characters of each."""
FIELDS = ("query", "target", "session", "project", "before")


def show(machine: Machine, params: RequestValues) -> Page:  # noqa: ARG001 - the interface's
    """Show the form that asks what to forget."""
    return Page("forget.html", "Forget", _form(params))


def preview(machine: Machine, params: RequestValues) -> Page:
    """Show what would be forgotten. Changes nothing."""
    return _previewed(plan_forget(machine, _request(machine, params)), params)


def confirm(machine: Machine, params: RequestValues) -> Answer:
    """Forget what the preview showed, and prove it; if the plan has changed, show it again instead."""
    plan = plan_forget(machine, _request(machine, params))
    whole, token = complete_plan(machine, plan), params.values.get("token")
    is_seen = token == whole.token or (token == plan.token and not whole.lines_beyond(plan))
    if whole.is_empty or not is_seen:
        return _previewed(whole, params, has_changed=True)
    done, proof = execute_and_prove(machine, whole)
    return Page("forgotten.html", "Forgotten", {"done": done, "proof": proof, "plan": whole})


def _request(machine: Machine, params: RequestValues) -> ForgetRequest:
    target, before = params.text("target"), params.text("before")
    request = ForgetRequest(
        tuple(target.split()) if target else (), params.text("query"), params.text("session"), params.text("project"),
        None if before is None else parse_when(before, now=machine.now(), name="before"),
        keep_memories="keep_memories" in params.values,
    )  # fmt: skip
    if request.is_empty:
        raise UsageError("nothing is named to forget", hint="go back, and fill in at least one field")
    return request


def _previewed(plan: ForgetPlan, params: RequestValues, *, has_changed: bool = False) -> Page:
    counts = Counter("message" if item.kind == "line" else item.kind for item in plan.items)
    sought = Terms.of(params.text("query") or "")
    shown = [(one, one.text[:CHARACTERS]) for one in plan.items[:SHOWN]]
    items = [(one, text, one.because == "asked" and not sought.are_in(folded(text))) for one, text in shown]
    values = _form(params) | {"plan": plan, "items": items, "counts": counts, "has_changed": has_changed}
    return Page("forget_preview.html", "Forget: preview", values)


def _form(params: RequestValues) -> dict[str, object]:
    fields = {name: params.text(name) or "" for name in FIELDS}
    return {"fields": fields, "keeps_memories": "keep_memories" in params.values}
