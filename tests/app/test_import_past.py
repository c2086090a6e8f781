"""What is still to be imported is noted until it is done, whoever imports it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from crystal.app import import_past
from crystal.app.context import Machine, open_machine
from crystal.app.progress import PENDING_IMPORT_FILE
from crystal.capture.backfill import Past
from tests.support.capture_machine import line
from tests.support.command import crystal


def test_what_is_asked_for_while_the_background_imports_is_not_lost(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = home / ".claude" / "projects" / "-p"
    folder.mkdir(parents=True)
    for name in "ab":
        ident = f"{name * 8}-1111-4111-8111-111111111111"
        (folder / f"{ident}.jsonl").write_bytes(line(f"{name} was said", sessionId=ident))
    crystal("init", "--yes", "--no-import")
    with open_machine() as machine:
        first, second = import_past.plan_import(machine, [], None)
        import_past.note_pending(machine, [first])
        finish = import_past.import_sessions

        def asked_meanwhile(
            machine: Machine, plan: Sequence[Past], progress: Callable[[int], None], **more: Any
        ) -> Any:
            tally = finish(machine, plan, progress, **more)
            import_past.note_pending(machine, [second])
            return tally

        monkeypatch.setattr(import_past, "import_sessions", asked_meanwhile)
        import_past.continue_import(machine, lambda *_: None, lambda: False)
        assert machine.store.value("SELECT count(*) FROM turns") == 1
        assert (machine.places.data_dir / PENDING_IMPORT_FILE).exists()
        monkeypatch.undo()
        import_past.continue_import(machine, lambda *_: None, lambda: False)
        assert machine.store.value("SELECT count(*) FROM turns") == 2
        assert not (machine.places.data_dir / PENDING_IMPORT_FILE).exists()
