"""Serve the memory over HTTP to programs that have a token (docs/adr/0044-asked-from-anywhere.md)."""
