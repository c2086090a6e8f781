"""Requests to providers of models: bounded in time and in size, never redirected, and failures told apart.

What a person can do decides the error: wait (``ModelUnavailableError``), look at the text (``TextRefusedError``,
``ServerFaultError``), or change a setting (``DeniedError``, ``NotConfiguredError``, ``WrongAnswerError``). Messages
name the status and the provider's error code, never what was sent or the key.
"""

from __future__ import annotations

import ipaddress
import re
import ssl
import time
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import httpx
import orjson

from crystal.config.providers import EMBEDDING_PROVIDERS, PROGRAMS
from crystal.errors import (
    CrystalError,
    DeniedError,
    ModelUnavailableError,
    NotConfiguredError,
    ServerFaultError,
    TextRefusedError,
    UsageError,
    WrongAnswerError,
)

CONNECT_SECONDS = 10.0
MAX_ANSWER_BYTES = 64 << 20
MAX_REFUSAL_BYTES = 64 << 10
_LABEL = re.compile(r"[A-Za-z0-9_.-]{1,60}")


def post_json(
    name: str,
    url: str,
    body: object,
    headers: Mapping[str, str],
    timeout: float,
    *,
    max_bytes: int | None = None,
) -> Any:
    """Send JSON and return the JSON that comes back.

    Args:
        name: The provider, for messages.
        url: Where to; redirects are not followed.
        body: What to send.
        headers: Besides the content type.
        timeout: Seconds for the whole.
        max_bytes: A longer answer is an error; None for ``MAX_ANSWER_BYTES``.
    """
    deadline = time.monotonic() + timeout
    limits = httpx.Timeout(timeout, connect=min(timeout, CONNECT_SECONDS))
    sent = {"Content-Type": "application/json", **headers}
    try:
        with (
            httpx.Client(
                timeout=limits, follow_redirects=False, trust_env=not is_loopback(url), verify=_authorities(url)
            ) as client,
            client.stream("POST", url, content=orjson.dumps(body), headers=sent) as response,
        ):
            if response.status_code != httpx.codes.OK:
                held = next(response.iter_bytes(MAX_REFUSAL_BYTES), b"")
                raise refusal(name, response.status_code, response.headers, held)
            held = _read(name, response.iter_bytes(), deadline, max_bytes or MAX_ANSWER_BYTES)
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.InvalidURL) as error:
        raise _unreachable(name, url, error, may_be_billed=False) from error
    except httpx.TimeoutException as error:
        raise ServerFaultError(f"{name} did not answer in time", may_be_billed=True) from error
    except httpx.HTTPError as error:
        raise _unreachable(name, url, error, may_be_billed=True) from error
    return parsed(name, held)


def address(url: str, *, scheme: str = "") -> str:
    """Return a provider's address without a slash at its end, checked.

    Args:
        url: As it was configured.
        scheme: What is before an address that lacks it.

    Raises:
        UsageError: It cannot be one.
    """
    full = (url if "://" in url else f"{scheme}://{url}" if scheme else url).rstrip("/")
    try:
        parts = urlsplit(full)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return full
    except ValueError:
        pass
    raise UsageError("the provider's address cannot be used", hint="for example http://localhost:8080/v1")


def parsed(name: str, held: bytes) -> Any:
    """Parse the JSON of an answer; anything else comes from a proxy, or was cut off, and may be temporary."""
    try:
        return orjson.loads(held)
    except ValueError as error:
        message = f"{name} answered with {len(held)} bytes that are not JSON"
        raise ServerFaultError(message, may_be_billed=True) from error


def refusal(name: str, status: int, headers: Mapping[str, str], held: bytes) -> CrystalError:
    """Return the error for an answer other than 200."""
    try:
        codes = labels(orjson.loads(held))
    except ValueError:
        codes = ""
    message = f"{name} answered {status}" + (f" ({codes})" if codes else "")
    if status in (401, 402, 403) or "API_KEY_INVALID" in codes:
        return DeniedError(message, hint="check the API key and the account behind it")
    if status in (400, 413, 422):
        return TextRefusedError(message, hint="check the model's name and its other settings")
    if status == 404:
        return NotConfiguredError(message, hint="check the settings of the model's name and base_url")
    if status in (408, 409, 425, 429, 503):
        return ModelUnavailableError(message, seconds=retry_after(headers))
    if status >= 500:
        return ServerFaultError(message)
    return WrongAnswerError(message, hint="check the setting of the base_url")


def labels(answer: object) -> str:
    """Return short codes from an error answer, never its sentences, which may quote what was sent."""
    error = answer.get("error") if isinstance(answer, dict) else None
    fields = error if isinstance(error, dict) else {}
    details = fields.get("details")
    listed = details if isinstance(details, list) else []
    codes = [fields.get(name) for name in ("code", "status", "type")]
    codes += [detail.get("reason") for detail in listed if isinstance(detail, dict)]
    told = [code for code in codes if isinstance(code, str) and _LABEL.fullmatch(code)]
    return ", ".join(dict.fromkeys(told))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the provider asks to wait; None if it does not, or not sensibly.

    A date is measured against the answer's own ``Date``, so that no clock needs to be right.
    """
    for header, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(header, "")) * unit
        except ValueError:
            continue
        if 0 <= seconds < 1e9:
            return seconds
    try:
        wait = parsedate_to_datetime(headers["retry-after"]) - parsedate_to_datetime(headers["date"])
    except (KeyError, ValueError, TypeError):
        return None
    return max(0.0, wait.total_seconds())


def shown(url: str) -> str:
    """Return the address without user, password, path and query."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}"


def is_loopback(url: str) -> bool:
    """Return True if an address, with or without its scheme, is this machine, which is never asked through a proxy."""
    try:
        host = urlsplit(url if "://" in url else f"//{url}").hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def stays_here(provider: str, base_url: str | None, model: str | None) -> bool:
    """Return True if what is sent to this model does not leave this machine; Ollama passes some on to its cloud."""
    row = EMBEDDING_PROVIDERS.get(provider)
    is_passed_on = provider in PROGRAMS or (model or "").lower().endswith("cloud")
    usual = row.base_url if row else ""
    return (row is not None and row.runs_here) or (not is_passed_on and is_loopback(base_url or usual))


def _read(name: str, chunks: Iterable[bytes], deadline: float, max_bytes: int) -> bytes:
    """Read a body of limited size until ``deadline``."""
    held = bytearray()
    for chunk in chunks:
        held += chunk
        if len(held) > max_bytes:
            raise ServerFaultError(f"{name} answered with more than {max_bytes} bytes", may_be_billed=True)
        if time.monotonic() > deadline:
            raise ServerFaultError(f"{name} did not finish its answer in time", may_be_billed=True)
    return bytes(held)


def _unreachable(name: str, url: str, error: Exception, *, may_be_billed: bool) -> ModelUnavailableError:
    words = f"{name} at {shown(url)} cannot be reached ({type(error).__name__})"
    return ModelUnavailableError(words, may_be_billed=may_be_billed, hint="is it running?")


def _authorities(url: str) -> ssl.SSLContext | bool:
    """Return the trusted authorities: httpx's own list, which takes 25 ms to read; none for ``http``."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if url.lower().startswith("http://") else True
