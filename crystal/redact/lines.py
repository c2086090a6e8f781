"""Find the strings of a JSON line and the names they are under, without building the JSON.

Nothing is rewritten: numbers, white space, the order of keys and any depth of nesting stay as they
are. A line counts as JSON here if only JSON can have what is between its strings; otherwise it is text.

A line may hold a hundred thousand strings, so their properties are kept in columns, each filled by one call for all.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import accumulate, chain, compress, filterfalse, pairwise, repeat
from operator import add, sub

from crystal.redact.prefilter import MIN_SECRET_BYTES
from crystal.redact.regex_engines import LARGE, Lazy, scanner
from crystal.redact.secret_names import STEM, TO_ZEROS, strength
from crystal.redact.spans import DENSE, MARKER, MARKER_FORM, STRING_END, Cut, string_around
from crystal.redact.views import readable

_BETWEEN = Lazy(rb"[\s{}\[\]:,0-9eE+\-.trufalsnNIity]*")
_SPACES = b" \t\r\n"
_NAMING_KEYS = frozenset((b"name", b"Name", b"key", b"Key", b"variable"))
_VALUE_KEYS = frozenset((b"value", b"Value", b"default"))
_QUOTE = Lazy(rb'(?s)\\.|"')
_MAX_NAME = 4096
_FLAGS = Lazy(rb'"(--?[A-Za-z][\w-]{0,76})"')

MAX_GROUP = 8 * 1024
"""Bytes of short strings that are read as one text: every view of it is whole, and what is dense in it is little."""
_ASKED_PART = 256
"""Bytes of a line for each byte of dense strings that may be given to the prefilter one by one: each new byte may cost
four microseconds, because the automata grow."""
_ASK_COST = 50
"""Cost of asking about a string of any length, in bytes."""

_END = rb"(?=\n\xff)"
_HARMFUL = Lazy(
    STRING_END + rb"(?![^\xff]{0,%d}" % (MIN_SECRET_BYTES - 1) + _END + rb"|(?:" + MARKER_FORM + rb")" + _END + rb"|(?="
    rb"[\w.:/-]*" + _END + rb")(?:(?:[A-Za-z]{1,15}|\d{1,4})(?:[._/-](?:[A-Za-z]{1,15}|\d{1,4})){0,10}"
    rb"|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    rb"|(?:toolu|msg|req|call)_[A-Za-z0-9]{20,32}"
    rb"|\d{4}-\d\d-\d\dT[\d:.]{8,15}Z?)" + _END + rb")([^\xff]*)" + _END
)
"""Strings other than words, numbers, ids, times, markers and the shortest: in those no rule finds anything."""


class JsonStrings:
    """Strings of a JSON line in order, keys among them; the n-th is at ``line[start(n):end(n)]``.

    Args:
        source: The line.
        lengths: Bytes of each string.
        names_of: Finds the names that tell of a secret, by the numbers of the strings under them.
        apart: For each string the bytes of the line before it that are in no string, quotes included; else by ``gaps``.
        texts: The strings, if they are at hand.
        gaps: What is before each string and after the last, without quotes, if that is at hand.
    """

    def __init__(
        self,
        source: bytes,
        lengths: Sequence[int],
        names_of: Callable[[JsonStrings], dict[int, bytes]],
        apart: Sequence[int] = (),
        texts: list[bytes] | None = None,
        gaps: Sequence[bytes] = (),
    ) -> None:
        self._source, self.line = source, readable(source)
        self._lengths, self._names_of, self._all_texts, self._gaps = lengths, names_of, texts, gaps
        self._given = apart
        self._left_to_ask = MAX_GROUP + len(source) // _ASKED_PART
        self._asked: set[bytes] = set()
        self._kept: set[bytes] = set()

    def __len__(self) -> int:
        """Return the number of strings."""
        return len(self._lengths)

    @cached_property
    def _before(self) -> list[int]:
        return [*accumulate(self._lengths, initial=0)]

    @cached_property
    def _apart(self) -> Sequence[int]:
        sizes = {gap: len(gap) + 2 for gap in set(self._gaps)}
        return self._given or [*accumulate(map(sizes.__getitem__, self._gaps), initial=-1)][1:-1]

    def start(self, number: int) -> int:
        """Return where a string begins."""
        return self._before[number] + self._apart[number]

    def end(self, number: int) -> int:
        """Return where a string ends."""
        return self._before[number + 1] + self._apart[number]

    def text(self, number: int) -> bytes:
        """Return a string as it is between its quotes."""
        return self.line[self.start(number) : self.end(number)]

    def texts_at(self, numbers: Iterable[int]) -> list[bytes]:
        """Return several strings."""
        return [*map(self.text if self._all_texts is None else self._all_texts.__getitem__, numbers)]

    def _place(self, number: int) -> int:
        """Return where a string begins when all are joined by ``STRING_END``."""
        return self._before[number] + number * len(STRING_END)

    @cached_property
    def names(self) -> dict[int, bytes]:
        """Return the names that tell of a secret, by the numbers of the strings under them."""
        return self._names_of(self)

    @cached_property
    def _named(self) -> list[int]:
        return sorted(self.names)

    def changed(self, source: bytes, cuts: Iterable[Cut], sizes: Iterable[int]) -> JsonStrings:
        """Return the strings of which a part was cut out, as they are in the line that has come of it.

        Args:
            source: The new line.
            cuts: What was cut out of the old one, in order.
            sizes: How many bytes are in the place of each cut.
        """
        starts: list[int] = []
        lengths: list[int] = []
        numbers: list[int] = []
        shift = 0
        for cut, size in zip(cuts, sizes, strict=True):
            grown = size - (cut.end - cut.start)
            number = bisect_right(range(len(self)), cut.start, key=self.start) - 1
            if numbers and numbers[-1] == number:
                lengths[-1] += grown
            elif cut.start > self.start(number) or cut.end < self.end(number):
                numbers.append(number)
                starts.append(self.start(number) + shift)
                lengths.append(self.end(number) - self.start(number) + grown)
            shift += grown
        names = {at: self.names[number] for at, number in enumerate(numbers) if number in self.names}
        apart = [*map(sub, starts, accumulate(lengths, initial=0))]
        return JsonStrings(source, lengths, lambda _: names, apart)

    def groups(self) -> Iterator[range]:
        """Yield the numbers of all strings in groups: as many short ones as fit, or one long one."""
        first = 0
        while first < len(self):
            limit = self._place(first) + MAX_GROUP
            stop = max(first + 1, bisect_right(range(len(self) + 1), limit, first, key=self._place) - 1)
            yield range(first, stop)
            first = stop

    def longest(self, group: range) -> int:
        """Return the bytes of the longest string of a group."""
        before = self._before[group.start : group.stop + 1]
        most: int = max(map(sub, before[1:], before))
        return most

    def joined(self, group: range) -> bytes:
        """Return the text that strings are read as."""
        return STRING_END.join(self._texts(group, self.line))

    def _texts(self, group: range, source: bytes) -> Sequence[bytes]:
        if self._all_texts is not None and source is self.line:
            return self._all_texts[group.start : group.stop]
        return [*map(source.__getitem__, map(slice, *self._columns(group)))]

    def _columns(self, group: range) -> tuple[list[int], list[int]]:
        """Return where the strings of a group begin, and where they end."""
        apart = self._apart[group.start : group.stop]
        starts = [*map(add, self._before[group.start : group.stop], apart)]
        return starts, [*map(add, self._before[group.start + 1 : group.stop + 1], apart)]

    def nested(self) -> list[int]:
        """Return the numbers of the strings that begin as JSON does."""
        if not any(map(self.line.__contains__, (b'"{', b'"['))):
            return []
        texts = self.texts_at(range(len(self)))
        return [number for number, text in enumerate(texts) if text.startswith((b"{", b"["))]

    def names_in(self, group: range) -> dict[int, bytes]:
        """Return the names that tell of a secret, by the place of the strings under them in the group."""
        named = self._named[bisect_left(self._named, group.start) : bisect_left(self._named, group.stop)]
        return {number - group.start: self.names[number] for number in named}

    def placed(self, cuts: list[Cut], group: range) -> Iterator[Cut]:
        """Map cuts of the text of a group back to the line; one that continues in the next string is divided."""
        places = [*map(self._place, range(group.start, group.stop + 1))] if cuts else []
        for cut in cuts:
            start, end = cut.start + places[0], cut.end + places[0]
            number = group.start + bisect_right(places, start) - 1
            while self._place(number) < end:
                shift = self.start(number) - self._place(number)
                begin, stop = max(start + shift, self.start(number)), min(end + shift, self.end(number))
                if begin < stop:
                    yield Cut(begin, stop, cut.kind, cut.rank, cut.secret)
                number += 1

    def whole(self, group: range, text: bytes, marker: bytes, may_hold: Callable[[bytes], bool]) -> list[Cut]:
        """Take out whole the strings of a group that holds more than can be examined, with one cut for all.

        Those stay that can hold nothing: words, ids and times, and what ``may_hold`` says has nothing for a rule.
        """
        strings, raw = self._texts(group, self.line), self._texts(group, self._source)
        found = dict.fromkeys(_HARMFUL.findall(STRING_END + text + STRING_END))
        if self._left_to_ask >= 0:
            self._ask(found, may_hold)
        gone = found.keys() - self._kept
        pieces = [marker if one in gone else kept for one, kept in zip(strings, raw, strict=True)]
        for at in self.names_in(group):
            pieces[at] = raw[at] if MARKER.fullmatch(raw[at]) else marker
        parts = b"".join(chain.from_iterable(zip(pieces, [*self._between(group), b""], strict=True)))
        times = pieces.count(marker)
        place = self.start(group.start), self.end(group.stop - 1)
        return [Cut(*place, "dense", DENSE, text, parts, times)] * (times > 0)

    def _ask(self, strings: Iterable[bytes], may_hold: Callable[[bytes], bool]) -> None:
        """Ask about strings one by one, as long as all those asked about are a small part of the line."""
        for one in filterfalse(self._asked.__contains__, strings):
            self._left_to_ask -= len(one) + _ASK_COST
            if self._left_to_ask < 0:
                return
            self._asked.add(one)
            if not may_hold(one):
                self._kept.add(one)

    def _between(self, group: range) -> Iterable[bytes]:
        """Return what is between the strings of a group, quotes included."""
        if self._gaps:
            gaps = self._gaps[group.start + 1 : group.stop]
            return map({gap: b'"%b"' % gap for gap in set(gaps)}.__getitem__, gaps)
        starts, ends = self._columns(group)
        return map(self._source.__getitem__, map(slice, ends, starts[1:]))


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
    return JsonStrings(source, lengths, partial(_telling_names, gaps), texts=texts, gaps=gaps)


def _parts(line: bytes) -> tuple[list[bytes], list[int], list[bytes] | None]:
    """Return what is between the strings of a line, how long each is, and the strings.

    The strings are None where most of the line is in few of them.
    """
    if len(line) > max(LARGE, line.count(b'"') * _MANY_BYTES):  # slower, without a copy
        quotes = (found.start() for found in _QUOTE.finditer(line) if found[0] == b'"')
        spans = list(pairwise([-1, *quotes, len(line)]))
        gaps = [line[before + 1 : at] for before, at in spans[::2]]
        return gaps, [at - before - 1 for before, at in spans[1::2]], None
    edge = b'"'
    if b"\\" in line:  # quotes that an escape hides begin and end no string
        hidden = line.replace(b"\\\\", b"\xfd").replace(b'\\"', b"\xfc").replace(edge, b"\xfe")
        line, edge = hidden.replace(b"\xfd", b"\\\\").replace(b"\xfc", b'\\"'), b"\xfe"
    parts = line.split(edge)
    gaps, texts = parts[::2], parts[1::2]
    return gaps, [*map(len, texts)], texts


_MANY_BYTES = 64
"""A huge line with more bytes than this between two quotes has a copy that is larger than its columns."""


def _telling_names(gaps: list[bytes], strings: JsonStrings) -> dict[int, bytes]:
    """Return the names that announce a secret, by the number of the value under each.

    Each different key is judged once.
    """
    plain = {gap: gap.translate(None, _SPACES) for gap in set(gaps)}
    colons = {gap for gap, bare in plain.items() if bare[:1] == b":"}
    if not colons and b'"-' not in strings.line:
        return {}
    numbers = [*compress(range(len(strings)), map(colons.__contains__, gaps[1:-1]))]
    keys = strings.texts_at(numbers)
    different = set(keys)
    forms = dict(zip(different, map(bytes.translate, different, repeat(TO_ZEROS)), strict=True))
    telling = {form for form in _maybe_telling({*forms.values()}) if strength(form[:_MAX_NAME]) is not None}
    known = {key: key[:_MAX_NAME] for key, form in forms.items() if form in telling} if telling else {}
    told = compress(zip(numbers, keys, strict=True), map(known.__contains__, keys)) if known else ()
    names = {number + 1: known[key] for number, key in told if plain[gaps[number + 1]] in _VALUE_BEHIND}
    for value in [value for value in names if plain[gaps[value]] == b":["] if b":[" in plain.values() else ():
        names |= dict.fromkeys(_rest_of_list(gaps, plain, value), names[value])
    if not different.isdisjoint(_VALUE_KEYS):
        names |= _owners(strings, [*map(plain.__getitem__, gaps)], zip(numbers, keys, strict=True))
    return names | _flags(strings, gaps, plain)


def _maybe_telling(keys: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the keys that hold the stem of a telling name: a line may have a hundred thousand that hold none."""
    text, search, at = STRING_END.join(keys), scanner((STEM,)), 0
    while (stem := search(text, at)) is not None:
        start, at = string_around(text, stem.start())
        yield text[start:at]


def _owners(strings: JsonStrings, gaps: list[bytes], keys: Iterable[tuple[int, bytes]]) -> dict[int, bytes]:
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
            owner = strings.text(number + 1)[:_MAX_NAME]
        elif owner and key in _VALUE_KEYS and strength(owner) is not None:
            owners[number + 1] = owner
    return owners


_VALUE_BEHIND = (b":", b":[")


def _flags(strings: JsonStrings, gaps: list[bytes], plain: dict[bytes, bytes]) -> dict[int, bytes]:
    """Return the telling flags of a list of arguments, by the number of the string after each."""
    if b'"-' not in strings.line:
        return {}
    found = {text: text.lstrip(b"-") for text in _FLAGS.findall(strings.line)}
    flags = {text: flag for text, flag in found.items() if strength(flag) is not None}
    texts = strings.texts_at(range(len(strings) - 1)) if flags else ()
    told = ((number, text) for number, text in enumerate(texts, 1) if text in flags)
    return {number: flags[text] for number, text in told if plain[gaps[number]] == b","}


def _rest_of_list(gaps: list[bytes], plain: dict[bytes, bytes], value: int) -> Iterator[int]:
    """Yield the numbers of the strings that follow the first one of a list."""
    while plain[gaps[value + 1]] == b",":
        value += 1
        yield value
