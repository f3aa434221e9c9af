"""Text: cleaning, the structure of Markdown, tokens, and word lists."""
