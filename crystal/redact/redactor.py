"""The Redactor: which strings of a line are looked at, under which names, and what is put in the place of a secret."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b

from crystal.redact.addresses import header_spans
from crystal.redact.lines import JsonString, strings_of
from crystal.redact.named import is_secret_beside
from crystal.redact.names import strength
from crystal.redact.prefilter import families_in, private_prefilter, secret_prefilter
from crystal.redact.private import private_spans
from crystal.redact.recalled import FENCE_NAME, recalled_spans
from crystal.redact.spans import DENSE, MARKER, NAMED, PRIVATE, RECALLED, Cut, Span, masked, merged
from crystal.redact.views import (
    MAX_LEVELS,
    View,
    near_escapes,
    near_markers,
    percent_decoded,
    unescaped,
    unescaped_json,
    unwrapped,
)
from crystal.redact.windows import is_divisible, owned_until, windows
from crystal.redact.work_limit import CALL, FINDING, RedactionWork, TooDenseError

FAILED_LINE = b'{"type":"crystal-redaction-failed"}'
"""What stands in the place of a line that could not be cleaned. It holds nothing of it."""

_MAX_ROUNDS = 50
_MIN_BYTES = 6
"""Bytes below which a string without a telling key holds nothing: the shortest finding is ``pwd=`` and its value."""

_LEAF = 15_000
"""Work for one string that may hold something, whatever it holds."""

_MAX_REMEMBERED_BYTES = 512
_MAX_REMEMBERED = 4096
"""Short texts whose findings are remembered: what is repeated thousands of times is examined once."""


class UnstableRedactionError(Exception):
    """Cleaning went on finding things in its own output. Never seen; the line is given up, not passed on."""


class Redactor:
    """Takes secrets, private spans and what crystal recalled out of transcript lines.

    Args:
        key: A secret of this machine. The hashes in the markers are keyed with it, so that equal secrets are seen
            to be equal here, and nobody without the key can confirm a guess.
        secrets: Whether secrets are taken out. Private spans and recalled text always are.
        keeps_lines: Whether a marker is followed by the line ends of what it stands for, so that no line changes its
            number.
    """

    def __init__(self, key: bytes, *, secrets: bool = True, keeps_lines: bool = False) -> None:
        self._key = key if len(key) <= 64 else blake2b(key).digest()
        self._spans_in: Callable[[bytes, RedactionWork], Iterator[Span]] = _all_spans if secrets else _always_spans
        self._secrets, self._keeps_lines = secrets, keeps_lines
        self._may_hold = secret_prefilter() if secrets else private_prefilter()
        remember = lru_cache(maxsize=_MAX_REMEMBERED)
        self._settle_short = remember(self._settle)
        self._examine_short = remember(self._examined)

    def clean_line(self, line: bytes) -> tuple[bytes, Mapping[str, int]]:
        """Clean one transcript line, given without its newline.

        Returns:
            The line (the same object if nothing was found) and how many findings of each kind were taken out.
            A line that fails in any way is replaced by ``FAILED_LINE`` and counted as ``unprocessable``.
        """
        try:
            settle = self._settle_short if len(line) <= _MAX_REMEMBERED_BYTES else self._settle
            clean, counts = settle(line, self._line_cuts)
            return (clean if counts else line), counts
        except Exception:  # noqa: BLE001 - fail closed: whatever went wrong, nothing of the line may go on
            return FAILED_LINE, {"unprocessable": 1}

    def clean_text(self, text: str) -> tuple[str, Mapping[str, int]]:
        """Clean plain text in the same way; a text that fails in any way becomes ``[private]``."""
        try:
            raw = text.encode("utf-8", "surrogatepass")
            settle = self._settle_short if len(raw) <= _MAX_REMEMBERED_BYTES else self._settle
            clean, counts = settle(raw, self._leaf_cuts)
            return (clean.decode("utf-8", "surrogatepass") if counts else text), counts
        except Exception:  # noqa: BLE001 - as above
            return "[private]", {"unprocessable": 1}

    def findings(self, line: bytes) -> list[tuple[int, str]]:
        """Return where in a transcript line something would be taken out, in bytes, and its kind.

        A line that cannot be handled gives one finding of kind ``unprocessable`` at its start.
        """
        try:
            if not self._may_hold(line):
                return []
            return [(cut.start, cut.kind) for cut in merged(self._line_cuts(line, RedactionWork(len(line))))]
        except Exception:  # noqa: BLE001 - as above
            return [(0, "unprocessable")]

    def _settle(
        self, source: bytes, cuts_of: Callable[[bytes, RedactionWork, bool], list[Cut]]
    ) -> tuple[bytes, Mapping[str, int]]:
        """Clean until nothing more is found. Each round takes something out that is no marker, so this ends."""
        counts: dict[str, int] = {}
        if not self._worth_a_look(source):
            return source, counts
        work = RedactionWork(len(source))
        for number in range(_MAX_ROUNDS):
            cuts = merged(cuts_of(source, work, number > 0))
            if not cuts:
                return source, counts
            for cut in cuts:
                counts[cut.kind] = counts.get(cut.kind, 0) + 1
            source = self._spliced(source, cuts)
        raise UnstableRedactionError

    def _worth_a_look(self, source: bytes) -> bool:
        """Return whether the source may hold something beside its markers, which attract most rules."""
        for start, end in windows(source, 0, len(source)):
            text = source[start:end]
            if self._may_hold(text) and ((plain := masked(text)) is text or self._may_hold(plain)):
                return True
        return False

    def _spliced(self, source: bytes, cuts: list[Cut]) -> bytes:
        parts: list[bytes] = []
        at = 0
        for cut in cuts:
            marker = b"[private]" if cut.rank == PRIVATE else b"[recalled]"
            if cut.rank > RECALLED:
                digest = blake2b(cut.secret, key=self._key, digest_size=4, person=b"crystal-redact").hexdigest()
                marker = f"[redacted:{cut.kind}:{digest}]".encode()
            lines = source.count(b"\n", cut.start, cut.end) if self._keeps_lines else 0
            parts += (source[at : cut.start], marker, b"\n" * lines)
            at = cut.end
        parts.append(source[at:])
        return b"".join(parts)

    def _line_cuts(self, line: bytes, work: RedactionWork, again: bool = False) -> list[Cut]:
        pieces = strings_of(line)
        if pieces is None:
            return self._cuts_in(line, 0, len(line), b"", work, again, _as_it_is)
        if again:
            pieces = [piece for piece in pieces if MARKER.search(line, piece.start, piece.end)]
        cuts: list[Cut] = []
        plain: list[JsonString] = []
        for piece in pieces:
            if self._secrets and _is_telling(piece):
                cuts += self._piece_cuts(line, piece, piece.name, work, again)
            elif piece.end - piece.start >= _MIN_BYTES:
                plain.append(piece)
        for piece in self._holding(line, plain):
            cuts += self._piece_cuts(line, piece, b"", work, again)
        return cuts

    def _holding(self, line: bytes, pieces: list[JsonString]) -> list[JsonString]:
        """Return which strings of a line that holds something may hold it: most hold nothing, so half by half."""
        if len(pieces) < 2:
            return pieces
        half = len(pieces) // 2
        first = self._holding(line, pieces[:half]) if self._may_hold_in(line, pieces[:half]) else []
        if first and not self._may_hold_in(line, pieces[half:]):
            return first
        return [*first, *self._holding(line, pieces[half:])]

    def _may_hold_in(self, line: bytes, pieces: list[JsonString]) -> bool:
        spans = windows(line, pieces[0].start, pieces[-1].end)
        return any(self._may_hold(masked(line[start:end])) for start, end in spans)

    def _piece_cuts(self, line: bytes, piece: JsonString, name: bytes, work: RedactionWork, again: bool) -> list[Cut]:
        """Clean one string of a JSON line: ``line[piece.start:piece.end]`` is what stands between its quotes."""
        return self._cuts_in(line, piece.start, piece.end, name, work, again, unescaped_json)

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
        """Look at ``line[start:end]`` as ``read`` shows it: at once, or window by window where it is huge."""
        spans = windows(line, start, end) if not name and is_divisible(line, start, end) else ((start, end),)
        cuts: list[Cut] = []
        for at, stop in spans:
            inner = line[at:stop]
            view = read(inner)
            found = _moved(self._leaf_cuts(inner if view is None else view.text, work, again, name), view, at)
            until = owned_until(stop, end)  # the next window sees what begins later, and all of it
            cuts += [cut for cut in found if start <= cut.start < until or cut.rank == DENSE]
            start = until
        return cuts

    def _leaf_cuts(self, leaf: bytes, reserve: RedactionWork, again: bool, name: bytes = b"") -> list[Cut]:
        """Look at one string. One that holds more than can be examined one by one is taken out whole.

        Args:
            leaf: What its reader sees.
            reserve: The work that its line keeps in reserve.
            again: All was looked at: only what stands near a marker may have changed.
            name: What it stands under, if that tells of a secret.
        """
        if MARKER.fullmatch(leaf) or (again and not name and not self._may_hold(masked(leaf))):
            return []
        try:
            if len(leaf) > _MAX_REMEMBERED_BYTES:
                near = near_markers(leaf) if again else None
                work = RedactionWork(len(leaf), reserve)
                return _moved(self._examine(leaf if near is None else near.text, name, work), near, 0)
            reserve.spend(_LEAF)  # where the reserve is spent, nothing more is examined
            found, spent = self._examine_short(leaf, name)
            reserve.spend(spent - _LEAF)
            return found
        except TooDenseError:
            return [Cut(0, len(leaf), "dense", DENSE, leaf)]

    def _examined(self, leaf: bytes, name: bytes) -> tuple[list[Cut], int]:
        """Look at a short string; return the work as well, which its line pays each time: what is remembered too."""
        work = RedactionWork(len(leaf))
        given = work.left
        return self._examine(leaf, name, work), given - work.left

    def _examine(self, leaf: bytes, name: bytes, work: RedactionWork) -> list[Cut]:
        work.spend(_LEAF)
        return self._text_cuts(leaf, work) + (_named_leaf(name, leaf, work) if name else [])

    def _text_cuts(self, text: bytes, work: RedactionWork, level: int = 0) -> list[Cut]:
        """Look at the text as it is, with lines joined, and as it reads with each of its levels of encoding undone."""
        cuts = self._plain_cuts(text, work)
        if self._secrets:
            cuts += _structured_cuts(text, work)
            joined = unwrapped(text)
            if joined is not None:
                work.spend(len(text) * 2)
                cuts += _moved(self._plain_cuts(joined.text, work), joined, 0)
        if level < MAX_LEVELS:
            cuts += self._decoded_cuts(text, work, level)
        return cuts

    def _plain_cuts(self, text: bytes, work: RedactionWork) -> list[Cut]:
        return [
            Cut(start, end, kind, rank, text[start:end])
            for start, end, kind, rank in self._spans_in(text, work)
            if start < end
        ]

    def _decoded_cuts(self, text: bytes, work: RedactionWork, level: int) -> list[Cut]:
        """Look at the text with one level of escaping undone, or else with the encoding of URLs undone."""
        near = near_escapes(text)
        part = text if near is None else near.text
        view = unescaped(part)
        if view is None and self._secrets:
            near, part, view = None, text, percent_decoded(text)
        if view is None:
            return []
        work.spend(len(part) * 10 + (part.count(b"\\u") + part.count(b"%")) * CALL // 4)
        return _moved(_moved(self._text_cuts(view.text, work, level + 1), view, 0), near, 0)


def _as_it_is(_: bytes) -> None:
    return None


def _moved(cuts: list[Cut], view: View | None, offset: int) -> list[Cut]:
    """Carry cuts of a view, or of a text that stands at ``offset``, back to where they stand in the whole."""
    if not cuts:
        return cuts
    places = [cut[:2] for cut in cuts] if view is None else view.lead_back(cut[:2] for cut in cuts)
    return [
        Cut(offset + start, offset + end, cut.kind, cut.rank, cut.secret)
        for cut, (start, end) in zip(cuts, places, strict=True)
    ]


def _is_telling(piece: JsonString) -> bool:
    return bool(piece.name) and strength(piece.name) is not None


def _structured_cuts(text: bytes, work: RedactionWork, level: int = 0) -> list[Cut]:
    """Judge the strings of a text that is itself JSON by the keys that they stand under, and JSON in them likewise."""
    cuts: list[Cut] = []
    if text.lstrip()[:1] not in (b"{", b"[", b'"'):
        return cuts
    work.spend(text.count(b'"') * CALL // 8)
    pieces = strings_of(text) or ()
    work.spend(len(pieces) * CALL // 2)
    for piece in pieces:
        inner = text[piece.start : piece.end]
        telling = _is_telling(piece)
        if not telling and inner[:1] not in (b"{", b"["):
            continue
        view = unescaped_json(inner)
        leaf = inner if view is None else view.text
        found = _named_leaf(piece.name, leaf, work) if telling else []
        if view is not None and level < MAX_LEVELS:
            found += _structured_cuts(leaf, work, level + 1)
        cuts += _moved(found, view, piece.start)
    return cuts


def _named_leaf(name: bytes, leaf: bytes, work: RedactionWork) -> list[Cut]:
    """Judge a whole JSON string by the key that it stands under, and what a header of that name would hold."""
    work.spend(2 * FINDING)
    plain = masked(leaf)
    kind = is_secret_beside(name, plain)
    cuts = [Cut(0, len(leaf), kind, NAMED, leaf)] if kind else []
    shift = len(name) + 2
    for start, end, kind, rank in header_spans(name + b": " + plain, work):
        if start >= shift:
            cuts.append(Cut(start - shift, end - shift, kind, rank, leaf[start - shift : end - shift]))
    return cuts


def _always_spans(text: bytes, work: RedactionWork) -> Iterator[Span]:
    yield from (Span(*place, "private-span", PRIVATE) for place in private_spans(text, work))
    if FENCE_NAME in text:
        yield from (Span(*place, "recalled", RECALLED) for place in recalled_spans(text, work))


def _all_spans(text: bytes, work: RedactionWork) -> Iterator[Span]:
    yield from _always_spans(text, work)
    plain = masked(text)
    work.spend(CALL + 6 * len(plain))
    for rules in families_in(plain):
        work.spend(CALL + 2 * len(plain))
        yield from rules(plain, work)
