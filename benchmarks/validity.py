"""Measure how often what is said of the files that a hit names is right, and what it costs, on a real history.

    python benchmarks/validity.py --sessions FOLDER --repository DIR --commits FILE [--home DIR]

``commits`` has lines ``{"commit": ..., "sessions": [...]}``. The sessions are captured, then the repository is put back
to some of its commits, and to one after which the commits of sessions were taken back with ``git revert``. At each,
every edit made before is judged. Git tells the truth: an edit counts if the first commit of its session that changed
its file brought in all its lines. A line is left if ``git blame`` says that it is that commit's, or if it is in the
file and no later commit removed such a line. Lines were taken back if one commit removed all that were new and what the
edit had replaced is in the file, or if a commit says that it reverts the commit of an edit that only added lines. A
text that names a file is judged, too: the file changed if a commit after it that does not name its session changed it.
Half of the sessions were looked at while the rules were made; the other half was not. Exits 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transcripts import half_of

if TYPE_CHECKING:
    from crystal.app.context import Machine
    from crystal.app.validity import Subject
    from crystal.model.recall import Validity

PRECISION = 0.95
MEDIAN_MS = 25
PLACES = 4
TEXTS = 150
ROUNDS = 40
HITS = 10
SLACK_MS = 120_000


Removals = dict[str, set[bytes]]
"""The lines that each commit removed from a file."""


@dataclass
class History:
    """A repository, and what its commits say: the sessions that each names, its time, and the files it changed."""

    folder: Path
    named: dict[str, set[str]]
    order: list[str] = field(default_factory=list)
    times: dict[str, int] = field(default_factory=dict)
    files: dict[str, dict[str, str | None]] = field(default_factory=dict)
    diffs: dict[tuple[str, str], tuple[set[bytes], set[bytes]]] = field(default_factory=dict)
    blames: dict[str, list[tuple[str, bytes]]] = field(default_factory=dict)

    def git(self, *words: str) -> str:
        """Return what git prints."""
        command = ["git", "-C", str(self.folder), "-c", "user.name=x", "-c", "user.email=x@y", *words]
        return subprocess.run(command, check=True, capture_output=True).stdout.decode("utf-8", "replace")

    def move_to(self, commit: str) -> None:
        """Check a commit out, and read the history before it, oldest first."""
        self.git("checkout", "-q", "--force", "--detach", commit)
        self.order, self.blames = [], {}
        for block in self.git("log", "--reverse", "-M", "--name-status", "--format=%x00%H %ct").split("\0")[1:]:
            head, *rows = block.strip().split("\n")
            name, _, at = head.partition(" ")
            self.order.append(name)
            self.times[name] = int(at) * 1000
            changed = [row.split("\t") for row in rows if row]
            self.files[name] = {one[1]: one[-1] if one[0][0] != "D" else None for one in changed}

    def changed(self, path: str) -> list[tuple[str, str | None]]:
        """Return the commits that changed a file, with its name after each, through renames."""
        found = []
        for commit in self.order:
            if path in self.files[commit]:
                new = self.files[commit][path]
                found.append((commit, new))
                path = new or path
        return found

    def diff(self, commit: str, path: str) -> tuple[set[bytes], set[bytes]]:
        """Return the lines that a commit added to a file and removed from it, as they are compared."""
        from crystal.work.validity import plain_lines

        if (commit, path) not in self.diffs:
            lines = self.git("show", "-m", "--first-parent", "--format=", "--no-renames", commit, "--", path).split(
                "\n"
            )
            sides = ([line[1:] for line in lines if line[:1] == sign and line[:3] != 3 * sign] for sign in "+-")
            added, removed = (plain_lines(side) for side in sides)
            self.diffs[commit, path] = added, removed
        return self.diffs[commit, path]

    def before(self, commit: str, path: str) -> set[bytes]:
        """Return the lines that a file had before a commit, as they are compared."""
        from crystal.work.validity import plain_lines

        try:
            return plain_lines(self.git("show", f"{commit}^:{path}").split("\n"))
        except subprocess.CalledProcessError:  # there was no such file
            return set()

    def blame(self, path: str) -> list[tuple[str, bytes]]:
        """Return the commit of each line of a file, with the line as it is compared."""
        from crystal.work.line_hashes import plain_line

        if path not in self.blames:
            found, commit = [], ""
            for line in self.git("blame", "-w", "--line-porcelain", "HEAD", "--", path).split("\n"):
                if line[:1] == "\t":
                    found.append((commit, plain_line(line[1:]).encode()))
                elif len(word := line.partition(" ")[0]) == 40:
                    commit = word
            self.blames[path] = found
        return self.blames[path]


def capture(machine: Machine, sessions: Path, repository: Path) -> None:
    """Capture sessions, and let their folders be the repository's, as ``crystal projects join`` does."""
    from crystal.app.import_past import import_sessions, plan_import
    from crystal.store.capture import projects
    from crystal.store.work import index
    from crystal.transcript.project import find_project

    store, home = machine.store, find_project(str(repository))
    if not store.value("SELECT count(*) FROM turns"):
        import_sessions(machine, plan_import(machine, [sessions], None), lambda _: None, cleaners=0)
        index.bring_up_to_date(store)
    rows = dict(store.rows("SELECT id, cwd FROM projects"))
    with store.transaction():
        for row, cwd in rows.items():  # as git would have said on the machines of these people
            above = min((one for one in rows.values() if cwd.startswith(f"{one}/")), key=len, default=cwd)
            store.execute("UPDATE projects SET git_root = ? WHERE id = ?", (above, row))
        projects.join(store, [*rows], [], home.name, home.remote or "joined:benchmark")
        projects.project_row(store, home)


def subjects(machine: Machine, roles: tuple[str, ...], *, edits: bool) -> list[Subject]:
    """Return the turns of some roles as hits would name them."""
    from crystal.app.validity import Subject
    from crystal.store.sessions.conversations import turn_texts

    among = "AND t.id IN (SELECT turn FROM work_calls WHERE is_edit AND exit = 0)" if edits else ""
    rows = machine.store.rows(
        "SELECT t.id, t.role, t.ts, s.session_id, t.uuid, p.cwd, t.branch, s.device FROM turns t"
        " JOIN sessions s ON s.id = t.session JOIN projects p ON p.id = t.project"
        f" WHERE t.ts IS NOT NULL AND t.role IN (SELECT value FROM json_each(?)) {among} ORDER BY t.ts",
        (roles,),
    )
    texts = turn_texts(machine.store, [row[0] for row in rows])
    return [Subject(texts[turn][0], texts[turn][1], *rest) for turn, *rest in rows if turn in texts]


def true_state(history: History, path: str, added: set[bytes], removed: set[bytes], one: Subject) -> str | None:
    """Return what git says became of an edit's lines; None if they were not committed as they were made."""
    changed = [(commit, name) for commit, name in history.changed(path) if history.times[commit] + SLACK_MS >= one.at]
    own = next((at for at, (commit, _) in enumerate(changed) if one.session in history.named.get(commit, ())), None)
    if own is None:
        return None
    commit, name = changed[own][0], changed[own][1] or path
    if not added or not added <= history.diff(commit, name)[0]:
        return None
    now = changed[-1][1]
    if now is None:
        return "gone"
    later = {by: history.diff(by, new or name)[1] for by, new in changed[own + 1 :]}
    if are_left(history, added, commit, now, set().union(*later.values())):
        return "unchanged"
    if not removed and is_said_to_revert(history, added, commit, later):
        return "reverted"
    return "reverted" if is_replaced_again(history, added, removed, commit, name, now, later) else "changed"


def are_left(history: History, added: set[bytes], commit: str, now: str, removed_later: set[bytes]) -> bool:
    """Return whether a file still has all lines of a commit, by ``git blame`` or since nothing removed such a line."""
    blamed = history.blame(now)
    ours = {line for by, line in blamed if by == commit}
    return added - ours <= {line for _, line in blamed} - removed_later


def is_replaced_again(
    history: History, added: set[bytes], removed: set[bytes], commit: str, name: str, now: str, later: Removals
) -> bool:
    """Return whether one commit removed all that was new, and the file has what it had replaced."""
    text = {line for _, line in history.blame(now)}
    back, new = removed & history.diff(commit, name)[1], added - history.before(commit, name)
    is_back = bool(back) and back <= text
    return is_back and bool(new) and not new & text and any(new <= minus for minus in later.values())


def is_said_to_revert(history: History, added: set[bytes], commit: str, later: Removals) -> bool:
    """Return whether a commit that removed the lines says that it reverts the commit that added them."""
    removing = (by for by, minus in later.items() if added <= minus)
    return any(f"reverts commit {commit}" in history.git("show", "-s", "--format=%b", by) for by in removing)


def judge_edits(machine: Machine, history: History, edits: list[Subject], found: Counter[Any], *, shown: bool) -> None:
    """Judge every edit made before the commit that is checked out."""
    from crystal.app.file_paths import FilePaths
    from crystal.app.validity import _calls, judge
    from crystal.work.validity import plain_lines

    calls = _calls(machine.store, FilePaths(machine.store), [one.id for one in edits])
    end = history.times[history.order[-1]]
    early = [one for one in edits if one.at is not None and one.at < end and len(calls.get(one.id, ())) == 1]
    early = random.Random(4).sample(early, min(TEXTS * 2, len(early)))
    for at in range(0, len(early), HITS):
        some = early[at : at + HITS]
        for one, validity in zip(some, judge(machine, some, str(history.folder)), strict=True):
            call, (path, _) = calls[one.id][0]
            truth = true_state(history, path, plain_lines(call.added), plain_lines(call.removed), one)
            if truth is None:
                continue
            half = half_of(one.session or "")
            found[half, truth, "all"] += 1
            if validity is None:
                continue
            found[half, truth, "answered"] += 1
            found[half, validity.state, "said"] += 1
            found[half, validity.state, "right"] += validity.state == truth
            note_session(history, one, validity, found)
            if validity.commit:
                minus = {line for name in (path, validity.what) for line in history.diff(validity.commit, name)[1]}
                found[half, "commit", "said"] += 1
                is_by = truth == "gone" or bool(minus & plain_lines(call.added))
                found[half, "commit", "right"] += is_by
                if shown and not is_by:
                    print(f"{path} {one.uuid} {half}: not by {validity}")
            if shown and half == "development" and validity.state != truth:
                print(f"{path} {one.uuid}: said {validity}, is {truth}")


def note_session(history: History, one: Subject, validity: Validity, found: Counter[Any]) -> None:
    """Count whether the commit that is said to have made a change names the session that is said to have made it."""
    names = history.named.get(validity.commit or "")
    if validity.session is not None and names:
        found[half_of(one.session or ""), "session", "said"] += 1
        found[half_of(one.session or ""), "session", "right"] += validity.session in names


def judge_texts(machine: Machine, history: History, texts: list[Subject], found: Counter[Any], *, shown: bool) -> None:
    """Judge texts that name files."""
    from crystal.app.validity import judge

    end = history.times[history.order[-1]]
    early = [one for one in texts if one.at is not None and one.at < end]
    some = random.Random(4).sample(early, min(TEXTS, len(early)))
    for at in range(0, len(some), HITS):
        batch = some[at : at + HITS]
        for one, validity in zip(batch, judge(machine, batch, str(history.folder)), strict=True):
            half = half_of(one.session or "")
            found[half, "texts", "all"] += 1
            if validity is not None:
                is_right = is_true(history, one, validity)
                found[half, f"text {validity.state}", "said"] += 1
                found[half, f"text {validity.state}", "right"] += is_right
                note_session(history, one, validity, found)
                if shown and half == "development" and not is_right:
                    print(f"{one.uuid} {one.at}: said {validity}")


def is_true(history: History, one: Subject, validity: Validity) -> bool:
    """Return whether commits of others changed, renamed or deleted a file after a text, or took a symbol out."""
    symbol, _, path = validity.what.rpartition(" in ")
    later = [
        commit
        for commit in history.order
        if history.times[commit] > (one.at or 0) and path in (*history.files[commit], *history.files[commit].values())
    ]
    others = [commit for commit in later if history.named.get(commit, set()) != {one.session}]
    is_there = (history.folder / path).exists()
    if symbol:
        text = (history.folder / path).read_text("utf-8", "replace") if is_there else ""
        before = history.git("log", "-1", "--format=%H", f"-S{symbol}", "HEAD", "--", path).strip()
        return is_there and symbol not in text and before in later
    if validity.state == "gone":
        return not is_there and bool(later)
    return is_there and (bool(others) if validity.state == "changed" else not later)


def measure(machine: Machine, folder: Path, every: list[Subject]) -> float:
    """Return how much processor time the judgement of a search's hits takes in the median, ms, with that of git."""
    from crystal.app.validity import judge

    dice, times = random.Random(7), list[float]()
    for _ in range(ROUNDS):
        hits = dice.sample(every, HITS)
        begun = processor_ms()
        judge(machine, hits, str(folder))
        times.append(processor_ms() - begun)
    times.sort()
    late = times[round(0.95 * (ROUNDS - 1))]
    print(f"processor time for {HITS} hits, with git's: {statistics.median(times):.1f} ms, p95 {late:.1f} ms")
    return statistics.median(times)


def processor_ms() -> float:
    """Return the processor time of this process and its children, ms."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used) * 1000


def told(found: Counter[Any]) -> bool:
    """Print precision and coverage for each half; whether they are good enough."""
    is_good = True
    for half in ("development", "held out"):
        states = sorted({state for one, state, what in found if one == half and what == "said"})
        said, right = (
            sum(found[half, state, what] for state in states if state not in ("session", "commit"))
            for what in ("said", "right")
        )
        for state in states:
            count = found[half, state, "said"]
            print(f"{half}, {state}: {count} said, {found[half, state, 'right'] / max(1, count):.3f} right")
        for truth in ("unchanged", "changed", "reverted", "gone"):
            count = found[half, truth, "all"]
            share = found[half, truth, "answered"] / max(1, count)
            print(f"{half}, edits that are {truth}: {count}, {share:.3f} answered")
        print(f"{half}: {found[half, 'texts', 'all']} texts; precision of all {right / max(1, said):.3f} of {said}")
        is_good &= right >= PRECISION * said
    return is_good


def main() -> None:
    """Measure, in a temporary home folder unless one is given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    for name in ("--sessions", "--repository", "--commits"):
        parser.add_argument(name, type=lambda path: Path(path).resolve(), required=True)
    parser.add_argument("--home", type=Path, help="a home folder that has the sessions already")
    parser.add_argument("--show", action="store_true", help="show what is wrong in the first half")
    parser.add_argument("--between", action="store_true", help="at the commits halfway between those of the rules")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"HOME": str(given.home or home), "CRYSTAL_REFLECT_MODE": "off"}
        os.environ |= {"CRYSTAL_EMBEDDING_PROVIDER": "none", "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
        from crystal.app import working_tree
        from crystal.app.context import open_machine

        copy = Path(home) / "repository"
        subprocess.run(["git", "clone", "-q", str(given.repository), str(copy)], check=True)
        subprocess.run(["git", "-C", str(copy), "remote", "set-url", "origin", "https://example.org/a.git"], check=True)
        named = defaultdict[str, set[str]](set)
        for row in map(json.loads, given.commits.open()):
            named[row["commit"]] = {name[-36:] for name in row["sessions"]}
        history = History(copy, named)
        tip = history.git("rev-parse", "HEAD").strip()
        history.move_to(tip)
        with open_machine() as machine:
            capture(machine, given.sessions, copy)
            edits = subjects(machine, ("tool_call",), edits=True)
            texts = subjects(machine, ("user", "assistant"), edits=False)
            median = measure(machine, copy, edits + texts)
            working_tree.GIT_SECONDS = 5.0
            late = [commit for commit in history.order if history.times[commit] > (edits[0].at or 0)]
            early = 0.5 if given.between else 0.0
            steps = [late[int(len(late) * (at - early) / PLACES) - 1] for at in range(1, PLACES + 1)]
            found: Counter[Any] = Counter()
            for step in steps if given.between else [*steps, reverted(history, tip)]:
                history.move_to(step)
                judge_edits(machine, history, edits, found, shown=given.show)
                judge_texts(machine, history, texts, found, shown=given.show)
    is_good = told(found)
    sys.exit(0 if is_good and median <= MEDIAN_MS else 1)


def reverted(history: History, tip: str) -> str:
    """Take back, one after the other, the last commits that name sessions and can be taken back; return the result."""
    done = 0
    for commit in reversed(history.order):
        if commit in history.named and done < 25:
            try:
                history.git("revert", "--no-edit", commit)
                done += 1
            except subprocess.CalledProcessError:
                history.git("reset", "-q", "--hard")
    result = history.git("rev-parse", "HEAD").strip()
    print(f"{done} commits taken back after {tip[:10]}")
    return result


if __name__ == "__main__":
    main()
