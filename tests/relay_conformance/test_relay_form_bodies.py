"""Claims about bodies and the relay: JSON, what operators ask, and what no library would send."""

import contextlib

import httpx
import pytest

from tests.relay_conformance.targets import make_blob, new_stream, read_answer, refused

S = "00112233445566778899aabbccddeeff"


# --------------------------------------------------------------------------------------------------------------- JSON


JSON_WITHOUT_SENSE_IS = [
    b"",
    b" ",
    b"null",
    b"[]",
    b"7",
    b'"x"',
    b"{",
    b'{"upto":1',
    b'{"upto":1}}',
    b'{"upto":1} x',
    b"{'upto':1}",
    b'{"upto":1,}',
    b'{"upto":NaN}',
    b'{"upto":Infinity}',
    b'{"upto":-1}',
    b'{"upto":1.5}',
    b'{"upto":true}',
    b'{"upto":null}',
    b'{"upto":"1"}',
    b'{"upto":[1]}',
    b'{"upto":9007199254740992}',
    b'{"upto":' + b"9" * 5000 + b"}",
    b"{}",
    b'{"upto":1,"more":2}',
    b'{"UPTO":1}',
    b'\xef\xbb\xbf{"upto":1}',
    b'{"upto":1,"\xff":1}',
    '{"upto":1}'.encode("utf-16"),
    b'{"upto":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    b'{"a":' * 9_000 + b"1" + b"}" * 9_000,
]


@pytest.mark.slow
def test_json_without_sense_is_refused(relay):
    for body in JSON_WITHOUT_SENSE_IS:
        stream = new_stream()
        relay.put(stream, 1)
        refused(relay.ask("POST", f"/v1/streams/{stream.hex()}/ack", content=body), 400, "bad-request")
        assert relay.state(stream)["acked"] == 0


def test_json_is_json_by_its_type_or_without_one(relay):
    path, body = f"/v1/streams/{new_stream().hex()}/ack", b'{"upto":1}'
    for kind in ("application/json", "application/json; charset=utf-8", "APPLICATION/JSON"):
        assert relay.ask("POST", path, content=body, headers={"Content-Type": kind}).status_code == 204
    assert relay.ask("POST", path, content=body).status_code == 204
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp"):
        refused(relay.ask("POST", path, content=body, headers={"Content-Type": kind}), 415, "unsupported-media-type")
    refused(relay.ask("POST", path, content=body, headers={"Content-Encoding": "gzip"}), 415, "unsupported-media-type")
    refused(relay.ask("POST", path, content=b'{"upto":1' + b" " * 70_000 + b"}"), 413, "body-too-large")


# ---------------------------------------------------------------------------------------------------------- operating


def test_health_says_nothing_but_that(relay):
    for token in (None, "constructor", relay.home):
        answer = relay.ask("GET", "/healthz", token=token)
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})
        answer = relay.ask("GET", "/readyz", token=token)
        assert (answer.status_code, answer.json()) == (200, {"status": "ready"})


def test_the_relay_describes_itself(relay):
    answer = relay.ask("GET", "/openapi.json", token=None)
    assert answer.headers["content-type"].startswith("application/")
    document = answer.json()
    assert document["openapi"].startswith("3.")
    described = {
        path: {method.upper() for method in item} & {"GET", "PUT", "POST", "DELETE"}
        for path, item in document["paths"].items()
    }
    named = {
        "/v1/streams/{stream}/blobs/{seq}": {"GET", "PUT"},
        "/v1/streams/{stream}/blobs": {"GET"},
        "/v1/streams/{stream}/ack": {"POST"},
        "/v1/streams/{stream}": {"GET"},
        "/v1/streams": {"GET"},
        "/v1/objects/{id}": {"GET", "PUT", "DELETE"},
        "/v1/objects": {"GET"},
        "/v1/tokens": {"GET", "POST"},
    }
    for path, methods in named.items():
        assert described[path] == methods
    assert relay.ask("GET", "/openapi.yaml", token=None).status_code == 200


def test_every_request_has_a_name_of_its_own(relay):
    names = {relay.ask("GET", "/healthz").headers["x-request-id"] for _ in range(20)}
    assert len(names) == 20


def test_what_a_client_calls_its_request_is_not_repeated(relay):
    answer = relay.ask("GET", "/healthz", headers={"X-Request-Id": "evil"})
    assert answer.headers["x-request-id"] != "evil"


def test_no_error_repeats_what_was_sent(relay):
    for answer in (
        relay.ask("GET", "/v1/canary-in-path"),
        relay.ask("GET", "/v1/streams/canary-in-id"),
        relay.ask("GET", "/v1/streams", wait="canary-in-query"),
        relay.ask("GET", "/v1/streams", token="canary-in-token"),
        relay.ask("POST", "/v1/tokens", body={"canary-in-key": "canary"}),
        relay.ask("POST", "/v1/tokens", body={"label": "x", "scopes": ["canary"]}),
        relay.ask("PUT", f"/v1/objects/{S}", content=b"x", headers={"Content-Digest": "canary"}),
        relay.ask("PUT", f"/v1/streams/{S}/blobs/1", content=b"canary in body" * 20),
    ):
        assert answer.status_code >= 400
        assert "canary" not in answer.text + str(answer.headers)


# ------------------------------------------------------------------------------------------- what no library would send


def raw(relay, data):
    with relay.connection() as connection:
        with contextlib.suppress(OSError):
            connection.sendall(data)
        return read_answer(connection, is_fronted=relay.is_fronted)


def is_by_front(relay, status, problem):
    """Whether a server in front of the relay refused it: nothing has reached the relay."""
    return relay.is_fronted and problem == {} and status in (400, 431, 500, 501)


def test_headers_without_end_are_refused(relay):
    for name in (b"X-Evil: ", b"Authorization: Bearer "):
        head = b"GET /v1/streams HTTP/1.1\r\nHost: x\r\n" + name + b"x" * 1_000_000 + b"\r\n\r\n"
        status = None
        with contextlib.suppress(OSError, IndexError):
            status, problem = raw(relay, head)
            refusal = (status, problem.get("code"))
            assert refusal in [(431, "headers-too-large"), (400, "bad-request")] or is_by_front(relay, status, problem)
        assert status != 200
    assert relay.ask("GET", "/healthz").status_code == 200


def test_what_is_no_http_is_refused(relay):
    for data in (
        b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\0" * 100 + b"\r\n\r\n",
    ):
        status = None
        with contextlib.suppress(OSError, IndexError):
            status, problem = raw(relay, data)
            if is_by_front(relay, status, problem):
                continue
            assert problem == {} or problem["code"] in ("bad-request", "not-found")
        assert status in (None, 400, 404, 505)
    assert relay.ask("GET", "/healthz").status_code == 200


def test_two_ways_to_say_how_long_a_body_is_are_refused(relay):
    line = f"PUT /v1/objects/{S} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {relay.home}\r\n"
    for lengths in (
        "Content-Length: 3\r\nContent-Length: 4\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: x\r\n",
        "Content-Length: 3, 4\r\n",
    ):
        status, problem = raw(relay, (line + lengths + "Connection: close\r\n\r\nabcd").encode())
        if not is_by_front(relay, status, problem):
            assert (status, problem.get("code", "bad-request")) == (400, "bad-request")
    refused(relay.ask("GET", f"/v1/objects/{S}"), 404, "no-object")


def test_a_client_that_leaves_in_the_middle_leaves_nothing(relay):
    stream = new_stream()
    blob = make_blob(stream, 1, 300_000)

    class Gone(Exception):
        pass

    def leaving():
        yield blob[:200_000]
        raise Gone

    with contextlib.suppress(Gone, httpx.TransportError):
        relay.put(stream, 1, leaving(), headers={"Content-Length": str(len(blob))})
    assert relay.seqs(stream) == []
    assert relay.put(stream, 1, blob).status_code == 201
    assert relay.seqs(stream) == [1]
