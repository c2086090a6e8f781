"""Carrying a plan out, and finishing what was begun."""

from __future__ import annotations

from crystal.forgetting.wish import ForgetPlan, Forgotten, Grounds


def carry_out(grounds: Grounds, plan: ForgetPlan, now: int) -> Forgotten:
    """Forget what a plan lists: block it first, then delete it."""
    raise NotImplementedError


def finish(grounds: Grounds, now: int) -> int:
    """Do what open tombstones ask for; gives how many are still open. Idempotent, cheap when there are none."""
    raise NotImplementedError
