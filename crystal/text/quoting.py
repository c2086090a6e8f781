"""Make recalled text safe to show to an agent: nothing in it is invisible or resembles the fence's tag.

``quote`` removes characters that a reader does not see and replaces every spelling of the tag's name after an opening
bracket: other scripts, full-width forms, accents, HTML entities, percent and backslash escapes, characters in between.
The table of look-alikes is Unicode's, from the package ``confusable-homoglyphs``. It is loaded once per process, at the
first foreign letter.
"""

from __future__ import annotations

import html.entities
import re
import unicodedata
from functools import cache

MAX_ESCAPE_LEVELS = 8
"""Number of levels of escapes that are decoded to find tags: an entity of an entity of an entity."""
TAG_MARK = "[tag]"
"""Replaces text that resembles the beginning of a tag."""

_TERMINAL = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]|\x9b[0-?]*[ -/]*[@-~]|\x1b[\\]P^_X][^\x07\x1b\x9c]*(?:\x07|\x1b\\\\|\x9c)?|\x1b[ -~]?"
)
_LINE_ENDS = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")
_IGNORABLE = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Unicode's Default_Ignorable_Code_Point; the variation selectors are among them."""
_CONTROLS = "\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufff9-\ufffb\ue000-\uf8ff\U000e1000-\U0010ffff"
_BLANKS = "\u2800\U00013430-\U00013442\U00016fe4\U0001d159"
"""Characters that are drawn as nothing; private use characters are among the controls."""
_HIDDEN = re.compile(f"[{_IGNORABLE}{_CONTROLS}{_BLANKS}]")

_OPENER_NAME = re.compile(
    r"LESS-THAN|SMALLER THAN|LEFT.*(?:ANGLE|POINTING|ARROW|CHEVRON|BULLET)|\bPRECEDES?\b|SUBGROUP OF|^(?:\w+ )?ANGLE$"
)
_LETTER_NAME = re.compile(
    r"^(?:.*LATIN|.*SQUARED|.*CIRCLED|REGIONAL INDICATOR).* (?:LETTER|CAPITAL) (?:[A-Z]+ )*?([A-Z])\b"
)
_UNLISTED = dict(zip("¢©€ɛə£®§ʃ†¥くㄑㄍᑉᐊ⦉〱᚜", "cceeelrssty<<<<<<<<", strict=True)) | dict(
    zip("匚尺ㄚ丫丂ㄒ卂ㄥ爪乇ㄖᑕ∁ᗴᘿᕮᗩⲁⲉ", "cryystalmeocceeeaae", strict=True)
)
"""Look-alikes that are neither in Unicode's table nor recognisable by name."""
_ESCAPE = re.compile(
    r"&(?:(?:amp|#0*38|#x0*26);)*(?:#x?0*[0-9a-f]{1,8}|[a-z][a-z0-9]{1,31});?"
    r"|(?:%(?:25)*[0-9a-f]{2})+"
    r"|(?<!\\)\\+(?:ud[89ab][0-9a-f]{2}\\{1,8}ud[c-f][0-9a-f]{2}|[ux]\{0*[0-9a-f]{1,8}\}|u000[01][0-9a-f]{4}"
    r"|u[0-9a-f]{4}|x[0-9a-f]{2}|0{0,8}(?:3c|[4-7][0-9a-f])\s?|0?1[0-7]{2}|n\{less-than sign\}"
    r"|'3c|o\{0{0,8}74\}|textless(?:\{\}|\b))"
    r"|(?:u\+|%u)[0-9a-f]{4}|=[2-7][0-9a-f]|\+adw(?:alw)?-?"
    r"|<!--[^<>c]{0,40}-->|</?[abd-z][a-z0-9]{0,9}\s?/?>"
)
"""Escapes of characters in folded text; comments and tags of HTML, which may stand between letters."""
_LEVELS = re.compile(
    r"(?<=&)(?:(?:amp|#0*38|#x0*26);)+|(?<=#)0+(?=[0-9])|(?<=#x)0+(?=[0-9a-f])|(?<=%)(?:25)+(?=[0-9a-f]{2})"
)
"""Pattern of repeated escapes, and of zeros before a number."""
_UNKNOWN = "\0"
"""Replaces a letter or symbol that resembles nothing known."""
MAX_UNKNOWN = 5
"""Maximum number of letters of the tag's name that may be unknown ones."""
_NAME = "c r y s5$ t7 a4@ l1i|! m e3 m o0 r y".split()
"""Folded spellings of each letter of the tag's name; an m may be ``rn``, too."""


def _tag_pattern(unknown: str) -> re.Pattern[str]:
    between = f"[^a-z0-9<$@|!{unknown}]*(?:[$@|!][^a-z0-9<$@|!{unknown}]*){{0,3}}"
    letters = (f"(?:rn|[m{unknown}])" if one == "m" else f"[{one}{unknown}]" for one in _NAME)
    return re.compile(f"<[^a-z0-9<]*({between.join(letters)})")


_TAG, _NEAR_TAG = _tag_pattern(""), _tag_pattern(_UNKNOWN)


def quote(text: str) -> str:
    """Return the text without invisible characters and without anything that looks like a tag of the fence.

    Joiners and variation selectors go too: emoji and some scripts look plainer without them, but they can carry data.
    Quoting a second time changes nothing.
    """
    visible = _HIDDEN.sub("", _LINE_ENDS.sub("\n", _TERMINAL.sub("", text)))
    is_plain = visible.isascii() and not any(mark in visible for mark in "<&%\\=+")
    if is_plain or not _tags(_decode(visible)):
        return visible
    return _without_tags(visible)


def quote_line(text: str, limit: int) -> str:
    """Return the quoted text on one line, shortened to ``limit`` characters."""
    line = " ".join(quote(text).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def _without_tags(text: str) -> str:
    """Replace every part of ``text`` that reads as the beginning of a tag once it is decoded and folded."""
    letters, places = _fold(text)
    parts: list[str] = []
    at = 0
    for first, behind in _tags(letters):
        start, end = places[first][0], places[behind - 1][1]
        if start >= at:
            parts += (text[at:start], TAG_MARK)
        at = max(at, end)
    return "".join([*parts, text[at:]])


def _tags(letters: str) -> list[tuple[int, int]]:
    """Return where tags begin and end in a folded text, also those with a few unknown letters."""
    near = (tag for tag in _NEAR_TAG.finditer(letters) if tag[1].count(_UNKNOWN) <= MAX_UNKNOWN)
    return sorted(tag.span() for tag in (*_TAG.finditer(letters), *near))


def _fold(text: str) -> tuple[str, list[tuple[int, int]]]:
    """Return the text decoded and folded to ASCII look-alikes, and the span in ``text`` of each character."""
    places = [(at, at + 1) for at in range(len(text))]
    for _ in range(MAX_ESCAPE_LEVELS):
        pairs = [(letter, place) for one, place in zip(text, places, strict=True) for letter in _FOLDED[ord(one)]]
        folded, places = "".join(letter for letter, _ in pairs), [place for _, place in pairs]
        text, places = _decode_once(folded, places)
        if text == folded:
            break
    return text, places


def _decode_once(text: str, places: list[tuple[int, int]]) -> tuple[str, list[tuple[int, int]]]:
    """Decode one level of escapes; each result has the span of its escape."""
    letters: list[str] = []
    moved: list[tuple[int, int]] = []
    at = 0
    for escape in _ESCAPE.finditer(text):
        plain = _unescaped(escape)
        place = (places[escape.start()][0], places[escape.end() - 1][1])
        letters += (text[at : escape.start()], plain)
        moved += [*places[at : escape.start()], *([place] * len(plain))]
        at = escape.end()
    return "".join([*letters, text[at:]]), [*moved, *places[at:]]


def _decode(text: str) -> str:
    """Fold and decode escapes until nothing changes."""
    text = text.translate(_FOLDED)
    for _ in range(MAX_ESCAPE_LEVELS):
        decoded = _ESCAPE.sub(_unescaped, text).translate(_FOLDED)
        if decoded == text:
            break
        text = decoded
    return text


def _unescaped(escape: re.Match[str]) -> str:
    """Return the character for an escape, or the escape itself if it is invalid."""
    written = _LEVELS.sub("", escape[0])
    if written[0] == "<":
        return ""
    if written[0] == "&":
        plain = html.unescape(written)
        return _entities().get(written.strip("&;"), written) if plain == written else plain
    if written[0] in "%=" and written[1] != "u":
        return bytes.fromhex(re.sub("[%=]", "", written)).decode("utf-8", "replace")
    digits = written.strip("\\ \n\t")
    if digits[0] in "+n'ot":  # UTF-7, Python's \N, RTF, Perl's \o and TeX
        return "<"
    if digits[0].isdigit():  # octal with three digits, or a CSS escape; "<" in either
        return "<" if digits.lstrip("0") == "74" else chr(int(digits, 8 if digits.lstrip("0")[0] == "1" else 16))
    codes = [int(digits, 16) for digits in re.findall(r"[ux][+{]?([0-9a-f]+)", written)]
    if len(codes) == 2:
        return chr(0x10000 + ((codes[0] & 0x3FF) << 10) + (codes[1] & 0x3FF))
    return chr(codes[0]) if codes[0] <= 0x10FFFF else written


@cache
def _entities() -> dict[str, str]:
    """Return the characters of the HTML entities whose names contain capitals."""
    return {name.strip(";").lower(): plain for name, plain in html.entities.html5.items() if not name.islower()}


# ------------------------------------------------------------------------------------------------------ look-alikes


class _FoldTable(dict[int, str]):
    """A table for ``str.translate`` with the ASCII look-alikes of each character, filled on demand."""

    def __missing__(self, code: int) -> str:
        self[code] = folded = _look_alike(chr(code))
        return folded


_FOLDED = _FoldTable()


def _look_alike(letter: str) -> str:
    """Return a character's lower-case ASCII look-alike, "" if it is invisible, ``_UNKNOWN``, or the character."""
    if letter.isascii():
        return letter.lower()
    if _HIDDEN.match(letter) or unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return ""
    if letter in _UNLISTED:
        return _UNLISTED[letter]
    name = unicodedata.name(letter, "")
    if _OPENER_NAME.search(name):
        return "<"
    plain = "".join(one for one in unicodedata.normalize("NFKD", letter) if not unicodedata.combining(one))
    if plain and plain.isascii():
        return plain.lower()
    if _may_be_confused(letter):
        for one in (letter, plain, plain.upper(), plain.lower()):
            if one in _confusables():
                return _confusables()[one]
    known = _LETTER_NAME.match(name)
    if known:
        return known[1].lower()
    unknown = _UNKNOWN if unicodedata.category(letter)[0] in "LNS" else letter
    return str(unicodedata.decimal(letter, unknown))


def _may_be_confused(letter: str) -> bool:
    """Return whether the table is worth loading: it has no ideographs, syllables, quotes and dashes."""
    common = (("\u2000", "\u206f"), ("\u3001", "\u3002"), ("\u3400", "\u9fff"), ("\uac00", "\ud7a3"))
    return not any(first <= letter <= last for first, last in common)


@cache
def _confusables() -> dict[str, str]:
    """Load the part of Unicode's table of confusable characters that resembles letters or brackets of a tag."""
    from confusable_homoglyphs.confusables import confusables_data  # noqa: PLC0415 - 50 ms, and rarely needed

    return {
        like["c"].strip("\u200e"): ascii_letter.lower()
        for ascii_letter in "<crystalmemoryCRYSTALMEMORY"
        for like in confusables_data.get(ascii_letter, ())
    }
