"""Lines and samples for the tests of the redaction."""

from __future__ import annotations

import json

from tests.support import redact_samples as samples


def line_with(text: str, levels: int = 0) -> bytes:
    return json.dumps({"type": "user", "message": {"content": samples.nested(text, levels)}}).encode()
