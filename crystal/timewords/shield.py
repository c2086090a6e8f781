"""What of a question may hold time words: nothing that is quoted, no name, path, version or code. Pure."""

from __future__ import annotations

import re

_QUOTED = re.compile(
    '"[^"]*"|\u201c[^\u201c\u201d]*\u201d|\u201e[^\u201c\u201d]*[\u201c\u201d]|\u00ab[^\u00bb]*\u00bb|\u00bb[^\u00ab]*\u00ab'
    "|`[^`]*`|\u300c[^\u300d]*\u300d|\u300e[^\u300f]*\u300f|\u2018[^\u2018\u2019]*\u2019(?!\\w)|(?<![^\\s(])'[^']*'(?!\\w)"
)
_TOKEN = re.compile("[^\\s\u3000-\u9fff\uac00-\ud7a3\uff01-\uff0f\uff1a-\uff20、。]+")
_EDGES = ".,;:!?()[]{}<>'\"\u2019\u2026*~"
_CODE = re.compile(
    r"[_\\@=#$&|^+]|::|\w\(|/"  # signs that prose has not
    r"|[^\W\d]\.\w|\d\.[^\W\d]|\d\.\d|\w:\w"  # file.name, 2.x, 1.5, key:value
    r"|\d[\-\u2010][^\W\d]|[^\W\d]\d*[\-\u2010]\d|\d[\-\u2010]\d|[\w.][\-\u2010]\w+[\-\u2010.]"
    r"|\A--?[^\W\d]|%"
)
_DATE = re.compile(
    r"""
    [0-9]{4}-[0-9]{1,2}(?:-[0-9]{1,2}(?:T[0-9:.]{4,15}(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?)?   # 2023-05, 2023-05-08T12:30
    |[0-9]{1,4}/[0-9]{1,2}/[0-9]{1,4} | [0-9]{1,2}/[0-9]{4}
    |[0-9]{1,2}\.[0-9]{1,2}\.(?:[0-9]{2}|[0-9]{4})?
    |[0-9]{1,2}\.?[-\u2010][0-9]{1,2}(?:st|nd|rd|th)?\.? | [0-9]{4}[-/\u2010][0-9]{2,4}
    |[0-9]{1,2}-[A-Za-z]{3,9}-[0-9]{2,4} | [0-9]{1,2}\.[A-Za-z\u00e4]{3,9}\.?
    |(?:early|mid|late|end)-[A-Za-z0-9]{3,9} | [A-Za-z]{3,9}[-/][A-Za-z]{3,9}
    |[qQ][1-4]/[0-9]{4} | [0-9]{4}[-/][qQ][1-4]
    |qu'est-ce|a-t-on|(?:day|week|month|year)-(?:before|over)-\w+
    """,
    re.VERBOSE,
)
# mid-March, last-week, 8-May-2023: as if there were spaces
_HYPHEN = re.compile(
    r"(?:(?<=\bearly)|(?<=\bmid)|(?<=\bmi)|(?<=\blate)|(?<=\bend))-(?=\w)"
    r"|(?<=\blast)-(?=(?:week|month|year|night)\b)|(?<=[0-9])-(?=[A-Za-z]{3,9}[- ](?:19|20)[0-9]{2})"
    r"|(?<=[A-Za-z]{3})-(?=(?:19|20)[0-9]{2}(?![0-9-]))",
    re.IGNORECASE,
)
_NUMBERED = re.compile(
    r"\b(?:versions?|release|v|ver|rev|build|tag|port|rfc|pep|cve|iso|issue|ticket|pr|commit|line|lines|page|step"
    r"|section|chapter|python|node|fassung|zeile|seite|schritt)\.?\s{1,3}#?(?=[0-9])([^\s]{1,40})",
    re.IGNORECASE,
)


def shield(folded: str) -> str:
    """Put NUL characters over what of a folded question holds no time words; the length stays."""
    text = folded
    for pattern in (_QUOTED, _NUMBERED, _TOKEN):
        text = pattern.sub(_hidden if pattern is not _TOKEN else _hidden_code, text)
    return _HYPHEN.sub(" ", text)


def _hidden(match: re.Match[str]) -> str:
    return "\0" * len(match[0])


def _hidden_code(match: re.Match[str]) -> str:
    token = match[0]
    core = token.strip(_EDGES)
    if not _CODE.search(token):
        return token
    return token if _DATE.fullmatch(core) or _DATE.fullmatch(core + ".") else _hidden(match)
