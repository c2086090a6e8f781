"""Keys of the relay: make, write down, keep and hand over.

The package knows secrets and their forms, but not the network, the terminal or the data that the keys open (see
``crystal.sync.envelope``). Randomness and the environment are passed in.
"""
