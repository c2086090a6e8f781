"""Passwords in URLs and commands, and what stands in HTTP headers."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

from crystal.redact.judge import is_stand_in, looks_random
from crystal.redact.spans import ADDRESS, HEADER, Span

_USER = rb"[^\s\"'<>/?#@:]*"
URL_HINTS = (
    rb":(?:\\*/){2}(?:" + _USER + rb":[^\s\"'<>/?#]*|" + _USER + rb"[0-9]" + _USER + rb")@",
    rb"(?:postgres|mysql|mongo|redis|amqp|mariadb|rediss)[a-z+]*:(?:\\*/){2}[^\s\"'<>?#]*@",
)
_AUTHORIZED = (
    rb"(?i:authorization)[\s\"'\\\])]*[:=,]+[\s\"'`\\:=,]*(?:[A-Za-z\-]+[\s:=]+)?"
    rb"(?:[^\s\"',`]*[0-9][^\s\"',`]*[0-9]|[^\s\"',`]{16})"
)
HEADER_HINTS = (
    rb"(?i:bearer)(?:\s|\\[nrt]|%20)+[A-Za-z0-9._~+/=\\\-]{8}",
    rb"(?i:basic)[\t ]+[A-Za-z0-9+/]{0,3}[A-Z0-9][A-Za-z0-9+/=\\]*[A-Z0-9+/=]",
    _AUTHORIZED,
    rb"(?i:cookie)[\s\"'`\\]*[:=][\s\"'`\\]*[^=;\s\"'`\\]+=",
)
COMMAND_HINTS = (
    rb"sshpass|redis-cli",
    rb"(?:\s|n)(?:-u|--user|--proxy-user)(?:\s|=)*\\*[\"']?[^\s:\"'\\]+:[^\s\"']",
    rb"mysql(?:dump|admin)?\s[^|;\r\n]*-p[^\s\"']",
    rb"login\s[^|;\r\n]*-p|chpasswd|requirepass|\s-pass(?:in|out|word)?(?:\s|\\[nrt])+pass:",
    rb"(?:auth\s*=\s*|BasicAuth)\((?:\s|\\+[nrt])*\\*[\"']",
)
ADDRESS_LITERALS = tuple(
    rb":// :\/\/ :\\/\\/ -u sshpass redis-cli --user --proxy-user"
    rb" mysql login chpasswd requirepass pass: auth BasicAuth".split()
)
ADDRESS_FOLDED = (b"bearer", b"basic", b"authorization", b"cookie")

_URL = re.compile(
    rb"""(?xi) \b [a-z][a-z0-9+.\-]{1,30} ://
    (?: (?P<user>[^\s"'`<>/?\#@:\x00\xff]*) : (?P<pass>[^\s"'`<>/?\#\x00\xff]+) @ (?=[^\s@])
      | (?P<alone>[^\s"'`<>/?\#@:\x00\xff]{8,}) @ (?=[\w\[]) )"""
)
_DATABASE = re.compile(
    rb"""(?xi) \b (?:postgres(?:ql)?|mysql|mariadb|mongodb|rediss?|amqps?)(?:\+\w+)? ://
    [^\s"'`<>/?\#@:\x00\xff]* : (?P<pass>[^\s"'`<>@\x00\xff]+) @ (?=[\w\[])"""
)
_PLAIN_PASSWORDS = re.compile(
    rb"(?i)pass(?:word|wd)?|pwd|secret|p|pw|xxx+|token|api_?key|\w*\[\w*\]|\w*\{.*\}.*|.*\$\{?\(?\w.*|%\w+%?"
)
"""What documentation writes in the place of a password."""

_BEARER = re.compile(rb"(?i)\bbearer(?:\s+|%20)(?P<v>[A-Za-z0-9._~+/=\-]{8,})")
_BASIC = re.compile(
    rb"\b(?i:basic)[\t ]+(?P<v>(?=[A-Za-z0-9+/]{0,3}[A-Z0-9][A-Za-z0-9+/=]*[A-Z0-9+/=])[A-Za-z0-9+/]{6,}={0,2})"
)
_AUTHORIZATION = re.compile(
    rb"""(?xi) authorization["'`\]]?\s*[:=,]+\s*["'`]?
    (?:(?:token|bot|apikey|api-key|key|digest|bearer|basic|hmac|splunk|genie(?:key)?|sso-key|klaviyo-api-key)[\s:=]+)?
    (?P<v>[^\s"'`,\x00\xff]{8,})"""
)
_COOKIE = re.compile(
    rb"(?i)\b(?:set-)?cookie[\"'`]?\s*[:=]\s*[\"'`]?(?P<pairs>(?=[^=;\s\"'`\\]+=)[^\n\r\"'`\x00\xff]{8,4096})"
)
_PAIR = re.compile(rb"[^=;\s]+=([^;\s]{16,})")
_OPTION_VALUE = rb"(?P<v>[^\s\"'\\\x00\xff]{3,})"
_COMMANDS = (
    re.compile(rb"\bsshpass\s+-p\s*[\"']?" + _OPTION_VALUE),
    re.compile(rb"\bredis-cli\s[^\n\x00\xff|;]{0,200}?-a\s*[\"']?" + _OPTION_VALUE),
    re.compile(rb"\bmysql(?:dump|admin)?\s[^\n\x00\xff|;]{0,200}?\s-p" + _OPTION_VALUE),
    re.compile(
        rb"\b(?:curl|wget|https?|xh|lftp|ab|smbclient)\b[^|;\x00\xff]{0,400}?\s(?:-u|--user|--proxy-user)[\s=]*[\"']?"
        rb"[^\s:\"'=/\x00\xff]{1,80}:" + _OPTION_VALUE
    ),
    re.compile(
        rb"\b(?:docker|podman|az|helm|oc|skopeo|buildah)\b[^\n\x00\xff|;]{0,200}?\blogin\s[^\n\x00\xff|;]{0,200}?"
        rb"(?<=\s)-p[\s=]*[\"']?" + _OPTION_VALUE
    ),
    re.compile(rb"\becho\s+[\"']?[\w.-]{1,40}:" + _OPTION_VALUE + rb"[\"']?\s*\|\s*(?:sudo\s+)?chpasswd"),
    re.compile(rb"\s-pass(?:in|out|word)?\s+pass:" + _OPTION_VALUE),
    re.compile(rb"\brequirepass\s+[\"']?" + _OPTION_VALUE),
    re.compile(
        rb"(?:\bauth\s{0,4}=\s{0,4}|BasicAuth)\(\s{0,20}[\"'][^\"'\x00\xff]{1,80}[\"']\s{0,4},\s{0,20}[\"']"
        + _OPTION_VALUE
    ),
)
_OWNER = re.compile(rb"\d+:\d+|\w+:(?:users|staff|root|wheel|\w*group|daemon|www-data|nogroup)")


def command_spans(text: bytes) -> Iterator[Span]:
    """Yield the passwords that are given to commands in short options."""
    for command in _COMMANDS:
        for found in command.finditer(text):
            if not is_stand_in(found["v"]) and not _OWNER.fullmatch(found.group().split()[-1].strip(b"\"'")):
                yield Span(*found.span("v"), "password", ADDRESS)


def url_spans(text: bytes) -> Iterator[Span]:
    """Yield the passwords in URLs, and tokens that stand where the user does. User and host stay."""
    for found in _URL.finditer(text):
        if found["alone"] is not None:
            if looks_random(found["alone"], 16) and re.search(rb"\d", found["alone"]):
                yield Span(*found.span("alone"), "url-password", ADDRESS)
        elif not is_stand_in(found["pass"]) and not _PLAIN_PASSWORDS.fullmatch(found["pass"]):
            yield Span(*found.span("pass"), "url-password", ADDRESS)
    for found in _DATABASE.finditer(text):
        if b"/" in found["pass"] and not re.match(rb"\d{1,5}/", found["pass"]) and not is_stand_in(found["pass"]):
            yield Span(*found.span("pass"), "url-password", ADDRESS)


def header_spans(text: bytes) -> Iterator[Span]:
    """Yield what stands in Authorization and Cookie headers, and after Bearer and Basic anywhere."""
    for found in _BEARER.finditer(text):
        if looks_random(found["v"], 8):
            yield Span(*found.span("v"), "bearer-token", HEADER)
    for found in _BASIC.finditer(text):
        if is_user_and_password(found["v"]):
            yield Span(*found.span("v"), "basic-auth", HEADER)
    for found in _AUTHORIZATION.finditer(text):
        if looks_random(found["v"], 8):
            yield Span(*found.span("v"), "authorization", HEADER)
    for header in _COOKIE.finditer(text):
        for pair in _PAIR.finditer(text, *header.span("pairs")):
            if looks_random(pair[1], 16):
                yield Span(*pair.span(1), "cookie", HEADER)


def is_user_and_password(run: bytes) -> bool:
    """Return whether base64 text reads ``user:password``, as basic authorization has it."""
    try:
        plain = base64.b64decode(run + b"=" * (-len(run) % 4))
    except binascii.Error:
        return False
    user, colon, password = plain.partition(b":")
    return bool(colon and password) and all(32 <= c < 127 for c in user)
