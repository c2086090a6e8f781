"""Recognise names whose values are secrets: ``DB_PASSWORD``, ``clientSecret``, ``x-api-key``.

A name is split into its words; the last words decide. Beside ``password`` and similar names nearly any value
is removed, beside ``token`` and similar names only one that looks random.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from crystal.redact.regex_engines import Lazy

Strength = Literal["password", "secret", "key"]
"""Kinds of values to remove beside a name: all; those that look random; long random ones that are no hashes."""

_SUFFIX_WORDS = (
    rb"prod|production|dev|development|staging|stage|test|live|local|value|new|old|current|base|raw|default"
    rb"|confirmation|confirm|plaintext|plain|text|string|str|again|repeat|primary|secondary|backup"
)
_TAIL = rb"(?:[_.\-]?(?:" + _SUFFIX_WORDS + rb"|[0-9]+))*"
_QUALIFIER = rb"(?:api|access|private|secret|auth|account|shared|client|master|signing|encryption)[_\-. ]?"
_ELSEWHERE = (
    rb"passwort|kennwort|mot[_\-. ]?de[_\-. ]?passe|mdp|contrase(?:n|\xc3\xb1)a|senha|palavra[_\-]passe|wachtwoord"
    rb"|has(?:l|\xc5\x82)o"
)
"""``password`` in German, French, Spanish, Portuguese, Dutch and Polish."""
PASSWORD_NAME = (
    rb"(?:(?i:passw(?:or)?ds?|pass[_\-. ]?(?:words?|wd|phrase|code)|pwd|(?:ssh|store|key|db|smtp|user|root)pass|"
    + _ELSEWHERE
    + rb")|[_\-.](?i:pass)|[a-z0-9]Pass)"
    rb"(?i:(?:_?hash)?" + _TAIL + rb")"
)
SECRET_NAME = (
    rb"(?i:(?:secrets?|tokens?|credentials?|creds?|dsn|cookies?|authorization|auth|[_\-]pat|bearer|apikeys?|"
    + _QUALIFIER
    + rb"keys?|conn(?:ection)?[_\-. ]?str(?:ing)?)"
    + _TAIL
    + rb")"
)
KEY_NAME = rb"(?i:keys?" + _TAIL + rb")"
"""Ending of every telling name, in any case (RE2 and ``re`` syntax)."""
STEM = (
    rb"(?i)pass|pwd|mdp|has(?:l|\xc5\x82)o|kennwort|contrase|senha|wachtwoord|secret|token|key|cred|auth|dsn|cookie"
    rb"|bearer|pat|str"
)
"""Part that every telling name has (RE2 and ``re`` syntax)."""

_WORDS = Lazy(rb"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_ALWAYS = frozenset(b"password passwords passwd pwd passphrase passcode passw passwrd mdp haslo senha".split())
_ENDS_STRONG = Lazy(
    rb".*(?:passw(?:or)?[dt]|passphrase|pwd|kennwort|motdepasse|contrasena|wachtwoord)$"
    rb"|(?:ssh|store|key|db|smtp|user|root)pass$"
)
_IN_WORDS = Lazy(rb"(?i)(?:.*[^a-z])?(?:" + _ELSEWHERE + rb")$")
_ENDS_MEDIUM = Lazy(rb".*(?:secret|token|apikey|secretkey|accesskey|privatekey|authkey|clientsecret|credentials?)s?$")
_MEDIUM_WORDS = frozenset(
    b"secret secrets token tokens auth credential credentials creds cred apikey dsn authorization cookie pat"
    b" bearer authtoken".split()
)
_KEY_QUALIFIERS = frozenset(
    b"""api access secret private auth account shared preshared master signing encryption client service admin deploy
    license session app write ingest webhook hmac jwt symmetric aes subscription consumer role""".split()
)
"""Words before ``key`` that say it is secret."""

_KEY_OTHERS = frozenset(
    b"""public cache primary foreign sort partition idempotency storage object group index row hash lookup unique map
    dict host state query i pub ssh restore dedupe dedup shard record file item registry""".split()
)
"""Words before ``key`` that say it is no secret. After any other word the value decides."""

_TOKEN_OTHERS = frozenset(
    b"page next continuation continue cursor sync pagination scroll start starting idempotency previous prev".split()
)
"""Words before ``token`` that say it is a place in a list, or the id of a request that is sent again."""

_SUFFIXES = frozenset(_SUFFIX_WORDS.split(b"|"))


TO_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
"""Makes names equal that differ only in their digits: a list may number its names."""


def strength(name: bytes) -> Strength | None:
    """Return what may be beside ``name``, or None for a name that tells nothing."""
    return _strength(name.translate(TO_ZEROS))


@lru_cache(maxsize=4096)
def _strength(name: bytes) -> Strength | None:
    words = [word.lower() for word in _WORDS.findall(name[-64:])][-8:]
    if words[-2:] in _CONNECTIONS:
        return "secret"
    while len(words) > 1 and (words[-1].isdigit() or words[-1] in _SUFFIXES):
        words.pop()
    before, last = [b"", b"", *words][-2:]
    if _is_password_name(last, before, name):
        return "password"
    if last in (b"key", b"keys"):
        return _key_strength(before)
    return "secret" if _is_secret_name(last, before) else None


_CONNECTIONS = [[conn, string] for conn in (b"conn", b"connection") for string in (b"str", b"string")]


def _is_password_name(last: bytes, before: bytes, name: bytes) -> bool:
    if last == b"pass":
        return bool(before) or name == b"pass"
    if last in (b"word", b"phrase") and before == b"pass":
        return True
    if (last == b"passe" or not name.isascii()) and _IN_WORDS.match(name):
        return True
    return last in _ALWAYS or _ENDS_STRONG.match(last) is not None


def _is_secret_name(last: bytes, before: bytes) -> bool:
    if last == b"hash":
        return before in _ALWAYS
    if last in (b"token", b"tokens") and before in _TOKEN_OTHERS:
        return False
    return last in _MEDIUM_WORDS or (_ENDS_MEDIUM.match(last) is not None and not last.endswith(b"secretary"))


def _key_strength(before: bytes) -> Strength | None:
    if not before or before in _KEY_OTHERS:
        return None
    return "secret" if before in _KEY_QUALIFIERS else "key"
