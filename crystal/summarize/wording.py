"""Convert conversation text to a safe line of Markdown: one line, cut at a word, inert.

Pure, and never raises on unusual input. The output is read by people, renderers and models, so it must not start a
heading, a link, an image, HTML or a comment.
"""

# ruff: noqa: RUF001  characters of many scripts are intended

from __future__ import annotations

import re
import unicodedata

from crystal.text.grapheme import boundary_before

ELLIPSIS = "…"

_INTRODUCTION = re.compile(r"\A[^\n]{1,80}:[ \t]*\n{1,3}#{1,6}[ \t]+(?=\S)")

_FENCE = re.compile(r"^[ \t>]{0,12}(`{3,}|~{3,})")
_MARKERS = re.compile(r"^(?:[ \t>]|#{1,6}[ \t]|[-*+•][ \t]|\d{1,3}[.)][ \t]|\[[ xX]\][ \t]){0,12}")
_RULE = re.compile(r"^[\s|:=*_~+-]*$")
_SPECIAL = re.compile(
    r"((?<![`\\])`[^`]+`(?!`))"  # a code span is already inert
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
    """Fold every kind of line break, space and control character into single spaces; drop direction marks."""
    line = " ".join(text.split())  # fast path for most texts
    return line if line.isprintable() else " ".join("".join(map(_visible, line)).split())


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    kind = unicodedata.category(character)
    if kind == "Cf":  # keep joiners, which emoji and scripts need; drop marks of direction, tags and the like
        return character if character in "\u200c\u200d" else ""
    if kind in ("Cs", "Cn", "Co"):
        return "\ufffd"
    return " "


def without_introduction(text: str) -> str:
    """Remove a first line that only introduces a heading, such as "Implement this plan:"."""
    return _INTRODUCTION.sub("", text)


def cut(text: str, limit: int) -> str:
    """Shorten a line to at most ``limit`` characters with an ellipsis, at the end of a word if one is near."""
    if len(text) <= limit:
        return text
    space = text.rfind(" ", limit // 2, limit)
    end = space if space > 0 else boundary_before(text, limit - 1, 0)
    return text[:end].rstrip(" ,;:-–—(") + ELLIPSIS


def escaped(line: str) -> str:
    """Escape one line of text for Markdown, for any position in a paragraph or a list item."""
    line = _SPECIAL.sub(lambda match: match[1] or "\\" + match[0], line)
    if line[:1] in ("#", ">", "-", "+", "=", "[", "|", "~"):
        return "\\" + line
    return re.sub(r"^(\d{1,9})([.)])", r"\1\\\2", line)


def code_span(line: str) -> str:
    """Return one line as a code span that no backtick in it can close."""
    longest = max((len(run) for run in re.findall(r"`+", line)), default=0)
    fence = "`" * (longest + 1)
    padding = " " if line[:1] in ("`", " ") or line[-1:] in ("`", " ") else ""
    return f"{fence}{padding}{line}{padding}{fence}" if line else ""


def prose(text: str) -> list[str]:
    """Return the lines of a text that are sentences or parts of them: no fenced code, tables, rules or list markers."""
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
    """Split prose into sentences, one line each, using the punctuation of most languages."""
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
    """Return True if a line holds a letter or a digit, not only punctuation or symbols."""
    return any(character.isalnum() for character in line)
