"""Claims about whom the client believes to be the relay: certificates good, strange, expired and of others."""

import ssl
from datetime import datetime, timedelta, timezone

import pytest
import trustme

from crystal.errors import NotConfiguredError
from crystal.sync.client import RelayClient
from crystal.sync.errors import RelayUnavailableError, RelayUntrustedError
from crystal.sync.transport import Timeouts, tls_context
from tests.support.hostile_relay import hostile, says_json
from tests.support.table import each_row

READY = says_json({"status": "ready"})
QUICK = Timeouts(connect=5, read=5, write=5, total=5)


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def ca_file(authority, tmp_path):
    path = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(path)
    return path


def server(authority, *names, **more):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names, **more).configure_cert(context)
    return context


def refusal(context, ca_file, name="localhost"):
    with (
        hostile(READY, tls=context, name=name) as relay,
        RelayClient(relay.url, "secret-token", ca_file=ca_file, timeouts=QUICK) as client,
    ):
        with pytest.raises(RelayUnavailableError) as refused:
            client.health()
        # Nothing was sent to whoever that is.
        assert b"secret-token" not in b"".join(relay.asked)
    assert "secret-token" not in f"{refused.value.message}{refused.value.hint}"
    return refused.value


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_the_right_authority_is_accepted_by_name_and_by_address(authority, ca_file, name):
    with (
        hostile(READY, tls=server(authority, name), name=name) as relay,
        RelayClient(relay.url, "token", ca_file=ca_file, timeouts=QUICK) as client,
    ):
        client.health()
        assert len(relay.asked) == 1


def test_an_unknown_authority_is_refused_and_says_what_to_do(authority, ca_file):
    stranger = server(trustme.CA(), "localhost")
    for trusted in (ca_file, None):
        error = refusal(stranger, trusted)
        assert type(error) is RelayUntrustedError
        assert "authority unknown" in error.message
        assert "ca_file" in error.hint


def test_an_expired_certificate_is_refused(authority, ca_file):
    past = datetime(2020, 1, 1, tzinfo=timezone.utc)
    error = refusal(server(authority, "localhost", not_before=past, not_after=past.replace(year=2021)), ca_file)
    assert "expired" in error.message
    assert "clock" in error.hint


def test_a_certificate_of_tomorrow_is_refused(authority, ca_file):
    later = datetime.now(timezone.utc) + timedelta(days=30)
    context = server(authority, "localhost", not_before=later, not_after=later + timedelta(days=9))
    assert "not valid yet" in refusal(context, ca_file).message


@each_row(
    ("made_for", "asked"), [("relay.example.org", "localhost"), ("localhost", "127.0.0.1"), ("127.0.0.2", "127.0.0.1")]
)
def test_a_certificate_of_another_is_refused(authority, ca_file, made_for, asked):
    error = refusal(server(authority, made_for), ca_file, asked)
    assert "is for another" in error.message


def test_tls_before_1_2_is_refused(authority, ca_file):
    assert tls_context(ca_file).minimum_version == ssl.TLSVersion.TLSv1_2
    context = server(authority, "localhost")
    with pytest.deprecated_call():
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    error = refusal(context, ca_file)
    assert "encrypted" in error.message or "closed" in error.message or "reached" in error.message


def test_a_plain_server_behind_https_is_told_from_an_untrusted_one(ca_file):
    with (
        hostile(READY) as relay,
        RelayClient(relay.url.replace("http:", "https:"), "token", ca_file=ca_file, timeouts=QUICK) as client,
    ):
        with pytest.raises(RelayUnavailableError) as refused:
            client.health()
        assert "encrypted" in refused.value.message
        assert b"token" not in b"".join(relay.asked)


@pytest.mark.slow
def test_a_handshake_that_never_ends_ends(ca_file):
    def stuck(connection, relay):
        relay.over.wait(20)

    with (
        hostile(stuck) as relay,
        RelayClient(
            relay.url.replace("http:", "https:"), "token", ca_file=ca_file, timeouts=Timeouts(connect=0.3, total=1)
        ) as client,
        pytest.raises(RelayUnavailableError, match="in time"),
    ):
        client.health()


@each_row(
    "content",
    [None, b"", b"no certificate", b"\0\xff", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"],
)
def test_an_authority_file_that_is_none_is_an_error_at_once(tmp_path, content):
    path = tmp_path / "authority.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(NotConfiguredError) as refused:
        RelayClient("https://relay.example.org", "token", ca_file=path)
    assert "PEM" in refused.value.hint


def test_the_environment_changes_nothing_about_trust(authority, ca_file, monkeypatch, tmp_path):
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"):
        monkeypatch.setenv(name, str(ca_file))
    keys = tmp_path / "keys.log"
    monkeypatch.setenv("SSLKEYLOGFILE", str(keys))
    assert "authority unknown" in refusal(server(authority, "localhost"), None).message
    assert not keys.exists()


def test_names_and_certificates_are_always_checked():
    assert tls_context(None).check_hostname
    assert tls_context(None).verify_mode is ssl.CERT_REQUIRED
