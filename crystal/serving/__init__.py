"""Share code of this machine's servers: sockets, and the checks of a request that need no memory."""
