r"""Patterns found in every raw line that has a value beside a telling name in its strings (RE2 and ``re`` syntax).

The line is looked at before its escapes are undone, so quotes may have backslashes before them, and a newline may be
written ``\n``. Each hint lets through all that ``named_values.py`` takes out, and as little else as it can: most code
that mentions a password or a token assigns an expression to it.
"""

from crystal.redact.secret_names import KEY_NAME, PASSWORD_NAME, SECRET_NAME

_ESCAPED = rb"|\\+[nrt\"'])"
_GAP = rb"(?:[\s\"'`\\)\]]" + _ESCAPED + rb"*"
_FILLER = rb"(?:[\s\"'`\\=>:\[(|+\-]" + _ESCAPED + rb"*(?:[rbfuNRBFU]{1,2}\\*[\"'])?"
_APART = rb"(?:[\s\"',]" + _ESCAPED + rb"+"
_SPACE = rb"(?:\s|\\+[nrt])+"
_RUN = rb"[A-Za-z0-9+/=_.~!@#$%^&*:|?\\\-\x80-\xfe]"
_PLAIN = rb"(?:[^\s\"'`\\<>,;(){}\[\]\x00\xff]|\\+u[0-9a-fA-F]{4})"
_MIXED = rb"(?:[A-Za-z/_~!@#$%^&*?.\x80-\xfe]" + _RUN + rb"*[0-9]" + _RUN + rb"*[0-9]|[0-9]" + _RUN + rb"*[A-Za-z])"
_RANDOM = rb"(?:" + _MIXED + rb"|" + _RUN + rb"{16})"
_LONG = rb"(?:[A-Za-z+/=_\\\-]{0,8}[0-9][A-Za-z0-9+/=_\\\-]{11}|[A-Za-z+/=_\\\-]{9,19}[0-9])"
ANY_NAME = rb"(?:" + PASSWORD_NAME + rb"|" + SECRET_NAME + rb"|" + KEY_NAME + rb")"
_TYPE = rb"\s*:\s*&?[A-Za-z_][\w\[\]<>|., ]*="
_SIBLING = _APART + rb"(?:-\s*)?[\"'\\]*[vV]alue[\s\"'\\]*[:=]"


def _after(name: bytes, *found: bytes) -> bytes:
    """Return one hint for all that may follow a name: an automaton with the names in it many times is made slowly."""
    return name + rb"(?:" + rb"|".join(found) + rb")"


_FLAG = rb"(?:^|[\s\"'`=]|\\[nrt])--?[A-Za-z0-9_\-]*" + ANY_NAME + _APART + rb"[^\-]" + _PLAIN + rb"{2}"
_SPOKEN = _SPACE + rb"(?i:is|was|to|will be)\s*:?" + _SPACE + rb"[\"'`\\]*[^\s\"'`\xff]*[0-9!@#$%^&*]"
_SQL = rb"(?i:passw(?:or)?d|pwd|identified" + _SPACE + rb"by)" + _SPACE + rb"\\*['\"]"
_NETRC = (
    rb"(?i:login" + _SPACE + rb"[\w.@+\-]+" + _SPACE + rb"(?:account" + _SPACE + rb"\S+" + _SPACE + rb")?passw(?:or)?d)"
)
_DECLARED = (
    rb"(?:(?i:\b(?:env|arg|set(?:x|env)?|secret set))|-x|-gx)\s+[A-Za-z0-9_]*" + ANY_NAME + rb"\s+\\*[\"']?[^=:\s]{3}"
)
_LISTED = rb"\\*[\"'`]\s*,\s*\\*[\"'`]" + _RUN + rb"*(?:[0-9]|" + _RUN + rb"{16})"
_TAGGED = rb">[^<>\s]{3,}<"
_PAIRED = rb"\"(?:[nN]ame|[kK]ey|variable)\"\s*:\s*\"[A-Za-z0-9_.\-]*" + ANY_NAME + rb"\"\s*,[^{}]*\"[vV]alue\"\s*:"
_NESTED = rb"[\"'\\]+\s*:\s*\{[^{}]*(?:[vV]alue|default)[\"'\\]+\s*:"
_DECLARED_BLOCK = rb"[\"'\\]+\s*\{[^{}]*\bdefault\s*="
_PASS = rb"\bpass\\*[\"']?\s*(?:[:=]|=>)\s*\\*[\"']"

_QUOTED_BY = rb"(?:[=:](?:\s?Some\()?" + _FILLER + rb"[\"'`]|[=:][^=]?" + _FILLER + rb"[rbfuNRBFU]{1,2}\\*[\"'])"
_PAD = rb"(?:\s|\\+[nrt])*"
_BARE_GAP = rb"(?:[\s\"'`\\\]]" + _ESCAPED + rb"*"
_INDENTED = rb"(?:[|>][+\-]?(?:\s|\\+[nr])+)?"
_WIDE = rb"(?:[^\s\"'`\\<>,;(){}\[\]\x00\xff.A-Za-z_|=0-9]|\\+(?:/|u[0-9a-fA-F]{4}))"
_BARE_PASSWORD = (
    rb"(?:[=:][\t ]*"
    + _INDENTED
    + rb"(?:[A-Za-z_]+(?:[=0-9]|\.[A-Za-z_.]*[0-9])|[A-Za-z_]*"
    + _WIDE
    + rb"|[0-9]"
    + _PLAIN
    + rb"{3}|[,;)}\]](?:[^\s\"'`\\<>\x00\xff]|\\+u[0-9a-fA-F]{4}){3})"
    rb"|=[A-Za-z_]{3,}(?:\\+[nr]|[\"'`&;#\s]|$)|:[\t ]*"
    + _INDENTED
    + rb"[A-Za-z_]{3,}(?:\\+[nr]|[\"'`\r\n]|[\t ]*(?:[#\"]|$)))"
)
_BARE_RUN = rb"(?:[A-Za-z0-9+/=_.~!@#$%^&*:|?\-\x80-\xfe]|\\+/|\\+u[0-9a-fA-F]{4})"
_BARE_SECRET = (
    rb"[=:][\t ]*" + _INDENTED + rb"(?:[A-Za-z/_~!@#$%^&*?+:|\-\x80-\xfe]|\\+/|\\+u[0-9a-fA-F]{4})*"
    rb"[0-9]" + _BARE_RUN + rb"*(?:[A-Za-z]|" + _BARE_RUN + rb"{7})"
)

_OF_ANY = (_NESTED, _DECLARED_BLOCK)
_OF_STRONG = (_SIBLING, _LISTED, *_OF_ANY)

NAMED_HINTS = (
    _after(
        PASSWORD_NAME,
        _BARE_GAP + _BARE_PASSWORD,
        _GAP + _QUOTED_BY + _PAD + rb"[^\s\"'`\xff]",
        _TYPE + _FILLER + rb"[^\s\"'`\xff]",
        _TAGGED,
        _SPOKEN,
        *_OF_STRONG,
    ),
    _after(
        SECRET_NAME,
        _BARE_GAP + _BARE_SECRET,
        _GAP + _QUOTED_BY + _PAD + _RANDOM,
        _TYPE + _FILLER + _RANDOM,
        *_OF_STRONG,
    ),
    _after(KEY_NAME, _GAP + rb"[=:]" + _FILLER + _LONG, *_OF_ANY),
    _PASS,
    _PAIRED,
    _FLAG,
    _SQL,
    _NETRC,
    _DECLARED,
)

_TYPED = rb"\s*:\s*&?[A-Za-z_][\w\[\]<>|., ]{0,40}="
_LISTED_BY = rb"[\"'`]\s?[\])]?\s*,"
_WEAK_NAME = rb"(?:" + SECRET_NAME + rb"|" + KEY_NAME + rb")"
ASSIGNED = b"|".join(
    (
        ANY_NAME + rb"(?:" + _LISTED_BY + rb"|" + _GAP + _SIBLING + rb")",
        PASSWORD_NAME + _GAP + rb"[=:>]",
        _WEAK_NAME + rb"(?:" + _GAP + rb"[=:>]|" + _TYPED + rb")" + _FILLER + _RUN + rb"{8}",
        ANY_NAME + _NESTED,
        ANY_NAME + _DECLARED_BLOCK,
        _PASS,
    )
)
"""A telling name and what may assign to it; beside all but passwords, as much as can be a secret."""

SIGNS = (b"=", b":", b">", b",")
"""Signs of which ``ASSIGNED`` needs one: looking for them takes a hundredth of the time."""

OTHERWISE = b"|".join((_FLAG, PASSWORD_NAME + _SPOKEN, _SQL, _NETRC, _DECLARED))
"""A telling name before a value that is not assigned to it."""
