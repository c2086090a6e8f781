"""Install the programs that ``CRYSTAL_E2E`` asks for, and ask each of them one thing: ``python -m tests.e2e``."""

from __future__ import annotations

import sys
import time

from tests.e2e.agents import AGENTS
from tests.e2e.client import find_client
from tests.e2e.programs import NoAnswer, NoClient, install_inspector
from tests.e2e.running_agents import install_agent


def main() -> int:
    """Print what is there, before the tests compete for the machine. Return 1 if a program does not answer."""
    is_bad = False
    agents = [(agent.name, lambda agent=agent: install_agent(agent)) for agent in AGENTS]
    for name, get in (("claude-code", find_client), ("mcp-inspector", install_inspector), *agents):
        begin = time.monotonic()
        try:
            get()
            said = "answers"
        except (NoClient, NoAnswer) as reason:
            said, is_bad = str(reason), is_bad or isinstance(reason, NoAnswer)
        print(f"{name}: {said}, {time.monotonic() - begin:.0f} s", flush=True)
    return int(is_bad)


if __name__ == "__main__":
    sys.exit(main())
