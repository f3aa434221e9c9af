"""How objects show themselves: one line in a console, a small table in a notebook."""
