"""Claims of transcript/opencode.py: what a fork or a later version copies comes once, and its newest state counts."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import apsw

from crystal.model.capture import Turn
from crystal.transcript.line_context import complete
from crystal.transcript.opencode import READER
from crystal.transcript.snapshot import Snapshot
from tests.support.agent_samples import snapshot_of
from tests.support.table import each_row

DATA = Path(__file__).parents[1] / "data/agents/opencode/home/.local/share/opencode"


@contextlib.contextmanager
def opened(name: str) -> Iterator[tuple[apsw.Connection, Snapshot]]:
    db = apsw.Connection(":memory:")
    db.execute((DATA / f"{name}.sql").read_text("utf-8")).fetchall()

    yield db, snapshot_of(db, name)
    db.close()


def said(source: Snapshot) -> dict[str, list[Turn]]:
    """Return the turns of each conversation, the copies too."""
    turns = {}
    for talk in READER.conversations(source):
        lines = [
            complete(record.line, record.context._replace(session=talk.session, id=f"opencode:{record.id}"))
            for record in READER.records(source, talk)
        ]
        key = talk.subagent or talk.session
        turns[key] = list(READER.turns(enumerate(lines), key, subagent=talk.subagent is not None))
    return turns


def identities(turns: list[Turn]) -> list[tuple[str, int, str]]:
    return [(turn.uuid, turn.part, turn.text) for turn in turns]


def test_a_fork_gives_what_it_copies_with_the_ids_of_the_original() -> None:
    with opened("opencode.db") as (_, source):
        turns = said(source)
    original = identities(turns["ses_dfdd5aa76ffeBmZ9VNxqaFhIEW"])
    fork = identities(turns["ses_dfdd524c4ffegCcKsSVqtnFfHp"])
    assert len(original) == 4
    assert fork[:4] == original
    assert [text for _, _, text in fork[4:]] == ["And a forked question?", 'Mock reply to: "And a forked question?"']


def test_what_remains_when_a_fork_or_its_original_loses_its_first_prompt_keeps_its_ids() -> None:
    fork, original = "ses_dfdd524c4ffegCcKsSVqtnFfHp", "ses_dfdd5aa76ffeBmZ9VNxqaFhIEW"
    for loser in (fork, original):
        with opened("opencode.db") as (db, source):
            whole = {one for turns in said(source).values() for one in identities(turns)}
            first = "SELECT id FROM message WHERE session_id = ? ORDER BY data -> '$.time.created' LIMIT 1"
            db.execute(f"DELETE FROM message WHERE id = ({first})", (loser,)).fetchall()
            left = said(source)
        assert {one for turns in left.values() for one in identities(turns)} == whole
        assert len(left[loser]) == len(identities(left[loser])) > 1


def test_no_two_texts_share_an_id() -> None:
    with opened("opencode.db") as (_, source):
        every = {one[:2]: one for one in itertools.chain(*map(identities, said(source).values()))}
        texts = {one for turns in said(source).values() for one in identities(turns)}
    assert len(every) == len(texts)


def test_both_generations_give_a_message_the_same_id() -> None:
    with opened("opencode-both.db") as (db, source):
        both = identities(said(source)["ses_both0001"])
        db.execute("DELETE FROM session; DELETE FROM message; DELETE FROM part").fetchall()
        second = identities(said(source)["ses_both0001"])
    assert second == both


@each_row("state", ["running", "completed"])
def test_a_conversation_that_changed_has_another_stamp(state: str) -> None:
    with opened("opencode.db") as (db, source):
        db.execute("DELETE FROM event_sequence").fetchall()
        before = {talk.session: talk.stamp for talk in READER.conversations(source)}
        changed = "UPDATE part SET time_updated = time_updated + 900000, data = ? WHERE id = ?"
        data = f'{{"type":"tool","tool":"bash","state":{{"status":"{state}","input":{{}}}}}}'
        [(part, session)] = db.execute("SELECT id, session_id FROM part WHERE data LIKE '%tool-output-42%' LIMIT 1")
        db.execute(changed, (data, part)).fetchall()
        after = {talk.session: talk.stamp for talk in READER.conversations(source)}
    assert {name for name in after if after[name] != before[name]} == {session}
