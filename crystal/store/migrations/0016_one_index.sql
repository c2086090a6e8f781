-- The search index beside the database finds words, and phrases with the texts: a second index of them is not needed.

DROP TABLE chunks_fts;
DELETE FROM forget_work WHERE kind = 'words';
