"""Whole machines, a relay between them, and somebody who talks, remembers and forgets on any of them.

Everything that is said has a word of its own, so that one look into any bytes tells whether it is there. The wiring is
the real one; only the clock, the way to the relay and the end of a process are the test's.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from crystal.app.background import enrich
from crystal.app.capture import run_capture
from crystal.app.context import Machine
from crystal.app.forget import execute_plan, plan_forget
from crystal.app.forget_rest import finish_forgetting
from crystal.app.import_past import import_sessions, plan_import
from crystal.app.integrity import prove, repair_all, restore_session
from crystal.app.memories import remember
from crystal.app.memory_changes import edit
from crystal.app.sync.device import deliver_relay
from crystal.app.sync.home import poll_relay
from crystal.app.sync.roles import demote, promote
from crystal.errors import CrystalError
from crystal.forgetting.request import ForgetPlan, ForgetRequest
from crystal.sync.client import RelayClient
from tests.support.archive_frames import frames_in
from tests.support.capture_machine import line
from tests.support.forgetting_places import Crash, Death, Machines, Place, Said, opened_outbox

HOUR = 3_600_000
LONG = 6_000
LETTERS = "bcdfghjklmnpqrstvwxz"


@dataclass
class World(Machines):
    """Somebody who talks, remembers and forgets on any of the machines."""

    # -- what people do ----------------------------------------------------------------------------------------------

    def word(self) -> str:
        return "q" + "".join(self.dice.choices(LETTERS, k=9))

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def say(self, place: Place, session: str, *, turns: int = 2, cwd: str = "/home/dev/quartz") -> list[Said]:
        """Talk in a session: what the client writes besides, too."""
        lines: list[bytes] = []
        told = []
        for number in range(turns):
            said = Said(
                self.word(), str(uuid.UUID(int=self.dice.getrandbits(128))), session, cwd, self.now(), place.name
            )
            text = f"let us speak of {said.word} now\nand of nothing else, {number}"
            role = ("user", "assistant")[number % 2]
            shape = self.dice.randrange(6)
            more: dict[str, object] = {
                "ident": said.uuid,
                "role": role,
                "at": said.at,
                "cwd": cwd,
                "sessionId": session,
            }
            if shape == 0:  # a long result, of which the store has head and tail
                padding = LONG + len(self.said) * 4 + number  # two that differ in length are not the same
                block = {"type": "tool_result", "tool_use_id": "t", "content": "x " * padding + text + " y" * LONG}
                lines.append(line("", **{**more, "role": "user", "message": {"role": "user", "content": [block]}}))
            else:
                lines.append(line(text, **more))
            if shape == 1:
                lines.append(_note({"type": "last-prompt", "lastPrompt": text, "sessionId": session}))
                lines.append(_note({"type": "queue-operation", "operation": "enqueue", "content": text}))
            if shape == 2:
                lines.append(_note({"type": "ai-title", "aiTitle": f"about {said.word}", "sessionId": session}))
            if shape == 3:
                summary = f"This session is being continued. They said: {text}"
                lines.append(line(summary, at=said.at + 1, cwd=cwd, isCompactSummary=True, sessionId=session))
            told.append(said)
        with place.transcript(session, cwd).open("ab") as file:
            file.writelines(lines)
        self.said += told
        self.log.append(f"say {place.name} {session} {[one.word for one in told]}")
        return told

    def echo(self, place: Place, session: str, cwd: str) -> None:
        """The client writes down once more what was said before: when a session is resumed, or compacted."""
        before = [one for one in self.said if (one.session, one.machine) == (session, place.name)]
        path = place.transcript(session, cwd)
        if not before or not path.exists():
            return
        one = self.dice.choice(before)
        text = f"let us speak of {one.word} now\nand of nothing else"
        note = _note({"type": "last-prompt", "lastPrompt": text, "sessionId": session})
        title = _note({"type": "ai-title", "aiTitle": f"about {one.word}", "sessionId": session})
        summary = line(f"They said: {text}", at=self.now(), cwd=cwd, isCompactSummary=True, sessionId=session)
        with path.open("ab") as file:
            file.write(self.dice.choice([note, title, summary]))
        self.log.append(f"echo {place.name} {session} {one.word}")

    def copy(self, source: Path, place: Place, session: str, cwd: str) -> None:
        """A fork of a session, or the same file on another machine."""
        target = place.transcript(session, cwd)
        if target.exists() or not source.exists():
            return
        target.write_bytes(source.read_bytes())
        self.copied |= {one.word for one in self.said if one.uuid.encode() in source.read_bytes()}
        self.log.append(f"copy {source.stem} to {place.name} {session}")

    # -- what machines do --------------------------------------------------------------------------------------------

    def do(self, what: str, place: Place, step: Callable[[Machine], object]) -> object:
        """Take a step as a process of its own; it may be killed."""
        self.log.append(f"{what} {place.name}")
        try:
            with place.open() as machine:
                return step(machine)
        except Crash:
            self.log[-1] += " KILLED"
            gc.collect()
        except CrystalError as error:
            self.log[-1] += f" {type(error).__name__}: {error.message}"
        return None

    def capture(self, place: Place) -> None:
        self.do("capture", place, lambda machine: run_capture(machine, lambda capture: capture.sweep()))

    def backfill(self, place: Place) -> None:
        self.do("backfill", place, lambda machine: import_sessions(machine, plan_import(machine, [], None), _nothing))

    def tend(self, place: Place) -> None:
        self.do("tend", place, lambda machine: enrich(machine, budget_seconds=30))

    def finish(self, place: Place) -> None:
        self.do("finish", place, finish_forgetting)

    def sync(self, place: Place) -> None:
        if place.is_home:
            self._relayed("poll", place, poll_relay)
        else:
            self._relayed("deliver", place, partial(deliver_relay, skip_delay=True))

    def _relayed(self, what: str, place: Place, step: Callable[[Machine, RelayClient], object]) -> None:
        def over_the_relay(machine: Machine) -> object:
            with place.client(machine) as client:
                return step(machine, client)

        self.do(what, place, over_the_relay)

    def move_home(self, new_home: Place) -> None:
        """Let a device be home, and home its device."""
        old = self.home
        self._relayed("demote", old, lambda machine, client: demote(machine, new_home.name, client=client))
        self._relayed("promote", new_home, lambda machine, client: promote(machine, client=client))
        old.is_home, new_home.is_home = False, True
        with new_home.open() as machine:
            assert machine.config.role == "home", self.log

    def bring_back(self, place: Place, session: str) -> None:
        """Let the client have an archived session again, as it is archived."""
        target = self.folder / "elsewhere"
        self.do("restore", place, lambda machine: restore_session(machine, session, target, dry_run=False))

    def repair(self, place: Place) -> None:
        self.do("repair", place, lambda machine: repair_all(machine, prove(machine, _nothing)))

    def remember(self, place: Place) -> None:
        word = self.word()
        found = self.do("remember", place, lambda machine: remember(machine, f"the wind says {word} in the morning"))
        if found is not None:
            self.memories[word] = found.id  # type: ignore[attr-defined]
            self.log[-1] += f" {word} {found.id}"  # type: ignore[attr-defined]
        else:
            self.unsure.add(word)

    def edit(self, place: Place, word: str) -> None:
        """Give a memory other words; what it said before is its history."""
        new, ident = self.word(), self.memories[word]
        found = self.do("edit", place, lambda machine: edit(machine, ident, text=f"the wind says {new} at noon"))
        if found is not None:
            self.memories[new] = ident
            self.unsure.add(word)
        else:
            self.unsure |= {word, new}

    def forget(self, place: Place, wish: ForgetRequest) -> ForgetPlan | None:
        """Forget, as the plan lists it. What a plan lists is gone from then on, however often the process dies."""
        plan = self.do(f"plan {wish}", place, lambda machine: plan_forget(machine, wish))
        if not isinstance(plan, ForgetPlan) or plan.is_empty:
            return None
        words = self._listed(plan) | self._meant(plan)
        before = self._tombstones(place)
        done = self.do(f"forget {sorted(words)}", place, lambda machine: execute_plan(machine, plan))
        if done is None and not self._is_noted(place, plan):
            return None  # killed before anything was noted
        self.gone |= words
        self.orders.append((words, self._tombstones(place) - before))
        self.unsure |= self._doubtful(plan) - words
        return plan

    def _tombstones(self, place: Place) -> set[str]:
        death, self.death = self.death, None
        with place.open() as machine:
            found = {uid for (uid,) in machine.store.rows("SELECT uid FROM tombstones")}
        self.death = death
        return found

    def _listed(self, plan: ForgetPlan) -> set[str]:
        """The words of what a plan lists."""
        ids = {item.uuid for item in plan.items}
        said = {one.word for one in self.said if one.uuid in ids}
        return said | {word for word, ident in self.memories.items() if ident in ids}

    def _meant(self, plan: ForgetPlan) -> set[str]:
        """The words that a scope takes in on any machine, also where nobody has captured them yet."""
        words: set[str] = set()
        for kind, value, until in plan.kinds:
            for one in self.said:
                is_meant = {
                    "session": one.session == value.get("session") and one.word not in self.copied,
                    "project": any(one.cwd.startswith(folder) for folder in value.get("folders", ())),
                    "before": until is not None and one.at < until,
                }.get(kind, False)
                words |= {one.word} if is_meant else set()
        return words

    def _doubtful(self, plan: ForgetPlan) -> set[str]:
        """Words that a scope may take in elsewhere: copies in other sessions, and what others remember."""
        kinds = {kind for kind, _, _ in plan.kinds}
        doubtful = set(self.copied) if "session" in kinds else set()
        return doubtful | (set(self.memories) if kinds & {"before", "project"} else set())

    def _is_noted(self, place: Place, plan: ForgetPlan) -> bool:
        self.death = None  # the next process looks
        with place.open() as machine:
            known = {line for (line,) in machine.store.rows("SELECT uuid FROM private_lines")}
            found = machine.store.rows("SELECT value FROM tombstones")
        memories = {uid for (text,) in found for uid in json.loads(text).get("memories", [])}
        wanted = [item for item in plan.items if item.uuid]
        noted = [item for item in wanted if item.uuid in known or item.uuid in memories]
        assert len(noted) in (0, len(wanted)), f"half of a plan was noted: {noted}"
        return bool(noted) or not wanted

    # -- weather and fate --------------------------------------------------------------------------------------------

    def pass_time(self, ms: int) -> None:
        self.ahead += ms
        self.site.now = self.now()

    @contextlib.contextmanager
    def dying(self, *, statements: int = -1, files: int = -1) -> Iterator[Death]:
        """Let the next process be killed."""
        self.death = Death(statements, files)
        try:
            yield self.death
        finally:
            self.death = None

    def keep_backup(self, place: Place) -> None:
        copy = self.folder / "backup"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(place.ldm, copy)
        self.backup = (place, copy)
        self.remembered_then = set(self.memories)
        self.log.append(f"backup {place.name}")

    def restore_backup(self) -> Place | None:
        if self.backup is None:
            return None
        place, copy = self.backup
        shutil.rmtree(place.ldm)
        shutil.copytree(copy, place.ldm)
        self.backup = None
        # What only this machine knew and nobody was told is lost with it, also that something was forgotten.
        self.unsure |= set(self.memories) - self.remembered_then
        known = set().union(*map(self._tombstones, self.places))
        told = set().union(*(words for words, uids in self.orders if uids & known))
        lost = self.gone - told
        self.unsure |= lost
        self.gone -= lost
        self.log.append(f"restored {place.name}")
        return place

    def rest(self, rounds: int = 5) -> None:
        """Let good weather come, and everybody do what there is to do."""
        self.death = None
        told = len(self.log)
        for place in self.places:
            place.storm.clear()
        for _ in range(rounds):
            self.pass_time(7 * HOUR)
            for place in self.places:
                self.capture(place)
                self.sync(place)
                self.finish(place)
            for place in self.places:
                self.tend(place)
                self.finish(place)
        self.log[told:] = ["rest", *(word for word in self.log[told:] if ":" in word)]

    # -- what is there in the end ------------------------------------------------------------------------------------

    def assert_forgotten(self) -> None:
        """No file of any machine holds a word that was forgotten, in whatever way it can be read."""
        words = {word.encode() for word in self.gone}
        if not words:
            return
        left = [f"{name}: {word.decode()}" for name, data in self.everything() for word in words if word in data]
        assert not left, "\n".join([*sorted(set(left)), *self.log])

    def everything(self) -> Iterator[tuple[str, bytes]]:
        """Every byte of crystal's: files as they are, archives decompressed, blobs opened."""
        for place in self.places:
            for path in sorted(place.ldm.rglob("*")):
                if path.is_file():
                    name = f"{place.name}/{path.relative_to(place.ldm)}"
                    yield name, path.read_bytes()
                    if ".zst" in path.name:
                        yield from ((f"{name} opened", text) for text in frames_in(path))
            with place.open() as machine:
                yield from ((f"{place.name} outbox", payload) for payload in opened_outbox(machine))
        for folder, _, names in os.walk(self.folder / "relay"):  # the relay tidies up meanwhile
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    yield f"relay/{name}", (Path(folder) / name).read_bytes()

    def staying(self) -> dict[str, Said]:
        """What was said and not forgotten, by its line's id."""
        return {one.uuid: one for one in self.said if one.word not in self.gone | self.unsure}

    def assert_kept(self) -> None:
        """Everything else that was said is at home exactly once: as a turn, in the index, in the archive."""
        staying = self.staying()
        with self.home.open() as machine:
            rows = machine.store.rows("SELECT uuid, part FROM turns")
            turns = Counter(uuid for uuid, _ in rows)
            missing = [one.word for uuid, one in staying.items() if turns[uuid] != 1]
            assert not missing, "\n".join([f"not once at home: {missing}", *self.log])
            archived: Counter[str] = Counter()
            for path in (self.home.ldm / "agents").glob("*/memory/transcripts/**/*.zst"):
                seen = set()
                for text in frames_in(path):
                    for each in text.split(b"\n")[:-1]:
                        seen.add(json.loads(each).get("uuid") if each.strip() else None)
                archived.update(ident for ident in seen if ident)
            lost = [one.word for uuid, one in staying.items() if not archived[uuid]]
            assert not lost, "\n".join([f"not in home's archive: {lost}", *self.log])
            assert machine.store.value("PRAGMA quick_check") == "ok"
            remembered = {text for (text,) in machine.store.rows("SELECT text FROM memories")}
        gone = [
            word
            for word, _ in self.memories.items()
            if word not in self.gone | self.unsure and not any(word in text for text in remembered)
        ]
        assert not gone, "\n".join([f"memories that home lacks: {gone}", *self.log])


def _nothing(_: int) -> None:
    return None


def _note(fields: dict[str, object]) -> bytes:
    return json.dumps(fields).encode() + b"\n"
