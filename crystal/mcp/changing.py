"""Implement ``crystal_remember``, and ``crystal_forget`` in two steps: preview and confirmation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from crystal.app.background import embed_soon
from crystal.app.context import Machine, open_machine
from crystal.app.forget import complete_plan, execute_plan, plan_forget_for
from crystal.app.memories import remember as remember_text
from crystal.errors import UsageError
from crystal.forgetting.request import ForgetItem, ForgetPlan, ForgetRequest, Forgotten
from crystal.mcp.handlers import ClientContext
from crystal.mcp.items import ShortIds, excerpt, hit_name, kind_of, label, memory_data, place_of
from crystal.mcp.page import NONCE, AnswerItem, Json, ToolAnswer, answered, bounded, noted
from crystal.mcp.searching import moment
from crystal.memories.rules import is_as_given
from crystal.store.capture.projects import known_projects
from crystal.store.isolation import source_via
from crystal.store.sessions.conversations import chunk_of_uuid
from crystal.text.fence import fenced
from crystal.timewords.parse import iso

SNIPPET = 200
MAX_PREVIEWS = 50
"""Maximum number of previews that are kept, by their token."""
NAMING = ("id", "query", "session", "project", "before", "key")
SHOWN_PLACES = 10


def remember(client: ClientContext, arguments: Mapping[str, Any]) -> ToolAnswer:
    """Store a memory."""
    text, project = arguments["text"], arguments.get("project")
    if arguments.get("this_project"):
        hint = "name the project, or leave both out"
        if project is not None:
            raise UsageError("project and this_project do not go together", hint=hint)
        if client.folder is None:
            raise UsageError("the folder of this project is not known", hint=hint)
        project = "."
    source = source_via(arguments.get("source") or "mcp", client.agent)
    with client.reader() as seen, open_machine() as machine:  # the reader first: it creates no database
        if client.projects:
            project = _allowed(client, seen, project)
        kept = remember_text(
            machine, text, category=arguments.get("category"), project=project, cwd=client.folder,
            key=arguments.get("key"), source=source, session=client.session,
            seen=seen if seen.store.hidden else None,
        )  # fmt: skip
        embed_soon(machine)
    is_whole = is_as_given(kept.text, text)
    where = "everywhere" if kept.project is None else f"project {label(kept.project)}"
    named = f", under the key {label(kept.key)}" if kept.key else ""
    note = "" if is_whole else "\nnote: secrets and private parts were removed from the text"
    words = f"remembered as {kept.id}: a {kept.category} for {where}{named}{note}"
    return ToolAnswer(fenced(words, NONCE), {**memory_data(kept), "is_as_given": is_whole})


def _allowed(client: ClientContext, seen: Machine, project: str | None) -> str:
    """Return the project of a memory for a client that may see some projects only: the project's present name.

    For a project of which nothing is stored yet, return its folder.
    """
    known = [one for store in seen.stores for one in known_projects(store)]
    there = [next((at for at in known if one.is_of(at.folders[0], at.identity)), None) for one in client.projects]
    names = [(at or one).name for at, one in zip(there, client.projects, strict=True)]
    found = _with_name(project, names) or _with_name(project, [one.name for one in client.projects])
    if not found:
        raise UsageError("name one of your projects", hint=f"project is {' or '.join(names)}")
    if len(found) > 1:
        hint = "the user gives one another name: crystal projects rename FOLDER NAME"
        raise UsageError(f"{len(found)} of your projects are called {project!r}", hint=hint)
    return client.projects[found[0]].folders[0] if there[found[0]] is None else names[found[0]]


def _with_name(project: str | None, names: Sequence[str]) -> list[int]:
    """Return the indexes of the names equal to ``project``; without a project, of the only name."""
    if project is None:
        return [0] if len(names) == 1 else []
    return [at for at, name in enumerate(names) if name.casefold() == project.strip().casefold()]


def forget(client: ClientContext, arguments: Mapping[str, Any]) -> ToolAnswer:
    """Show what would be forgotten; with the token of that preview, forget it."""
    token = arguments.get("confirm")
    with client.reader() as seen:  # raises if there is no database, instead of creating one
        now = seen.now()
    request = _request(arguments, now) if token is None or any(name in arguments for name in NAMING) else None
    if token is not None:
        return _execute(client, request, token)
    assert request is not None
    with open_machine() as machine:
        return _preview(client, machine, _planned(client, machine, request))


def _execute(client: ClientContext, given: ForgetRequest | None, token: str) -> ToolAnswer:
    previewed: ForgetPlan | None = client.previews.get(token)
    request = given if previewed is None else previewed.request
    if request is None:
        hint = "preview it again, without confirm"
        raise UsageError(f"confirm is {token[:40]!r}, which is not the token of a preview", hint=hint)
    if given is not None and _named(given) != _named(request):
        raise UsageError("confirm belongs to another preview than these arguments", hint="preview it again")
    with open_machine() as machine:
        plan = _planned(client, machine, request)
        if previewed is not None and not previewed.is_brief:
            plan = complete_plan(machine, plan)  # as it was shown
        if plan.token != token and not _only_repeats(previewed, plan, client.session):
            hint = "look at the new preview: call crystal_forget without confirm"
            raise UsageError("the list has changed since the preview; nothing was forgotten", hint=hint)
        whole = complete_plan(machine, plan)
        if more := whole.lines_beyond(plan):
            note = f"{len(more)} more lines have the words; show the user, and confirm again"
            return _preview(client, machine, whole, note)
        done = execute_plan(machine, whole)
    client.previews.pop(token, None)
    data = _data(whole, (), done)
    lines = [f"forgotten: {done.lines} lines, {done.memories} memories, {done.notes} notes"]
    lines += [f"still to do: {why}" for why in data["pending"]]
    lines += [f"machines that forget it at their next sync: {', '.join(data['machines'])}"] if done.machines else []
    return answered("\n".join(lines), (), "items", data, None)


def _planned(client: ClientContext, machine: Machine, request: ForgetRequest) -> ForgetPlan:
    with client.reader() as seen:
        return plan_forget_for(machine, seen, request)


def _only_repeats(previewed: ForgetPlan | None, plan: ForgetPlan, session: str | None) -> bool:
    """Return True if everything new since the preview is from the caller's own conversation.

    The prompt that asks to forget and the call of the tool contain the words, and are captured meanwhile.
    """
    if previewed is None or session is None:
        return False
    before, after = ({(item.kind, item.uuid): item for item in one.items} for one in (previewed, plan))
    new = [after[name] for name in after.keys() - before.keys()]
    return before.keys() <= after.keys() and all(item.session_id == session for item in new)


def _named(request: ForgetRequest) -> tuple[Any, ...]:
    """Return the parts of a request that identify it; not its time, because ``7d`` means another time at each call."""
    return request.targets, request.query, request.session, request.project, request.before is None, request.key


def _request(arguments: Mapping[str, Any], now: int) -> ForgetRequest:
    ident = arguments.get("id")
    targets = (ident,) if isinstance(ident, str) else tuple(ident or ())
    named: dict[str, Any] = {name: arguments.get(name) for name in ("query", "session", "project", "key")}
    return ForgetRequest(targets=targets, before=moment(arguments, "before", now), **named)


def _data(plan: ForgetPlan, notes: Sequence[str], done: Forgotten | None) -> Json:
    return {
        "is_done": done is not None and done.is_done,
        "token": None if plan.is_empty or done is not None else plan.token,
        "items_in_all": len(plan.items), "unread": plan.unread,
        "sessions": len(plan.sessions), "first_at": iso(plan.first_at), "last_at": iso(plan.last_at),
        "devices": [label(device) for device in plan.devices[:SHOWN_PLACES]],
        "notes": noted(notes), "tombstones": 0 if done is None else len(done.tombstones),
        "pending": [] if done is None else noted(done.pending),
        "machines": [] if done is None else [label(one) for one in done.machines[:SHOWN_PLACES]],
    }  # fmt: skip


def _preview(client: ClientContext, machine: Machine, plan: ForgetPlan, *notes: str) -> ToolAnswer:
    """Store a plan until it is confirmed, and return it as an answer."""
    client.previews[plan.token] = plan
    while len(client.previews) > MAX_PREVIEWS:
        del client.previews[next(iter(client.previews))]
    unread = () if client.is_reader else ("what would be forgotten is not shown: this token does not allow to read",)
    data = _data(plan, [*notes, *unread, *_what_stays(plan)], None)

    def compose(items: Sequence[AnswerItem]) -> ToolAnswer:
        if plan.is_empty:
            return answered("nothing would be forgotten", items, "items", data, None)
        left = len(plan.items) - sum(item.data["copies"] for item in items)
        rest = f"{_things(left, 'more ')} would be forgotten, not shown here\n" if left else ""
        more = f"{rest}to carry it out: crystal_forget with confirm={plan.token}"
        return answered(_count_of(plan), items, "items", data, more)

    shown = _alike(plan.items if client.is_reader else ())
    return bounded([partial(_doomed_item, same[0], len(same), machine) for same in shown], compose, client.max_chars)


def _what_stays(plan: ForgetPlan) -> Iterator[str]:
    """Yield warnings about what has the words too, and would stay."""
    if plan.still_held:
        yield f"{len(plan.still_held)} files of other programs still have it; crystal does not change them"
    if plan.source_files:
        yield f"{len(plan.source_files)} files of the user's sources also have these words, and keep them"
    if plan.suggestions:
        names = ", ".join(hit_name(hit.id) for hit in plan.suggestions[:SHOWN_PLACES])
        yield f"these hits are similar, and would stay: {names}"


def _count_of(plan: ForgetPlan) -> str:
    """Return a sentence with how much would be forgotten."""
    things = _things(len(plan.items))
    if plan.unread:
        things = f"at least {things} and at most {len(plan.items) + plan.unread}"
    sessions = f" of {len(plan.sessions)} sessions" if plan.sessions else ""
    return f"{things}{sessions} would be forgotten for good; nothing is changed yet"


def _things(number: int, more: str = "") -> str:
    return f"{number} {more}thing" + ("" if number == 1 else "s")


def _alike(items: Iterable[ForgetItem]) -> Iterable[list[ForgetItem]]:
    """Group the items that are shown alike; each memory is a group of its own."""
    groups: dict[tuple[str, ...], list[ForgetItem]] = {}
    for item in items:
        words = item.uuid if item.kind == "memory" else item.text
        groups.setdefault((item.kind, item.because, item.role, words), []).append(item)
    return groups.values()


def _doomed_item(item: ForgetItem, copies: int, machine: Machine, max_chars: int) -> AnswerItem:
    """Return an item with its short id, the number of equal ones, and the reason if it was not named."""
    chunk = chunk_of_uuid(machine.store, item.uuid) if (item.kind, item.memory) == ("line", "local") else None
    by, times = "memory" if item.kind == "memory" else kind_of(item.role)[1], f"x{copies}" if copies > 1 else ""
    because = "" if item.because in ("asked", by) else item.because
    place = place_of(item.timestamp, item.project, item.device, machine.config.device)
    ident = ShortIds(machine).memory(item.uuid) if by == "memory" else hit_name(chunk) if chunk else item.uuid
    if item.kind == "note":  # it has neither text nor day
        ident, place = "", ("",)
    head = " ".join(filter(None, (ident, by, times, because)))
    text, _ = excerpt(" ".join(item.text.split()), min(max_chars, SNIPPET))
    names = {"kind": item.kind, "id": item.uuid, "because": item.because, "copies": copies}
    return AnswerItem(head, place, text, {**names, "text": text, "when": iso(item.timestamp)})
