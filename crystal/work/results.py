"""Read a tool's result: whether it failed, how many tests passed, and the signatures of its errors."""

from __future__ import annotations

import re
from typing import NamedTuple

MAX_ERRORS = 6
MAX_SIGNATURE = 160

_FAILED = re.compile(
    r"\s*(?:Exit code:? -?[1-9]|Process exited with code [1-9]|<tool_use_error>|Error\b|The user doesn't"
    r" want|\[Request interrupted|Command (?:failed|timed out)|Permission|API Error)",
    re.IGNORECASE,
)
_EXIT = re.compile(r"\s*(?:Exit code:?|Process exited with code) (-?\d{1,9})")
_REFUSED = re.compile(r"\s*(?:<tool_use_error>|The user doesn't want|\[Request interrupted|Permission to )")
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

_COUNTS = re.compile(  # pytest, jest, vitest, mocha, cargo; unittest; go
    r"(?P<passed>\d+) (?:passed|passing)\b|(?P<failed>\d+) (?:failed|failing|errors?)\b(?! generated)"
    r"|^FAILED \((?:failures|errors)=(?P<unit>\d+)|^Ran (?P<ran>\d+) tests? in"
    r"|^\s*--- (?P<go>PASS|FAIL):|^(?P<package>ok|FAIL)\s+\S+(?:/\S+)*\s+(?:[\d.]+s|\(cached\)|\[build failed\])",
    re.MULTILINE,
)
_IS_ERROR = re.compile(
    r"\berrors?\b|\w*(?:Error|Exception)\b|\b(?:fatal|panic|traceback|undefined|denied|refused|unresolved|unexpected"
    r"|invalid|missing|cannot|can't|not found|no such|not enough|too many|not defined|unable to|failed to|timed out"
    r"|FAIL(?:ED)?)\b|: warning:|\w\(\w+\)$",
    re.IGNORECASE,
)
_SAYS_NOTHING = re.compile(
    r"^(?:\W*(?:error|errors|fail|failed|failure|failures|fatal|traceback \(most recent call last\)|exit status \w+"
    r"|exit code:? \w+|\d+ (?:errors?|problems?|issues?|failed|failing|passed)\b.*)\W*)$|task failed|^make: \*\*\*"
    r"|(?:FAILED|===|short test summary)|npm (?:ERR!|error) (?:code|errno|A complete log)|ELIFECYCLE",
    re.IGNORECASE,
)
_VARYING = (
    (re.compile(r"https?://\S+"), "U"),
    (re.compile(r"(?:[A-Za-z]:)?(?:[\w.@~+-]*[/\\])+([\w.@+-]*)"), r"\1"),
    (re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-fA-F]{7,}\b"), "N"),
    (re.compile(r"\d+(?:[.:,]\d+)*(?:ms|µs|s|m|h)?\b"), "N"),
    (re.compile(r"\d+"), "N"),
    (re.compile(r"N(?:[.:,]N)+"), "N"),
    (re.compile(r"\s+"), " "),
)


class Outcome(NamedTuple):
    """How a call ended.

    Attributes:
        exit: 0 if it succeeded; its exit status, or 1 if it failed without telling one; None if nobody knows.
        passed: Tests that passed, None if no known runner says so.
        failed: Tests that failed.
        errors: Signatures of its errors: the same for the same error in another place, at another time.
        refused: Whether it never ran: the user or the agent's program refused it.
    """

    exit: int | None = 0
    passed: int | None = None
    failed: int | None = None
    errors: tuple[str, ...] = ()
    refused: bool = False


def is_failed(result: str) -> bool:
    """Return True if the result of a tool says that it failed; some programs' results do not tell."""
    return _FAILED.match(result) is not None


def outcome_of(result: str) -> Outcome:
    """Return how a call with this result ended. Failed tests count as failure, also behind a pipe."""
    if _REFUSED.match(result):
        return Outcome(1, refused=True)
    passed, failed = _tests(result)
    code = _EXIT.match(result)
    status = int(code[1]) if code else int(is_failed(result))
    if not status and failed:
        status = 1
    return Outcome(status, passed, failed, tuple(signatures(result)) if status else ())


def _tests(result: str) -> tuple[int | None, int | None]:
    """Return how many tests passed and failed, None if no known runner says so."""
    passed = failed = 0
    seen = False
    for count in _COUNTS.finditer(result):
        seen = True
        passed += int(count["passed"] or 0) + int(count["ran"] or 0) + (count["go"] == "PASS")
        failed += int(count["failed"] or count["unit"] or 0) + ("FAIL" in (count["go"], count["package"]))
    return (passed, failed) if seen else (None, None)


def signatures(text: str) -> list[str]:
    """Return the signatures of a text's errors, in its order: lines without paths, numbers, addresses and times."""
    found: dict[str, None] = {}
    for line in _COLOUR.sub("", text).splitlines():
        plain = line.strip()
        if len(found) < MAX_ERRORS and _IS_ERROR.search(plain) and not _SAYS_NOTHING.search(plain):
            found.setdefault(signature(plain), None)
    return [one for one in found if len(one) >= 12]


def signature(line: str) -> str:
    """Return a line of an error without what varies: paths (their last part stays), numbers, addresses, times."""
    for pattern, plain in _VARYING:
        line = pattern.sub(plain, line)
    return line.strip()[:MAX_SIGNATURE]
