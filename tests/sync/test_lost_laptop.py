"""A device that lost its memory and pairs anew: home has its past already, and keeps each text once."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable

import pytest

from crystal.app.relay_links import relay_keys
from tests.support.capture_machine import line
from tests.support.two_machines import Computer
from tests.support.whole_memory import ROOT
from tests.sync.test_rebuilt_machines import FIRST, MODE, SECOND, exchange, lap, lines_of, lose_database, pair

pytestmark = pytest.mark.slow  # two machines and a relay

__all__ = ["lap"]


def lose_everything(lap: Computer) -> None:
    for path in lap.home.iterdir():
        if path.name != ".claude":
            shutil.rmtree(path)
    lap.ok("init", "--yes", "--import")


def lose_everything_and_a_transcript(lap: Computer) -> None:
    next(lap.home.rglob(f"{SECOND}.jsonl")).unlink()
    lose_everything(lap)


def lose_archive(lap: Computer) -> None:
    for path in lap.home.rglob("*.jsonl.zst"):
        path.unlink()
    lose_database(lap)


def keep_no_memory(lap: Computer) -> None:
    for path in lap.home.iterdir():
        if path.name != ".claude":
            shutil.rmtree(path)
    lap.ok("init", "--yes", "--role", "device", "--no-local-memory")


def by_string(desk: Computer, lap: Computer) -> str:
    pair(desk, lap)
    return "lap-2"


def by_code(desk: Computer, lap: Computer) -> str:
    with desk.machine() as machine:
        url = str(machine.config.relay_url)
    words = [sys.executable, "-m", "crystal", "relay", "pair", "--name", "lap"]
    with desk.lives(), subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as home:
        assert home.stdout is not None
        code = next(text.split()[1] for text in home.stdout if text.startswith("code: "))
        lap.ok("relay", "join", "--replace", "--relay", url, stdin=f"{code}\n")
        home.stdout.read()
    assert home.returncode == 0
    return "lap-2"


def with_the_root(desk: Computer, lap: Computer) -> str:
    with desk.machine() as machine:
        root, url = relay_keys(machine).root.hex(), machine.config.relay_url
    token = desk.ok("relay", "pair", "--shared", "lap-2").split()[-1]
    words = ("relay", "join", "--replace", "--shared", "--name", "lap-2", "--relay", str(url))
    lap.ok(*words, stdin=f"{token}\n{root}\n")
    return "lap-2"


def as_the_same(desk: Computer, lap: Computer) -> str:
    lap.ok("relay", "join", "--replace", stdin=desk.ok("relay", "pair", "--again", "lap"))
    return "lap"


LOSSES = [lose_everything, lose_everything_and_a_transcript, lose_archive, lose_database, keep_no_memory]


@pytest.mark.parametrize("pairs_anew", [by_string, by_code, with_the_root, as_the_same])
@pytest.mark.parametrize("lose", LOSSES)
def test_home_has_each_text_once_and_says_who_is_who(
    desk: Computer, lap: Computer, lose: Callable[[Computer], None], pairs_anew: Callable[[Computer, Computer], str]
) -> None:
    before = lines_of(desk)
    lose(lap)
    lap.say(FIRST, line("said meanwhile", sessionId=FIRST))
    name = pairs_anew(desk, lap)
    if lose in (lose_archive, keep_no_memory):
        lap.ok("backfill")
    for text in (b"", MODE + line("said after that", sessionId=FIRST)):
        lap.say(FIRST, text)
        lap.ok("sync")
        exchange(desk, lap)
    after = lines_of(desk)
    new = sorted(json.loads(said).get("message", {}).get("content", "") for said in (after - before).elements())
    assert (before - after, new) == (Counter(), ["", "said after that", "said meanwhile"])
    found = desk.json("search", "about plums", "-n", "20")["hits"]
    assert sum(hit["text"] == "about plums" for hit in found) == 1  # type: ignore[attr-defined, index]
    assert desk.crystal("verify").code == 0
    told = {one["name"]: one["successor"] for one in desk.json("devices")["devices"]}  # type: ignore[attr-defined, index]
    assert told == ({"lap": None} if name == "lap" else {"lap": "lap-2", "lap-2": None})
    words = "lap-2 sends its transcripts now; if they are one machine: crystal devices revoke lap"
    for status in (desk.ok("devices"), desk.ok("relay", "status")):
        assert (words in status) == (name != "lap")
    desk.ok("restore", FIRST)
    (restored,) = desk.home.rglob(f"{FIRST}.jsonl")
    assert Counter(restored.read_text().splitlines()) == Counter(one for one in after if f'"{FIRST}"' in one) + Counter(
        {MODE.decode().strip(): 4}
    )
    if name != "lap":
        desk.ok("devices", "revoke", "lap", "--yes")
        assert words not in desk.ok("devices") + desk.ok("relay", "status")


@pytest.mark.parametrize("happens", ["nothing", "gone", "replaced"])
def test_what_was_damaged_in_the_outbox_of_a_device_without_a_memory_is_read_again(
    desk: Computer, lap: Computer, happens: str
) -> None:
    is_gone = happens != "nothing"
    keep_no_memory(lap)
    by_string(desk, lap)
    lap.ok("backfill")
    exchange(desk, lap)
    before, url = lines_of(desk), lap.json("relay", "status")["relay"]["url"]  # type: ignore[index]
    lap.ok("config", "set", "relay.url", "http://127.0.0.1:9")
    for text in ("said first", "said next"):
        lap.say(SECOND, line(text, sessionId=SECOND))
        lap.crystal("sync")
    with lap.machine() as machine, machine.store.transaction():
        machine.store.execute(
            "UPDATE outbox SET sealed = zeroblob(length(sealed)) WHERE sent_at IS NULL AND created_at ="
            " (SELECT min(created_at) FROM outbox WHERE sent_at IS NULL)"
        )
    lap.ok("config", "set", "relay.url", str(url))
    (transcript,) = lap.home.rglob(f"{SECOND}.jsonl")
    if is_gone:
        transcript.rename(lap.home / "backup")
    if happens == "replaced":
        transcript.write_bytes(line("another", sessionId=SECOND))
        lap.crystal("sync")
    for _ in range(3):
        exchange(desk, lap)
    said = {text: sum(text in one for one in lines_of(desk)) for text in ("said first", "said next")}
    told = [one["message"] for one in lap.json("status")["problems"]]  # type: ignore[attr-defined, index]
    assert (said["said next"], said["said first"], len(told)) == (1, not is_gone, is_gone), told
    if is_gone:
        lost = len(line("said first", sessionId=SECOND))
        words = f"{lost} bytes for home were damaged here, and {transcript} does not have them any more"
        assert told == [f"{words}; if a backup has it, put it back: crystal relay sync"]
    if happens == "gone":
        (lap.home / "backup").rename(transcript)
        exchange(desk, lap)
        exchange(desk, lap)
        assert lap.json("status")["problems"] == []
    assert (lines_of(desk) - before).total() == 2  # also if another one took the place of a lost one
    assert {one.crystal("verify").code for one in (desk, lap)} == {0}
