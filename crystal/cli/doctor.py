"""``crystal doctor``: what is not well, and what to do about it."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from crystal.cli.render import look_of, say_item

MARKS = {"ok": "ok", "note": "note", "warning": "warn", "failure": "FAIL"}


def doctor(
    *,
    deep: Annotated[bool, typer.Option("--deep", help="Also read every page of a large database.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check the installation and say how to fix it. Exit code 0: nothing fails. 1: something does."""
    from crystal.app.context import open_reader, this_config
    from crystal.app.doctor import examine

    checks = examine(this_config, open_reader, deep=deep)
    failed = any(check.verdict == "failure" for check in checks)
    if as_json:
        rows = [asdict(check) for check in checks]
        typer.echo(json.dumps({"schema": 1, "ok": not failed, "checks": rows}))
    else:
        look = look_of(sys.stdout)
        styles = {"ok": look.good, "note": look.dim, "warning": look.warning, "failure": look.bad}
        for check in checks:
            say_item(f"{MARKS[check.verdict]:<5} ", f"{check.name}: {check.message}", look, style=styles[check.verdict])
            if check.fix and check.verdict != "ok":
                say_item("      fix: ", check.fix.removeprefix("run: "), look, style=look.bold)
    if failed:
        raise typer.Exit(1)
