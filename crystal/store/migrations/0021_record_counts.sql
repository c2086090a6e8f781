-- What the readers made of the records they got: a harness that changed its format shows in the share of unknown ones.
CREATE TABLE record_counts (
    transcript INTEGER NOT NULL,          -- row of capture_state
    kind       TEXT NOT NULL,             -- said: it gave turns; silent: known to give none; else the unknown kind
    is_unknown INTEGER NOT NULL,          -- 1 for an unknown kind, which may be called said or silent, too
    number     INTEGER NOT NULL,          -- of such records since they are counted
    PRIMARY KEY (transcript, is_unknown, kind)
) WITHOUT ROWID;
