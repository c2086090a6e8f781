-- Refused blobs are counted and not kept: they still wait at the relay and on their device.

DROP TABLE quarantine;

-- The marks of the positions tell two histories of the mirror apart, and the serials of the documents what is newer.

ALTER TABLE mirror_home DROP COLUMN epoch;
ALTER TABLE mirror_home DROP COLUMN ended;
ALTER TABLE mirror_home DROP COLUMN version;
ALTER TABLE mirror_applied DROP COLUMN epoch;
ALTER TABLE mirror_applied DROP COLUMN version;
