"""What the servers of this machine share: sockets, and the checks of a request that need no memory."""
