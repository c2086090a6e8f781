"""Shared code of the servers on this machine: sockets, and the checks of a request that need no memory."""
