"""What is private on this machine now: by the settings, and by the marks that were set."""

from __future__ import annotations

from crystal.app.context import Machine
from crystal.capture.privacy import Policy
from crystal.store.capture.privacy import marks


def policy_of(machine: Machine) -> Policy:
    """Return what is private on this machine now."""
    return Policy(marks(machine.store), tuple(machine.config.private_projects), tuple(machine.config.private_sessions))


def is_off(policy: Policy) -> bool:
    """Return True if capture is off for all sessions."""
    return any(mark.until_at is None and mark.session_id is None and mark.folder is None for mark in policy.marks)
