"""Search over memory items: BM25, dense vectors and their rank fusion."""
