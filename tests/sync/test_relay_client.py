"""Claims about what the client asks, and what it makes of good answers, refusals and everything that can be thrown."""

from __future__ import annotations

import base64
import hashlib
import inspect
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import traceback
from contextlib import nullcontext

import httpcore
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.errors import CrystalError, Denied, Unavailable, UsageProblem
from crystal.sync import answers, envelope, errors
from crystal.sync.client import MAX_WAIT, RelayClient
from crystal.sync.exchange import failure
from crystal.sync.pace import Pace, Timeouts
from crystal.sync.refusal import retry_after
from tests.support.hostile_relay import hostile, says_json
from tests.support.over_httpx import OverHttpx

URL = "http://127.0.0.1:1"
TOKEN = "crt_0123456789abcdef_secretsecretsecretsecretsecretsecretsecret_00000000"
STREAM = bytes(range(16))
BLOB = b"CRB1" + bytes(range(200))


class Fake(httpx.BaseTransport):
    """Gives one answer to everything, and keeps what it was asked."""

    def __init__(self, status=200, body=b"", kind="application/json", **headers):
        self.asked: list[httpx.Request] = []
        self.closed = False
        names = {"Crystal-Relay-Version": "1", "Content-Type": kind, **headers}
        self.answer = (status, names, body if isinstance(body, bytes) else json.dumps(body).encode())

    def handle_request(self, request):
        request.read()
        self.asked.append(request)
        status, headers, body = self.answer
        return httpx.Response(status, headers=headers, stream=httpx.ByteStream(body))

    def close(self):
        self.closed = True


def client(transport, token=TOKEN, **more):
    return RelayClient(URL, token, transport=OverHttpx(transport), **more)


# ------------------------------------------------------------------------------------------------- what is asked


def test_every_request_says_who_asks_and_which_version_it_speaks():
    fake = Fake(200, {"change": 1, "streams": []})
    client(fake).streams()
    headers = fake.asked[0].headers
    assert headers["authorization"] == f"Bearer {TOKEN}"
    assert headers["crystal-relay-version"] == "1"
    assert headers["accept-encoding"] == "identity"
    assert "cookie" not in headers


def test_a_client_without_a_token_sends_none_and_one_with_a_claim_sends_that():
    fake = Fake(200, {"status": "ready"})
    client(fake, None).health()
    assert "authorization" not in fake.asked[0].headers
    client(fake, None, claim=bytes(32)).health()
    assert fake.asked[1].headers["authorization"] == "Claim " + "A" * 43


@pytest.mark.parametrize("resend", [False, True])
@pytest.mark.parametrize(("status", "result"), [(201, "created"), (200, "duplicate")])
def test_a_blob_is_put_at_its_place_with_its_digest(status, result, resend):
    fake = Fake(status, {"seq": 7, "tag": BLOB[-32:].hex(), "result": result})
    assert client(fake).put(STREAM, 7, BLOB, resend=resend) == result
    (asked,) = fake.asked
    assert (asked.method, asked.content) == ("PUT", BLOB)
    query = "?resend=1" if resend else ""
    assert asked.url.raw_path.decode() == f"/v1/streams/{STREAM.hex()}/blobs/7{query}"
    digest = base64.b64encode(hashlib.sha256(BLOB).digest()).decode()
    assert asked.headers["content-digest"] == f"sha-256=:{digest}:"
    assert asked.headers["content-length"] == str(len(BLOB))


def test_a_path_in_front_of_the_relay_is_kept():
    fake = Fake(204)
    RelayClient(URL + "/behind/proxy/", TOKEN, transport=OverHttpx(fake)).ack(STREAM, 5)
    assert fake.asked[0].url.path == f"/behind/proxy/v1/streams/{STREAM.hex()}/ack"
    assert json.loads(fake.asked[0].content) == {"upto": 5}


@pytest.mark.parametrize(("wait", "said"), [(0, None), (-1, None), (2.5, "2.500"), (1e9, "30.000")])
def test_waiting_is_asked_for_within_bounds_and_the_client_waits_longer(wait, said):
    fake = Fake(200, {"change": 1, "streams": []})
    client(fake, timeouts=Timeouts(read=7)).streams(changed_after=3, wait=wait)
    (asked,) = fake.asked
    assert asked.url.params.get("wait") == said
    assert asked.url.params["changed_after"] == "3"
    assert asked.extensions["timeout"]["read"] == 7 + max(0.0, min(wait, MAX_WAIT))


@pytest.mark.parametrize(
    "call",
    [
        lambda relay: relay.put(b"short", 1, BLOB),
        lambda relay: relay.put(STREAM, 0, BLOB),
        lambda relay: relay.get(STREAM, 2**53),
        lambda relay: relay.get_object(b"../../../../x"),
        lambda relay: relay.get_object(bytes(17)),
        lambda relay: relay.revoke_token("../streams"),
        lambda relay: relay.revoke_token(""),
        lambda relay: relay.put_mail(0, "a", "x", b"x"),
        lambda relay: relay.put_mail(1, "c", "x", b"x"),
        lambda relay: relay.get_mail(1, "a", "../x"),
        lambda relay: relay.get_mail(1, "a", ""),
    ],
)
def test_no_path_is_made_of_what_is_no_name(call):
    fake = Fake()
    with pytest.raises(ValueError):
        call(client(fake))
    assert not fake.asked


def test_what_is_too_large_is_not_even_sent():
    fake = Fake()
    for call in (client(fake).put_object, lambda name, data: client(fake).put(name, 1, data)):
        with pytest.raises(errors.BlobTooLarge):
            call(STREAM, bytes(answers.LARGEST_BLOB + 1))
    assert not fake.asked
    assert envelope.MAX_BLOB == answers.LARGEST_BLOB


# ----------------------------------------------------------------------------------------------- good answers


def test_good_answers_become_values():
    stream = {"stream": STREAM.hex(), "head": 9, "acked": 6, "count": 3, "bytes": 3564, "expired_upto": 2}
    made = answers.StreamInfo(STREAM, 9, 6, 3, 3564, 2)
    assert client(Fake(200, stream)).stream(STREAM) == made
    assert client(Fake(200, {"change": 5, "streams": [stream]})).streams() == answers.StreamList(5, (made,))
    page = {"blobs": [{"seq": 7, "size": 1188, "tag": "ab" * 32}], "head": 9, "acked": 6, "expired_upto": 2}
    assert client(Fake(200, page)).blobs(STREAM, 6).blobs == (answers.BlobInfo(7, 1188, b"\xab" * 32),)
    assert client(Fake(200, b"\0\xff", kind="application/octet-stream")).get(STREAM, 1) == b"\0\xff"
    assert client(Fake(200, b"mail", kind="application/octet-stream")).get_mail(7, "b", "pake") == b"mail"
    assert client(Fake(204)).get_mail(7, "b", "pake") is None
    assert client(Fake(201, {"nameplate": 7, "expires_at": 9})).open_mailbox() == 7
    token = client(Fake(201, {"id": "0123456789abcdef", "token": TOKEN, "label": "x", "scopes": []})).make_token(
        "x", []
    )
    assert token.token == TOKEN
    assert "secret" not in repr(token)


def test_a_minor_version_is_fine():
    client(Fake(200, {"status": "ready"}, **{"Crystal-Relay-Version": "1.7"})).health()


# --------------------------------------------------------------------------------------------------- refusals


def problem(status, code="", **headers):
    body = {"type": "about:blank", "title": "x", "status": status, "code": code, "detail": "x"}
    return Fake(status, body, kind="application/problem+json", **headers)


REFUSALS = [
    (400, "bad-request", errors.RelayDenied),
    (400, "bad-envelope", errors.RelayDenied),
    (400, "digest-mismatch", errors.RelayUnavailable),
    (401, "unauthenticated", errors.RelayDenied),
    (403, "forbidden", errors.RelayDenied),
    (404, "not-found", errors.RelayBroken),
    (404, "no-blob", errors.NotAtRelay),
    (404, "no-object", errors.NotAtRelay),
    (404, "no-token", errors.NotAtRelay),
    (404, "no-mailbox", errors.NotAtRelay),
    (404, "body-lost", errors.NotAtRelay),
    (405, "method-not-allowed", errors.RelayBroken),
    (408, "body-timeout", errors.RelayUnavailable),
    (409, "blob-conflict", errors.StreamConflict),
    (409, "object-conflict", errors.ObjectConflict),
    (409, "mail-conflict", errors.MailboxTaken),
    (409, "mailbox-claimed", errors.MailboxTaken),
    (413, "body-too-large", errors.BlobTooLarge),
    (415, "unsupported-media-type", errors.RelayDenied),
    (426, "unsupported-version", errors.VersionRefused),
    (429, "rate-limited", errors.RelayUnavailable),
    (429, "too-many-mailboxes", errors.RelayUnavailable),
    (431, "headers-too-large", errors.RelayDenied),
    (500, "internal", errors.RelayUnavailable),
    (502, "", errors.RelayUnavailable),
    (503, "unavailable", errors.RelayUnavailable),
    (504, "", errors.RelayUnavailable),
    (507, "stream-full", errors.RelayFull),
    (507, "account-full", errors.RelayFull),
    (507, "disk-full", errors.RelayFull),
]


@pytest.mark.parametrize(("status", "code", "kind"), REFUSALS)
def test_each_refusal_is_an_error_of_its_own(status, code, kind):
    with pytest.raises(CrystalError) as refused:
        client(problem(status, code, **{"Retry-After": "7"})).get(STREAM, 1)
    assert type(refused.value) is kind
    if kind is not errors.RelayBroken:
        assert refused.value.code == code
        assert str(status) in refused.value.message or kind is errors.VersionRefused
    if kind in (errors.RelayUnavailable, errors.RelayFull):
        assert refused.value.retry_after == 7
    assert isinstance(refused.value, (Unavailable, Denied, errors.NotAtRelay))


def test_every_status_there_is_ends_in_an_error_or_an_answer():
    for status in range(200, 600):
        with pytest.raises(CrystalError) if status != 200 else nullcontext():
            client(Fake(status, {"status": "ready"})).health()


def test_what_something_in_between_says_is_no_fact_about_a_blob():
    for status in (404, 409, 400, 401, 403, 410):
        fake = problem(status, "blob-conflict")
        del fake.answer[1]["Crystal-Relay-Version"]
        with pytest.raises(errors.RelayBroken):
            client(fake).put(STREAM, 1, BLOB)


@pytest.mark.parametrize(
    ("said", "date", "seconds"),
    [
        ("7", None, 7),
        ("0", None, 0),
        (" 12 ", None, 12),
        ("3600", None, 3600),
        ("3601", None, 3600),
        ("999999999999999999", None, 3600),
        ("9" * 40, None, 0),
        ("-5", None, 0),
        ("1.5", None, 0),
        ("1e3", None, 0),
        ("inf", None, 0),
        ("nan", None, 0),
        ("", None, 0),
        ("soon", None, 0),
        ("\u0667", None, 0),
        ("7, 9", None, 0),
        ("Sat, 21 Nov 2026 06:00:30 GMT", "Sat, 21 Nov 2026 06:00:00 GMT", 30),
        ("Sat, 21 Nov 2026 06:00:00 GMT", "Sat, 21 Nov 2026 06:00:30 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", "Sat, 21 Nov 2026 06:00:30 GMT", 3600),
        ("Sat, 21 Nov 2026 06:00:30 GMT", None, 0),
        ("Sat, 21 Nov 2026 06:00:30 GMT", "evil", 0),
        ("Sat, 99 Nov 2026 06:00:30", "Sat, 21 Nov 2026 06:00:30 GMT", 0),
    ],
)
def test_a_pause_is_read_in_both_forms_and_never_longer_than_an_hour(said, date, seconds):
    headers = {"retry-after": said} | ({"date": date} if date else {})
    assert retry_after(headers) == seconds


@given(st.text(max_size=30), st.text(max_size=30))
def test_no_pause_is_anything_but_seconds_within_an_hour(said, date):
    assert 0 <= retry_after({"retry-after": said, "date": date}) <= 3600


# ------------------------------------------------------------------------------------------ all that can be thrown


def of_module(module):
    found = [one for one in vars(module).values() if inspect.isclass(one) and issubclass(one, Exception)]
    assert len(found) > 10
    return sorted(set(found), key=lambda one: one.__name__)


@pytest.mark.parametrize("kind", of_module(httpcore), ids=lambda kind: kind.__name__)
def test_every_exception_of_the_engine_is_mapped(kind):
    class Throwing(httpcore.ConnectionPool):
        def handle_request(self, request):
            raise kind("boom secret")

    with pytest.raises(CrystalError) as mapped:
        RelayClient(URL, TOKEN, transport=Throwing()).streams()
    assert isinstance(mapped.value, errors.RelayUnavailable)
    assert mapped.value.hint
    assert "secret" not in f"{mapped.value.message}{mapped.value.hint}"


@pytest.mark.parametrize(
    "error",
    [
        OSError("x"),
        ConnectionResetError(),
        BrokenPipeError(),
        socket.gaierror(8, "x"),
        ssl.SSLError(1, "x"),
        TimeoutError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_from_below_are_mapped_too(error):
    assert isinstance(failure(error, "x"), errors.RelayUnavailable)


def test_a_failure_while_the_answer_is_read_is_mapped():
    class Breaking(httpx.SyncByteStream):
        def __iter__(self):
            yield b"{"
            raise httpx.ReadError("reset")

    fake = Fake(200)
    fake.handle_request = lambda _: httpx.Response(
        200, headers={"Crystal-Relay-Version": "1", "Content-Type": "application/json"}, stream=Breaking()
    )
    with pytest.raises(errors.RelayUnavailable):
        client(fake).streams()


def test_nobody_there_is_unavailable():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with RelayClient(f"http://127.0.0.1:{port}", TOKEN) as relay, pytest.raises(errors.RelayUnavailable) as refused:
        relay.health()
    assert refused.value.retry_after == 0
    assert refused.value.exit_code == 4


# ------------------------------------------------------------------------------------------------------- tokens


@pytest.mark.parametrize(
    "token", ["", " ", "a b", "a\r\nX: y", "a\n", "a\0", "\x7f", "t\u00f6ken", "\u202e", "x" * 513, "x" * 1_000_000]
)
def test_a_token_that_no_header_can_carry_is_refused_unseen(token):
    with pytest.raises(UsageProblem) as refused:
        RelayClient(URL, token)
    assert not token.strip() or token not in f"{refused.value!r}{refused.value.hint}"


def test_the_token_is_in_no_text_that_leaves_the_client():
    texts = []
    for fake in (problem(401, "unauthenticated"), problem(409, "blob-conflict"), Fake(302), Fake(200, b"\0")):
        relay = client(fake)
        texts.append(repr(relay) + str(relay))
        try:
            relay.put(STREAM, 1, BLOB)
        except CrystalError as error:
            texts.append("".join(traceback.format_exception(error)) + repr(error) + str(error.hint))
    assert len(texts) == 8
    assert "secretsecret" not in "".join(texts)


# ------------------------------------------------------------------------------------- connections, time, start-up


def test_connections_are_kept_for_the_next_request_and_shared_between_threads():
    connections = []

    def serve(connection, relay):
        connections.append(connection)
        body = b'{"status":"ready"}'
        head = b"HTTP/1.1 200 OK\r\nCrystal-Relay-Version: 1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        connection.sendall(head % len(body) + body)
        while connection.recv(65_536):
            connection.sendall(head % len(body) + body)

    with hostile(serve) as server, RelayClient(server.url, TOKEN) as relay:
        for _ in range(5):
            relay.health()
        assert len(connections) == 1
        threads = [threading.Thread(target=lambda: [relay.health() for _ in range(5)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        assert 1 <= len(connections) <= 5


def test_closing_closes_the_transport():
    fake = Fake()
    with client(fake):
        assert not fake.closed
    assert fake.closed


def test_time_grows_with_what_moves_but_not_without_end():
    pace = Pace(100.0, 10.0, 1000, 5000)
    assert pace.left(100.0) == 10.0
    assert pace.left(110.0) == 0.0
    pace.moved(2000)
    assert pace.left(110.0) == 2.0
    pace.moved(1 << 40)
    assert pace.left(100.0) == 15.0


def test_loading_the_client_loads_no_network():
    code = "import sys, crystal.sync.client; print(*[m for m in ('httpx', 'httpcore', 'ssl', 'cryptography') if m in sys.modules])"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60, env=dict(os.environ)
    )
    assert ran.stdout.strip() == ""


def test_an_answer_of_a_server_on_a_socket_arrives():
    with hostile(says_json({"change": 3, "streams": []})) as server, RelayClient(server.url, TOKEN) as relay:
        assert relay.streams().change == 3
        assert server.asked[0].startswith(b"GET /v1/streams HTTP/1.1\r\n")
