"""Random histories of a repository: edits, rewrites, reverts, new names, formatters, amended and rebased commits."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from crystal.app import validity, working_tree
from crystal.app.validity import Subject
from crystal.store import Store
from tests.app.test_validity import commit, edit, git, judged, shop

__all__ = ["shop"]
STEPS = 24


@dataclass
class Made:
    """An edit, where its lines are now, and what became of them."""

    subject: Subject
    path: str
    number: int
    state: str = "unchanged"
    moves: int = 0

    @property
    def is_far(self) -> bool:
        return self.moves >= working_tree.MAX_RENAMES


class RandomHistory:
    """Something happens to the repository at each step; what must be said of each edit is known by then."""

    def __init__(self, store: Store, folder: Path, seed: int) -> None:
        self.store, self.folder, self.dice = store, folder, random.Random(seed)
        self.hour, self.made, self.ends = 1.0, list[Made](), {}
        for name in ("a.py", "b.py"):
            lines = [f"# {name}: the place {at} for an edit" for at in range(40)]
            (folder / name).write_text("\n".join(lines) + "\n")
        self.after()

    def after(self) -> None:
        self.hour += 1
        commit(self.folder, self.hour)

    def new_edit(self) -> None:
        path, number = self.dice.choice(self.paths()), len(self.made)
        place = f"# {self.first_name(path)}: the place {number} for an edit"
        if place in (self.folder / path).read_text():
            subject = edit(self.store, self.folder, self.hour + 0.5, place, self.block(number), path)
            self.made.append(Made(subject, path, number))
            self.after()

    def block(self, number: int) -> str:
        return "\n".join(f"value_{number}_{at} = compute('{number}', {at})" for at in range(3))

    def first_name(self, path: str) -> str:
        return next(name for name in ("a.py", "b.py") if name in (self.folder / path).read_text())

    def paths(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("*.py") if path.name not in ("cart.py", "twice.py"))

    def rewrite(self) -> None:
        if one := self.some("unchanged"):
            self.replace(one.path, f"compute({self.quoted(one)}, 1)", "compute_otherwise()")
            one.state = "changed"
            self.after()

    def quoted(self, one: Made) -> str:
        text = (self.folder / one.path).read_text()
        return f'"{one.number}"' if f'"{one.number}"' in text else f"'{one.number}'"

    def take_back(self) -> None:
        if one := self.some("unchanged"):
            lines = (self.folder / one.path).read_text().split("\n")
            first = next(at for at, line in enumerate(lines) if f"value_{one.number}_0" in line)
            lines[first : first + 3] = [one.subject.text.split("old_string: ")[1].split("\n")[0]]
            (self.folder / one.path).write_text("\n".join(lines))
            one.state = "reverted"
            self.after()

    def some(self, state: str) -> Made | None:
        return self.dice.choice([one for one in self.made if one.state == state] or [None])

    def replace(self, path: str, old: str, new: str) -> None:
        text = (self.folder / path).read_text()
        assert old in text
        (self.folder / path).write_text(text.replace(old, new))

    def move(self) -> None:
        path = self.dice.choice(self.paths())
        new = f"moved_{int(self.hour)}.py"
        git(self.folder, "mv", path, new)
        for one in self.made:
            one.moves += one.path == path
            one.path = new if one.path == path else one.path
        self.after()

    def reformat(self) -> None:
        path = self.folder / self.dice.choice(self.paths())
        text = path.read_text().replace("'", '"').replace(" = ", self.dice.choice(["=", "  =  "]))
        ends = self.dice.choice(["\n", "\r\n"])
        path.write_bytes(text.replace("\n", ends).encode())
        self.after()

    def amend(self) -> None:
        self.hour += 1
        git(self.folder, "commit", "-q", "--amend", "--no-edit", "--allow-empty", hour=self.hour)

    def rebase(self) -> None:
        git(self.folder, "checkout", "-q", "-b", "side", "HEAD~1")
        (self.folder / f"side_{int(self.hour)}.txt").write_text("x")
        self.after()
        git(self.folder, "checkout", "-q", "main")
        git(self.folder, "rebase", "-q", "side", hour=self.hour + 0.5)
        git(self.folder, "branch", "-q", "-D", "side")
        self.hour += 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 7, 17, 426])
def test_every_edit_is_judged_right(store: Store, shop: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(working_tree, "GIT_SECONDS", 20.0)
    monkeypatch.setattr(validity, "LOOK_SECONDS", 60.0)
    history = RandomHistory(store, shop, seed)
    steps = [history.new_edit, history.new_edit, history.new_edit, history.rewrite, history.take_back, history.move,
             history.reformat, history.amend, history.rebase]  # fmt: skip
    for _ in range(STEPS):
        history.dice.choice(steps)()
    found = judged(*(one.subject for one in history.made))
    said = [one and (one.state, one.what) for one in found]
    right = [(one.state, one.path) for one in history.made]
    assert_right(said, right, is_far=any(one.is_far for one in history.made))
    gone = history.dice.choice(history.made)
    (shop / gone.path).unlink()
    history.after()
    assert_right([one and one.state for one in judged(gone.subject)], ["gone"], is_far=gone.is_far)


def assert_right(said: Sequence[object], right: Sequence[object], is_far: bool) -> None:
    """Check what is said; of a file with more new names than are followed, nothing may be said instead."""
    assert all(one == true or (is_far and one is None) for one, true in zip(said, right, strict=True)), (said, right)
