"""``crystal --on``, ``--off`` and ``--status``: the switch of capture."""

from __future__ import annotations

import time

import typer


def switch(*, on: bool, off: bool, session: str | None) -> None:
    """Turn capture on or off, then say how it stands.

    Both sweep first: what was said until ``--off`` is kept, what was said until ``--on`` is marked private.
    """
    from crystal.app.capture_switch import turn_off, turn_on
    from crystal.app.context import open_machine, open_reader
    from crystal.app.status import capture_switch
    from crystal.cli.status import warn_if_not_capturing

    if on or off:
        with open_machine() as machine:
            (turn_off if off else turn_on)(machine, session)
            _say(capture_switch(machine))
        return
    with open_reader() as machine:
        _say(capture_switch(machine))
        warn_if_not_capturing(machine.config, machine.store)


def _say(state: dict[str, object]) -> None:
    if state["on"]:
        typer.echo("capture is on")
    else:
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(int(str(state["off_since"])) / 1000))
        typer.echo(f"capture is off since {since}; nothing said meanwhile is kept (resume: crystal --on)")
    sessions = state["private_sessions"]
    if isinstance(sessions, list) and sessions:
        typer.echo(f"paused sessions: {', '.join(map(str, sessions))}")
