"""Two entries of crystal's server in a client's file, of different versions."""

from crystal.install.clients.known import ServerCommand

ENTRY = ServerCommand("/venv/bin/crystal", ("mcp",), {"LDM_HOME": "/home/user/my memory"})
OLDER = ServerCommand("/old venv/bin/crystal", ("mcp",), {"CRYSTAL_CONFIG": "/old.toml"})
