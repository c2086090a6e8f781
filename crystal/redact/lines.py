"""The strings of a JSON line and the names they stand under, found without building the JSON.

Nothing is parsed, so nothing is re-written: numbers, white space, the order of keys and a nesting a million deep stay
as they are. A line counts as JSON here if what lies between its strings can only be JSON; otherwise it is text.

A line may hold a hundred thousand strings, so what is known of each stands in a column, filled by one call for all.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import accumulate, chain, compress, filterfalse, pairwise, repeat
from operator import add, sub

from crystal.redact.names import strength
from crystal.redact.regex_engines import LARGE, Lazy
from crystal.redact.spans import DENSE, MARKER, STRING_END, Cut
from crystal.redact.views import readable

_BETWEEN = Lazy(rb"[\s{}\[\]:,0-9eE+\-.trufalsnNIity]*")
_SPACES = b" \t\r\n"
_NAMING_KEYS = frozenset((b"name", b"Name", b"key", b"Key", b"variable"))
_VALUE_KEYS = frozenset((b"value", b"Value", b"default"))
_QUOTE = Lazy(rb'(?s)\\.|"')
_MAX_NAME = 4096
_FLAG = Lazy(rb"--?[A-Za-z][\w-]{0,76}")

MAX_GROUP = 8 * 1024
"""Bytes of short strings that are read as one text: every view of it is whole, and what is dense in it is little."""
_ASKED = 64
"""The part of a line whose dense strings are asked about one by one, beside a group: each new byte may cost four
microseconds, because the automata grow."""
_ASKING = 50
"""Price of asking for a string of any length, in bytes."""

_MIN_SECRET = 7
"""Bytes of the shortest string in which a rule finds anything: ``pwd=abc``."""

_HARMLESS = Lazy(
    rb"(?:(?:[A-Za-z]{1,15}|\d{1,4})(?:[._/-](?:[A-Za-z]{1,15}|\d{1,4})){0,10})?"
    rb"|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    rb"|(?:toolu|msg|req|call)_[A-Za-z0-9]{20,32}"
    rb"|\d{4}-\d\d-\d\dT[\d:.]{8,15}Z?"
)
"""Strings that lines of transcripts are made of, and that no rule finds anything in."""


class JsonStrings:
    """Strings of a JSON line in order, keys among them; the n-th stands at ``line[starts[n]:ends[n]]``."""

    def __init__(
        self,
        source: bytes,
        starts: list[int],
        ends: list[int],
        names_of: Callable[[], dict[int, bytes]],
        texts: list[bytes] | None = None,
    ) -> None:
        self._source, self.line = source, readable(source)
        self.starts, self.ends, self._names_of, self._all_texts = starts, ends, names_of, texts
        self._places = [0, *accumulate(map(len(STRING_END).__add__, map(sub, ends, starts)))]
        self._left_to_ask = MAX_GROUP + len(source) // _ASKED
        self._answers: dict[bytes, bool] = {}

    @cached_property
    def names(self) -> dict[int, bytes]:
        """Return the names that tell of a secret, by the numbers of the strings under them."""
        return self._names_of()

    @cached_property
    def _named(self) -> list[int]:
        return sorted(self.names)

    def changed(self, source: bytes, cuts: Iterable[Cut], sizes: Iterable[int]) -> JsonStrings:
        """Return the strings of which a part was cut out, as they stand in the line that has come of it.

        Args:
            source: The new line.
            cuts: What was cut out of the old one, in order.
            sizes: How many bytes stand in the place of each cut.
        """
        starts: list[int] = []
        ends: list[int] = []
        numbers: list[int] = []
        shift = 0
        for cut, size in zip(cuts, sizes, strict=True):
            grown = size - (cut.end - cut.start)
            number = bisect_right(self.starts, cut.start) - 1
            if numbers and numbers[-1] == number:
                ends[-1] += grown
            elif cut.start > self.starts[number] or cut.end < self.ends[number]:
                numbers.append(number)
                starts.append(self.starts[number] + shift)
                ends.append(self.ends[number] + shift + grown)
            shift += grown
        names = {at: self.names[number] for at, number in enumerate(numbers) if number in self.names}
        return JsonStrings(source, starts, ends, lambda: names)

    def groups(self) -> Iterator[range]:
        """Yield the numbers of all strings in groups: as many short ones as fit, or one long one."""
        first = 0
        while first < len(self.starts):
            stop = max(first + 1, bisect_right(self._places, self._places[first] + MAX_GROUP) - 1)
            yield range(first, stop)
            first = stop

    def joined(self, group: range) -> bytes:
        """Return the text that strings are read as."""
        return STRING_END.join(self._texts(group, self.line))

    def _texts(self, group: range, source: bytes) -> Sequence[bytes]:
        if self._all_texts is not None and source is self.line:
            return self._all_texts[group.start : group.stop]
        places = map(slice, self.starts[group.start : group.stop], self.ends[group.start : group.stop])
        return [*map(source.__getitem__, places)]

    def names_in(self, group: range) -> dict[int, bytes]:
        """Return the names that tell of a secret, by the place of the strings under them in the group."""
        named = self._named[bisect_left(self._named, group.start) : bisect_left(self._named, group.stop)]
        return {number - group.start: self.names[number] for number in named}

    def placed(self, cuts: Iterable[Cut], group: range) -> Iterator[Cut]:
        """Carry cuts of the text of a group back to the line; one that goes on into the next string is divided."""
        for cut in cuts:
            start, end = cut.start + self._places[group.start], cut.end + self._places[group.start]
            number = bisect_right(self._places, start) - 1
            while self._places[number] < end:
                shift = self.starts[number] - self._places[number]
                begin, stop = max(start + shift, self.starts[number]), min(end + shift, self.ends[number])
                if begin < stop:
                    yield Cut(begin, stop, cut.kind, cut.rank, cut.secret)
                number += 1

    def whole(self, group: range, text: bytes, marker: bytes, may_hold: Callable[[bytes], bool]) -> list[Cut]:
        """Take out whole the strings of a group that holds more than can be examined, with one cut for all.

        Those stay that can hold nothing: words, ids and times, and what ``may_hold`` says has nothing for a rule.
        """
        named = self.names_in(group)
        strings = self._texts(group, self._source)
        others = set(strings) if len(named) < len(strings) else set()
        gone = {*filterfalse(_HARMLESS.fullmatch, (one for one in others if len(one) >= _MIN_SECRET))}
        if self._left_to_ask >= 0:
            gone = {one for one in gone if self._may_hold(one, may_hold)}
        pieces = [marker if one in gone else one for one in strings]
        for at in named:
            pieces[at] = marker
        if b"[" in text:
            pieces = [one if MARKER.fullmatch(one) else piece for one, piece in zip(strings, pieces, strict=True)]
        starts, ends = self.starts[group.start : group.stop], self.ends[group.start : group.stop]
        between = map(self._source.__getitem__, map(slice, ends, starts[1:]))
        parts = b"".join(chain.from_iterable(zip(pieces, [*between, b""], strict=True)))
        times = pieces.count(marker)
        return [Cut(starts[0], ends[-1], "dense", DENSE, text, parts, times)] * (times > 0)

    def _may_hold(self, string: bytes, may_hold: Callable[[bytes], bool]) -> bool:
        """Ask about one string, if all those asked about before are a small part of the line."""
        if string not in self._answers:
            self._left_to_ask -= len(string) + _ASKING
            if self._left_to_ask < 0:
                return True
            self._answers[string] = may_hold(string)
        return self._answers[string]


def strings_of(source: bytes) -> JsonStrings | None:
    """Return the strings of a JSON line, or None if the line is not JSON.

    The name of a value is its key; in a list the key of the list, or the flag before it (``["--token", "..."]``);
    for ``{"name": "X", "value": "..."}`` and ``{"X": {"value": "..."}}`` it is X.
    """
    line = readable(source)
    if line.lstrip(_SPACES)[:1] not in (b"{", b"[", b'"'):
        return None
    gaps, lengths, texts = _parts(line)
    if len(gaps) == len(lengths) or not _BETWEEN.fullmatch(b"".join(set(gaps))):
        return None
    outside = accumulate(map((1).__add__, map(len, gaps)))
    starts = [*map(add, outside, accumulate(map((1).__add__, lengths), initial=0))][:-1]
    ends = [*map(add, starts, lengths)]
    if texts is not None:
        for number in compress(range(len(texts)), map(bytes.__contains__, texts, repeat(_BLANK))):
            texts[number] = line[starts[number] : ends[number]]
    return JsonStrings(source, starts, ends, partial(_telling_names, line, starts, ends, gaps, texts), texts)


def _parts(line: bytes) -> tuple[list[bytes], list[int], list[bytes] | None]:
    """Return what stands between the strings of a line, how long each is, and the strings with their escapes blanked.

    The strings are None where most of the line is in few of them.
    """
    if len(line) > max(LARGE, line.count(b'"') * _MANY_BYTES):  # slower, without a copy
        quotes = (found.start() for found in _QUOTE.finditer(line) if found[0] == b'"')
        spans = list(pairwise([-1, *quotes, len(line)]))
        gaps = [line[before + 1 : at] for before, at in spans[::2]]
        return gaps, [at - before - 1 for before, at in spans[1::2]], None
    # Blank the escapes, keep the offsets: what quotes are left begin and end strings.
    blanked = line.replace(b"\\\\", _BLANK).replace(b'\\"', _BLANK)
    parts = blanked.split(b'"')
    gaps, texts = parts[::2], parts[1::2]
    return gaps, [*map(len, texts)], texts


_BLANK = b"\xfd\xfd"
_MANY_BYTES = 64
"""A huge line with more bytes than this between two quotes has a copy that is larger than its columns."""


def _telling_names(
    line: bytes, starts: list[int], ends: list[int], gaps: list[bytes], texts: list[bytes] | None
) -> dict[int, bytes]:
    """Return the names that tell of a secret, by the number of the value that stands under each.

    Each different key is judged once.
    """
    plain = {gap: gap.translate(None, _SPACES) for gap in set(gaps)}
    gaps = [*map(plain.__getitem__, gaps)]
    colons = {gap for gap in plain.values() if gap[:1] == b":"}
    values = [*compress(range(1, len(starts) + 1), map(colons.__contains__, gaps[1:-1]))]
    if texts is None:
        keys = [line[starts[value - 1] : ends[value - 1]] for value in values]
    else:
        keys = [*map(texts.__getitem__, map((-1).__add__, values))]
    different = set(keys)
    telling = {key: key[:_MAX_NAME] for key in different if strength(key[:_MAX_NAME]) is not None}
    told = compress(zip(values, keys, strict=True), map(telling.__contains__, keys))
    names = {value: telling[key] for value, key in told if gaps[value] in _VALUE_BEHIND}
    for value in [value for value in names if gaps[value] == b":["] if b":[" in colons else ():
        names |= dict.fromkeys(_rest_of_list(gaps, value), names[value])
    if not different.isdisjoint(_VALUE_KEYS):
        names |= _owners(line, starts, ends, gaps, zip(map((-1).__add__, values), keys, strict=True))
    return names | _flags(line, starts, ends, gaps)


def _owners(
    line: bytes, starts: list[int], ends: list[int], gaps: list[bytes], keys: Iterable[tuple[int, bytes]]
) -> dict[int, bytes]:
    """Return the telling names of values in fields of their own, by the number of the value."""
    owners: dict[int, bytes] = {}
    last = owner = b""
    for number, key in keys:
        before = gaps[number]
        if before == b":{":
            owner = last
        elif b"{" in before or b"}" in before:
            owner = b""
        last = key
        if gaps[number + 1] not in _VALUE_BEHIND:
            continue
        if key in _NAMING_KEYS:
            owner = line[starts[number + 1] : ends[number + 1]][:_MAX_NAME]
        elif owner and key in _VALUE_KEYS and strength(owner) is not None:
            owners[number + 1] = owner
    return owners


_VALUE_BEHIND = (b":", b":[")


def _flags(line: bytes, starts: list[int], ends: list[int], gaps: list[bytes]) -> dict[int, bytes]:
    """Return the telling flags of a list of arguments, by the number of the string behind each."""
    if b'"-' not in line:
        return {}
    dashes = [number for number, start in enumerate(starts[:-1]) if line.startswith(b"-", start)]
    texts = {number + 1: line[starts[number] : ends[number]] for number in dashes if gaps[number + 1] == b","}
    flags = {number: text.lstrip(b"-") for number, text in texts.items() if _FLAG.fullmatch(text)}
    return {number: flag for number, flag in flags.items() if strength(flag) is not None}


def _rest_of_list(gaps: list[bytes], value: int) -> Iterator[int]:
    """Yield the numbers of the strings that follow the first one of a list."""
    while gaps[value + 1] == b",":
        value += 1
        yield value
