-- Refused blobs: few are kept, the others are counted.

CREATE TABLE quarantine (                  -- refused blobs of devices in use, within the budget of relay.quarantine_*
    id       INTEGER PRIMARY KEY,          -- the row
    peer     INTEGER NOT NULL REFERENCES relay_peers(id), -- who may write the stream
    stream   BLOB NOT NULL,                -- in which stream
    seq      INTEGER NOT NULL,             -- its number there
    sha256   BLOB NOT NULL,                -- of the blob as it came
    code     TEXT NOT NULL,                -- the code of the envelope's error
    detail   TEXT NOT NULL,                -- the same in words
    proved   INTEGER NOT NULL,             -- 1: sealed with the device's key; others make room for it
    first_at INTEGER NOT NULL,             -- when it came first
    last_at  INTEGER NOT NULL,             -- when it came last
    times    INTEGER NOT NULL,             -- how often it came
    blob     BLOB NOT NULL,                -- as it came
    UNIQUE (stream, seq, sha256)
);
CREATE INDEX quarantine_peer ON quarantine(peer);

CREATE TABLE refusals (                    -- what is not kept: one row for each reason
    peer     INTEGER NOT NULL,             -- whose, 0: of nobody that is paired
    code     TEXT NOT NULL,                -- why: a code of the envelope; unknown; revoked; untried; budget
    streams  INTEGER NOT NULL,             -- how many streams the relay lists, 0 where blobs were fetched
    blobs    INTEGER NOT NULL,             -- how many blobs: listed now, or refused since the first
    first_at INTEGER NOT NULL,             -- since when
    last_at  INTEGER NOT NULL,             -- the latest
    PRIMARY KEY (peer, code)
) WITHOUT ROWID;

INSERT INTO quarantine (peer, stream, seq, sha256, code, detail, proved, first_at, last_at, times, blob)
    SELECT p.id, a.stream, a.seq, a.sha256, a.code, a.detail,
           a.code NOT IN ('length', 'magic', 'version', 'suite', 'tag'), a.first_at, a.last_at, a.times, a.blob
    FROM relay_aside a JOIN relay_peers p ON substr(a.stream, 1, 8) IN (p.up_prefix, p.down_prefix)
    WHERE a.blob IS NOT NULL AND a.code NOT IN ('key', 'revoked', 'old-key') AND p.revoked_at IS NULL;
DROP TABLE relay_aside;
