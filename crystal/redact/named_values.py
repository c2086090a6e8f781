r"""Find values beside telling names: ``password=...``, ``"api_key": "..."``, ``--token ...``.

A scanner finds the stem of a telling name followed by something that assigns (fast, loose); then the whole name is
read to its left and right, the value is cut out by its quotes or its line, and both are judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from crystal.model.named_tuple import NamedTuple
from crystal.redact.addresses import is_user_and_password
from crystal.redact.judge import is_bare_password, is_code, is_quoted_password, is_stand_in, looks_random
from crystal.redact.named_value_hints import ASSIGNED, NAMED_HINTS, OTHERWISE, SIGNS
from crystal.redact.regex_engines import Lazy, scanner
from crystal.redact.secret_names import Strength, strength
from crystal.redact.spans import NAMED, Span
from crystal.redact.work_limit import CALL, FINDING, RedactionWork

MAX_VALUE = 4096
"""Bytes of a value that are taken out at most."""

_MAX_JUDGED = 256
"""Bytes of a value that are read to judge it."""

_MIN_STEM = 3
"""Bytes of the shortest stem: the next one may begin in the value of this one, but not earlier."""

_NAME = Lazy(rb"[A-Za-z0-9_.\-]{0,80}")
_OPERATOR = Lazy(
    rb"""(?x)
    (?P<close>["'`]?\s?[\])]?)\s{0,12}
    (?: (?P<sibling>[,;]?[\s"'\-]{0,40}[vV]alue["']?\s*[:=] | :\s*\{\s*["']?(?:value|default)["']?\s*[:=]
      | \{[^{}]{0,400}?\bdefault\s{0,40}=(?!=))
      | (?P<typed>:\s*&?[A-Za-z_][\w\[\]<>|.,\x20]{0,40}?\s?=(?![=>\\]|[\x20\t]*(?:[\r\n]|$)))
      | (?P<op>=>|:=|={1,3}|:(?!:)|>|,)
    )(?P<space>[\x20\t]*)"""
)
_OPENING = Lazy(rb"""\s{0,80}(?:(?:Some)?[\[(]\s{0,80})?[rbfuNRBFU]{0,2}(?P<q>\"{3}|'{3}|["'`])""")
_BARE = Lazy(rb"""(?:[|>][+-]?[ \t]{0,80}\r?\n\s{1,80})?(?P<v>[^\s"'`\x00\xff]{1,256})""")
_BARE_REST = Lazy(rb"""[^\s"'`\x00\xff]{0,4096}""")
_LINE_HEAD = Lazy(rb"[ \t]*(?:\d+(?:\t|\xe2\x86\x92))?[ \t]*(?:[-+>|#] ?)?[ \t]*(?:export |set |ENV |-e |- )?[\"']?$")
"""Text allowed before a name that begins its line: a line number, a mark of a diff or of a comment, a keyword."""

_TIGHT_BEFORE = (b"?", b"&", b";", b"\n")
_LONG_KEY = Lazy(rb"(?=[^0-9]{0,19}[0-9])[A-Za-z0-9+/=_\-]*")
_HASH = Lazy(rb"[0-9a-f]+|[0-9A-F]+|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SHOUTED = Lazy(rb"[A-Z][A-Z0-9_]*")
_OTHER = Lazy(
    rb"""(?xi)
      (?:env|arg|set(?:x|env)?|-x|-gx|secret\ set)\s+(?P<declared>[a-z0-9_]+)\s+(?:(?:-b|--body)[\s=])?["']?
    | (?:[\s"'`=])?--?(?P<flag>[a-z0-9_\-]+)["']?,?(?:\s+|(?<=,))["']?
    | (?:passw(?:or)?d|passphrase|passcode|pwd)\s+(?P<spoken>is|was|to|will\ be)\s*:?\s+["'`]?
    | (?:passw(?:or)?d|pwd|identified\s+by)\s+(?P<sql>'|"(?=\S*[\d!@\#$%^&*]))
    | login\s+[\w.@+\-]+\s+(?:account\s+\S{1,64}\s+)?(?P<netrc>passw(?:or)?d)\s+
    """
)
_WORD_VALUE = Lazy(rb"""[^\s"'`\x00\xff]{1,256}""")


def named_spans(text: bytes, work: RedactionWork) -> Iterator[Span]:
    """Yield the secrets that are beside telling names in plain (unescaped) text."""
    if scanner(NAMED_HINTS)(text) is None:
        return
    assigns = any(sign in text for sign in SIGNS)
    for hints, judge in (((ASSIGNED,), _assigned), ((OTHERWISE,), _beside))[not assigns :]:
        search, at = scanner(hints), 0
        while (found := search(text, at)) is not None:
            stem = found.start()
            at = stem + _MIN_STEM
            span = judge(text, stem, work)
            if span is not None:
                at = max(at, span.end)
                yield span


def is_secret_beside(name: bytes, value: bytes) -> str | None:
    """Return the kind of secret that a whole JSON string is, given the key (or flag) that it is under."""
    strong = strength(name)
    value = value.strip()
    if strong is None or b"\xff" in value:
        return None
    if strong == "password":
        return "password" if is_quoted_password(value) else None
    return _kind(name) if _fits(strong, value) else None


def _kind(name: bytes) -> str:
    small = name.lower()
    kinds = ((b"token", "token"), (b"key", "api-key"), (b"cookie", "cookie"))
    return next((kind for word, kind in kinds if word in small), "secret")


def _fits(strong: str, value: bytes, *, shouted: bool = False) -> bool:
    if strong == "key":
        return bool(_LONG_KEY.fullmatch(value)) and looks_random(value, 20) and (shouted or not _HASH.fullmatch(value))
    return looks_random(value) or (len(value) >= 16 and is_user_and_password(value) and not is_stand_in(value))


_WORKING_FOLDER = Lazy(rb"(?i)(?:old)?pwd")
"""A shell's own variable, more often than a password."""


class _Assignment(NamedTuple):
    """A telling name, where it begins, how strong it is, and the operator between it and its value.

    ``symbol`` is what assigns; None for a typed variable or a value in a field of its own.
    """

    text: bytes
    left: int
    name: bytes
    strong: Strength
    operator: re.Match[bytes]
    symbol: bytes | None

    @property
    def before(self) -> bytes:
        """Return the byte before the name, or nothing."""
        return self.text[self.left - 1 : self.left]


def _assigned(text: bytes, stem: int, work: RedactionWork) -> Span | None:
    work.spend(2 * CALL)
    found = _assignment_at(text, stem)
    if found is None:
        return None
    work.spend(2 * CALL)
    quoted = _quoted(text, found.operator.end())
    if _is_working_folder(found):
        return None
    place = _bare_secret(found, work) if quoted is None else _quoted_secret(found, quoted, work)
    kind = "password" if found.strong == "password" else _kind(found.name)
    if place is None:
        return None
    work.spend(FINDING)
    return Span(*place, kind, NAMED)


def _assignment_at(text: bytes, stem: int) -> _Assignment | None:
    """Read the whole name that a stem is part of, and what assigns to it."""
    head = text[max(0, stem - 60) : stem]
    left = stem - len(head) + len(head.rstrip(_NAME_BYTES))
    end = _NAME.match(text, left).end()  # type: ignore[union-attr]
    name = text[left:end].strip(b".-")
    strong = strength(name)
    if strong is None or text[left - 2 : left] in _URL_STARTS:
        return None
    operator = _OPERATOR.match(text, end)
    return None if operator is None else _Assignment(text, left, name, strong, operator, operator["op"])


_URL_STARTS = (b"//", b"\\/")
"""Characters before the user in a URL, whose password has a rule of its own."""


def _is_working_folder(found: _Assignment) -> bool:
    if _WORKING_FOLDER.fullmatch(found.name) is None:
        return False
    at = found.operator.end()
    return found.before == b"$" or found.text[at : at + 1] in b"/~.:$" or found.text.startswith(b"cwd", at)


def _quoted_secret(found: _Assignment, quoted: _Quoted, work: RedactionWork) -> tuple[int, int] | None:
    """Return where the secret between quotes is; None if the value is not a secret."""
    value, is_listed = quoted.value, found.symbol == b","
    if is_listed and (not found.operator["close"] or b"-" in found.name or b"." in found.name):
        return None
    if found.name == b"pass" and (quoted.quote == b"`" or _SPACE.search(value)):
        return None
    if _is_no_value(found, quoted):
        return None
    work.spend(50 * min(len(value), _MAX_JUDGED))
    if found.strong != "password":
        good = _fits(found.strong, value.strip())
    else:
        good = b"\n" not in value and (not is_listed or _DIGIT.search(value) is not None) and is_quoted_password(value)
    return (quoted.start, quoted.start + len(value)) if good else None


def _bare_secret(found: _Assignment, work: RedactionWork) -> tuple[int, int] | None:
    """Return where the secret without quotes is; None if the value is not a secret."""
    if found.name == b"pass" or found.symbol not in _BARE_OPERATORS or b")" in found.operator["close"]:
        return None
    value, start, tight = _bare(found)
    work.spend(50 * len(value))
    shouted = _SHOUTED.fullmatch(found.name) is not None
    is_word = shouted and tight and found.symbol == b"=" and value in _WORD_PASSWORDS and found.strong == "password"
    if not is_word and not _good_bare(found.strong, value, tight, shouted=shouted):
        return None
    end = _end_of(found.text, start, value)
    if found.symbol == b">" and not (found.before == b"<" and found.text.startswith(b"</", end)):
        return None
    return start, end


_NAME_BYTES = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"


class _Quoted(NamedTuple):
    """A value in quotes: its quote, what is in it, and where that begins."""

    quote: bytes
    value: bytes
    start: int


def _is_no_value(found: _Assignment, quoted: _Quoted) -> bool:
    """Return whether what is in quotes is the name once more, a docstring, a word to compare with, or a name."""
    value = quoted.value
    if len(quoted.quote) == 3 and b")" in found.operator["close"]:
        return True
    if (found.symbol or b"").startswith(b"=="):
        return value.isalpha() and value.islower() and len(value) < 6
    if found.symbol == b"," and _TYPE_NAME.search(value):
        return True
    return len(value) >= _MIN_REPEATED and found.name.translate(None, b"_-.").lower().endswith(value.lower())


_MIN_REPEATED = 6
_TYPE_NAME = Lazy(rb"(?:[A-Z][a-z]{2,}){2}$|[A-Z][a-z]{3,}[A-Z][A-Za-z][A-Z][a-z]{3,}$")


def _quoted(text: bytes, at: int) -> _Quoted | None:
    """Cut out the value whose opening quote is at ``at``; None if either quote is missing."""
    opening = _OPENING.match(text, at)
    if opening is None:
        return None
    quote, start = opening["q"], opening.end()
    end = text.find(quote, start, start + MAX_VALUE + 3)
    for _ in range(_MAX_ESCAPED_QUOTES):
        before = text[max(start, end - 64) : end]
        if end < 0 or (len(before) - len(before.rstrip(b"\\"))) % 2 == 0:
            break  # an even number of backslashes is before it
        end = text.find(quote, end + 1, start + MAX_VALUE + 3)
    if end < 0 or text.find(b"\xff", start, end) >= 0:
        return None
    return _Quoted(quote, text[start:end], start)


_MAX_ESCAPED_QUOTES = 16


def _end_of(text: bytes, start: int, value: bytes) -> int:
    """Return where a value ends that was only read to the length that it is judged by."""
    end = start + len(value)
    rest = _BARE_REST.match(text, end) if len(value) >= _MAX_JUDGED - 8 else None
    return end if rest is None else end + len(_until_escape(rest.group()))


_WORD_PASSWORDS = frozenset(b"secret password passwd passw0rd changeme".split())
"""Words that name a password, and are one in an .env file."""
_BARE_OPERATORS = frozenset((b"=", b":", b">", None))
"""After any other a value without quotes is an expression."""

_NO_NUMBER = Lazy(rb"[^0-9.]*(?:\.|$)")
"""Without quotes it takes a digit, and one before the first full stop, to tell a token from an expression."""


def _good_bare(strong: str, value: bytes, tight: bool, *, shouted: bool = False) -> bool:
    if strong == "password":
        return is_bare_password(value, tight=tight)
    if is_code(value) or _NO_NUMBER.match(value):
        return False
    return _fits(strong, value, shouted=shouted)


_ESCAPED_END = Lazy(rb"\\+[nrtu]")
"""End of an unquoted value in text whose escapes are not yet undone."""


def _bare(found: _Assignment) -> tuple[bytes, int, bool]:
    """Cut an unquoted value out: (value, where it starts, whether it fills its place as in an .env or YAML file)."""
    place = _BARE.match(found.text, found.operator.end())
    if place is None:
        return b"", found.operator.end(), False
    value, start = _until_escape(place["v"]), place.start("v")
    if found.symbol == b">":
        return value.partition(b"<")[0], start, True
    cut, is_whole = _mapped(found, value, start) if found.symbol == b":" else _assigned_bare(found, value)
    return cut, start, is_whole


def _mapped(found: _Assignment, value: bytes, start: int) -> tuple[bytes, bool]:
    """Cut a value out that follows a colon: in YAML and in headers it fills the rest of its line."""
    cut = _MAPPED_END.sub(b"", value)
    rest = found.text[start + len(value) : start + len(value) + 200].split(b"\n", 1)[0].strip()
    return cut, cut == value and (not rest or rest.startswith(b"#")) and _heads_line(found)


def _assigned_bare(found: _Assignment, value: bytes) -> tuple[bytes, bool]:
    """Cut a value out that follows ``=`` or a like sign; without a space between them it is a shell's or a file's."""
    is_joined = found.symbol == b"=" and not found.operator["space"] and not found.operator["close"]
    is_password = is_joined and found.strong == "password"
    if is_password and _takes_rest(found, value):
        value = _COMMAND_END.split(value, 1)[0]
        return value, value[-1:] not in _EXPRESSION_ENDS
    cut = _PART_END.split(value, 1)[0]
    if is_password and not cut and _UNUSUAL.search(value):
        return value.rstrip(b".,;:!?)]}"), False  # it begins with a sign
    is_tight = found.before in _TIGHT_BEFORE and value[len(cut) : len(cut) + 1] not in _EXPRESSION_ENDS
    return cut, is_joined and is_tight


def _takes_rest(found: _Assignment, value: bytes) -> bool:
    """Return whether a password belongs to a shell or an .env file, where punctuation is part of it."""
    return _SHOUTED.fullmatch(found.name) is not None or (value[-1:] not in _EXPRESSION_ENDS and _heads_line(found))


def _heads_line(found: _Assignment) -> bool:
    """Return whether the name begins its line."""
    begin = max(0, found.left - 200)
    line_start = found.text.rfind(b"\n", begin, found.left) + 1
    return _LINE_HEAD.match(found.text[max(line_start, begin) : found.left]) is not None


def _until_escape(value: bytes) -> bytes:
    """Return what is before the first escape that is not yet undone."""
    return value if b"\\" not in value else _ESCAPED_END.split(value, 1)[0].rstrip(b"\\")


_SPACE = Lazy(rb"\s")
_DIGIT = Lazy(rb"\d")
_COMMAND_END = Lazy(rb";$|;(?=\s)|&&|\|\|")
_PART_END = Lazy(rb"[,;&)\]}<|]")
_MAPPED_END = Lazy(rb"[,;)\]}]+$|<.*$")
_EXPRESSION_ENDS = (b",", b")")


def _beside(text: bytes, start: int, work: RedactionWork) -> Span | None:
    """Judge a value that follows its name without an assignment: a flag, a sentence, SQL, netrc, a declaration."""
    work.spend(4 * CALL)
    found = _OTHER.match(text, start)
    value_at = _WORD_VALUE.match(text, found.end()) if found else None
    if found is None or value_at is None:
        return None
    begin = value_at.start()
    name = found["flag"] or found["declared"]
    whole = _whole_argument(text, begin) if name or found["sql"] else None
    value = None if whole is None else _value_beside(found, whole)
    word = _until_escape(value_at.group())
    if value is None and (whole is None or _DIGIT.search(word)):  # else the words in the quotes are a sentence
        value = _value_beside(found, word)
    if value is None or is_stand_in(value):
        return None
    work.spend(FINDING)
    return Span(
        begin, _end_of(text, begin, value), _kind(name) if name and strength(name) != "password" else "password", NAMED
    )


def _whole_argument(text: bytes, begin: int) -> bytes | None:
    """Return an argument in quotes that a word does not fill: it has spaces or escaped quotes in it."""
    if text[begin - 1 : begin] not in _SHELL_QUOTES or text[begin - 2 : begin - 1] == b"\\":
        return None
    quoted = _quoted(text, begin - 1)
    return quoted.value if quoted and b"\n" not in quoted.value and _IN_QUOTES_ONLY.search(quoted.value) else None


_SHELL_QUOTES = (b'"', b"'")
_IN_QUOTES_ONLY = Lazy(rb"[\s\"'`]")


def _value_beside(found: re.Match[bytes], word: bytes) -> bytes | None:
    """Return the part of the word that is a secret beside what was found, or None."""
    if found["spoken"]:
        value = word.rstrip(b".,;:!?)")
        good = _UNUSUAL.search(value) is not None and is_bare_password(value, tight=False)
    elif found["sql"] or found["netrc"]:
        value = word if _SPACE.search(word) else word.rstrip(b";)")
        good = is_quoted_password(value)
    else:
        value = word if _SPACE.search(word) else word.rstrip(b",;)]")
        good = _is_argument_secret(found["flag"] or found["declared"], value)
    return value if good else None


def _is_argument_secret(name: bytes, value: bytes) -> bool:
    strong = strength(name)
    if strong is None or value[:1] == b"-" or value.lower().rstrip(b".") in _FLAG_PROSE or _ARGUMENT.fullmatch(value):
        return False
    if _SPACE.search(value):
        return strong == "password" and is_quoted_password(value)
    return _good_bare(strong, value, tight=True)


_UNUSUAL = Lazy(rb"\d|\w[!@#$%^&*]\w")
_ARGUMENT = Lazy(rb"[a-z_]+=[A-Za-z_.]+")
"""``type=str``, in a list of arguments of which the flag is one."""

_FLAG_PROSE = frozenset(
    b"""to is and or for the with from flag option options argument instead when if in on as via must can will
    once""".split()
)
"""Words that follow a flag in a sentence about it."""
