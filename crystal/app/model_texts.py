"""Which conversations a language model elsewhere may be sent: nothing private, and nothing that others may not see."""

from __future__ import annotations

from collections.abc import Callable

from crystal.app.context import Machine
from crystal.capture.privacy import policy_of
from crystal.store.search.isolated import isolated_sessions

MaySend = Callable[[str, str, int, str | None], bool]
"""Whether a text may be sent, by its session's id, its agent's program, its time in ms and its folder."""


def sending_rule(machine: Machine) -> MaySend:
    """Return the rule for the model that writes summaries and learns; one on this machine may be sent everything."""
    from crystal.llm.choose import stays_here  # noqa: PLC0415 - brings httpx, 0.1 s

    config = machine.config
    if stays_here(config.summary_provider, config.summary_base_url, config.summary_model):
        return lambda *_: True
    policy, isolated = policy_of(machine.store, config), isolated_sessions(machine.store, config.isolated_projects)

    def may_send(session_id: str, harness: str, at: int, folder: str | None) -> bool:
        if harness in config.isolated or session_id in isolated:
            return False
        return policy.why_private(session_id, at, folder) is None

    return may_send
