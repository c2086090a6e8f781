"""``crystal relay`` from outside: poll, sync, status and skip; what is printed, which exit code."""

from __future__ import annotations

import json
import re
import sys
import threading
from types import SimpleNamespace

import httpx
import pytest

from crystal.app import relay_links
from crystal.app.sync import relay_news
from crystal.cli import relay
from crystal.store.sync import outbox
from crystal.sync.envelope.blob import Channel, open_blob, seal, tag_of
from tests.support.over_httpx import down
from tests.support.pairing_boxes import Pairs
from tests.support.relay_commands import On, check_json, deliver, in_stream, joined, on, pairs, poll, say, site, waiting

pytestmark = pytest.mark.slow

__all__ = ["on", "pairs", "site"]


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

    pairs.home_way.before = down  # commands of both machines go this way
    done = on(pairs.device, "relay", "sync")
    assert done.code == 4
    assert "1 blob not confirmed" in done.out
    state = on(pairs.device, "relay", "status")
    assert state.code == 4
    assert "is not available now" in state.out
    assert check_json("crystal relay status", on(pairs.device, "relay", "status", "--json"))["outbox"]["unsent"] == 1


def test_watching_goes_on_through_an_outage_and_ends_with_ctrl_c(pairs, on, monkeypatch):
    joined(pairs)
    say(pairs, "note", "note")
    deliver(pairs)
    listed: list[int] = []

    def weather(request: httpx.Request) -> None:
        if request.url.path == "/v1/streams" and threading.current_thread() is threading.main_thread():
            listed.append(1)
            if len(listed) == 1:
                raise httpx.ConnectError("refused", request=request)
            if len(listed) == 4:  # after the poll that found two blobs, and listed again
                raise KeyboardInterrupt

    pairs.home_way.before = weather
    monkeypatch.setattr(relay, "POLL_PAUSE", 0.05)
    monkeypatch.setattr(relay_news, "IDLE_SECONDS", 0.1)
    done = on(pairs.home, "relay", "poll", "--watch", "--json")
    assert done.code == 130
    assert json.loads(done.out.splitlines()[0])["blobs"] == 2
    assert "trying again" in done.err
    assert "answers again" in done.err


def test_a_device_that_watches_sends_what_is_captured_meanwhile(pairs, on, monkeypatch):
    joined(pairs)
    told = relay._say_delivery

    def said(*words, **kinds):
        told(*words, **kinds)
        raise KeyboardInterrupt

    monkeypatch.setattr(relay, "_say_delivery", said)
    meanwhile = threading.Timer(1, say, [pairs, "note"])
    meanwhile.start()
    done = on(pairs.device, "relay", "sync", "--watch")
    meanwhile.join()
    assert done.code == 130
    assert "1 blob sent" in done.out


def test_a_revoked_device_learns_that_it_is_refused(pairs: Pairs, on: On) -> None:
    joined(pairs)
    assert on(pairs.home, "devices", "revoke", "laptop", "--yes").code == 0
    state = on(pairs.device, "relay", "status", "--json")
    assert state.code == 5
    told = check_json("crystal relay status", state)["relay"]
    assert (told["reachable"], "401" in told["problem"]) == (True, True)
    done = on(pairs.device, "relay", "sync")
    assert done.code == 5
    assert "401" in done.err
    assert "hint: the token is unknown or revoked; on a device: crystal relay join --replace" in done.err


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
    assert "1 taken, 3 missing (from 2), 3 of them at the relay" in done.out
    assert "crystal relay skip laptop 2" in done.out

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
    assert (done.code, "skipped blob 2 of laptop" in done.out) == (0, True)
    assert in_stream(pairs).last_tag == b""  # what was skipped proves nothing
    assert on(pairs.home, "relay", "poll").code == 0
    assert (in_stream(pairs).last_seq, in_stream(pairs).state) == (4, "ok")
    told = check_json("crystal relay status", on(pairs.home, "relay", "status", "--json"))
    assert [(one["device"], one["seq"]) for one in told["skips"]] == [("laptop", 2)]
    assert [(one["device"], one["code"]) for one in told["refused"]] == [("laptop", "tag")]
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
    assert [one["code"] for one in told["refused"]] == ["revoked"]
    assert on(pairs.home, "relay", "skip", "laptop", "2", "--yes").code == 2


# ------------------------------------------------------------------------------------------------------------ a timer


def test_the_timer_of_the_poll_is_another_than_that_of_the_sweep(pairs, on, tmp_path, monkeypatch):
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


def test_a_flood_of_streams_that_nothing_opens_is_a_few_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = [SimpleNamespace(stream=bytes([number]) * 16, state="wrong-key", detail=None) for number in range(200)]
    stuck = [SimpleNamespace(is_stuck=True, device="laptop", known=one, ident=None) for one in known]
    monkeypatch.setattr(relay, "stream_states", lambda _: stuck)
    monkeypatch.setattr(relay.relay_status, "code_of_streams", lambda _: 5)
    named = set[str]()
    for lines in (7, 0):  # and nothing is named again
        assert relay._say_stuck(SimpleNamespace(store=None), named) == 5  # type: ignore[arg-type]
        told = capsys.readouterr().err.splitlines()
        assert len(told) == lines
    assert len(named) == 200
