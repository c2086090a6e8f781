"""``crystal relay pair``, ``join`` and ``key`` from outside: what is printed and asked, and nothing secret anywhere."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest

from crystal.app import relay_links
from crystal.app.context import Machine
from crystal.app.sync import pair_device
from crystal.cli import relay_pairing
from crystal.store.sync.relay_peers import all_peers, home_peer
from crystal.sync.client import RelayClient
from crystal.sync.keys.forms import RelayKey, format_key
from crystal.sync.keys.word_codes import paper_words
from tests.support.command import Terminal
from tests.support.over_httpx import down
from tests.support.pairing_boxes import ROOT, URL, Pairs
from tests.support.relay_commands import On, check_json, deliver, in_stream, joined, on, pairs, poll, say, site

__all__ = ["on", "pairs", "site"]


# ------------------------------------------------------------------------------------------------------ pair and join


@pytest.mark.slow
def test_the_offline_string_goes_from_one_command_into_the_other(pairs: Pairs, on: On) -> None:
    shown = on(pairs.home, "relay", "pair", "--offline", "--name", "barn")
    assert shown.code == 0
    (string,) = shown.out.split()  # nothing else is on standard output: it can be piped
    assert string.startswith("crystal1:")
    done = on(pairs.device, "relay", "join", typed=shown.out)
    assert done.code == 0, done.err
    words = re.search(r"words:\s+(.+)", done.out)
    assert words is not None
    assert words[1] in shown.err
    assert done.out.startswith(f"joined: mini, over {URL}\n")
    assert string[20:40] not in done.out + done.err + shown.err
    assert on(pairs.device, "config", "get", "role").out == "device\n"
    listed = on(pairs.home, "devices", "--json")
    assert [one["name"] for one in check_json("crystal devices", listed)["devices"]] == ["barn"]


@pytest.mark.slow
def test_the_code_and_the_address_go_by_standard_input(pairs: Pairs, on: On, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def joins(
        machine: Machine, client: RelayClient, code: Any, *, url: str, tell: Any, over: bool
    ) -> pair_device.Joined:
        asked.append((code.text, url))
        return pair_device.Joined("mini", url, ("a", "b", "c", "d"), True, 3, ("a note",))

    monkeypatch.setattr(pair_device, "join", joins)
    code = "7-apple-river-story"
    for typed, words in (
        (f"{code}\n{URL}\n", ()),
        (f"{code}\n", ("--relay", URL)),
        (f"crystal-join:{code}:{URL}", ()),
        (f"CRYSTAL-JOIN:{code.upper()}:{URL.upper()}\n", ()),
        ("7 Apple River Story", ("--relay", URL)),
    ):
        done = on(pairs.device, "relay", "join", *words, typed=typed)
        assert done.code == 0, done.err
        assert asked.pop() == (code, URL)
        assert "words:  a b c d" in done.out
        assert "past:" in done.out
    done = on(pairs.device, "relay", "join", typed=f"{code}\n{URL}\n", terminal=True)
    assert asked.pop() == (code, URL)
    assert "code" in done.err
    assert "address of the relay" in done.err
    missing = on(pairs.device, "relay", "join", typed=code)
    assert (missing.code, "--relay" in missing.err) == (2, True)


@pytest.mark.slow
def test_a_string_pasted_into_a_terminal_may_have_line_breaks(pairs: Pairs, on: On) -> None:
    string = on(pairs.home, "relay", "pair", "--offline").out.strip()
    wrapped = "\n".join(string[at : at + 80] for at in range(0, len(string), 80)) + "\n"
    assert on(pairs.device, "relay", "join", typed=wrapped, terminal=True).code == 0
    broken = on(pairs.device, "relay", "join", typed=wrapped[:-9] + "\n\n", terminal=True)
    assert broken.code == 2


@pytest.mark.slow
def test_nothing_secret_is_an_argument(pairs: Pairs, on: On) -> None:
    for words in (("7-apple-river-story",), ("crystal1:abc",), ("--code", "7-apple-river-story")):
        assert on(pairs.device, "relay", "join", *words).code == 2


@pytest.mark.slow
def test_the_mailboxes_number_may_be_wrong(pairs: Pairs, on: On) -> None:
    done = on(pairs.device, "relay", "join", "--relay", URL, typed="77777-apple-river-story\n")
    assert done.code == 2
    assert "no pairing with number 77777" in done.err


@pytest.mark.slow
def test_pairing_is_for_a_home(pairs: Pairs, on: On) -> None:
    on(pairs.device, "relay", "join", typed=on(pairs.home, "relay", "pair", "--offline").out)
    done = on(pairs.device, "relay", "pair")
    assert (done.code, "a device" in done.err) == (3, True)


@pytest.mark.slow
def test_a_relay_that_is_down_is_exit_code_4(pairs: Pairs, on: On) -> None:
    pairs.home_way.before = down
    for words in (("pair",), ("pair", "--offline"), ("pair", "--shared", "x"), ("poll",)):
        assert on(pairs.home, "relay", *words).code == 4, words
    with pairs.home.open() as machine:
        assert all_peers(machine.store) == []


@pytest.mark.slow
def test_a_shared_root_needs_only_the_token(pairs: Pairs, on: On, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = on(pairs.home, "relay", "pair", "--shared", "laptop")
    token = shown.out.strip()
    assert (shown.code, token.startswith("crt_")) == (0, True)
    done = on(pairs.device, "relay", "join", "--shared", "--relay", URL, typed=f"{token}\n{ROOT.hex()}\n")
    assert done.code == 0, done.err
    words = re.search(r"words:\s+(.+)", done.out)
    assert words is not None
    assert words[1] in shown.err
    with pairs.device.open() as machine:
        assert relay_links.key_places(machine).read_key().key == RelayKey("root", ROOT)
        peer = home_peer(machine.store)
    with pairs.home.open() as machine:
        (own,) = all_peers(machine.store)
    assert peer is not None
    assert own.device_id == peer.device_id
    say(pairs, "note")
    deliver(pairs)
    poll(pairs)
    assert in_stream(pairs).last_seq == 1


def test_a_qr_code_is_drawn_only_for_eyes(pairs: Pairs, on: On, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []
    monkeypatch.setattr("crystal.cli.qr.qr_ansi", lambda text: drawn.append(text) or "PICTURE")
    monkeypatch.setattr("crystal.cli.qr.qr_text", lambda text: drawn.append(text) or "PICTURE")

    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    relay_pairing._show("https://x", "7-apple-river-story", "CRYSTAL-JOIN:7-A-B-C:HTTPS://X")
    assert "code: 7-apple-river-story\n" in screen.getvalue()
    assert "PICTURE" in screen.getvalue()
    assert drawn == ["CRYSTAL-JOIN:7-A-B-C:HTTPS://X"]


# ------------------------------------------------------------------------------------------------------------ the key


@pytest.mark.slow
def test_the_key_is_told_by_its_place_and_never_shown(pairs: Pairs, on: On) -> None:
    done = on(pairs.home, "relay", "key")
    facts = check_json("crystal relay key", on(pairs.home, "relay", "key", "--json"))
    assert facts["kind"] == "root"
    assert facts["place"] == "file"
    assert facts["id"] in done.out
    secret = format_key(RelayKey("root", ROOT))
    assert ROOT.hex()[:16] not in done.out
    assert secret[15:35] not in done.out
    joined(pairs)
    facts = check_json("crystal relay key", on(pairs.device, "relay", "key", "--json"))
    with pairs.device.open() as machine:
        peer = home_peer(machine.store)
    assert peer is not None
    assert (facts["kind"], facts["device_id"], facts["generation"]) == ("device", peer.device_id.hex(), 1)


@pytest.mark.slow
def test_the_paper_key_goes_out_and_in_again(pairs: Pairs, on: On) -> None:
    shown = on(pairs.home, "relay", "key", "--paper", "--yes")
    assert shown.code == 0
    assert re.findall(r"[a-z]+", shown.out) == list(paper_words(ROOT))
    done = on(pairs.device, "relay", "key", "--restore", typed=shown.out)
    assert done.code == 0, done.err
    with pairs.device.open() as machine:
        assert relay_links.key_places(machine).read_key().key == RelayKey("root", ROOT)
    assert on(pairs.device, "relay", "key", "--restore", typed=" ".join(paper_words(ROOT))).code == 0  # the same again
    other = " ".join(paper_words(ROOT[::-1]))
    refused = on(pairs.device, "relay", "key", "--restore", typed=other)
    assert (refused.code, "--replace" in refused.err) == (2, True)
    replaced = on(pairs.device, "relay", "key", "--restore", "--replace", typed=other)
    assert (replaced.code, "relay.key.bak" in replaced.err) == (0, True)
    wrong = on(pairs.device, "relay", "key", "--restore", "--replace", typed=other.replace(other.split()[0], "zzzz", 1))
    assert (wrong.code, "zzzz" in wrong.err) == (2, True)


@pytest.mark.slow
def test_the_paper_key_is_shown_after_a_question_and_at_home_only(pairs: Pairs, on: On) -> None:
    no = on(pairs.home, "relay", "key", "--paper", typed="n\n", terminal=True)
    assert (no.code, no.out.strip()) == (130, "")
    assert len(re.findall(r"[a-z]+", on(pairs.home, "relay", "key", "--paper", typed="y\n", terminal=True).out)) == 24
    joined(pairs)
    assert on(pairs.device, "relay", "key", "--paper").code == 3
    restore = on(pairs.device, "relay", "key", "--restore", typed=" ".join(paper_words(ROOT)))
    assert (restore.code, "promote" in restore.err) == (3, True)
