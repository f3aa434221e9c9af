"""From candidates to an answer: selection, order, displayed text and relevance."""
