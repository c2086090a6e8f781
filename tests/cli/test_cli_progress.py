"""The time that is left of a step is told as it turns out, on a terminal and elsewhere."""

from __future__ import annotations

import io
import re
import sys
import time

import pytest

from crystal.cli.progress import steps_shown


class Terminal(io.StringIO):
    """A standard error that is a terminal, or none."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_elsewhere_a_long_step_says_what_is_left_of_it(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    told = Terminal(is_terminal=False)
    monkeypatch.setattr(sys, "stderr", told)
    with steps_shown() as show:
        show("reading", 0, 100)
        for done in range(1, 101):  # 2 seconds each: 200 in all
            clock[0] += 2
            show("reading", done, 100)
        for done in (0, 500, 1_000):  # another step is faster, and told by its own speed
            show("deleting", done, 2_000)
            clock[0] += 20
    *minutes, late, later, last = [line.split("... ")[-1] for line in told.getvalue().splitlines()][:7]
    assert minutes == ["about 3 min left"] * 2 + ["about 2 min left"] * 2
    assert (late, later, last) == ("about 74 s left", "about 44 s left", "about 14 s left")
    assert told.getvalue().splitlines()[7:] == ["crystal: deleting ...", "crystal: deleting ... about 40 s left"]


def test_a_bar_tells_the_rest_of_each_step_by_its_own_speed(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Terminal(is_terminal=True)
    monkeypatch.setattr(sys, "stderr", told)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    with steps_shown() as show:
        for step, seconds in (("reading", 2), ("deleting", 1)):
            for done in range(41):
                show(step, done, 100)
                clock[0] += seconds
    assert "reading" in told.getvalue()
    assert re.findall(r"\d:\d\d:\d\d", told.getvalue())[-1] == "0:01:00"  # 60 of 100 are left, a second each
