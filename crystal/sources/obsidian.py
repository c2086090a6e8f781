"""Read the title, aliases and tags of an Obsidian note, and put them into the titles of its sections.

The title of each section begins with the note's own title (or its file name) and its aliases, and ends with its tags.
Properties, links and embeds stay in the text as ordinary words. Front matter is parsed by hand, for its titles,
aliases and tags only: a YAML parser expands references without a limit, and a vault may come from anybody.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from crystal.model.named_tuple import NamedTuple

MAX_NAME = 120
MAX_TAGS = 12
_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(?P<lines>.*?)^(?:---|\.\.\.)[ \t]*$", re.DOTALL | re.MULTILINE)
_KEY = re.compile(r"^(?P<key>[^\s:#-][^:]*):[ \t]*(?P<value>.*)$")
_WITHOUT_TAGS = re.compile(
    r"^[ \t]{0,3}(?P<fence>```|~~~).*?(?:^[ \t]{0,3}(?P=fence)|\Z)|`[^`\n]*`|%%.*?(?:%%|\Z)"
    r"|\[\[[^][\n]*\]\]|\]\([^()\n]*\)",
    re.DOTALL | re.MULTILINE,
)
"""Code, comments and links, in which ``#`` begins no tag."""
_TAG = re.compile(r"(?<![^\s(\[])#(?P<tag>[\w/-]*[^\W\d_][\w/-]*)")


class NoteName(NamedTuple):
    """Title, other names and tags of a note."""

    title: str
    aliases: tuple[str, ...]
    tags: tuple[str, ...]

    def title_of(self, heading: str) -> str:
        """Return the title of a section below some headings."""
        name = f"{self.title} ({', '.join(self.aliases)})" if self.aliases else self.title
        inside = heading.removeprefix(self.title).removeprefix(" > ") if heading.startswith(self.title) else heading
        tags = " ".join(f"#{tag}" for tag in self.tags)
        return " ".join(part for part in (" > ".join(one for one in (name[:MAX_NAME], inside) if one), tags) if part)


def name_of(path: str, text: str) -> NoteName:
    """Return the title, aliases and tags of a note, from its front matter, its text and its file name."""
    found = _FRONT_MATTER.match(text)
    keys = _values(found["lines"]) if found else {}
    title = next(iter(keys.get("title", [])), "") or PurePosixPath(path).stem
    inline = _TAG.findall(_WITHOUT_TAGS.sub("", text[found.end() if found else 0 :]))
    tags = [tag.removeprefix("#") for key in ("tags", "tag") for part in keys.get(key, []) for tag in part.split()]
    aliases = [one for key in ("aliases", "alias") for one in keys.get(key, [])]
    return NoteName(
        " ".join(title.split())[:MAX_NAME], tuple(aliases[:MAX_TAGS]), tuple(dict.fromkeys([*tags, *inline]))[:MAX_TAGS]
    )


def _values(lines: str) -> dict[str, list[str]]:
    """Return the texts under each key: ``key: a``, ``key: [a, b]``, ``key: a, b`` or a list of lines."""
    found: dict[str, list[str]] = {}
    values: list[str] = []
    for line in lines.splitlines():
        match = _KEY.match(line)
        if match is not None:
            key = match["key"].strip("\"' ").lower()
            values = found.setdefault(key, [])
            values += _parts(key, match["value"])
        elif line.lstrip().startswith("- "):
            values += _parts("title", line.lstrip()[2:])
    return found


def _parts(key: str, value: str) -> Iterator[str]:
    is_list = key != "title"
    for part in value.strip().strip("[]").split(",") if is_list else [value]:
        plain = part.strip().strip("\"'").strip()
        if plain:
            yield plain
