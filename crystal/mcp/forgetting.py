"""``crystal_forget``: what goes for good, in two steps."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from crystal.app.context import open_machine, open_reader
from crystal.app.forget import carry_out, plan_forget
from crystal.errors import UsageError
from crystal.forgetting.request import ForgetItem, ForgetPlan, ForgetRequest, Forgotten
from crystal.mcp.asker import ClientContext, refuse_folder
from crystal.mcp.hits import Make, hit_name
from crystal.mcp.page import AnswerItem, Json, ToolAnswer, answered, bounded, noted
from crystal.mcp.said import Attribution, excerpt, kind_of, label
from crystal.mcp.searching import moment
from crystal.timewords.parse import iso

SNIPPET = 200
PREVIEWED = 50
"""So many previews are remembered, by their token."""
NAMING = ("id", "query", "session", "project", "before", "key")
SHOWN_PLACES = 10


class Forgetting:
    """Forgetting in two steps: a preview gives a token, and the token carries out what was previewed."""

    def __init__(self) -> None:
        self._previewed: OrderedDict[str, ForgetPlan] = OrderedDict()

    def forget(self, asker: ClientContext, arguments: Mapping[str, Any]) -> ToolAnswer:
        """Show what would go; with the token of that, let it go."""
        token = arguments.get("confirm")
        refuse_folder(arguments.get("project"))
        with open_reader() as reader:  # there is a memory: it is not made by the way
            now = reader.now()
        if token is not None:
            return self._carry_out(asker, arguments, token, now)
        with open_machine() as machine:
            plan = plan_forget(machine, _wish(arguments, now))
        self._previewed[plan.token] = plan
        while len(self._previewed) > PREVIEWED:
            self._previewed.popitem(last=False)
        return _preview(plan, asker.room)

    def _carry_out(self, asker: ClientContext, arguments: Mapping[str, Any], token: str, now: int) -> ToolAnswer:
        given = None if all(arguments.get(name) is None for name in NAMING) else _wish(arguments, now)
        previewed = self._previewed.get(token)
        wish = given if previewed is None else previewed.wish
        if wish is None:
            hint = "preview it again, without confirm"
            raise UsageError(f"confirm is {token[:40]!r}, which is no preview's token", hint=hint)
        if given is not None and _named(given) != _named(wish):
            raise UsageError("confirm belongs to another preview than these arguments", hint="preview it again")
        with open_machine() as machine:
            plan = plan_forget(machine, wish)
            if plan.token != token and not _only_repeats(previewed, plan, asker.session):
                hint = "look at the new preview: call crystal_forget without confirm"
                raise UsageError("the list has changed since the preview; nothing was forgotten", hint=hint)
            done = carry_out(machine, plan)
        self._previewed.pop(token, None)
        return _done(done, plan, asker.room)


def _only_repeats(previewed: ForgetPlan | None, plan: ForgetPlan, session: str | None) -> bool:
    """Return whether everything new since the preview is the caller's own conversation, which repeats what is deleted.

    The prompt that asks for it and the call of the tool hold the words, and are captured meanwhile: they go with it.
    """
    if previewed is None or session is None:
        return False
    before, after = (
        {(item.kind, item.uuid): item for item in one.items} for one in (previewed, plan)
    )  # fmt: skip
    return before.keys() <= after.keys() and all(
        after[name].session_id == session for name in after.keys() - before.keys()
    )


def _named(wish: ForgetRequest) -> tuple[Any, ...]:
    """Return the parts of a request that identify it, without its time, which ``7d`` moves on."""
    return (wish.targets, wish.query, wish.session, wish.project, wish.before is None, wish.key)


def _wish(arguments: Mapping[str, Any], now: int) -> ForgetRequest:
    ident = arguments.get("id")
    targets = (ident,) if isinstance(ident, str) else tuple(ident or ())
    named: dict[str, Any] = {name: arguments.get(name) for name in ("query", "session", "project", "key")}
    return ForgetRequest(targets=targets, before=moment(arguments, "before", now), **named)


def _data(plan: ForgetPlan, notes: Sequence[str], done: Forgotten | None) -> Json:
    return {
        "is_done": done is not None and done.is_done,
        "token": None if plan.is_empty or done is not None else plan.token,
        "items_in_all": len(plan.items), "sessions": len(plan.sessions), "first_at": iso(plan.first_at),
        "last_at": iso(plan.last_at), "devices": [label(device) for device in plan.devices[:SHOWN_PLACES]],
        "notes": noted(notes), "tombstones": 0 if done is None else len(done.tombstones),
        "pending": [] if done is None else noted(done.pending),
        "machines": [] if done is None else [label(one) for one in done.machines[:SHOWN_PLACES]],
    }  # fmt: skip


def _preview(plan: ForgetPlan, room: int) -> ToolAnswer:
    notes = []
    if plan.still_held:
        notes.append(f"{len(plan.still_held)} files of other programs still have it; crystal does not change them")
    if plan.suggestions:
        names = ", ".join(hit_name(hit.id) for hit in plan.suggestions[:SHOWN_PLACES])
        notes.append(f"these hits are similar, and would stay: {names}")
    data = _data(plan, notes, None)

    def compose(items: Sequence[AnswerItem]) -> ToolAnswer:
        if plan.is_empty:
            return answered("nothing would be forgotten", items, "items", data, None)
        things = "1 thing" if len(plan.items) == 1 else f"{len(plan.items)} things"
        count = things + (f" of {len(plan.sessions)} sessions" if plan.sessions else "")
        head = f"{count} would be forgotten for good; nothing is changed yet"
        left = len(plan.items) - len(items)
        rest = f"{left} more things would be forgotten and are not shown here\n" if left else ""
        more = f"{rest}to carry it out: crystal_forget with confirm={plan.token}"
        return answered(head, items, "items", data, more)

    return bounded([_going(item) for item in plan.items], compose, room)


def _going(going: ForgetItem) -> Make:
    is_memory = going.kind == "memory"
    kind, by = ("memory", "memory") if is_memory else kind_of(going.role)
    origin = Attribution(kind, by, going.timestamp, going.project, going.device, going.session_id)

    place = origin.place("")

    def make(room: int) -> AnswerItem:
        text, _ = excerpt(" ".join(going.text.split()), min(room, SNIPPET))
        names = {"kind": going.kind, "id": going.uuid, "because": going.because}
        data = {**names, "text": text, "when": iso(going.timestamp)}
        return AnswerItem(f"{going.kind} {going.uuid} {by} {going.because}".replace("  ", " "), place, text, data)

    return make


def _done(done: Forgotten, plan: ForgetPlan, room: int) -> ToolAnswer:
    data = _data(plan, (), done)

    def compose(items: Sequence[AnswerItem]) -> ToolAnswer:
        lines = [f"forgotten: {done.lines} lines, {done.memories} memories, {done.notes} notes"]
        lines += [f"still to do: {why}" for why in data["pending"]]
        lines += [f"machines that forget it at their next sync: {', '.join(data['machines'])}"] if done.machines else []
        return answered("\n".join(lines), items, "items", data, None)

    return bounded((), compose, room)
