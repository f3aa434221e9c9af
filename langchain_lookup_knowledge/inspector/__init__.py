"""The inspector: web pages about recorded lookups."""
