-- The mirror: what the home machine has published of its memory, and what a device's copy of it has applied.
-- The rules are in docs/spec/mirror.md. All tables but the last two are the home machine's.

CREATE TABLE mirror_home (                 -- one row, once this machine publishes
    id           INTEGER PRIMARY KEY CHECK (id = 1),
    stream       BLOB NOT NULL,            -- 16 random bytes: the stream that objects are sealed in
    epoch        BLOB NOT NULL,            -- 16 random bytes, new when this machine was restored from a backup
    ended        TEXT NOT NULL DEFAULT '[]',  -- JSON: epochs that devices know and that have ended, hexadecimal
    version      INTEGER NOT NULL DEFAULT 0,  -- of the newest manifest: rises within an epoch
    position     INTEGER NOT NULL DEFAULT 0,  -- of the newest object
    number       INTEGER NOT NULL DEFAULT 0,  -- of the newest sealed object, merged ones and indexes counted
    chunks_upto  INTEGER NOT NULL DEFAULT 0,  -- chunks to this id are in objects
    turns_upto   INTEGER NOT NULL DEFAULT 0,  -- turns to this id are
    vectors_upto INTEGER NOT NULL DEFAULT 0,  -- of chunks to this id the vectors are, or the chunk waits for its own
    generation   INTEGER NOT NULL DEFAULT 0,  -- the embedding generation whose vectors are sent
    is_changed   INTEGER NOT NULL DEFAULT 0,  -- 1: the list of objects is not that of the newest manifest
    published_at INTEGER NOT NULL DEFAULT 0,  -- when nothing was left to publish, as the newest manifest says
    counts       TEXT NOT NULL DEFAULT '{}',  -- JSON: rows by table then, empty when some waited
    looked_at    INTEGER NOT NULL DEFAULT 0,  -- when the relay was asked last which objects it has
    index_upto   INTEGER NOT NULL DEFAULT 0,  -- objects to this position are listed in the index object
    index_object BLOB,                     -- JSON: its entry, NULL while there is none
    index_of     BLOB                      -- SHA-256 of the list in it
);

CREATE TABLE mirror_keys (                 -- what objects are sealed with, the newest last
    id      INTEGER PRIMARY KEY,
    link    BLOB NOT NULL,                 -- 32 random bytes
    made_at INTEGER NOT NULL
);

CREATE TABLE mirror_objects (              -- the list: together they cover every position once
    last         INTEGER PRIMARY KEY,      -- the newest position in it
    first        INTEGER NOT NULL,         -- the oldest
    marks        BLOB NOT NULL,            -- 8 random bytes for each position: which history it belongs to
    number       INTEGER NOT NULL DEFAULT 0,  -- the seq that it is sealed with
    sha256       BLOB,                     -- of the sealed object, its first 16 bytes the id; NULL until it is uploaded
    size         INTEGER NOT NULL DEFAULT 0,  -- sealed
    raw          INTEGER NOT NULL DEFAULT 0,  -- before sealing
    level        INTEGER NOT NULL DEFAULT 0,  -- how often it was merged
    sealed_by    INTEGER REFERENCES mirror_keys(id),
    made_at      INTEGER NOT NULL,
    chunks_after INTEGER NOT NULL,         -- it holds the chunks above this id
    chunks_upto  INTEGER NOT NULL,         -- and to this one
    turns_after  INTEGER NOT NULL,
    turns_upto   INTEGER NOT NULL,
    generation   INTEGER NOT NULL,         -- of the vectors in it
    vectors      TEXT NOT NULL,            -- JSON: first and last chunk id of each range whose vectors are in it
    stale        INTEGER NOT NULL DEFAULT 0   -- 1: the relay has lost it; 2: it holds what was deleted
);

CREATE TABLE mirror_rows (                 -- rows that travel one by one, and in which object
    kind     TEXT NOT NULL,                -- project, session, memory, private, copy, document; turn, chunk, text: changed
    key      BLOB NOT NULL,                -- the row's id, or its key as text
    position INTEGER NOT NULL,             -- 0: changed since, and not published yet; an absent row is a deletion
    PRIMARY KEY (kind, key, position)
) WITHOUT ROWID;
CREATE INDEX mirror_rows_position ON mirror_rows(position, kind);

CREATE TABLE mirror_waiting (              -- chunks that were published without a vector
    chunk INTEGER PRIMARY KEY
);

CREATE TABLE mirror_files (                -- documents as they were when they were last looked at
    name     TEXT PRIMARY KEY,             -- agent, a slash, the path below the agent's folder
    size     INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    sha256   BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE mirror_trash (                -- objects that are no longer listed, or not yet
    object BLOB PRIMARY KEY,               -- the id at the relay
    since  INTEGER NOT NULL                -- it is deleted some time after
) WITHOUT ROWID;

CREATE TABLE mirror_applied (              -- one row in a device's mirror: how far it is
    id           INTEGER PRIMARY KEY CHECK (id = 1),
    position     INTEGER NOT NULL,         -- everything to here is applied
    mark         BLOB NOT NULL,            -- the mark of that position
    epoch        BLOB,                     -- of the newest manifest that was applied as a whole
    version      INTEGER,                  -- its version
    published_at INTEGER,                  -- its time, by the home machine's clock
    counts       TEXT                      -- JSON: rows by table then
);

CREATE TABLE documents (                   -- in a device's mirror: summaries and daily logs of the home machine
    agent   TEXT NOT NULL,
    path    TEXT NOT NULL,                 -- below the agent's folder
    content BLOB NOT NULL,
    PRIMARY KEY (agent, path)
) WITHOUT ROWID;

-- What changes is noted, where a mirror is published; elsewhere these cost a look into an empty table.
-- Not OR IGNORE: the statement that fires a trigger would overrule it.

CREATE TRIGGER mirror_project_new AFTER INSERT ON projects WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('project', NEW.id, 0) ON CONFLICT DO NOTHING; END;
CREATE TRIGGER mirror_project_changed AFTER UPDATE ON projects WHEN EXISTS (SELECT 1 FROM mirror_home)
    AND (OLD.cwd, OLD.git_root, OLD.remote, OLD.name) IS NOT (NEW.cwd, NEW.git_root, NEW.remote, NEW.name)
BEGIN INSERT INTO mirror_rows VALUES ('project', NEW.id, 0) ON CONFLICT DO NOTHING; END;
CREATE TRIGGER mirror_project_gone AFTER DELETE ON projects WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('project', OLD.id, 0) ON CONFLICT DO NOTHING; END;

CREATE TRIGGER mirror_session_new AFTER INSERT ON sessions WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('session', NEW.id, 0) ON CONFLICT DO NOTHING; END;
CREATE TRIGGER mirror_session_changed AFTER UPDATE ON sessions WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('session', NEW.id, 0) ON CONFLICT DO NOTHING; END;
CREATE TRIGGER mirror_session_gone AFTER DELETE ON sessions WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('session', OLD.id, 0) ON CONFLICT DO NOTHING; END;

CREATE TRIGGER mirror_memory_new AFTER INSERT ON memories WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('memory', NEW.id, 0) ON CONFLICT DO NOTHING; END;
CREATE TRIGGER mirror_memory_changed AFTER UPDATE ON memories WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('memory', NEW.id, 0) ON CONFLICT DO NOTHING; END;
CREATE TRIGGER mirror_memory_gone AFTER DELETE ON memories WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('memory', OLD.id, 0) ON CONFLICT DO NOTHING; END;

CREATE TRIGGER mirror_private_new AFTER INSERT ON private_lines WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('private', NEW.uuid, 0) ON CONFLICT DO NOTHING; END;
CREATE TRIGGER mirror_private_gone AFTER DELETE ON private_lines WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('private', OLD.uuid, 0) ON CONFLICT DO NOTHING; END;

CREATE TRIGGER mirror_copy_new AFTER INSERT ON turn_copies WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('copy', NEW.session || ':' || NEW.turn, 0) ON CONFLICT DO NOTHING; END;
CREATE TRIGGER mirror_copy_gone AFTER DELETE ON turn_copies WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('copy', OLD.session || ':' || OLD.turn, 0) ON CONFLICT DO NOTHING; END;

-- New turns and chunks need no note: their ids rise.
CREATE TRIGGER mirror_turn_changed
AFTER UPDATE OF uuid, part, session, offset, role, tool, parent_uuid, subagent, ts, project, branch, message_id, model,
    full_length ON turns WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('turn', NEW.id, 0) ON CONFLICT DO NOTHING; END;
CREATE TRIGGER mirror_turn_gone AFTER DELETE ON turns WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('turn', OLD.id, 0) ON CONFLICT DO NOTHING; END;

CREATE TRIGGER mirror_chunk_changed
AFTER UPDATE OF source, role, session, project, agent, device, branch, subagent, ts ON chunks
WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('chunk', NEW.id, 0) ON CONFLICT DO NOTHING; END;
CREATE TRIGGER mirror_text_changed AFTER UPDATE OF turn, start, text, text_sha256 ON chunks
WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('text', NEW.id, 0) ON CONFLICT DO NOTHING; END;
CREATE TRIGGER mirror_chunk_gone AFTER DELETE ON chunks WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('chunk', OLD.id, 0) ON CONFLICT DO NOTHING; END;
