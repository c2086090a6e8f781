"""Claims about a relay that lies: whatever it answers, the client ends soon, small, with an error that says enough.

The list is that of the threat table: names that climb out of a folder, endless and dripping answers, redirects to
the inside of a network, bodies cut off or inflated, headers that contradict each other, numbers no number has.
"""

import gzip
import json
import time
import tracemalloc
import zlib

import pytest

from crystal.sync import answers
from crystal.sync.client import RelayClient
from crystal.sync.errors import (
    RelayDeniedError,
    RelayProtocolError,
    RelayUnavailableError,
    StreamConflictError,
)
from crystal.sync.transport import Timeouts
from tests.support.examples import part_of
from tests.support.hostile_calls import BLOB, CALLS, PATIENT, QUICK, STREAM, TOKEN, ask, refused
from tests.support.hostile_relay import VERSION, answer, drips, floods, hostile, says, says_json, silent
from tests.support.table import each_row

pytestmark = pytest.mark.usefixtures("nothing_is_written")


# ------------------------------------------------------------------------------------------- every call, every lie


LIES = {
    "nothing": (says(b""), RelayUnavailableError),
    "half a head": (says(b"HTTP/1.1 200 OK\r\nContent-"), RelayUnavailableError),
    "no HTTP": (says(b"\x16\x03\x01\x02\x00 evil\r\n\r\n"), RelayProtocolError),
    "a garbage status": (says(b"HTTP/1.1 abc evil\r\n\r\n"), RelayProtocolError),
    "an unknown HTTP": (says(b"HTTP/9.9 200 OK\r\n\r\n"), RelayProtocolError),
    "a login page": (says(answer(b"<html>evil</html>", kind=b"text/html", version=b"")), RelayProtocolError),
    "an empty page": (says(answer(b"", version=b"")), RelayProtocolError),
    "no such place": (
        says(answer(b"evil", status=b"404 Not Found", kind=b"text/plain", version=b"")),
        RelayProtocolError,
    ),
    "a conflict by a stranger": (says(answer(b"{}", status=b"409 Conflict", version=b"")), RelayProtocolError),
    "a redirect": (
        says(answer(status=b"302 Found", more=b"Location: http://169.254.169.254/latest/evil\r\n")),
        RelayProtocolError,
    ),
    "a lasting redirect": (
        says(answer(status=b"308 Moved", more=b"Location: https://evil.example/\r\n")),
        RelayProtocolError,
    ),
    "not modified": (says(answer(status=b"304 Not Modified")), RelayProtocolError),
    "an odd success": (says(answer(b"{}", status=b"206 Partial Content")), RelayProtocolError),
    "an odd status": (says(answer(b"{}", status=b"299 Evil")), RelayProtocolError),
    "an unknown refusal": (says(answer(b"{}", status=b"418 Evil")), RelayProtocolError),
    "another version": (says(answer(b"{}", version=b"Crystal-Relay-Version: 2\r\n")), RelayDeniedError),
    "two versions": (says(answer(b"{}", version=VERSION + b"Crystal-Relay-Version: 2\r\n")), RelayProtocolError),
    "a version of letters": (says(answer(b"{}", version=b"Crystal-Relay-Version: evil\r\n")), RelayProtocolError),
    "two lengths": (says(answer(b"{}", more=b"Content-Length: 5\r\n")), RelayProtocolError),
    "a negative length": (says(answer(b"{}", length=-1)), RelayProtocolError),
    "a length of letters": (says(answer(b"{}").replace(b"Length: 2", b"Length: evil")), RelayProtocolError),
    "headers without end": (floods(b"HTTP/1.1 200 OK\r\n", b"X-Evil: " + b"x" * 1000 + b"\r\n"), RelayProtocolError),
    "a header without end": (floods(b"HTTP/1.1 200 OK\r\nX-Evil: ", b"x" * 1000), RelayProtocolError),
    "a thousand continues": (floods(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), RelayUnavailableError),
    "compression": (
        says(answer(gzip.compress(b'{"streams":[]}'), more=b"Content-Encoding: gzip\r\n")),
        RelayProtocolError,
    ),
    "an unknown compression": (says(answer(b"{}", more=b"Content-Encoding: evil\r\n")), RelayProtocolError),
    "too many chunks": (
        floods(
            b"HTTP/1.1 200 OK\r\n" + VERSION + b"Transfer-Encoding: chunked\r\n\r\n", b"fffffff\r\n" + b"x" * 65_536
        ),
        RelayProtocolError,
    ),
    "a chunk of no size": (
        says(b"HTTP/1.1 200 OK\r\n" + VERSION + b"Transfer-Encoding: chunked\r\n\r\nevil\r\n{}\r\n0\r\n\r\n"),
        RelayProtocolError,
    ),
    "a refusal": (says(answer(b"{}", status=b"401 Unauthorized")), RelayDeniedError),
    "a bug": (says(answer(b"evil\x1b[2J", status=b"500 Evil\x1b[2J".replace(b"\x1b", b""))), RelayUnavailableError),
    "a huge refusal": (
        floods(b"HTTP/1.1 503 Evil\r\nContent-Length: 99999999999\r\n\r\n", b"x" * 65_536),
        RelayUnavailableError,
    ),
    "silence": (silent, RelayUnavailableError),
}


SLOW_LIES = ("a thousand continues", "silence")
"""They end by the clock only; told in the other calls too where there is time for it."""
SENDING = ("streams", "get", "put")


TOLD = [(call, lie) for call in SENDING for lie in LIES if call == "get" or lie not in SLOW_LIES]


@each_row(("call", "lie"), part_of(TOLD, 20))
def test_no_lie_gets_through(call, lie):
    script, kind = LIES[lie]
    refused(script, call, kind, QUICK if lie in SLOW_LIES else PATIENT)


@pytest.mark.slow
@each_row(("call", "lie"), [(call, lie) for call in SENDING if call != "get" for lie in SLOW_LIES])
def test_no_slow_lie_gets_through(call, lie):
    script, kind = LIES[lie]
    refused(script, call, kind, QUICK)


@each_row("call", CALLS)
@each_row("lie", ["nothing", "no HTTP", "a login page", "a redirect", "another version", "a refusal"])
def test_every_call_ends_in_an_error_of_ours(call, lie):
    script, kind = LIES[lie]
    refused(script, call, kind)


def test_a_redirect_is_not_followed_and_the_token_goes_nowhere():
    with hostile(says_json({})) as elsewhere:
        target = elsewhere.url.encode()
        for status in (b"301 M", b"302 F", b"303 S", b"307 T", b"308 P"):
            refused(says(answer(status=status, more=b"Location: " + target + b"/\r\n")), "put", RelayProtocolError)
        assert not elsewhere.asked


def test_a_cookie_is_not_kept():
    with hostile(says(answer(b'{"status":"ready"}', more=b"Set-Cookie: evil=1; Path=/\r\n"))) as relay:
        with RelayClient(relay.url, TOKEN) as client:
            client.health()
            client.health()
        assert len(relay.asked) == 2
        assert b"ookie" not in b"".join(relay.asked)


def test_the_environment_names_no_proxy(monkeypatch):
    with hostile(says_json({"status": "ready"})) as relay, hostile(says_json({})) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.setenv("NO_PROXY", "")
        with RelayClient(relay.url, TOKEN) as client:
            client.health()
        assert len(relay.asked) == 1
        assert not proxy.asked


# ------------------------------------------------------------------------------------------------- memory and time


@each_row("call", ["get", "streams", "put", "health"])
@each_row("declared", [b"Content-Length: 10737418240\r\n", b""])
def test_ten_gigabytes_take_no_more_memory_than_an_answer_may(call, declared):
    kind = b"application/octet-stream" if call == "get" else b"application/json"
    status = b"201 Created" if call == "put" else b"200 OK"
    head = b"HTTP/1.1 " + status + b"\r\n" + VERSION + b"Content-Type: " + kind + b"\r\n" + declared + b"\r\n"
    script = floods(head, b"x" * 65_536)
    allowed = {"get": answers.MAX_BLOB, "streams": answers.MAX_LISTING}.get(call, answers.SMALL_ANSWER)
    tracemalloc.start()
    try:
        error = refused(script, call, RelayProtocolError, Timeouts(total=20))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert f"more than {allowed} bytes" in error.message
    assert peak < 3 * allowed + 2_000_000


@pytest.mark.slow
def test_a_gzip_bomb_is_not_inflated():
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(256)) + packer.flush()
    tracemalloc.start()
    try:
        refused(says(answer(bomb, more=b"Content-Encoding: gzip\r\n")), "streams", RelayProtocolError)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


DRIPS = {
    "the body": (answer(b"", length=1000), b" "),
    "the head": (b"HTTP/1.1 200 OK\r\n", b"X-Slow: yes\r\n"),
    "the status": (b"", b"H"),
    "continues": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "chunks": (b"HTTP/1.1 200 OK\r\n" + VERSION + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
}


@pytest.mark.parametrize(
    "place", [one if one == "the body" else pytest.param(one, marks=pytest.mark.slow) for one in DRIPS]
)
def test_dripping_ends_with_the_time_of_the_whole_exchange(place):
    began = time.monotonic()
    script = drips(*DRIPS[place])
    if place == "the status":
        # One byte that is no HTTP would be refused at once; these are its first letters, slowly.
        script = drips(b"", b"HTTP/1.1 200 OK ".ljust(4000, b"x"))
    refused(script, "streams", RelayUnavailableError, Timeouts(read=5, total=0.6, rate=1 << 20))
    assert 0.5 < time.monotonic() - began < 20


@pytest.mark.slow
def test_who_does_not_take_what_is_sent_is_left():
    def stuck(connection, relay):
        relay.over.wait(30)

    began = time.monotonic()
    with (
        hostile(stuck) as relay,
        RelayClient(relay.url, TOKEN, timeouts=QUICK) as client,
        pytest.raises(RelayUnavailableError),
    ):
        client.put(STREAM, 1, BLOB + bytes(8_000_000))
    assert time.monotonic() - began < 20


@pytest.mark.slow
def test_an_answer_that_comes_slowly_but_steadily_gets_its_time():
    body = json.dumps({"streams": [], "change": 1}).encode()

    def steady(connection, relay):
        connection.sendall(answer(b"", length=len(body)))
        for at in range(len(body)):
            relay.over.wait(0.02)
            connection.sendall(body[at : at + 1])

    with hostile(steady) as relay:
        # Each byte earns its own time; without that, the whole would have to end after 0.3 seconds.
        assert ask(relay, "streams", Timeouts(total=0.3, rate=20)).change == 1


def test_a_million_list_items_are_refused_before_they_are_objects():
    body = b'{"change":1,"streams":[' + b"0," * 999_999 + b"0]}"
    tracemalloc.start()
    try:
        refused(says(answer(body)), "streams", RelayProtocolError, Timeouts(total=20))
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()
    refused(says(answer(b'{"blobs":[' + b"{}," * 200 + b"{}]}")), "blobs", RelayProtocolError)


# ------------------------------------------------------------------------------------------------ truncated, damaged


@each_row("call", ["streams", "get"])
@each_row("head", ["length", "chunked"])
def test_a_body_cut_off_is_not_taken_for_a_whole_one(call, head):
    body = b'{"change":1,"streams":[]}'
    kind = b"application/octet-stream" if call == "get" else b"application/json"
    data = answer(body, kind=kind, length=len(body) + 10)
    if head == "chunked":
        start = b"HTTP/1.1 200 OK\r\n" + VERSION + b"Content-Type: " + kind + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
        data = start + b"%x\r\n" % len(body) + body + b"\r\n"
    assert "before its answer was complete" in refused(says(data), call, RelayUnavailableError).message


def test_a_body_longer_than_it_said_ends_where_it_said():
    body = b'{"change":1,"streams":[]}'
    with hostile(says(answer(body, length=len(body)) + b"HTTP/1.1 200 evil")) as relay:
        assert ask(relay, "streams").streams == ()


def test_bytes_that_are_not_those_of_the_digest_are_fetched_again_later():
    digest = b"Content-Digest: sha-256=:" + b"A" * 43 + b"=:\r\n"
    data = answer(b"damaged", kind=b"application/octet-stream", more=digest)
    assert "damaged on the way" in refused(says(data), "get", RelayUnavailableError).message


@each_row("kind", [b"text/plain", b"", b"application/json", b"application/octet-stream, text/html"])
def test_bytes_of_another_kind_are_no_blob(kind):
    refused(says(answer(b"data", kind=kind)), "get", RelayProtocolError)


@each_row("kind", [b"text/html", b"", b"application/octet-stream", b"application/jsonp"])
def test_json_of_another_kind_is_no_answer(kind):
    refused(says(answer(b'{"change":1,"streams":[]}', kind=kind)), "streams", RelayProtocolError)


# --------------------------------------------------------------------------------------------------------- refusals


def problem(status, code, more=b""):
    body = json.dumps(
        {"type": "about:blank", "title": "evil", "status": status, "code": code, "detail": "evil \x1b[2J"}
    )
    return says(answer(body.encode(), status=b"%d Evil" % status, kind=b"application/problem+json", more=more))


@each_row("code", ["evil \x1b[2J", "EVIL", "x" * 65, "../..", 7, None, ["a"], {"a": 1}, "\u0435vil"])
def test_a_code_of_no_code_is_not_shown(code):
    assert refused(problem(401, code), "get", RelayDeniedError).code == ""


def test_a_conflict_is_believed_with_its_code_only():
    assert refused(problem(409, "blob-conflict"), "put", StreamConflictError).code == "blob-conflict"
    refused(problem(409, "something"), "put", RelayProtocolError)
    refused(says(answer(b"", status=b"409 Conflict")), "put", RelayProtocolError)
