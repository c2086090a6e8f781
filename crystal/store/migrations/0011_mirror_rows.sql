-- Every row that travels is noted with the position that has it, instead of ranges of ids; vectors travel as they are
-- stored; documents, which nothing read, do not travel. Home publishes anew, and devices build their mirror anew.

DROP TABLE mirror_waiting;
DROP TABLE mirror_files;
DROP TABLE documents;
DROP TABLE mirror_objects;
DROP TABLE mirror_home;
DROP TABLE mirror_applied;
DROP TABLE mirror_rows;
DELETE FROM mirror_keys;
DELETE FROM meta WHERE key = 'left_out';

CREATE TABLE mirror_home (                 -- one row, once this machine publishes
    id           INTEGER PRIMARY KEY CHECK (id = 1),
    stream       BLOB NOT NULL,            -- 16 random bytes: the stream that objects are sealed in
    epoch        BLOB NOT NULL,            -- 16 random bytes, new when this machine was restored from a backup
    ended        TEXT NOT NULL DEFAULT '[]',  -- JSON: epochs that devices know and that have ended, hexadecimal
    version      INTEGER NOT NULL DEFAULT 0,  -- of the newest manifest: rises within an epoch
    position     INTEGER NOT NULL DEFAULT 0,  -- of the newest object
    number       INTEGER NOT NULL DEFAULT 0,  -- of the newest sealed object, merged ones counted
    generation   INTEGER NOT NULL DEFAULT 0,  -- the embedding generation whose vectors are sent
    is_changed   INTEGER NOT NULL DEFAULT 0,  -- 1: the list of objects is not that of the newest manifest
    published_at INTEGER NOT NULL DEFAULT 0,  -- when nothing was left to publish, as the newest manifest says
    looked_at    INTEGER NOT NULL DEFAULT 0   -- when the relay was asked last which objects it has
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
    stale        INTEGER NOT NULL DEFAULT 0   -- 1: the relay has lost it; 2: it holds what was deleted
);

CREATE TABLE mirror_rows (                 -- rows that travel, and in which object
    kind     TEXT NOT NULL,                -- see KINDS in crystal/store/sync/mirror_content.py
    key      BLOB NOT NULL,                -- the row's id, or its key as text
    position INTEGER NOT NULL,             -- 0: changed since, and not published yet; an absent row is a deletion
    PRIMARY KEY (kind, key, position)
) WITHOUT ROWID;
CREATE INDEX mirror_rows_position ON mirror_rows(position, kind);

CREATE TABLE mirror_applied (              -- one row in a device's mirror: how far it is
    id           INTEGER PRIMARY KEY CHECK (id = 1),
    position     INTEGER NOT NULL,         -- everything to here is applied
    mark         BLOB NOT NULL,            -- the mark of that position
    epoch        BLOB,                     -- of the newest manifest that was applied as a whole
    version      INTEGER,                  -- its version
    published_at INTEGER                   -- its time, by the home machine's clock
);

CREATE TRIGGER mirror_turn_new AFTER INSERT ON turns WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('turn', NEW.id, 0) ON CONFLICT DO NOTHING; END;
CREATE TRIGGER mirror_text_new AFTER INSERT ON chunks WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('text', NEW.id, 0) ON CONFLICT DO NOTHING; END;

DROP TRIGGER mirror_chunk_gone;
CREATE TRIGGER mirror_chunk_gone AFTER DELETE ON chunks WHEN EXISTS (SELECT 1 FROM mirror_home)
BEGIN INSERT INTO mirror_rows VALUES ('text', OLD.id, 0) ON CONFLICT DO NOTHING; END;

-- A text that waits takes its vector along. The plus takes the affinity away, which would keep the index from use.
CREATE TRIGGER mirror_vector_new AFTER UPDATE OF vector_generation ON chunks
WHEN NEW.vector_generation <> 0 AND EXISTS (SELECT 1 FROM mirror_home WHERE generation = abs(NEW.vector_generation))
    AND NOT EXISTS (SELECT 1 FROM mirror_rows WHERE kind = 'text' AND key = +NEW.id AND position = 0)
BEGIN INSERT INTO mirror_rows VALUES ('vector', NEW.id, 0) ON CONFLICT DO NOTHING; END;
