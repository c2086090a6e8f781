"""Calls of the relay's client to a relay that answers with anything."""

import time

import pytest

from crystal.errors import CrystalError
from crystal.sync.client import RelayClient
from crystal.sync.errors import RelayUnavailableError
from crystal.sync.transport import Timeouts
from tests.support.hostile_relay import hostile

STREAM = bytes(range(16))
BLOB = b"CRB1" + bytes(200)
QUICK = Timeouts(connect=2, read=0.5, write=0.5, total=1, rate=16 << 20)
"""For a relay whose answer never ends: only the clock ends it."""
PATIENT = Timeouts(connect=5, read=5, write=5, total=6, rate=16 << 20)
"""For an answer that comes, on a busy machine too."""
TOKEN = "crt_0123456789abcdef_secretsecretsecretsecretsecretsecretsecret_00000000"

CALLS = {
    "put": lambda relay: relay.put(STREAM, 1, BLOB),
    "streams": lambda relay: relay.streams(),
    "blobs": lambda relay: relay.blobs(STREAM, 0),
    "get": lambda relay: relay.get(STREAM, 1),
    "ack": lambda relay: relay.ack(STREAM, 1),
    "put_object": lambda relay: relay.put_object(STREAM, b"x"),
    "get_object": lambda relay: relay.get_object(STREAM),
    "delete_object": lambda relay: relay.delete_object(STREAM),
    "objects": lambda relay: relay.objects(),
    "make_token": lambda relay: relay.make_token("laptop", ["home"]),
    "tokens": lambda relay: relay.tokens(),
    "revoke_token": lambda relay: relay.revoke_token("0123456789abcdef"),
    "open_mailbox": lambda relay: relay.open_mailbox(),
    "claim_mailbox": lambda relay: relay.claim_mailbox(7),
    "put_mail": lambda relay: relay.put_mail(7, "a", "pake", b"x"),
    "get_mail": lambda relay: relay.get_mail(7, "b", "pake"),
    "close_mailbox": lambda relay: relay.close_mailbox(7),
    "health": lambda relay: relay.health(),
}


def ask(relay, call="streams", timeouts=PATIENT):
    with RelayClient(relay.url, TOKEN, timeouts=timeouts) as client:
        return CALLS[call](client)


def refused(script, call="streams", kind=RelayUnavailableError, timeouts=PATIENT):
    """Ask once; give the error, which is short, printable and has neither the token nor anything of the relay's."""
    began = time.monotonic()
    with hostile(script) as relay, pytest.raises(CrystalError) as error:
        ask(relay, call, timeouts)
    assert time.monotonic() - began < 10
    assert type(error.value) is kind, repr(error.value)
    text = f"{error.value.message} {error.value.hint}"
    assert text.isprintable()
    assert len(text) < 400
    assert "secret" not in text
    assert "evil" not in text.lower()
    return error.value
