"""The metadata of an entry: headers, frontmatter, its texts for readers, state and version."""
