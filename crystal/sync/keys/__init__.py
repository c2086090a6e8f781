"""Make, write down, store and hand over the keys of the relay.

The package knows secrets and their forms, but not the network, the terminal or the data that the keys open (see
``crystal.sync.envelope``). Randomness and the environment are passed in.
"""
