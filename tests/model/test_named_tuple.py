"""Our named tuples do what those of the standard library do."""

from __future__ import annotations

import copy
import pickle
from typing import NamedTuple as Standard

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.model.named_tuple import NamedTuple


class Place(NamedTuple):
    """A place."""

    path: str
    line: int = 1
    note: str | None = None

    @property
    def text(self) -> str:
        """Path and line."""
        return f"{self.path}:{self.line}"


class StandardPlace(Standard):
    """A place."""

    path: str
    line: int = 1
    note: str | None = None


names = st.sampled_from(("path", "line", "note", "other"))


@given(st.lists(st.integers(), max_size=5), st.dictionaries(names, st.integers()))
def test_they_are_made_from_the_same_arguments(values: list[int], named: dict[str, int]) -> None:
    def outcome(kind: type[Place | StandardPlace]) -> tuple[object, ...] | type[TypeError]:
        try:
            return tuple(kind(*values, **named))  # type: ignore[arg-type]
        except TypeError:
            return TypeError

    assert outcome(Place) == outcome(StandardPlace)


def test_they_have_the_same_methods() -> None:
    one, other = Place("a", 2), StandardPlace("a", 2)
    assert one == other == ("a", 2, None)
    assert repr(one) == repr(other).removeprefix("Standard")
    assert (one._asdict(), one._fields, one._field_defaults) == (other._asdict(), other._fields, other._field_defaults)
    assert one._replace(line=3) == other._replace(line=3)
    assert type(one._replace(line=3)) is type(Place._make(one)) is Place
    assert (one.text, Place.__doc__, hash(one)) == ("a:2", "A place.", hash(other))
    assert [type(made) for made in (copy.deepcopy(one), pickle.loads(pickle.dumps(one)))] == [Place, Place]
    match one:
        case Place(path, line):
            assert (path, line) == ("a", 2)


@pytest.mark.parametrize("name", ["path", "size"])
def test_nothing_can_be_set(name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(Place("a"), name, "b")
    with pytest.raises(TypeError, match="Place has the fields path, line, note"):
        Place("a")._replace(size=1)  # type: ignore[call-arg]
