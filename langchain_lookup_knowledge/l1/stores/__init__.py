"""Where passages live: the embedded index, a Qdrant server, collections created elsewhere."""
