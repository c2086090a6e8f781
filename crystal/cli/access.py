"""Implement ``crystal access``: manage who may query this memory over HTTP."""

from __future__ import annotations

import re
import sys
from typing import Annotated, Any

import msgspec
import typer

from crystal.app.context import Machine, default_paths, now_ms, open_reader
from crystal.app.projects import granted_project
from crystal.cli.json_output import answer, print_json
from crystal.cli.options import AsJson, Limit, argument, option
from crystal.cli.render import one_line, say
from crystal.cli.values import whole_number
from crystal.credentials.access import SCOPES, Grant, add_grant, make_grant, read_grants, revoke_grant
from crystal.credentials.access_log import AccessLog
from crystal.credentials.access_requests import RequestList
from crystal.errors import UsageError
from crystal.model.granted import GrantedProject
from crystal.timewords.parse import clock, local, parse_when

commands = typer.Typer(
    help="Manage tokens for this memory over HTTP, see crystal mcp --http.", no_args_is_help=True, rich_markup_mode=None
)
DAYS = "90d"


Scopes = Annotated[str | None, option("What it allows, by commas: read, remember, forget.", "SCOPES")]
Projects = Annotated[
    list[str] | None,
    option("Only this project, by its name; may be given several times.", "PROJECT"),
]
Expires = Annotated[str, option("When it ends: 90d, 24h, 2027-01-31, or never.", "WHEN")]


@commands.command("make")
def make(
    label: Annotated[str, option("What you call it, such as phone.", "NAME")],
    scope: Scopes = "read",
    project: Projects = None,
    expires: Expires = DAYS,
    as_json: AsJson = False,
) -> None:
    """Make a token, and print it. It is shown only now: crystal keeps a hash of it.

    The token goes into the header: Authorization: Bearer TOKEN
    """
    now, scopes = now_ms(), _scopes(scope or "read")
    with open_reader() as machine:
        grant, token = make_grant(
            machine.places.access, label, scopes, _projects(machine, project), now, _expiry(expires, now)
        )
    if as_json:
        print_json({"token": token, **_row(grant, now)})
        return
    say(token)
    words = f"crystal: {grant.label} may {_words(grant)}; {_until(grant, now)}. The token is shown only now."
    say(words, stream=sys.stderr)


@commands.command("approve")
def approve(
    code: Annotated[str, argument("The code that the page in the browser shows.", "CODE")],
    label: Annotated[str | None, option("What you call it; its own name if left out.", "NAME")] = None,
    scope: Scopes = "read",
    project: Projects = None,
    expires: Expires = DAYS,
) -> None:
    """Approve the sign-in of an assistant (needs a server: crystal mcp --http --oauth)."""
    now, end = now_ms(), _expiry(expires, now_ms())
    with open_reader() as machine:
        requests, projects = RequestList(machine.places.access_requests), _projects(machine, project)
        asked = requests.find(code)
        scopes = _scopes(scope or "read")
        grant = add_grant(machine.places.access, asked.hashed, label or asked.client, scopes, projects, now, end)
        requests.remove(asked)
    at = one_line(asked.host)
    say(f"{one_line(grant.label)}, at {at}, may {_words(grant)}; {_until(grant, now)}")


def _projects(machine: Machine, names: list[str] | None) -> tuple[GrantedProject, ...]:
    return tuple(dict.fromkeys(granted_project(machine.stores, one) for one in names or ()))


@commands.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the tokens: who may ask, for what, and until when."""
    now, found = now_ms(), read_grants(default_paths().access)
    lines = [f"{one.id}  {one_line(one.label)}: {_words(one)}; {_until(one, now)}" for one in found]
    nobody = "nobody may ask over HTTP; to allow it: crystal access make --label NAME"
    answer({"access": [_row(one, now) for one in found]}, lines or [nobody], as_json=as_json)


@commands.command("revoke")
def revoke(name: Annotated[str, argument("Its label or its id.", "NAME")]) -> None:
    """Refuse a token from now on, also where a program uses it already."""
    gone = revoke_grant(default_paths().access, name)
    say(f"revoked: {one_line(gone.label)} ({gone.id})")


@commands.command("log")
def log(limit: Limit = "20", as_json: AsJson = False) -> None:
    """Show who asked for what, when, and how it ended, latest last; never the words of a question or an answer."""
    number = whole_number(limit, "--limit")
    if number < 1:
        raise UsageError(f"--limit is {number}", hint="use 1 or more")
    found, now = AccessLog(default_paths().access_log).read()[-number:], now_ms()
    lines = []
    for one in found:
        who, what = one_line(one.label) or "without a token", one_line(one.what) or "-"
        lines.append(f"{clock(one.at, now)}  {who}  {what}  {one.outcome}  {one.ms} ms  {one.address}")
    answer({"log": msgspec.to_builtins(found)}, lines or ["nobody has asked over HTTP yet"], as_json=as_json)


def _scopes(text: str) -> tuple[str, ...]:
    given = [word.strip().lower() for word in text.split(",")]
    wrong = [word for word in given if word not in SCOPES]
    if wrong:
        raise UsageError(f"--scope has {wrong[0]!r}", hint=f"scopes are {', '.join(SCOPES)}")
    return tuple(one for one in SCOPES if one in given)


def _expiry(text: str, now: int) -> int | None:
    """Return when a token expires; here a time span such as 90d is counted from now, not back from now."""
    if text.strip().lower() == "never":
        return None
    at = parse_when(text, now=now, name="--expires")
    end = 2 * now - at if re.fullmatch(r"\s*\d+\s*[a-z]+\s*", text.lower()) else at
    if end <= now:
        raise UsageError(f"--expires is {text!r}, which is in the past", hint="give a future time, such as 90d")
    return end


def _words(grant: Grant) -> str:
    places = ", ".join(one_line(f"{one.name} ({one.folders[0]})") for one in grant.projects)  # another may get its name
    where = f"in {places} alone" if places else "everywhere"
    return f"{', '.join(grant.scopes)} {where}"


def _until(grant: Grant, now: int) -> str:
    if grant.expires_at is None:
        return "never expires"
    return f"{'until' if grant.is_valid(now) else 'EXPIRED'} {local(grant.expires_at):%Y-%m-%d %H:%M}"


def _row(grant: Grant, now: int) -> dict[str, Any]:
    return {
        "id": grant.id, "label": grant.label, "scopes": grant.scopes,
        "projects": [one.name for one in grant.projects],
        "made_at": grant.made_at, "expires_at": grant.expires_at, "is_valid": grant.is_valid(now),
    }  # fmt: skip
