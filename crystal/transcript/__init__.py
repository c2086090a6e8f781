"""Transcripts: framing (bytes to lines), and the readers that turn lines into turns, one for each harness.

Framing never fails on content; reading is pure, tolerant, and can be run again when it improves. The package does not
use the store, the clock, secrets or file owners. ``reader`` says what a reader does, ``claude_code`` is one.
"""
