"""Functions that name speakers and agents in an export, and that make text harmless; given by the caller."""

from __future__ import annotations

from collections.abc import Callable

from crystal.model.named_tuple import NamedTuple


class Wording(NamedTuple):
    """Functions of the command line.

    Attributes:
        speaker: Returns the speaker of a turn by role, tool and harness.
        agent: Returns the name of an agent program by its harness.
        harmless: Replaces control characters in a text.
    """

    speaker: Callable[[str, str | None, str | None], str]
    agent: Callable[[str | None], str]
    harmless: Callable[[str], str]
