"""Implement ``crystal import``: import conversations that crystal or another program exported."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from crystal.app.context import open_machine
from crystal.app.import_exports import KNOWN_FORMS, name_archives, plan_exports, unpacked
from crystal.app.import_open_form import import_export
from crystal.capture.engine import Tally
from crystal.cli.capture import finish_import, import_with_bar
from crystal.cli.options import AsJson, argument, existing
from crystal.cli.progress import progress_bar
from crystal.export.form import is_export


def import_(
    paths: Annotated[list[Path], argument("Exports, .zip archives, or folders of them.", "FILE...")],
    as_json: AsJson = False,
) -> None:
    """Import what ChatGPT, Claude.ai, SpecStory or crystal exported. You need not unpack an archive.

    You can import a newer export at any time: only what is new is added.
    """
    given = [path.absolute() for path in existing(paths, f"give {KNOWN_FORMS}")]
    with open_machine() as machine, unpacked(machine, given) as files:
        own = [path for path in files if is_export(path)]
        others = [path for path in files if path not in own]
        unread = Tally()
        plan = plan_exports(machine, others, named=given, tally=unread)
        tally = import_with_bar(machine, plan, again="the same command")
        tally.join(unread)
        with progress_bar("importing", sum(path.stat().st_size for path in own)) as advance:
            for path in own:
                tally.join(import_export(machine, path, advance))
        tally.problems = name_archives(tally.problems or {}, machine, given)
        finish_import(machine, tally, as_json=as_json)
