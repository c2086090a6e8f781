"""Find passwords after the word for them in other languages: ``mot de passe : X``, ``пароль X``, ``密码是 X``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from crystal.redact.judge import is_bare_password
from crystal.redact.regex_engines import Lazy, compiled, scanner
from crystal.redact.spans import NAMED, Span
from crystal.redact.work_limit import CALL, FINDING, RedactionWork

_ENGLISH = ("password", "passwd")
"""Words before which ``=`` is read by ``named_values.py``, unless a quote follows that may never be closed."""
_LATIN = (
    *("mot de passe", "mot-de-passe", "passwort", "kennwort", "contraseña", "contrasena", "parola d'ordine", "senha"),
    *("palavra-passe", "palavra passe", "wachtwoord", "hasło"),
)
_SHORT = ("pw", "mdp", "clave", "parola", "haslo")
"""Words that mean something else, too: the value must mix letters and digits."""
_OTHER = ("пароль", "Пароль", "ПАРОЛЬ", "пароля", "パスワード", "密码", "密碼", "口令", "비밀번호", "암호")
_IS = ("est", "ist", "lautet", "es", "è", "e'", "é", "is", "to", "jest", "это")


def _any_of(words: tuple[str, ...]) -> bytes:
    return "|".join(map(re.escape, words)).encode()


def _raw(words: tuple[str, ...]) -> bytes:
    r"""Return a hint for the words in text whose escapes are not yet undone: a letter may be written ``\u043f``."""
    letters = {letter for word in words for letter in word if not letter.isascii()}
    forms = {letter: rf"(?:{letter}|\\+u(?i:{ord(letter):04x}))" for letter in letters}
    return "|".join("".join(forms.get(letter, re.escape(letter)) for letter in word) for word in words).encode()


_APART_RAW = rb"(?:[\s:=\"'`\\]|\\+[nrt]|\xef\xbc\x9a|\\+u(?i:ff1a))"
_NO_WORD = rb"(?:^|[^\w.$-]|\\[nrt])"
_LATIN_RAW = rb"(?i:" + _raw(_LATIN) + rb")"
_IS_RAW = rb"(?i:passw(?:or)?d)\s+(?:" + _raw(tuple(word for word in _IS if word != "to")) + rb")\s"
_SHORT_RAW = _NO_WORD + rb"(?i:" + _raw(_SHORT) + rb")" + _APART_RAW
SPOKEN_HINTS = (
    _raw(_OTHER),
    _LATIN_RAW + _APART_RAW,
    _IS_RAW + rb"\s*[^\s]*[0-9!@#$%^&*]",
    _SHORT_RAW + rb"+(?:(?:ist?|est|lautet)\s:?\s*)?[^\s\"'`]*[0-9]",
)
_PATTERN = (
    rb"(?:(?<![\w.$-])(?P<short>(?i:"
    + _any_of(_SHORT)
    + rb"))|(?P<latin>(?i:"
    + _any_of((*_LATIN, *_ENGLISH))
    + rb"))|"
    rb"(?P<other>" + _any_of(_OTHER) + rb"))"
    rb"(?:\s{0,3}(?:[:=]|\xef\xbc[\x9a\x9d])\s{0,3}|\s{1,3}(?i:" + _any_of(_IS) + rb")\s{0,3}:?\s{1,3}"
    rb"|(?(other)\s?(?:" + _any_of(("は", "が", "是", "为", "為", "은", "는")) + rb")?\s?|(?(short)\s|(?!))))"
    rb"(?:[\"'`]|" + _any_of(("«", "「", "“", "„")) + rb"\s?)?(?P<v>[^\s\"'`\x00\xff]{4,128})"
)
_BEGINNINGS = (
    rb"(?:^|[^A-Za-z0-9_.$-])(?i:" + _any_of(_SHORT) + rb")[\s:=\xef]",
    rb"(?i:" + _any_of(_LATIN) + rb")",
    rb"(?i:" + _any_of(_ENGLISH) + rb")(?:\s*(?::|\xef|=[\"'`\s])|\s+(?i:" + _any_of(_IS) + rb")[\s:])",
    _any_of(_OTHER),
)
_ASIAN = Lazy(rb"[\xe3-\xef][\x80-\xbf]{2}|" + _any_of(("»", "”", "“")))
"""The end of a value: a letter or a sign of a language that writes no spaces, or a quote."""
_UNUSUAL = Lazy(rb"\d|\w[!@#$%^&*]\w")
_LETTER, _DIGIT = Lazy(rb"[A-Za-z]"), Lazy(rb"\d")
_MIN_MIXED = 6


def spoken_spans(text: bytes, work: RedactionWork) -> Iterator[Span]:
    """Yield the passwords that follow the word for them."""
    search, at = scanner(_BEGINNINGS), 0
    while (word := search(text, at)) is not None:
        work.spend(2 * CALL)
        at = word.end() - 1  # what is before the next word may be the end of this one
        found = compiled(_PATTERN).match(text, word.start()) or compiled(_PATTERN).match(text, word.start() + 1)
        if found is None:
            continue
        work.spend(FINDING // 2)
        value = _ASIAN.split(found["v"], 1)[0].rstrip(b".,;:!?)]}")
        if _is_unusual(value, found["short"] is not None) and is_bare_password(value, tight=False):
            work.spend(FINDING // 2)
            yield Span(found.start("v"), found.start("v") + len(value), "password", NAMED)


def _is_unusual(value: bytes, mixed: bool) -> bool:
    """Return whether no word is written like this; if ``mixed``, only what has both letters and digits."""
    if not mixed:
        return _UNUSUAL.search(value) is not None
    return len(value) >= _MIN_MIXED and _LETTER.search(value) is not None and _DIGIT.search(value) is not None
