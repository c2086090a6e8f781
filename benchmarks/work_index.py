"""Measure the cost of the work index beside capture, and how often blame, how and fix are right on a real history.

    python benchmarks/work_index.py [--size 20MB]
    python benchmarks/work_index.py --sessions FOLDER --repository DIR --commits FILE
    python benchmarks/work_index.py --memory HOME

With a home folder that has a memory, only the processor time of questions about what is in it is measured. A migration
may change it: give a copy.

Without sessions, some are generated. They are captured and indexed in one process of a temporary HOME, and the ratio of
the processor times is printed. With a repository, and lines ``{"commit": ..., "sessions": [...]}`` about it, every line
of its files that counts is blamed: an answer is right if the line's commit names its session.

Then what an agent said a command does is asked, without the session that it was said in. The first answer is right if
it has a step of that command (strict), or of any command of which the same was said (lenient). Questions are new
if no other session used their words; of these both halves of the sessions are told.

At last each failure that was cured is asked about with its whole output; only sessions that had ended by then are seen.
The first answer is right if its cure and the real one bring in a word in common that the replaced lines lack, run a
command in common, or leave out an option in common. Errors of other programs, run here, must get no answer. Exits 1
where a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from transcripts import generate, half_of, parse_size

if TYPE_CHECKING:
    from crystal.app.context import Machine
    from crystal.app.fixes import KnownFix
    from crystal.work.command_ranking import RankedCommand

ON_TOP = 0.20
PRECISION = 0.9
FIX_PRECISION = 0.8
CONTROLS = 200
QUESTIONS, QUESTION_MS = 40, 100
UNKNOWN = ("error: cannot find the module", "fatal: no such option", "error: undefined name in the file")
ALL_RUNS = 100_000
NAMES = (".go", ".md", ".sh", ".toml", ".mod", ".sum", ".yml", ".yaml", ".json", ".py", ".ts", ".js", ".rs")
DEPENDENCIES = frozenset({"go.mod", "go.sum", "package-lock.json", "Cargo.lock", "uv.lock"})


def capture_and_index(machine: Machine, folder: Path) -> bool:
    """Capture sessions, then index them; the index must cost little beside it."""
    from crystal.app.import_past import import_sessions, plan_import
    from crystal.store.work import index

    before = time.process_time()
    import_sessions(machine, plan_import(machine, [folder], None), lambda _: None, cleaners=0)
    captured = time.process_time() - before
    index.bring_up_to_date(machine.store)
    indexed = time.process_time() - before - captured
    turns, calls = (machine.store.value(f"SELECT count(*) FROM {name}") for name in ("turns", "work_calls"))
    print(f"capture: {captured:.2f} s of CPU for {turns:,} turns")
    print(f"index: {indexed:.2f} s for {calls:,} calls, {indexed / captured:.3f} of capture (at most {ON_TOP})")
    return indexed <= ON_TOP * captured


def ask_blame(machine: Machine, repository: Path, commits: Path) -> bool:
    """Blame every line of a repository, and compare with what its commits say."""
    join_projects(machine, repository)
    gold, found = CommitSessions(machine, repository, commits), Counter[tuple[str, str]]()
    for name in git(repository, "ls-files").splitlines():
        if name.endswith(NAMES):
            count_blamed(machine, repository, name, gold, found)
    return told(found)


def join_projects(machine: Machine, repository: Path) -> None:
    """Make all folders of the sessions one project with the repository."""
    from crystal.store.capture import projects
    from crystal.transcript.project import find_project

    store, home = machine.store, find_project(str(repository))
    rows = [int(row) for (row,) in store.rows("SELECT id FROM projects")]
    with store.transaction():
        projects.join(store, rows, [], home.name, home.remote or "joined:benchmark")
        projects.project_row(store, home)


def count_blamed(
    machine: Machine, repository: Path, name: str, gold: CommitSessions, found: Counter[tuple[str, str]]
) -> None:
    """Blame the lines of a file, and count those that are answered and those that are right."""
    from crystal.app.blame import blame
    from crystal.work.line_hashes import plain_line

    text = (repository / name).read_text("utf-8", "replace").split("\n")
    for lines in blame(machine, str(repository / name)).lines if any(text) else ():
        commit, call = lines.commit or "", lines.call
        number = sum(bool(plain_line(line)) for line in text[lines.first - 1 : lines.last])
        is_right = call is not None and call.session_id in gold.named.get(commit, ())
        for what, counts in (("lines", True), ("answered", call is not None), ("right", is_right)):
            found[gold.kind(name, commit), what] += number * counts


class CommitSessions:
    """The sessions that each commit of a repository names."""

    def __init__(self, machine: Machine, repository: Path, commits: Path) -> None:
        rows = map(json.loads, commits.read_text("utf-8").splitlines())
        self.named = {one["commit"]: {name[-36:] for name in one["sessions"]} for one in rows}
        self._there = {str(name) for (name,) in machine.store.rows("SELECT session_id FROM sessions")}
        first = int(machine.store.value("SELECT min(ts) FROM turns")) // 1000
        times = map(str.split, git(repository, "log", "--format=%H %ct").splitlines())
        self._early = {commit for commit, at in times if int(at) < first}

    def kind(self, name: str, commit: str) -> str:
        """Return what is known of the commit of a line in a file."""
        if commit not in self.named:
            is_bump = Path(name).name in DEPENDENCIES
            return "before the sessions" if commit in self._early else "dependencies" if is_bump else "nobody says"
        have = self.named[commit] & self._there
        return "all sessions there" if have == self.named[commit] else "some there" if have else "none there"


def ask_how(machine: Machine) -> bool:
    """Ask how each described command is done, with its session hidden; the answers must be right."""
    from crystal.store.work.queries import latest_runs
    from crystal.work.command_ranking import SURE, rank_commands, steps, words

    runs = latest_runs(machine.store, None, ALL_RUNS)
    done = {run.turn: set(steps(run.line)) for run in runs}
    about = {run.turn: frozenset(words(run.about)) for run in runs}
    names = dict(machine.store.rows("SELECT id, session_id FROM sessions"))
    sessions, same, asking = defaultdict(set), defaultdict(set), defaultdict(set)
    for run in runs:
        for step in done[run.turn]:
            sessions[step].add(run.session)
        same[about[run.turn]] |= done[run.turn]
        asking[about[run.turn]].add(run.session)
    found: Counter[str] = Counter()
    answers: dict[tuple[int, frozenset[str]], RankedCommand | None] = {}
    for run in runs:
        wanted, asked = {step for step in done[run.turn] if sessions[step] - {run.session}}, about[run.turn]
        if not (run.about and wanted):
            continue
        if (run.session, asked) not in answers:
            others = [one for one in runs if one.session != run.session]
            answers[run.session, asked] = next(iter(rank_commands(others, run.about)), None)
        best = answers[run.session, asked]
        new = (f"new {half_of(str(names[run.session]))}", "new") if len(asking[asked]) == 1 else ()
        found.update(("questions", *(f"{kind} questions" for kind in new)))
        if best is None:
            continue
        for kind in ("any", *(("certain",) if best.certainty >= SURE else ()), *new):
            found[kind] += 1
            found[f"{kind} strict"] += bool(wanted & set(steps(best.run.line)))
            found[f"{kind} lenient"] += bool(same[asked] & set(steps(best.run.line)))
    return _is_how_right(found)


def _is_how_right(found: Counter[str]) -> bool:
    """Print how often answers were right, by kind; return True if enough of each kind were."""
    halves = [(f"new {half}", f"new {half} questions") for half in ("development", "held out")]
    for kind, asked_of in (("certain", "questions"), ("any", "questions"), ("new", "new questions"), *halves):
        strict, lenient = (found[f"{kind} {how}"] / max(1, found[kind]) for how in ("strict", "lenient"))
        coverage = found[kind] / max(1, found[asked_of])
        print(f"how, {kind} answers: precision {lenient:.3f} ({strict:.3f} strict), coverage {coverage:.3f}")
    return all(found[f"{kind} lenient"] >= PRECISION * found[kind] for kind in ("any", "new", "new held out"))


_TOOLS = (
    "ar as awk base64 basename bash bzip2 cal cargo cat chmod chown cmp comm cp csplit curl cut date df diff"
    " dirname docker du env expand expr file find flex fmt fold g++ gcc gpg grep groups gunzip gzip head iconv"
    " id install java join jq ld less ln locale ls m4 make man md5sum mkdir mkfifo mktemp mv nano nice nl nm"
    " node npm objdump od openssl paste patch perl pg_dump pip pr printenv ps psql python3 readelf readlink"
    " realpath rm rmdir rsync ruby rustc scp sdiff sed seq sha256sum shuf sort split sqlite3 ssh stat strings"
    " strip sum tac tail tar tee timeout touch tr tree tsort tty uname unexpand uniq unzip vim vmstat w wc wget"
    " who xargs xz zip zstd"
).split()
_BAD_PYTHON = (
    "1/0 [][1] {}['a'] int('x') None.a open('/gone') import_nothing 'a'+1 len(1) sum('a') next(iter([]))"
    " float('y') __import__('gone_module') (1,2)() {}|1 ord('ab') chr(-1) bytes([300]) range('a')"
    " sorted([1,'a']) 'x'.index('y') b''.decode('gone') complex('z') hash([]) iter(5) max([]) min(()) pow(0,-1)"
    " round('a') setattr(1,'a',2) zip(1)"
).split()


def unrelated_errors() -> list[str]:
    """Return what other programs print when they fail."""
    from crystal.work.errors import error_lines

    commands = [
        [name, word] for name in _TOOLS if shutil.which(name) for word in ("--no-such-option", "/gone/file.txt")
    ]
    commands += [[sys.executable, "-c", code] for code in _BAD_PYTHON]
    found = list[str]()
    with tempfile.TemporaryDirectory() as folder:
        for command in commands:
            try:
                ran = subprocess.run(
                    command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                    timeout=10, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                continue
            said = ran.stdout + ran.stderr
            found += [said] if ran.returncode and error_lines(said) else []
    return found[:CONTROLS]


def brought_in(fixed: KnownFix) -> set[str]:
    """Return the words that a cure brings in, the commands that it runs, and the options that it leaves out."""
    from crystal.work.command_ranking import steps

    commands = [one.command for one in fixed.steps if one.command]
    found = {step for one in commands for step in steps(one)} - set(steps(fixed.command))
    for one in commands:
        found |= {word for word in fixed.command.split() if word.startswith("-")} - set(one.split())
    for one in fixed.steps:
        added, removed = (set(re.findall(r"[a-z]{4,}", "\n".join(lines).lower())) for lines in (one.added, one.removed))
        found |= added - removed
    return found


def ask_fix(machine: Machine, *, is_shown: bool) -> bool:
    """Ask about each failure that was cured, with what came later hidden; the first answers must be right."""
    from crystal.app import fixes
    from crystal.store.sessions.turn_texts import turn_texts
    from crystal.store.work.index import hash_for
    from crystal.store.work.queries import failures_with
    from crystal.work.errors import error_lines

    store, fixes.MAX_FIXES, hash_of = machine.store, ALL_RUNS, hash_for(machine.store)
    found: Counter[str] = Counter()
    for turn, result, at in store.rows(
        "SELECT c.turn, c.result, t.ts FROM work_calls c JOIN turns t ON t.id = c.turn"
        " WHERE c.exit > 0 AND NOT c.is_edit AND c.result IS NOT NULL ORDER BY t.ts"
    ):
        text = turn_texts(store, [result])[result][1]
        uuid = store.value("SELECT uuid FROM turns WHERE id = ?", (turn,))
        real = {one.error: one for one in fixes.fix(machine, text) if one.failed.uuid == uuid}
        if not real:
            continue
        ended = f"SELECT id FROM main.sessions WHERE last_at < {int(at)}"
        store.execute(f"CREATE TEMP VIEW turns AS SELECT * FROM main.turns WHERE session IN ({ended})")
        best = next(iter(fixes.fix(machine, text)), None)
        known = failures_with(store, {hash_of(line.plain) for line in error_lines(text)}, None)
        store.execute("DROP VIEW temp.turns")
        found["questions"] += 1
        found["came before"] += bool(known)
        if best is None:
            continue
        same = [one for error, one in real.items() if plain(error) == plain(best.error)]
        is_right = bool(same and brought_in(same[0]) & brought_in(best))
        found["answered"] += 1
        found["right"] += is_right
        if is_shown:
            print(f"{'right' if is_right else 'WRONG'}: {best.error}\n  {best.steps}\n  really: {same[:1]}")
    controls = unrelated_errors()
    spoken = sum(bool(fixes.fix(machine, text)) for text in controls)
    precision, coverage = found["right"] / max(1, found["answered"]), found["answered"] / max(1, found["questions"])
    print(f"fix: precision {precision:.3f} (at least {FIX_PRECISION}) of {found['answered']} answers")
    came = f"{found['came before']} had an error that had come before"
    print(f"fix: coverage {coverage:.3f} of {found['questions']} failures that were cured; {came}")
    print(f"fix: {spoken} of {len(controls)} unrelated errors answered")
    return precision >= FIX_PRECISION and not spoken


def plain(error: str) -> str:
    """Return an error as it is compared."""
    from crystal.work.errors import plain_error

    return plain_error(error)


def time_questions(machine: Machine) -> bool:
    """Ask about what is in a memory, warm; no kind of question may take too long in the median."""
    from crystal.app.about import about
    from crystal.app.fixes import fix
    from crystal.app.work import changed, how

    store, dice, is_quick = machine.store, random.Random(5), True
    calls = (
        "SELECT c.what, p.cwd, s.session_id FROM work_calls c JOIN turns t ON t.id = c.turn"
        " JOIN projects p ON p.id = t.project JOIN sessions s ON s.id = t.session WHERE c.is_edit = ?"
    )
    edits, runs = store.rows(calls, (1,)), store.rows(calls, (0,))
    questions: dict[str, list[Callable[[], object]]] = {
        "about a file": [partial(about, machine, Path(what).name, project=cwd) for what, cwd, _ in edits],
        "about a word": [partial(about, machine, what.split()[-1], project=cwd) for what, cwd, _ in runs],
        "changed": [partial(changed, machine, session=name) for *_, name in edits],
        "how": [partial(how, machine, " ".join(what.split()[:2]), project=cwd) for what, cwd, _ in runs],
        "fix": [partial(fix, machine, f"{dice.choice(UNKNOWN)} {Path(what).stem}") for what, *_ in edits],
    }
    for kind, able in questions.items():
        times = []
        for question in dice.sample(able, min(len(able), QUESTIONS + 1)):
            begun = time.process_time()
            question()
            times.append((time.process_time() - begun) * 1000)
        middle, late = (sorted(times[1:])[int(share * (len(times) - 2))] for share in (0.5, 0.95))
        print(f"{kind}: {middle:.1f} ms of CPU in the median, {late:.1f} at p95 (at most {QUESTION_MS} in the median)")
        is_quick &= middle <= QUESTION_MS
    return is_quick


def told(found: Counter[tuple[str, str]]) -> bool:
    """Print the figures of each kind of line; whether they are good enough."""
    for kind in sorted({kind for kind, _ in found}):
        lines, answered, right = (found[kind, what] for what in ("lines", "answered", "right"))
        print(f"{kind}: {lines:,} lines, {answered:,} answered, {right:,} right")
    kind = "all sessions there"
    precision = found[kind, "right"] / max(1, found[kind, "answered"])
    coverage = found[kind, "answered"] / max(1, found[kind, "lines"])
    print(f"blame: precision {precision:.3f} (at least {PRECISION}), coverage {coverage:.3f}")
    return precision >= PRECISION and not found["before the sessions", "answered"] + found["dependencies", "answered"]


def git(folder: Path, *words: str) -> str:
    """Return what git prints."""
    return subprocess.run(["git", "-C", str(folder), *words], check=True, capture_output=True, text=True).stdout


def main() -> None:
    """Measure, in a temporary home folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--size", type=parse_size, default=parse_size("20MB"))
    parser.add_argument("--show", action="store_true", help="show what fix answers")
    for name in ("--sessions", "--repository", "--commits"):
        parser.add_argument(name, type=lambda path: Path(path).resolve())
    parser.add_argument("--memory", type=Path, help="a home folder with a memory, of which questions are timed")
    given = parser.parse_args()
    if given.memory is not None:
        os.environ |= {"HOME": str(given.memory), "CRYSTAL_EMBEDDING_PROVIDER": "none"}
        from crystal.app.context import open_reader

        with open_reader() as machine:
            sys.exit(0 if time_questions(machine) else 1)
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"HOME": home, "CRYSTAL_REFLECT_MODE": "off", "CRYSTAL_EMBEDDING_PROVIDER": "none"}
        os.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"
        if given.sessions is None:
            generate(Path(home) / "sessions", given.size)
        from crystal.app.context import open_machine

        with open_machine() as machine:
            is_good = capture_and_index(machine, given.sessions or Path(home) / "sessions")
            if given.repository is not None and given.commits is not None:
                is_good &= ask_blame(machine, given.repository, given.commits)
            if given.sessions is not None:
                is_good &= ask_how(machine)
                is_good &= ask_fix(machine, is_shown=given.show)
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
