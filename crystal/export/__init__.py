"""Export sessions as JSON Lines, which another crystal can import, as Markdown, or as one HTML page.

It reads the store and the archive, where secrets and private text were removed before anything was stored. It does
not choose the sessions, and does not know the terminal.
"""
