"""Add crystal's MCP server to each client's own file, and remove it.

A change is planned first (``plan_add``, ``plan_remove``: nothing is written, ``plan.diff()`` shows it), then applied
(``apply``). A file that cannot be parsed is refused with the position of the error, and is not changed. Other entries,
comments and white space are not changed, and removal leaves nothing of ours.
"""

from crystal.install.clients.guidance import guidance_text, snippet
from crystal.install.clients.plan import ClientFacts, ClientPlan, apply, plan_add, plan_remove, read_facts
from crystal.install.clients.record import read_record
from crystal.install.clients.table import NAMES, Client, Entry, is_ours, known_clients

__all__ = [
    "NAMES",
    "Client",
    "ClientFacts",
    "ClientPlan",
    "Entry",
    "apply",
    "guidance_text",
    "is_ours",
    "known_clients",
    "plan_add",
    "plan_remove",
    "read_facts",
    "read_record",
    "snippet",
]
