"""The agents that ask this memory: crystal's server put into each client's own file, and taken out again.

A change is planned first (``plan_add``, ``plan_remove``: nothing is written, ``plan.diff()`` shows it), then made
(``apply``). A file that cannot be understood is refused with the place where reading stopped, and stays. Every other
entry, comment and space stays as it is, and nothing is left behind but what others wrote.
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
