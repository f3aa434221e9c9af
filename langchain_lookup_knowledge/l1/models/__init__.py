"""The models: embedding, reranking, and running them in this process."""
