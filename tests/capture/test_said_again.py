"""A record that comes again: whether it says something new, or only lost some of what it said."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crystal.capture.said_again import gists, says_less

turns = st.lists(
    st.tuples(st.sampled_from(("user", "assistant", "tool_result")), st.text("ab \n", min_size=1, max_size=8)),
    max_size=5,
)


@given(turns, st.data())
def test_what_only_lost_whole_turns_says_less(said: list[tuple[str, str]], data: st.DataObject) -> None:
    left = [one for one in said if data.draw(st.booleans())]
    assert says_less(left, said) == (gists(left) != gists(said))


@given(turns, turns)
def test_what_says_anything_new_does_not_say_less(said: list[tuple[str, str]], more: list[tuple[str, str]]) -> None:
    assert not says_less(said, said)
    assert not says_less([*said, ("assistant", "something new")], said)
    assert not says_less([*more, ("user", "zzz")], said)


def test_a_longer_state_is_new_and_a_shorter_one_is_not() -> None:
    short, whole = [("assistant", "It names")], [("assistant", "It  names 4711."), ("tool_result", "4711")]
    assert says_less(short, whole)
    assert not says_less(whole, short)
    assert says_less([], whole)
    assert not says_less([], [])
    assert not says_less([("assistant", "It names 4712.")], whole)
