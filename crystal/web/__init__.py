"""Show the memory as pages in a browser on this machine: ``crystal web``.

It shows what the use cases of ``crystal.app`` return, and holds no SQL. Nothing that is stored is kept in this process
longer than one request: what is forgotten is gone from it too. Decision: docs/adr/0041-web-page.md.
"""
