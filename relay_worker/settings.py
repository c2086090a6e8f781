"""Load the configuration of the relay: environment ``CRYSTAL_RELAY_*``, then a TOML file, then the defaults.

The source of every value is recorded; ``crystal-relay check`` prints it. The environment is an argument.
"""

from __future__ import annotations

import ipaddress
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import msgspec

from relay_worker.crb1 import MAX_BLOB
from relay_worker.errors import CannotServeError
from relay_worker.limits import networks

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PREFIX = "CRYSTAL_RELAY_"
MAX_DAYS = 36_500
_BUCKET = re.compile("s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._-]+)*/?")
# Variables of the client, which may run next to a relay.
_OF_CLIENTS = (
    *("CONFIG", "URL", "KEY", "KEY_PLACE", "TOKEN", "TOKEN_FILE", "CA_FILE"),
    *("INSECURE_HTTP", "KEEP_DAYS", "LOCAL_MEMORY"),
)


Rate = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
Seconds = Annotated[float, msgspec.Meta(ge=0.01, le=1e9)]


@dataclass(frozen=True, slots=True)
class Settings:
    """The effective configuration.

    Attributes:
        listen: ``host:port``, ``[v6]:port``.
        data_dir: The data directory of a relay with SQLite.
        store: Address of a PostgreSQL database that replaces the data directory; it may contain a password.
        bodies: Address of a bucket for the large bodies of a relay with PostgreSQL: ``s3://bucket/prefix``.
        max_body: Maximum bytes of a blob or object.
        ttl_days: Days after which an unread blob expires.
        quota_bytes: Maximum bytes of bodies per account.
        max_blobs: Maximum stored blobs per stream.
        max_streams: Maximum streams per account.
        rate: Requests per second and token, 0 for no limit; bursts of five times as many.
        refused_rate: Refused requests per minute and address, 0 for no limit.
        pair_rate: Claims of mailboxes per minute and address, 0 for no limit.
        body_idle: Maximum seconds without progress of a body.
        body_total: Maximum seconds for a complete body.
        large_uploads: Maximum number of bodies over 128 KiB received in parallel.
        max_connections_per_address: Maximum open connections per address, IPv6 by /64; 0 for no limit.
        tls_cert: PEM file; with ``tls_key`` the relay serves TLS itself.
        tls_key: PEM file.
        metrics_listen: ``host:port`` of the metrics, empty to disable them.
        log_format: ``json`` or ``text``.
        access_log: ``all`` requests, only ``errors``, or ``none``.
        trusted_proxies: Addresses or networks whose ``X-Forwarded-For`` is trusted.
        behind_proxy: Allow plain HTTP on an address that is not loopback, because a proxy in front provides TLS.
        sources: The source of each value that is not a default.
        unknown: Unknown variables with the prefix; perhaps misspelt.
    """

    listen: str = "127.0.0.1:8600"
    data_dir: Path = Path("relay-data")
    store: str = field(default="", repr=False)
    bodies: str = ""
    max_body: Annotated[int, msgspec.Meta(ge=148)] = MAX_BLOB
    ttl_days: Annotated[float, msgspec.Meta(ge=0, le=MAX_DAYS)] = 30.0
    quota_bytes: Annotated[int, msgspec.Meta(ge=0)] = 4 << 30
    max_blobs: Annotated[int, msgspec.Meta(ge=1)] = 10_000
    max_streams: Annotated[int, msgspec.Meta(ge=1)] = 4096
    rate: Rate = 1000.0
    refused_rate: Rate = 60.0
    pair_rate: Rate = 5.0
    body_idle: Seconds = 10.0
    body_total: Seconds = 120.0
    large_uploads: Annotated[int, msgspec.Meta(ge=1)] = 8
    max_connections_per_address: Annotated[int, msgspec.Meta(ge=0)] = 100
    tls_cert: Path | None = None
    tls_key: Path | None = None
    metrics_listen: str = "127.0.0.1:9600"
    log_format: Literal["json", "text"] = "json"
    access_log: Literal["all", "errors", "none"] = "all"
    trusted_proxies: tuple[str, ...] = ()
    behind_proxy: bool = False
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)
    unknown: tuple[str, ...] = field(default=(), compare=False)


def host_and_port(text: str, name: str) -> tuple[str, int]:
    """Split ``host:port``; a port alone means loopback.

    Raises:
        CannotServeError: It is neither.
    """
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or ("127.0.0.1" if ":" not in text else "")
    if not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise CannotServeError(f"{name} is {text!r}", hint="write host:port, e.g. 127.0.0.1:8600", exit_code=2)
    return host, int(port)


def without_password(url: str) -> str:
    """Return the address of a store for output: without password and parameters."""
    scheme, slashes, rest = url.partition("?")[0].partition("://")
    place, slash, name = rest.partition("/")
    user, at, host = place.rpartition("@")
    return f"{scheme}{slashes}{user.partition(':')[0]}{at}{host}{slash}{name}"


def is_loopback(host: str) -> bool:
    """Return True if only this machine can connect to the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_TYPES = get_type_hints(Settings, include_extras=True)
NAMES = tuple(name for name in _TYPES if name not in {"sources", "unknown"})


def read_value(name: str, source: str, value: Any) -> Any:
    """Convert a value of a setting.

    Args:
        name: The setting.
        source: The place of the value, for the message.
        value: A text, or a TOML value.

    Raises:
        CannotServeError: It is not of the setting's type, or out of range.
    """
    if name == "metrics_listen" and value in ("", "off", "none", False):
        return ""
    if name in {"listen", "metrics_listen"}:
        host_and_port(str(value), source)
        return str(value)
    if name == "store":
        return _read_store(source, str(value))
    if name == "bodies" and value and not _BUCKET.fullmatch(str(value)):
        raise CannotServeError(f"{source} is {value!r}", hint="write s3://bucket/prefix", exit_code=2)
    if name in {"tls_cert", "tls_key"} and not value:
        return None
    if name == "trusted_proxies" and isinstance(value, str):
        value = value.replace(",", " ").split()
    try:
        found = msgspec.convert(value, _TYPES[name], strict=False, dec_hook=lambda _, folder: Path(folder).expanduser())
        if name == "trusted_proxies":
            networks(found)
    except (TypeError, ValueError) as error:
        raise CannotServeError(f"{source} is {value!r}: {error}", exit_code=2) from error
    return found


def _read_store(source: str, url: str) -> str:
    if url and not url.startswith(("postgresql://", "postgres://")):
        raise CannotServeError(
            f"{source} is not an address of PostgreSQL",
            hint="write postgresql://user@host:5432/database, or nothing and --data-dir FOLDER for SQLite",
            exit_code=2,
        )
    if source.startswith("--") and ("password=" in url or without_password(url) != url.partition("?")[0]):
        raise CannotServeError(
            f"{source} holds a password, which every user of this machine sees among the processes",
            hint="put the address into a file and name it in CRYSTAL_RELAY_STORE_FILE, or the password into ~/.pgpass",
            exit_code=2,
        )
    return url


def load(environ: Mapping[str, str], file: Path | None = None) -> Settings:
    """Load the configuration.

    Args:
        environ: The environment of the process.
        file: A TOML file; else ``CRYSTAL_RELAY_CONFIG`` of the environment, else none.

    Raises:
        CannotServeError: A value, a name or the file is wrong.
    """
    named = str(file) if file else environ.get(f"{PREFIX}CONFIG", "")
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, value in (_read_toml(Path(named).expanduser()) if named else {}).items():
        values[name] = read_value(name, f"{name} in {named}", value)
        sources[name] = named
    if "PORT" in environ and f"{PREFIX}LISTEN" not in environ and "listen" not in values:
        # Set by Fly, Railway and similar platforms: they route from outside and provide TLS.
        values["listen"] = read_value("listen", "PORT", f"0.0.0.0:{environ['PORT']}")
        values["behind_proxy"] = True
        sources["listen"] = sources["behind_proxy"] = "PORT"
    for name in NAMES:
        variable = PREFIX + name.upper()
        text = environ.get(variable)
        if text is None and f"{variable}_FILE" in environ:
            variable += "_FILE"
            text = _read(Path(environ[variable])).strip()
        if text is not None:
            values[name] = read_value(name, variable, text)
            sources[name] = variable
    if "data_dir" not in values:
        values["data_dir"] = _default_folder(environ)
    settings = replace(Settings(), **values, sources=sources, unknown=_unknown(environ))
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise CannotServeError("tls_cert and tls_key go together", hint="set both or none", exit_code=2)
    return settings


def _default_folder(environ: Mapping[str, str]) -> Path:
    if environ.get("STATE_DIRECTORY"):  # systemd's StateDirectory=
        return Path(environ["STATE_DIRECTORY"].partition(":")[0])
    base = environ.get("XDG_DATA_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "share") / "crystal-relay"


def _unknown(environ: Mapping[str, str]) -> tuple[str, ...]:
    known = {PREFIX + name.upper() for name in NAMES}
    of_clients = {PREFIX + name for name in _OF_CLIENTS}
    given = {name for name in environ if name.startswith(PREFIX)}
    return tuple(sorted(name for name in given - of_clients if name.removesuffix("_FILE") not in known))


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise CannotServeError(f"{path} cannot be read: {error}", exit_code=2) from error


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(_read(path))
    except tomllib.TOMLDecodeError as error:
        raise CannotServeError(
            f"{path}: {error}", hint='write TOML, e.g. listen = "127.0.0.1:8600"', exit_code=2
        ) from error
    unknown = sorted(set(found) - set(NAMES))
    if unknown:
        raise CannotServeError(
            f"{path}: {unknown[0]} is not a setting", hint="crystal-relay check lists them", exit_code=2
        )
    return found
