"""The relay's client: what a hostile relay says in JSON is a checked value or a refusal."""

from __future__ import annotations

import contextlib
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.sync import answers
from crystal.sync.answers import ProtocolViolationError
from crystal.sync.errors import RelayProtocolError
from crystal.sync.transport import Timeouts
from tests.support.examples import examples
from tests.support.hostile_calls import BLOB, STREAM, ask, refused
from tests.support.hostile_relay import answer, hostile, says, says_json
from tests.support.table import each_row

TAG = "ab" * 32
pytestmark = pytest.mark.usefixtures("nothing_is_written")


# ------------------------------------------------------------------------------------------------------------- JSON


def info(**more):
    return {"stream": STREAM.hex(), "head": 1, "acked": 0, "count": 1, "bytes": 200, "expired_upto": 0, **more}


def blob(**more):
    return {"seq": 1, "size": 200, "tag": TAG, **more}


def page(*blobs, **more):
    return {"blobs": list(blobs), "head": 9, "acked": 0, "expired_upto": 0, **more}


NO_NUMBERS = [-1, 2**53, 2**63, 2**64, 10**400, 1.0, 1.5, True, None, "1", [], {}]
NO_IDS = [
    "../../etc/passwd",
    "../" * 10 + "x",
    "00" * 15,
    "00" * 17,
    "AB" * 16,
    "0g" * 16,
    "\u0661" * 32,
    "00" * 16 + "\n",
    " " + "0" * 31,
    "0x" + "0" * 30,
    "",
    0,
    None,
    ["00" * 16],
]


@each_row("value", NO_IDS)
def test_names_that_are_no_ids_are_refused(value):
    for call, body in {
        "streams": {"change": 1, "streams": [info(stream=value)]},
        "blobs": page(blob(tag=value)),
        "objects": {"objects": [{"id": value, "size": 1, "created_at": 1}]},
    }.items():
        with pytest.raises(ProtocolViolationError):
            PARSERS[call](json.dumps(body).encode())
    with hostile(says_json({"change": 1, "streams": [info(stream=value)]})) as relay, pytest.raises(RelayProtocolError):
        ask(relay, "streams")


PARSERS = {
    "streams": lambda body: answers.parse(body, answers.StreamList),
    "blobs": lambda body: answers.parse_blobs(body, 0, 100),
    "objects": lambda body: answers.parse_objects(body, b""),
    "tokens": lambda body: answers.parse(body, answers.TokenList),
    "made": lambda body: answers.parse(body, answers.MadeToken),
    "nameplate": lambda body: answers.parse(body, answers.OpenedMailbox),
}
GOOD = {
    "streams": {"change": 1, "streams": [info()]},
    "blobs": page(blob(), blob(seq=2)),
    "objects": {"objects": [{"id": STREAM.hex(), "size": 1, "created_at": 1}]},
    "tokens": {
        "tokens": [
            {
                "id": "0123456789abcdef",
                "label": "x",
                "scopes": ["home"],
                "created_at": 1,
                "last_used_at": None,
                "revoked_at": 3,
            }
        ]
    },
    "made": {"id": "0123456789abcdef", "token": "crt_x", "label": "x", "scopes": []},
    "nameplate": {"nameplate": 7, "expires_at": 1},
}


def places(value, path=()):
    """The way to every number in a document."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from places(one, (*path, key))
    elif isinstance(value, list):
        for at, one in enumerate(value):
            yield from places(one, (*path, at))
    elif isinstance(value, int):
        yield path


def with_value(document, path, value):
    copied = json.loads(json.dumps(document))
    at = copied
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return copied


@each_row("name", PARSERS)
def test_good_answers_are_read_and_may_grow(name):
    grown = json.loads(json.dumps(GOOD[name]), object_hook=lambda one: {**one, "later": [1.5, None]})
    assert PARSERS[name](json.dumps(grown).encode()) == PARSERS[name](json.dumps(GOOD[name]).encode())


@each_row("value", NO_NUMBERS)
@each_row("name", [name for name in PARSERS if name != "made"])
def test_numbers_that_are_none_are_refused_wherever_they_stand(name, value):
    for path in places(GOOD[name]):
        if path[-1] in ("expires_at", "label") or (value is None and path[-1] in ("last_used_at", "revoked_at")):
            continue
        with pytest.raises(ProtocolViolationError):
            PARSERS[name](json.dumps(with_value(GOOD[name], path, value)).encode())


@each_row(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"1",
        b'"x"',
        b"NaN",
        b'{"change":NaN,"streams":[]}',
        b'{"change":Infinity,"streams":[]}',
        b'{"change":-0.0,"streams":[]}',
        b'{"change":1e3,"streams":[]}',
        b'{"change":1,"streams":{}}',
        b'{"change":1,"streams":null}',
        b'{"change":1,"streams":"x"}',
        b'{"change":1,"streams":[[]]}',
        b'{"change":1,"streams":[null]}',
        b'{"change":1}',
        b'{"streams":[]}',
        b'{"change":1,"streams":[]} evil',
        b'{"change":1,"streams":[]}{}',
        b'\xef\xbb\xbf{"change":1,"streams":[]}',
        b'{"change":1,"streams":[],"x":"\\ud800"}',
        b"{'change':1,'streams':[]}",
        '{"change":1,"streams":[]}'.encode("utf-16"),
        b'{"change":1,"streams":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"{" * 1_000_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"change":1' + b"0" * 100_000 + b',"streams":[]}',
        json.dumps({"change": 1, "streams": [info(), info()]}).encode(),
    ],
)
def test_json_that_is_none_is_refused(body):
    with pytest.raises(ProtocolViolationError):
        answers.parse(body, answers.StreamList)


def test_pages_are_in_order_and_as_long_as_asked_for():
    def read(*numbers, after=0, limit=3):
        return answers.parse_blobs(json.dumps(page(*(blob(seq=seq) for seq in numbers))).encode(), after, limit)

    assert [one.seq for one in read(1, 5, 9).blobs] == [1, 5, 9]
    for numbers, after in [((2, 1), 0), ((1, 1), 0), ((1, 2), 1), ((5,), 9), ((1, 2, 3, 4), 0), ((0,), 0)]:
        with pytest.raises(ProtocolViolationError):
            read(*numbers, after=after)
    for size in (0, 147, answers.MAX_BLOB + 1, 2**40):
        with pytest.raises(ProtocolViolationError):
            answers.parse_blobs(json.dumps(page(blob(size=size))).encode(), 0, 10)


@pytest.mark.slow
def test_objects_that_never_end_end():
    """A relay that lists full pages forever is asked a bounded number of times."""
    counted = iter(range(1, 1 << 30))

    def endless(connection, relay):
        objects = [{"id": f"{next(counted):032x}", "size": 1, "created_at": 1} for _ in range(1000)]
        says_json({"objects": objects})(connection, relay)

    with hostile(endless) as relay:
        assert len(ask(relay, "objects", Timeouts())) == answers.MAX_LISTED
        assert len(relay.asked) == answers.MAX_LISTED / 1000

    def same(connection, relay):
        says_json({"objects": [{"id": f"{n:032x}", "size": 1, "created_at": 1} for n in range(1000)]})(
            connection, relay
        )

    refused(same, "objects", RelayProtocolError, Timeouts())


def test_a_stored_blob_must_be_the_one_that_was_sent():
    good = {"seq": 1, "tag": BLOB[-32:].hex(), "result": "created"}
    with hostile(says(answer(json.dumps(good).encode(), status=b"201 Created"))) as relay:
        assert ask(relay, "put") == "created"
    for wrong in ({"seq": 2}, {"seq": 1.0}, {"seq": True}, {"tag": TAG}, {"result": "duplicate"}, {"tag": None}):
        body = json.dumps({**good, **wrong}).encode()
        refused(says(answer(body, status=b"201 Created")), "put", RelayProtocolError)


@pytest.mark.slow
@examples(150)
@given(st.sampled_from(sorted(PARSERS)), st.randoms(use_true_random=False), st.data())
def test_no_document_brings_anything_but_a_value_or_a_refusal(name, chance: random.Random, data):
    """Good documents with a few bytes changed, and any JSON in place of any part."""
    body = bytearray(json.dumps(GOOD[name]).encode())
    for _ in range(chance.randrange(1, 4)):
        body[chance.randrange(len(body))] = chance.randrange(256)
    strange = data.draw(
        st.recursive(
            st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers() | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted(GOOD[name])), inner),
            max_leaves=6,
        )
    )
    for tried in (bytes(body), json.dumps(strange).encode("utf-8", "surrogatepass")):
        with contextlib.suppress(ProtocolViolationError):
            PARSERS[name](tried)
