-- What somebody asks to remember, what is forgotten for good, and what was told at the start of a session.

DROP TABLE memories;                       -- no version before this one wrote into it

CREATE TABLE memories (                    -- what somebody asked to remember
    id         INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used twice
    uid        TEXT NOT NULL UNIQUE,       -- mem- and 12 hexadecimal digits: the same on every machine
    text       TEXT NOT NULL,              -- what to remember
    category   TEXT NOT NULL CHECK (category IN ('fact', 'preference', 'event', 'opinion', 'skill')),
    key        TEXT UNIQUE,                -- exact look-up, NULL for most
    project    INTEGER REFERENCES projects(id),  -- where it holds, NULL: everywhere
    status     TEXT NOT NULL CHECK (status IN ('active', 'deprecated')),  -- deprecated: kept, and not found
    source     TEXT NOT NULL,              -- by which door it came: cli, mcp, prompt, python, or a caller's own name
    agent      TEXT NOT NULL,              -- crystal's agent id of the machine where it was asked for
    device     TEXT NOT NULL,              -- that machine's name
    session    TEXT,                       -- Claude Code's id of the session in which it was asked for
    created_at INTEGER NOT NULL,           -- when it was first remembered
    updated_at INTEGER NOT NULL            -- when it was last changed: the newest version wins between machines
);

CREATE TABLE memory_history (              -- what a memory was before it was changed
    id       INTEGER PRIMARY KEY,          -- the row
    memory   INTEGER NOT NULL REFERENCES memories(id),  -- which one
    text     TEXT NOT NULL,                -- its words then
    category TEXT NOT NULL,                -- its category then
    status   TEXT NOT NULL,                -- its status then
    from_at  INTEGER NOT NULL,             -- since when it was so
    until_at INTEGER NOT NULL              -- when it was changed
);
CREATE INDEX memory_history_memory ON memory_history(memory, until_at);

ALTER TABLE chunks ADD COLUMN memory INTEGER REFERENCES memories(id); -- the memory that it is a part of, else NULL
CREATE INDEX chunks_memory ON chunks(memory) WHERE memory IS NOT NULL;

CREATE TRIGGER mirror_memory_new AFTER INSERT ON memories WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('memory', NEW.id, 0) ON CONFLICT DO NOTHING; END;
CREATE TRIGGER mirror_memory_changed AFTER UPDATE ON memories WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('memory', NEW.id, 0) ON CONFLICT DO NOTHING; END;
CREATE TRIGGER mirror_memory_gone AFTER DELETE ON memories WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('memory', OLD.id, 0) ON CONFLICT DO NOTHING; END;

-- Forgetting. What blocks lines are private_lines (by id) and private_marks (by session, folder and time).

ALTER TABLE private_marks ADD COLUMN folder TEXT; -- only what was said in this folder or below, NULL: anywhere

CREATE TABLE tombstones (                  -- what was forgotten, so that nothing brings it back: names, never words
    id       INTEGER PRIMARY KEY AUTOINCREMENT,  -- in the order in which this machine learnt of them
    uid      TEXT NOT NULL UNIQUE,         -- 32 hexadecimal digits: the same on every machine
    kind     TEXT NOT NULL CHECK (kind IN ('lines', 'session', 'project', 'before', 'memory')),
    value    TEXT NOT NULL,                -- JSON: ids of lines, of a session, of memories; folders of a project
    until_at INTEGER,                      -- session, project, before: what was said before this moment
    made_at  INTEGER NOT NULL,             -- when it was forgotten
    device   TEXT NOT NULL,                -- on which machine
    done_at  INTEGER,                      -- when nothing of it was left here, NULL while there is work
    heard_at INTEGER                       -- on a device: when home said that it has it, by home's clock, NULL: not yet
);
CREATE INDEX tombstones_open ON tombstones(id) WHERE done_at IS NULL;

CREATE TABLE forgotten_sessions (          -- something of these was forgotten: what may repeat it is left out
    session_id TEXT PRIMARY KEY            -- Claude Code's id
) WITHOUT ROWID;

CREATE TABLE forget_work (                 -- files and blobs that still hold what was forgotten: the rows are gone
    id      INTEGER PRIMARY KEY,           -- the row
    kind    TEXT NOT NULL,                 -- archive, file, outbox
    target  TEXT NOT NULL,                 -- which: a path relative to the LDM home, a stream
    detail  TEXT NOT NULL,                 -- JSON: where in it; numbers, never words
    made_at INTEGER NOT NULL               -- when it was noted
);

-- The start of a session.

CREATE TABLE injections (                  -- what was told to the agent at the start of a session
    id         INTEGER PRIMARY KEY,        -- the row
    at         INTEGER NOT NULL,           -- when
    session_id TEXT NOT NULL,              -- Claude Code's id
    source     TEXT NOT NULL,              -- startup, resume, clear, compact
    candidates INTEGER NOT NULL,           -- how many memories and sessions there were
    chosen     TEXT NOT NULL,              -- JSON: the ids of those that were told
    omitted    INTEGER NOT NULL,           -- how many memories were not, because there was no room
    tokens     INTEGER NOT NULL,           -- how long it was, about
    UNIQUE (session_id, source)
);
