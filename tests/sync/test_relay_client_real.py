"""Claims about the client and the real relay together: each method does at the relay what its name says."""

import secrets
import threading
import time

import pytest

from crystal.sync.client import RelayClient
from crystal.sync.errors import (
    MailboxTakenError,
    NotAtRelayError,
    RelayDeniedError,
    RelayFullError,
    RelayProtocolError,
    RelayUnavailableError,
    StreamConflictError,
)
from crystal.sync.transport import Timeouts
from tests.relay_conformance.targets import aging, limited, make_blob, new_stream, relay  # noqa: F401 - the fixtures
from tests.support.postgres import postgres  # noqa: F401 - a fixture of the targets
from tests.support.s3 import s3_server  # noqa: F401 - another
from tests.support.workerd import workerds  # noqa: F401 - another


def client_of(target, token=None, **more):
    return RelayClient(target.url, target.home if token is None else token, **more)


@pytest.fixture
def owner(relay):  # noqa: F811
    with client_of(relay) as made:
        yield made


def test_blobs_go_and_come(owner):
    stream = new_stream()
    blobs = {seq: make_blob(stream, seq, 148 + 100 * seq) for seq in (1, 2, 3)}
    assert [owner.put(stream, seq, blob) for seq, blob in blobs.items()] == ["created"] * 3
    assert owner.put(stream, 2, blobs[2]) == "duplicate"
    with pytest.raises(StreamConflictError):
        owner.put(stream, 2, make_blob(stream, 2))
    page = owner.blobs(stream, 0, 2)
    assert [(one.seq, one.size, one.tag) for one in page.blobs] == [(n, 148 + 100 * n, blobs[n][-32:]) for n in (1, 2)]
    assert (page.head, page.acked, page.expired_upto) == (3, 0, 0)
    assert [one.seq for one in owner.blobs(stream, 2).blobs] == [3]
    assert owner.get(stream, 3) == blobs[3]
    owner.ack(stream, 2)
    (state,) = [one for one in owner.streams().streams if one.stream == stream]
    assert (state.head, state.acked, state.count, state.bytes) == (3, 2, 1, len(blobs[3]))
    with pytest.raises(NotAtRelayError) as gone:
        owner.get(stream, 1)
    assert gone.value.code == "no-blob"
    assert owner.put(stream, 1, blobs[1]) == "duplicate"
    assert owner.put(stream, 1, blobs[1], resend=True) == "created"
    assert owner.get(stream, 1) == blobs[1]
    with pytest.raises(RelayDeniedError) as refused:
        owner.put(stream, 9, b"not sealed" * 20)
    assert refused.value.code == "bad-envelope"


def test_an_unknown_stream_is_zeros(owner):
    stream = new_stream()
    page = owner.blobs(stream, 0)
    assert (page.blobs, page.head, page.acked, page.expired_upto) == ((), 0, 0, 0)
    owner.ack(stream, 7)


@pytest.mark.slow
def test_the_largest_blob_goes_and_comes(owner):
    stream = new_stream()
    blob = make_blob(stream, 1, 8_388_756)
    assert owner.put(stream, 1, blob) == "created"
    assert owner.get(stream, 1) == blob
    owner.ack(stream, 1)


@pytest.mark.slow
def test_news_are_waited_for(relay, owner):  # noqa: F811
    stream = new_stream()
    token = owner.make_token("device", [f"write:{stream[:8].hex()}", f"read:{stream[:8].hex()}"]).token
    with client_of(relay, token) as device:
        listed = device.streams()
        assert listed.streams == ()
        got = []
        waiting = threading.Thread(
            target=lambda: got.append(owner.streams(changed_after=owner.streams().change, wait=15))
        )
        began = time.monotonic()
        waiting.start()
        while not got and time.monotonic() - began < 10:
            device.put(
                stream,
                1 + len(device.blobs(stream, 0).blobs),
                make_blob(stream, 1 + len(device.blobs(stream, 0).blobs)),
            )
            waiting.join(0.05)
        waiting.join(10)
        assert stream in {one.stream for one in got[0].streams}
        assert [one.stream for one in device.streams(changed_after=listed.change).streams] == [stream]
        change = device.streams().change
        assert device.streams(changed_after=change, wait=0.1).streams == ()


def test_objects_go_and_come(owner):
    name, data = secrets.token_bytes(16), secrets.token_bytes(300_000)
    assert owner.put_object(name, data) == "created"
    assert owner.put_object(name, data) == "duplicate"
    assert owner.put_object(name, data, resend=True) == "created"
    with pytest.raises(RelayDeniedError):
        owner.put_object(name, b"other")
    assert owner.get_object(name) == data
    assert [one.size for one in owner.objects() if one.object_id == name] == [len(data)]
    owner.delete_object(name)
    owner.delete_object(name)
    with pytest.raises(NotAtRelayError):
        owner.get_object(name)


def test_tokens_are_made_and_end(relay, owner):  # noqa: F811
    made = owner.make_token("der Läptop", ["objects:read", "write:0011223344556677"])
    assert made.id in {one.id for one in owner.tokens()}
    with client_of(relay, made.token) as device:
        device.objects()
        with pytest.raises(RelayDeniedError) as refused:
            device.put_object(bytes(16), b"x")
        assert refused.value.code == "forbidden"
        owner.revoke_token(made.id)
        with pytest.raises(RelayDeniedError) as refused:
            device.objects()
        assert refused.value.code == "unauthenticated"
    (entry,) = [one for one in owner.tokens() if one.id == made.id]
    assert entry.label == "der Läptop"
    assert entry.revoked_at is not None
    with pytest.raises(NotAtRelayError):
        owner.revoke_token("0000000000000000")


def test_a_pairing_goes_through_the_mailbox(relay, owner):  # noqa: F811
    number = owner.open_mailbox()
    with (
        RelayClient(relay.url, None, claim=secrets.token_bytes(32)) as joiner,
        RelayClient(relay.url, None, claim=secrets.token_bytes(32)) as thief,
    ):
        joiner.claim_mailbox(number)
        joiner.claim_mailbox(number)
        with pytest.raises(MailboxTakenError) as taken:
            thief.claim_mailbox(number)
        assert taken.value.code == "mailbox-claimed"
        assert joiner.get_mail(number, "a", "pake") is None
        owner.put_mail(number, "a", "pake", b"one")
        owner.put_mail(number, "a", "pake", b"one")
        with pytest.raises(MailboxTakenError):
            owner.put_mail(number, "a", "pake", b"two")
        assert joiner.get_mail(number, "a", "pake", wait=5) == b"one"
        joiner.put_mail(number, "b", "pake", b"three")
        assert owner.get_mail(number, "b", "pake", wait=5) == b"three"
        with pytest.raises(RelayDeniedError):
            thief.get_mail(number, "a", "pake")
        joiner.close_mailbox(number)
        owner.close_mailbox(number)
        with pytest.raises(NotAtRelayError):
            owner.get_mail(number, "b", "pake")


def test_health_needs_no_token(relay):  # noqa: F811
    with client_of(relay, "constructor") as nobody:
        nobody.health()
        with pytest.raises(RelayDeniedError):
            nobody.streams()


def test_another_path_is_no_relay(relay):  # noqa: F811
    with RelayClient(relay.url + "/elsewhere", relay.home) as lost, pytest.raises(RelayProtocolError):
        lost.streams()


@pytest.mark.slow
def test_limits_come_as_what_they_are(limited):  # noqa: F811
    with client_of(limited) as home:
        stream = new_stream()
        for seq in range(1, 6):
            home.put(stream, seq, make_blob(stream, seq))
        with pytest.raises(RelayFullError) as full:
            home.put(stream, 6, make_blob(stream, 6))
        assert full.value.code == "stream-full"
        with pytest.raises(RelayDeniedError):
            home.put(stream, 7, make_blob(stream, 7, 50_000))
        busy = next(filter(None, (refusal(home, stream, upto) for upto in range(5_000))))  # the first above the rate
        assert busy.code == "rate-limited"
        assert 1 <= busy.retry_after <= 60


def refusal(home, stream, upto):
    """Acknowledge; return why that was refused, but for a body that a busy machine sends too slowly."""
    try:
        home.ack(stream, upto)
    except RelayUnavailableError as refused:
        return refused if refused.code != "body-timeout" else None


@pytest.mark.slow
def test_what_expired_is_told(aging):  # noqa: F811
    stream = new_stream()
    with client_of(aging) as home:
        home.put(stream, 1, make_blob(stream, 1))
        aging.clock[0] += 31 * 86_400_000
        assert home.blobs(stream, 0).expired_upto == 1


@pytest.mark.slow
def test_a_relay_that_is_killed_in_the_middle_of_a_wait_is_unavailable(aging):  # noqa: F811
    with client_of(aging, timeouts=Timeouts(read=5)) as home:
        change = home.streams().change
        failed = []

        def wait():
            try:
                home.streams(changed_after=change, wait=20)
            except RelayUnavailableError as error:
                failed.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        waiting.join(0.2)
        aging.served.kill()
        waiting.join(10)
        assert len(failed) == 1
        with pytest.raises(RelayUnavailableError):
            home.health()
