"""``crystal import``: conversations that another program exported."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crystal.app.context import open_machine
from crystal.app.import_exports import plan_exports, unpacked
from crystal.cli.capture import finish_import, import_with_bar
from crystal.cli.options import AsJson, existing


def import_(
    paths: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Exports, archives or folders of them.")],
    as_json: AsJson = False,
) -> None:
    """Import conversations that ChatGPT, Claude.ai or SpecStory exported; archives need not be unpacked.

    Import a newer export whenever you like: only what is new is added.
    """
    given = [path.absolute() for path in existing(paths)]
    with open_machine() as machine, unpacked(machine, given) as files:
        plan = plan_exports(machine, files, named=given)
        finish_import(machine, import_with_bar(machine, plan), as_json=as_json)
