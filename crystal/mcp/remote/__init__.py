"""The memory over HTTP, for programs that have a token (docs/adr/0044-asked-from-anywhere.md)."""
