"""Run ``event.py``, whose byte code Python caches: the script that a client starts at each event.

Python compiles a script at every start; with the whole hook in it, that took a third of a bare interpreter's start.
"""

import os
import sys

if __name__ == "__main__":
    try:
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
        event = __import__("event")
        sys.path.pop(0)
        event.main(sys.argv[1:])
    except BaseException:  # no failure here reaches the user's session: even a bug is silent
        pass
    os._exit(0)  # without the interpreter's clean-up, which takes as long as the hook
