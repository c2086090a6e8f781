"""Implement ``crystal search``."""

from __future__ import annotations

from typing import Annotated

from crystal.cli.options import AsJson, OnlyAgent, OnlyProject, OnlySession, argument, flag, option
from crystal.cli.run_search import run_search


def search(
    query: Annotated[list[str] | None, argument('What to look for. "Words in quotation marks" are a phrase.')] = None,
    limit: Annotated[str | None, option("How many hits at most.", "N", "-n", "--limit")] = None,
    since: Annotated[str | None, option("Not older than: 24h, 7d, yesterday, 2026-11-20 ...", "TIME")] = None,
    before: Annotated[str | None, option("Older than: 24h, 7d, today, 2026-11-20 ...", "TIME")] = None,
    project: OnlyProject = None,
    session: OnlySession = None,
    role: Annotated[
        str | None,
        option(
            "Only user, assistant, thinking, tool, tool_call, tool_result, subagent, summary, source, memory;"
            " several by commas.",
            "ROLE",
        ),
    ] = None,
    agent: OnlyAgent = None,
    device: Annotated[str | None, option("Only this machine.", "NAME")] = None,
    branch: Annotated[str | None, option("Only this git branch.", "NAME")] = None,
    source: Annotated[
        str | None, option("Only what comes from: conversation, file, memory; or one of `crystal sources`.", "SOURCE")
    ] = None,
    everything: Annotated[bool, flag("Search everything, also inside the folder of a known project.", "--all")] = False,
    as_of: Annotated[str | None, option("Search the memory as it was: 2026-05-01, 30d, yesterday ...", "TIME")] = None,
    recency: Annotated[str | None, option("How much to prefer newer hits: off, light, strong.", "HOW")] = None,
    fusion: Annotated[
        str | None, option("How to combine keywords and vectors: weighted, rrf, similarity.", "HOW")
    ] = None,
    deep: Annotated[bool, flag("Ask a model for other wordings and the order (see deep.provider).", "--deep")] = False,
    explain: Annotated[bool, flag("Show each engine's rank and score of every hit.", "--explain")] = False,
    as_json: AsJson = False,
) -> None:
    """Find what was said.

    Inside the folder of a project that crystal knows, that project is searched first, and everything if it has
    nothing. The exit code is 0 also when nothing is found.
    """
    run_search(
        query, limit=limit, since=since, before=before, project=project, session=session, role=role, agent=agent,
        device=device, branch=branch, source=source, everything=everything, as_of=as_of, recency=recency, fusion=fusion,
        deep=deep, explain=explain, as_json=as_json,
    )  # fmt: skip
