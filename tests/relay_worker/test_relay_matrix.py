"""Claims about who may do what at the relay: every token, every route, every stream; only the allowed cells pass."""

from __future__ import annotations

import secrets

import pytest

from tests.relay_conformance.targets import Target, in_process, make_blob, refused, relay  # noqa: F401 - the fixture
from tests.support.examples import part_of
from tests.support.table import each_row

MINE, OTHER = bytes.fromhex("00112233445566aa"), bytes.fromhex("00112233445566ab")
STREAM_VERBS = ("write", "read", "ack")
SCOPES = {
    "write": [f"write:{MINE.hex()}"],
    "read": [f"read:{MINE.hex()}"],
    "ack": [f"ack:{MINE.hex()}"],
    "objects:read": ["objects:read"],
    "objects:write": ["objects:write"],
    "pair": ["pair"],
    "device": [f"write:{MINE.hex()}", f"read:{MINE.hex()}", f"ack:{MINE.hex()}", "objects:read"],
    "all but home": [
        *(f"{verb}:{MINE.hex()}" for verb in STREAM_VERBS),
        "objects:read",
        "objects:write",
        "pair",
    ],
    "home": ["home"],
}
NOBODY = ("none", "revoked", "mistyped")


def a_stream(relay: Target, prefix: bytes) -> tuple[bytes, bytes]:  # noqa: F811
    """A stream with one blob in it."""
    stream = prefix + secrets.token_bytes(8)
    blob = make_blob(stream, 1)
    assert relay.put(stream, 1, blob).status_code == 201
    return stream, blob


# name: (the verbs of which one is enough, how it is asked, what success is); on streams, with a blob at 1.
ON_STREAMS = {
    "put blob": ({"write"}, lambda r, s, b, t: r.put(s, 2, token=t), 201),
    "put blob again": ({"write"}, lambda r, s, b, t: r.put(s, 1, b, token=t), 200),
    "resend blob": ({"write"}, lambda r, s, b, t: r.put(s, 1, b, token=t, resend=1), 201),
    "get blob": ({"read"}, lambda r, s, b, t: r.get(s, 1, token=t), 200),
    "list blobs": (set(STREAM_VERBS), lambda r, s, b, t: r.ask("GET", f"/v1/streams/{s.hex()}/blobs", token=t), 200),
    "see stream": (set(STREAM_VERBS), lambda r, s, b, t: r.ask("GET", f"/v1/streams/{s.hex()}", token=t), 200),
    "acknowledge": ({"ack"}, lambda r, s, b, t: r.ack(s, 1, token=t), 204),
}


def object_path() -> str:
    return f"/v1/objects/{secrets.token_hex(16)}"


def a_thing(relay: Target) -> str:  # noqa: F811
    path = object_path()
    assert relay.ask("PUT", path, content=b"x").status_code == 201
    return path


def opened(relay, token):  # noqa: F811
    answer = relay.ask("POST", "/v1/pair", token=token)
    if answer.status_code == 201:
        relay.ask("DELETE", f"/v1/pair/{answer.json()['nameplate']}")
    return answer


ELSEWHERE = {
    "list streams": (set(STREAM_VERBS), lambda r, t: r.ask("GET", "/v1/streams", token=t), 200),
    "put object": ({"objects:write"}, lambda r, t: r.ask("PUT", object_path(), content=b"x", token=t), 201),
    "get object": ({"objects:read"}, lambda r, t: r.ask("GET", a_thing(r), token=t), 200),
    "delete object": ({"objects:write"}, lambda r, t: r.ask("DELETE", a_thing(r), token=t), 204),
    "list objects": (
        {"objects:read", "objects:write"},
        lambda r, t: r.ask("GET", "/v1/objects", token=t),
        200,
    ),
    "make token": (
        set(),
        lambda r, t: r.ask("POST", "/v1/tokens", token=t, body={"label": "x", "scopes": ["home"]}),
        201,
    ),
    "list tokens": (set(), lambda r, t: r.ask("GET", "/v1/tokens", token=t), 200),
    "revoke token": (
        set(),
        lambda r, t: r.ask("DELETE", f"/v1/tokens/{r.make_token('pair').split('_')[1]}", token=t),
        204,
    ),
    "open mailbox": ({"pair"}, opened, 201),
    "read mail": ({"pair"}, lambda r, t: with_mailbox(r, lambda path: r.ask("GET", f"{path}/a/x", token=t)), 204),
    "write mail": (
        {"pair"},
        lambda r, t: with_mailbox(r, lambda path: r.ask("PUT", f"{path}/a/x", token=t, content=b"x")),
        201,
    ),
    "close mailbox": ({"pair"}, lambda r, t: with_mailbox(r, lambda path: r.ask("DELETE", path, token=t)), 204),
}


def with_mailbox(relay, call):  # noqa: F811
    path = f"/v1/pair/{relay.ask('POST', '/v1/pair').json()['nameplate']}"
    try:
        return call(path)
    finally:
        relay.ask("DELETE", path)


@pytest.fixture(scope="module")
def tokens(relay):  # noqa: F811
    made = {name: relay.make_token(*scopes) for name, scopes in SCOPES.items()}
    made["revoked"] = relay.make_token("home")
    assert relay.ask("DELETE", f"/v1/tokens/{made['revoked'].split('_')[1]}").status_code == 204
    made["mistyped"] = relay.home[:-1] + ("0" if relay.home[-1] != "0" else "1")
    return {**made, "none": None}


def verbs_of(who: str, *, prefix: bytes | None) -> set[str]:
    """What a token may do, in a stream or elsewhere, by its scopes alone."""
    scopes = SCOPES[who]
    return {
        verb
        for verb, _, where in (scope.partition(":") for scope in scopes)
        if verb in STREAM_VERBS and (prefix is None or where == prefix.hex())
    } | {scope for scope in scopes if not scope.startswith(STREAM_VERBS)}


def check(answer, who, wanted, held, success):
    if who in NOBODY:
        refused(answer, 401, "unauthenticated")
    elif held & (wanted | {"home"}):
        assert answer.status_code == success, (who, answer.text)
    else:
        refused(answer, 403, "forbidden")


@pytest.mark.slow
@each_row("prefix", [MINE, OTHER])
@each_row("route", ON_STREAMS)
def test_in_a_stream_only_the_allowed_cells_pass(relay, tokens, route, prefix):  # noqa: F811
    wanted, ask, success = ON_STREAMS[route]
    for who in [*SCOPES, *NOBODY]:
        stream, blob = a_stream(relay, prefix)
        before = relay.state(stream)
        answer = ask(relay, stream, blob, tokens[who])
        check(answer, who, wanted, set() if who in NOBODY else verbs_of(who, prefix=prefix), success)
        if answer.status_code in (401, 403):
            assert relay.state(stream) == before
            assert relay.get(stream, 1).content == blob


@each_row("route", part_of(ELSEWHERE, 8))
def test_elsewhere_only_the_allowed_cells_pass(relay, tokens, route):  # noqa: F811
    wanted, ask, success = ELSEWHERE[route]
    for who in [*SCOPES, *NOBODY]:
        held = set() if who in NOBODY else verbs_of(who, prefix=None)
        check(ask(relay, tokens[who]), who, wanted, held, success)


@each_row("route", ON_STREAMS)
def test_a_prefix_is_all_of_its_sixteen_digits(relay, tokens, route):  # noqa: F811
    """A stream whose id has the prefix somewhere else is not below it."""
    _, ask, _ = ON_STREAMS[route]
    for stream in (secrets.token_bytes(8) + MINE, MINE[:7] + b"\0" + MINE, b"\0" + MINE + b"\0" * 7):
        blob = make_blob(stream, 1)
        relay.put(stream, 1, blob)
        refused(ask(relay, stream, blob, tokens["device"]), 403, "forbidden")


def test_the_matrix_names_every_route_that_wants_a_token(tmp_path):
    """A new route needs its row here: methods of the described relay, counted."""
    with in_process(tmp_path / "relay") as target:
        paths = target.ask("GET", "/openapi.json", token=None).json()["paths"]
    routes = {
        (method, path) for path, item in paths.items() for method in item if method in ("get", "put", "post", "delete")
    }
    known = {
        ("put", "/v1/streams/{stream}/blobs/{seq}"),
        ("get", "/v1/streams/{stream}/blobs/{seq}"),
        ("get", "/v1/streams/{stream}/blobs"),
        ("get", "/v1/streams/{stream}"),
        ("post", "/v1/streams/{stream}/ack"),
        ("get", "/v1/streams"),
        ("put", "/v1/objects/{id}"),
        ("get", "/v1/objects/{id}"),
        ("delete", "/v1/objects/{id}"),
        ("get", "/v1/objects"),
        ("post", "/v1/tokens"),
        ("get", "/v1/tokens"),
        ("delete", "/v1/tokens/{token_id}"),
        ("post", "/v1/pair"),
        ("put", "/v1/pair/{nameplate}/claim"),
        ("put", "/v1/pair/{nameplate}/{side}/{phase}"),
        ("get", "/v1/pair/{nameplate}/{side}/{phase}"),
        ("delete", "/v1/pair/{nameplate}"),
        ("get", "/healthz"),
        ("get", "/readyz"),
    }
    assert routes == known
