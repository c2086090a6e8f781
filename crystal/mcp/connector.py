"""Implement ``search`` and ``fetch``, the tools that hosted assistants expect of every server.

Each answers with one JSON object. Recalled text has its fence inside its field, because assistants separate the fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote as quote_url

from crystal.mcp.handlers import ClientContext
from crystal.mcp.items import ShortIds, hit_item
from crystal.mcp.page import Json, Place, ToolAnswer, new_parts
from crystal.mcp.reading import SHORT_TITLE, get
from crystal.mcp.searching import find, said_around
from crystal.text.fence import new_nonce
from crystal.text.quoting import quote_line

HITS = 10
TITLE = 300
"""Maximum characters of a title; the address and the names of fields around it add about 60."""


def search(client: ClientContext, arguments: Mapping[str, Any]) -> ToolAnswer:
    """Return the best hits, each with a title and an address."""
    with client.reader() as machine:
        found = find(machine, client, arguments, HITS)
        told = {name for hit in found.hits for name in (hit.uuid, hit.text)}
        makers = [hit_item(hit, ShortIds(machine), said_around(hit, told)) for hit in found.hits]
    rows = list[Json]()
    above: Place = ()
    for item in (make(TITLE) for make in makers):
        ident, head = str(item.data["id"]), " ".join(filter(None, (item.data["by"], new_parts(item.place, above))))
        around = (f"{where}: {item.data[where]}" for where in ("before", "after") if where in item.data)
        title = quote_line(" | ".join((f"{head}: {item.data['text']}", *around)), TITLE)
        rows.append({"id": ident, "title": title, "url": address_of(client, ident)})
        above = item.place
    return ToolAnswer("", {"results": rows})


def fetch(client: ClientContext, arguments: Mapping[str, Any]) -> ToolAnswer:
    """Return a hit with what was said around it, a memory, or the beginning of a session."""
    ident = arguments["id"]
    answer = get(client, arguments)
    about: Json = answer.data["memory"] or answer.data["session"] or {}
    title = about.get("title") or about.get("key") or f"{answer.data['kind']} {quote_line(ident, TITLE)}"
    known = {"project": about["project"]} if about.get("project") else {}
    text = answer.markdown(new_nonce()).removesuffix(f"\n{answer.data['more']}")  # names a missing tool
    return ToolAnswer("", {
        "id": ident, "title": quote_line(title, SHORT_TITLE), "text": text,
        "url": address_of(client, ident), "metadata": {"kind": answer.data["kind"], **known},
    })  # fmt: skip


def address_of(client: ClientContext, ident: str) -> str:
    """Return the URL at which the same token can fetch the same content."""
    return f"{client.url}/fetch/{quote_url(ident, safe='')}"
