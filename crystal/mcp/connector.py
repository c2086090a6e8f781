"""``search`` and ``fetch``, in the form that hosted assistants expect of a server whose tools they do not know.

Each answers with one JSON object. What was said stands in a fence inside its field, because assistants take the fields
apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote as quote_url

from crystal.mcp.items import ShortIds, hit_item
from crystal.mcp.offer import ClientContext
from crystal.mcp.page import Json, ToolAnswer
from crystal.mcp.reading import SHORT_TITLE, get
from crystal.mcp.searching import find
from crystal.text.fence import new_nonce
from crystal.text.quoting import quote_line

HITS = 10
TITLE = 300
"""Characters of a hit in its title: the address and the names of the fields around it take about 60."""


def search(client: ClientContext, arguments: Mapping[str, Any]) -> ToolAnswer:
    """Return the best hits, each with a title and an address."""
    with client.reader() as machine:
        found = find(machine, client, arguments, HITS)
        makers = [hit_item(hit, ShortIds(machine)) for hit in found.hits]
    rows = []
    for item in (make(TITLE) for make in makers):
        ident, head = str(item.data["id"]), f"{item.data['by']} {' '.join(item.place)}"
        title = f"{head}: {quote_line(item.data['text'], TITLE)}"
        rows.append({"id": ident, "title": title, "url": address_of(client, ident)})
    return ToolAnswer("", {"results": rows})


def fetch(client: ClientContext, arguments: Mapping[str, Any]) -> ToolAnswer:
    """Return a hit with what was said around it, a memory, or the beginning of a session."""
    ident = arguments["id"]
    answer = get(client, arguments)
    about: Json = answer.data["memory"] or answer.data["session"] or {}
    title = about.get("title") or about.get("key") or f"{answer.data['kind']} {quote_line(ident, TITLE)}"
    known = {name: str(about[name]) for name in ("project", "device", "updated_at", "last_at") if about.get(name)}
    return ToolAnswer("", {
        "id": ident, "title": quote_line(title, SHORT_TITLE), "text": answer.markdown(new_nonce()),
        "url": address_of(client, ident), "metadata": {"kind": answer.data["kind"], **known},
    })  # fmt: skip


def address_of(client: ClientContext, ident: str) -> str:
    """Return where the same can be fetched, with the same token."""
    return f"{client.url}/fetch/{quote_url(ident, safe='')}"
