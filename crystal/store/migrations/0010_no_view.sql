-- Nothing reads it: the serving generation's table is named in embedding_generations.

DROP VIEW IF EXISTS chunks_vec;
