"""Judge values: a secret looks random, or like a password, and is no placeholder.

Each threshold was set by what real transcripts would lose: docs/adr/0003-redaction-rules.md.
"""

from __future__ import annotations

import math
from functools import lru_cache

from crystal.redact.regex_engines import Lazy

_RANDOM_ALPHABET = Lazy(rb"[A-Za-z0-9+/=_.~!@#$%^&*:|?\-\x80-\xff]+")
_WORDY_PART = Lazy(
    rb"[A-Za-z]?[a-z]*|[A-Z]+|\d{1,4}|[A-Za-z]\d{1,3}|(?:[A-Z]?[a-z]){2,}\d{0,2}|[A-Z]{2,}\d{1,2}"
    rb"|(?:[A-Z]?[a-z]{1,3}|[A-Z]{2,4})\d{2,5}(?:[A-Z][a-z]{2,})+"
)
"""The last two: ``INT16``, ``Ed25519PrivateKey``."""
_PATHLIKE = Lazy(rb"[~.]{0,2}/|[A-Za-z]:[\\/]|\w+://|[\w.-]+/[\w.-]+/")
_LONG_BASE64, _MIN_BITS_OF_BASE64 = Lazy(rb"[A-Za-z0-9+/]{36,}={0,2}"), 4.4
"""Secret keys of AWS have 40 letters: of ten one begins with a slash or has two."""
_MOMENT = Lazy(rb"\d{4}-\d\d-\d\d|\d{1,2}:\d\d(?::\d\d)?(?:\.\d+)?$|\d+(?:\.\d+){1,3}(?:-[\w.]+)?$")
_STAND_IN = Lazy(
    rb"""(?ix)
    [*x.\-_\#?\x20\xe2\x80\xa2\xa6]+$                                # ****, xxxx, ..., bullets
    | \$[A-Za-z_]*$ | \$[A-Z0-9_]+$ | \$[({] | \$\w+(?:->|\[|\.|:)   # $PASS, $(cmd), ${X}, $obj->x
    | %[a-z]$ | %\(\w+\)s$ | %\w+%$ | [@:][A-Za-z_]+$                # %s, %(x)s, %PASS%, @param, :symbol
    | :[\w:]+:                                                       # :py:data:
    | \#\{ | \{\{?[^}]*\}?\}?$ | <[^<>]*>?$ | \[[^\[\]]*\]$          # {x}, {{ x }}, <password>, [password]
    | !(?:vault|ref|sub|env) | (?:op|vault|env|file|keyring|ssm|secret|bws|pass)[:.] //? \S
    | (?:env|secrets|vars|process|config|settings|self|this|os|data|var|local|module|args|opts|options)\.\w
    | arn:aws | projects/ | (?:\w+[-_.])?(?:ref|secretkeyref|valuefrom)[:\x20]
    | (?:your|enter|insert|replace)[-_\x20]\S*$
    | (?:your|insert|replace|todo|fixme|placeholder|redacted|removed|hidden|masked|omitted|dummy|example|sample)[^\d]*$
    | (?:test|fake|mock|foo|bar|baz|demo|none|null|nil|undefined|true|false|yes|no|on|off|required|optional|default
      |unset|empty|string|str|text|bytes|byte|char|varchar|number|int|integer|float|bool|boolean|any|unknown|never
      |void|object|secret(?:str|bytes)|symbol|self|this|value|field|input|prompt|stdin|env|file|auto|basic|bearer|invalid
      |missing|wrong|incorrect|expired|valid)$
    | (?:user|login|username|email|name|id|type|url)$
    """,
)
_STAND_IN_PARTS = tuple(b"*** xxxxx ... \xe2\x80\xa6 ${ {{ #{ placeholder redacted your- your_ -goes- _goes_".split())
_STAND_IN_ENDS = (b"_here", b"-here")
"""Signs anywhere in a value, or at its end, that it is a placeholder: ``sk-xxxxx``, ``${X}``, templates."""

_STEM = Lazy(
    rb"(?i)pass(?:w(?:or)?d|phrase|code)?s?\d?$|(?!.*\d\d$).*(?:passw(?:or)?d|passphrase|pwd|secret|token|credential|api_?key)"
)
"""A value that names a secret, ``user_password``; with two digits at its end it is a password."""

_ONLY_A_NAME = Lazy(
    rb"(?i)(?:(?:new|old|user|current|confirm|my|the|your|db|admin|root|hashed|encrypted|plain|raw|input|login|reset"
    rb"|forgot|change|wrong|invalid|correct|with|no|has|is|set|get|enter|bad)[_\-. ]?)*"
    rb"(?:pass(?:w(?:or)?[dt]|phrase|code)?|pwd|secret|token|credential|api_?key|mot de passe|kennwort|senha"
    rb"|contrase(?:n|\xc3\xb1)a|wachtwoord)s?"
    rb"(?:[_\-. ]?(?:hash|field|input|value|key|error|confirmation|confirm|again|\d))?$"
)
"""The same, where a weak password is more likely than a variable."""

_CODE = Lazy(
    rb"""(?x)
    (?!!?\w+(?:\.\w+)+(?:\d\d|\d[!\#$%^*])[!\#$%^*]*$)               # Two.words42!
    [A-Za-z_$@&*!][\w$]*(?:\?\.|\.|->|::)[A-Za-z_$][\w$]*          # a.b, a->b, a::b, a?.b
    | [&*!]?[A-Za-z_$][\w$.:]*[(\[<{]                               # call(, item[, Type<
    | [&*!]?[A-Za-z_$][\w$]*[)\]}>,;?|:]+$                          # end of an expression
    | ![^\d]*$ | !=|![01][,)}\]] | [A-Za-z_$]{1,2},[A-Za-z_$]       # not a; minified: {a:!0,b:c,d}
    | [(\[{<|&=>] | //|/\*|\#$ | \\                                   # anything that opens or joins code
    """,
)
_PROSE = Lazy(
    rb"(?i)\b(?:password|passwd|your|enter|must|the|is|are|for|required|invalid|please|and|with|not|at|least|confirm|new"
    rb"|of|to|in)\b"
)
_MAX_JUDGED = 128
"""Bytes of a value that are judged: a longer one is as random as its beginning."""

_BITS_OF_EQUALS = (0.0, *(count * math.log2(count) for count in range(1, _MAX_JUDGED + 1)))
_ESCAPED_FOR_URL = Lazy(rb"%[0-9A-Fa-f]{2}")
_DIGITS, _LETTERS = b"0123456789", b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_TO_GAPS = bytes.maketrans(b"-_./:@|+=", b" " * 9)


def _is_wordy(value: bytes) -> bool:
    """Return whether the value consists of words, short numbers and versions."""
    parts = value.translate(_TO_GAPS).split()
    return all((part.isalpha() and part.islower()) or _WORDY_PART.fullmatch(part) for part in parts)


def entropy(value: bytes) -> float:
    """Return the Shannon entropy of at most 128 bytes, in bits a byte."""
    size = len(value)
    shared = sum(map(_BITS_OF_EQUALS.__getitem__, map(value.count, set(value))))
    return round(math.log2(size) - shared / size, 9) if size else 0.0


def is_stand_in(value: bytes) -> bool:
    """Return whether the value is a placeholder: ``${PASS}``, ``****``, ``your-key``, ``None``."""
    value = value[:_MAX_JUDGED]
    small = value.lower()
    has_sign = any(map(small.__contains__, _STAND_IN_PARTS)) or small.endswith(_STAND_IN_ENDS)
    return has_sign or _STAND_IN.match(value) is not None


def is_code(value: bytes) -> bool:
    """Return whether an unquoted value reads as a piece of a program: ``get_password()``, ``args.token``."""
    return _CODE.match(value) is not None


@lru_cache(maxsize=2048)
def looks_random(value: bytes, least: int = 8) -> bool:
    """Return whether nobody would have written this value by hand as a name, a path, a time or a sentence."""
    if len(value) < least or not _RANDOM_ALPHABET.fullmatch(value):
        return False
    value = _ESCAPED_FOR_URL.sub(b"-", value[:_MAX_JUDGED])
    if _is_path(value) or _MOMENT.match(value) or is_stand_in(value):
        return False
    return not _is_wordy(value) and _is_mixed(value)


def _is_path(value: bytes) -> bool:
    """Return whether the value is a path. Base64 text with slashes is not: it has more different letters."""
    if _PATHLIKE.match(value) is None:
        return False
    return _LONG_BASE64.fullmatch(value) is None or entropy(value) < _MIN_BITS_OF_BASE64


def _is_mixed(value: bytes) -> bool:
    """Return whether the value mixes digits and letters, or many different letters, as no word does."""
    size = len(value)
    digits, letters = size - len(value.translate(None, _DIGITS)), size - len(value.translate(None, _LETTERS))
    if size < 16:
        return digits >= 2 and letters >= 2
    if digits == 0:
        return size >= 20 and entropy(value) >= 3.8
    return letters >= 4 and entropy(value) >= 3.0


@lru_cache(maxsize=2048)
def is_quoted_password(value: bytes) -> bool:
    """Return whether a value in quotes, or a whole JSON string, beside ``password`` is one, even a weak one."""
    value = value[:_MAX_JUDGED]
    if _is_no_password(value) or _ONLY_A_NAME.fullmatch(value):
        return False
    return not _SPACE.search(value) or (len(value) <= 100 and not _PROSE.search(value))


@lru_cache(maxsize=2048)
def is_bare_password(value: bytes, *, tight: bool) -> bool:
    """Return whether a value without quotes beside ``password`` is one, even a weak one.

    Args:
        value: The value.
        tight: The value fills the rest of its line, or follows ``=`` without a space, as in an .env file.
    """
    value = value[:_MAX_JUDGED]
    if _is_no_password(value) or is_code(value):
        return False
    if (_ONLY_A_NAME if tight else _STEM).match(value) and not looks_random(value):
        return False
    if _ONLY_LETTERS.fullmatch(value):
        return tight and not _VARIABLE.fullmatch(value)
    return len(value) >= 4


def _is_no_password(value: bytes) -> bool:
    return len(value) < 3 or not value.strip(b"\"'`,;:.-_ \t") or is_stand_in(value)


_SPACE = Lazy(rb"\s")
_ONLY_LETTERS = Lazy(rb"[A-Za-z_]+")
_VARIABLE = Lazy(rb"[a-z]{2,}(?:[A-Z][a-z]+){0,3}Pass(?:word|phrase)")
"""``explicitPassword``"""
