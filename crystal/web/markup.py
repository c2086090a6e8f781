"""Render stored text as HTML: Markdown, code, changes of files, marked words. It is escaped and loads nothing."""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape
from pygments import format as formatted
from pygments.formatters.html import HtmlFormatter
from pygments.lexers import find_lexer_class_by_name, find_lexer_class_for_filename
from pygments.util import ClassNotFound

MAX_MARKDOWN, MAX_STEPS = 30_000, 600_000
"""Limits of Markdown: characters, and characters times opening brackets, because the parser is quadratic in brackets
that nothing closes. A text above a limit is shown as it was written."""
MAX_CODE = 4_000
"""Maximum characters of coloured code: lexers are quadratic in some texts (12,000 line ends of Java took 5 s)."""
MAX_DIFF_LINES = 400
PAGE_SECONDS, BLOCK_SECONDS = 1.0, 0.1
"""Maximum time for the markup of one page, and for the colours of one block. The rest is shown as it was written."""

_FORMATTER = HtmlFormatter(nowrap=True, classprefix="c-")
_EDIT = re.compile(r"^(old_string|new_string|replace_all): ?", re.MULTILINE)
_PATCH = re.compile(r"\*\*\* Begin Patch|diff --git |--- \S+\n\+\+\+ ")


@dataclass(slots=True)
class TimeBudget:
    """Time limit for the markup of one page, so that hostile texts cannot make it slow."""

    end: float = field(default_factory=lambda: time.monotonic() + PAGE_SECONDS)

    @property
    def is_over(self) -> bool:
        """Return True if no time is left: texts are shown without markup."""
        return time.monotonic() > self.end


def _code(text: str, language: str, budget: TimeBudget) -> str:
    """Return code as HTML, coloured if the language is known, it is not too long, and time is left."""
    if language and len(text) <= MAX_CODE:
        try:
            lexer = find_lexer_class_by_name(language)(stripnl=False, ensurenl=False)
        except ClassNotFound:
            return str(escape(text))
        end, tokens = min(budget.end, time.monotonic() + BLOCK_SECONDS), []
        for token in lexer.get_tokens(text):
            if time.monotonic() > end:
                return str(escape(text))
            tokens.append(token)
        return str(formatted(tokens, _FORMATTER))
    return str(escape(text))


def _fence(_renderer: object, tokens: Sequence[Token], at: int, _options: object, env: dict[str, TimeBudget]) -> str:
    language = (tokens[at].info.split() or [""])[0][:30]
    code = _code(tokens[at].content, language, env["budget"])
    return f'<pre class="code" tabindex="0"><code>{code}</code></pre>\n'


def _image(_renderer: object, tokens: Sequence[Token], at: int, *_: object) -> str:
    """Return an image as its description and address; it is not fetched."""
    source = str(tokens[at].attrs.get("src", ""))
    return f'<span class="image">{escape(tokens[at].content)} ({escape(source)})</span>'


def _link(_renderer: object, tokens: Sequence[Token], at: int, *_: object) -> str:
    """Return the start tag of a link; only links to the web and to mail get an address."""
    address = str(tokens[at].attrs.get("href", ""))
    if not re.match(r"https?://|mailto:", address):
        return f'<a title="{escape(address)}">'
    return f'<a href="{escape(address)}" title="{escape(address)}" rel="noreferrer noopener" target="_blank">'


def _table(*_: object) -> str:
    """Return the start tag of a table. The keyboard can focus it, to scroll a wide one."""
    return '<table tabindex="0">'


def _parser() -> MarkdownIt:
    parser = MarkdownIt("js-default", {"html": False, "linkify": False, "typographer": False, "breaks": True})
    rules: dict[str, Callable[..., str]] = {"fence": _fence, "code_block": _fence, "image": _image}
    rules |= {"link_open": _link, "table_open": _table}
    for name, rule in rules.items():
        parser.add_render_rule(name, rule)
    return parser


_MARKDOWN = _parser()


def markdown(text: str, budget: TimeBudget) -> Markup:
    """Return Markdown as HTML, without the text's own HTML and images, and with links to the web and to mail only."""
    if budget.is_over or len(text) > MAX_MARKDOWN or len(text) * text.count("[") > MAX_STEPS:
        return Markup('<pre class="plain" tabindex="0">{}</pre>').format(text)
    return Markup(_MARKDOWN.render(text, {"budget": budget}))  # noqa: S704 - the parser escapes; tests/web/test_web_markup.py


def code_of_file(text: str, name: str, budget: TimeBudget) -> Markup:
    """Return the content of a file as HTML, coloured by the file's name."""
    found = find_lexer_class_for_filename(name) if len(text) <= MAX_CODE else None
    return Markup(_code(text, found.aliases[0] if found and found.aliases else "", budget))  # noqa: S704 - escaped there


def marked(text: str, spans: Iterable[tuple[int, int]], start: int, end: int) -> Markup:
    """Return ``text[start:end]`` as HTML with the spans marked."""
    parts, at = [escape("…" if start else "")], start
    for first, last in spans:
        if first >= at and last <= end:
            parts += [escape(text[at:first]), Markup("<mark>{}</mark>").format(text[first:last])]
            at = last
    parts += [escape(text[at:end]), escape("…" if end < len(text) else "")]
    return Markup("").join(parts)


# --------------------------------------------------------------------------------------------------- changes of files


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a change: its sign (``+``, ``-``, ``@`` or a space) and its text."""

    sign: str
    text: str


def changes_of(text: str, budget: TimeBudget) -> tuple[str, list[DiffLine]] | None:
    """Return the first line of a tool call and its change of a file; None if the call shows no change."""
    if _PATCH.search(text, 0, 2_000):
        return text.partition("\n")[0], [_patch_line(line) for line in text.splitlines()]
    parts = _EDIT.split(text)
    values = list(zip(parts[1::2], parts[2::2], strict=True))
    olds = [value.rstrip("\n") for name, value in values if name == "old_string"]
    news = [value.rstrip("\n") for name, value in values if name == "new_string"]
    if not olds or len(olds) != len(news):
        return None
    found = [line for old, new in zip(olds, news, strict=True) for line in _difference(old, new, budget)]
    return parts[0].strip().partition("\n")[0], found


def _patch_line(line: str) -> DiffLine:
    if line.startswith(("***", "diff ", "index ", "---", "+++", "@@")):
        return DiffLine("@", line)
    return DiffLine(line[0], line[1:]) if line[:1] in ("+", "-", " ") else DiffLine(" ", line)


def _difference(old: str, new: str, budget: TimeBudget) -> Iterator[DiffLine]:
    before, after = old.split("\n") if old else [], new.split("\n") if new else []
    steps = [("replace", 0, len(before), 0, len(after))]
    if len(before) + len(after) <= MAX_DIFF_LINES and not budget.is_over:  # the comparison is not linear
        steps = list(difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes())
    for step, first, last, start, end in steps:
        yield from (DiffLine(" " if step == "equal" else "-", line) for line in before[first:last])
        yield from (DiffLine("+", line) for line in (after[start:end] if step != "equal" else ()))
