"""Whatever is said, remembered, relayed and killed in between: what was forgotten is nowhere, the rest is there once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from crystal.forgetting.request import ForgetRequest
from tests.support.forgetting_places import Place
from tests.support.forgetting_world import HOUR, World
from tests.support.relay_weather import FAULTS

SESSIONS = [f"5e55{number:04d}-0000-4000-8000-000000000000" for number in range(6)]
FOLDERS = ("/home/dev/quartz", "/home/dev/basalt/inner")


class Life:
    """One run: steps drawn by a seed, then rest, then everything is looked at."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.dice = random.Random(seed)
        self.world = World(folder, self.dice)

    def step(self) -> None:
        world, dice = self.world, self.dice
        place = dice.choice(world.places)
        kinds = {
            self._say: 5, self._echo: 1, self._copy: 1, self._capture: 5, self._sync: 6, self._tend: 2, self._remember: 2,
            self._forget: 3, self._storm: 1, self._backfill: 0.3, self._disaster: 0.8,
        }  # fmt: skip
        kind = dice.choices(list(kinds), list(kinds.values()))[0]
        world.pass_time(dice.choice([1_000, 60_000, HOUR]))
        if dice.random() < 0.3 and kind not in (self._say, self._echo, self._copy, self._storm, self._disaster):
            where = {"statements": dice.randrange(1, 120)} if dice.random() < 0.7 else {"files": dice.randrange(1, 12)}
            with world.dying(**where):
                kind(place)
        else:
            kind(place)

    def _session_of(self, place: Place) -> tuple[str, str]:
        number = self.dice.randrange(2) + 2 * self.world.places.index(place)
        return SESSIONS[number % len(SESSIONS)], FOLDERS[number % 2]

    def _say(self, place: Place) -> None:
        session, cwd = self._session_of(place)
        self.world.say(place, session, turns=self.dice.randrange(1, 4), cwd=cwd)

    def _echo(self, place: Place) -> None:
        session, cwd = self._session_of(place)
        self.world.echo(place, session, cwd)

    def _copy(self, place: Place) -> None:
        source = self.dice.choice(self.world.places)
        session, cwd = self._session_of(source)
        other = session if place is not source else session.replace("5e55", "f04c")
        self.world.copy(source.transcript(session, cwd), place, other, cwd)

    def _capture(self, place: Place) -> None:
        self.world.capture(place)

    def _sync(self, place: Place) -> None:
        self.world.sync(place)

    def _tend(self, place: Place) -> None:
        self.world.tend(place)

    def _backfill(self, place: Place) -> None:
        self.world.backfill(place)

    def _storm(self, place: Place) -> None:
        place.storm.expect(*self.dice.choices([*FAULTS, ""], k=4))

    def _remember(self, place: Place) -> None:
        known = [word for word in self.world.memories if word not in self.world.gone | self.world.unsure]
        if known and self.dice.random() < 0.3:
            self.world.edit(place, self.dice.choice(known))
        else:
            self.world.remember(place)

    def _forget(self, place: Place) -> None:
        world, dice = self.world, self.dice
        said = [one for one in world.said if one.word not in world.gone]
        way = dice.choice(["line", "query", "session", "project", "before", "memory", "word of a memory", "finish"])
        if way == "finish":
            world.finish(place)
        elif way == "memory" and world.memories:
            world.forget(place, ForgetRequest(targets=(dice.choice(sorted(world.memories.values())),)))
        elif way == "word of a memory" and world.memories:
            world.forget(place, ForgetRequest(query=dice.choice(sorted(world.memories))))
        elif said:
            one = dice.choice(said)
            wish = {
                "line": ForgetRequest(targets=(one.uuid,)),
                "query": ForgetRequest(query=one.word),
                "session": ForgetRequest(session=one.session),
                "project": ForgetRequest(project=one.cwd),
                "before": ForgetRequest(before=sorted(each.at for each in world.said)[len(world.said) // 4]),
            }.get(way)
            if wish is not None:
                world.forget(place, wish)

    def _disaster(self, place: Place) -> None:
        world = self.world
        kind = self.dice.choice(["wipe", "back up", "restore"])
        if kind == "wipe":
            world.site.wipe()
            world.log.append("the relay is wiped")
        elif kind == "back up":
            world.keep_backup(place)
        else:
            world.restore_backup()

    def settle(self) -> None:
        self.world.rest()
        self.world.assert_forgotten()
        self.world.assert_kept()

    def tempt(self) -> None:
        """Do everything that could bring something back."""
        world = self.world
        for place in world.places:
            world.backfill(place)
            world.repair(place)
        world.restore_backup()
        world.bring_back(world.home, self.dice.choice(SESSIONS))
        world.join("newcomer")
        world.rest(4)
        world.assert_forgotten()
        world.assert_kept()

    def move(self) -> None:
        """Let another machine be home, which makes a memory of its mirror and is sent everything again."""
        self.world.move_home(self.world.places[1])
        self.world.rest(4)
        self.world.assert_forgotten()
        self.world.assert_kept()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [16, 57, *range(100, 105)])
def test_what_was_forgotten_is_nowhere_and_the_rest_is_there(tmp_path: Path, seed: int) -> None:
    life = Life(tmp_path, seed)
    try:
        for _ in range(40):
            life.step()
        life.settle()
        life.tempt()
        life.move()
    finally:
        life.world.close()
