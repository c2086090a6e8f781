-- The derived index: mapped files beside this one that hold words and vectors in the form in which they are searched
-- fastest. They may be deleted at any time. What they hold is listed here, so that one look sees list and chunks as one.

CREATE TABLE index_state (                 -- one row, once there is an index; without it nothing is noted
    id          INTEGER PRIMARY KEY CHECK (id = 1),
    format      INTEGER NOT NULL,          -- of the files: another one is built anew
    version     INTEGER NOT NULL DEFAULT 0,  -- rises with every change of the list of files
    upto        INTEGER NOT NULL DEFAULT 0,  -- the newest entry of the log that was looked at
    to_read     INTEGER,                   -- chunks to this id are still to be read, NULL when all are in
    generations TEXT NOT NULL DEFAULT '{}',  -- JSON: embedding generations whose vectors are in or noted, with models
    made_at     INTEGER NOT NULL           -- when the building began
);

CREATE TABLE index_parts (                 -- the files
    name       TEXT PRIMARY KEY,           -- of the file, never used twice
    kind       TEXT NOT NULL CHECK (kind IN ('words', 'vectors')),
    of         TEXT,                       -- for vectors: the words file whose documents they belong to
    generation INTEGER,                    -- for vectors: the embedding generation
    documents  INTEGER NOT NULL,           -- how many it has
    bytes      INTEGER NOT NULL,           -- how long the file is
    mtime_ns   INTEGER NOT NULL,           -- when the file was written: another time, and it is looked through
    checksum   INTEGER NOT NULL,           -- CRC-32 of its directory, which has those of its content
    made_at    INTEGER NOT NULL,           -- when it was made
    retired_at INTEGER                     -- when others took its place, NULL while it is used
) WITHOUT ROWID;

CREATE TABLE index_log (                   -- what is not in the files yet: searches look at these chunks themselves
    seq   INTEGER PRIMARY KEY AUTOINCREMENT,
    chunk INTEGER NOT NULL,                -- its id
    what  TEXT NOT NULL                    -- new, changed, gone; vector: it has been embedded
);

CREATE TRIGGER index_chunk_new AFTER INSERT ON chunks WHEN EXISTS (SELECT 1 FROM index_state)
BEGIN INSERT INTO index_log (chunk, what) VALUES (NEW.id, 'new'); END;
CREATE TRIGGER index_chunk_changed
AFTER UPDATE OF turn, start, text, source, role, session, project, agent, device, branch, subagent, ts ON chunks
WHEN EXISTS (SELECT 1 FROM index_state)
BEGIN INSERT INTO index_log (chunk, what) VALUES (NEW.id, 'changed'); END;
CREATE TRIGGER index_chunk_gone AFTER DELETE ON chunks WHEN EXISTS (SELECT 1 FROM index_state)
BEGIN INSERT INTO index_log (chunk, what) VALUES (OLD.id, 'gone'); END;
-- Also when the number stays: a mirror replaces a vector by another of the same generation.
CREATE TRIGGER index_chunk_vector AFTER UPDATE OF vector_generation ON chunks
WHEN NEW.vector_generation > 0 AND EXISTS (SELECT 1 FROM index_state)
BEGIN INSERT INTO index_log (chunk, what) VALUES (NEW.id, 'vector'); END;
