"""The relay's client: each refusal and each failure of the network is an error of its own."""

import inspect
import socket
import ssl
from contextlib import nullcontext

import httpcore
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crystal.errors import CrystalError, DeniedError, UnavailableError
from crystal.sync import errors
from crystal.sync.client import RelayClient
from crystal.sync.exchange import failure
from crystal.sync.refusal import retry_after
from tests.support.one_answer import BLOB, STREAM, TOKEN, URL, Fake, client, problem
from tests.support.table import each_row

# --------------------------------------------------------------------------------------------------- refusals


REFUSALS = [
    (400, "bad-request", errors.RelayDeniedError),
    (400, "bad-envelope", errors.RelayDeniedError),
    (400, "digest-mismatch", errors.RelayUnavailableError),
    (401, "unauthenticated", errors.RelayDeniedError),
    (403, "forbidden", errors.RelayDeniedError),
    (404, "not-found", errors.RelayProtocolError),
    (404, "no-blob", errors.NotAtRelayError),
    (404, "no-object", errors.NotAtRelayError),
    (404, "no-token", errors.NotAtRelayError),
    (404, "no-mailbox", errors.NotAtRelayError),
    (404, "body-lost", errors.NotAtRelayError),
    (404, "", errors.NotAtRelayError),
    (405, "method-not-allowed", errors.RelayProtocolError),
    (408, "body-timeout", errors.RelayUnavailableError),
    (409, "blob-conflict", errors.StreamConflictError),
    (409, "object-conflict", errors.RelayDeniedError),
    (409, "mail-conflict", errors.MailboxTakenError),
    (409, "mailbox-claimed", errors.MailboxTakenError),
    (413, "body-too-large", errors.RelayDeniedError),
    (415, "unsupported-media-type", errors.RelayDeniedError),
    (426, "unsupported-version", errors.RelayDeniedError),
    (429, "rate-limited", errors.RelayUnavailableError),
    (429, "too-many-mailboxes", errors.RelayUnavailableError),
    (431, "headers-too-large", errors.RelayDeniedError),
    (500, "internal", errors.RelayUnavailableError),
    (502, "", errors.RelayUnavailableError),
    (503, "unavailable", errors.RelayUnavailableError),
    (504, "", errors.RelayUnavailableError),
    (507, "stream-full", errors.RelayFullError),
    (507, "account-full", errors.RelayFullError),
    (507, "disk-full", errors.RelayFullError),
]


@each_row(("status", "code", "kind"), REFUSALS)
def test_each_refusal_is_an_error_of_its_own(status, code, kind):
    with pytest.raises(CrystalError) as refused:
        client(problem(status, code, **{"Retry-After": "7"})).get(STREAM, 1)
    assert type(refused.value) is kind
    if kind is not errors.RelayProtocolError:
        assert refused.value.code == code
        assert str(status) in refused.value.message or status == 426
    if kind in (errors.RelayUnavailableError, errors.RelayFullError):
        assert refused.value.retry_after == 7
    assert isinstance(refused.value, (UnavailableError, DeniedError, errors.NotAtRelayError))


def test_every_status_there_is_ends_in_an_error_or_an_answer():
    for status in range(200, 600):
        with pytest.raises(CrystalError) if status != 200 else nullcontext():
            client(Fake(status, {"status": "ready"})).health()


def test_what_something_in_between_says_is_no_fact_about_a_blob():
    for status in (404, 409, 400, 401, 403, 410):
        fake = problem(status, "blob-conflict")
        del fake.answer[1]["Crystal-Relay-Version"]
        with pytest.raises(errors.RelayProtocolError):
            client(fake).put(STREAM, 1, BLOB)


@each_row(
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


@pytest.mark.slow
@given(st.text(max_size=30), st.text(max_size=30))
def test_no_pause_is_anything_but_seconds_within_an_hour(said, date):
    assert 0 <= retry_after({"retry-after": said, "date": date}) <= 3600


# ------------------------------------------------------------------------------------------ all that can be thrown


def of_module(module):
    found = [one for one in vars(module).values() if inspect.isclass(one) and issubclass(one, Exception)]
    assert len(found) > 10
    return sorted(set(found), key=lambda one: one.__name__)


@each_row("kind", of_module(httpcore))
def test_every_exception_of_the_engine_is_mapped(kind):
    class Throwing(httpcore.ConnectionPool):
        def handle_request(self, request):
            raise kind("boom secret")

    with pytest.raises(CrystalError) as mapped:
        RelayClient(URL, TOKEN, transport=Throwing()).streams()
    assert isinstance(mapped.value, errors.RelayUnavailableError)
    assert mapped.value.hint
    assert "secret" not in f"{mapped.value.message}{mapped.value.hint}"


@each_row(
    "error",
    [
        OSError("x"),
        ConnectionResetError(),
        BrokenPipeError(),
        socket.gaierror(8, "x"),
        ssl.SSLError(1, "x"),
        TimeoutError(),
    ],
)
def test_errors_from_below_are_mapped_too(error):
    assert isinstance(failure(error, "x"), errors.RelayUnavailableError)


def test_a_failure_while_the_answer_is_read_is_mapped():
    class Breaking(httpx.SyncByteStream):
        def __iter__(self):
            yield b"{"
            raise httpx.ReadError("reset")

    fake = Fake(200)
    fake.handle_request = lambda _: httpx.Response(
        200, headers={"Crystal-Relay-Version": "1", "Content-Type": "application/json"}, stream=Breaking()
    )
    with pytest.raises(errors.RelayUnavailableError):
        client(fake).streams()


def test_nobody_there_is_unavailable():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (
        RelayClient(f"http://127.0.0.1:{port}", TOKEN) as relay,
        pytest.raises(errors.RelayUnavailableError) as refused,
    ):
        relay.health()
    assert refused.value.retry_after == 0
    assert refused.value.exit_code == 4
