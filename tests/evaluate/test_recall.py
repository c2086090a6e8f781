"""Claims about ``crystal recall test``: what it asks, what counts as found, what it says of what was not."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from crystal.app.context import Machine, default_paths, open_reader
from crystal.app.search import prepare_search
from crystal.evaluate.recall import ASKED, KINDS, RecallReport, measure_recall
from crystal.model.recall import Filters
from crystal.search.engine import search
from crystal.search.request import SearchResult
from crystal.store.search.trials import sample_turns
from tests.project.test_docs_reference import documented, keys_of, pattern_of
from tests.support.capture_machine import NOW, keep_transcript, line
from tests.support.command import crystal

NOUNS = "invoice ledger parser socket harbor lantern orchard pylon quarry rocket saddle tunnel violin walnut zipper"
VERBS = "rejects rewrites delays duplicates encrypts forwards groups hides ignores joins keeps loads merges"


def said(number: int) -> str:
    draw = random.Random(number)
    noun, verb = (lambda: draw.choice(NOUNS.split())), (lambda: draw.choice(VERBS.split()))
    sentences = (f"The {noun()} of part {number} {verb()} every {noun()} before {noun()} in time." for _ in range(4))
    return f"{' '.join(sentences)} See src/{noun()}_{number}.py for it."


@pytest.fixture
def memory(home: Path) -> Iterator[Machine]:
    folder = home / ".claude" / "projects" / "p"
    folder.mkdir(parents=True)
    for session in range(3):
        lines = [
            line(said(30 * session + n), role="user" if n % 2 == 0 else "assistant", at=NOW + n) for n in range(30)
        ]
        (folder / f"{session}.jsonl").write_bytes(b"".join(lines))
    assert crystal("init", "--yes", "--import").code == 0
    with open_reader() as machine:
        yield machine


def measured(machine: Machine, *, lost: int = 0, **more: object) -> RecallReport:
    """Test recall over a search that withholds its first ``lost`` hits."""
    sources, request = prepare_search(machine, "", 1, Filters())

    def ask(question: str, limit: int) -> SearchResult:
        found = search(sources, replace(request, query=question, limit=limit))
        return replace(found, hits=found.hits[lost:])

    return measure_recall(machine.store, ask, **{"for_each": 5, "seconds": 600.0, **more})  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_command_says_how_each_kind_fares_writes_nothing_and_asks_the_same_again(memory):
    before = default_paths().db.read_bytes()
    first, second = (json.loads(crystal("recall", "test", "--questions", "5", "--json").out) for _ in range(2))
    assert {one["kind"]: one["questions"] for one in first["kinds"]} == dict.fromkeys(KINDS, 5)
    places = [[(one["question"], one["rank"]) for one in report["missed"]] for report in (first, second)]
    assert places[0] == places[1]
    assert default_paths().db.read_bytes() == before
    shown = crystal("recall", "test", "--questions", "5")
    assert shown.code == 0
    assert shown.out.startswith("30 questions made from ")
    assert all(re.search(rf"^{kind}  +5  ", shown.out, re.MULTILINE) for kind in KINDS)
    assert all(len(each) <= 100 for each in shown.out.splitlines())
    patterns = [pattern_of(each) for each in documented("crystal recall test")]
    assert not [key for key in keys_of(first) if not any(re.fullmatch(each, key) for each in patterns)]


@pytest.mark.slow
def test_a_question_is_made_of_its_turn_and_what_search_loses_is_named_with_a_reason(memory):
    texts = [one.text for one in sample_turns(memory.store, 1000, least=1)]
    whole, lossy = measured(memory), measured(memory, lost=5)
    assert min(one.score.hit_at_5 for one in whole.kinds if one.kind in ("a sentence", "a name and two words")) > 0.7
    assert max(one.score.hit_at_5 for one in lossy.kinds if one.kind == "a name and two words") < 0.5
    assert [one.score.hit_at_5 for one in lossy.kinds] == sorted(one.score.hit_at_5 for one in lossy.kinds)
    assert len(lossy.missed) > len(whole.missed)
    for one in lossy.missed:
        assert one.answer in texts
        assert one.rank is None or one.rank > 5
        assert one.why
        if one.kind not in (ASKED, "three words and the day"):
            assert all(word in one.answer.lower() for word in one.question.strip('"').lower().split())


@pytest.mark.slow
def test_what_is_repeated_is_no_answer_and_days_are_those_of_the_zone(memory):
    sampled = [one for one in sample_turns(memory.store, 1000, least=1) if one.before is not None]
    sources, request = prepare_search(memory, "", 1, Filters())
    repeated = {one.before for one in sampled}

    def only_the_question(question: str, limit: int) -> SearchResult:
        found = search(sources, replace(request, query=question, limit=limit))
        return replace(found, hits=tuple(hit for hit in found.hits if hit.text in repeated)[:1])

    report = measure_recall(memory.store, only_the_question, for_each=5, seconds=600)
    assert next(one.score.hit_at_5 for one in report.kinds if one.kind == ASKED) == 0
    assert KINDS["three words and the day"](sampled[0]).endswith("on 2026-11-18")  # type: ignore[union-attr]


@pytest.mark.slow
def test_a_test_ends_in_time(memory):
    ticks = iter(range(10_000))
    report = measured(memory, seconds=20.0, clock=lambda: float(next(ticks)))
    assert report.is_cut
    assert 0 < sum(one.questions for one in report.kinds) < 30


def test_a_memory_without_enough_to_ask_says_what_to_do(home):
    keep_transcript(home, "one", line(said(1)), line(said(2), role="assistant"))
    crystal("init", "--yes", "--import")
    done = crystal("recall", "test")
    assert (done.code, done.out) == (3, "")
    assert "10 are needed" in done.err
    assert "crystal backfill" in done.err
