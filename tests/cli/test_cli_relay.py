"""``crystal relay`` from outside: what is printed, what is asked, which exit code, and nothing secret anywhere."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from crystal.app import relay_links
from crystal.app.context import Machine
from crystal.app.sync import pair_device, pair_home, pair_mailbox
from crystal.app.sync.device import deliver_relay
from crystal.app.sync.home import poll_relay
from crystal.cli import relay_pairing
from crystal.store.sync import inbox, outbox
from crystal.store.sync.relay_peers import all_peers, home_peer
from crystal.sync.client import RelayClient
from crystal.sync.envelope import Channel, Kind, open_blob, seal, tag_of
from crystal.sync.keys.forms import RelayKey, format_key
from crystal.sync.keys.paper import to_words
from crystal.sync.keys.places import read_key, read_token
from crystal.sync.sending import put_message
from tests.project.test_docs_reference import documented, keys_of, pattern_of
from tests.support import command
from tests.support.command import Done
from tests.support.over_httpx import OverHttpx
from tests.support.pairing_boxes import ROOT, URL, Box, Pairs, two_machines
from tests.support.relay_world import RelaySite


@pytest.fixture
def site(tmp_path: Path) -> Iterator[RelaySite]:
    site = RelaySite(tmp_path / "relay")
    yield site
    site.stop()


@pytest.fixture
def pairs(tmp_path: Path, site: RelaySite, monkeypatch: pytest.MonkeyPatch) -> Pairs:
    """Two machines, whose commands reach the relay in this process."""
    pairs = two_machines(tmp_path, site)

    def client_at(_: Machine, url: str, token: str | None, **__: Any) -> RelayClient:
        return RelayClient(url, token, transport=OverHttpx(pairs.home_way))

    monkeypatch.setattr(relay_links, "client_at", client_at)
    monkeypatch.setattr(
        pair_device,
        "joining_client",
        lambda _, url, __: RelayClient(url, None, claim=b"c" * 32, transport=OverHttpx(pairs.device_way)),
    )
    monkeypatch.setattr(pair_mailbox, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(pair_mailbox, "PAUSE_SECONDS", 0.02)
    return pairs


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """Run a command on one of the machines, with something on standard input."""

    def run(box: Box, *words: str, typed: str = "", terminal: bool = False) -> Done:
        for name, value in box.env.items():
            monkeypatch.setenv(name, value)
        stdin = io.StringIO(typed)
        monkeypatch.setattr(stdin, "isatty", lambda: terminal, raising=False)
        with pytest.MonkeyPatch.context() as patch:
            real = io.StringIO
            patch.setattr(command.io, "StringIO", lambda *start: stdin if start == ("",) else real(*start))
            return command.crystal(*words)

    return run


On = Callable[..., Done]


def joined(pairs: Pairs, name: str = "laptop") -> None:
    """Pair the two machines by hand."""
    with pairs.home.open() as machine, pairs.client() as client:
        secret = str(pair_home.pair_offline(machine, client, name=name).secret)
    bundle = pair_device.read_invitation(secret).bundle
    assert bundle is not None
    with pairs.device.open() as machine:
        pair_device.join_offline(machine, bundle)


def say(pairs: Pairs, *texts: str) -> None:
    """Let the device seal notes, each a blob of its own: they are taken and change nothing."""
    with pairs.device.open() as machine:
        link = relay_links.device_link(machine)
        assert link is not None
        for text in texts:
            with machine.store.transaction():
                payload = json.dumps({"v": 1, "kind": text}).encode()
                put_message(machine.store, link, payload, kind=Kind.CONTROL, lane="live", now=5)


def deliver(pairs: Pairs) -> None:
    with pairs.device.open() as machine:
        token = read_token(relay_links.key_places(machine)).token.reveal()
        with RelayClient(URL, token, transport=OverHttpx(pairs.device_way)) as client:
            report = deliver_relay(machine, client, insist=True)
            assert report.problem is None


def poll(pairs: Pairs) -> None:
    with pairs.home.open() as machine, pairs.client() as client:
        poll_relay(machine, client)


def in_stream(pairs: Pairs) -> inbox.InStream:
    with pairs.home.open() as machine:
        (known,) = [one for one in inbox.all_streams(machine.store) if one.channel == Channel.CONVERSATIONS]
        return known


def waiting(pairs: Pairs) -> int:
    with pairs.device.open() as machine:
        return outbox.backlog(machine.store).blobs


def check_json(section: str, done: Done) -> dict[str, Any]:
    """Every key is documented."""
    value: dict[str, Any] = json.loads(done.out)
    patterns = documented(section)
    for key in keys_of(value):
        assert any(re.fullmatch(pattern_of(each), key) for each in patterns), f"{section}: {key} is not documented"
    return value


# ------------------------------------------------------------------------------------------------------ pair and join


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


def test_a_string_pasted_into_a_terminal_may_have_line_breaks(pairs: Pairs, on: On) -> None:
    string = on(pairs.home, "relay", "pair", "--offline").out.strip()
    wrapped = "\n".join(string[at : at + 80] for at in range(0, len(string), 80)) + "\n"
    assert on(pairs.device, "relay", "join", typed=wrapped, terminal=True).code == 0
    broken = on(pairs.device, "relay", "join", typed=wrapped[:-9] + "\n\n", terminal=True)
    assert broken.code == 2


def test_nothing_secret_is_an_argument(pairs: Pairs, on: On) -> None:
    for words in (("7-apple-river-story",), ("crystal1:abc",), ("--code", "7-apple-river-story")):
        assert on(pairs.device, "relay", "join", *words).code == 2


def test_the_mailboxes_number_may_be_wrong(pairs: Pairs, on: On) -> None:
    done = on(pairs.device, "relay", "join", "--relay", URL, typed="77777-apple-river-story\n")
    assert done.code == 2
    assert "no pairing with number 77777" in done.err


def test_pairing_is_for_a_home(pairs: Pairs, on: On) -> None:
    on(pairs.device, "relay", "join", typed=on(pairs.home, "relay", "pair", "--offline").out)
    done = on(pairs.device, "relay", "pair")
    assert (done.code, "a device" in done.err) == (3, True)


def test_a_relay_that_is_down_is_exit_code_4(pairs: Pairs, on: On) -> None:
    def down(request: httpx.Request) -> None:
        raise httpx.ConnectError("refused", request=request)

    pairs.home_way.before = down
    for words in (("pair",), ("pair", "--offline"), ("pair", "--shared", "x"), ("poll",)):
        assert on(pairs.home, "relay", *words).code == 4, words
    with pairs.home.open() as machine:
        assert all_peers(machine.store) == []


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
        assert read_key(relay_links.key_places(machine)).key == RelayKey("root", ROOT)
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

    class Screen(io.StringIO):
        encoding = "utf-8"

        def isatty(self) -> bool:
            return True

    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    relay_pairing._show(pair_home.Invitation("7-apple-river-story", "CRYSTAL-JOIN:7-A-B-C:HTTPS://X"), "https://x")
    assert "code: 7-apple-river-story\n" in screen.getvalue()
    assert "PICTURE" in screen.getvalue()
    assert drawn == ["CRYSTAL-JOIN:7-A-B-C:HTTPS://X"]


# ------------------------------------------------------------------------------------------------------------ the key


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


def test_the_paper_key_goes_out_and_in_again(pairs: Pairs, on: On) -> None:
    shown = on(pairs.home, "relay", "key", "--paper", "--yes")
    assert shown.code == 0
    assert re.findall(r"[a-z]+", shown.out) == list(to_words(ROOT))
    done = on(pairs.device, "relay", "key", "--restore", typed=shown.out)
    assert done.code == 0, done.err
    with pairs.device.open() as machine:
        assert read_key(relay_links.key_places(machine)).key == RelayKey("root", ROOT)
    assert on(pairs.device, "relay", "key", "--restore", typed=" ".join(to_words(ROOT))).code == 0  # the same again
    other = " ".join(to_words(ROOT[::-1]))
    refused = on(pairs.device, "relay", "key", "--restore", typed=other)
    assert (refused.code, "--replace" in refused.err) == (2, True)
    replaced = on(pairs.device, "relay", "key", "--restore", "--replace", typed=other)
    assert (replaced.code, "relay.key.bak" in replaced.err) == (0, True)
    wrong = on(pairs.device, "relay", "key", "--restore", "--replace", typed=other.replace(other.split()[0], "zzzz", 1))
    assert (wrong.code, "zzzz" in wrong.err) == (2, True)


def test_the_paper_key_is_shown_after_a_question_and_at_home_only(pairs: Pairs, on: On) -> None:
    no = on(pairs.home, "relay", "key", "--paper", typed="n\n", terminal=True)
    assert (no.code, no.out.strip()) == (130, "")
    assert len(re.findall(r"[a-z]+", on(pairs.home, "relay", "key", "--paper", typed="y\n", terminal=True).out)) == 24
    joined(pairs)
    assert on(pairs.device, "relay", "key", "--paper").code == 3
    restore = on(pairs.device, "relay", "key", "--restore", typed=" ".join(to_words(ROOT)))
    assert (restore.code, "promote" in restore.err) == (3, True)


# ------------------------------------------------------------------------------------------------------ poll and sync


def test_poll_and_sync_say_what_they_did(pairs: Pairs, on: On) -> None:
    joined(pairs)
    assert on(pairs.home, "relay", "poll").out == "nothing new\n"
    say(pairs, "note", "note")
    sent = check_json("crystal relay sync", on(pairs.device, "relay", "sync", "--json"))
    assert (sent["sent"], sent["waiting"], sent["problem"]) == (2, 2, None)
    assert check_json("crystal relay poll", on(pairs.home, "relay", "poll", "--json"))["blobs"] == 2
    done = on(pairs.device, "relay", "sync")
    assert (done.code, done.out) == (0, "home has everything\n")
    assert on(pairs.home, "relay", "poll", "--quiet").out == ""


def test_each_command_is_for_its_own_machine(pairs: Pairs, on: On) -> None:
    joined(pairs)
    other = on(pairs.home, "relay", "sync")
    assert (other.code, "crystal relay poll" in other.err) == (3, True)
    other = on(pairs.device, "relay", "poll")
    assert (other.code, "crystal relay sync" in other.err) == (3, True)
    assert on(pairs.device, "relay", "skip", "laptop", "1", "--yes").code == 3


def test_a_delivery_that_fails_is_exit_code_4(pairs: Pairs, on: On) -> None:
    joined(pairs)
    say(pairs, "note")

    def down(request: httpx.Request) -> None:
        raise httpx.ConnectError("refused", request=request)

    pairs.home_way.before = down  # commands of both machines go this way
    done = on(pairs.device, "relay", "sync")
    assert done.code == 4
    assert "1 blob not confirmed" in done.out
    state = on(pairs.device, "relay", "status")
    assert state.code == 4
    assert "does not answer" in state.out
    assert check_json("crystal relay status", on(pairs.device, "relay", "status", "--json"))["outbox"]["unsent"] == 1


def test_watching_goes_on_through_an_outage_and_ends_with_ctrl_c(
    pairs: Pairs, on: On, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crystal.app.sync import home

    joined(pairs)
    say(pairs, "note", "note")
    deliver(pairs)
    calls: list[str] = []

    def weather(request: httpx.Request) -> None:
        if request.url.path == "/v1/streams":
            calls.append(request.url.query.decode())
            if len(calls) == 1:
                raise httpx.ConnectError("refused", request=request)
            if "wait" in calls[-1]:
                raise KeyboardInterrupt

    pairs.home_way.before = weather
    monkeypatch.setattr(home.time, "sleep", lambda _: None)
    monkeypatch.setattr(home.time, "monotonic", iter(range(10**9)).__next__)
    done = on(pairs.home, "relay", "poll", "--watch", "--json")
    assert done.code == 130
    assert json.loads(done.out.splitlines()[0])["blobs"] == 2
    assert "trying again" in done.err
    assert "answers again" in done.err


def test_a_device_that_watches_sends_what_is_captured_meanwhile(
    pairs: Pairs, on: On, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crystal.app.sync import home

    joined(pairs)
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            say(pairs, "note")
        elif len(slept) == 30:
            raise KeyboardInterrupt

    monkeypatch.setattr(home.time, "sleep", sleep)
    monkeypatch.setattr(home.time, "monotonic", (at / 10 for at in range(10**9)).__next__)
    done = on(pairs.device, "relay", "sync", "--watch")
    assert done.code == 130
    assert "1 blob sent" in done.out


def test_a_revoked_device_learns_that_it_is_refused(pairs: Pairs, on: On) -> None:
    joined(pairs)
    assert on(pairs.home, "devices", "revoke", "laptop", "--yes").code == 0
    state = on(pairs.device, "relay", "status", "--json")
    assert state.code == 5
    told = check_json("crystal relay status", state)["relay"]
    assert (told["reachable"], "401" in told["problem"]) == (True, True)


def test_the_timer_of_the_poll_is_for_a_home(pairs: Pairs, on: On) -> None:
    joined(pairs)
    done = on(pairs.device, "relay", "poll", "--install-timer")
    assert (done.code, "crystal sync --install-timer" in done.err) == (3, True)


# ---------------------------------------------------------------------------------------------------- status and skip


def test_status_of_a_machine_that_keeps_to_itself(pairs: Pairs, on: On) -> None:
    with pairs.device.open():
        pass
    done = on(pairs.device, "relay", "status")
    assert (done.code, done.out) == (0, "role       standalone\n")
    assert check_json("crystal relay status", on(pairs.device, "relay", "status", "--json"))["ok"] is True


def test_status_tells_what_waits_on_both_sides(pairs: Pairs, on: On) -> None:
    joined(pairs)
    assert on(pairs.device, "relay", "status").code == 0
    say(pairs, "note", "note")
    done = on(pairs.device, "relay", "status")
    assert (done.code, "2 of them not at the relay yet" in done.out) == (1, True)
    deliver(pairs)
    assert "all are at the relay" in on(pairs.device, "relay", "status").out
    poll(pairs)
    deliver(pairs)
    assert on(pairs.device, "relay", "status").code == 0
    done = on(pairs.home, "relay", "status")
    assert (done.code, "2 taken" in done.out) == (0, True)
    (stream,) = check_json("crystal relay status", on(pairs.home, "relay", "status", "--json"))["streams"]
    assert (stream["device"], stream["last"], stream["missing"], stream["state"]) == ("laptop", 2, [], "ok")


def forge(pairs: Pairs, seq: int) -> None:
    """From now on the relay gives other bytes for a number than it was given."""

    def change(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        if request.method != "GET" or not re.search(rf"/blobs/{seq}$", request.url.path):
            return response
        body = response.read()
        headers = {"content-type": "application/octet-stream", "crystal-relay-version": "1"}
        return httpx.Response(200, headers=headers, content=body[:200] + bytes([body[200] ^ 1]) + body[201:])

    pairs.home_way.after = change


def test_a_forged_blob_stands_in_the_way_until_it_is_skipped_on_record(pairs: Pairs, on: On) -> None:
    joined(pairs)
    say(pairs, "note", "note", "note", "note")
    deliver(pairs)
    forge(pairs, 2)
    polled = on(pairs.home, "relay", "poll")
    assert (polled.code, "number 2" in polled.err) == (6, True)
    done = on(pairs.home, "relay", "status")
    assert done.code == 6
    assert "1 taken, 3 missing (from 2), 3 of them at the relay, 1 set aside" in done.out
    assert "crystal relay skip laptop 2" in done.out
    assert "1 blob set aside" in on(pairs.home, "devices").out

    for seq in (0, 1, 3, 4, 5):
        refused = on(pairs.home, "relay", "skip", "laptop", str(seq), "--yes")
        assert (refused.code, "only the next one can be skipped: 2" in refused.err) == (2, True)
    assert on(pairs.home, "relay", "skip", "laptop", "2").code == 2  # nobody was asked
    assert on(pairs.home, "relay", "skip", "laptop", "2", typed="n\n", terminal=True).code == 130
    assert on(pairs.home, "relay", "skip", "desk", "2", "--yes").code == 1
    assert on(pairs.home, "relay", "skip", "laptop", "2", "--stream", "ffff", "--yes").code == 2
    assert in_stream(pairs).last_seq == 1

    stream = in_stream(pairs).stream.hex()
    done = on(pairs.home, "relay", "skip", "laptop", "2", "--stream", stream, "--yes")
    assert (done.code, "skipped number 2 of laptop" in done.out) == (0, True)
    assert in_stream(pairs).last_tag == b""  # what was skipped proves nothing
    assert on(pairs.home, "relay", "poll").code == 0
    assert (in_stream(pairs).last_seq, in_stream(pairs).state) == (4, "ok")
    told = check_json("crystal relay status", on(pairs.home, "relay", "status", "--json"))
    assert [(one["device"], one["seq"]) for one in told["skips"]] == [("laptop", 2)]
    assert [(one["seq"], one["code"]) for one in told["set_aside"]] == [(2, "tag")]
    assert told["ok"] is True
    deliver(pairs)
    assert waiting(pairs) == 0


def test_a_receipt_right_after_a_skip_takes_nothing_from_the_device(pairs: Pairs, on: On) -> None:
    joined(pairs)
    say(pairs, "note", "note")
    deliver(pairs)
    forge(pairs, 2)
    poll(pairs)
    assert on(pairs.home, "relay", "skip", "laptop", "2", "--yes").code == 0
    poll(pairs)
    deliver(pairs)
    assert waiting(pairs) == 2  # the device keeps what home never got
    with pairs.device.open() as machine:
        assert (
            len([one for one in outbox.streams(machine.store) if one.lane == "live"]) == 1
        )  # and takes it for no fork
    say(pairs, "note")
    deliver(pairs)
    poll(pairs)
    deliver(pairs)
    assert (waiting(pairs), in_stream(pairs).last_seq) == (0, 3)


def test_what_the_device_did_seal_keeps_the_chain_when_it_is_skipped(pairs: Pairs, on: On) -> None:
    joined(pairs)
    say(pairs, "note", "of a kind that nobody knows", "note")
    deliver(pairs)
    assert on(pairs.home, "relay", "poll").code == 6
    assert on(pairs.home, "relay", "skip", "laptop", "2", "--yes").code == 0
    with pairs.device.open() as machine:
        (stream,) = [one for one in outbox.streams(machine.store) if one.lane == "live"]
        assert in_stream(pairs).last_tag == outbox.tag_at(machine.store, stream.id, 2)
    poll(pairs)
    assert in_stream(pairs).last_seq == 3


def test_after_a_skip_only_the_next_blob_may_name_any_predecessor(pairs: Pairs, on: On) -> None:
    joined(pairs)
    say(pairs, "note", "note", "note", "note")
    with pairs.device.open() as machine:  # as if the device's own disk had lost the chain between 3 and 4
        (stream,) = [one for one in outbox.streams(machine.store) if one.lane == "live"]
        link = relay_links.device_link(machine)
        assert link is not None
        sealed = outbox.sealed_blob(machine.store, stream.id, 4)
        assert sealed is not None
        opened = open_blob(sealed, link.keys, channel=Channel.CONVERSATIONS, stream=stream.stream, seq=4, prev=None)
        other = seal(link.keys, opened.payload, channel=Channel.CONVERSATIONS, kind=opened.kind, stream=stream.stream,
                     seq=4, prev=b"x" * 32, salt=b"s" * 32, created_at=5)  # fmt: skip
        with machine.store.transaction():
            machine.store.execute("UPDATE outbox SET sealed = ?, tag = ? WHERE seq = 4", (other, tag_of(other)))
    deliver(pairs)
    forge(pairs, 2)
    poll(pairs)
    assert on(pairs.home, "relay", "skip", "laptop", "2", "--yes").code == 0
    polled = on(pairs.home, "relay", "poll")
    assert (in_stream(pairs).last_seq, in_stream(pairs).state) == (3, "fork")
    assert polled.code == 5
    assert on(pairs.home, "relay", "status").code == 5


def test_a_number_that_never_came_can_be_skipped(pairs: Pairs, on: On) -> None:
    joined(pairs)
    say(pairs, "note", "note", "note")
    deliver(pairs)
    known_stream = ""
    with pairs.client() as client:
        (info,) = [one for one in client.streams().streams if one.head == 3]
        known_stream = info.stream.hex()

    def hide(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        if request.method != "GET" or not request.url.path.endswith(f"{known_stream}/blobs"):
            return response
        page = json.loads(response.read())
        if [one["seq"] for one in page["blobs"]] == [2]:  # asked for one only: the relay would give the next
            page["blobs"][0]["seq"] = 3
        page["blobs"] = [one for one in page["blobs"] if one["seq"] != 2]
        headers = {"content-type": "application/json", "crystal-relay-version": "1"}
        return httpx.Response(200, headers=headers, content=json.dumps(page).encode())

    pairs.home_way.after = hide
    poll(pairs)
    assert (in_stream(pairs).state, in_stream(pairs).last_seq) == ("waiting", 1)
    status = on(pairs.home, "relay", "status")
    assert (status.code, "2 missing (from 2), 1 of them at the relay" in status.out) == (1, True)
    assert on(pairs.home, "relay", "skip", "laptop", "2", "--yes").code == 0
    poll(pairs)
    assert (in_stream(pairs).state, in_stream(pairs).last_seq) == ("ok", 3)


def test_blobs_of_a_revoked_device_are_counted_and_not_fetched(pairs: Pairs, on: On) -> None:
    joined(pairs)
    say(pairs, "note")
    deliver(pairs)
    poll(pairs)
    say(pairs, "note", "note")
    deliver(pairs)  # its token is taken away only now
    assert on(pairs.home, "devices", "revoke", "laptop", "--yes").code == 0
    polled = on(pairs.home, "relay", "poll")
    assert polled.code == 0  # nothing is to be done about it
    assert in_stream(pairs).last_seq == 1
    done = on(pairs.home, "relay", "status")
    assert done.code == 0
    assert "laptop: revoked; 3 blobs in 2 streams at the relay, not fetched" in done.out  # its heartbeats too
    assert "REVOKED" in on(pairs.home, "devices").out
    told = check_json("crystal relay status", on(pairs.home, "relay", "status", "--json"))
    assert (told["set_aside"], [one["code"] for one in told["not_kept"]]) == ([], ["revoked"])
    assert on(pairs.home, "relay", "skip", "laptop", "2", "--yes").code == 2


# ------------------------------------------------------------------------------------------------------------ a timer


def test_the_timer_of_the_poll_is_another_than_that_of_the_sweep(
    pairs: Pairs, on: On, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, table = tmp_path / "bin", tmp_path / "table"
    folder.mkdir()
    (folder / "crontab").write_text(
        f'#!/bin/sh\ncase $1 in\n-l) if [ -f {table} ]; then /bin/cat {table}; else echo "no crontab for me" >&2; exit 1; fi ;;\n'
        f"-r) /bin/rm {table} ;;\n-) /bin/cat > {table} ;;\nesac\n"
    )
    (folder / "crontab").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(sys, "platform", "linux")
    told = on(pairs.home, "relay", "poll", "--install-timer", "--dry-run")
    assert "crystal relay poll --quiet" in told.out
    assert not table.exists()
    done = on(pairs.home, "relay", "poll", "--install-timer")
    assert "every 2 minutes" in done.out
    on(pairs.home, "sync", "--install-timer")
    lines = table.read_text().splitlines()
    assert [line.rpartition("# ")[2] for line in lines] == ["crystal-poll", "crystal-sync"]
    assert lines[0].startswith("*/2 ")
    on(pairs.home, "sync", "--remove-timer")
    assert len(table.read_text().splitlines()) == 1
    on(pairs.home, "relay", "poll", "--remove-timer")
    assert not table.exists()
