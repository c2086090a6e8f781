"""Clean transcript lines: choose the strings to search and the names they are under, and replace what is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from itertools import chain

from crystal.redact.lines import JsonStrings, strings_of
from crystal.redact.named_strings import add_structured, named_cuts
from crystal.redact.prefilter import families_in, private_prefilter, secret_prefilter
from crystal.redact.private import PRIVATE_TAG, private_spans
from crystal.redact.recalled import FENCE_NAME, FENCE_TAG, recalled_spans
from crystal.redact.spans import (
    DENSE,
    MARKER,
    PRIVATE,
    RECALLED,
    Cut,
    Span,
    masked,
    merged,
    string_around,
)
from crystal.redact.views import (
    MAX_LEVELS,
    View,
    moved,
    near_escapes,
    near_markers,
    percent_decoded,
    readable,
    unescaped,
    unwrapped,
)
from crystal.redact.windows import is_divisible, owned_until, windows
from crystal.redact.work_limit import CALL, FINDING, RedactionWork, TooDenseError

FAILED_LINE = b'{"type":"crystal-redaction-failed"}'
"""Line kept in place of one that could not be cleaned. It holds nothing of that line."""

_MAX_ROUNDS = 50
_TEXT_COST = 120_000
"""Work for one text that may hold something, before anything is found."""

_STRING = 400
"""Work for one string of a line: finding it, its name and whether it is harmless."""

_MIN_LINE_PART = 0.9
"""The part of a line from which on a string is not given to the prefilter: its line was."""

_MAX_REMEMBERED_BYTES = 512
_MAX_REMEMBERED = 4096
"""Limits of the short texts whose results are cached: many lines repeat thousands of times."""


class UnstableRedactionError(Exception):
    """Cleaning found more in its own output after every round. The line is replaced whole."""


class Redactor:
    """Removes secrets, private spans and recalled text from transcript lines.

    Args:
        key: A secret of this machine. The hashes in the markers are keyed with it: equal secrets have equal markers
            here, and nobody without the key can confirm a guess.
        secrets: Also remove secrets. Private spans and recalled text are always removed.
        keeps_lines: Let the line ends of what a marker replaces follow it, so that no line changes its number.
    """

    def __init__(self, key: bytes, *, secrets: bool = True, keeps_lines: bool = False) -> None:
        self._key = key if len(key) <= 64 else blake2b(key).digest()
        self._spans_in: Callable[[bytes, RedactionWork], Iterator[Span]] = _all_spans if secrets else _always_spans
        self._secrets, self._keeps_lines = secrets, keeps_lines
        self._may_hold = secret_prefilter() if secrets else private_prefilter()
        self._settle_short = lru_cache(maxsize=_MAX_REMEMBERED)(self._settle)
        self._marker = lru_cache(maxsize=_MAX_REMEMBERED)(self._new_marker)

    def clean_line(self, line: bytes) -> tuple[bytes, Mapping[str, int]]:
        """Clean one transcript line, given without its newline.

        Returns:
            The line (the same object if nothing was found) and the number of removed findings of each kind.
            A line that fails in any way is replaced by ``FAILED_LINE`` and counted as ``unprocessable``.
        """
        try:
            settle = self._settle_short if len(line) <= _MAX_REMEMBERED_BYTES else self._settle
            clean, counts = settle(line, strings_of)
            return (clean if counts else line), counts
        except Exception:  # noqa: BLE001 - fail closed: after any error, nothing of the line may be stored
            return FAILED_LINE, {"unprocessable": 1}

    def clean_text(self, text: str) -> tuple[str, Mapping[str, int]]:
        """Clean plain text in the same way; a text that fails in any way becomes ``[private]``."""
        try:
            raw = text.encode("utf-8", "surrogatepass")
            settle = self._settle_short if len(raw) <= _MAX_REMEMBERED_BYTES else self._settle
            clean, counts = settle(raw, _as_it_is)
            return (clean.decode("utf-8", "surrogatepass") if counts else text), counts
        except Exception:  # noqa: BLE001 - as above
            return "[private]", {"unprocessable": 1}

    def findings(self, line: bytes) -> list[tuple[int, str]]:
        """Return the place in bytes and the kind of each finding that would be removed from a transcript line.

        A line that cannot be handled gives one finding of kind ``unprocessable`` at its start.
        """
        try:
            line = readable(line)
            if not self._may_hold(line, len(line)):
                return []
            cuts = self._cuts(line, strings_of(line), RedactionWork(len(line)))
            return [place for cut in merged(cuts) for place in [(cut.start, cut.kind)] * cut.times]
        except Exception:  # noqa: BLE001 - as above
            return [(0, "unprocessable")]

    def _settle(self, source: bytes, read: Callable[[bytes], JsonStrings | None]) -> tuple[bytes, Mapping[str, int]]:
        """Clean until nothing more is found. Each round removes something that is no marker, so this ends.

        Args:
            source: A line or a text.
            read: Divides it into strings, of which only those that were changed are searched again.
        """
        counts: dict[str, int] = {}
        if not self._may_hold_anything(source):
            return source, counts
        work = RedactionWork(len(source))
        strings = read(source)
        for number in range(_MAX_ROUNDS):
            cuts = merged(self._cuts(readable(source), strings, work, number > 0))
            if not cuts:
                return source, counts
            for cut in cuts:
                counts[cut.kind] = counts.get(cut.kind, 0) + cut.times
            marks = [self._mark(source, cut) for cut in cuts]
            source = self._spliced(source, cuts, marks)
            strings = strings and strings.changed(source, cuts, [*map(len, marks)])
        raise UnstableRedactionError

    def _may_hold_anything(self, source: bytes) -> bool:
        """Return whether the source may hold anything beside its markers, which most rules would match."""
        source = readable(source)
        return any(
            self._may_hold(masked(source[start:end]), end - start) for start, end in windows(source, 0, len(source))
        )

    def _mark(self, source: bytes, cut: Cut) -> bytes:
        if cut.instead is not None:
            return cut.instead
        lines = source.count(b"\n", cut.start, cut.end) if self._keeps_lines else 0
        return self._marker(cut.rank, cut.kind, cut.secret) + b"\n" * lines

    def _spliced(self, source: bytes, cuts: list[Cut], marks: list[bytes]) -> bytes:
        """Return the source with the marks in the place of the cuts."""
        ends = [0, *(cut.end for cut in cuts)]
        parts = [source[end : cut.start] for end, cut in zip(ends, cuts, strict=False)]
        return b"".join(chain.from_iterable(zip(parts, marks, strict=True))) + source[ends[-1] :]

    def _new_marker(self, rank: int, kind: str, secret: bytes) -> bytes:
        if rank <= RECALLED:
            return b"[private]" if rank == PRIVATE else b"[recalled]"
        digest = blake2b(secret, key=self._key, digest_size=4, person=b"crystal-redact").hexdigest()
        return f"[redacted:{kind}:{digest}]".encode()

    def _cuts(self, line: bytes, strings: JsonStrings | None, work: RedactionWork, again: bool = False) -> list[Cut]:
        """Search the strings of a JSON line, or a text that is not JSON."""
        if strings is None:
            return self._cuts_in(line, 0, len(line), b"", work, again, _as_it_is)
        cuts: list[Cut] = []
        if not again:
            work.spend(min(len(strings) * _STRING, work.left // 2))
        for group in strings.groups():
            names = strings.names_in(group) if self._secrets else {}
            if len(group) == 1:
                place, name = (strings.start(group.start), strings.end(group.start)), names.get(0, b"")
                cuts += self._cuts_in(line, *place, name, work, again, unescaped)
                continue
            joined = strings.joined(group)
            try:
                found = self._searched(joined, unescaped, strings.longest(group), names, work, again)
                cuts += strings.placed(found, group)
            except TooDenseError:
                marker = self._marker(DENSE, "dense", joined)
                cuts += strings.whole(group, joined, marker, lambda one: self._may_hold(masked(one), len(one)))
        return cuts

    def _cuts_in(
        self,
        line: bytes,
        start: int,
        end: int,
        name: bytes,
        work: RedactionWork,
        again: bool,
        read: Callable[[bytes], View | None],
    ) -> list[Cut]:
        """Search ``line[start:end]`` as ``read`` shows it: at once, or window by window where it is huge."""
        spans = windows(line, start, end) if not name and is_divisible(line, start, end) else ((start, end),)
        cuts: list[Cut] = []
        for at, stop in spans:
            inner = line[at:stop]
            looked_at = not again and len(inner) > _MIN_LINE_PART * len(line)
            try:
                found = self._searched(inner, read, len(inner), {0: name} if name else {}, work, again, looked_at)
            except TooDenseError:
                found = [Cut(0, len(inner), "dense", DENSE, inner)]
            until = owned_until(stop, end)  # the next window sees what begins later, and all of it
            cuts += [cut for cut in moved(found, None, at) if start <= cut.start < until or cut.rank == DENSE]
            start = until
        return cuts

    def _searched(
        self,
        source: bytes,
        read: Callable[[bytes], View | None],
        longest: int,
        names: dict[int, bytes],
        reserve: RedactionWork,
        again: bool,
        looked_at: bool = False,
    ) -> list[Cut]:
        """Search a string of a line, several joined by ``STRING_END``, or a text.

        Args:
            source: As it is between its quotes.
            read: Shows it as its reader sees it.
            longest: Bytes of the longest of the strings, or more.
            names: The telling names of some of these, by number.
            reserve: The work of the line.
            again: All was searched before: only what is near a marker can have changed.
            looked_at: The prefilter let it pass, as most of its line.

        Raises:
            TooDenseError: There is more in it than can be examined.
        """
        view = read(source)
        text = source if view is None else view.text
        work = RedactionWork(len(text), reserve)
        work.spend(len(names) * FINDING)
        if MARKER.fullmatch(text):
            return []
        cuts: list[Cut] = []
        near = near_markers(text) if again else None
        part = text if near is None else near.text
        if looked_at or self._may_hold(masked(part), longest):
            work.spend(_TEXT_COST)
            cuts = moved(self._text_cuts(part, work), near, 0)
        return moved(cuts + named_cuts(names, text, work) if names else cuts, view, 0)

    def _text_cuts(self, text: bytes, work: RedactionWork, level: int = 0, in_json: bool = False) -> list[Cut]:
        """Search the text as it is, with lines joined, and with each of its levels of encoding undone.

        Args:
            text: The text.
            work: What is charged.
            level: How many levels are already undone.
            in_json: The text was JSON one level before: its strings were read one by one, and it is JSON no more.
        """
        cuts = self._plain_cuts(text, work)
        if self._secrets:
            in_json = in_json or add_structured(cuts, text, work)
            joined = unwrapped(text)
            if joined is not None:
                work.spend(len(text) * 2)
                cuts += moved(self._plain_cuts(joined.text, work), joined, 0)
        if level < MAX_LEVELS:
            cuts += self._decoded_cuts(text, work, level, in_json)
        return cuts

    def _plain_cuts(self, text: bytes, work: RedactionWork) -> list[Cut]:
        return [
            Cut(start, end, kind, rank, text[start:end])
            for start, end, kind, rank in self._spans_in(text, work)
            if start < end
        ]

    def _decoded_cuts(self, text: bytes, work: RedactionWork, level: int, in_json: bool) -> list[Cut]:
        """Search the text with one level of escaping undone, or else with the encoding of URLs undone."""
        has_escapes = b"\\" in text or b"\x1b" in text
        near = near_escapes(text) if has_escapes else None
        part = text if near is None else near.text
        view = unescaped(part) if has_escapes else None
        if view is None and self._secrets:
            near, part, view = None, text, percent_decoded(text)
        if view is None:
            return []
        work.spend(len(part) * 10 + (part.count(b"\\u") + part.count(b"%")) * CALL // 8)
        return moved(moved(self._text_cuts(view.text, work, level + 1, in_json), view, 0), near, 0)


def _as_it_is(_: bytes) -> None:
    return None


def _always_spans(text: bytes, work: RedactionWork) -> Iterator[Span]:
    small = text.lower()
    for word, tag, rule, kind, rank in (
        (b"private", PRIVATE_TAG, private_spans, "private-span", PRIVATE),
        (FENCE_NAME, FENCE_TAG, recalled_spans, "recalled", RECALLED),
    ):
        found = tag.search(text) if word in small else None
        while found is not None:
            work.spend(CALL)
            begin, end = string_around(text, found.start())
            yield from (Span(begin + start, begin + stop, kind, rank) for start, stop in rule(text[begin:end], work))
            found = tag.search(text, end)


def _all_spans(text: bytes, work: RedactionWork) -> Iterator[Span]:
    yield from _always_spans(text, work)
    plain = masked(text)
    work.spend(CALL + 6 * len(plain))
    for rules in families_in(plain):
        work.spend(CALL + 2 * len(plain))
        yield from rules(plain, work)
