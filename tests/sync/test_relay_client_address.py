"""Claims about which addresses a relay may have, and what is shown of those that it may not."""

import ipaddress
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crystal.errors import UsageError
from crystal.sync.address import is_loopback, parse_address
from crystal.sync.client import RelayClient
from tests.support.table import each_row


@each_row(
    ("url", "base"),
    [
        ("https://relay.example.org", "https://relay.example.org"),
        ("HTTPS://Relay.Example.org:443/", "https://relay.example.org"),
        ("https://relay.example.org:8443/some/path/", "https://relay.example.org:8443/some/path"),
        ("https://xn--bcher-kva.example", "https://xn--bcher-kva.example"),
        ("https://relay_1.internal", "https://relay_1.internal"),
        ("https://relay.example.org.", "https://relay.example.org."),
        ("https://192.0.2.7", "https://192.0.2.7"),
        ("https://[2001:DB8::0:1]:9", "https://[2001:db8::1]:9"),
        ("http://127.0.0.1:8600", "http://127.0.0.1:8600"),
        ("http://127.8.9.10:80", "http://127.8.9.10"),
        ("http://[::1]:8600", "http://[::1]:8600"),
        ("http://[0:0:0:0:0:0:0:1]", "http://[::1]"),
        ("http://LOCALHOST:1", "http://localhost:1"),
    ],
)
def test_addresses_are_read_into_one_form(url, base):
    assert parse_address(url).base == base
    assert parse_address(base).base == base
    # What is sent to is what was read: httpx splits it at the same places.
    read = httpx.URL(base)
    assert read.raw_host.decode().strip("[]") == parse_address(url).host
    assert (read.port or {"https": 443, "http": 80}[read.scheme]) == parse_address(url).port


@each_row(
    "url",
    (
        "http://relay.example.org http://192.168.1.5:8600 http://10.0.0.1 http://0.0.0.0:8600 http://[::]"
        " http://[::ffff:127.0.0.1] http://[fe80::1] http://localhost.example.org http://127.0.0.1.example.org"
        " http://127.1 http://2130706433 http://0x7f.0.0.1 http://0177.0.0.1 http://127.0.0.01"
        " http://localhost. http://sub.localhost http://169.254.169.254/latest"
    ).split(),
)
def test_plain_http_goes_to_this_machine_only_unless_allowed(url):
    with pytest.raises(UsageError) as refused:
        parse_address(url)
    assert "not encrypted" in refused.value.message
    assert "https" in refused.value.hint
    assert parse_address(url, allow_insecure=True).scheme == "http"
    with pytest.raises(UsageError):
        RelayClient(url, "token")


@each_row(
    "url",
    [
        *(
            "relay.example.org //relay.example.org ftp://relay.example.org file:///etc/passwd"
            " https:/relay.example.org https:// https:///path https://:443 https://host:0 https://host:65536"
            " https://host:99999 https://host: https://host:-1 https://host:80a https://user@host"
            " https://user:secretpassword@host https://@host http://127.0.0.1@evil.example"
            " http://127.0.0.1:80@evil.example http://localhost#@evil.example http://localhost?@evil.example"
            " https://host?token=secretquery https://host/? https://host#fragment https://host/# https://host/a//b"
            " https://host/../x https://host/./x https://host/%2e%2e/x https://host/a;b https://ho%73t"
            " https://-host https://host- https://a..b https://. https://[::1 https://[::1]x"
            " https://[fe80::1%25eth0] https://[1:2] https://[127.0.0.1] https://host,other https://host;x"
        ).split(),
        "",
        "https://host:\u0661",
        "http://localhost\\@evil.example",
        "https://host/a b",
        "https://ho st",
        " https://host",
        "https://host ",
        "https://host\n",
        "https://ho\tst",
        "https://host\r\nX: y",
        "https://host\0",
        "https://h\u00f6st",
        "https://\uff4cocalhost",
        "https://" + "a" * 64 + ".example",
        "https://" + "a." * 200 + "example",
    ],
)
def test_whatever_two_readers_could_understand_differently_is_refused(url):
    for allowed in (False, True):
        with pytest.raises(UsageError) as refused:
            parse_address(url, allow_insecure=allowed)
        assert "secret" not in f"{refused.value.message}{refused.value.hint}"
        assert refused.value.message.isprintable()
        assert len(refused.value.message) < 300


@pytest.mark.slow
@given(st.text(max_size=40) | st.from_regex(r"https?://[ -~]{0,30}", fullmatch=True))
@example("http://localhost/\\")
@example("https://a/" + "b" * 30)
def test_what_is_taken_means_the_same_to_every_reader(url):
    try:
        address = parse_address(url)
    except UsageError:
        return
    assert address.scheme == "https" or is_loopback(address.host)
    again, read = urlsplit(address.base), httpx.URL(address.base)
    assert again.hostname == address.host == read.raw_host.decode().strip("[]")
    assert again.username is None
    assert not read.userinfo
    assert not again.query
    assert not again.fragment
    assert read.raw_path.decode() == (address.path or "/")


@given(st.ip_addresses(v=4))
def test_loopback_is_what_the_standard_says(address):
    assert is_loopback(str(address)) == (address in ipaddress.ip_network("127.0.0.0/8"))
