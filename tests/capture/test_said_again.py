"""A record that comes again: whether it says something new, or only lost some of what it said."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crystal.capture.said_again import Said, gists, known_ids, says_less

roles = st.sampled_from(("user", "assistant", "tool_result"))
turns = st.lists(st.tuples(roles, st.text("ab \n", min_size=1, max_size=8), st.none()), max_size=5)


@given(turns, st.data())
def test_what_only_lost_whole_turns_says_less(said: list[Said], data: st.DataObject) -> None:
    left = [one for one in said if data.draw(st.booleans())]
    assert says_less(left, said) == (gists(left) != gists(said))


@given(turns, turns)
def test_what_says_anything_new_does_not_say_less(said: list[Said], more: list[Said]) -> None:
    assert not says_less(said, said)
    assert not says_less([*said, ("assistant", "something new", None)], said)
    assert not says_less([*more, ("user", "zzz", None)], said)


def test_a_longer_state_is_new_and_a_shorter_one_is_not() -> None:
    short: list[Said] = [("assistant", "It names", None)]
    whole: list[Said] = [("assistant", "It  names 4711.", None), ("tool_result", "4711", "grep")]
    assert says_less(short, whole)
    assert not says_less(whole, short)
    assert says_less([], whole)
    assert not says_less([], [])
    assert not says_less([("assistant", "It names 4712.", None)], whole)


def test_a_result_that_no_longer_names_its_tool_says_less_and_one_that_names_it_now_does_not() -> None:
    named: list[Said] = [("tool_result", "4711", "grep")]
    assert says_less([("tool_result", "4711", None)], named)
    assert not says_less(named, [("tool_result", "4711", None)])


messages = st.lists(st.sampled_from("abcdef"), max_size=8)


@given(messages, st.data())
def test_messages_whose_ids_are_their_places_stay_themselves_when_others_are_deleted(
    said: list[str], data: st.DataObject
) -> None:
    known = {str(place): text.encode() for place, text in enumerate(said)}
    left = [text for text in said if data.draw(st.booleans())]
    ids = known_ids([(str(place), text.encode()) for place, text in enumerate(left)], dict(known), str)
    assert [known[ident].decode() for ident in ids] == left
    assert len(set(ids)) == len(ids)


@given(st.sets(st.integers(0, 9), max_size=6), st.sets(st.integers(0, 9), max_size=6), st.booleans())
def test_what_lasts_of_an_id_tells_a_record_whose_content_changed(
    seen: set[int], now: set[int], is_private: bool
) -> None:
    known = {f"first-{at}": None if is_private else b"old" for at in sorted(seen)}
    ids = known_ids([(f"other-{at}", b"%d" % at) for at in sorted(now)], known, lambda ident: ident.partition("-")[2])
    assert ids == [f"first-{at}" if at in seen else f"other-{at}" for at in sorted(now)]
