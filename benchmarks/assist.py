"""Measure at how many moments of a real history assist has a fact for the agent, and how often it is not used.

    python benchmarks/assist.py --sessions FOLDER

The sessions are captured in a temporary HOME and taken for one project, because a history of several people has several
folders. They are replayed in two halves, by their ids: the rules were chosen on the first, the second was held out.
Then 200 controls: lines of Python's standard library as edits of the history's own files, and errors of other programs,
must be told nothing; so must everything in a project without facts. Exits 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from transcripts import half_of

if TYPE_CHECKING:
    from crystal.app.context import Machine

MAX_UNUSED = 0.05
CONTROLS = 200


def halves(machine: Machine) -> bool:
    """Replay each half of the sessions; at most one in twenty moments may get a fact that is not used."""
    from crystal.app.assist_replay import replay

    is_kept = True
    for name, half in (("chosen on", "development"), ("held out", "held out")):
        for kind, tally in replay(machine, lambda session, half=half: half_of(session) == half).items():
            told = f"{tally.moments:5} moments, {tally.with_fact:3} with a fact"
            told += f", {tally.used:3} used ({tally.by_chance:3} by chance)"
            print(f"{name:10} {kind:8} {told}, not used {tally.unused_share:.3f} of the moments (at most {MAX_UNUSED})")
            is_kept = is_kept and tally.unused_share <= MAX_UNUSED
    return is_kept


def controls(machine: Machine) -> bool:
    """Edit and fail with what the history has nothing to do with; nothing may be told."""
    from crystal.app.assist import facts_in
    from crystal.assist.facts import Known
    from crystal.assist.replay import Moment, replay_moments
    from crystal.hook.matching import tail_of

    store = machine.store
    facts = facts_in(store, "local", [int(row) for (row,) in store.rows("SELECT id FROM projects")])
    files = sorted({fact.file for fact in facts if fact.body and fact.file})
    pick = random.Random(1)
    sources = [
        path.read_text("utf-8", "replace").splitlines() for path in sorted(Path(os.__file__).parent.glob("*.py"))
    ]
    moments = []
    for at in range(CONTROLS // 2):
        lines = pick.choice(sources)
        start = pick.randrange(max(1, len(lines) - 20))
        given = {
            "file_path": f"elsewhere/{tail_of(pick.choice(files))}",
            "old_string": "\n".join(lines[start : start + pick.randrange(1, 20)]),
        }
        moments.append(Moment("edit", 1 << 60, f"control {at}", given))
    empty = tempfile.TemporaryDirectory()  # what the commands print must not come from where this runs
    for name in sorted({"ls", "cp", "git", "tar", "grep", "sed", "sort", "find", "python3", "cat"}):
        for option in (
            "--no-such-option",
            "/no/such/file",
            "/no/such/folder/x",
            "-Z9",
            "''",
            "-",
            "/dev/nothing",
            "--?",
            "a b",
            ".",
        ):
            command = f"{name} {option} </dev/null"
            done = subprocess.run(
                ["sh", "-c", command], cwd=empty.name, capture_output=True, text=True, errors="replace", timeout=20,
                check=False,
            )  # fmt: skip
            moments.append(Moment("failure", 1 << 60, f"control {command}", done.stderr + done.stdout[:2000]))
    told = [(moment, known) for moment, known in replay_moments(moments, Known(facts), 2_000) if known]
    fresh = [one for one in replay_moments(moments, Known([]), 2_000) if one[1]]
    print(f"controls: {len(moments)}, told {len(told)}, in a fresh project {len(fresh)} (none may be)")
    for moment, known in told:
        print(f"    {moment.given!r:.200} -> {json.dumps(known[0]['body'])}")
    return not told and not fresh


def main(sessions: Path) -> int:
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"HOME": home, "LDM_HOME": f"{home}/ldm", "CRYSTAL_EMBEDDING_PROVIDER": "none"}
        from crystal.app.context import open_machine
        from crystal.app.import_past import import_sessions, plan_import
        from crystal.store.work import index

        with open_machine() as machine:
            import_sessions(machine, plan_import(machine, [sessions], None), lambda _: None, cleaners=0)
            index.bring_up_to_date(machine.store)
            with machine.store.transaction():
                machine.store.execute("UPDATE projects SET remote = 'benchmark:one'")
            results = [halves(machine), controls(machine)]
    return 0 if all(results) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=Path, required=True)
    sys.exit(main(parser.parse_args().sessions))
