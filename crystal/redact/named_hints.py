r"""What a raw line must hold for a value beside a telling name to be in any of its strings (RE2 and ``re`` syntax).

The line is looked at before its escapes are undone, so quotes may have backslashes before them, and a newline may be
written ``\n``. Each hint lets through all that ``named.py`` takes out, and as little else as it can: most code that
mentions a password or a token assigns an expression to it.
"""

from crystal.redact.names import KEY_NAME, PASSWORD_NAME, SECRET_NAME

_ESCAPED = rb"|\\+[nrt\"'])"
_GAP = rb"(?:[\s\"'`\\)\]]" + _ESCAPED + rb"*"
_FILLER = rb"(?:[\s\"'`\\=>:\[(|+\-]" + _ESCAPED + rb"*(?:[rbfuRBFU]{1,2}\\*[\"'])?"
_APART = rb"(?:[\s\"',]" + _ESCAPED + rb"+"
_SPACE = rb"(?:\s|\\+[nrt])+"
_RUN = rb"[A-Za-z0-9+/=_.~!@#$%^&*:|?\\\-\x80-\xfe]"
_PLAIN = rb"(?:[^\s\"'`\\<>,;(){}\[\]\x00\xff]|\\+u[0-9a-fA-F]{4})"
_MIXED = rb"(?:[A-Za-z/_~!@#$%^&*?.\x80-\xfe]" + _RUN + rb"*[0-9]" + _RUN + rb"*[0-9]|[0-9]" + _RUN + rb"*[A-Za-z])"
_RANDOM = rb"(?:" + _MIXED + rb"|" + _RUN + rb"{16})"
_LONG = rb"(?:[A-Za-z+/=_\\\-]{0,8}[0-9][A-Za-z0-9+/=_\\\-]{11}|[A-Za-z+/=_\\\-]{9,19}[0-9])"
ANY_NAME = rb"(?:" + PASSWORD_NAME + rb"|" + SECRET_NAME + rb"|" + KEY_NAME + rb")"
_STRONG_NAME = rb"(?:" + PASSWORD_NAME + rb"|" + SECRET_NAME + rb")"
_TYPE = rb"\s*:\s*&?[A-Za-z_][\w\[\]<>|., ]*="
_SIBLING = _APART + rb"(?:-\s*)?[\"'\\]*[vV]alue[\s\"'\\]*[:=]"

_FLAG = rb"(?:^|[\s\"'`=]|\\[nrt])--?[A-Za-z0-9_\-]*" + ANY_NAME + _APART + rb"[^\-]" + _PLAIN + rb"{2}"
_SPOKEN = PASSWORD_NAME + _SPACE + rb"(?i:is|was|to|will be)\s*:?" + _SPACE + rb"[\"'`\\]*[^\s\"'`\xff]*[0-9!@#$%^&*]"
_SQL = rb"(?i:passw(?:or)?d|pwd|identified" + _SPACE + rb"by)" + _SPACE + rb"\\*['\"]"
_NETRC = rb"(?i:login" + _SPACE + rb"[\w.@+\-]+" + _SPACE + rb"passw(?:or)?d)"
_DECLARED = rb"(?:(?i:\b(?:env|arg|setx?|secret set))|-x|-gx)\s+[A-Za-z0-9_]*" + ANY_NAME + rb"\s+\\*[\"']?[^=:\s]{3}"
_LISTED = _STRONG_NAME + rb"\\*[\"'`]\s*,\s*\\*[\"'`]" + _RUN + rb"*(?:[0-9]|" + _RUN + rb"{16})"
_TAGGED = PASSWORD_NAME + rb">[^<>\s]{3,}<"
_PAIRED = rb"\"(?:[nN]ame|[kK]ey|variable)\"\s*:\s*\"[A-Za-z0-9_.\-]*" + ANY_NAME + rb"\"\s*,[^{}]*\"[vV]alue\"\s*:"
_NESTED = ANY_NAME + rb"[\"'\\]+\s*:\s*\{[^{}]*(?:[vV]alue|default)[\"'\\]+\s*:"
_DECLARED_BLOCK = ANY_NAME + rb"[\"'\\]+\s*\{[^{}]*\bdefault\s*="
_PASS = rb"\bpass\\*[\"']?\s*(?:[:=]|=>)\s*\\*[\"']"

_QUOTED_BY = rb"(?:[=:]" + _FILLER + rb"[\"'`]|[=:][^=]?" + _FILLER + rb"[rbfuRBFU]{1,2}\\*[\"'])"
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
    + rb"{3})"
    rb"|=[A-Za-z_]{3,}(?:\\+[nr]|[\"'`&;#\s]|$)|:[\t ]*"
    + _INDENTED
    + rb"[A-Za-z_]{3,}(?:\\+[nr]|[\"'`\r\n]|[\t ]*(?:[#\"]|$)))"
)
_BARE_RUN = rb"(?:[A-Za-z0-9+/=_.~!@#$%^&*:|?\-\x80-\xfe]|\\+/|\\+u[0-9a-fA-F]{4})"
_BARE_SECRET = (
    rb"[=:][\t ]*" + _INDENTED + rb"(?:[A-Za-z/_~!@#$%^&*?+:|\-\x80-\xfe]|\\+/|\\+u[0-9a-fA-F]{4})*"
    rb"[0-9]" + _BARE_RUN + rb"*(?:[A-Za-z]|" + _BARE_RUN + rb"{7})"
)

NAMED_HINTS = (
    PASSWORD_NAME + rb"(?:" + _BARE_GAP + _BARE_PASSWORD + rb"|" + _GAP + _QUOTED_BY + _PAD + rb"[^\s\"'`\xff])",
    SECRET_NAME + rb"(?:" + _BARE_GAP + _BARE_SECRET + rb"|" + _GAP + _QUOTED_BY + _PAD + _RANDOM + rb")",
    KEY_NAME + _GAP + rb"[=:]" + _FILLER + _LONG,
    PASSWORD_NAME + _TYPE + _FILLER + rb"[^\s\"'`\xff]",
    SECRET_NAME + _TYPE + _FILLER + _RANDOM,
    _STRONG_NAME + _SIBLING,
    _LISTED,
    _TAGGED,
    _PASS,
    _PAIRED,
    _NESTED,
    _DECLARED_BLOCK,
    _FLAG,
    _SPOKEN,
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
        _NESTED,
        _DECLARED_BLOCK,
        _PASS,
    )
)
"""A telling name and what may assign to it; beside all but passwords, as much as can be a secret."""

OTHERWISE = b"|".join((_FLAG, _SPOKEN, _SQL, _NETRC, _DECLARED))
"""A telling name before a value that is not assigned to it."""
