"""Two entries of crystal's server in a client's file, of different versions."""

from __future__ import annotations

from crystal.install.clients.table import Entry

ENTRY = Entry("/venv/bin/crystal", ("mcp",), {"LDM_HOME": "/home/user/my memory"})
OLDER = Entry("/old venv/bin/crystal", ("mcp",), {"CRYSTAL_CONFIG": "/old.toml"})
