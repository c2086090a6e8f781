"""Claims of what a short answer stands for."""

from __future__ import annotations

import pytest

from crystal.store import Store
from crystal.store.work.index import make_again
from crystal.store.work.queries import calls
from crystal.work.short_answers import in_words
from tests.support.store_factory import NOW, add_turn
from tests.support.work_sessions import did

LIST = (
    "Earlier: 3. nothing\n\n1. A queue\n2. **A lock file** (slow)\n3) Write the sums in the `nightly` job\n\nWhich one?"
)
LETTERS = "**Option A: Keep it**\n\n- (b) Drop it\n\n### C. Move it\n\nShall I move it? I can also wait."


@pytest.mark.parametrize(
    ("answer", "before", "words"),
    [
        ("3", LIST, "3: Write the sums in the `nightly` job"),
        (" 2. ", LIST, "2: A lock file (slow)"),
        ("option 1 please", LIST, "option 1 please: A queue"),
        ("i like option c", LETTERS, "i like option c: Move it"),
        ("A", LETTERS, "A: Keep it"),
        ("b!", LETTERS, "b: Drop it"),
        ("yes", LETTERS, "yes: Shall I move it?"),
        ("yes, please do", LETTERS, "yes, please do: Shall I move it?"),
        ("4", LIST, "4"),
        ("12", "12 files were read", "12"),
        ("yes", "Done.", "yes"),
        ("3", None, "3"),
        ("", LIST, ""),
        ("fix 3 tests", LIST, "fix 3 tests"),
        ("yes, but use a queue", LIST, "yes, but use a queue"),
    ],
)
def test_a_short_answer_is_told_with_what_it_stands_for(answer: str, before: str | None, words: str) -> None:
    assert in_words(answer, before) == words


def test_a_call_answers_the_choice_in_words(store: Store) -> None:
    place = {"session": "one", "project": "/a/shop"}
    add_turn(store, f"{'Much was read before. ' * 200}\n{LIST}", ts=NOW, role="assistant", **place)
    add_turn(store, "3", ts=NOW + 10, role="user", **place)
    add_turn(store, "I write it now.", ts=NOW + 20, role="assistant", **place)
    edit = {"file_path": "/a/shop/cart.py", "old_string": "a = 1", "new_string": "total = nightly_sum(rows)"}
    did(store, "one", NOW + 30, "Edit", edit, "updated", "/a/shop")
    make_again(store)
    turn = store.value("SELECT turn FROM work_calls")
    assert calls(store, [turn], "local")[turn].request == "3: Write the sums in the `nightly` job"
