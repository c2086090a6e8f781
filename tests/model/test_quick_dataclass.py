"""Our dataclasses do what those of the standard library do."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import dataclass as standard
from dataclasses import field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.model.quick_dataclass import dataclass, replace


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf."""

    path: str
    line: int = 1
    notes: dict[str, int] = field(default_factory=dict)
    secret: str = field(default="", repr=False)

    @property
    def text(self) -> str:
        """Path and line."""
        return f"{self.path}:{self.line}"


@standard(frozen=True, slots=True)
class StandardLeaf:
    """A leaf."""

    path: str
    line: int = 1
    notes: dict[str, int] = field(default_factory=dict)
    secret: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Branch(Leaf):
    """A leaf with more, that checks itself."""

    size: int = 0

    def __post_init__(self) -> None:
        """Refuse what is no size."""
        if self.size < 0:
            raise ValueError(self.size)


@standard(frozen=True, slots=True)
class StandardBranch(Leaf):
    """A standard one, made from a quick one."""

    size: int = 0


@dataclass(frozen=True, slots=True)
class Unlike:
    """One that takes what only the standard ones have."""

    path: str
    line: int = field(default=0, compare=False)


@dataclass(slots=True)
class Changing:
    """One that can be changed."""

    path: str


names = st.sampled_from(("path", "line", "notes", "other"))


@given(st.lists(st.integers(), max_size=5), st.dictionaries(names, st.integers()))
def test_they_are_made_from_the_same_arguments(values: list[int], named: dict[str, int]) -> None:
    def outcome(kind: type[Leaf | StandardLeaf]) -> tuple[object, ...] | type[TypeError]:
        try:
            return dataclasses.astuple(kind(*values, **named))  # type: ignore[arg-type]
        except TypeError:
            return TypeError

    assert outcome(Leaf) == outcome(StandardLeaf)


def test_they_have_the_same_methods() -> None:
    one, other = Leaf("a", 2, secret="s"), StandardLeaf("a", 2, secret="s")
    assert repr(one) == repr(other).removeprefix("Standard")
    assert (dataclasses.asdict(one), dataclasses.is_dataclass(one)) == (dataclasses.asdict(other), True)
    assert [each.name for each in dataclasses.fields(Leaf)] == [each.name for each in dataclasses.fields(StandardLeaf)]
    assert one == replace(one) == dataclasses.replace(one, line=2) != replace(one, line=3)
    assert one != other
    assert one.notes is not Leaf("a").notes
    assert (one.text, Leaf.__doc__, Leaf.__match_args__) == ("a:2", "A leaf.", StandardLeaf.__match_args__)
    assert hash(Unlike("a")) == hash(Unlike("a", 2))
    assert Unlike("a") == replace(Unlike("a"), line=2)
    assert [copy.deepcopy(one), pickle.loads(pickle.dumps(one))] == [one, one]
    assert not hasattr(one, "__dict__")


def test_one_can_be_made_from_another() -> None:
    assert Branch("a", 2, size=3) == replace(Branch("a", 2), size=3) != Leaf("a", 2)
    assert repr(Branch("a")) == "Branch(path='a', line=1, notes={}, size=0)"
    one = StandardBranch("a", size=3)
    assert [replace(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))] == [one, one, one]
    assert (one.text, one.size, [each.name for each in dataclasses.fields(one)][-1]) == ("a:1", 3, "size")
    with pytest.raises(ValueError, match="-1"):
        replace(Branch("a"), size=-1)


@pytest.mark.parametrize("name", ["path", "size"])
def test_nothing_can_be_set(name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(Leaf("a"), name, "b")
    with pytest.raises(AttributeError):
        delattr(Leaf("a"), name)
    with pytest.raises(TypeError, match="Leaf has the fields path, line, notes, secret"):
        replace(Leaf("a"), size=1)  # type: ignore[call-arg]
    changing = Changing("a")
    changing.path = "b"
    assert changing == Changing("b")
