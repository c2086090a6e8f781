"""Index files beside conversations: find them in a folder, read and split them, keep the store equal to the disk.

Whatever happened to the store, the next sync makes it equal to a new index of the folder.
"""
