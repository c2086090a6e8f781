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

_FORM = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]{1,253})(?::(?P<port>[0-9]{1,5}))?(?P<path>/[!-~]*)?",
    re.IGNORECASE | re.ASCII,
)
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_SEGMENT = re.compile(r"[A-Za-z0-9._~-]+", re.ASCII)
_EXAMPLE = "an address looks like https://relay.example.org"


@dataclass(frozen=True, slots=True)
class RelayAddress:
    """Address of a relay. ``base`` has no slash at its end; ``shown`` is for messages and holds no path."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def shown(self) -> str:
        """Scheme, host and any port that is not the default."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = {"https": 443, "http": 80}[self.scheme]
        return f"{self.scheme}://{host}" + ("" if self.port == usual else f":{self.port}")

    @property
    def base(self) -> str:
        """Address to which paths are appended."""
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
    port = int(found["port"]) if found["port"] else {"https": 443, "http": 80}[scheme]
    if not 1 <= port <= 65535:
        raise UsageError(f"{port} cannot be the relay's port", hint="ports are 1 to 65535")
    address = RelayAddress(scheme, host, port, _path(found["path"] or ""))
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
    if text.startswith("["):
        try:
            return str(ipaddress.IPv6Address(text[1:-1]))
        except ValueError as error:
            raise UsageError(f"the relay's host {_quoted(text)} is not an IPv6 address", hint=_EXAMPLE) from error
    if all(_LABEL.fullmatch(label) for label in text.removesuffix(".").split(".")):
        return text
    raise UsageError(f"{_quoted(text)} cannot be the relay's host", hint=_EXAMPLE)


def _path(text: str) -> str:
    path = text.rstrip("/")
    parts = path.split("/")[1:]
    if all(_SEGMENT.fullmatch(part) and part not in (".", "..") for part in parts):
        return path
    raise UsageError(
        f"the path {_quoted(text)} of the relay's address cannot be used",
        hint="a path has letters, digits and . _ ~ - between single slashes; no ? and no #",
    )


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
