-- Refused blobs are counted and not kept: they still wait at the relay and on their device.

DROP TABLE quarantine;
