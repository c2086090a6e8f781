"""Both sides change, and the process is killed anywhere: nothing is lost, nothing doubled, and both agree in the end."""

from __future__ import annotations

import itertools
import re
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from crystal.app import vault as app
from crystal.app.context import Machine
from crystal.app.memories import remember
from crystal.app.memory_changes import edit
from crystal.app.memory_queries import history, list_memories
from crystal.app.vault import VaultReport, vault_sync
from crystal.config.load import load_config
from crystal.errors import UnavailableError
from crystal.model.recall import Remembered
from crystal.store import Store
from crystal.vault import folder as files
from crystal.vault.note import changed_fields, parse_note, render_note, text_of_memory, unfinished, with_id
from tests.support.examples import examples
from tests.support.killed import killed_at_call

TOKEN = re.compile(r"token\d+x")
NUMBER = st.integers(0, 5)


def memory(text: str, key: str | None = None, project: str | None = None) -> Remembered:
    return Remembered(
        "mem-0123456789ab", text, "fact", key, project, project, "active", "cli", "cc-mini", "box", None, 1, 2
    )


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60)
SOME = TEXT.filter(str.strip)


@given(SOME, st.none() | SOME, st.none() | SOME, st.lists(st.sampled_from(["tags: [a]", "x:", "  - id: y", "", "id"])))
def test_a_memory_read_back_is_the_same(text: str, key: str | None, project: str | None, others: list[str]) -> None:
    one = memory(text, key, project)
    written = render_note(one, None, keeps_body=False)
    assert changed_fields(parse_note(written), one) == {}
    before = parse_note(written.replace("---\n", "\n".join(["---", *others, ""]), 1))
    again = render_note(one, before, keeps_body=True)
    assert changed_fields(parse_note(again), one) == {}
    assert parse_note(again).others == tuple(others)
    assert parse_note(again).body == before.body


@given(TEXT, st.lists(st.sampled_from(["---", "id: x", "kind: fact", "tags:", "- a", 'key: "', "..."]), max_size=8))
def test_an_id_is_added_and_nothing_else(text: str, lines: list[str]) -> None:
    for whole in (text, "\n".join([*lines, text]), "\n".join(["---", *lines, "---", text])):
        after = parse_note(with_id(whole, "mem-0123456789ab"))
        before = parse_note(whole)
        assert after.fields["id"] == "mem-0123456789ab"
        assert after.text == before.text
        assert [one for one in after.others if not one.startswith("id")] == [
            one for one in before.others if not one.startswith("id")
        ]


class World:
    """A machine, its vault, and every text that somebody wrote."""

    def __init__(self, base: Path, store: Store) -> None:
        self.machine = Machine(load_config({}, base / "home"), store)
        self.root = base / "vault"
        self.root.mkdir()
        self.written: set[str] = set()
        self.may_go: set[str] = set()
        self.tokens = (f"token{number}x" for number in itertools.count())

    def new(self) -> str:
        token = next(self.tokens)
        self.written.add(token)
        return token

    def active(self, number: int) -> Remembered | None:
        found = sorted(list_memories(self.machine), key=lambda one: one.id)
        return found[number % len(found)] if found else None

    def file(self, number: int) -> Path | None:
        found = sorted((self.root / "memories").glob("*.md"))
        return found[number % len(found)] if found else None

    def remember(self, _: int) -> None:
        remember(self.machine, self.new())

    def edit(self, number: int) -> None:
        if (one := self.active(number)) is not None:
            edit(self.machine, one.id, text=self.new())

    def new_file(self, number: int) -> None:
        (self.root / "memories").mkdir(exist_ok=True)
        (self.root / "memories" / f"note {number} a.md").write_text(self.replaced(f"note {number} a.md", self.new()))

    def replaced(self, name: str, text: str) -> str:
        """Return a text that the person puts in the place of a file, whose own words may go with it."""
        path = self.root / "memories" / name
        self.may_go |= set(TOKEN.findall(path.read_text())) if path.exists() else set()
        return text

    def edit_file(self, number: int) -> None:
        if (path := self.file(number)) is not None:
            path.write_text(self.replaced(path.name, TOKEN.sub(self.new(), path.read_text())))

    def delete_file(self, number: int) -> None:
        if (path := self.file(number)) is not None:
            self.replaced(path.name, "")
            path.unlink()

    def rename_file(self, number: int) -> None:
        if (path := self.file(number)) is not None:
            path.rename(path.with_name(f"renamed {len(self.written)} {number} b.md"))

    def said(self, one: Remembered) -> set[str]:
        return {
            *TOKEN.findall(one.text),
            *(word for was in history(self.machine, one.id) for word in TOKEN.findall(was.text)),
        }

    def sync(self, prefer: Any = None) -> VaultReport | None:
        try:
            with vault_sync(self.machine, self.root) as found:
                for one in found.changes.deleted.values():
                    self.may_go |= self.said(one)
                return found.run(prefer)
        except UnavailableError:
            with vault_sync(self.machine, self.root, restores=True) as found:
                return found.run(prefer)

    def killed_sync(self, after: int) -> None:
        """Sync, and kill it before or after one of its writes."""
        calls = (
            (files, "replace_file"), (files, "write_private"), (app, "remember"), (app, "edit"), (app, "execute_without_vault"),
        )  # fmt: skip
        with killed_at_call(calls, after):
            self.sync()

    def check(self) -> None:
        known = list_memories(self.machine, limit=10_000)
        kept = {word for one in known for word in self.said(one)}
        lost = self.written - kept - self.may_go
        here = "".join(path.read_text() for path in (self.root / "memories").glob("*.md"))
        assert not {word for word in lost if word not in here}
        assert len({one.text for one in known}) == len(known)


KINDS = ("remember", "edit", "new_file", "edit_file", "delete_file", "rename_file")
STEP = st.one_of(
    st.tuples(st.sampled_from(KINDS), NUMBER), st.tuples(st.just("killed_sync"), st.integers(0, 16)),
    st.tuples(st.just("sync"), st.just(None)),
)  # fmt: skip


@examples(40)
@given(st.lists(STEP, min_size=4, max_size=14), st.sampled_from(["file", "crystal"]))
def test_nothing_is_lost_or_doubled(steps: list[tuple[str, Any]], prefer: str) -> None:
    with tempfile.TemporaryDirectory() as base, Store.open(Path(base) / "a.db") as store:
        store.execute("PRAGMA synchronous = OFF")
        world = World(Path(base).resolve(), store)
        for name, value in steps:
            getattr(world, name)(value)
            world.check()
        world.sync(prefer)
        world.sync(prefer)
        world.check()
        last = world.sync()
        assert last == VaultReport(str(world.root))
        paths = (world.root / "memories").glob("*.md")
        found = sorted(parse_note(path.read_text()).text for path in paths)
        assert found == sorted(text_of_memory(one) for one in list_memories(world.machine, limit=10_000))
        assert not list(world.root.rglob("*.tmp"))


def test_lines_that_begin_a_merge_without_end_are_read_once() -> None:
    assert unfinished("<<<<<<< ours\n" * 100_000) is None  # in quadratic time, that would be minutes
    assert unfinished("<<<<<<< ours\n>>>>>>> theirs\n") is not None
