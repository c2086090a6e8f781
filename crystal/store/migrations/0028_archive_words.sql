-- Which words the archived lines may have, so that a search of the archives for some words need not read them all.

CREATE TABLE archive_words (
    last  INTEGER PRIMARY KEY,             -- the last of some rows of the ledger that follow each other
    first INTEGER NOT NULL,                -- the first of them
    words BLOB NOT NULL                    -- a Bloom filter of the words in their lines
);

-- Other lines have other words; and of forgotten ones none may stay.
CREATE TRIGGER archive_words_changed AFTER UPDATE OF clean_hash ON segments
BEGIN
    DELETE FROM archive_words WHERE last = (SELECT min(last) FROM archive_words WHERE last >= OLD.id) AND first <= OLD.id;
END;
CREATE TRIGGER archive_words_gone AFTER DELETE ON segments
BEGIN
    DELETE FROM archive_words WHERE last = (SELECT min(last) FROM archive_words WHERE last >= OLD.id) AND first <= OLD.id;
END;
CREATE TRIGGER archive_words_new AFTER INSERT ON segments
BEGIN
    DELETE FROM archive_words WHERE last = (SELECT min(last) FROM archive_words WHERE last >= NEW.id) AND first <= NEW.id;
END;
