"""Forgetting: what is forgotten is gone, from every file of this machine, and nothing brings it back.

``plan`` lists what would go and changes nothing. ``carry_out`` notes the tombstones, which block it from then on, and
``finish`` does what open tombstones ask for: rows, archives, summaries, logs, backups, outbox. It may be killed
anywhere and is run again by whoever comes next.
"""

from crystal.forgetting.execute.execute import carry_out, finish
from crystal.forgetting.plan.plan import complete, plan
from crystal.forgetting.request import Because, ForgetPlan, Forgotten, Grounds, Item, OutboxCleaner, Place, Wish
from crystal.store.forget.forgetting import Tombstone

__all__ = [
    "Because",
    "ForgetPlan",
    "Forgotten",
    "Grounds",
    "Item",
    "OutboxCleaner",
    "Place",
    "Tombstone",
    "Wish",
    "carry_out",
    "complete",
    "finish",
    "plan",
]
