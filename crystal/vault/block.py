"""Parse and render the block of memories in a file that agents read, such as AGENTS.md: one list item each. Pure.

The block itself shows what a person changed in it, even on another branch or machine: each item has its memory's id
and a checksum of the text that crystal wrote, and the last line names every item.

Source: docs/adr/0043-memories-in-agents-md.md.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from crystal.errors import UsageError
from crystal.model.named_tuple import NamedTuple
from crystal.model.recall import Remembered

BEGIN = "<!-- crystal files: change, add or delete lines, then run: crystal files sync -->"
TITLE = "## Remembered"
CREATED = 9
"""``lead`` of a block whose file crystal created."""
_BEGIN = re.compile(r"^<!-- crystal files: [^\n]*?-->", re.MULTILINE)
_END = re.compile(r"^<!-- crystal files end ([0-2]|9):((?: [0-9a-f]{12})*) -->", re.MULTILINE)
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)", re.MULTILINE)
_LINE = re.compile(r"^(?=<!-- crystal files| {0,3}```| {0,3}~~~)", re.MULTILINE)
"""Pattern of the beginning of a line that may be one of a block or of fenced code."""
_MARK = re.compile(r"[ \t]*<!-- (mem-[0-9a-f]{12}) ([0-9a-f]{8}) -->")
_ITEM = re.compile(r"[-*+][ \t]+(?=\S)")
_CONFLICT = re.compile(r"^(?:<{7}|={7}|>{7})(?: |$)", re.MULTILINE)


class BlockEntry(NamedTuple):
    """An item or a paragraph of the block.

    Attributes:
        raw: Its lines, unchanged.
        text: Its text, without marks.
        ident: The id of its memory; None if a person added it.
        written: The checksum of the text that crystal wrote.
    """

    raw: str
    text: str
    ident: str | None = None
    written: str | None = None

    @property
    def is_heading(self) -> bool:
        """Return True for a heading, which is not a memory and stays unchanged."""
        return self.ident is None and self.raw.startswith("#")


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """A file, cut at its block.

    Attributes:
        head, tail: The text before and after the block; never changed.
        lead: The number of line ends before the block that belong to it, or ``CREATED``.
        newline: The line end of the file.
        is_there: True if the file has a block.
        entries: The entries of the block, in order.
        listed: The ids of the memories that were in it when crystal wrote it.
    """

    head: str
    tail: str
    lead: int
    newline: str
    is_there: bool
    entries: tuple[BlockEntry, ...] = ()
    listed: tuple[str, ...] = ()

    def with_lines(self, lines: Sequence[str]) -> str:
        """Return the file with these lines in its block."""
        ids = [f" {mark[1].removeprefix('mem-')}" for line in lines for mark in _MARK.finditer(line)]
        whole = [BEGIN, *lines, f"<!-- crystal files end {self.lead}:{''.join(ids)} -->"]
        text = "\n".join(whole).replace("\n", self.newline)
        if self.is_there:
            return self.head + text + self.tail
        return self.head + self.newline * (0 if self.lead == CREATED else self.lead) + text + self.newline

    def without(self) -> str | None:
        """Return the file without its block; None if crystal created the file and nothing else is in it."""
        head = self.head
        for _ in range(self.lead if self.is_there and self.lead != CREATED else 0):
            head = head.removesuffix(self.newline)
        rest = head + self.tail.removeprefix(self.newline)
        return None if self.lead == CREATED and not rest else rest


def parse_block(text: str | None, name: str) -> MemoryBlock:
    """Parse the block of a file; ``text`` is None if the file does not exist.

    Raises:
        UsageError: The block is damaged, in fenced code, or not the only one; ``name`` names the file in the message.
    """
    if text is None:
        return MemoryBlock("", "", CREATED, "\n", is_there=False)
    newline = "\r\n" if "\r\n" in text and text.find("\r\n") == text.find("\n") - 1 else "\n"
    begins, ends, quoted = _lines_of_blocks(text)
    if not begins and not ends:
        return _new_block(text, newline, quoted, name)
    if (len(begins), len(ends)) != (1, 1) or begins[0].end() > ends[0].start():
        where = _line_at(text, (begins or ends)[0].start())
        problem = f"{name}: the block of crystal at line {where} is damaged: it needs one first and one last line"
        raise UsageError(problem, hint="delete the block, then write it again: crystal files sync FILE")
    body = text[begins[0].end() : ends[0].start()].replace("\r\n", "\n")
    if _CONFLICT.search(body):
        raise UsageError(
            f"{name}: the block of crystal has marks of a merge conflict", hint="resolve it, then run it again"
        )
    listed = tuple(f"mem-{one}" for one in ends[0][2].split())
    return MemoryBlock(
        text[: begins[0].start()], text[ends[0].end() :], int(ends[0][1]), newline, is_there=True,
        entries=tuple(_entry(lines) for lines in _groups(body)), listed=listed,
    )  # fmt: skip


def _new_block(text: str, newline: str, quoted: int | None, name: str) -> MemoryBlock:
    """Return the block to add to a file; ``quoted`` is the start of fenced code that prevents this, or None."""
    if quoted is not None:
        problem = f"{name}: the code block at line {_line_at(text, quoted)} is not closed, or holds a block of crystal"
        raise UsageError(problem, hint="close the code block, or move crystal's out of it")
    if text.endswith("\r") and newline == "\n":  # with what follows it would be another line end
        raise UsageError(f"{name}: it ends with a carriage return", hint="end its last line with a line feed")
    lead = next((2 - count for count in (2, 1) if text.endswith(newline * count)), 2) if text else 0
    return MemoryBlock(text, "", lead, newline, is_there=False)


def _line_at(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _lines_of_blocks(text: str) -> tuple[list[re.Match[str]], list[re.Match[str]], int | None]:
    """Return the first and the last lines of blocks outside of fenced code.

    The third value is the start of fenced code that contains such a line or is not closed, or None.
    """
    begins: list[re.Match[str]] = []
    ends: list[re.Match[str]] = []
    fence, opened, wrong = "", 0, None
    for line in _LINE.finditer(text):
        mark = _BEGIN.match(text, line.start()) or _END.match(text, line.start())
        if mark is None and len(begins) == len(ends):  # in a block a fence belongs to a memory
            opened = opened if fence else line.start()
            fence = _fence_after(fence, _FENCE.match(text, line.start()))
        elif mark is not None and fence:
            wrong = opened
        elif mark is not None:
            (begins if mark.re is _BEGIN else ends).append(mark)
    return begins, ends, opened if fence else wrong


def _fence_after(fence: str, line: re.Match[str] | None) -> str:
    """Return the fence that is open after a line, given the one open before it; empty if no fence is open."""
    if line is None:
        return fence
    ticks, rest = line.groups()
    if fence:
        return "" if ticks.startswith(fence) and not rest.strip() else fence
    return "" if ticks.startswith("`") and "`" in rest else str(ticks)


def _groups(body: str) -> Iterator[list[str]]:
    """Yield the lines of each item, paragraph and heading."""
    group: list[str] = []
    for line in body.split("\n"):
        is_in_item = bool(group) and _ITEM.match(group[0]) is not None
        continues = line.startswith(("  ", "\t")) or not line.strip() if is_in_item else bool(line.strip())
        if group and (not continues or (not is_in_item and (_ITEM.match(line) or "#" in (line[0], group[0][0])))):
            yield group
            group = []
        if group or line.strip():
            group.append(line)
    if group:
        yield group


def _entry(lines: list[str]) -> BlockEntry:
    raw = "\n".join(lines).rstrip()
    mark = _MARK.search(raw)
    item = _ITEM.match(lines[0])
    said = _MARK.sub("", raw if item is None else re.sub(r"\n(?:  |\t)", "\n", raw[item.end() :]))
    text = canonical(re.sub(r"<\\(\\*)!--", r"<\1!--", said))
    return BlockEntry(raw, text, *(() if mark is None else mark.groups()))


def canonical(text: str) -> str:
    """Return a text without white space at the ends of lines, which editors change by themselves."""
    return "\n".join(line.rstrip() for line in text.split("\n")).strip()


def checksum(text: str) -> str:
    """Return a checksum that shows whether a text was changed."""
    return hashlib.sha256(canonical(text).encode()).hexdigest()[:8]


def render_item(one: Remembered) -> str:
    """Return the item of a memory, with the text escaped so that it cannot end the block or look like a mark."""
    text = canonical(one.text)
    said = re.sub(r"<(\\*)!--", r"<\\\1!--", text).replace("\n", "\n  ")
    mark = f"<!-- {one.id} {checksum(text)} -->"
    return "- " + "\n".join(line.rstrip() for line in said.split("\n")) + ("\n  " if "\n" in text else " ") + mark


# ------------------------------------------------------------------------------------------------------------- merging


STATES = ("same", "new", "edited", "conflict", "added", "deleted", "gone", "kept")


class BlockRow(NamedTuple):
    """Result of comparing an item of the block with its memory.

    ``state`` is ``same`` (the memory is written), ``new``, ``edited``, ``conflict``, ``added``, ``deleted``, ``gone``
    (the item is removed) or ``kept`` (the item stays unchanged).
    """

    state: str
    entry: BlockEntry | None = None
    memory: Remembered | None = None


def compare(block: MemoryBlock, wanted: Sequence[Remembered], known: frozenset[str]) -> list[BlockRow]:
    """Compare a block with the memories that belong in it.

    Args:
        block: As it is in the file.
        wanted: The memories, in order.
        known: The ids of all memories of this machine, forgotten ones too. Items with other ids stay unchanged.
    """
    left = {one.id: one for one in wanted}
    rows = [_row(entry, left, known) for entry in block.entries]
    rows += [BlockRow("deleted", None, left.pop(ident)) for ident in block.listed if ident in left]
    return [*rows, *(BlockRow("new", None, one) for one in left.values())]


def _row(entry: BlockEntry, left: dict[str, Remembered], known: frozenset[str]) -> BlockRow:
    if entry.is_heading or (entry.ident is not None and entry.ident not in known):
        return BlockRow("kept", entry)
    if not entry.text:
        return BlockRow("gone", entry)
    memory = left.pop(entry.ident or "", None)
    is_edited = entry.written != checksum(entry.text)
    if memory is not None:
        if entry.text == canonical(memory.text) or not is_edited:
            return BlockRow("same", entry, memory)
        return BlockRow("edited" if entry.written == checksum(memory.text) else "conflict", entry, memory)
    twin = next((one for one in left.values() if canonical(one.text) == entry.text), None)
    if twin is not None:
        return BlockRow("same", entry, left.pop(twin.id))
    return BlockRow("added" if is_edited else "gone", entry)
