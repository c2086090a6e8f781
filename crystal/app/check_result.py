"""Result of one check of ``crystal doctor``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "note", "warning", "failure"]
HOOK_REASONS = ("settings", "hooks disabled", "no hook", "program gone")
"""Reasons for which nothing is captured that are about the hooks."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check. ``fix`` is the next step if the verdict is not ``ok``."""

    name: str
    verdict: Verdict
    message: str
    fix: str | None = None
