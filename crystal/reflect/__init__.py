"""Learn memories from sessions: what the user said and holds beyond the task, what was decided, what works here.

Only the user's own words are a source, what the assistant proposed and the user accepted, and commands that succeeded
again and again. Tool output, pages, files, quotes, pasted text and recalled memories are never one.

Source: docs/adr/0042-reflector.md.
"""
