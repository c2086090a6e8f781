"""Normalise lines of errors, so that an error is recognised again: without paths, numbers, times and hashes."""

from __future__ import annotations

import re
from itertools import islice

from crystal.model.named_tuple import NamedTuple
from crystal.text.lazy_pattern import lazy_pattern

MAX_TEXT = 1 << 20
MAX_LINES = 400
"""Maximum number of lines of an output that are compared."""
MAX_CHARACTERS = 500
MIN_CHARACTERS, MIN_WORDS = 15, 3
"""A line with fewer is too short to be recognised; after a place in code, one word less is enough."""
AFTER, BEFORE = 2, 3
"""Numbers of lines after and before an error that may name its place, as Rust, pytest and Python print it."""
FRAMES = 16
"""Number of lines below an error in which its stack is looked for."""

_COLOUR = lazy_pattern(r"\x1b\[[0-9;?]*[A-Za-z]")
_TELLS = lazy_pattern(
    r"error|exception|fail|fatal|panic|undefined|not found|no such|no module|cannot|can't|could ?n[o']t|unable|invalid"
    r"|denied|refused|missing|expected|unknown|unrecognized|conflict|unused|duplicate|must |should |needed|required"
    r"|mismatch|illegal|redeclared|no new variables|no matches|timed? ?out|\([a-z]+\)$"
    r"|not (?:enough|used|checked|allowed|installed|defined|a )",
    re.IGNORECASE,
)
_SUMS_UP = lazy_pattern(
    r"task failed|build failed|^={2,}|^-{3} |^(?:fail|failed|ok)\b|\blevel=|\b(?:info|debug|warn)\b|^warning|^hint:"
    r"|(?<!port )\b0 (?:errors?|passed|failed)\b(?!:)|too many errors|exit (?:code|status)"
    r"|^error: (?:\(none\)|0)$|cannot find symbol$"
)
"""Lines that say only that something failed, and lines of logs."""
_AT = r"(?:[:(]\[?\d+[:,)\]\d]*|: \(\d+, \d+\))"
"""A place in a file, behind its name."""
_CHANGING = (
    (lazy_pattern(r"^(?:E {2,}|Output: )"), ""),  # pytest's mark; that of Gemini CLI and Qwen Code
    (lazy_pattern(r"^\[(?:ERROR|FATAL)\] (?=\S+\.\w+:\[)|(?<=^npm )(?:ERR!|error) |^e: (?:file://)?(?=/)"), ""),
    (lazy_pattern(r"^thread '[^']*'(?: \(\d+\))? panicked at "), "panicked: "),
    (lazy_pattern(r"[`\u2018]([^`'\u2018\u2019\s]+)['\u2019]"), r"'\1'"),  # quotes of Ruby and GCC
    (lazy_pattern(
        r"^(?:##\[error\]|::error[^:]*::|\[(?!error|warn|fatal)[a-z][\w:.-]*\] |[\w.-]+-\d+ +\| "
        r"|\[?(?:\d{4}[-/]\d\d[-/]\d\d[T ])?\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?:?\s+)+"
    ), ""),  # GitHub's marks; the task or the service that printed it; when it was logged
    (lazy_pattern(
        r"^(?:\S*/)?(?:\w*sh|\(eval\)): ?(?:(?:line )?\d+: ?)?"
        r"(?:command not found: (\S+)|(\S+): (?:command )?not found)$"
    ), r"\1\2: command not found"),  # each shell says it in its own way
    (lazy_pattern(r"^\d+:\d+\s+(?=error)"), ""),  # ESLint's place, below the file's name
    (lazy_pattern(r"\w+://\S+"), "<url>"),
    (lazy_pattern(r"(?<=\s):::(?=\d)"), ""),  # the address of no host, before a port
    (lazy_pattern(r"\b\d{4}[-/]\d\d[-/]\d\d(?:[T ]?[\d:.]+(?:Z|[+-][\d:]+)?)?"), "<time>"),
    (lazy_pattern(r"(?<![~.\w@+-])(?:[A-Za-z]:)?(?:[~.\w@+-]*[\\/])+[\w.@+*-]*" + _AT + "?:?"), "<path> "),
    (lazy_pattern(r"(?<![\w+-])[\w+-]+\.[A-Za-z]\w{0,4}" + _AT + ":?"), "<path> "),
    (lazy_pattern(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<id>"),
    (lazy_pattern(r"\b(?:0x[0-9a-fA-F]+|(?=[0-9a-f]{0,63}\d)[0-9a-f]{7,64})\b"), "<id>"),
    (lazy_pattern(
        r"(?:\bv(?=\d+\.))?\d+(?:[.,:]\d+)*(?i:-(?:rc|alpha|beta|nightly|dev|snapshot)\b[.\d]*)?"), "0"),
    (lazy_pattern(r"\s+"), " "),
)  # fmt: skip
_RULE = lazy_pattern(r" \([a-z][a-z0-9-]*\)$")
"""End of a linter's line with a place in code: the name of the rule."""
_NAME = lazy_pattern(r"`[^`]*`|(?<=: )sig: .*(?= \([a-z]+\)$)")
"""Names in the code, which differ in the lines of one rule."""
_PLACE_FIRST = lazy_pattern(r"(?:(?:error|vet): )?<path>:? ")
"""Text before an error that is also printed without its place."""
_LABEL = lazy_pattern(
    r"^(?:- )?(?:\[error\]:? |error(?:: | <path> - | (?=ts\d))"
    r"|uncaught (?:\(in promise\) )?|unhandled rejection \((\w+)\)(?=:))+"
    r"|^(?:[a-z_]\w*\.)+(?=\w*(?:error|exception): )| \(typecheck\)$"
)
"""Text that only some programs print before or after an error."""
_USAGE = lazy_pattern(r"(?:unknown|unrecognized|illegal|invalid|no such) (?:shorthand )?(?:flag|option|argument)")
_WORD = lazy_pattern(r"[a-z]{2,}")
_PLACE = lazy_pattern(r"(?<![\w@+.-])([\w@+.-]+\.[A-Za-z]\w{0,4})[:(](?:\[?\d+|\(\.text)")  # javac in Maven; ld
_BELOW_FILE = lazy_pattern(r"\d+:\d+\s")
_PLACE_ALONE = lazy_pattern(
    r"(?:--> )?(?:[^\s:]*[/\\])?([^\s:/\\]+\.[A-Za-z]\w{0,4}):\d+(?::\d+|: \w+)"
    r"|File \"(?:[^\"]*[/\\])?([^\"/\\]+)\", line \d+(?:, in .+)?"
)


class ErrorLine(NamedTuple):
    """A line of an error.

    ``plain`` is its normalised form, ``text`` the line as printed; ``file`` is the name of the file that it is about,
    or None.
    """

    plain: str
    text: str
    file: str | None


def error_lines(text: str) -> list[ErrorLine]:
    """Return the lines of an output that report an error, each once."""
    lines = [_COLOUR.sub("", line).strip() for line in text[:MAX_TEXT].splitlines()]
    lines = [_with_rest(line, lines[at + 1 : at + 5]) for at, line in enumerate(lines)]
    telling = (number for number, line in enumerate(lines) if _tells(line))
    found: dict[str, ErrorLine] = {}
    for number in islice(telling, MAX_LINES):
        plain = plain_error(lines[number])
        if plain and plain not in found:
            found[plain] = ErrorLine(plain, lines[number], _file(lines, number))
    return list(found.values())


def asked_errors(text: str) -> list[ErrorLine]:
    """Return the errors of a question: of one line also without its place, or without what a person says before it."""
    found, place = error_lines(text), _PLACE.search(text)
    if place and "\n" not in text.strip():
        found += error_lines(text[place.start() :])
    return found or error_lines(f"a.c:1: {text.strip()}")


def plain_error(line: str) -> str:
    """Return the normalised form of an error's line; empty if it reports no error, or is too short."""
    if not _tells(line):
        return ""
    plain = _COLOUR.sub("", line)
    for pattern, name in _CHANGING:
        plain = pattern.sub(name, plain)
    plain = plain.strip().lower()
    place, words = _PLACE_FIRST.match(plain), len(_WORD.findall(re.sub("<[a-z]+>", "", plain)))
    is_telling = len(plain) >= MIN_CHARACTERS and words >= MIN_WORDS - (place is not None)
    if not (is_telling and _tells(plain)) or _SUMS_UP.search(plain):
        return ""
    plain = _LABEL.sub(r"\1", plain[place.end() if place else 0 :])
    return _NAME.sub("<name>", plain) if place and _RULE.search(plain) else plain


def is_wrong_option(error: ErrorLine) -> bool:
    """Return True if an error says that a program does not know an option."""
    return _USAGE.search(error.plain) is not None


def _with_rest(line: str, after: list[str]) -> str:
    """Return javac's ``cannot find symbol`` with the symbol, and Rust's panic with its message: they print it below."""
    is_panic = " panicked at " in line and line.endswith(":")
    if not is_panic and not line.endswith("cannot find symbol"):
        return line
    return f"{line} {next((other for other in after if is_panic or 'symbol:' in other), '')}".strip()


def _tells(line: str) -> bool:
    return len(line) <= MAX_CHARACTERS and _TELLS.search(line) is not None


def _file(lines: list[str], number: int) -> str | None:
    """Return the file of the nearest place in code: in the line, just after it, or just before."""
    if own := _PLACE.search(lines[number]):
        return own[1]
    if _BELOW_FILE.match(lines[number]):
        above = next((line for line in reversed(lines[:number]) if not _BELOW_FILE.match(line)), "")
        return re.split(r"[/\\]", above)[-1]
    near = [*lines[number + 1 : number + 1 + AFTER], *reversed(lines[max(0, number - BEFORE) : number])]
    places = (_PLACE_ALONE.fullmatch(line) for line in near)
    alone = next((place[1] or place[2] for place in places if place), None)
    return alone or next((frame[1] for frame in map(_frame, lines[number + 1 : number + FRAMES]) if frame), None)


def _frame(line: str) -> re.Match[str] | None:
    """Return the place in a line of a stack, as JavaScript and Java print it; None for libraries of JavaScript."""
    return None if not line.startswith("at ") or "node_modules" in line or "node:" in line else _PLACE.search(line)
