"""Parse and check the address of a relay, on the text itself, before any library reads it.

If two libraries parse one URL differently, a token can go to the wrong server. So only one plain form is accepted:
``https://host[:port][/path]``, ASCII, without a user, a query or a fragment; ``http`` only to this machine.

Source: docs/adr/0013-relay-client.md.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from crystal.errors import UsageError

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_FORM = re.compile(
    r"(?P<scheme>https?)://"
    rf"(?P<host>\[[0-9a-f:.]{{2,45}}\]|(?![^:/]{{254}}){_LABEL}(?:\.{_LABEL})*\.?)"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>(?:/(?!\.\.?(?:/|\Z))[a-z0-9._~-]+)*)/*",
    re.IGNORECASE | re.ASCII,
)
_PORTS = {"https": 443, "http": 80}
_EXAMPLE = "an address looks like https://relay.example.org or https://example.org/relay; no ? and no #"


@dataclass(frozen=True, slots=True)
class RelayAddress:
    """Address of a relay. ``base`` has no slash at its end; ``shown`` is for messages and holds no path."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def shown(self) -> str:
        """Return scheme, host and any port that is not the default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if self.port == _PORTS[self.scheme] else f":{self.port}")

    @property
    def base(self) -> str:
        """Return the address to which paths are appended."""
        return self.shown + self.path


def parse_address(url: str, *, allow_insecure: bool = False) -> RelayAddress:
    """Parse the address of a relay.

    Args:
        url: The address from the user or a pairing bundle.
        allow_insecure: Accept plain http to another machine; only for networks that encrypt traffic themselves.

    Raises:
        UsageError: It is not an address, or a token must not be sent to it.
    """
    found = _FORM.fullmatch(url)
    if found is None:
        raise UsageError(f"the relay's address {_quoted(url)} cannot be used{_why(url)}", hint=_EXAMPLE)
    scheme, host = found["scheme"].lower(), _host(found["host"].lower())
    port = int(found["port"] or _PORTS[scheme])
    if not 1 <= port <= 65535:
        raise UsageError(f"{port} cannot be the relay's port", hint="ports are 1 to 65535")
    address = RelayAddress(scheme, host, port, found["path"])
    if scheme == "http" and not is_loopback(host) and not allow_insecure:
        raise UsageError(
            f"the relay's address {address.shown} is not encrypted, and not this machine",
            hint="use https; plain http is for 127.0.0.1, ::1 and localhost, or with CRYSTAL_RELAY_INSECURE_HTTP=1",
        )
    return address


def is_loopback(host: str) -> bool:
    """Return True if a host is this machine: ``localhost``, 127.0.0.0/8 written in full, or ``::1``."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback if address.version == 4 else address == ipaddress.IPv6Address(1)


def _host(text: str) -> str:
    if not text.startswith("["):
        return text
    try:
        return str(ipaddress.IPv6Address(text[1:-1]))
    except ValueError as error:
        raise UsageError(f"the relay's host {_quoted(text)} is not an IPv6 address", hint=_EXAMPLE) from error


def _why(url: str) -> str:
    """Return what is wrong with the address, if the reason is known."""
    authority = re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)[0]
    if "@" in authority:
        return ": it names a user"
    if not url.isascii():
        return ": it has characters other than ASCII"
    if not re.match(r"https?://", url, re.IGNORECASE):
        return ": it does not start with https://"
    return ""


def _quoted(url: str) -> str:
    """Return the address shortened for messages, without the part before an ``@``, which may hold a password."""
    scheme, mark, rest = url.partition("://")
    kept = f"{scheme}{mark}***@{rest.rpartition('@')[2]}" if "@" in rest else url
    kept = re.split(r"[?#]", kept, maxsplit=1)[0]
    return ascii(kept if len(kept) <= 100 else kept[:100] + "...")
