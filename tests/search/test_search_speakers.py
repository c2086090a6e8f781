"""Who speaks: a person with an assistant, or people; and what that changes in the order of answers."""

import random

import pytest

from tests.support.ranked_by import search, using
from tests.support.store_factory import NOW, Meaning, add_turn, embed_all

FILLER = "the weather and the sea and a long walk with friends on a quiet evening in the hills".split()


@pytest.fixture
def store(store, monkeypatch):
    with using("late", monkeypatch):
        yield store


def talk(store, said, *, lengths, seed=1, tools=False):
    """Store a conversation of twenty turns around what is said; each side's turns have so many words."""
    dice, uuids, ts = random.Random(seed), [], NOW - 10_000_000
    filler = [("user" if place % 2 == 0 else "assistant", None) for place in range(20)]
    for role, text in [*filler, *said, *filler]:
        ts += 1000
        words = " ".join(dice.choices(FILLER, k=lengths[role]))
        uuid = add_turn(store, text or words, role=role, ts=ts)
        if text:
            uuids.append(uuid)
    if tools:
        add_turn(store, "ran the tests", role="tool_result", ts=ts + 1000)
    return uuids


def order(store, query, uuids):
    embed_all(store, Meaning({}))
    hits = [hit.uuid for hit in search(store, Meaning({}), query, now=NOW).hits]
    return sorted(uuids, key=hits.index)


QUESTION = ("user", "Have you got any idea how to decorate the balcony, Mary?")
REPLY = ("assistant", "Yes, I would decorate the balcony with lanterns and a bench.")
ASKED = "how to decorate the balcony"


def test_a_reply_among_people_comes_before_the_question_that_has_all_the_words(store):
    question, reply = talk(store, [QUESTION, REPLY], lengths={"user": 12, "assistant": 12})
    assert order(store, ASKED, [question, reply]) == [reply, question]


@pytest.mark.parametrize(
    ("lengths", "tools"), [({"user": 5, "assistant": 80}, False), ({"user": 12, "assistant": 12}, True)]
)
def test_with_an_assistant_and_at_work_the_question_keeps_its_place(store, lengths, tools):
    question, reply = talk(store, [QUESTION, REPLY], lengths=lengths, tools=tools)
    assert order(store, ASKED, [question, reply]) == [question, reply]


@pytest.mark.parametrize(("lengths", "first"), [({"user": 5, "assistant": 80}, 0), ({"user": 12, "assistant": 12}, 1)])
def test_what_a_person_told_an_assistant_comes_before_what_it_answered(store, lengths, first):
    said = [("user", "My allergy is peanuts, nothing else."), ("assistant", "Noted: my allergy list has peanuts.")]
    uuids = talk(store, said, lengths=lengths)
    assert order(store, "my allergy list", uuids)[0] == uuids[first]


def test_a_conversation_of_one_side_changes_nothing(store):
    alone = [add_turn(store, f"the kite number {number} flew over the hills", ts=NOW - number) for number in range(5)]
    hits = [hit.uuid for hit in search(store, None, "kite hills", now=NOW).hits]
    assert sorted(hits) == sorted(alone)


@pytest.mark.parametrize(("asked", "first"), [("Where did Ann go hiking?", 1), ("BOB's hiking", 0)])
def test_among_people_the_one_whom_the_question_names_comes_first(store, asked, first):
    said = [
        ("user", "Bob Lee: With Ann I went hiking on the ice"),
        ("assistant", "Ann: With Bob I went hiking on the ice"),
    ]
    uuids = talk(store, said, lengths={"user": 12, "assistant": 12})
    assert order(store, asked, uuids)[0] == uuids[first]


def test_a_thought_stands_behind_the_answer_that_it_led_to(store):
    talk(store, [], lengths={"user": 8, "assistant": 9}, tools=True)
    thought = add_turn(store, "The user wants to know why the linter fails. The linter fails.", role="thinking")
    answer = add_turn(store, "The linter fails because an import is not used.", role="assistant")
    assert order(store, "why the linter fails", [thought, answer]) == [answer, thought]
    alone = search(store, Meaning({}), "why the user wants to know", now=NOW).hits[0]
    assert alone.uuid == thought, "what only a thought says is found there"
