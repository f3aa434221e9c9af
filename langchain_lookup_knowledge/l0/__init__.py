"""L0: matching keywords and frontmatter, without a model or network access."""
