-- Harnesses that rewrite their files or keep databases: what was seen of them is told by the ids of their records.
CREATE TABLE snapshot_records (
    transcript INTEGER NOT NULL,          -- row of capture_state
    record     TEXT NOT NULL,             -- the record's id
    state      TEXT NOT NULL CHECK (state IN ('captured', 'private', 'skipped', 'recovered', 'lost')),
    hash       BLOB,                      -- keyed hash of what it said, NULL when private or unknown
    size       INTEGER NOT NULL,          -- bytes of its newest state
    superseded INTEGER NOT NULL DEFAULT 0, -- bytes of its earlier states, which are in the archive
    PRIMARY KEY (transcript, record)
) WITHOUT ROWID;

CREATE TABLE snapshot_stamps (
    path         TEXT NOT NULL,           -- the file or database
    conversation TEXT NOT NULL,           -- key of a conversation in it; empty for all of it
    stamp        TEXT NOT NULL,           -- differs whenever the content does
    PRIMARY KEY (path, conversation)
) WITHOUT ROWID;
