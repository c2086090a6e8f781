"""From a wish to the list of what would go. Nothing is changed."""

from __future__ import annotations

from crystal.forgetting.wish import ForgetPlan, Grounds, Wish


def plan(grounds: Grounds, wish: Wish) -> ForgetPlan:
    """List what a wish comes to, with everything that says the same. Changes nothing.

    Raises:
        UsageProblem: A target is unknown, or the wish is empty.
    """
    raise NotImplementedError
