-- What nobody read: the newest time that a peer's documents named.

ALTER TABLE relay_peers DROP COLUMN told_at;
