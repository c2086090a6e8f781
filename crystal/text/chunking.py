"""Split a turn's text into chunks: exact slices of about 400 tokens, overlapping, cut at natural boundaries.

Pure, linear in the length of the text, and lossless: ``merge(split(text)) == text``. Tokens are estimated as UTF-8
bytes / 4, which needs no tokenizer and is close for English and code.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable

from crystal.model.capture import Chunk
from crystal.text.grapheme import boundary_after, boundary_before

TOKENS = 400
OVERLAP = 80
_BYTES_PER_TOKEN = 4
_SWALLOWED_SPACE = 200

_FENCE = re.compile(r"^[ \t]{0,3}(`{3,}|~{3,})([^\n]*)\n?", re.MULTILINE)
_SPACE = re.compile(rf"\s{{1,{_SWALLOWED_SPACE}}}")
_SENTENCE_ENDS = (". ", "? ", "! ", ".\t", "。", "！", "？", "; ")  # noqa: RUF001 (full-width marks end sentences)


def split(text: str, *, tokens: int = TOKENS, overlap: int = OVERLAP) -> list[Chunk]:
    """Cut the text into overlapping chunks; a short text is one chunk, an empty one none.

    A cut is made at the end of a paragraph, else before a heading, at the edge of a code fence, after a line, a
    sentence, a word, in this order, within the second half of the chunk; never inside a character as a reader
    sees it. A code fence that fits into one chunk is not split. Every character is in a chunk; chunks are in
    order, and each begins and ends later than the one before.

    Args:
        text: Any text.
        tokens: Maximum estimated tokens of a chunk, without white space after a cut.
        overlap: Maximum estimated tokens that the next chunk repeats.
    """
    if tokens < 1 or not 0 <= overlap < tokens:
        raise ValueError(f"tokens must be positive and more than overlap, not {tokens} and {overlap}")
    return _Splitter(text, tokens * _BYTES_PER_TOKEN, overlap * _BYTES_PER_TOKEN).chunks()


def merge(chunks: Iterable[Chunk]) -> str:
    """Combine the chunks of one text to the text.

    Raises:
        ValueError: A part of the text is in no chunk.
    """
    parts: list[str] = []
    length = 0
    for chunk in sorted(chunks, key=lambda chunk: chunk.start):
        if chunk.start > length:
            raise ValueError(f"characters {length} to {chunk.start} are in no chunk")
        parts.append(chunk.text[length - chunk.start :])
        length = max(length, chunk.start + len(chunk.text))
    return "".join(parts)


class _Splitter:
    """A text being split. Positions are indexes of characters; budgets are bytes of UTF-8."""

    def __init__(self, text: str, budget: int, overlap: int) -> None:
        self.text = text
        self.budget = budget
        self.overlap = overlap
        self.ascii = text.isascii()
        self.fences = code_fences(text)
        self.fence_starts = [start for start, _ in self.fences]

    def chunks(self) -> list[Chunk]:
        text, end_of_text = self.text, len(self.text)
        chunks: list[Chunk] = []
        start = done = 0
        while done < end_of_text:
            reach = self._forward(start, self.budget)
            end = end_of_text if reach >= end_of_text else self._cut(start, done, reach)
            chunks.append(Chunk(start, text[start:end]))
            start, done = self._next_start(start, end), end
        return chunks

    def _cut(self, start: int, done: int, reach: int) -> int:
        """Return the end of the chunk that begins at ``start``: after ``done``, at ``reach`` or a little before."""
        reach = max(reach, done + 1)
        low = max(done, start + (reach - start) // 2)
        cut = self._preferred(low, reach) or boundary_before(self.text, reach, done)
        if cut <= done:
            cut = boundary_after(self.text, reach, done)
        return self._after_space(self._around_fence(cut, start, done, reach))

    def _after_space(self, cut: int) -> int:
        """Move a cut after blank lines and spaces, so that no chunk consists of them; an indent stays with its line."""
        space = _SPACE.match(self.text, cut)
        if space is None:
            return cut
        end = space.end()
        if end < len(self.text) and "\n" in self.text[cut - 1 : end]:
            end = self.text.rfind("\n", cut - 1, end) + 1
        return max(cut, boundary_before(self.text, end, cut))

    def _preferred(self, low: int, high: int) -> int | None:
        """Return the best cut in ``(low, high]``: the strongest kind of boundary, the last of its kind."""
        find = self.text.rfind
        paragraph = max(find("\n\n", low, high), find("\n\r\n", low, high))
        if paragraph > low:
            return self._before_heading(low, paragraph + 1)
        heading = find("\n#", low, high)
        if heading >= low:
            return heading + 1
        fence = max(find("\n```", low, high), find("\n~~~", low, high))
        if fence >= low:
            return fence + 1
        line = find("\n", low, high)
        if line >= low:
            return line + 1
        sentences = [place + len(mark) for mark in _SENTENCE_ENDS if (place := find(mark, low, high)) >= 0]
        for place in (max(sentences, default=low), find(" ", low, high) + 1):
            cut = boundary_before(self.text, place, low) if place > low else low
            if cut > low:
                return cut
        return None

    def _before_heading(self, low: int, cut: int) -> int:
        """Move a cut between a heading and its text to before the heading."""
        line = self.text.rfind("\n", low, cut - 1) + 1
        return line if line > low and self.text.startswith("#", line) else cut

    def _around_fence(self, cut: int, start: int, done: int, reach: int) -> int:
        """Move a cut out of a code fence, if this chunk or the next can contain the whole fence."""
        fence = self._fence_around(cut)
        if fence is None:
            return cut
        begin, end = fence
        if end <= reach:
            return end
        if begin > done and begin > start and self._bytes(begin, end) <= self.budget:
            return begin
        return cut

    def _fence_around(self, place: int) -> tuple[int, int] | None:
        index = bisect_right(self.fence_starts, place) - 1
        if index < 0:
            return None
        begin, end = self.fences[index]
        return (begin, end) if begin < place < end else None

    def _next_start(self, start: int, end: int) -> int:
        """Return where the next chunk begins: up to ``overlap`` before ``end``, at a boundary, after ``start``."""
        allowed = self.overlap
        index = bisect_right(self.fence_starts, end) - 1
        if index >= 0 and self.fence_starts[index] == end:
            size = self._bytes(*self.fences[index])
            allowed = min(allowed, self.budget - size) if size <= self.budget else 0
        earliest = self._backward(end, allowed) if allowed > 0 else end
        if earliest <= start:
            return end
        return self._overlap_boundary(start, earliest, end)

    def _overlap_boundary(self, start: int, earliest: int, end: int) -> int:
        """Return the first good start of an overlap: a line, a sentence, a word, else any boundary."""
        text, middle = self.text, (earliest + end) // 2
        line = text.find("\n", earliest, middle)
        if line >= 0:
            return line + 1
        sentence = text.find(". ", earliest, middle)
        if sentence >= 0:
            return sentence + 2
        word = text.find(" ", earliest, middle)
        place = word + 1 if word >= 0 else earliest
        return min(boundary_after(text, place, start), end)

    def _forward(self, start: int, budget: int) -> int:
        """Return the furthest end of ``text[start:end]`` that fits into the budget, at least one character."""
        end = start + budget
        if self.ascii:
            return min(end, len(self.text))
        data = self.text[start:end].encode("utf-8", "surrogatepass")
        if len(data) <= budget:
            return start + min(budget, len(self.text) - start)
        return start + max(1, _whole_characters(data[:budget]))

    def _backward(self, end: int, budget: int) -> int:
        """Return the earliest start of ``text[start:end]`` that fits into the budget."""
        start = max(0, end - budget)
        if self.ascii:
            return start
        data = self.text[start:end].encode("utf-8", "surrogatepass")
        return end - sum(byte & 0xC0 != 0x80 for byte in data[-budget:]) if len(data) > budget else start

    def _bytes(self, start: int, end: int) -> int:
        """Return the size of a part of the text; anything beyond the budget counts as one more than it."""
        if end - start > self.budget:
            return self.budget + 1
        return end - start if self.ascii else len(self.text[start:end].encode("utf-8", "surrogatepass"))


def _whole_characters(data: bytes) -> int:
    return len(data.decode("utf-8", "ignore"))


def code_fences(text: str) -> list[tuple[int, int]]:
    """Return (start, end) of every closed code fence, its lines included."""
    if "```" not in text and "~~~" not in text:
        return []
    fences: list[tuple[int, int]] = []
    opened: re.Match[str] | None = None
    for match in _FENCE.finditer(text):
        if opened is None:
            opened = match
        elif match[1].startswith(opened[1]) and not match[2].strip():
            fences.append((opened.start(), match.end()))
            opened = None
    return fences
