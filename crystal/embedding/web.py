"""Requests to providers over HTTP: bounded in time and in size, never redirected, and failures told apart.

What a person can do decides the error: wait (``Unavailable``, ``RateLimited``), look at the text (``TextRefused``,
``ServerFault``), or change a setting (``Denied``, ``NotConfigured``, ``WrongAnswer``). Messages name the status and
the provider's error code, never what was sent or the key.
"""

from __future__ import annotations

import ipaddress
import ssl
import time
from collections.abc import Iterable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import httpx
import orjson

from crystal.embedding.embedder import RateLimited, ServerFault, TextRefused, WrongAnswer
from crystal.embedding.remote import labels
from crystal.errors import CrystalError, Denied, NotConfigured, Unavailable, UsageProblem

CONNECT_SECONDS = 10.0
MAX_ANSWER = 64 * 1024 * 1024
MAX_REFUSAL = 64 * 1024


def post_json(name: str, url: str, body: object, headers: Mapping[str, str], timeout: float) -> Any:
    """Send JSON and give the JSON that comes back.

    Args:
        name: The provider, for messages.
        url: Where to; redirects are not followed.
        body: What to send.
        headers: Besides the content type.
        timeout: Seconds for the whole.
    """
    deadline = time.monotonic() + timeout
    limits = httpx.Timeout(timeout, connect=min(timeout, CONNECT_SECONDS))
    sent = {"Content-Type": "application/json", **headers}
    try:
        with (
            httpx.Client(
                timeout=limits, follow_redirects=False, trust_env=not is_loopback(url), verify=authorities(url)
            ) as client,
            client.stream("POST", url, content=orjson.dumps(body), headers=sent) as response,
        ):
            if response.status_code != 200:
                held = next(response.iter_bytes(MAX_REFUSAL), b"")
                raise refusal(name, response.status_code, response.headers, held)
            held = read_answer_bytes(name, response.iter_bytes(), deadline)
    except httpx.TimeoutException as error:
        raise unanswered(name, error) from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise unreachable(name, url, error) from error
    return parsed(name, held)


def address(url: str, *, scheme: str = "") -> str:
    """Return a provider's address without a slash at its end, checked.

    Args:
        url: As it was configured.
        scheme: What stands before an address that lacks it.

    Raises:
        UsageProblem: It cannot.
    """
    full = (url if "://" in url else f"{scheme}://{url}" if scheme else url).rstrip("/")
    try:
        parts = urlsplit(full)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return full
    except ValueError:
        pass
    raise UsageProblem("the address of the embedding provider is none", hint="check embedding.base_url")


def read_answer_bytes(name: str, chunks: Iterable[bytes], deadline: float) -> bytes:
    """Read a body of at most ``MAX_ANSWER`` bytes until ``deadline``."""
    held = bytearray()
    for chunk in chunks:
        held += chunk
        if len(held) > MAX_ANSWER:
            raise WrongAnswer(f"{name} answered with more than {MAX_ANSWER} bytes")
        if time.monotonic() > deadline:
            raise ServerFault(f"{name} did not finish its answer in time")
    return bytes(held)


def parsed(name: str, held: bytes) -> Any:
    """Parse the JSON of an answer; anything else comes from a proxy, or was cut off, and may be temporary."""
    try:
        return orjson.loads(held)
    except ValueError as error:
        raise ServerFault(f"{name} answered with {len(held)} bytes that are not JSON") from error


def refusal(name: str, status: int, headers: Mapping[str, str], held: bytes) -> CrystalError:
    """Return the error for an answer other than 200."""
    try:
        codes = labels(orjson.loads(held))
    except ValueError:
        codes = ""
    message = f"{name} answered {status}" + (f" ({codes})" if codes else "")
    if status in (429, 503):
        return RateLimited(message, seconds=retry_after(headers))
    if status in (401, 402, 403) or "API_KEY_INVALID" in codes:
        return Denied(message, hint="check the API key and the account behind it")
    if status in (400, 413, 422):
        return TextRefused(message, hint="check embedding.model and embedding.dimension")
    if status == 404:
        return NotConfigured(message, hint="check embedding.model and embedding.base_url")
    if status in (408, 409, 425):
        return Unavailable(message)
    if status >= 500:
        return ServerFault(message)
    return WrongAnswer(message, hint="check embedding.base_url")


def unreachable(name: str, url: str, error: BaseException) -> Unavailable:
    """Return the error for a missing or broken connection."""
    return Unavailable(f"{name} at {shown(url)} cannot be reached ({type(error).__name__})", hint="is it running?")


def unanswered(name: str, error: BaseException) -> Unavailable:
    """Return the error for a timeout: connecting is the network's fault, the rest may be the text's."""
    kind = Unavailable if type(error).__name__ in ("ConnectTimeout", "PoolTimeout") else ServerFault
    return kind(f"{name} did not answer in time")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the provider asks for, in any of the three ways to say so; None when it does not, or not sensibly.

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


def authorities(url: str) -> ssl.SSLContext | bool:
    """Return the trusted authorities: httpx's own list, which takes 25 ms to read; none for ``http``."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if url.lower().startswith("http://") else True


def is_loopback(url: str) -> bool:
    """Return whether an address is this machine, which is never asked through a proxy."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
