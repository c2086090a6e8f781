"""Fixtures of these tests."""

from __future__ import annotations

import pytest

from crystal.redact import Redactor


@pytest.fixture(scope="module")
def redactor() -> Redactor:
    return Redactor(b"a key of this machine")
