"""The relay: what a machine gives to it and takes from it. The relay itself is trusted with nothing."""
