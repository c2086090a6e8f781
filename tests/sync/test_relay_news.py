"""Watching costs a relay next to nothing while nothing happens, and misses nothing that does."""

from __future__ import annotations

import itertools
import threading
import time
from types import SimpleNamespace

import pytest

from crystal.app.sync import relay_news
from crystal.app.sync.relay_news import RelayNews, watch
from crystal.sync.answers import StreamInfo, StreamList
from crystal.sync.errors import RelayUnavailableError

OWN, HOME = bytes(16), b"\x01" * 16


class Rests:
    """Stands for the event that stops, and notes the seconds of each rest; the last one ends the asking."""

    def __init__(self, count: int) -> None:
        self.left, self.rests = count, []

    def is_set(self) -> bool:
        return self.left == 0

    def wait(self, seconds: float) -> None:
        self.rests.append(seconds)
        self.left -= 1


class Answers:
    """Answers with the given changes; fails where one is None."""

    def __init__(self, *answers: tuple[int, bytes | None] | None) -> None:
        self.answers, self.asked = list(answers), []

    def streams(self, *, changed_after: int | None, wait: float) -> StreamList:
        self.asked.append((changed_after, wait))
        answer = self.answers.pop(0)
        if answer is None:
            raise RelayUnavailableError("away")
        change, stream = answer
        return StreamList(change, [] if stream is None else [StreamInfo(stream, 1, 0, 1, 1, 0)])


def ask(*answers: tuple[int, bytes | None] | None) -> tuple[Answers, RelayNews, Rests]:
    client, rests = Answers(*answers), Rests(len(answers))
    news = RelayNews(client, OWN[:8])
    news._stopped = rests
    news._ask_until_stopped()
    return client, news, rests


def test_the_relay_holds_each_question_until_something_changes():
    client, news, rests = ask((7, None), (8, HOME), (9, HOME))
    assert client.asked == [(None, 0), (7, relay_news.MAX_WAIT), (8, relay_news.MAX_WAIT)]
    assert news.came.is_set()
    assert rests.rests == [0, 0, 0]


def test_what_this_machine_wrote_is_no_news():
    assert not ask((7, OWN), (8, OWN))[1].came.is_set()


@pytest.mark.parametrize("answer", [(7, None), None], ids=["no room to wait", "away"])
def test_a_relay_that_cannot_hold_a_question_is_asked_less_and_less_often(answer):
    _, news, rests = ask((7, None), *[answer] * 8)
    assert rests.rests == [0, 2, 4, 8, 16, 32, 60, 60, 60]
    assert news.came.is_set() is (answer is None)


def test_a_step_is_taken_for_news_for_own_work_and_after_a_failure_and_not_otherwise(monkeypatch):
    monkeypatch.setattr(relay_news, "IDLE_SECONDS", 3600)
    news, due, taken = threading.Event(), threading.Event(), []

    def step() -> None:
        due.clear()
        taken.append(time.monotonic())
        if len(taken) == 3:
            raise RelayUnavailableError("away")

    asked: list[int] = []

    def should_stop() -> bool:
        asked.append(len(taken))
        # Each cause once, and only after the step before it has rested for a while without another.
        if asked[-4:] == [1] * 4:
            news.set()
        if asked[-4:] == [2] * 4:
            due.set()
        return asked[-8:] == [4] * 8

    outcomes = [None if problem is None else problem.message for problem in watch(
        step, news, is_due=due.is_set, pause=0.01, should_stop=should_stop
    )]  # fmt: skip
    assert outcomes == [None, None, "away", None]


def test_an_outage_of_days_ends_neither_the_asking_nor_the_watching(monkeypatch):
    passed = itertools.count(0, 60)
    monkeypatch.setattr(relay_news, "time", SimpleNamespace(monotonic=lambda: next(passed), sleep=lambda _: None))
    assert ask((7, None), *[None] * 2000)[2].rests[-1] == 60

    def step() -> None:
        raise RelayUnavailableError("away")

    outcomes = watch(step, threading.Event(), is_due=lambda: False, pause=0.3)
    assert all(problem is not None for problem in itertools.islice(outcomes, 2000))
