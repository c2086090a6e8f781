-- The relay: who is at the other end, what waits to be sent, what has come, and what could not be taken.
-- The other ends are the devices of a home machine, and the home machine of a device.

CREATE INDEX capture_state_archive ON capture_state(archive);

CREATE TABLE relay_peers (
    id            INTEGER PRIMARY KEY,     -- the row
    device_id     BLOB NOT NULL UNIQUE,    -- 16 random bytes given at pairing; the link's keys are derived with it
    side          TEXT NOT NULL CHECK (side IN ('home', 'device')),  -- what the other end is to this machine
    name          TEXT NOT NULL UNIQUE,    -- what the user calls the other machine
    agent         TEXT,                    -- the agent id that a device was paired with
    generation    INTEGER NOT NULL,        -- of the device's keys that are in use
    accepted_from INTEGER NOT NULL,        -- blobs of older generations are refused
    up_prefix     BLOB NOT NULL,           -- the first 8 bytes of every stream from the device
    down_prefix   BLOB NOT NULL,           -- the first 8 bytes of every stream to the device
    token_id      TEXT,                    -- the device's token at the relay, to revoke it
    paired_at     INTEGER NOT NULL,        -- when it joined, by our clock
    revoked_at    INTEGER,                 -- from then on nothing of it is taken
    heard_at      INTEGER,                 -- when something authentic of it came last, by our clock
    told_at       INTEGER,                 -- the newest time that its documents name, by its clock
    serials_in    TEXT NOT NULL DEFAULT '{}',  -- JSON: of the newest document taken, by channel: an older one is a replay
    serial_out    INTEGER NOT NULL DEFAULT 0,  -- of the newest document sent
    told          TEXT,                    -- JSON: what is remembered of its newest documents, NULL before the first
    sent          TEXT,                    -- JSON: fingerprints of the newest documents to it, by channel; when
    stale         TEXT NOT NULL DEFAULT '{}',  -- JSON: serials that a newer document of it must exceed, by channel
    forked_at     INTEGER,                 -- when two copies of the device were last seen
    vouches       INTEGER NOT NULL DEFAULT 0   -- 1: was home before, and may send what other devices said
);

CREATE TABLE relay_agents (                -- agent ids belong to the device that said something under them first
    agent TEXT PRIMARY KEY,                -- the id
    peer  INTEGER NOT NULL REFERENCES relay_peers(id) -- whose it is
) WITHOUT ROWID;

CREATE TABLE relay_out (                   -- streams that this machine writes
    id         INTEGER PRIMARY KEY,        -- the row
    stream     BLOB NOT NULL UNIQUE,       -- 16 bytes: prefix of the link, then random
    peer       INTEGER NOT NULL REFERENCES relay_peers(id), -- for whom
    channel    INTEGER NOT NULL,           -- see docs/spec/envelope.md
    lane       TEXT NOT NULL,              -- live; past (backfill, behind all that is live); latest (documents)
    generation INTEGER NOT NULL,           -- of the keys that seal it
    last_seq   INTEGER NOT NULL DEFAULT 0, -- of the newest sealed blob
    last_tag   BLOB NOT NULL,              -- its tag: the next one names it
    verified   INTEGER NOT NULL DEFAULT 0, -- receipts with the right tag cover the blobs to here
    opened_at  INTEGER NOT NULL,           -- when its first blob was sealed
    closed_at  INTEGER,                    -- when another stream took its place
    because    TEXT                        -- why it was opened: first; fork; resend; rotated; handover
);
CREATE UNIQUE INDEX relay_out_open ON relay_out(peer, channel, lane) WHERE closed_at IS NULL;

CREATE TABLE outbox (                      -- sealed blobs: each stays until the home machine's receipt covers it
    stream       INTEGER NOT NULL REFERENCES relay_out(id), -- in which stream
    seq          INTEGER NOT NULL,         -- its number there
    tag          BLOB NOT NULL,            -- the blob's last 32 bytes
    created_at   INTEGER NOT NULL,         -- when it was sealed first
    sent_at      INTEGER,                  -- when the relay took it, NULL while it waits
    again        INTEGER NOT NULL DEFAULT 0,  -- 1: the relay had it once, and is asked to keep it anew
    receipted_at INTEGER,                  -- when the receipt came; kept for some days after, for a restored home
    sealed       BLOB NOT NULL,            -- the blob as it is sent
    PRIMARY KEY (stream, seq)
);
CREATE INDEX outbox_waiting ON outbox(created_at) WHERE receipted_at IS NULL;
CREATE INDEX outbox_unsent ON outbox(stream, seq) WHERE sent_at IS NULL AND receipted_at IS NULL;
CREATE INDEX outbox_receipted ON outbox(receipted_at) WHERE receipted_at IS NOT NULL;

CREATE TABLE relay_in (                    -- streams that others write and this machine reads
    id        INTEGER PRIMARY KEY,         -- the row
    stream    BLOB NOT NULL UNIQUE,        -- 16 bytes, as the relay lists it
    peer      INTEGER REFERENCES relay_peers(id),  -- who seals it, NULL until a blob of it opened
    channel   INTEGER NOT NULL DEFAULT 0,  -- 0 until a blob of it opened
    lane      TEXT,                        -- live, past, latest; NULL until a blob of it opened
    last_seq  INTEGER NOT NULL DEFAULT 0,  -- all to here is committed, or skipped on record
    last_tag  BLOB NOT NULL,               -- the tag of that blob: the next one must name it
    head      INTEGER NOT NULL DEFAULT 0,  -- the newest seq that the relay or the sender told of
    listed    INTEGER NOT NULL DEFAULT 0,  -- the newest seq that the relay listed
    state     TEXT NOT NULL DEFAULT 'ok',  -- ok; waiting; fork; wrong-key; revoked; damaged; left
    code      TEXT,                        -- why it stands still: the code of the envelope's error
    detail    TEXT,                        -- the same in words
    since     INTEGER,                     -- since when
    tries     INTEGER NOT NULL DEFAULT 0,  -- how often it was tried since
    retry_at  INTEGER,                     -- not before
    resend    INTEGER,                     -- the sender is asked to send again from here
    forked    INTEGER NOT NULL DEFAULT 0,  -- 1: a copy of its device has left it; another may go on in it
    opened_at INTEGER NOT NULL             -- when it was met first
);

CREATE TABLE relay_claims (                -- how far a device says that it has sealed; the newest word of each stream
    source INTEGER NOT NULL REFERENCES relay_in(id),  -- of heartbeats: copies of one device have one each
    stream BLOB NOT NULL,                  -- the stream that it speaks of
    head   INTEGER NOT NULL,               -- the newest number in it
    PRIMARY KEY (stream, source)
) WITHOUT ROWID;
CREATE INDEX relay_claims_source ON relay_claims(source);

CREATE TABLE relay_fragments (             -- parts of a message whose last part has not come
    stream INTEGER NOT NULL REFERENCES relay_in(id), -- in which stream
    seq    INTEGER NOT NULL,               -- its number there
    body   BLOB NOT NULL,                  -- the opened part
    PRIMARY KEY (stream, seq)
);

CREATE TABLE relay_aside (                 -- blobs that were refused, set aside and never deleted
    stream   BLOB NOT NULL,                -- in which stream
    seq      INTEGER NOT NULL,             -- its number there
    sha256   BLOB NOT NULL,                -- of the blob as it came
    code     TEXT NOT NULL,                -- the code of the envelope's error
    detail   TEXT NOT NULL,                -- the same in words
    first_at INTEGER NOT NULL,             -- when it came first
    last_at  INTEGER NOT NULL,             -- when it came last
    times    INTEGER NOT NULL,             -- how often it came
    blob     BLOB,                         -- NULL where enough different ones of this place are kept
    PRIMARY KEY (stream, seq, sha256)
);

CREATE TABLE relay_skips (                 -- holes that the user decided to leave: crystal relay skip
    stream BLOB NOT NULL,                  -- in which stream
    seq    INTEGER NOT NULL,               -- the number that was left out
    code   TEXT,                           -- why it could not be taken
    at     INTEGER NOT NULL,               -- when it was decided
    PRIMARY KEY (stream, seq)
) WITHOUT ROWID;

CREATE TABLE relay_files (                 -- a file that two copies of a device continued differently
    device     TEXT NOT NULL,              -- whose file
    transcript TEXT NOT NULL,              -- its key
    stream     BLOB NOT NULL,              -- whose segments go to the other generation
    sent_as    INTEGER NOT NULL,           -- the generation that the device names
    generation INTEGER NOT NULL,           -- the generation that it has in this ledger
    PRIMARY KEY (device, transcript, stream, sent_as)
) WITHOUT ROWID;
