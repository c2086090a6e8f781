-- The foundation. Times are milliseconds since the Unix epoch, UTC; offsets are bytes.

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,                -- what is remembered about the store itself
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE projects (
    id       INTEGER PRIMARY KEY,
    cwd      TEXT NOT NULL UNIQUE,         -- the folder as the transcript names it
    git_root TEXT,                         -- the main work tree's root, also for linked worktrees
    remote   TEXT,                         -- origin's address without user and password
    name     TEXT NOT NULL                 -- last part of git_root, else of cwd
);

CREATE TABLE sessions (
    id               INTEGER PRIMARY KEY,
    session_id       TEXT NOT NULL UNIQUE, -- Claude Code's own id
    agent            TEXT NOT NULL,        -- crystal's agent id, e.g. cc-laptop
    device           TEXT NOT NULL,        -- the machine where it was captured
    project          INTEGER REFERENCES projects(id),  -- of the first turn that has a folder
    branch           TEXT,                 -- of the latest turn that names one
    title            TEXT,                 -- given by the user or the client; else made by the summary
    started_at       INTEGER,              -- time of the earliest turn
    last_at          INTEGER,              -- time of the latest turn
    ended_at         INTEGER,              -- when SessionEnd was seen, NULL while it may go on
    last_turn        INTEGER NOT NULL DEFAULT 0,  -- id of the newest turn of this session
    summarized_turn  INTEGER NOT NULL DEFAULT 0,  -- last_turn when the summary was written: due when lower
    summary_path     TEXT,                 -- relative to the agent's folder
    summary_mode     TEXT,                 -- how it was made: llm; simple; deferred (simple, a model is to follow)
    summary_title    TEXT,                 -- the title that the summary made: a title unlike it was given
    logged_turn      INTEGER NOT NULL DEFAULT 0   -- last_turn when the daily log line was written
);
CREATE INDEX sessions_last ON sessions(last_at);
CREATE INDEX sessions_project ON sessions(project, last_at);

CREATE TABLE capture_roots (
    path   TEXT PRIMARY KEY,               -- a folder of transcripts that crystal knows
    met_at INTEGER NOT NULL                -- what was in it then counts as seen, see rule before-crystal
) WITHOUT ROWID;

CREATE TABLE capture_state (
    id         INTEGER PRIMARY KEY,
    device     TEXT NOT NULL,              -- the machine where the file lives
    transcript TEXT NOT NULL,              -- file stem; <session>/<stem> for a subagent's
    agent      TEXT NOT NULL,
    session_id TEXT NOT NULL,
    subagent   TEXT,                       -- the subagent's id, NULL for a session's own transcript
    path       TEXT NOT NULL,              -- where the file was seen last
    dev        INTEGER NOT NULL DEFAULT 0, -- device number of that file
    inode      INTEGER NOT NULL DEFAULT 0,
    generation INTEGER NOT NULL DEFAULT 0, -- how often the file was found replaced
    offset     INTEGER NOT NULL DEFAULT 0, -- the watermark: all before it is in the ledger
    tail_hash  BLOB NOT NULL DEFAULT x'',  -- keyed hash of the bytes just before offset
    archive    TEXT,                       -- archive file, relative to the LDM home, NULL before the first capture
    updated_at INTEGER NOT NULL,
    UNIQUE (device, transcript)
);
CREATE INDEX capture_state_session ON capture_state(session_id);

CREATE TABLE segments (                    -- the byte ledger
    id             INTEGER PRIMARY KEY,
    transcript     INTEGER NOT NULL REFERENCES capture_state(id),
    generation     INTEGER NOT NULL,
    start          INTEGER NOT NULL,       -- first byte
    stop           INTEGER NOT NULL,       -- just after the last byte
    state          TEXT NOT NULL CHECK (state IN ('captured', 'private', 'skipped')),
    rule           TEXT,                   -- why it is private or skipped
    raw_hash       BLOB,                   -- keyed hash of the bytes in the file, NULL when private or skipped
    archive_offset INTEGER,                -- where its frame starts in the archive file
    archive_length INTEGER,                -- how long the frame is
    clean_hash     BLOB,                   -- SHA-256 of the archived lines, decompressed
    clean_length   INTEGER,
    captured_at    INTEGER NOT NULL,
    UNIQUE (transcript, generation, start),
    CHECK (stop > start),
    CHECK ((state = 'captured') = (clean_hash IS NOT NULL))
);

CREATE TABLE private_marks (               -- when capture was off
    id         INTEGER PRIMARY KEY,
    session_id TEXT,                       -- NULL: everything
    reason     TEXT NOT NULL,              -- off, session, environment
    from_at    INTEGER NOT NULL,
    last_at    INTEGER NOT NULL,           -- when it was last confirmed
    until_at   INTEGER                     -- NULL while it lasts
);

CREATE TABLE private_lines (
    uuid TEXT PRIMARY KEY                  -- a line left out: its copies in other files are left out too
) WITHOUT ROWID;

CREATE TABLE redactions (
    kind  TEXT PRIMARY KEY,                -- kind of secret
    count INTEGER NOT NULL                 -- how many were taken out since the beginning
) WITHOUT ROWID;

CREATE TABLE turns (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    uuid        TEXT NOT NULL,             -- the transcript line's own id
    part        INTEGER NOT NULL,          -- index of the block in the line
    session     INTEGER NOT NULL REFERENCES sessions(id),
    segment     INTEGER REFERENCES segments(id),
    offset      INTEGER NOT NULL,          -- of the line in its transcript
    role        TEXT NOT NULL,             -- user, assistant, thinking, tool_call, tool_result, subagent, summary
    tool        TEXT,                      -- name of the tool, for calls and results
    parent_uuid TEXT,
    subagent    TEXT,
    ts          INTEGER,
    project     INTEGER REFERENCES projects(id),
    branch      TEXT,
    message_id  TEXT,                      -- the API message that the line is a part of
    model       TEXT,
    full_length INTEGER NOT NULL,          -- characters, before a long result was cut to head and tail
    UNIQUE (uuid, part)
);
CREATE INDEX turns_session ON turns(session, ts, offset, part);
CREATE INDEX turns_segment ON turns(segment);

CREATE TABLE turn_copies (                 -- forked sessions copy lines: the turn is stored once, seen here too
    session INTEGER NOT NULL REFERENCES sessions(id),
    turn    INTEGER NOT NULL REFERENCES turns(id),
    PRIMARY KEY (session, turn)
) WITHOUT ROWID;
CREATE INDEX turn_copies_turn ON turn_copies(turn);

CREATE TABLE chunks (
    id                INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used twice: vectors hang on it
    turn              INTEGER REFERENCES turns(id),  -- NULL for what no transcript said
    start             INTEGER NOT NULL,    -- characters into the turn's text
    text              TEXT NOT NULL,       -- the turn's text is its chunks laid over each other at start
    text_sha256       BLOB NOT NULL,       -- the same text is embedded once
    source            TEXT NOT NULL,       -- kind of source: conversation, file, memory
    role              TEXT NOT NULL,
    session           INTEGER REFERENCES sessions(id),
    project           INTEGER REFERENCES projects(id),
    agent             TEXT NOT NULL,
    device            TEXT NOT NULL,
    branch            TEXT,
    subagent          TEXT,
    ts                INTEGER,
    vector_generation INTEGER NOT NULL DEFAULT 0  -- newest embedding generation that has its vector: the queue;
                                           -- -n: the provider of generation n refuses the text
);
CREATE INDEX chunks_turn ON chunks(turn);
CREATE INDEX chunks_session ON chunks(session);
CREATE INDEX chunks_project ON chunks(project, ts);
CREATE INDEX chunks_ts ON chunks(ts);
CREATE INDEX chunks_sha ON chunks(text_sha256);
CREATE INDEX chunks_pending ON chunks(vector_generation, ts);
-- What the filters of a search ask for, without the texts: 57 bytes a chunk to read instead of 1.5 KB.
CREATE INDEX chunks_origin ON chunks(role, branch, agent, device, source, subagent, project, session, ts, turn);

CREATE VIRTUAL TABLE chunks_fts USING fts5(
    text, content='chunks', content_rowid='id', tokenize='porter unicode61 remove_diacritics 2'
);
INSERT INTO chunks_fts(chunks_fts, rank) VALUES ('secure-delete', 1);

CREATE TABLE embedding_generations (       -- each has a table chunks_vec_<id> (vec0) of its own
    id         INTEGER PRIMARY KEY,
    provider   TEXT NOT NULL,
    model      TEXT NOT NULL,
    dimension  INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    serving    INTEGER NOT NULL DEFAULT 0, -- 1: searches use it
    UNIQUE (provider, model, dimension)
);

CREATE TABLE problems (                    -- what failed last, one row a room, gone when it works again
    room     TEXT PRIMARY KEY,             -- embedding, summary, capture ...
    message  TEXT NOT NULL,
    since    INTEGER NOT NULL,             -- first failure since it last worked
    at       INTEGER NOT NULL,             -- latest failure
    tries    INTEGER NOT NULL,             -- failures in a row with the same cause
    retry_at INTEGER,                      -- not before
    cause    TEXT                          -- fingerprint of the settings that failed: others may try at once
) WITHOUT ROWID;

CREATE TABLE costs (                       -- every paid call
    id            INTEGER PRIMARY KEY,
    at            INTEGER NOT NULL,
    purpose       TEXT NOT NULL,           -- embedding, summary
    provider      TEXT NOT NULL,
    model         TEXT NOT NULL,
    input_tokens  INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    usd           REAL NOT NULL
);
CREATE INDEX costs_at ON costs(at);

CREATE TABLE hook_runs (                   -- how long the hook took, as measured by itself
    at    INTEGER NOT NULL,
    event TEXT NOT NULL,
    ms    REAL NOT NULL
);

CREATE TABLE memories (                    -- what somebody asked to remember, filled by a later version
    id         INTEGER PRIMARY KEY,
    text       TEXT NOT NULL,              -- what to remember
    category   TEXT NOT NULL,              -- fact, preference, event, opinion, skill
    key        TEXT UNIQUE,                -- exact look-up
    status     TEXT NOT NULL,              -- active, deprecated
    created_at INTEGER NOT NULL,           -- when it was first remembered
    updated_at INTEGER NOT NULL            -- when it was last changed
);

CREATE TABLE entities (                    -- people, tools, places that memories speak of, filled by a later version
    id         INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,              -- as it was said
    kind       TEXT NOT NULL,              -- person, tool, project ...
    created_at INTEGER NOT NULL,           -- when it was first met
    UNIQUE (name, kind)
);

CREATE TABLE relationships (               -- what entities have to do with each other, filled by a later version
    id         INTEGER PRIMARY KEY,
    subject    INTEGER NOT NULL REFERENCES entities(id),  -- who does
    verb       TEXT NOT NULL,              -- what it does
    object     INTEGER NOT NULL REFERENCES entities(id),  -- to whom
    chunk      INTEGER REFERENCES chunks(id),  -- where it was said
    created_at INTEGER NOT NULL            -- when it was found
);

CREATE TABLE source_collections (          -- folders of files and notes to index, filled by a later version
    id         INTEGER PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,       -- as the user calls it
    path       TEXT NOT NULL,              -- the folder
    created_at INTEGER NOT NULL            -- when it was added
);

CREATE TABLE source_files (                -- the files of these folders
    id         INTEGER PRIMARY KEY,
    collection INTEGER NOT NULL REFERENCES source_collections(id),  -- its folder
    path       TEXT NOT NULL,              -- below the folder
    sha256     BLOB NOT NULL,              -- of the content that was indexed
    indexed_at INTEGER NOT NULL,           -- when
    UNIQUE (collection, path)
);

CREATE TABLE sources (                     -- which chunk comes from which file
    chunk INTEGER PRIMARY KEY REFERENCES chunks(id),  -- the chunk
    file  INTEGER NOT NULL REFERENCES source_files(id)  -- its file
);
