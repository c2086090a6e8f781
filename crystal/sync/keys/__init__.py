"""The relay's keys: making, writing down, keeping and handing over.

The room knows secrets and their forms; it knows neither the network nor the terminal, and nothing of what the keys
open (that is ``crystal.sync.envelope``). What is random or comes from the environment is passed in.
"""
