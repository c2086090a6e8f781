"""Define crystal's tools: names, descriptions, hints, and the schemas of their arguments. Data only."""

from __future__ import annotations

from dataclasses import replace

from crystal.mcp.tool import MAX_NAME, Schema, Tool, flag, number, one_of, text

FORMAT: Schema = {
    "type": "string",
    "enum": ["markdown", "json"],
    "description": "The form of the text. Default markdown.",
}

_TIME = "7d, 24h, yesterday, 2026-11-20, 2026-11-20T14:30"
_PROJECT = "Only this project, by its name."
_AGENT = "Only this agent, such as claude-code or codex, or by its id."
_CURRENT = flag("Also search the session that asks, which has it in its context already.")
_OFFSET = "Skip so many from the beginning, to get the next page."
_SESSION = "Only this session: its id, or the beginning of it."

SEARCHING = Tool(
    "crystal_search",
    "Search the memory",
    "Find what was said in past sessions with coding agents on this user's machines, and what was remembered: "
    "decisions, causes of bugs, commands, preferences, names. Use it before you ask the user for something they may "
    "have said already, when they refer to earlier work ('as we did last week', 'the usual way'), and before you "
    "redo an investigation. Ask in plain words; words in quotation marks must stand together; times such as "
    "'last Tuesday' are understood. Hits are data from the past, each with who said it, when and where: "
    "check what may have changed since.",
    "searching:search",
    "read",
    {
        "query": text("What to look for, in any language.", 4_000),
        "queries": {"type": "array", "minItems": 1, "maxItems": 5, "items": text("One wording.", 4_000),
                    "description": "The same question in several wordings, searched at once: synonyms, the user's "
                    "words, an identifier. What several of them find comes first. With query, or instead of it."},
        "limit": number("How many hits. Default 10.", 1, 50),
        "offset": number(_OFFSET, 0, 900),
        "project": text(_PROJECT),
        "session": text(_SESSION),
        "role": text("Only user, assistant, thinking, tool_call, tool_result, subagent, source or memory; several by"
                     " commas."),
        "agent": text(_AGENT),
        "device": text("Only this machine, by its name."),
        "branch": text("Only this git branch."),
        "source": text("Only what comes from: conversation, memory, file; or a source of files, by its name."),
        "since": text(f"Not older than: {_TIME}.", 60),
        "before": text(f"Older than: {_TIME}.", 60),
        "as_of": text("Search the memory as it was at this time.", 60),
        "recency": one_of("How much to prefer newer hits.", ["off", "light", "strong"]),
        "fusion": one_of(
            "How words and meaning are put together; similarity: meaning alone, scores are cosines from 0 to 1.",
            ["weighted", "rrf", "similarity"],
        ),
        "deep": flag("Let the model that the user has set up for it find other wordings and the order; slower."),
        "include_current": _CURRENT,
        "around": flag("Also the beginning of what was said just before and after each hit."),
    },
    open_world=True,
)  # fmt: skip

GETTING = Tool(
    "crystal_get",
    "Read from the memory",
    "Read a hit of crystal_search with what was said around it, a whole session page by page, or a memory by its id "
    "or its exact key. Use it when a hit is cut off or its surroundings matter.",
    "reading:get",
    "read",
    {
        "id": text("The id of a hit (17, m17), a session, a memory (mem-...) or a line; or the beginning of one."),
        "key": text("The exact key of a memory, instead of an id."),
        "context": number("With a hit: show N turns before and after it. Default 2.", 0, 20),
        "offset": number("With a session: skip so many turns from its beginning.", 0, 1_000_000),
        "start": number("With a hit or a memory: begin at this character of its text.", 0, 100_000_000),
    },
)

CATEGORIES = ("fact", "preference", "event", "opinion", "skill")

REMEMBERING = Tool(
    "crystal_remember",
    "Remember something",
    "Keep a short fact, preference, event, opinion or skill for later sessions, on all of the user's machines. Use it "
    "when the user asks to remember something, or when a lasting decision or preference was stated. Write one "
    "self-contained sentence or two. Conversations are kept anyway: do not copy them. Never keep passwords or keys. "
    "The same words again only refresh it; a known key gets the new value.",
    "changing:remember",
    "remember",
    {
        "text": text("What to remember, in full sentences.", 8_000),
        "category": one_of("What kind of thing it is. Default fact.", CATEGORIES),
        "key": text("A name for exact look-up, such as user_name; it names one memory."),
        "project": text("Where it applies: the name of a project. Default: everywhere."),
        "this_project": flag("It applies to the project of the current folder."),
    },
    ("text",),
)

_IDS: Schema = {
    "anyOf": [
        {"type": "string", "minLength": 1, "maxLength": MAX_NAME},
        {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": MAX_NAME}, "minItems": 1,
         "maxItems": 50},
    ],
    "description": "The id of a memory (mem-...), of a hit (17, m17) or of a line; several as a list.",
}  # fmt: skip

_SOURCE = text("Only this source, by its name.", 60)

_DEFINITIONS = (
    SEARCHING,
    REMEMBERING,
    Tool(
        "crystal_forget",
        "Forget for good",
        "Remove something from the memory for good, on all of the user's machines. Only when the user asks for it. The "
        "first call only shows what would go, and gives a token; show the user that list, and call it again with "
        "confirm=TOKEN when they agree. It cannot be undone.",
        "changing:forget",
        "forget",
        {
            "id": _IDS,
            "query": text("Everything with these words.", 1_000),
            "session": text("A whole session: its id, or the beginning of it."),
            "project": text("Everything of a project, by its name."),
            "before": text(f"Everything that is older than: {_TIME}.", 60),
            "key": text("The memory with this key."),
            "confirm": text("The token of the preview: carry out exactly what it showed."),
        },
        repeats=False,
    ),
    Tool(
        "crystal_status",
        "State of the memory",
        "Whether conversations are captured, how much is kept, what waits and what is wrong. Use it when the memory "
        "seems to lack something, or when the user asks about it.",
        "status:status",
        "read",
        {},
    ),
    GETTING,
    Tool(
        "crystal_recent",
        "The last messages or sessions",
        "The last messages or sessions of this project, for a quick idea of the state of the work; a session has its "
        "id, number of turns and last day. "
        "Use it when the user wants to go on with something ('where were we?').",
        "days:recent",
        "read",
        {
            "what": one_of(
                "Messages of users and assistants, or sessions. Default messages.", ["messages", "sessions"]
            ),
            "limit": number("How many. Default 20 messages, 10 sessions.", 1, 100),
            "offset": number(_OFFSET, 0, 890),
            "all": flag("All projects, not only that of the current folder."),
            "project": text("Another project, by its name."),
            "agent": text(_AGENT),
            "before": text(f"Only what is older than: {_TIME}.", 60),
            "include_current": _CURRENT,
        },
    ),
    Tool(
        "crystal_timeline",
        "What happened when",
        "Which sessions went on (id, turns, hour) and what was remembered, day by day, the latest first. Use it for "
        "questions about time: 'what did we do last week?', 'when did we start with the migration?'.",
        "days:timeline",
        "read",
        {
            "since": text(f"From this time on. Default 7d. {_TIME}.", 60),
            "before": text("To this time. Default now.", 60),
            "project": text(_PROJECT),
            "limit": number("How many entries. Default 50.", 1, 200),
            "offset": number(_OFFSET, 0, 500),
        },
    ),
    Tool(
        "crystal_blame",
        "Why these lines are as they are",
        "Which past session wrote lines of a file, what the user had asked for, and what the agent said. Each has its "
        "line numbers and session. Use it before you change or remove code whose reason you do not know.",
        "work:blame",
        "read",
        {
            "file": text("The file, relative to your working folder.", 1_000),
            "first": number("Its first line. Default 1.", 1, 10_000_000),
            "last": number("The last line. Default: same as first; without both, the whole file.", 1, 10_000_000),
            "project": text("The project that knows the file, by its name. Default: that of the file's folder."),
        },
        ("file",),
        needs_folder=True,
    ),
    Tool(
        "crystal_changed",
        "Which files were changed",
        "Which files agents edited in a session or since a time: lines added and removed, the last day and session, "
        "the path; … is the folder of the file above. Use it to see what earlier work touched.",
        "work:changed",
        "read",
        {
            "session": text(_SESSION),
            "since": text(f"From this time on. Default 7d, without a session. {_TIME}.", 60),
            "before": text("Before this time.", 60),
            "project": text(_PROJECT),
            "offset": number(_OFFSET, 0, 10_000),
        },
    ),
    Tool(
        "crystal_how",
        "How it is done here",
        "Which commands did something in this project and succeeded: run its tests, deploy, lint, release. Each with "
        "its certainty (0 to 1, left out if 1), how often it ran, how long ago, and how the last run ended. Use it "
        "before you guess a command.",
        "work:how",
        "read",
        {
            "question": text("What is to be done, in a few words.", 200),
            "project": text("Another project, by its name."),
            "all": flag("All projects, not only that of the current folder."),
        },
        ("question",),
    ),
    Tool(
        "crystal_fix",
        "What cured this error before",
        "What cured an error in this project before: the edits or commands after which the same command succeeded. "
        "Use it when a command fails, before you look for the cause yourself.",
        "work:fix",
        "read",
        {
            "error": text("What the command printed, or the line that tells the error.", 20_000),
            "project": text("Another project, by its name."),
        },
        ("error",),
    ),
    Tool(
        "crystal_about",
        "History of a thing",
        "What happened to a file, a symbol, an error, a package, a person, a branch or #123: edits, failures, cures, "
        "decisions, what was said; … is the folder of the file above. Use it before you change something that others "
        "worked on.",
        "work:about",
        "read",
        {
            "thing": text("Its name as it is written: src/cart.py, total_price, #123, a line of an error.", 500),
            "project": text("Another project, by its name."),
            "offset": number(_OFFSET, 0, 10_000),
        },
        ("thing",),
    ),
    Tool(
        "crystal_sources_add",
        "Search files too",
        "Index the text files of a folder inside your working folder, so that crystal_search finds them beside "
        "conversations: notes, documentation, code. Only when the user asks for it.",
        "sources:add",
        "remember",
        {
            "path": text("The folder, relative to your working folder.", 1_000),
            "name": text("What to call it. Default: the folder's name.", 60),
        },
        ("path",),
        needs_folder=True,
    ),
    Tool(
        "crystal_sources_sync",
        "Read changed files",
        "Read what has changed in the folders that the user has added, so that crystal_search finds it. Use it before "
        "you search for something that was written into a file just now.",
        "sources:sync",
        "remember",
        {"name": _SOURCE},
        needs_folder=True,
    ),
    Tool(
        "crystal_sources_status",
        "Indexed folders",
        "Which folders of files are indexed, and when they were last read.",
        "sources:status",
        "read",
        {},
    ),
)

TOOLS = tuple(replace(tool, properties={**tool.properties, "response_format": FORMAT}) for tool in _DEFINITIONS)

CONNECTOR = (
    Tool("search", "Search the memory", f"{SEARCHING.description} Each result has an id for fetch.",
         "connector:search", "read", {"query": SEARCHING.properties["query"]}, ("query",), is_json=True),
    Tool("fetch", "Read from the memory",
         "Read a result of search with what was said around it, a memory, or a session, by its id.",
         "connector:fetch", "read", {"id": GETTING.properties["id"]}, ("id",), is_json=True),
)  # fmt: skip
"""Tools with the names that hosted assistants expect; over HTTP only."""

_SCOPE = one_of("Where it applies; global only if the user allows it. Default project.", ["project", "global"])

ALIASES = (
    Tool("search_memory", "Search the memory (other name)", "The same as crystal_search, by another name.",
         "searching:search", "read",
         {"query": SEARCHING.properties["query"], "limit": SEARCHING.properties["limit"]}, ("query",),
         open_world=True),
    Tool("get_recent_conversations", "The last sessions (other name)",
         "The last sessions of all projects: crystal_recent by another name.", "days:recent", "read",
         {"n": number("How many. Default 10.", 1, 100)},
         renamed={"n": "limit"}, fixed={"what": "sessions", "all": True}),
    Tool("save_memory", "Remember something (other name)", "The same as crystal_remember, by another name.",
         "changing:remember", "remember",
         {"content": REMEMBERING.properties["text"], "source": text("Who or what asks for it.", 100)},
         ("content",), renamed={"content": "text"}),
    Tool("memory_search", "Search by similarity (other name)",
         "Search by meaning alone: each hit with its score, a cosine from 0 to 1.",
         "searching:search_by_similarity", "read",
         {"query": SEARCHING.properties["query"],
          "maxResults": number("How many hits at most. Default 10.", 1, 50),
          "minScore": {"type": "number", "minimum": 0, "maximum": 1, "description": "Only hits at least as near."}},
         ("query",), open_world=True, renamed={"maxResults": "limit"}, fixed={"fusion": "similarity"}),
    Tool("read_memory", "Read what is remembered (other name)",
         "What is remembered for this project, or with scope global for all projects, the latest first.",
         "scopes:read", "read", {"scope": _SCOPE}, needs_folder=True),
    Tool("write_memory", "Remember something (other name)",
         "Remember something for this project, or with scope global for all projects.",
         "scopes:write", "remember", {"content": REMEMBERING.properties["text"], "scope": _SCOPE}, ("content",),
         needs_folder=True),
)  # fmt: skip
"""Tools with the names of other memory servers, for instructions written for those; see setting ``mcp.aliases``."""
