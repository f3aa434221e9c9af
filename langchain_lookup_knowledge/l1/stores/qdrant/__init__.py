"""Collections on a Qdrant server, cluster or cloud, made by this package or created elsewhere."""
