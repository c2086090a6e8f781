"""Find facts about an edit's lines and a command's errors: define how both are compared.

``assist.py`` imports it as a top-level module, without the package. The worker makes the keys of its facts with the
same functions, and the replay uses them for its search.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Fact = dict[str, str]
    Find = Callable[..., "Fact | None"]

MAX_LINES, MAX_CHARACTERS = 400, 400
"""Limits: lines that are looked up, and characters of a line of output."""
MIN_CHARACTERS = 8
MAX_FILE_BYTES = 1 << 16
MIN_SHARE = 0.5
"""Minimum share of the lines replaced by an edit that one earlier edit must have written."""
MIN_ERROR, MIN_ERROR_WORDS = 15, 3
MAX_SUFFIX = 4
_PLAIN = str.maketrans("'`", '""')
_QUOTES, _SIGNS, _DIGITS = "\"'`", ",:;()[]{}<>.!*-=", "0123456789"
_VERSION = _DIGITS + _SIGNS + _QUOTES + "@^~"


def plain_line(line: str) -> str:
    """Return a line for comparison: without spaces, kinds of quotes and its last comma; empty if it is too short."""
    plain = "".join(line.split()).translate(_PLAIN).rstrip(",;")
    letters = sum(map(str.isalnum, plain)) + plain.count("_")
    return plain if len(plain) >= MIN_CHARACTERS and letters * 2 >= MIN_CHARACTERS else ""


def plain_error(line: str) -> str:
    """Return a line of output for the comparison of errors: its words without paths, numbers and punctuation.

    Names stay, because they distinguish errors that one program words alike.
    """
    if len(line) > MAX_CHARACTERS:
        return ""
    kept = list(filter(None, map(_plain_word, line.removeprefix("Output: ").split())))
    telling = [word for word in kept if len(word) > 1 and word[0].isalpha()]
    plain = " ".join(kept)
    return plain if len(telling) >= MIN_ERROR_WORDS and len(plain) >= MIN_ERROR else ""


def _plain_word(word: str) -> str:
    """Return a word for the comparison of errors.

    Empty for a path, an unquoted file name, a number, and text in brackets, which names the task that failed.
    """
    if word.isalpha() and word.isascii():
        return word.lower()
    plain = word.strip(_QUOTES + _SIGNS)
    if _is_number(plain) and not plain.isalnum():
        plain = plain.rstrip(_VERSION)  # the name of a package, without its version
    is_path = not plain.isascii() or "/" in plain or "\\" in plain or "\x1b" in plain
    if is_path or _is_number(plain) or word[0] + word[-1] == "[]" or _is_file_name(plain, word.strip(_SIGNS)):
        return ""
    return plain.lower()


def _is_file_name(plain: str, whole: str) -> bool:
    """Return whether a word ends like a file name and is not quoted; ``whole`` has its quotes."""
    end = plain.rpartition(".")[2]
    if end == plain or len(end) > MAX_SUFFIX or not end.isalnum() or end != end.lower():
        return False
    return whole[0] not in _QUOTES or whole[-1] not in _QUOTES


def _is_number(plain: str) -> bool:
    """Return whether a word has a digit and is no name, which begins with a letter and has others than A to F."""
    if not any(map(str.isdigit, plain)):
        return False
    is_name = plain[0] not in _DIGITS and plain.replace("_", "").replace(".", "").isalnum()
    return not is_name or not plain.strip(_DIGITS + "abcdefABCDEF")


def path_below(folder: str, path: str) -> str:
    """Return a file's path relative to the project's folder, of either system; unchanged if it is outside."""
    return without_tree(path.replace("\\", "/").removeprefix(folder.replace("\\", "/").rstrip("/") + "/"))


def without_tree(path: str) -> str:
    """Return a path in a project's folder without the prefix of a linked working tree, such as ``.worktrees/NAME/``.

    The prefix may contain a hidden folder of an agent, as in ``.claude/worktrees/NAME/``.
    """
    above, found, rest = path.partition("worktrees/")
    is_tree = found and (above == "." or (above[:1] == "." and above.find("/") == len(above) - 1))
    return (rest.partition("/")[2] if is_tree else "") or path


def tail_of(path: str) -> str:
    """Return the last two parts of a path, which identify a line's file even if a folder above was renamed."""
    return "/".join(path.split("/")[-2:])


def facts_for_edit(given: "dict[str, Any]", folder: str, find: "Find") -> "list[Fact]":
    """Return the facts about the lines that an edit replaces, and about failures after earlier edits of the file.

    Args:
        given: The arguments of the tool.
        folder: The project's folder; if empty, no file is read.
        find: Returns the latest fact with a key, given as its parts.
    """
    path = given.get("file_path") or given.get("notebook_path")
    if not isinstance(path, str):
        return []
    below = path_below(folder, path)
    gone = [line.strip() for line in _replaced(given, path, folder)[:MAX_LINES]]
    replaced = {plain: line for line in gone if (plain := plain_line(line))}
    votes: dict[str, list[str]] = {}
    facts: dict[str, Fact] = {}
    for plain, line in replaced.items():
        fact = find("line", tail_of(below), plain)
        if fact:
            facts[fact["id"]] = fact
            votes[fact["id"]] = [*votes.get(fact["id"], ()), line]
    most = max(votes, key=lambda one: len(votes[one]), default="")
    why = [facts[most]] if most and _is_enough(votes[most], len(replaced), path, folder) else []
    failed = find("file", below)
    return why + ([failed] if failed else [])


def _is_enough(lines: "list[str]", replaced: int, path: str, folder: str) -> bool:
    """Return whether one edit wrote enough of the replaced lines; a line that the file has twice does not count."""
    if len(lines) < MIN_SHARE * replaced:
        return False
    once, twice = set[str](), set[str]()
    for line in _lines_of(path, folder):
        plain = line.strip()
        (twice if plain in once else once).add(plain)
    return sum(line not in twice for line in lines) >= MIN_SHARE * replaced


def facts_for_failure(output: str, find: "Find") -> "list[Fact]":
    """Return the cure of the first error with a known cure in a failed command's output, or in a prompt."""
    for line in output.splitlines()[:MAX_LINES]:
        for plain in (plain_error(line), plain_error(_from_error(line))):
            fact = find("error", plain) if plain else None
            if fact:
                return [fact]
    return []


def _from_error(line: str) -> str:
    """Return the rest of a line from the place of an error on, or its name; empty if it begins with it or has none."""
    words = line.split() if ":" in line and len(line) <= MAX_CHARACTERS else []
    for at, word in enumerate(words):
        name, colon, number = word.partition(":")
        if colon and (("." in name and number[:1].isdigit()) or name[-5:].lower() == "error"):
            return " ".join(words[at:]) if at else ""
    return ""


def _replaced(given: "dict[str, Any]", path: str, folder: str) -> "list[str]":
    """Return the lines that an edit removes, or that a rewritten file no longer has."""
    edits, content = given.get("edits"), given.get("content")
    if isinstance(content, str):
        kept = set(content.splitlines())
        return [line for line in _lines_of(path, folder) if line not in kept]
    gone: list[str] = []
    for edit in edits if isinstance(edits, list) else [given]:
        old, new = edit.get("old_string"), edit.get("new_string")
        if isinstance(old, str):
            kept = set(new.splitlines()) if isinstance(new, str) else set()
            gone += [line for line in old.splitlines() if line not in kept]
    return gone


def _lines_of(path: str, folder: str) -> "list[str]":
    """Return the lines of a file; empty if it is long, not regular, or outside the project's folder."""
    try:
        if not folder or not os.path.realpath(path).startswith(os.path.join(os.path.realpath(folder), "")):
            return []
        file = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return []
    with open(file, "rb") as content:
        found = os.fstat(file)
        is_file = found.st_mode & 0o170000 == 0o100000
        is_read = is_file and found.st_size <= MAX_FILE_BYTES
        return content.read(MAX_FILE_BYTES).decode("utf-8", "replace").splitlines() if is_read else []
