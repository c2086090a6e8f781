"""Tokens, rates, addresses and settings of the relay: functions of their arguments."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import dataclasses
from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_worker import services
from relay_worker.crb1 import check_envelope
from relay_worker.errors import CannotServeError, RequestRefusedError
from relay_worker.http import call
from relay_worker.limits import Buckets, ChangeSignals, Slots, address_of, networks
from relay_worker.serving import refuse_plain_http
from relay_worker.settings import NAMES, Settings, host_and_port, load
from relay_worker.tokens import check_label, check_scopes, is_valid, new_token, parse_token, prefixes_of
from tests.relay_conformance.targets import OPEN, in_process, new_stream
from tests.support.relay_server import STREAM, sealed
from tests.support.table import each_row

# -- tokens


@pytest.mark.slow
@given(st.binary(min_size=8, max_size=8), st.binary(min_size=32, max_size=32))
def test_a_token_is_read_back_and_no_character_of_it_can_be_changed(token_id, secret):
    made, text = new_token("default", "x", ["home"], 1, {8: token_id, 32: secret}.__getitem__)
    assert parse_token(text) == (made.id, text[21:64])
    assert text[21:64] not in repr(made)
    for at in range(len(text)):
        for other in "A_0":
            changed = text[:at] + other + text[at + 1 :]
            assert changed == text or parse_token(changed) is None


@each_row(
    "text",
    ["", "constructor", "toString", "__proto__", "hasOwnProperty", "crt_", "crt__ _", "é" * 74, "crt_" + "x" * 10**6],
)
def test_what_is_no_token_is_none(text):
    assert parse_token(text) is None


def test_a_secret_is_compared_whether_the_token_is_known_or_not():
    kept, text = new_token("default", "x", ["home"], 1, bytes)
    _, other = new_token("default", "x", ["home"], 1, lambda size: b"c" * size)
    revoked = dataclasses.replace(kept, revoked_at=1)
    _, secret = parse_token(text)
    _, wrong = parse_token(other)
    assert is_valid(secret, kept)
    assert not is_valid(wrong, kept)
    assert not is_valid(secret, revoked)
    assert not is_valid(secret, None)
    assert "secret_hash" not in repr(kept)


def test_scopes_name_prefixes_of_streams():
    own, other = STREAM[:8].hex(), "ff" * 8

    def allows_stream(scopes, *verbs):
        asked = call.Call({"headers": []}, None, None)
        asked.token = new_token("default", "x", scopes, 1, bytes)[0]
        try:
            asked.need_stream(STREAM, *verbs)
        except RequestRefusedError as refusal:
            return refusal.code != "forbidden"
        return True

    assert allows_stream([f"write:{own}"], "write")
    assert not allows_stream([f"write:{own}"], "read", "ack")
    assert not allows_stream([f"write:{other}", "pair", "objects:read"], "write")
    assert allows_stream(["home"], "ack")
    assert prefixes_of(("home", "pair")) == (b"",)
    assert prefixes_of((f"write:{own}", f"ack:{own}", "pair")) == (STREAM[:8],)
    assert prefixes_of(("pair",)) == ()


@each_row(
    "scopes",
    [
        [],
        ["home", "home"],
        ["root"],
        ["write:"],
        ["write:XYZ"],
        ["write:" + "A" * 16],
        ["write:" + "a" * 17],
        ["home\n"],
        ["pair"] + [f"write:{n:016x}" for n in range(64)],
    ],
)
def test_other_scopes_are_refused(scopes):
    with pytest.raises(RequestRefusedError) as caught:
        check_scopes(scopes)
    assert caught.value.code == "bad-request"


@each_row("label", ["", "x" * 201, "a\nb", "\x00", "\ud800", "\u2028"])
def test_other_labels_are_refused(label):
    with pytest.raises(RequestRefusedError):
        check_label(label)


# -- the envelope's outside


@given(st.integers(0, 115), st.integers(1, 255))
def test_a_changed_header_is_refused_where_the_relay_reads_it(at, flip):
    body = sealed(7)
    changed = body[:at] + bytes([body[at] ^ flip]) + body[at + 1 :]
    read = at < 5 or 24 <= at < 48 or at >= 112
    with pytest.raises(RequestRefusedError, match="bad-envelope") if read else contextlib.nullcontext():
        check_envelope(changed, stream=STREAM, seq=7)


@given(st.integers(0, 147))
def test_a_truncated_envelope_is_refused(length):
    with pytest.raises(RequestRefusedError):
        check_envelope(sealed(7)[:length], stream=STREAM, seq=7)


# -- the query


@given(st.text("ab=&%+;2é"))
def test_a_query_is_read_as_the_standard_library_reads_it(text):
    assert call._parse_query(text) == parse_qs(text, keep_blank_values=True)


# -- rates


def test_a_bucket_gives_its_burst_then_its_rate():
    clock = [0.0]
    bucket = Buckets(2, 4, lambda: clock[0])
    assert [bucket.take("a") for _ in range(5)] == [0, 0, 0, 0, 1]
    assert bucket.take("b") == 0
    clock[0] = 0.5
    assert [bucket.take("a") for _ in range(2)] == [0, 1]
    clock[0] = -100.0
    assert bucket.take("a") == 1
    slow = Buckets(1 / 60, 1, lambda: 0.0)
    assert [slow.take("a") for _ in range(2)] == [0, 60]
    assert not any(Buckets(0, 0, lambda: 0.0).take("a") for _ in range(100))


def test_buckets_do_not_grow_with_the_number_of_addresses():
    bucket = Buckets(1, 1, lambda: 0.0, keys=10)
    for number in range(1000):
        bucket.take(str(number))
    assert len(bucket._filled) <= 10


def test_slots_are_given_in_order_and_none_is_lost_with_a_request_that_waits():
    async def holding() -> list[int]:
        slots, order = Slots(2, 5), []

        async def one(number: int) -> None:
            await slots.take()
            order.append(number)
            await asyncio.sleep(0)
            slots.release()

        tasks = [asyncio.ensure_future(one(number)) for number in range(20)]
        await asyncio.sleep(0)
        tasks[10].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert slots._free._value == 2
        return order

    assert asyncio.run(holding()) == [number for number in range(20) if number != 10]


def test_news_between_asking_and_waiting_are_not_missed():
    async def waiting() -> None:
        signals = ChangeSignals()
        with signals.expect("a") as news:
            signals.notify("b")
            signals.notify("a")
            await asyncio.wait_for(news, 1)
        assert signals.count == 0
        signals.stop()
        with signals.expect("a") as news:
            assert news.done()

    asyncio.run(waiting())


def test_the_store_is_not_asked_for_what_did_not_change():
    async def asking() -> None:
        signals = ChangeSignals(lambda: 0.0)
        with signals.expect("a") as news:
            signals.keep_latest("a", 7, news)
        assert [signals.is_latest("a", change, 55.0) for change in (6, 7, 8)] == [False, True, False]
        assert not signals.is_latest("b", 7, 55.0)
        assert not signals.is_latest("a", 7, 121.0), "a question may not wait until then without asking the store"
        for tell in (lambda: signals.notify("a"), signals.notify_all):
            with signals.expect("a") as news:
                signals.keep_latest("a", 7, news)
            tell()
            assert not signals.is_latest("a", 7, 55.0)
        with signals.expect("a") as news:
            signals.notify("a")
            signals.keep_latest("a", 7, news)
        assert not signals.is_latest("a", 7, 55.0), "it may have been read before the change"

    asyncio.run(asking())


def test_one_question_for_all_renews_what_is_known_and_finds_what_nobody_told():
    async def comparing() -> None:
        now = 0.0
        signals = ChangeSignals(lambda: now)
        with contextlib.ExitStack() as opened:
            news = {key: opened.enter_context(signals.expect(key)) for key in ("same", "missed", "gone", "told")}
            for key, one in news.items():
                signals.keep_latest(key, 7, one)
            with signals.expect("left") as left:
                signals.keep_latest("left", 7, left)
            believed = signals.latest_of_waiting()
            assert believed == dict.fromkeys(news, 7), "who no longer waits is not asked for"
            signals.notify("told")
            signals.keep_latest("told", 9, opened.enter_context(signals.expect("told")))
            now = 60.0
            signals.compare(believed, {"same": 7, "missed": 8, "told": 8}, now)
            assert [key for key in news if news[key].done()] == ["missed", "gone", "told"]
            assert signals.is_latest("same", 7, 175.0)
            assert signals.is_latest("told", 9, 115.0), "it was read later"
            assert not signals.is_latest("missed", 7, 61.0)

    asyncio.run(comparing())


@pytest.mark.slow
def test_one_token_does_not_take_all_the_places_to_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(services, "MAX_WAITING_EACH", 2)
    with in_process(tmp_path / "relay", **OPEN) as relay, concurrent.futures.ThreadPoolExecutor(4) as pool:
        other = relay.make_token("home")
        change = relay.ask("GET", "/v1/streams").json()["change"]

        def wait(token):
            return relay.ask("GET", "/v1/streams", token=token, changed_after=change, wait=20).json()["streams"]

        waiting = [pool.submit(wait, relay.home) for _ in range(3)]
        done, waiting = concurrent.futures.wait(waiting, 5, concurrent.futures.FIRST_COMPLETED)
        assert [one.result() for one in done] == [[]], "the third is not held"
        waiting.add(pool.submit(wait, other))
        stream = new_stream()
        assert not concurrent.futures.wait(waiting, 0.1).done, "another token's is"
        assert relay.put(stream, 1).status_code == 201
        assert {one.result()[0]["stream"] for one in waiting} == {stream.hex()}


@each_row(
    ("peer", "forwarded", "trusted", "found"),
    [
        ("1.2.3.4", "", [], "1.2.3.4"),
        ("1.2.3.4", "9.9.9.9", [], "1.2.3.4"),
        ("10.0.0.1", "9.9.9.9", ["10.0.0.0/8"], "9.9.9.9"),
        ("10.0.0.1", "6.6.6.6, 9.9.9.9, 10.0.0.2", ["10.0.0.0/8"], "9.9.9.9"),
        ("10.0.0.1", "6.6.6.6, garbage", ["10.0.0.0/8"], "10.0.0.1"),
        ("10.0.0.1", "", ["10.0.0.0/8"], "10.0.0.1"),
        ("10.0.0.1", "9.9.9.9:4711", ["10.0.0.0/8"], "9.9.9.9"),
        ("10.0.0.1", "6.6.6.6:1, 9.9.9.9:2, 10.0.0.2:3", ["10.0.0.0/8"], "9.9.9.9"),
        ("10.0.0.1", "[2001:db8::7]:4711", ["10.0.0.0/8"], "2001:db8::/64"),
        ("10.0.0.1", "[2001:db8::7]", ["10.0.0.0/8"], "2001:db8::/64"),
        ("10.0.0.1", "9.9.9.9:x", ["10.0.0.0/8"], "10.0.0.1"),
        ("::ffff:10.0.0.1", "9.9.9.9", ["10.0.0.0/8"], "9.9.9.9"),
        ("2001:db8::1", "", [], "2001:db8::/64"),
        ("2001:db8::ffff:1", "", [], "2001:db8::/64"),
        ("", "9.9.9.9", ["10.0.0.0/8"], ""),
    ],
)
def test_an_address_is_believed_from_a_trusted_proxy_only(peer, forwarded, trusted, found):
    assert address_of(peer, forwarded, networks(trusted)) == found


# -- settings


def test_environment_beats_file_beats_default(tmp_path):
    file = tmp_path / "relay.toml"
    file.write_text('listen = "127.0.0.1:1"\nmax_blobs = 7\ntrusted_proxies = ["10.0.0.0/8"]\nbehind_proxy = true\n')
    found = load({"CRYSTAL_RELAY_LISTEN": "127.0.0.1:2", "CRYSTAL_RELAY_CONFIG": str(file)})
    assert (found.listen, found.max_blobs, found.ttl_days) == ("127.0.0.1:2", 7, 30.0)
    assert (found.trusted_proxies, found.behind_proxy) == (("10.0.0.0/8",), True)
    assert found.sources["listen"] == "CRYSTAL_RELAY_LISTEN"
    assert found.sources["max_blobs"] == str(file)


def test_every_setting_can_be_set_and_has_a_file_variant(tmp_path):
    assert set(NAMES) == {one.name for one in dataclasses.fields(Settings)} - {"sources", "unknown"}
    file = tmp_path / "quota"
    file.write_text("12345\n")
    assert load({"CRYSTAL_RELAY_QUOTA_BYTES_FILE": str(file)}).quota_bytes == 12345


@each_row(
    ("name", "value"),
    [
        ("LISTEN", "nonsense"),
        ("LISTEN", "1.2.3.4:99999"),
        ("LISTEN", "1.2.3.4:²"),
        ("MAX_BODY", "-1"),
        ("MAX_BODY", "8MB"),
        ("TTL_DAYS", "nan"),
        ("TTL_DAYS", "inf"),
        ("TTL_DAYS", "1e12"),
        ("RATE", ""),
        ("LOG_FORMAT", "xml"),
        ("BEHIND_PROXY", "perhaps"),
        ("TRUSTED_PROXIES", "everybody"),
        ("TLS_CERT", "only-one.pem"),
        ("CONFIG", "/nowhere/relay.toml"),
        ("LISTEN_FILE", "/nowhere"),
    ],
)
def test_a_wrong_value_is_refused_by_name(name, value):
    with pytest.raises(CannotServeError) as caught:
        load({f"CRYSTAL_RELAY_{name}": value})
    assert caught.value.exit_code == 2


def test_a_number_of_the_file_is_not_rounded(tmp_path):
    file = tmp_path / "relay.toml"
    file.write_text("max_blobs = 7.5\n")
    with pytest.raises(CannotServeError, match=r"max_blobs in .* is 7.5"):
        load({}, file)
    file.write_text("metrics_listen = [9600]\n")
    with pytest.raises(CannotServeError, match="metrics_listen"):
        load({}, file)
    file.write_text(f"quota_bytes = {2**60 + 1}\n")
    assert load({}, file).quota_bytes == 2**60 + 1


def test_an_unknown_key_of_the_file_is_refused_and_an_unknown_variable_told(tmp_path):
    file = tmp_path / "relay.toml"
    file.write_text("max_blob = 7\n")
    with pytest.raises(CannotServeError, match="max_blob is not a setting"):
        load({}, file)
    of_a_client = dict.fromkeys(("TOKEN", "TOKEN_FILE", "KEY", "KEY_PLACE", "URL", "LOCAL_MEMORY", "KEEP_DAYS"), "x")
    found = load({f"CRYSTAL_RELAY_{name}": "7" for name in ("MAX_BLOB", *of_a_client)})
    assert found.unknown == ("CRYSTAL_RELAY_MAX_BLOB",)


def test_a_platform_that_sets_port_is_in_front_of_the_relay():
    found = load({"PORT": "8080"})
    assert (found.listen, found.behind_proxy) == ("0.0.0.0:8080", True)
    assert load({"PORT": "8080", "CRYSTAL_RELAY_LISTEN": "127.0.0.1:1"}).listen == "127.0.0.1:1"


@each_row(("environ", "end"), [({"STATE_DIRECTORY": "/var/lib/x:/y"}, "/var/lib/x"), ({}, "crystal-relay")])
def test_data_has_a_place_without_being_told(environ, end):
    assert load(environ).data_dir.as_posix().endswith(end)


@each_row("listen", ["0.0.0.0:8600", "[::]:8600", "192.168.1.5:8600", "relay.example.org:8600"])
def test_plain_http_to_a_network_has_to_be_meant(listen):
    with pytest.raises(CannotServeError, match="not loopback"):
        refuse_plain_http(Settings(listen=listen))
    refuse_plain_http(Settings(listen=listen, behind_proxy=True))


@each_row("listen", ["127.0.0.1:8600", "[::1]:0", "localhost:1", "8600"])
def test_loopback_needs_no_word(listen):
    refuse_plain_http(Settings(listen=listen))
    assert host_and_port(listen, "listen")[1] < 8601
