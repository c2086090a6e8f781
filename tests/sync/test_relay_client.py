"""Claims about what the client asks, and what it makes of good answers, refusals and everything that can be thrown."""

import base64
import hashlib
import json
import os
import subprocess
import sys
import traceback

import pytest

from crystal.errors import CrystalError, UsageError
from crystal.sync import answers, errors
from crystal.sync.client import MAX_WAIT, RelayClient
from crystal.sync.envelope.blob import MAX_BLOB
from crystal.sync.transport import Pace, Timeouts
from tests.support.hostile_relay import hostile, says_json
from tests.support.one_answer import BLOB, STREAM, TOKEN, URL, Fake, client, problem
from tests.support.over_httpx import OverHttpx
from tests.support.table import each_row
from tests.support.threads import at_once

# ------------------------------------------------------------------------------------------------- what is asked


def test_every_request_says_who_asks_and_which_version_it_speaks():
    fake = Fake(200, {"change": 1, "streams": []})
    client(fake).streams()
    headers = fake.asked[0].headers
    assert headers["authorization"] == f"Bearer {TOKEN}"
    assert headers["crystal-relay-version"] == "1"
    assert headers["accept-encoding"] == "identity"
    assert "cookie" not in headers


@each_row(
    ("url", "host"),
    [
        ("http://127.0.0.1:8600", "127.0.0.1:8600"),
        ("https://relay.example.org:443/behind", "relay.example.org"),
        ("http://[::1]:8600", "[::1]:8600"),
        ("https://[2001:db8::1]", "[2001:db8::1]"),
    ],
)
def test_the_host_is_named_as_in_the_address(url, host):
    fake = Fake(200, {"status": "ready"})
    RelayClient(url, TOKEN, transport=OverHttpx(fake)).health()
    assert fake.asked[0].headers.get_list("host") == [host]


def test_a_client_without_a_token_sends_none_and_one_with_a_claim_sends_that():
    fake = Fake(200, {"status": "ready"})
    client(fake, None).health()
    assert "authorization" not in fake.asked[0].headers
    client(fake, None, claim=bytes(32)).health()
    assert fake.asked[1].headers["authorization"] == "Claim " + "A" * 43


@each_row("resend", [False, True])
@each_row(("status", "result"), [(201, "created"), (200, "duplicate")])
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


@each_row(("wait", "said"), [(0, None), (-1, None), (2.5, "2.500"), (1e9, "55.000")])
def test_waiting_is_asked_for_within_bounds_and_the_client_waits_longer(wait, said):
    fake = Fake(200, {"change": 1, "streams": []})
    client(fake, timeouts=Timeouts(read=7)).streams(changed_after=3, wait=wait)
    (asked,) = fake.asked
    assert asked.url.params.get("wait") == said
    assert asked.url.params["changed_after"] == "3"
    assert asked.extensions["timeout"]["read"] == 7 + max(0.0, min(wait, MAX_WAIT))


@each_row(
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
        with pytest.raises(errors.RelayDeniedError):
            call(STREAM, bytes(answers.MAX_BLOB + 1))
    assert not fake.asked
    assert MAX_BLOB == answers.MAX_BLOB


# ----------------------------------------------------------------------------------------------- good answers


def test_good_answers_become_values():
    stream = {"stream": STREAM.hex(), "head": 9, "acked": 6, "count": 3, "bytes": 3564, "expired_upto": 2}
    made = answers.StreamInfo(STREAM, 9, 6, 3, 3564, 2)
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


# ------------------------------------------------------------------------------------------------------- tokens


@each_row(
    "token", ["", " ", "a b", "a\r\nX: y", "a\n", "a\0", "\x7f", "t\u00f6ken", "\u202e", "x" * 513, "x" * 1_000_000]
)
def test_a_token_that_no_header_can_carry_is_refused_unseen(token):
    with pytest.raises(UsageError) as refused:
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
        at_once(*[lambda: [relay.health() for _ in range(5)]] * 4)
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
