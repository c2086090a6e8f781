"""Files beside conversations: find them in a folder, read and split them, keep the store equal to the disk.

The disk is the truth: whatever happened to the store, the next sync makes it equal to what a fresh one would hold.
"""
