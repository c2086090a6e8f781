"""Find passwords in URLs and .pgpass lines, and credentials in HTTP headers."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

from crystal.redact.judge import is_stand_in, looks_random
from crystal.redact.regex_engines import Lazy, compiled, stretches
from crystal.redact.spans import ADDRESS, HEADER, Span
from crystal.redact.work_limit import CALL, FINDING, RedactionWork

_USER = rb"[^\s\"'<>/?#@:\xff]*"
URL_HINTS = (
    rb":(?:\\*/){2}(?:" + _USER + rb":[^\s\"'<>/?#\xff]*|" + _USER + rb"[0-9]" + _USER + rb")@",
    rb"(?:postgres|mysql|mongo|redis|amqp|mariadb|rediss)[a-z+]*:(?:\\*/){2}[^\s\"'<>?#\xff]*@",
)
_AUTHORIZED = (
    rb"(?i:authorization)[\s\"'\\\])]*[:=,]+[\s\"'`\\:=,]*(?:[A-Za-z\-]+[\s:=]+)?"
    rb"(?:[^\s\"',`\xff]*[0-9][^\s\"',`\xff]*[0-9]|[^\s\"',`\xff]{16})"
)
HEADER_HINTS = (
    rb"(?i:bearer)(?:\s|\\[nrt]|%20)+[A-Za-z0-9._~+/=\\\-]{8}",
    rb"(?i:basic)[\t ]+[A-Za-z0-9+/]{0,3}[A-Z0-9][A-Za-z0-9+/=\\]*[A-Z0-9+/=]",
    _AUTHORIZED,
    rb"(?i:cookie)[\s\"'`\\]*[:=][\s\"'`\\]*[^=;\s\"'`\\]+=",
)
_SCHEME = rb"(?i)\b[a-z][a-z0-9+.\-]{1,30}$"
_DATABASE_SCHEME = rb"(?i)\b(?:postgres(?:ql)?|mysql|mariadb|mongodb|rediss?|amqps?)(?:\+\w+)?$"
_URL = rb"""(?x) ://(?<=[A-Za-z0-9+.\-]://)
    (?: (?P<user>[^\s"'`<>/?\#@:\x00\xff]*) : (?P<pass>[^\s"'`<>/?\#\x00\xff]+) @ (?=[^\s@])
      | (?P<alone>[^\s"'`<>/?\#@:\x00\xff]{8,}) @ (?=[\w\[]) )"""
_DATABASE = rb"""(?x) ://(?<=[A-Za-z0-9]://)
    [^\s"'`<>/?\#@:\x00\xff]{0,256} : (?P<pass>[^\s"'`<>@\x00\xff]{1,256}) @ (?=[\w\[])"""
_PLAIN_PASSWORDS = Lazy(
    rb"(?i)(?:my|your|the|a)?[-_]?pass(?:word|wd)?|pwd|secret|p|pw|xxx+|token|api_?key|\w*\[\w*\]|\w*\{.*\}.*|.*\$\{?\(?\w.*|%\w+%?"
)
"""Words that documentation writes in place of a password."""

_BASIC = rb"""(?x) \b(?i:basic)[\t\x20]{1,64}
    (?P<v>(?=[A-Za-z0-9+/]{0,3}[A-Z0-9][A-Za-z0-9+/=]*[A-Z0-9+/=])[A-Za-z0-9+/]{6,}={0,2})"""
_AUTHORIZATION = rb"""(?xi) authorization["'`\]]{0,2}\s{0,64}[:=,]{1,8}\s{0,64}["'`]?
    (?:(?:token|bot|apikey|api-key|key|digest|bearer|basic|hmac|splunk|genie(?:key)?|sso-key|klaviyo-api-key)
    [\s:=]{1,64})? (?P<v>[^\s"'`,\x00\xff]{8,})"""
_COOKIE = rb"""(?xi) \b(?:set-)?cookie["'`]?\s{0,64}[:=]\s{0,64}["'`]?
    (?P<v>(?=[^=;\s"'`\\]{1,256}=)[^\n\r"'`\x00\xff]{8,4096})"""
HEADERS = (
    (b"bearer", "bearer-token", rb"(?i)\bbearer(?:\s{1,64}|%20)(?P<v>[A-Za-z0-9._~+/=\-]{8,})"),
    (b"basic", "basic-auth", _BASIC),
    (b"authorization", "authorization", _AUTHORIZATION),
    (b"cookie", "cookie", _COOKIE),
)
"""Each header: the word that every match begins with, in lower case; the kind; the pattern."""

_PAIR = rb"(?<=[^=;\s])=([^;\s]{16,})"
_FILE_HOST = Lazy(rb"(?i).*\.(?:py|jsx?|tsx?|c|h|cc|[ch]pp|rs|go|java|rb|php|sh|kt|swift|cs|md|txt|log|html|css)$")
PGPASS_HINTS = (rb"[\w.*\]\-](?:\\*:)(?:[0-9]{4,5}|\*):[\w*.\-]+:[\w*.@\-]+:[^\s:\"'\\\xff][^\s:\"'\xff]{2}",)
_PGPASS = (
    rb"(?m)(?:^[ \t+]{0,16}(?:\d{1,6}(?:\t|\xe2\x86\x92))?|(?P<quote>[\"']))"
    rb"(?P<host>[\w.*/\-]{1,128}|\[[0-9a-fA-F:\\]{2,40}\]):(?P<port>\d{4,5}|\*):[\w*.\-]{1,64}:[\w*.@\-]{1,64}"
    rb":(?P<v>[^\s\"'\x00\xff]{3,256})(?(quote)[\"']|[ \t\r]{0,16}$)"
)


def pgpass_spans(text: bytes, work: RedactionWork) -> Iterator[Span]:
    """Yield the passwords in lines ``host:port:database:user:password``, as .pgpass has them."""
    for place in stretches(text, PGPASS_HINTS):
        for found in work.each(compiled(_PGPASS).finditer(text, *place)):
            if _is_pgpass(found):
                yield Span(*found.span("v"), "password", ADDRESS)


def _is_pgpass(found: re.Match[bytes]) -> bool:
    """Return whether a line of five parts is one of .pgpass: at another port only if its last part looks random."""
    value, port = found["v"], found["port"]
    if is_stand_in(value) or _FILE_HOST.match(found["host"]) or _IPV6.fullmatch(found.group().strip(b"\\\"' \t\r")):
        return False
    if port in (b"*", b"6432") or port.startswith(b"543"):
        return True
    return len(value) >= 6 and _DIGIT_AND_LETTER.search(value) is not None


_IPV6 = Lazy(rb"(?:[0-9a-fA-F]{1,4}:){5,7}[0-9a-fA-F:]{0,12}")
_DIGIT_AND_LETTER = Lazy(rb"[0-9].*[A-Za-z]|[A-Za-z].*[0-9]")


def url_spans(text: bytes, work: RedactionWork) -> Iterator[Span]:
    """Yield the passwords in URLs, and tokens in the place of the user. User and host stay."""
    work.spend(len(text) * 5)
    for found in work.each(compiled(_URL).finditer(text)):
        if not compiled(_SCHEME).search(text[max(0, found.start() - 32) : found.start()]):
            continue
        if found["alone"] is not None:
            if looks_random(found["alone"], 16) and re.search(rb"\d", found["alone"]):
                yield Span(*found.span("alone"), "url-password", ADDRESS)
        elif not is_stand_in(found["pass"]) and not _PLAIN_PASSWORDS.fullmatch(found["pass"]):
            yield Span(*found.span("pass"), "url-password", ADDRESS)
    yield from _database_spans(text, work)


def _database_spans(text: bytes, work: RedactionWork) -> Iterator[Span]:
    """Yield the passwords with a slash in them: only in addresses of databases, where no path could be meant."""
    small = text.lower()
    if not any(scheme in small for scheme in (b"postgres", b"mysql", b"mariadb", b"mongodb", b"redis", b"amqp")):
        return
    work.spend(len(text) * 5 + text.count(b"://") * CALL)
    for found in work.each(compiled(_DATABASE).finditer(text)):
        if not compiled(_DATABASE_SCHEME).search(text[max(0, found.start() - 32) : found.start()]):
            continue
        if b"/" in found["pass"] and not re.match(rb"\d{1,5}/", found["pass"]) and not is_stand_in(found["pass"]):
            yield Span(*found.span("pass"), "url-password", ADDRESS)


def header_spans(text: bytes, work: RedactionWork) -> Iterator[Span]:
    """Yield what is in Authorization and Cookie headers, and after Bearer and Basic anywhere."""
    lower = text.lower()
    for word, kind, pattern in HEADERS:
        at = lower.find(word)
        while at >= 0:
            work.spend(CALL)
            found = compiled(pattern).match(text, at)
            if found is not None:
                work.spend(FINDING)
                yield from _in_header(text, found, kind, work)
            at = lower.find(word, found.end() if found else at + len(word))


def names_header(name: bytes) -> bool:
    """Return whether a name is that of a header whose value is a credential."""
    small = name.lower()
    return any(word in small for word, _, _ in HEADERS)


def _in_header(text: bytes, found: re.Match[bytes], kind: str, work: RedactionWork) -> Iterator[Span]:
    if kind == "cookie":
        for pair in work.each(compiled(_PAIR).finditer(text, *found.span("v"))):
            if looks_random(pair[1], 16):
                yield Span(*pair.span(1), "cookie", HEADER)
    elif is_user_and_password(found["v"]) if kind == "basic-auth" else looks_random(found["v"], 8):
        yield Span(*found.span("v"), kind, HEADER)


def is_user_and_password(run: bytes) -> bool:
    """Return whether base64 text reads ``user:password``, as basic authorization has it."""
    try:
        plain = base64.b64decode(run + b"=" * (-len(run) % 4))
    except binascii.Error:
        return False
    user, colon, password = plain.partition(b":")
    return bool(colon and password) and all(32 <= c < 127 for c in user)
