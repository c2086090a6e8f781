r"""Values beside telling names: ``password=...``, ``"api_key": "..."``, ``--token ...``, ``name: TOKEN value: ...``.

A scanner finds the stem of a telling name followed by something that assigns (fast, loose); then the whole name is
read to its left and right, the value is cut out by its quotes or its line, and both are judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from crystal.redact.addresses import is_user_and_password
from crystal.redact.engine import Lazy, scanner
from crystal.redact.judge import is_code, is_password, is_stand_in, looks_random
from crystal.redact.named_hints import ASSIGNED, OTHERWISE
from crystal.redact.names import Strength, strength
from crystal.redact.spans import NAMED, Span
from crystal.redact.work import CALL, FINDING, Work

MAX_VALUE = 4096
"""Bytes of a value that are taken out at most."""

_JUDGED = 256
"""Bytes of a value that are read to judge it."""

_NAME = Lazy(rb"[A-Za-z0-9_.\-]{0,80}")
_OPERATOR = Lazy(
    rb"""(?x)
    (?P<close>["'`]?\s?[\])]?)\s{0,12}
    (?: (?P<sibling>[,;]?[\s"'\-]{0,40}[vV]alue["']?\s*[:=] | :\s*\{\s*["']?(?:value|default)["']?\s*[:=])
      | (?P<typed>:\s*&?[A-Za-z_][\w\[\]<>|.,\x20]{0,40}?\s?=(?!=|>))
      | (?P<op>=>|:=|={1,3}|:(?!:)|>|,)
    )(?P<space>[\x20\t]*)"""
)
_OPENING = Lazy(rb"""\s{0,80}(?:[\[(]\s{0,80})?[rbfuRBFU]{0,2}(?P<q>\"{3}|'{3}|["'`])""")
_BARE = Lazy(rb"""(?:[|>][+-]?[ \t]{0,80}\r?\n\s{1,80})?(?P<v>[^\s"'`\x00\xff]{1,256})""")
_BARE_REST = Lazy(rb"""[^\s"'`\x00\xff]{0,4096}""")
_LINE_HEAD = Lazy(rb"[ \t]*(?:\d+(?:\t|\xe2\x86\x92))?[ \t]*(?:[-+>|#] ?)?[ \t]*(?:export |set |ENV |-e |- )?[\"']?$")
"""What may stand before a name that begins its line: a line number, a mark of a diff or of a comment, a keyword."""

_TIGHT_BEFORE = frozenset(b"?&;\n")
_LONG_KEY = Lazy(rb"(?=[^0-9]{0,19}[0-9])[A-Za-z0-9+/=_\-]*")
_HASH = Lazy(rb"[0-9a-f]+|[0-9A-F]+|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SHOUTED = Lazy(rb"[A-Z][A-Z0-9_]*")
_OTHER = Lazy(
    rb"""(?xi)
      (?:env|arg|setx?|-x|-gx|secret\ set)\s+(?P<declared>[a-z0-9_]+)\s+(?:(?:-b|--body)[\s=])?["']?
    | (?:[\s"'`=])?--?(?P<flag>[a-z0-9_\-]+)["']?,?(?:\s+|(?<=,))["']?
    | (?:passw(?:or)?d|passphrase|passcode|pwd)\s+(?P<spoken>is|was|to|will\ be)\s*:?\s+["'`]?
    | (?:passw(?:or)?d|pwd|identified\s+by)\s+(?P<sql>'|"(?=\S*[\d!@\#$%^&*]))
    | login\s+[\w.@+\-]+\s+(?P<netrc>passw(?:or)?d)\s+
    """
)
_WORD_VALUE = Lazy(rb"""[^\s"'`\x00\xff]{1,256}""")


def named_spans(text: bytes, work: Work) -> Iterator[Span]:
    """Yield the secrets that stand beside telling names in plain (unescaped) text."""
    for hints, judge in (((ASSIGNED,), _assigned), ((OTHERWISE,), _beside)):
        search, at = scanner(hints), 0
        while (found := search(text, at)) is not None:
            at = found.start() + _MIN_STEM
            span = judge(text, found.start(), work)
            if span is not None:
                at = max(at, span.end)
                yield span


_MIN_STEM = 3
"""Bytes of the shortest stem: the next one may begin in the value of this one, but not earlier."""


def is_secret_beside(name: bytes, value: bytes) -> str | None:
    """Return the kind of secret that a whole JSON string is, given the key (or flag) that it stands under."""
    strong = strength(name)
    value = value.strip()
    if strong is None or b"\xff" in value:
        return None
    if strong == "password":
        return "password" if is_password(value, quoted=True, tight=True) else None
    return _kind(name) if _fits(strong, value) else None


def _kind(name: bytes) -> str:
    small = name.lower()
    for word, kind in ((b"token", "token"), (b"key", "api-key"), (b"cookie", "cookie")):
        if word in small:
            return kind
    return "secret"


def _fits(strong: str, value: bytes, *, shouted: bool = False) -> bool:
    if strong == "key":
        return bool(_LONG_KEY.fullmatch(value)) and looks_random(value, 20) and (shouted or not _HASH.fullmatch(value))
    return looks_random(value) or (len(value) >= 16 and is_user_and_password(value) and not is_stand_in(value))


_WORKING_FOLDER = Lazy(rb"(?i)(?:old)?pwd")
"""A shell's own variable, more often than a password."""


def _assigned(text: bytes, stem: int, work: Work) -> Span | None:
    work.spend(2 * CALL)
    head = text[max(0, stem - 60) : stem]
    left = stem - len(head) + len(head.rstrip(_NAME_BYTES))
    end = _NAME.match(text, left).end()  # type: ignore[union-attr]
    name = text[left:end].strip(b".-")
    strong = strength(name)
    if text[left - 2 : left] in (b"//", b"\\/"):
        return None  # the user in a URL, whose password has a rule of its own
    operator = _OPERATOR.match(text, end) if strong else None
    if operator is None or strong is None:
        return None
    work.spend(FINDING + 2 * CALL)
    op, at = operator["op"], operator.end()
    if _WORKING_FOLDER.fullmatch(name) and (text[left - 1 : left] == b"$" or text[at : at + 1] in b"/~.:$"):
        return None
    quoted = _quoted(text, at)
    if op == b"," and (quoted is None or not operator["close"] or b"-" in name or b"." in name):
        return None
    if quoted is not None and _is_no_value(name, quoted, operator):
        return None
    if name == b"pass" and (quoted is None or quoted.quote == b"`" or re.search(rb"\s", quoted.value)):
        return None
    if quoted is None and (op not in _BARE_OPERATORS or b")" in operator["close"]):
        return None
    if quoted is not None:
        value, start = quoted.value, quoted.start
        work.spend(50 * min(len(value), _JUDGED))
        good = _good_quoted(strong, value, listed=op == b",")
    else:
        value, start, tight = _bare(text, left, name, strong, operator)
        work.spend(50 * len(value))
        good = _good_bare(strong, value, tight, shouted=_SHOUTED.fullmatch(name) is not None)
        if good and len(value) >= _JUDGED - 8:
            value += _rest_of(text, start + len(value))
        if op == b">":
            good = good and text[left - 1 : left] == b"<" and text.startswith(b"</", start + len(value))
    return Span(start, start + len(value), "password" if strong == "password" else _kind(name), NAMED) if good else None


_NAME_BYTES = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"


class _Quoted(NamedTuple):
    """A value in quotes: its quote, what stands in it, and where that begins."""

    quote: bytes
    value: bytes
    start: int


def _is_no_value(name: bytes, quoted: _Quoted, operator: re.Match[bytes]) -> bool:
    """Return whether what stands in quotes is the name once more, a docstring, a word to compare with, or a name."""
    value = quoted.value
    if len(quoted.quote) == 3 and b")" in operator["close"]:
        return True
    if (operator["op"] or b"").startswith(b"=="):
        return value.isalpha() and value.islower() and len(value) < 6
    if operator["op"] == b"," and _TYPE_NAME.search(value):
        return True
    return len(value) >= _MIN_REPEATED and name.translate(None, b"_-.").lower().endswith(value.lower())


_MIN_REPEATED = 6
_TYPE_NAME = Lazy(rb"(?:[A-Z][a-z]{2,}){2}$")


def _quoted(text: bytes, at: int) -> _Quoted | None:
    """Cut out the value whose opening quote stands at ``at``; None without a quote, or without its end."""
    opening = _OPENING.match(text, at)
    if opening is None:
        return None
    quote, start = opening["q"], opening.end()
    end = text.find(quote, start, start + MAX_VALUE + 3)
    for _ in range(_MAX_ESCAPED_QUOTES):
        if end < 0 or not _is_escaped(text, start, end):
            break
        end = text.find(quote, end + 1, start + MAX_VALUE + 3)
    if end < 0 or text.find(b"\xff", start, end) >= 0:
        return None
    return _Quoted(quote, text[start:end], start)


_MAX_ESCAPED_QUOTES = 16


def _is_escaped(text: bytes, start: int, end: int) -> bool:
    """Return whether an odd number of backslashes stands before ``end``."""
    before = text[max(start, end - 64) : end]
    return (len(before) - len(before.rstrip(b"\\"))) % 2 == 1


def _rest_of(text: bytes, end: int) -> bytes:
    """Return what follows of a value that was only read to the length that it is judged by."""
    return _ESCAPED_END.split(_BARE_REST.match(text, end).group())[0]  # type: ignore[union-attr]


def _good_quoted(strong: str, value: bytes, *, listed: bool) -> bool:
    if strong == "password":
        if listed and not re.search(rb"\d", value):
            return False
        return b"\n" not in value and is_password(value, quoted=True, tight=True)
    return _fits(strong, value)


_BARE_OPERATORS = frozenset((b"=", b":", b">", None))
"""After any other a value without quotes is an expression."""

_NO_NUMBER = Lazy(rb"[^0-9.]*(?:\.|$)")
"""Without quotes it takes a digit, and one before the first full stop, to tell a token from an expression."""


def _good_bare(strong: str, value: bytes, tight: bool, *, shouted: bool = False) -> bool:
    if strong == "password":
        return is_password(value, quoted=False, tight=tight)
    if is_code(value) or _NO_NUMBER.match(value):
        return False
    return _fits(strong, value, shouted=shouted)


_ESCAPED_END = Lazy(rb"\\+[nrtu]")
"""Where an unquoted value ends in text whose escapes are not yet undone."""


def _bare(text: bytes, left: int, name: bytes, strong: Strength, operator: re.Match[bytes]) -> tuple[bytes, int, bool]:
    """Cut an unquoted value out: (value, where it starts, whether it fills its place as in an .env or YAML file)."""
    found = _BARE.match(text, operator.end())
    if found is None:
        return b"", operator.end(), False
    value, start = _ESCAPED_END.split(found["v"])[0].rstrip(b"\\"), found.start("v")
    line_start = text.rfind(b"\n", max(0, left - 200), left) + 1
    heads = _LINE_HEAD.match(text[max(line_start, left - 200) : left]) is not None
    if operator["op"] == b">":
        return value.split(b"<")[0], start, True
    joined = operator["op"] == b"=" and not operator["space"] and not operator["close"]
    if strong == "password" and joined and (_SHOUTED.fullmatch(name) or (heads and value[-1:] not in b",)")):
        value = re.split(rb";$|;(?=\s)|&&|\|\|", value)[0]
        return value, start, value[-1:] not in b",)"
    cut = re.split(rb"[,;&)\]}<|]", value)[0] if operator["op"] != b":" else re.sub(rb"[,;)\]}]+$|<.*$", b"", value)
    if left and text[left - 1] in _TIGHT_BEFORE and joined:
        return cut, start, value[len(cut) : len(cut) + 1] not in (b",", b")")
    rest = text[start + len(value) : start + len(value) + 200].split(b"\n", 1)[0].strip()
    fills = operator["op"] == b":" and heads and cut == value and (not rest or rest.startswith(b"#"))
    return cut, start, fills


def _beside(text: bytes, start: int, work: Work) -> Span | None:
    """Judge a value that follows its name without an assignment: a flag, a sentence, SQL, netrc, a declaration."""
    work.spend(2 * FINDING)
    found = _OTHER.match(text, start)
    value_at = _WORD_VALUE.match(text, found.end()) if found else None
    if found is None or value_at is None:
        return None
    value, at = _ESCAPED_END.split(value_at.group())[0].rstrip(b"\\"), value_at.start()
    name = found["flag"] or found["declared"]
    if found["spoken"]:
        value = value.rstrip(b".,;:!?)")
        good = re.search(rb"\d|\w[!@#$%^&*]\w", value) is not None and is_password(value, quoted=False, tight=False)
    elif found["sql"] or found["netrc"]:
        value = value.rstrip(b";)")
        good = is_password(value, quoted=True, tight=True)
    else:
        strong = strength(name)
        value = value.rstrip(b",;)]")
        good = strong is not None and value[:1] != b"-" and value.lower() not in _FLAG_PROSE
        good = good and not _ARGUMENT.fullmatch(value) and _good_bare(strong or "", value, tight=True)
    if good and len(value) >= _JUDGED - 8:
        value += _rest_of(text, at + len(value))
    kind = _kind(name) if name and strength(name) != "password" else "password"
    return Span(at, at + len(value), kind, NAMED) if good and not is_stand_in(value) else None


_ARGUMENT = Lazy(rb"[a-z_]+=[A-Za-z_.]+")
"""``type=str``, in a list of arguments of which the flag is one."""

_FLAG_PROSE = frozenset(
    b"to is and or for the with from flag option options argument instead when if in on as via must can will".split()
)
"""Words that follow a flag in a sentence about it."""
