"""From files to entries, and from entries to passages."""
