"""The derived index beside crystal.db: words and vectors in mapped files, made again whenever they are lost."""
