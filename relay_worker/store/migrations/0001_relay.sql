-- The relay's database. Times are milliseconds since the Unix epoch, UTC. Nothing in it can be read without the
-- devices' keys but what is named here.

CREATE TABLE accounts (
    id     INTEGER PRIMARY KEY,
    name   TEXT NOT NULL UNIQUE,
    bytes  INTEGER NOT NULL DEFAULT 0,      -- of all stored bodies, blobs and objects
    change INTEGER NOT NULL DEFAULT 0,      -- rises with every blob stored or expired; about microseconds since 1970
    floor  INTEGER NOT NULL DEFAULT 0       -- change when the server last started: who knows less is told everything
);

CREATE TABLE tokens (
    id           TEXT PRIMARY KEY,
    account      INTEGER NOT NULL REFERENCES accounts(id),
    label        TEXT NOT NULL,
    scopes       TEXT NOT NULL,             -- separated by spaces
    secret_hash  BLOB NOT NULL,             -- SHA-256 of the secret's characters
    created_at   INTEGER NOT NULL,
    last_used_at INTEGER,                   -- up to a minute late
    revoked_at   INTEGER
) WITHOUT ROWID;

CREATE TABLE streams (
    id           INTEGER PRIMARY KEY,
    account      INTEGER NOT NULL REFERENCES accounts(id),
    stream       BLOB NOT NULL,             -- 16 bytes
    head         INTEGER NOT NULL DEFAULT 0,
    acked        INTEGER NOT NULL DEFAULT 0,
    count        INTEGER NOT NULL DEFAULT 0,
    bytes        INTEGER NOT NULL DEFAULT 0,
    expired_upto INTEGER NOT NULL DEFAULT 0,
    change       INTEGER NOT NULL DEFAULT 0,  -- of the account, when a blob was last stored or expired here
    UNIQUE (account, stream)
);

CREATE TABLE blobs (
    id     INTEGER PRIMARY KEY,
    stream INTEGER NOT NULL REFERENCES streams(id),
    seq    INTEGER NOT NULL,
    size   INTEGER NOT NULL,
    at     INTEGER NOT NULL,                -- when it was stored
    tag    BLOB NOT NULL,                   -- its last 32 bytes
    digest BLOB NOT NULL,                   -- SHA-256 of all of it
    file   TEXT,                            -- in bodies/, when it is large
    body   BLOB,                            -- when it is not
    UNIQUE (stream, seq)
);

CREATE INDEX blobs_by_age ON blobs(at);

CREATE TABLE settled (
    stream  INTEGER NOT NULL REFERENCES streams(id),
    seq     INTEGER NOT NULL,
    at      INTEGER NOT NULL,               -- when it was acknowledged or expired
    expired INTEGER NOT NULL,               -- 1: nobody read it, its writer may store it again
    tag     BLOB NOT NULL,
    digest  BLOB NOT NULL,
    PRIMARY KEY (stream, seq)
) WITHOUT ROWID;

CREATE INDEX settled_by_age ON settled(at);

CREATE TABLE objects (
    id      INTEGER PRIMARY KEY,
    account INTEGER NOT NULL REFERENCES accounts(id),
    object  BLOB NOT NULL,                  -- 16 bytes
    size    INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    digest  BLOB NOT NULL,
    file    TEXT,
    body    BLOB,
    UNIQUE (account, object)
);

CREATE TABLE mailboxes (
    nameplate  INTEGER PRIMARY KEY,
    account    INTEGER NOT NULL REFERENCES accounts(id),
    expires_at INTEGER NOT NULL,
    claim_hash BLOB                         -- SHA-256 of the joiner's secret, NULL until claimed
);

CREATE TABLE mail (
    nameplate INTEGER NOT NULL REFERENCES mailboxes(nameplate) ON DELETE CASCADE,
    side      TEXT NOT NULL,
    phase     TEXT NOT NULL,
    body      BLOB NOT NULL,
    PRIMARY KEY (nameplate, side, phase)
) WITHOUT ROWID;

CREATE TABLE probe (
    id INTEGER PRIMARY KEY,                 -- one row, written by the readiness check
    at INTEGER NOT NULL
);
