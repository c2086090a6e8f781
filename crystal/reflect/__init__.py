"""Learn memories from sessions: lasting statements of the user, decisions, commands that work.

Sources are the user's own words, proposals of the assistant that the user accepted, and commands that succeeded in
several sessions. Tool output, pages, files, quotes, pasted text and recalled memories are never a source.

Source: docs/adr/0042-reflector.md.
"""
