"""Words of a conversation as they may stand in a line of Markdown: one line, cut at a word, inert.

Pure, and never raises on odd content. What is written may be read by people, by renderers and by models, so nothing
in it may open a heading, a link, an image, HTML or a comment.
"""

# ruff: noqa: RUF001  the world's punctuation looks like ours on purpose

from __future__ import annotations

import re
import unicodedata

from crystal.text.grapheme import boundary_before

ELLIPSIS = "…"

_FENCE = re.compile(r"^[ \t>]{0,12}(`{3,}|~{3,})")
_MARKERS = re.compile(r"^(?:[ \t>]|#{1,6}[ \t]|[-*+•][ \t]|\d{1,3}[.)][ \t]|\[[ xX]\][ \t]){0,12}")
_RULE = re.compile(r"^[\s|:=*_~+-]*$")
_SPECIAL = re.compile(
    r"((?<![`\\])`[^`]+`(?!`))"  # a code span is inert as it is
    r"|\\(?=[!-/:-@\[-`{-~])"  # a backslash that would escape something
    r"|[`*]|<(?=[A-Za-z/!?])|&(?=#?\w{1,32};)"  # code, emphasis, HTML, entities
    r"|\[(?=\[)|(?<=\[)\[|\](?=[(\[])|~(?=~)|(?<=~)~"  # links, wiki links and embeds, strikethrough
    r"|(?<![^\W_])_|_(?![^\W_])"  # emphasis again; names_with_underscores stay as they are
)
_END = re.compile(r"(?<![.!?…])[.!?…]+[\"'”’»)\]*_`]{0,4}(?=\s)|[。！？｡؟۔।॥։።]+[」』”’）»]{0,4}\s*")
_ABBREVIATION = re.compile(
    r"(?:(?:^|[\s(])(?:\w\.){0,4}\w|\b(?:vs|etc|bzw|ca|dr|mr|mrs|prof|nr|vgl|incl|approx|fig|cf|sr|jr))\.$",
    re.IGNORECASE,
)


def one_line(text: str) -> str:
    """Fold every kind of line break, space and control character into single spaces; drop what turns text around."""
    line = " ".join(text.split())  # quick, and all that most texts need
    return line if line.isprintable() else " ".join("".join(map(_visible, line)).split())


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    kind = unicodedata.category(character)
    if kind == "Cf":  # joiners hold emoji and scripts together; marks of direction, tags and the like are not words
        return character if character in "\u200c\u200d" else ""
    if kind in ("Cs", "Cn", "Co"):
        return "\ufffd"
    return " "


def cut(text: str, limit: int) -> str:
    """Shorten a line to at most ``limit`` characters, at a word where one ends near, and say so with an ellipsis."""
    if len(text) <= limit:
        return text
    space = text.rfind(" ", limit // 2, limit)
    end = space if space > 0 else boundary_before(text, limit - 1, 0)
    return text[:end].rstrip(" ,;:-–—(") + ELLIPSIS


def escaped(line: str) -> str:
    """Make one line of text mean nothing to Markdown, wherever in a paragraph or a list item it stands."""
    line = _SPECIAL.sub(lambda match: match[1] or "\\" + match[0], line)
    if line[:1] in ("#", ">", "-", "+", "=", "[", "|", "~"):
        return "\\" + line
    return re.sub(r"^(\d{1,9})([.)])", r"\1\\\2", line)


def code_span(line: str) -> str:
    """Show one line verbatim: a code span that no backtick in it can close."""
    longest = max((len(run) for run in re.findall(r"`+", line)), default=0)
    fence = "`" * (longest + 1)
    padding = " " if line[:1] in ("`", " ") or line[-1:] in ("`", " ") else ""
    return f"{fence}{padding}{line}{padding}{fence}" if line else ""


def prose(text: str) -> list[str]:
    """The lines of a text that are sentences or parts of them: no fenced code, tables, rules or list markers."""
    lines = []
    fence = ""
    for raw in re.split(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]", text):
        mark = _FENCE.match(raw)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
            continue
        if fence or raw.lstrip().startswith("|") or _RULE.match(raw):
            continue
        line = one_line(_MARKERS.sub("", raw, count=1)).replace("**", "").replace("__", "")
        if line:
            lines.append(line)
    return lines


def sentences(text: str) -> list[str]:
    """Split prose into sentences, one line each, in most of the world's punctuation."""
    found = []
    for line in prose(text):
        start = 0
        for end in _END.finditer(line):
            following = line[end.end() :].lstrip()[:1]
            if following.islower() or _ABBREVIATION.search(line[max(start, end.end() - 12) : end.end()]):
                continue
            found.append(line[start : end.end()].strip())
            start = end.end()
        found.append(line[start:].strip())
    return [sentence for sentence in found if sentence]


def has_words(line: str) -> bool:
    """Whether a line holds a letter or a digit, not only punctuation or symbols."""
    return any(character.isalnum() for character in line)
