"""Claims about tokens: shown once, listed without their secret, worthless from the moment they are revoked."""

import re
import threading
import time
import zlib

from tests.relay_conformance.targets import make_blob, new_stream, refused


def listed(relay):
    return {one["id"]: one for one in relay.ask("GET", "/v1/tokens").json()["tokens"]}


def test_a_token_is_made_shown_once_used_and_revoked(relay):
    scopes = ["write:0011223344556677", "objects:read"]
    made = relay.ask("POST", "/v1/tokens", body={"label": "der Läptop", "scopes": scopes})
    assert made.status_code == 201
    answer = made.json()
    assert set(answer) == {"id", "token", "label", "scopes"}
    assert (answer["label"], sorted(answer["scopes"])) == ("der Läptop", sorted(scopes))
    found = re.fullmatch(r"(crt_([0-9a-z]{16})_[A-Za-z0-9_-]{43})_([0-9a-f]{8})", answer["token"])
    assert found[2] == answer["id"]
    assert found[3] == f"{zlib.crc32(found[1].encode()):08x}"
    assert relay.ask("GET", "/v1/objects", token=answer["token"]).status_code == 200
    entry = listed(relay)[answer["id"]]
    assert set(entry) == {"id", "label", "scopes", "created_at", "last_used_at", "revoked_at"}
    assert entry["revoked_at"] is None
    secret = found[1].removeprefix(f"crt_{found[2]}_")
    assert secret not in relay.ask("GET", "/v1/tokens").text
    assert relay.ask("DELETE", f"/v1/tokens/{answer['id']}").status_code == 204
    refused(relay.ask("GET", "/v1/objects", token=answer["token"]), 401, "unauthenticated")
    assert relay.ask("DELETE", f"/v1/tokens/{answer['id']}").status_code == 204
    assert listed(relay)[answer["id"]]["revoked_at"] >= entry["created_at"]
    refused(relay.ask("DELETE", "/v1/tokens/0000000000000000"), 404, "no-token")


def test_tokens_are_listed_oldest_first(relay):
    made = [relay.ask("POST", "/v1/tokens", body={"label": str(n), "scopes": ["pair"]}).json()["id"] for n in range(3)]
    entries = relay.ask("GET", "/v1/tokens").json()["tokens"]
    assert [one["created_at"] for one in entries] == sorted(one["created_at"] for one in entries)
    assert set(made) <= {one["id"] for one in entries}


def test_revoking_stops_a_token_that_is_in_use_and_no_other(relay):
    stream = new_stream()
    one, two = (relay.make_token(f"write:{stream[:8].hex()}") for _ in range(2))
    assert relay.put(stream, 1, token=one).status_code == 201
    relay.ask("DELETE", f"/v1/tokens/{one.split('_')[1]}")
    refused(relay.put(stream, 2, token=one), 401, "unauthenticated")
    assert relay.put(stream, 2, token=two).status_code == 201
    assert relay.seqs(stream) == [1, 2]


def test_a_token_revoked_while_it_waits_is_not_told_of_changes(relay):
    stream = new_stream()
    token = relay.make_token(f"read:{stream[:8].hex()}")
    got, asking = [], threading.Event()

    def wait():
        asking.set()
        got.append(relay.ask("GET", "/v1/streams", token=token, wait=20))

    waiting = threading.Thread(target=wait)
    waiting.start()
    asking.wait(5)
    time.sleep(0.5)  # until it waits: one that only begins to look may still be answered
    relay.put(new_stream(), 1)
    assert relay.ask("DELETE", f"/v1/tokens/{token.split('_')[1]}").status_code == 204
    assert relay.put(stream, 1).status_code == 201
    waiting.join(15)
    refused(got[0], 401, "unauthenticated")


def test_a_token_revoked_while_its_body_arrives_changes_nothing(relay):
    stream = new_stream()
    assert relay.put(stream, 1).status_code == 201
    blobs, name = f"/v1/streams/{stream.hex()}/blobs", stream.hex()
    box = relay.ask("POST", "/v1/pair").json()["nameplate"]
    for method, path, body in (
        ("PUT", f"{blobs}/2", make_blob(stream, 2)),
        ("PUT", f"{blobs}/3", make_blob(stream, 3, 200_000)),
        ("PUT", f"/v1/objects/{name}", b"an object"),
        ("PUT", f"/v1/pair/{box}/a/hello", b"a message"),
        ("POST", f"/v1/streams/{name}/ack", b'{"upto": 1}'),
        ("POST", "/v1/tokens", b'{"label": "more of me", "scopes": ["home"]}'),
    ):
        token = relay.make_token("home")

        def slowly(body=body, token=token):
            yield body[:5]
            assert relay.ask("DELETE", f"/v1/tokens/{token.split('_')[1]}").status_code == 204
            yield body[5:]

        refused(relay.ask(method, path, token=token, content=slowly()), 401, "unauthenticated")
    assert relay.seqs(stream) == [1]
    refused(relay.ask("GET", f"/v1/objects/{name}"), 404, "no-object")
    assert relay.ask("GET", f"/v1/pair/{box}/a/hello").status_code == 204
    assert "more of me" not in {one["label"] for one in listed(relay).values()}


LABELS_ARE_ANY_PRINTABLE = ["x", "x" * 200, "ä" * 200, "\U0001f4bb", "a b", "\"'\\<>"]


def test_labels_are_any_printable_words(relay):
    for label in LABELS_ARE_ANY_PRINTABLE:
        made = relay.ask("POST", "/v1/tokens", body={"label": label, "scopes": ["pair"]})
        assert made.status_code == 201
        assert listed(relay)[made.json()["id"]]["label"] == label


GOOD = {"label": "x", "scopes": ["pair"]}


TOKENS_WITHOUT_SENSE_ARE = [
    {},
    {"label": "x"},
    {"scopes": ["pair"]},
    {**GOOD, "more": 1},
    {**GOOD, "label": ""},
    {**GOOD, "label": "x" * 201},
    {**GOOD, "label": "a\nb"},
    {**GOOD, "label": "\x1b[2J"},
    {**GOOD, "label": "a\u2028b"},
    {**GOOD, "label": "\u0085"},
    {**GOOD, "label": 7},
    {**GOOD, "label": None},
    {**GOOD, "scopes": []},
    {**GOOD, "scopes": "pair"},
    {**GOOD, "scopes": ["pair", "pair"]},
    {**GOOD, "scopes": ["admin"]},
    {**GOOD, "scopes": ["HOME"]},
    {**GOOD, "scopes": ["home "]},
    {**GOOD, "scopes": [""]},
    {**GOOD, "scopes": [7]},
    {**GOOD, "scopes": [None]},
    {**GOOD, "scopes": [["home"]]},
    {**GOOD, "scopes": ["write:"]},
    {**GOOD, "scopes": ["write:00112233445566"]},
    {**GOOD, "scopes": ["write:001122334455667788"]},
    {**GOOD, "scopes": ["write:00112233445566GG"]},
    {**GOOD, "scopes": ["write:00112233445566AA"]},
    {**GOOD, "scopes": ["write:*"]},
    {**GOOD, "scopes": ["objects"]},
    {**GOOD, "scopes": ["read:\u0661" + "0" * 15]},
    {**GOOD, "scopes": [f"read:{n:016x}" for n in range(65)]},
    [],
    "x",
    7,
    None,
]


def test_tokens_without_sense_are_not_made(relay):
    for body in TOKENS_WITHOUT_SENSE_ARE:
        content = str(body).encode() if body is None else None
        refused(relay.ask("POST", "/v1/tokens", body=body, content=content), 400, "bad-request")


def test_sixty_four_scopes_are_taken(relay):
    scopes = [f"read:{n:016x}" for n in range(64)]
    assert relay.ask("POST", "/v1/tokens", body={"label": "many", "scopes": scopes}).status_code == 201
