"""Remove secrets, private spans and recalled text from every string of every line, before anything is stored.

This package works on bytes and knows nothing of turns, stores or settings. What it promises:

* a line in which nothing is found comes back untouched, byte for byte;
* otherwise only the found stretches change, each to ``[redacted:kind:hash8]``, ``[private]`` or ``[recalled]``: the
  rest of the line keeps its bytes, so valid JSON stays valid JSON with the same structure;
* cleaning cleaned text changes nothing;
* no call raises: a line that cannot be cleaned is replaced whole.

Source: docs/adr/0003-redaction-rules.md and docs/explanation/redaction.md.
"""

from crystal.redact.redactor import FAILED_LINE, Redactor

__all__ = ["FAILED_LINE", "Redactor"]
